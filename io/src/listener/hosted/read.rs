//! Reading a served partition: byte runs, aborted transactions, offsets by time.

use std::io;
use std::sync::Arc;

use heliostat_core::log::read_plan::{
    BatchPlace, BatchScan, ReadPlanError, ReadRequest, SegmentExtent, SegmentRead, locate,
    plan_read,
};
use heliostat_core::log::txn_index::AbortedTxn;
use heliostat_core::records::{BatchHeader, BatchMeta, BatchWalker, DecodedBatch, WalkLimits};
use heliostat_core::serve::aborted_in;
use heliostat_core::types::{Offset, TimestampMs};

use super::error::HostedError;
use super::segment::Segment;

/// A batch larger than this is not opened to look for one record's time.
const BATCH_BYTES_MAX: u64 = 128 << 20;
/// Records of one batch, decompressed.
const RECORDS_BYTES_MAX: usize = 256 << 20;

/// Bytes of one segment that answer a fetch.
#[derive(Clone, Debug)]
pub struct RecordsRun {
    /// The segment; its file stays open as long as this lives.
    pub segment: Arc<Segment>,
    /// Where in the file.
    pub position: u64,
    /// How many bytes, at least one.
    pub len: u64,
    /// No batch of the run reaches this offset.
    pub end_bound: Offset,
}

/// A record found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOffset {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp.
    pub timestamp: TimestampMs,
}

/// Some segments of one partition as they were at one moment, oldest first.
#[derive(Debug)]
pub(super) struct Segments {
    segments: Vec<Arc<Segment>>,
    extents: Vec<SegmentExtent>,
}

impl Segments {
    pub(super) fn new(segments: &[Arc<Segment>]) -> Self {
        let extents = segments.iter().map(|segment| segment.extent()).collect();
        Self { segments: segments.to_vec(), extents }
    }

    fn find(&self, base: Offset) -> io::Result<&Arc<Segment>> {
        let index = self.segments.partition_point(|segment| segment.base() < base);
        self.segments
            .get(index)
            .filter(|segment| segment.base() == base)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// The run that answers `request`.
    pub(super) fn run(
        &mut self,
        request: &ReadRequest,
    ) -> Result<Option<RecordsRun>, ReadPlanError<io::Error>> {
        let extents = std::mem::take(&mut self.extents);
        let run = plan_read(&extents, request, self);
        self.extents = extents;
        let Some(run) = run? else { return Ok(None) };
        let segment = self
            .find(run.segment)
            .map_err(|source| ReadPlanError::Read { segment: run.segment, source })?;
        // The index knows a nearer bound than the readable end, if it reaches that far.
        let indexed = segment.grown().indexed_offset_from(run.position.saturating_add(run.len));
        let end_bound = indexed.map_or(run.end_bound, |offset| offset.min(run.end_bound));
        Ok(Some(RecordsRun {
            segment: Arc::clone(segment),
            position: run.position,
            len: run.len,
            end_bound,
        }))
    }

    /// Aborted transactions that touch `from` to `to`.
    pub(super) fn aborted(&self, from: Offset, to: Offset) -> Vec<AbortedTxn> {
        let mut found = Vec::new();
        // A transaction is listed where its marker lies, which may be far behind.
        for segment in &self.segments {
            found.extend(aborted_in(&segment.grown().aborted, from, to));
        }
        found
    }

    /// The first record at or after `timestamp` from `log_start` on.
    pub(super) fn offset_for_time(
        &mut self,
        timestamp: TimestampMs,
        log_start: Offset,
    ) -> Result<Option<TimedOffset>, HostedError> {
        for (segment, extent) in self.segments.clone().iter().zip(self.extents.clone()) {
            let (floor, young) = {
                let grown = segment.grown();
                let young = grown.max_time.is_some_and(|max| max.timestamp >= timestamp);
                let floor = grown.time_floor(timestamp).unwrap_or(segment.base());
                (floor.max(log_start), young)
            };
            if !young {
                continue;
            }
            let Some(first) = locate(extent, floor, self)? else { continue };
            let mut scan = BatchScan::new(extent, first.position);
            while let Some(place) = scan.next(self)? {
                if let Some(found) = first_in_batch(segment, place, timestamp, log_start)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// The first record with the largest timestamp of all, from `log_start` on.
    pub(super) fn max_timestamp(
        &mut self,
        log_start: Offset,
    ) -> Result<Option<TimedOffset>, HostedError> {
        let largest = self.segments.iter().filter_map(|segment| segment.grown().max_time);
        // The first of equals: `max_by_key` would give the last.
        let Some(largest) = largest.map(|entry| entry.timestamp).max() else { return Ok(None) };
        if largest.0 < 0 {
            return Ok(None);
        }
        self.offset_for_time(largest, log_start)
    }
}

impl SegmentRead for Segments {
    type Error = io::Error;

    fn index_floor(&mut self, segment: Offset, target: Offset) -> io::Result<u64> {
        Ok(self.find(segment)?.grown().index_floor(target))
    }

    fn read_at(&mut self, segment: Offset, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.find(segment)?.read_at(position, into)
    }
}

/// Reads a whole batch and gives its facts.
fn read_batch(segment: &Segment, place: BatchPlace) -> Result<(BatchMeta, Vec<u8>), HostedError> {
    let size = usize::try_from(place.size.min(BATCH_BYTES_MAX)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; size];
    let read = segment
        .read_at(place.position, &mut bytes)
        .map_err(|source| ReadPlanError::Read { segment: segment.base(), source })?;
    bytes.truncate(read);
    let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: false };
    let (_, meta) = BatchWalker::new(limits).feed(&bytes)?;
    Ok((meta.ok_or(HostedError::CutOff)?, bytes))
}

fn first_in_batch(
    segment: &Segment,
    place: BatchPlace,
    timestamp: TimestampMs,
    log_start: Offset,
) -> Result<Option<TimedOffset>, HostedError> {
    // The header tells without the records whether the batch can hold it.
    let mut head = [0; heliostat_core::records::HEADER_V2_BYTES];
    let read = segment
        .read_at(place.position, &mut head)
        .map_err(|source| ReadPlanError::Read { segment: segment.base(), source })?;
    if let Some((header, _)) = head.get(..read).and_then(BatchHeader::view)
        && header.magic() >= 2
        && header.max_timestamp() < timestamp
    {
        return Ok(None);
    }
    let (meta, bytes) = read_batch(segment, place)?;
    if meta.max_timestamp < timestamp {
        return Ok(None);
    }
    let whole = |meta: &BatchMeta| TimedOffset {
        offset: meta.base_offset.max(log_start),
        timestamp: meta.max_timestamp,
    };
    // A body that cannot be read still has a place in time: its header's.
    let Ok(decoded) = DecodedBatch::decode(&meta, &bytes, RECORDS_BYTES_MAX) else {
        return Ok(Some(whole(&meta)));
    };
    for record in decoded.records() {
        let Ok(record) = record else { return Ok(Some(whole(&meta))) };
        if record.timestamp >= timestamp && record.offset >= log_start {
            return Ok(Some(TimedOffset { offset: record.offset, timestamp: record.timestamp }));
        }
    }
    Ok(None)
}

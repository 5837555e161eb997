//! Reading a served partition: byte runs, aborted transactions, offsets by time.

use std::fs::File;
use std::io;
use std::sync::Arc;

use heliostat_core::log::read_plan::{
    BatchPlace, BatchScan, ReadPlan, ReadPlanError, ReadRequest, SegmentExtent, SegmentRead,
    locate, plan_read,
};
use heliostat_core::log::txn_index::AbortedTxn;
use heliostat_core::records::{BatchHeader, BatchMeta, BatchWalker, DecodedBatch, WalkLimits};
use heliostat_core::serve::aborted_in;
use heliostat_core::types::{Offset, TimestampMs};

use super::hosted::HostedError;
use crate::served::StillShown;

/// A segment as a reader finds it.
pub(in crate::listener) trait ServedSegment {
    /// Its base offset, and how many bytes of it count.
    fn extent(&self) -> SegmentExtent;

    /// Its `.log`.
    fn file(&self) -> io::Result<Arc<File>>;

    /// Bytes in front of this position do not change any more, nor does the file system rewrite
    /// the block that they are in.
    fn settled_to(&self) -> u64;

    /// Fills `into` from `position` on as far as the file goes, and says how far.
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize>;

    /// A batch that begins at or below `target`, as near to it as is known.
    fn index_floor(&self, target: Offset) -> io::Result<u64>;

    /// Last offset of the first indexed batch at or behind `position`.
    fn indexed_offset_from(&self, position: u64) -> io::Result<Option<Offset>>;

    /// A batch with this base offset was found at `position`.
    fn mark(&self, offset: Offset, position: u64);

    /// Whether it may have a record as young as `timestamp`.
    fn may_reach(&self, timestamp: TimestampMs) -> io::Result<bool>;

    /// An offset up to which every record is older than `timestamp`.
    fn time_floor(&self, timestamp: TimestampMs) -> io::Result<Option<Offset>>;

    /// The largest timestamp; `None` if there is none.
    fn largest_time(&self) -> io::Result<Option<TimestampMs>>;

    /// Aborted transactions whose markers lie in it.
    fn aborted(&self) -> io::Result<Vec<AbortedTxn>>;
}

/// A batch larger than this is not opened to look for one record's time.
const BATCH_BYTES_MAX: u64 = 128 << 20;
/// Records of one batch, decompressed.
const RECORDS_BYTES_MAX: usize = 256 << 20;

/// Bytes of one segment that answer a fetch.
#[derive(Clone, Debug)]
pub struct RecordsRun {
    /// The segment's file.
    pub file: Arc<File>,
    /// Where in the file.
    pub position: u64,
    /// How many bytes, at least one.
    pub len: u64,
    /// Bytes at and behind this position are copied when they are sent: the file system may
    /// still rewrite their block.
    pub settled_to: u64,
    /// No batch of the run reaches this offset.
    pub end_bound: Offset,
    /// Of a file that may be cut or replaced by somebody else.
    pub(crate) still: Option<StillShown>,
}

impl RecordsRun {
    /// Whether what was read of it until now is what it was found to hold.
    pub(crate) fn is_still_there(&self) -> bool {
        self.still.as_ref().is_none_or(StillShown::is_true)
    }
}

/// What comes of a look for a run.
#[derive(Debug)]
pub(in crate::listener) enum Found {
    /// These bytes.
    Run(RecordsRun),
    /// Nothing that may be given.
    Nothing,
    /// All of these segments end below the wanted offset.
    Beyond,
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
pub(in crate::listener) struct Segments<S> {
    segments: Vec<S>,
    extents: Vec<SegmentExtent>,
}

impl<S: ServedSegment> Segments<S> {
    pub(in crate::listener) fn new(segments: Vec<S>) -> Self {
        let extents = segments.iter().map(ServedSegment::extent).collect();
        Self { segments, extents }
    }

    /// The run that answers `request`.
    pub(in crate::listener) fn run(
        &self,
        request: &ReadRequest,
    ) -> Result<Found, ReadPlanError<io::Error>> {
        let mut reader = Reader { segments: &self.segments, extents: &self.extents };
        let run = match plan_read(&self.extents, request, &mut reader)? {
            ReadPlan::Run(run) => run,
            ReadPlan::Nothing => return Ok(Found::Nothing),
            ReadPlan::Beyond => return Ok(Found::Beyond),
        };
        let failed = |source| ReadPlanError::Read { segment: run.segment, source };
        let segment = reader.find(run.segment).map_err(failed)?;
        segment.mark(run.first_base, run.position);
        // The index knows a nearer bound than the readable end, if it reaches that far.
        let end = run.position.saturating_add(run.len);
        let indexed = segment.indexed_offset_from(end).map_err(failed)?;
        Ok(Found::Run(RecordsRun {
            file: segment.file().map_err(failed)?,
            position: run.position,
            len: run.len,
            settled_to: segment.settled_to(),
            end_bound: indexed.map_or(run.end_bound, |offset| offset.min(run.end_bound)),
            still: None,
        }))
    }

    /// The first batch of the first segment that reaches `offset`.
    pub(in crate::listener) fn locate_in_first(
        &self,
        offset: Offset,
    ) -> Result<Option<BatchPlace>, ReadPlanError<io::Error>> {
        let mut reader = Reader { segments: &self.segments, extents: &self.extents };
        self.extents.first().map_or(Ok(None), |extent| locate(*extent, offset, &mut reader))
    }

    /// Base offset of the last of them.
    pub(in crate::listener) fn last_base(&self) -> Option<Offset> {
        self.extents.last().map(|extent| extent.base)
    }

    /// Those behind the one with this base offset.
    pub(in crate::listener) fn behind(mut self, base: Offset) -> Self {
        let known = self.extents.partition_point(|extent| extent.base <= base);
        self.segments.drain(..known);
        self.extents.drain(..known);
        self
    }

    /// Aborted transactions that touch `from` to `to`, and whether later segments have none.
    pub(in crate::listener) fn aborted(
        &self,
        from: Offset,
        to: Offset,
    ) -> io::Result<(Vec<AbortedTxn>, bool)> {
        let mut found = Vec::new();
        // A transaction is listed where its marker lies, which may be far behind.
        for segment in &self.segments {
            let all = segment.aborted()?;
            found.extend(aborted_in(&all, from, to));
            // Everything that began in front of this has been listed.
            if all.iter().any(|txn| txn.last_stable_offset >= to) {
                return Ok((found, true));
            }
        }
        Ok((found, false))
    }

    /// The largest timestamp; `None` if there is none.
    pub(in crate::listener) fn largest_time(&self) -> Result<Option<TimestampMs>, HostedError> {
        let mut largest = None;
        for (segment, extent) in self.segments.iter().zip(&self.extents) {
            let failed = |source| ReadPlanError::Read { segment: extent.base, source };
            largest = largest.max(segment.largest_time().map_err(failed)?);
        }
        Ok(largest)
    }

    /// The first record at or after `timestamp` from `log_start` on.
    pub(in crate::listener) fn offset_for_time(
        &self,
        timestamp: TimestampMs,
        log_start: Offset,
    ) -> Result<Option<TimedOffset>, HostedError> {
        let mut reader = Reader { segments: &self.segments, extents: &self.extents };
        for (segment, extent) in self.segments.iter().zip(&self.extents) {
            let failed = |source| ReadPlanError::Read { segment: extent.base, source };
            if !segment.may_reach(timestamp).map_err(failed)? {
                continue;
            }
            let floor = segment.time_floor(timestamp).map_err(failed)?.unwrap_or(extent.base);
            let Some(first) = locate(*extent, floor.max(log_start), &mut reader)? else { continue };
            let mut scan = BatchScan::new(*extent, first.position);
            while let Some(place) = scan.next(&mut reader)? {
                if let Some(found) = first_in_batch(segment, place, timestamp, log_start)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// The first record with the largest timestamp of all, from `log_start` on.
    pub(in crate::listener) fn max_timestamp(
        &self,
        log_start: Offset,
    ) -> Result<Option<TimedOffset>, HostedError> {
        match self.largest_time()?.filter(|largest| largest.0 >= 0) {
            Some(largest) => self.offset_for_time(largest, log_start),
            None => Ok(None),
        }
    }
}

/// Reads segments by their base offsets.
struct Reader<'a, S> {
    segments: &'a [S],
    extents: &'a [SegmentExtent],
}

impl<'a, S: ServedSegment> Reader<'a, S> {
    fn find(&self, base: Offset) -> io::Result<&'a S> {
        let index = self.extents.partition_point(|extent| extent.base < base);
        let is_it = self.extents.get(index).is_some_and(|extent| extent.base == base);
        let found = self.segments.get(index).filter(|_| is_it);
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl<S: ServedSegment> SegmentRead for Reader<'_, S> {
    type Error = io::Error;

    fn index_floor(&mut self, segment: Offset, target: Offset) -> io::Result<u64> {
        self.find(segment)?.index_floor(target)
    }

    fn read_at(&mut self, segment: Offset, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.find(segment)?.read_at(position, into)
    }
}

/// Reads a whole batch and gives its facts.
fn read_batch(
    segment: &impl ServedSegment,
    place: BatchPlace,
) -> Result<(BatchMeta, Vec<u8>), HostedError> {
    let size = usize::try_from(place.size.min(BATCH_BYTES_MAX)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; size];
    let read = segment
        .read_at(place.position, &mut bytes)
        .map_err(|source| ReadPlanError::Read { segment: segment.extent().base, source })?;
    bytes.truncate(read);
    let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: false };
    let (_, meta) = BatchWalker::new(limits).feed(&bytes)?;
    Ok((meta.ok_or(HostedError::CutOff)?, bytes))
}

/// The largest timestamp of a batch, as its header has it; `None` if that has none.
pub(in crate::listener) fn largest_in_batch(
    segment: &impl ServedSegment,
    place: BatchPlace,
) -> Result<Option<TimestampMs>, HostedError> {
    let mut head = [0; heliostat_core::records::HEADER_V2_BYTES];
    let read = segment
        .read_at(place.position, &mut head)
        .map_err(|source| ReadPlanError::Read { segment: segment.extent().base, source })?;
    let largest = match head.get(..read).and_then(BatchHeader::view) {
        Some((header, _)) if header.magic() >= 2 => header.max_timestamp(),
        _ => read_batch(segment, place)?.0.max_timestamp,
    };
    Ok(Some(largest).filter(|largest| largest.0 >= 0))
}

fn first_in_batch(
    segment: &impl ServedSegment,
    place: BatchPlace,
    timestamp: TimestampMs,
    log_start: Offset,
) -> Result<Option<TimedOffset>, HostedError> {
    // The header tells without the records whether the batch can hold it.
    let mut head = [0; heliostat_core::records::HEADER_V2_BYTES];
    let read = segment
        .read_at(place.position, &mut head)
        .map_err(|source| ReadPlanError::Read { segment: segment.extent().base, source })?;
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

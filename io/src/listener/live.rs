//! Logs of a host, as [`readable`](super::readable) wants them.

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use heliostat_core::log::read_plan::{BatchScan, ReadRequest, SegmentExtent, SegmentRead, locate};
use heliostat_core::log::txn_index::AbortedTxn;
use heliostat_core::records::{BatchHeader, HEADER_V2_BYTES};
use heliostat_core::serve::{NodeEndpoint, ServedFacts};
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition};
use kafka_protocol::error::ResponseError;

use super::hosted::{HostedError, Leadership};
use super::readable::{ReadableLook, ReadablePartition, ReadableTopics};
use super::reading::{RecordsRun, Segments, ServedSegment, TimedOffset};
use crate::served::{Hidden, SegmentFiles, ServedLog, ServedLogs};

/// More than the block that a direct write rewrites: the one in which the log ends.
const BLOCK_BYTES: u64 = 64 << 10;
/// Clients look for the leader again, wait, and ask again.
const HIDDEN: ResponseError = ResponseError::NotLeaderOrFollower;

impl From<Hidden> for ResponseError {
    fn from(_: Hidden) -> Self {
        HIDDEN
    }
}

/// All logs of a host.
#[derive(Debug)]
pub(super) struct LiveTopics {
    pub(super) logs: Arc<ServedLogs>,
    /// The host, which leads all of them.
    pub(super) node: BrokerId,
}

impl ReadableTopics for LiveTopics {
    fn partition(&self, topic: &str, partition: i32) -> Option<Arc<dyn ReadablePartition>> {
        let log = self.logs.log(topic, partition)?;
        Some(Arc::new(LivePartition { logs: Arc::clone(&self.logs), log, node: self.node }))
    }

    fn name_of(&self, id: TopicId) -> Option<Arc<str>> {
        self.logs.name_of(id)
    }

    fn nodes(&self) -> Vec<NodeEndpoint> {
        // Nobody else leads, so nobody is named.
        Vec::new()
    }
}

#[derive(Debug)]
struct LivePartition {
    logs: Arc<ServedLogs>,
    log: Arc<ServedLog>,
    node: BrokerId,
}

impl LivePartition {
    fn segments(&self, from: Offset) -> Result<(ServedFacts, Segments<LiveSegment<'_>>), Hidden> {
        let look = self.log.look(from)?;
        let count = look.segments.len();
        let segments = (1..).zip(look.segments).map(|(number, extent)| LiveSegment {
            of: self,
            extent,
            is_last: look.has_last && number == count,
            files: look.files,
            open: OnceLock::new(),
        });
        Ok((look.facts, Segments::new(segments.collect())))
    }

    /// Looks through all segments, some at a time, until `find` has found something.
    fn search<T>(
        &self,
        find: impl Fn(&Segments<LiveSegment<'_>>, Offset) -> Result<Option<T>, HostedError>,
    ) -> Result<Option<T>, HostedError> {
        let Ok(start) = self.log.facts().map(|facts| facts.log_start) else { return Ok(None) };
        let mut from = start;
        loop {
            let Ok((_, segments)) = self.segments(from) else { return Ok(None) };
            if let Some(found) = find(&segments, start)? {
                return Ok(Some(found));
            }
            match segments.last_base() {
                // The last one has been looked at, but is the first of the next ones.
                Some(last) if last > from => from = last,
                _ => return Ok(None),
            }
        }
    }
}

impl ReadablePartition for LivePartition {
    fn at(&self) -> &TopicPartition {
        self.log.at()
    }

    fn leadership(&self) -> Leadership {
        Leadership { leader: self.node, epoch: self.log.leader_epoch() }
    }

    fn facts(&self, _: BrokerId) -> Result<ServedFacts, ResponseError> {
        Ok(self.log.facts()?)
    }

    fn epoch_end(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.log.epoch_end(epoch)
    }

    fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        self.log.epoch_at(offset)
    }

    fn look(&self, _: BrokerId, from: Offset) -> Result<Box<dyn ReadableLook + '_>, ResponseError> {
        let (facts, segments) = self.segments(from)?;
        Ok(Box::new(LiveLook { facts, segments, of: self }))
    }

    fn offset_for_time(&self, timestamp: TimestampMs) -> Result<Option<TimedOffset>, HostedError> {
        self.search(|segments, start| segments.offset_for_time(timestamp, start))
    }

    fn max_timestamp(&self) -> Result<Option<TimedOffset>, HostedError> {
        let largest = std::cell::Cell::new(None);
        self.search(|segments, _| {
            largest.set(largest.get().max(segments.largest_time()?));
            Ok(None::<()>)
        })?;
        match largest.get() {
            Some(largest) if largest >= TimestampMs(0) => self.offset_for_time(largest),
            _ => Ok(None),
        }
    }

    fn ask(&self, bit: u64) {
        self.log.ask(bit);
    }

    fn waited_for_as(&self) -> Option<u64> {
        Some(self.log.id())
    }
}

struct LiveLook<'a> {
    facts: ServedFacts,
    segments: Segments<LiveSegment<'a>>,
    of: &'a LivePartition,
}

impl ReadableLook for LiveLook<'_> {
    fn facts(&self) -> ServedFacts {
        self.facts
    }

    fn mirror_epoch(&self) -> Option<LeaderEpoch> {
        // The one host has no followers.
        None
    }

    fn read(&self, request: &ReadRequest) -> Result<Option<RecordsRun>, HostedError> {
        if let Some(run) = self.segments.run(request)? {
            return Ok(Some(run));
        }
        // All of these may be empty, or hold nothing as far up, in a compacted log.
        let mut from = match self.segments.last_base() {
            Some(last) if last > request.from => last,
            _ => return Ok(None),
        };
        loop {
            let Ok((_, segments)) = self.of.segments(from) else { return Ok(None) };
            if let Some(run) = segments.run(request)? {
                return Ok(Some(run));
            }
            match segments.last_base() {
                Some(last) if last > from && last < request.to => from = last,
                _ => return Ok(None),
            }
        }
    }

    fn aborted(&self, run: &RecordsRun, from: Offset) -> io::Result<Vec<AbortedTxn>> {
        let (mut found, mut is_done) = self.segments.aborted(from, run.end_bound)?;
        let mut last = self.segments.last_base();
        while let Some(at) = last.filter(|_| !is_done) {
            let Ok((_, segments)) = self.of.segments(at) else { break };
            if segments.last_base() == Some(at) {
                break;
            }
            last = segments.last_base();
            let more;
            (more, is_done) = segments.without_first().aborted(from, run.end_bound)?;
            found.extend(more);
        }
        Ok(found)
    }
}

/// A segment as it was shown.
#[derive(Debug)]
struct LiveSegment<'a> {
    of: &'a LivePartition,
    extent: SegmentExtent,
    is_last: bool,
    files: u64,
    open: OnceLock<Arc<SegmentFiles>>,
}

impl LiveSegment<'_> {
    fn files(&self) -> io::Result<&Arc<SegmentFiles>> {
        if let Some(open) = self.open.get() {
            return Ok(open);
        }
        let logs = &self.of.logs;
        let open = logs.files().segment(logs.dir(), &self.of.log, self.extent.base, self.files)?;
        Ok(self.open.get_or_init(|| open))
    }
}

impl ServedSegment for LiveSegment<'_> {
    fn extent(&self) -> SegmentExtent {
        self.extent
    }

    fn file(&self) -> io::Result<Arc<File>> {
        Ok(Arc::clone(self.files()?.log()))
    }

    fn settled_to(&self) -> u64 {
        // One that is not the last may have just been left.
        self.extent.len / BLOCK_BYTES * BLOCK_BYTES
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.files()?.read_at(position, into)
    }

    fn index_floor(&self, target: Offset) -> io::Result<u64> {
        self.files()?.floor(self.extent, target)
    }

    fn indexed_offset_from(&self, position: u64) -> io::Result<Option<Offset>> {
        self.files()?.indexed_from(self.extent, position)
    }

    fn mark(&self, offset: Offset, position: u64) {
        if let Some(files) = self.open.get() {
            files.mark(offset, position);
        }
    }

    fn may_reach(&self, timestamp: TimestampMs) -> io::Result<bool> {
        // The time index of a segment that grows says nothing of its end.
        Ok(self.is_last
            || self.files()?.last_time()?.is_some_and(|last| last.timestamp >= timestamp))
    }

    fn time_floor(&self, timestamp: TimestampMs) -> io::Result<Option<Offset>> {
        self.files()?.time_floor(timestamp)
    }

    fn largest_time(&self) -> io::Result<Option<TimestampMs>> {
        let files = self.files()?;
        let last = files.last_time()?;
        let indexed = last.map(|last| last.timestamp);
        if !self.is_last {
            return Ok(indexed);
        }
        let from = last.map_or(self.extent.base, |last| last.offset);
        let damaged = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut largest = indexed;
        let Some(first) = locate(self.extent, from, &mut One(self)).map_err(damaged)? else {
            return Ok(largest);
        };
        let mut scan = BatchScan::new(self.extent, first.position);
        while let Some(place) = scan.next(&mut One(self)).map_err(damaged)? {
            let mut head = [0; HEADER_V2_BYTES];
            let read = files.read_at(place.position, &mut head)?;
            if let Some((header, _)) = head.get(..read).and_then(BatchHeader::view)
                && header.magic() >= 2
            {
                largest = largest.max(Some(header.max_timestamp()));
            }
        }
        Ok(largest)
    }

    fn aborted(&self) -> io::Result<Vec<AbortedTxn>> {
        self.files()?.aborted(self.is_last)
    }
}

/// Reads the one segment.
struct One<'a, 'b>(&'a LiveSegment<'b>);

impl SegmentRead for One<'_, '_> {
    type Error = io::Error;

    fn index_floor(&mut self, _: Offset, target: Offset) -> io::Result<u64> {
        self.0.index_floor(target)
    }

    fn read_at(&mut self, _: Offset, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(position, into)
    }
}

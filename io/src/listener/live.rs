//! Logs of a host, as [`readable`](super::readable) wants them.

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use heliostat_core::log::read_plan::{
    BatchScan, ReadPlanError, ReadRequest, SegmentExtent, SegmentRead, locate,
};
use heliostat_core::log::txn_index::AbortedTxn;
use heliostat_core::serve::{NodeEndpoint, ServedFacts};
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition};
use kafka_protocol::error::ResponseError;

use super::hosted::{HostedError, Leadership};
use super::readable::{EpochEnd, ReadableLook, ReadablePartition, ReadableTopics};
use super::reading::{Found, RecordsRun, Segments, ServedSegment, TimedOffset, largest_in_batch};
use crate::served::{self, Hidden, SegmentFiles, ServedLog, ServedLogs, StillShown};

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

/// Segments of a partition at one moment.
struct Looked<'a> {
    facts: ServedFacts,
    segments: Segments<LiveSegment<'a>>,
    files: u64,
}

impl LivePartition {
    fn segments(&self, from: Offset) -> Result<Looked<'_>, Hidden> {
        let look = self.log.look(from)?;
        let log_start = look.facts.log_start;
        let segments = (0..).zip(look.segments).map(|(place, extent)| LiveSegment {
            of: self,
            extent,
            is_sealed: place < look.sealed,
            log_start,
            files: look.files,
            open: OnceLock::new(),
        });
        let segments = Segments::new(segments.collect());
        Ok(Looked { facts: look.facts, segments, files: look.files })
    }

    /// The next segments of the log that `files` are of.
    fn more(&self, from: Offset, files: u64) -> io::Result<Segments<LiveSegment<'_>>> {
        match self.segments(from) {
            Ok(looked) if looked.files == files => Ok(looked.segments),
            _ => Err(cut()),
        }
    }

    /// Looks through all segments, some at a time, until `find` has found something.
    fn search<T>(
        &self,
        find: impl Fn(&Segments<LiveSegment<'_>>, Offset) -> Result<Option<T>, HostedError>,
    ) -> Result<Option<T>, HostedError> {
        let failed = |segment, source| HostedError::from(ReadPlanError::Read { segment, source });
        let facts = self.log.facts();
        let start = facts.map_err(|_| failed(Offset::ZERO, cut()))?.log_start;
        let first = self.segments(start).map_err(|_| failed(start, cut()))?;
        let (files, mut segments, mut from) = (first.files, first.segments, start);
        let found = loop {
            if let Some(found) = find(&segments, start)? {
                break Some(found);
            }
            match segments.last_base() {
                // The last one has been looked at, but is the first of the next ones.
                Some(last) if last > from => from = last,
                _ => break None,
            }
            segments = self.more(from, files).map_err(|error| failed(from, error))?;
        };
        if self.log.files() == files { Ok(found) } else { Err(failed(from, cut())) }
    }
}

/// What was read may be of two histories.
fn cut() -> io::Error {
    io::Error::other("the log was cut or replaced meanwhile")
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

    fn epoch_end(&self, epoch: LeaderEpoch) -> Result<Option<EpochEnd>, ResponseError> {
        Ok(self.log.epoch_end(epoch)?)
    }

    fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        self.log.epoch_at(offset)
    }

    fn look(&self, _: BrokerId, from: Offset) -> Result<Box<dyn ReadableLook + '_>, ResponseError> {
        Ok(Box::new(LiveLook { looked: self.segments(from)?, of: self }))
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

    fn ask(&self, thread: usize) {
        self.log.ask(thread);
    }

    fn waited_for_as(&self) -> Option<u64> {
        Some(self.log.id())
    }
}

struct LiveLook<'a> {
    looked: Looked<'a>,
    of: &'a LivePartition,
}

impl LiveLook<'_> {
    fn find(&self, request: &ReadRequest) -> Result<Found, HostedError> {
        let mut found = self.looked.segments.run(request)?;
        let mut last = self.looked.segments.last_base();
        // All of these may be empty, or hold nothing as far up, in a compacted log.
        while matches!(found, Found::Beyond)
            && let Some(from) = last.filter(|last| *last > request.from && *last < request.to)
        {
            let more = self.of.more(from, self.looked.files);
            let more = more.map_err(|source| ReadPlanError::Read { segment: from, source })?;
            found = more.run(request)?;
            last = more.last_base().filter(|last| *last > from);
        }
        Ok(found)
    }
}

impl ReadableLook for LiveLook<'_> {
    fn facts(&self) -> ServedFacts {
        self.looked.facts
    }

    fn mirror_epoch(&self) -> Option<LeaderEpoch> {
        // The one host has no followers.
        None
    }

    fn read(&self, request: &ReadRequest) -> Result<Option<RecordsRun>, HostedError> {
        let still = StillShown { log: Arc::clone(&self.of.log), files: self.looked.files };
        match self.find(request)? {
            // Files that were opened until now are the right ones.
            Found::Run(run) if still.is_true() => {
                Ok(Some(RecordsRun { still: Some(still), ..run }))
            }
            Found::Run(run) => {
                let (segment, source) = (run.end_bound, cut());
                Err(ReadPlanError::Read { segment, source }.into())
            }
            Found::Nothing | Found::Beyond => Ok(None),
        }
    }

    fn aborted(&self, run: &RecordsRun, from: Offset) -> io::Result<Vec<AbortedTxn>> {
        let (mut found, mut is_done) = self.looked.segments.aborted(from, run.end_bound)?;
        let mut last = self.looked.segments.last_base();
        while let Some(at) = last.filter(|_| !is_done) {
            let segments = self.of.more(at, self.looked.files)?.behind(at);
            last = segments.last_base();
            let more;
            (more, is_done) = segments.aborted(from, run.end_bound)?;
            found.extend(more);
        }
        if run.is_still_there() { Ok(found) } else { Err(cut()) }
    }
}

/// A segment as it was shown.
#[derive(Debug)]
struct LiveSegment<'a> {
    of: &'a LivePartition,
    extent: SegmentExtent,
    /// Its side files are complete.
    is_sealed: bool,
    log_start: Offset,
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
        // One that is sealed may have just been left.
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
        // The time index of a segment that grows says nothing of its end, and none says anything
        // of time 0.
        let may = !self.is_sealed || timestamp <= TimestampMs(0);
        Ok(may || self.files()?.last_time()?.is_some_and(|last| last.timestamp >= timestamp))
    }

    fn time_floor(&self, timestamp: TimestampMs) -> io::Result<Option<Offset>> {
        self.files()?.time_floor(timestamp)
    }

    fn largest_time(&self) -> io::Result<Option<TimestampMs>> {
        let files = self.files()?;
        let last = files.last_time()?;
        let indexed = last.map(|last| last.timestamp);
        if self.is_sealed && indexed.is_some() {
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
            let own = largest_in_batch(self, place).map_err(io::Error::other)?;
            largest = largest.max(own);
        }
        Ok(largest)
    }

    fn aborted(&self) -> io::Result<Vec<AbortedTxn>> {
        let (log, base) = (&self.of.log, self.extent.base);
        if self.is_sealed && log.is_without_aborts(self.files, base) {
            return Ok(Vec::new());
        }
        let found = served::aborted(self.of.logs.dir(), log, base)?;
        if self.is_sealed && found.is_empty() {
            log.has_no_aborts(self.files, base, self.log_start);
        }
        Ok(found)
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

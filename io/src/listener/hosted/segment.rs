//! One segment file that is served, with its indexes in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heliostat_core::log::index::{OffsetEntry, TimeEntry};
use heliostat_core::log::read_plan::SegmentExtent;
use heliostat_core::log::txn_index::AbortedTxn;
use heliostat_core::types::{Offset, TimestampMs};

use super::super::reading::ServedSegment;

/// A segment. Its file only grows while somebody can read it, but for a truncation,
/// which readers notice by a short read.
#[derive(Debug)]
pub struct Segment {
    base: Offset,
    file: Arc<File>,
    grown: Mutex<Grown>,
}

/// What grows with the segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Grown {
    /// Bytes of whole batches.
    pub(super) len: u64,
    pub(super) offsets: Vec<OffsetEntry>,
    pub(super) times: Vec<TimeEntry>,
    pub(super) aborted: Vec<AbortedTxn>,
    /// Largest timestamp and the last offset of its batch.
    pub(super) max_time: Option<TimeEntry>,
}

impl Segment {
    pub(super) fn new(base: Offset, file: File, grown: Grown) -> Self {
        Self { base, file: Arc::new(file), grown: Mutex::new(grown) }
    }

    /// Base offset: its name.
    pub fn base(&self) -> Offset {
        self.base
    }

    /// The file, to be read by position.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes of whole batches in it.
    pub fn len(&self) -> u64 {
        self.grown().len
    }

    /// Whether it holds no batch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn grown(&self) -> MutexGuard<'_, Grown> {
        self.grown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServedSegment for Arc<Segment> {
    fn extent(&self) -> SegmentExtent {
        SegmentExtent { base: self.base, len: self.len() }
    }

    fn file(&self) -> io::Result<Arc<File>> {
        Ok(Arc::clone(&self.file))
    }

    fn settled_to(&self) -> u64 {
        // What is appended goes through the page cache.
        u64::MAX
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = position.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
            match self.file.read_at(rest, at) {
                Ok(0) => break,
                Ok(read) => filled = filled.saturating_add(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn index_floor(&self, target: Offset) -> io::Result<u64> {
        Ok(self.grown().index_floor(target))
    }

    fn indexed_offset_from(&self, position: u64) -> io::Result<Option<Offset>> {
        Ok(self.grown().indexed_offset_from(position))
    }

    fn mark(&self, _: Offset, _: u64) {}

    fn may_reach(&self, timestamp: TimestampMs) -> io::Result<bool> {
        Ok(self.grown().max_time.is_some_and(|max| max.timestamp >= timestamp))
    }

    fn time_floor(&self, timestamp: TimestampMs) -> io::Result<Option<Offset>> {
        Ok(self.grown().time_floor(timestamp))
    }

    fn largest_time(&self) -> io::Result<Option<TimestampMs>> {
        Ok(self.grown().max_time.map(|max| max.timestamp))
    }

    fn aborted(&self) -> io::Result<Vec<AbortedTxn>> {
        Ok(self.grown().aborted.clone())
    }
}

impl Grown {
    /// Position of the last indexed batch that ends at or below `target`.
    pub(super) fn index_floor(&self, target: Offset) -> u64 {
        let after = self.offsets.partition_point(|entry| entry.offset <= target);
        let entry = after.checked_sub(1).and_then(|index| self.offsets.get(index));
        entry.map_or(0, |entry| u64::from(entry.position))
    }

    /// Last offset of the first indexed batch at or behind `position`.
    pub(super) fn indexed_offset_from(&self, position: u64) -> Option<Offset> {
        let index = self.offsets.partition_point(|entry| u64::from(entry.position) < position);
        self.offsets.get(index).map(|entry| entry.offset)
    }

    /// An offset up to which every record is older than `timestamp`.
    pub(super) fn time_floor(&self, timestamp: TimestampMs) -> Option<Offset> {
        let after = self.times.partition_point(|entry| entry.timestamp < timestamp);
        Some(self.times.get(after.checked_sub(1)?)?.offset)
    }
}

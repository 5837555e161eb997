//! Offset index and time index: entries, file contents, and when an append makes one.
//!
//! ```text
//! .index      8 bytes   i32 offset − base, i32 position of the batch
//! .timeindex 12 bytes   i64 timestamp, i32 offset − base
//! ```
//!
//! All big-endian. Both are sparse: an entry is made by the first batch that comes
//! after more than `index.interval.bytes`, and names that batch's *last* offset. A
//! time entry says: no record up to this offset is younger than this timestamp.
//!
//! A broker gives both files their full size of zeros while the segment is active
//! and cuts them at the roll. Copies are written without that tail; it is
//! understood where another's file is read.

use std::marker::PhantomData;

use super::config::LogConfig;
use super::format_error::{FileKind, FormatError, count};
use crate::records::BatchMeta;
use crate::types::{Offset, TimestampMs};

/// Distance of `offset` from the segment's base, if an index entry can hold it.
pub fn relative_offset(base_offset: Offset, offset: Offset) -> Option<u32> {
    let distance = offset.0.checked_sub(base_offset.0)?;
    u32::try_from(i32::try_from(distance).ok()?).ok()
}

/// Where the batch that ends with `offset` begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    /// Last offset of the batch.
    pub offset: Offset,
    /// Of its first byte in the `.log` file.
    pub position: u32,
}

impl OffsetEntry {
    /// Size of an entry.
    pub const BYTES: usize = 8;

    /// As the file of the segment that begins at `base_offset` holds it.
    ///
    /// # Panics
    ///
    /// If the offset does not belong into that segment.
    pub fn encode(self, base_offset: Offset) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let (offset, position) = out.split_at_mut(4);
        offset.copy_from_slice(&stored(base_offset, self.offset));
        position.copy_from_slice(&self.position.to_be_bytes());
        out
    }
}

/// The largest timestamp up to an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    /// Largest timestamp of the segment so far.
    pub timestamp: TimestampMs,
    /// Last offset of the batch that brought it.
    pub offset: Offset,
}

impl TimeEntry {
    /// Size of an entry.
    pub const BYTES: usize = 12;

    /// As the file of the segment that begins at `base_offset` holds it.
    ///
    /// # Panics
    ///
    /// If the offset does not belong into that segment.
    pub fn encode(self, base_offset: Offset) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let (timestamp, offset) = out.split_at_mut(8);
        timestamp.copy_from_slice(&self.timestamp.0.to_be_bytes());
        offset.copy_from_slice(&stored(base_offset, self.offset));
        out
    }
}

fn stored(base_offset: Offset, offset: Offset) -> [u8; 4] {
    let relative = relative_offset(base_offset, offset);
    assert!(relative.is_some(), "offset {offset} is outside segment {base_offset}: no roll before");
    relative.unwrap_or_default().to_be_bytes()
}

/// What both kinds of entry have in common, for [`IndexFile`].
pub trait IndexEntry: Copy + Sized {
    /// Size of an entry.
    const ENTRY_BYTES: usize;
    /// Which file it is in.
    const FILE: FileKind;
    /// What a look-up orders by.
    type Key: Copy + Ord;

    /// Reads one entry; `Err` with what must hold and the value that breaks it.
    ///
    /// # Errors
    ///
    /// If an offset, a position or a timestamp is negative.
    fn decode(base_offset: Offset, bytes: &[u8]) -> Result<Self, (&'static str, i64)>;

    /// What a look-up below the first entry finds.
    fn floor(base_offset: Offset) -> Self;

    /// What a look-up orders by.
    fn key(&self) -> Self::Key;

    /// Last offset of the entry's batch.
    fn offset(&self) -> Offset;

    /// Whether the entry may come after `before`.
    ///
    /// # Errors
    ///
    /// What must hold, and the value that breaks it.
    fn check_after(&self, before: &Self) -> Result<(), (&'static str, i64)>;
}

fn be_i32(bytes: &[u8], at: usize) -> i32 {
    let read = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
    read.map_or(-1, |chunk| i32::from_be_bytes(*chunk))
}

fn be_i64(bytes: &[u8], at: usize) -> i64 {
    let read = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>);
    read.map_or(-1, |chunk| i64::from_be_bytes(*chunk))
}

fn absolute(base_offset: Offset, stored: i32) -> Result<Offset, (&'static str, i64)> {
    let relative = i64::from(stored);
    let offset = base_offset.0.checked_add(relative).filter(|_| relative >= 0);
    offset.map(Offset).ok_or(("a relative offset that is not negative", relative))
}

impl IndexEntry for OffsetEntry {
    const ENTRY_BYTES: usize = Self::BYTES;
    const FILE: FileKind = FileKind::OffsetIndex;
    type Key = Offset;

    fn decode(base_offset: Offset, bytes: &[u8]) -> Result<Self, (&'static str, i64)> {
        let position = be_i32(bytes, 4);
        let offset = absolute(base_offset, be_i32(bytes, 0))?;
        let position = u32::try_from(position)
            .map_err(|_| ("a position that is not negative", i64::from(position)))?;
        Ok(Self { offset, position })
    }

    fn floor(base_offset: Offset) -> Self {
        Self { offset: base_offset, position: 0 }
    }

    fn key(&self) -> Offset {
        self.offset
    }

    fn offset(&self) -> Offset {
        self.offset
    }

    fn check_after(&self, before: &Self) -> Result<(), (&'static str, i64)> {
        if self.offset <= before.offset {
            return Err(("an offset above that of the entry before", self.offset.0));
        }
        if self.position <= before.position {
            let position = i64::from(self.position);
            return Err(("a position above that of the entry before", position));
        }
        Ok(())
    }
}

impl IndexEntry for TimeEntry {
    const ENTRY_BYTES: usize = Self::BYTES;
    const FILE: FileKind = FileKind::TimeIndex;
    type Key = TimestampMs;

    fn decode(base_offset: Offset, bytes: &[u8]) -> Result<Self, (&'static str, i64)> {
        let offset = absolute(base_offset, be_i32(bytes, 8))?;
        let timestamp = be_i64(bytes, 0);
        if timestamp < 0 {
            return Err(("a timestamp that is not negative", timestamp));
        }
        Ok(Self { timestamp: TimestampMs(timestamp), offset })
    }

    fn floor(base_offset: Offset) -> Self {
        Self { timestamp: TimestampMs::NONE, offset: base_offset }
    }

    fn key(&self) -> TimestampMs {
        self.timestamp
    }

    fn offset(&self) -> Offset {
        self.offset
    }

    fn check_after(&self, before: &Self) -> Result<(), (&'static str, i64)> {
        if self.timestamp <= before.timestamp {
            return Err(("a timestamp above that of the entry before", self.timestamp.0));
        }
        if self.offset < before.offset {
            return Err(("an offset not below that of the entry before", self.offset.0));
        }
        Ok(())
    }
}

/// Checked contents of an offset index.
pub type OffsetIndexFile<'a> = IndexFile<'a, OffsetEntry>;
/// Checked contents of a time index.
pub type TimeIndexFile<'a> = IndexFile<'a, TimeEntry>;

/// The contents of an index file, checked as a whole and read in place.
#[derive(Clone, Copy, Debug)]
pub struct IndexFile<'a, E> {
    base_offset: Offset,
    entries: &'a [u8],
    padding_bytes: u64,
    entry: PhantomData<E>,
}

impl<'a, E: IndexEntry> IndexFile<'a, E> {
    /// Checks the whole file of the segment that begins at `base_offset`: length,
    /// signs, and that entries rise. Reads every byte once.
    ///
    /// Zeros behind the last entry are a broker's preallocation. They are no entries:
    /// no offset entry has position 0, and time entries rise. A time index of just
    /// one zero entry is that entry; a longer file of zeros is empty.
    ///
    /// # Errors
    ///
    /// [`FormatError`]; the index must then be rebuilt from the log.
    pub fn parse(base_offset: Offset, bytes: &'a [u8]) -> Result<Self, FormatError> {
        let file = E::FILE;
        if !bytes.len().is_multiple_of(E::ENTRY_BYTES) {
            let (bytes, entry_bytes) = (count(bytes.len()), count(E::ENTRY_BYTES));
            return Err(FormatError::Length { file, bytes, head_bytes: 0, entry_bytes });
        }
        let is_zero = |entry: &[u8]| entry.iter().all(|byte| *byte == 0);
        let single = file == FileKind::TimeIndex && bytes.len() == E::ENTRY_BYTES;
        let zeros =
            bytes.rchunks_exact(E::ENTRY_BYTES).take_while(|entry| !single && is_zero(entry));
        let padding = zeros.count() * E::ENTRY_BYTES;
        let (entries, _) = bytes.split_at(bytes.len() - padding);
        let it = Self { base_offset, entries, padding_bytes: count(padding), entry: PhantomData };
        let mut before: Option<E> = None;
        for (index, stored) in entries.chunks_exact(E::ENTRY_BYTES).enumerate() {
            let checked = E::decode(base_offset, stored).and_then(|entry| match &before {
                Some(before) => entry.check_after(before).map(|()| entry),
                None => Ok(entry),
            });
            let entry = count(index);
            let wrong = |(expected, got)| FormatError::Entry { file, entry, expected, got };
            before = Some(checked.map_err(wrong)?);
        }
        Ok(it)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len() / E::ENTRY_BYTES
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Length of the zero tail that a broker preallocated.
    pub fn padding_bytes(&self) -> u64 {
        self.padding_bytes
    }

    /// Entry `index`, from 0.
    pub fn get(&self, index: usize) -> Option<E> {
        let stored = self.entries.chunks_exact(E::ENTRY_BYTES).nth(index)?;
        E::decode(self.base_offset, stored).ok()
    }

    /// All entries, first to last.
    pub fn iter(&self) -> impl Iterator<Item = E> {
        let stored = self.entries.chunks_exact(E::ENTRY_BYTES);
        stored.filter_map(|entry| E::decode(self.base_offset, entry).ok())
    }

    /// The last entry.
    pub fn last(&self) -> Option<E> {
        self.get(self.len().checked_sub(1)?)
    }

    /// The largest entry whose key is at or below `target`: where to begin to scan.
    /// Below the first entry: the segment's base with position 0, or with timestamp −1.
    /// O(log n).
    pub fn lookup(&self, target: E::Key) -> E {
        let after = self.partition_point(|entry| entry.key() <= target);
        let found = after.checked_sub(1).and_then(|index| self.get(index));
        found.unwrap_or_else(|| E::floor(self.base_offset))
    }

    /// Length in bytes that the file must be cut to when the log is cut to end at
    /// `log_end`, exclusive: entries at or behind it go. O(log n).
    pub fn bytes_below(&self, log_end: Offset) -> u64 {
        let keep = self.partition_point(|entry| entry.offset() < log_end);
        count(keep * E::ENTRY_BYTES)
    }

    fn partition_point(&self, mut below: impl FnMut(&E) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).is_some_and(|entry| below(&entry)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Decides which batches of the active segment get index entries.
///
/// Holds counters and the last entries, not the files: the caller writes what
/// comes out. Batches must come in log order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentIndexes {
    base_offset: Offset,
    interval_bytes: u32,
    offset_entries_max: u32,
    time_entries_max: u32,
    offset_entries: u32,
    time_entries: u32,
    bytes_since_entry: u32,
    /// Largest timestamp and the last offset of its batch; the floor before any.
    max_so_far: TimeEntry,
    /// Last entry in the file; the floor if there is none.
    last_time_entry: TimeEntry,
}

impl SegmentIndexes {
    /// For a segment without batches.
    pub fn new(base_offset: Offset, config: &LogConfig) -> Self {
        let floor = TimeEntry::floor(base_offset);
        Self {
            base_offset,
            interval_bytes: config.index_interval_bytes(),
            offset_entries_max: config.offset_index_entries_max(),
            time_entries_max: config.time_index_entries_max(),
            offset_entries: 0,
            time_entries: 0,
            bytes_since_entry: 0,
            max_so_far: floor,
            last_time_entry: floor,
        }
    }

    /// For a segment that is continued with these files, after a clean stop or a
    /// truncation. Bytes since the last entry count from here, as in Kafka.
    ///
    /// The largest timestamp is that of the last time entry. If the files were cut,
    /// show the batches behind that entry to [`Self::on_timestamp`].
    pub fn resume(
        base_offset: Offset,
        config: &LogConfig,
        offset_index: &OffsetIndexFile<'_>,
        time_index: &TimeIndexFile<'_>,
    ) -> Self {
        let last = time_index.last().unwrap_or_else(|| TimeEntry::floor(base_offset));
        let entries = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        Self {
            offset_entries: entries(offset_index.len()),
            time_entries: entries(time_index.len()),
            max_so_far: last,
            last_time_entry: last,
            ..Self::new(base_offset, config)
        }
    }

    /// Counts a batch that begins at byte `position` of the segment, and returns the
    /// entries that it makes: an offset entry if more than the interval was appended
    /// since the last one, and with it a time entry if a younger timestamp was seen.
    ///
    /// A full index takes nothing more. That cannot be when the roll is asked for
    /// before each batch, and a sparser index is still a right one.
    ///
    /// # Panics
    ///
    /// If the batch's last offset does not belong into the segment: ask for the roll first.
    pub fn on_batch(
        &mut self,
        batch: &BatchMeta,
        position: u32,
    ) -> Option<(OffsetEntry, Option<TimeEntry>)> {
        assert!(
            relative_offset(self.base_offset, batch.last_offset).is_some(),
            "batch that ends with {} does not fit into segment {}: no roll before",
            batch.last_offset,
            self.base_offset
        );
        self.on_timestamp(batch);
        let due = self.bytes_since_entry > self.interval_bytes && !self.is_offset_index_full();
        let entries = due.then(|| {
            self.bytes_since_entry = 0;
            self.offset_entries += 1;
            let time = if self.is_time_index_full() { None } else { self.take_time_entry() };
            (OffsetEntry { offset: batch.last_offset, position }, time)
        });
        self.bytes_since_entry = self.bytes_since_entry.saturating_add(batch.size_bytes);
        entries
    }

    /// Takes note of a batch's timestamp only: for batches that are already in the
    /// log and whose index entries, if any, are already in the files.
    pub fn on_timestamp(&mut self, batch: &BatchMeta) {
        if batch.max_timestamp > self.max_so_far.timestamp {
            self.max_so_far =
                TimeEntry { timestamp: batch.max_timestamp, offset: batch.last_offset };
        }
    }

    /// The entry that a time index ends with when its segment is rolled or closed:
    /// the largest timestamp, unless it is there already. A second call returns `None`.
    /// It is due even in a full index, which keeps a place for it.
    pub fn final_time_entry(&mut self) -> Option<TimeEntry> {
        self.take_time_entry()
    }

    fn take_time_entry(&mut self) -> Option<TimeEntry> {
        if self.max_so_far.timestamp <= self.last_time_entry.timestamp {
            return None;
        }
        self.last_time_entry = self.max_so_far;
        self.time_entries += 1;
        Some(self.max_so_far)
    }

    /// Largest timestamp so far and the last offset of its batch; −1 with the base
    /// offset if no batch had a timestamp.
    pub fn max_timestamp(&self) -> TimeEntry {
        self.max_so_far
    }

    /// First offset that the segment can hold.
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// No room for a further offset entry: time to roll.
    pub fn is_offset_index_full(&self) -> bool {
        self.offset_entries >= self.offset_entries_max
    }

    /// Room only for the final time entry: time to roll.
    pub fn is_time_index_full(&self) -> bool {
        self.time_entries >= self.time_entries_max.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests;

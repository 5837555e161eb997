//! Index files of a segment in recovery: judged, taken over, written.

use std::ops::ControlFlow;

use super::layout::SegmentFiles;
use super::rebuild::{Rebuilt, rebuild};
use super::report::{Damage, LogOpenError};
use super::walk::{WalkStop, first_batch, walk};
use super::{Opening, SIDE_FILE_BYTES_MAX};
use crate::log::disk::LogPath;
use crate::log::index::{
    IndexEntry, OffsetEntry, OffsetIndexFile, SegmentIndexes, TimeEntry, TimeIndexFile,
};
use crate::log::names::{SegmentFileKind as Kind, SegmentFileName};
use crate::log::segment::RecoveredSegment;
use crate::log::store::StoreError;
use crate::log::txn_index;
use crate::records::BatchMeta;
use crate::types::{Offset, TimestampMs};

impl Opening<'_> {
    /// Writes the three index files of segment `index`, complete if it is `sealed`.
    pub(super) fn write_side_files(
        &mut self,
        index: usize,
        rebuilt: Rebuilt,
        sealed: bool,
    ) -> Result<RecoveredSegment, LogOpenError> {
        let segment = self.layout.segments.get(index).copied().unwrap_or_default();
        let Rebuilt { mut indexes, offset_index, mut time_index, txn_index, .. } = rebuilt;
        if sealed && let Some(entry) = indexes.final_time_entry() {
            time_index.extend_from_slice(&entry.encode(segment.base));
        }
        let mut side_bytes = [0; 3];
        let files = [
            (Kind::Index, offset_index),
            (Kind::TimeIndex, time_index),
            (Kind::TxnIndex, txn_index),
        ];
        for ((kind, bytes), written) in files.into_iter().zip(&mut side_bytes) {
            let name = SegmentFileName::live(segment.base, kind).to_string();
            *written = u64::try_from(bytes.len()).unwrap_or(0);
            // A segment without aborted transactions has no file of them.
            if kind == Kind::TxnIndex && bytes.is_empty() {
                if segment.txn_index_bytes.is_some() {
                    self.remove(name)?;
                }
                continue;
            }
            self.store.replace(&self.layout.named(name.as_str()), &bytes)?;
            self.report.rebuilt.push(name);
        }
        Ok(RecoveredSegment {
            base: segment.base,
            size_bytes: segment.log_bytes,
            indexes,
            side_bytes,
            first_timestamp: rebuilt.first_timestamp,
            created: TimestampMs(self.options.now_ms),
        })
    }

    /// Makes the indexes of a segment anew if they cannot be right.
    pub(super) fn check_trusted(&mut self, index: usize) -> Result<(), LogOpenError> {
        let Some(segment) = self.layout.segments.get(index).copied() else { return Ok(()) };
        if self.looks_right(&segment)? {
            return Ok(());
        }
        let mut producers = self.producers_at(segment.base)?;
        let path = self.layout.path(segment.base, Kind::Log);
        let config = &self.options.config;
        let rebuilt = rebuild(self.store, &path, segment.base, config, None, &mut producers, None)?;
        self.report.bytes_scanned += rebuilt.walked.bytes;
        let (position, offset) = (rebuilt.walked.end, rebuilt.next_offset);
        // An empty file overlaps nothing.
        let next = self.layout.segments.get(index + 1).filter(|next| next.log_bytes > 0);
        let overlap = next.map(|next| next.base).filter(|next_base| *next_base < offset);
        let overlap = overlap.map(|next_base| Damage::Overlap { end: offset, next_base });
        if let Some(damage) = rebuilt.damage().or(overlap) {
            let recovery_point = self.options.recovery_point;
            return Err(LogOpenError::Damaged { path, position, offset, recovery_point, damage });
        }
        self.write_side_files(index, rebuilt, true)?;
        Ok(())
    }

    /// Whether the index files are there, of a possible length, and end with a
    /// possible entry. Reads three entries at most, and the transaction index.
    fn looks_right(&self, segment: &SegmentFiles) -> Result<bool, StoreError> {
        let (Some(index_bytes), Some(time_bytes)) = (segment.index_bytes, segment.time_index_bytes)
        else {
            return Ok(false);
        };
        let index = self.layout.path(segment.base, Kind::Index);
        let right = match self.last_entry::<OffsetEntry>(segment.base, &index, index_bytes)? {
            LastEntry::None => true,
            LastEntry::Wrong => false,
            LastEntry::Some(entry) => {
                let position = u64::from(entry.position);
                entry.offset > segment.base && position > 0 && position < segment.log_bytes
            }
        };
        let time = self.layout.path(segment.base, Kind::TimeIndex);
        let right = right
            && match self.last_entry::<TimeEntry>(segment.base, &time, time_bytes)? {
                LastEntry::None => true,
                LastEntry::Wrong => false,
                // A preallocated tail was not cut; a lone entry may be all zeros.
                LastEntry::Some(entry) => {
                    entry.timestamp.0 != 0
                        || entry.offset != segment.base
                        || time_bytes == u64::try_from(TimeEntry::BYTES).unwrap_or(0)
                }
            };
        Ok(right && self.read_txn_index(segment)?.is_some())
    }

    fn last_entry<E: IndexEntry>(
        &self,
        base: Offset,
        path: &LogPath,
        len: u64,
    ) -> Result<LastEntry<E>, StoreError> {
        let entry_bytes = u64::try_from(E::ENTRY_BYTES).unwrap_or(1);
        if !len.is_multiple_of(entry_bytes) {
            return Ok(LastEntry::Wrong);
        }
        let Some(from) = len.checked_sub(entry_bytes) else { return Ok(LastEntry::None) };
        let mut bytes = Vec::with_capacity(E::ENTRY_BYTES);
        self.store.scan(path, from, &mut |piece| {
            bytes.extend_from_slice(piece.get(..E::ENTRY_BYTES.min(piece.len())).unwrap_or(piece));
            if bytes.len() < E::ENTRY_BYTES {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        let stored = bytes.get(..E::ENTRY_BYTES);
        let decoded = stored.and_then(|stored| E::decode(base, stored).ok());
        Ok(decoded.map_or(LastEntry::Wrong, LastEntry::Some))
    }

    /// Length of the transaction index, 0 without a file; `None` if it cannot be right.
    fn read_txn_index(&self, segment: &SegmentFiles) -> Result<Option<u64>, StoreError> {
        let Some(len) = segment.txn_index_bytes else { return Ok(Some(0)) };
        let path = self.layout.path(segment.base, Kind::TxnIndex);
        let bytes = self.store.read(&path, SIDE_FILE_BYTES_MAX)?.unwrap_or_default();
        Ok(txn_index::decode(segment.base, &bytes).is_ok().then_some(len))
    }

    /// The last segment after a clean stop: verified from its last index entry on.
    /// `None` if it is not as a clean stop leaves it.
    pub(super) fn resume_active(
        &mut self,
        last: usize,
    ) -> Result<Option<(RecoveredSegment, Offset)>, LogOpenError> {
        let Some(segment) = self.layout.segments.get(last).copied() else { return Ok(None) };
        let read =
            |kind| self.store.read(&self.layout.path(segment.base, kind), SIDE_FILE_BYTES_MAX);
        let (Some(index), Some(time)) = (read(Kind::Index)?, read(Kind::TimeIndex)?) else {
            return Ok(None);
        };
        let Some(txn_bytes) = self.read_txn_index(&segment)? else { return Ok(None) };
        let (Ok(offset_index), Ok(time_index)) = (
            OffsetIndexFile::parse(segment.base, &index),
            TimeIndexFile::parse(segment.base, &time),
        ) else {
            return Ok(None);
        };
        if offset_index.padding_bytes() > 0 || time_index.padding_bytes() > 0 {
            return Ok(None);
        }
        let config = &self.options.config;
        let mut indexes = SegmentIndexes::resume(segment.base, config, &offset_index, &time_index);
        let path = self.layout.path(segment.base, Kind::Log);
        let entry = offset_index.last();
        let from = entry.map_or(0, |entry| u64::from(entry.position));
        let mut log_end = segment.base;
        let mut fits = from <= segment.log_bytes;
        let walked = walk(self.store, &path, from, true, &mut |meta: &BatchMeta, position| {
            fits &= meta.base_offset >= log_end
                && (position > from || entry.is_none_or(|entry| entry.offset == meta.last_offset));
            indexes.on_timestamp(meta);
            log_end = meta.next_offset();
            ControlFlow::Continue(())
        })?;
        self.report.bytes_scanned += walked.bytes;
        let whole = fits
            && walked.stop == WalkStop::FileEnd
            && walked.end == segment.log_bytes
            && (entry.is_none() || walked.end > from);
        if !whole {
            return Ok(None);
        }
        let len = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(0);
        let active = RecoveredSegment {
            base: segment.base,
            size_bytes: segment.log_bytes,
            indexes,
            side_bytes: [len(&index), len(&time), txn_bytes],
            first_timestamp: first_batch(self.store, &path)?.map(|first| first.max_timestamp),
            created: TimestampMs(self.options.now_ms),
        };
        Ok(Some((active, log_end)))
    }
}

enum LastEntry<E> {
    None,
    Wrong,
    Some(E),
}

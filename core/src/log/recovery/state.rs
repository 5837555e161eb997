//! Epochs and producers in recovery: read, made anew, written.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::report::LogOpenError;
use super::walk::{first_batch, walk};
use super::{Opening, SIDE_FILE_BYTES_MAX};
use crate::log::epoch_cache::EpochCache;
use crate::log::names::{self, SegmentFileKind as Kind, SegmentFileName};
use crate::log::producer_snapshot;
use crate::log::producer_state::{ProducerExpiry, ProducerState};
use crate::records::BatchMeta;
use crate::types::{Offset, TimestampMs};

impl Opening<'_> {
    /// Epochs of the segments before `end`, from the checkpoint, or from the batches if
    /// there is none that can be read.
    pub(super) fn load_epochs(&mut self, end: usize) -> Result<EpochCache, LogOpenError> {
        let path = self.layout.named(names::LEADER_EPOCH_CHECKPOINT);
        let stored = self.store.read(&path, SIDE_FILE_BYTES_MAX)?;
        if let Some(Ok(epochs)) = stored.as_deref().map(EpochCache::decode)
            && self.covers_start(&epochs)?
        {
            return Ok(epochs);
        }
        let mut epochs = EpochCache::default();
        for segment in self.layout.segments.iter().take(end) {
            let path = self.layout.path(segment.base, Kind::Log);
            let walked = walk(self.store, &path, 0, false, &mut |meta: &BatchMeta, _| {
                epochs.on_batch(meta);
                ControlFlow::Continue(())
            })?;
            self.report.bytes_scanned += walked.bytes;
        }
        Ok(epochs)
    }

    /// Whether `epochs` begins where the log does. It does not if it was cut for a log
    /// start, or emptied for an old batch, that were both lost in a crash.
    fn covers_start(&mut self, epochs: &EpochCache) -> Result<bool, LogOpenError> {
        let Some(segment) = self.layout.segments.first() else { return Ok(true) };
        let path = self.layout.path(segment.base, Kind::Log);
        let Some(first) = first_batch(self.store, &path)?.filter(|first| first.magic >= 2) else {
            return Ok(true);
        };
        let start = first.base_offset.max(self.options.log_start.unwrap_or(Offset::ZERO));
        Ok(epochs.entries().first().is_some_and(|entry| entry.start_offset <= start))
    }

    pub(super) fn save_epochs(&mut self, epochs: &EpochCache) -> Result<(), LogOpenError> {
        let path = self.layout.named(names::LEADER_EPOCH_CHECKPOINT);
        let bytes = epochs.encode().into_bytes();
        if self.store.read(&path, SIDE_FILE_BYTES_MAX)?.as_ref() != Some(&bytes) {
            self.store.replace(&path, &bytes)?;
            self.report.rebuilt.push(names::LEADER_EPOCH_CHECKPOINT.to_owned());
        }
        Ok(())
    }

    /// Producer state of everything below `end`: the newest snapshot that can be read,
    /// and the batches behind it.
    pub(super) fn producers_at(&mut self, end: Offset) -> Result<ProducerState, LogOpenError> {
        let first_base = self.layout.segments.first().map_or(Offset::ZERO, |first| first.base);
        let mut state = self.load_snapshot(first_base, end)?;
        let from = state.end_offset();
        let begin = self.layout.floor(from).unwrap_or(0);
        for segment in self.layout.segments.iter().skip(begin) {
            if segment.base >= end || from >= end {
                break;
            }
            let path = self.layout.path(segment.base, Kind::Log);
            let walked = walk(self.store, &path, 0, false, &mut |meta: &BatchMeta, _| {
                if meta.last_offset >= end {
                    return ControlFlow::Break(());
                }
                if meta.base_offset >= from {
                    state.on_batch(meta);
                    state.on_high_watermark(meta.next_offset());
                }
                ControlFlow::Continue(())
            })?;
            self.report.bytes_scanned += walked.bytes;
        }
        Ok(state)
    }

    fn load_snapshot(
        &mut self,
        first_base: Offset,
        end: Offset,
    ) -> Result<ProducerState, LogOpenError> {
        let expiry = ProducerExpiry {
            expiration_ms: self.options.config.producer_id_expiration_ms(),
            now: TimestampMs(self.options.now_ms),
        };
        while let Some(at) = self.layout.snapshots.range(first_base..=end).next_back().copied() {
            let path = self.layout.path(at, Kind::Snapshot);
            let bytes = self.store.read(&path, SIDE_FILE_BYTES_MAX)?;
            if let Some(Ok(entries)) = bytes.as_deref().map(producer_snapshot::decode) {
                return Ok(ProducerState::load(&entries, at, first_base, expiry));
            }
            self.layout.snapshots.remove(&at);
            self.remove(path.name)?;
        }
        Ok(ProducerState::new(first_base))
    }

    /// Writes the snapshot that belongs to the segment at `base`, if it is not there.
    pub(super) fn save_snapshot(
        &mut self,
        base: Offset,
        producers: &mut ProducerState,
    ) -> Result<(), LogOpenError> {
        producers.advance_end_offset(base);
        let path = self.layout.path(base, Kind::Snapshot);
        let bytes = producer_snapshot::encode(&producers.snapshot());
        if self.store.read(&path, SIDE_FILE_BYTES_MAX)?.as_ref() != Some(&bytes) {
            self.store.replace(&path, &bytes)?;
            self.report.rebuilt.push(path.name);
        }
        self.layout.snapshots.insert(base);
        Ok(())
    }

    /// Removes snapshots that no segment begins with, but the newest one, and those
    /// behind `log_end`.
    pub(super) fn remove_snapshots(&mut self, log_end: Offset) -> Result<(), LogOpenError> {
        let bases: BTreeSet<_> = self.layout.segments.iter().map(|segment| segment.base).collect();
        let newest = self.layout.snapshots.range(..=log_end).next_back().copied();
        let stays = |at: &Offset| *at <= log_end && (bases.contains(at) || Some(*at) == newest);
        let waste: Vec<_> = self.layout.snapshots.iter().copied().filter(|at| !stays(at)).collect();
        for at in waste {
            self.layout.snapshots.remove(&at);
            self.remove(SegmentFileName::live(at, Kind::Snapshot).to_string())?;
        }
        Ok(())
    }
}

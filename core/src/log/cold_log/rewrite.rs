//! Compaction's part of a log: segments are replaced by one that holds what is left of them.
//!
//! ```text
//!   .cleaned written and synced -> .swap (the .log last) -> old files removed, the first
//!   segment's .log before all others -> .swap renamed to live (the .log last)
//! ```
//!
//! While the first old `.log` is there, recovery removes the `.swap`; once it is gone, recovery
//! finishes the replacement. Offsets stay, and the new segment ends where the old ones did, by
//! an empty batch if need be: a segment behind a gap would look like the rest of a lost one.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{ColdLog, ColdReadError};
use crate::log::disk::LogPath;
use crate::log::index::{SegmentIndexes, relative_offset};
use crate::log::names::{SegmentFileKind as Kind, SegmentFileName, SegmentFileState as State};
use crate::log::partition::SealedSegment;
use crate::log::store::{ColdStore, StoreError};
use crate::records::{BatchBuilder, BatchMeta, BatchWalker, BuildError, RecordError, WalkLimits};
use crate::types::{LeaderEpoch, Offset};

/// Rewritten batches that wait in memory before they are written out.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// What becomes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It stays as it is.
    Whole,
    /// Nothing of it stays.
    Nothing,
    /// This batch takes its place. Its offsets and its epoch are the old one's, or lie inside
    /// its offsets.
    As(Vec<u8>),
}

/// Why a log was not rewritten. It has to be opened again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColdRewriteError {
    /// A call before this one failed halfway.
    #[error("{dir} takes nothing after a failed write: open it again")]
    Poisoned {
        /// The partition's directory.
        dir: Arc<str>,
    },
    /// The state of producers is a function of the batches, so none of theirs may go.
    #[error("{dir} has batches of {producers} producers and cannot be compacted here")]
    HasProducers {
        /// The partition's directory.
        dir: Arc<str>,
        /// How many are known.
        producers: usize,
    },
    /// The old batches cannot be read.
    #[error(transparent)]
    Read(#[from] ColdReadError),
    /// The system refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was to take a batch's place is no batch.
    #[error("{dir}: the replacement of a batch is not valid")]
    Record {
        /// The partition's directory.
        dir: Arc<str>,
        /// What is wrong with it; `None`: it is not one whole batch.
        #[source]
        source: Option<RecordError>,
    },
    /// What was to take a batch's place has other offsets.
    #[error("{dir}: the replacement of batch {from}..={to} holds {base_offset}..={last_offset}")]
    Moved {
        /// The partition's directory.
        dir: Arc<str>,
        /// First offset of the old batch.
        from: Offset,
        /// Its last one.
        to: Offset,
        /// First offset of the new one.
        base_offset: Offset,
        /// Its last one.
        last_offset: Offset,
    },
    /// No empty batch ends at the last offset.
    #[error("{dir}: no batch can be made for the end of the segment")]
    Build {
        /// The partition's directory.
        dir: Arc<str>,
        /// Why.
        #[source]
        source: BuildError,
    },
}

/// A segment that is being written.
struct Cleaned {
    base: Offset,
    indexes: SegmentIndexes,
    index: Vec<u8>,
    time_index: Vec<u8>,
    /// Batches that are not in the file yet.
    pending: Vec<u8>,
    size_bytes: u64,
    next_offset: Offset,
}

impl Cleaned {
    fn push(&mut self, meta: &BatchMeta, bytes: &[u8]) {
        let position = u32::try_from(self.size_bytes).unwrap_or(u32::MAX);
        if let Some((offset_entry, time_entry)) = self.indexes.on_batch(meta, position) {
            self.index.extend_from_slice(&offset_entry.encode(self.base));
            if let Some(entry) = time_entry {
                self.time_index.extend_from_slice(&entry.encode(self.base));
            }
        }
        self.pending.extend_from_slice(bytes);
        self.size_bytes += u64::from(meta.size_bytes);
        self.next_offset = meta.next_offset();
    }
}

impl ColdLog {
    /// Replaces every segment, the active one included, by what `keep` leaves of its batches;
    /// a new active segment begins at the log end. `keep` sees each batch once, in order.
    /// Segments are put together as far as one of `segment.bytes` takes them. Durable on
    /// return; a crash on the way leaves old segments, new ones, or both, and each record that
    /// is to stay exactly once.
    ///
    /// # Errors
    /// [`ColdRewriteError`]. Only after [`ColdRewriteError::HasProducers`] the log may be used
    /// on without opening it again.
    pub fn rewrite(
        &mut self,
        store: &mut dyn ColdStore,
        keep: &mut dyn FnMut(&BatchMeta, &[u8]) -> Kept,
    ) -> Result<(), ColdRewriteError> {
        if self.poisoned {
            return Err(ColdRewriteError::Poisoned { dir: Arc::clone(&self.dir) });
        }
        let producers = self.producers.producer_count();
        if producers > 0 {
            return Err(ColdRewriteError::HasProducers { dir: Arc::clone(&self.dir), producers });
        }
        self.poisoned = true;
        if let Some(active) = self.active.as_ref().filter(|active| active.size_bytes > 0) {
            let newest = active.indexes.max_timestamp().timestamp;
            self.roll(store, self.log_end, newest)?;
        }
        let mut first = 0;
        while first < self.sealed.len() {
            let count = self.group_len(first);
            self.rewrite_group(store, first, count, keep)?;
            first += 1;
        }
        self.poisoned = false;
        Ok(())
    }

    /// How many sealed segments from `first` on become one.
    fn group_len(&self, first: usize) -> usize {
        let Some(base) = self.sealed.get(first).map(|segment| segment.base) else { return 0 };
        let mut bytes = 0_u64;
        let fits = |(index, segment): &(usize, &SealedSegment)| {
            bytes = bytes.saturating_add(segment.size_bytes);
            let last = self.segment_end(*index).plus(-1);
            bytes <= u64::from(self.config.segment_bytes()) && relative_offset(base, last).is_some()
        };
        self.sealed.iter().enumerate().skip(first).take_while(fits).count().max(1)
    }

    /// Where the sealed segment `index` ends, exclusive.
    fn segment_end(&self, index: usize) -> Offset {
        let next = self.sealed.get(index + 1).map(|next| next.base);
        next.or(self.active.as_ref().map(|active| active.base)).unwrap_or(self.log_end)
    }

    fn rewrite_group(
        &mut self,
        store: &mut dyn ColdStore,
        first: usize,
        count: usize,
        keep: &mut dyn FnMut(&BatchMeta, &[u8]) -> Kept,
    ) -> Result<(), ColdRewriteError> {
        let group: Vec<_> = self.sealed.iter().skip(first).take(count).copied().collect();
        let Some(base) = group.first().map(|segment| segment.base) else { return Ok(()) };
        let mut cleaned = Cleaned {
            base,
            indexes: SegmentIndexes::new(base, &self.config),
            index: Vec::new(),
            time_index: Vec::new(),
            pending: Vec::new(),
            size_bytes: 0,
            next_offset: base,
        };
        store.remove(&self.marked(base, Kind::Log, State::Cleaned))?;
        for segment in &group {
            self.clean_segment(store, segment, &mut cleaned, keep)?;
        }
        self.fill_up(&mut cleaned, self.segment_end(first + count - 1))?;
        self.flush_cleaned(store, &mut cleaned)?;
        if let Some(entry) = cleaned.indexes.final_time_entry() {
            cleaned.time_index.extend_from_slice(&entry.encode(base));
        }
        self.swap_in(store, &group, &cleaned)?;
        let new = SealedSegment { base, size_bytes: cleaned.size_bytes };
        self.sealed.splice(first..first + count, [new]);
        Ok(())
    }

    fn clean_segment(
        &self,
        store: &mut dyn ColdStore,
        segment: &SealedSegment,
        cleaned: &mut Cleaned,
        keep: &mut dyn FnMut(&BatchMeta, &[u8]) -> Kept,
    ) -> Result<(), ColdRewriteError> {
        let mut position = 0;
        while position < segment.size_bytes {
            let mut wrong = None;
            // The store is being read, so what was gathered is written between two scans.
            position = self.read_segment(store, segment, position, &mut |meta, bytes| {
                match keep(meta, bytes) {
                    Kept::Nothing => {}
                    Kept::Whole => cleaned.push(meta, bytes),
                    Kept::As(new) => match self.check_replacement(meta, &new) {
                        Ok(new_meta) => cleaned.push(&new_meta, &new),
                        Err(error) => wrong = Some(error),
                    },
                }
                if wrong.is_some() || cleaned.pending.len() >= PENDING_BYTES_MAX {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            if let Some(error) = wrong {
                return Err(error);
            }
            self.flush_cleaned(store, cleaned)?;
        }
        Ok(())
    }

    fn check_replacement(
        &self,
        old: &BatchMeta,
        new: &[u8],
    ) -> Result<BatchMeta, ColdRewriteError> {
        let dir = Arc::clone(&self.dir);
        let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
        let meta = match BatchWalker::new(limits).feed(new) {
            Ok((used, Some(meta))) if used == new.len() => meta,
            Ok(_) => return Err(ColdRewriteError::Record { dir, source: None }),
            Err(source) => return Err(ColdRewriteError::Record { dir, source: Some(source) }),
        };
        let (base_offset, last_offset) = (meta.base_offset, meta.last_offset);
        if base_offset < old.base_offset || last_offset > old.last_offset {
            let (from, to) = (old.base_offset, old.last_offset);
            return Err(ColdRewriteError::Moved { dir, from, to, base_offset, last_offset });
        }
        Ok(meta)
    }

    /// Lets the new segment end at `end`, by an empty batch as a broker's cleaner leaves them.
    fn fill_up(&self, cleaned: &mut Cleaned, end: Offset) -> Result<(), ColdRewriteError> {
        if cleaned.next_offset >= end {
            return Ok(());
        }
        let failed = |source| ColdRewriteError::Build { dir: Arc::clone(&self.dir), source };
        let last = end.plus(-1);
        let epoch = self.epochs.epoch_for_offset(last).unwrap_or(LeaderEpoch::NONE);
        let batch = BatchBuilder::new(last).leader_epoch(epoch).build().map_err(failed)?;
        let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
        if let Ok((_, Some(meta))) = BatchWalker::new(limits).feed(&batch) {
            cleaned.push(&meta, &batch);
        }
        Ok(())
    }

    fn flush_cleaned(
        &self,
        store: &mut dyn ColdStore,
        cleaned: &mut Cleaned,
    ) -> Result<(), StoreError> {
        if !cleaned.pending.is_empty() {
            let path = self.marked(cleaned.base, Kind::Log, State::Cleaned);
            store.append(&path, &cleaned.pending)?;
            cleaned.pending.clear();
        }
        Ok(())
    }

    /// Puts the new segment in the place of `group`.
    fn swap_in(
        &self,
        store: &mut dyn ColdStore,
        group: &[SealedSegment],
        cleaned: &Cleaned,
    ) -> Result<(), StoreError> {
        let base = cleaned.base;
        let files = [Kind::Index, Kind::TimeIndex, Kind::Log];
        for (kind, bytes) in [(Kind::Index, &cleaned.index), (Kind::TimeIndex, &cleaned.time_index)]
        {
            store.replace(&self.marked(base, kind, State::Cleaned), bytes)?;
        }
        for kind in files {
            let swap = self.marked(base, kind, State::Swap).name;
            store.rename(&self.marked(base, kind, State::Cleaned), &swap)?;
        }
        for segment in group {
            for kind in [Kind::Log, Kind::Index, Kind::TimeIndex, Kind::TxnIndex] {
                store.remove(&self.segment_path(segment.base, kind))?;
            }
            if segment.base != base {
                store.remove(&self.segment_path(segment.base, Kind::Snapshot))?;
            }
        }
        for kind in files {
            let live = self.segment_path(base, kind).name;
            store.rename(&self.marked(base, kind, State::Swap), &live)?;
        }
        Ok(())
    }

    fn marked(&self, base: Offset, kind: Kind, state: State) -> LogPath {
        self.path(SegmentFileName { state, ..SegmentFileName::live(base, kind) }.to_string())
    }
}

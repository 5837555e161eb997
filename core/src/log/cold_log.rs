//! A segment log that is appended to by plain calls: failover markers in a partition's
//! log, `__mirror_state`, `__cluster_metadata`.
//!
//! The files are those of [`PartitionLog`](super::partition::PartitionLog), and either may
//! go on where the other one stopped. Here every call blocks until what it did is durable,
//! so it belongs on a thread that may wait, never on a shard.
//!
//! ```text
//!   append: epoch checkpoint -> .log -> .index, .timeindex, .txnindex -> returns
//!   roll:   final .timeindex entry -> .snapshot of the new base -> new, empty files
//! ```
//!
//! Invariants: below the log end offset everything is durable. After a crash inside
//! [`ColdLog::append`], recovery finds none of it or some of its first batches, whole. After a
//! failed call what the files hold is not known any more: the log takes nothing until it is
//! opened again.

mod rewrite;
#[cfg(test)]
mod tests;
mod trim;

use std::ops::ControlFlow;
use std::sync::Arc;

pub use self::rewrite::{ColdRewriteError, Kept};
use super::config::LogConfig;
use super::disk::LogPath;
use super::epoch_cache::EpochCache;
use super::index::{OffsetIndexFile, SegmentIndexes};
use super::names::{self, SegmentFileKind as Kind, SegmentFileName};
use super::partition::{RecoveredLog, SealedSegment};
use super::producer_snapshot;
use super::producer_state::ProducerState;
use super::read_plan::SegmentExtent;
use super::recovery::{self, Damage, LogOpenError, OpenOptions, OpenReport};
use super::roll::{self, ActiveSegment};
use super::segment::RecoveredSegment;
use super::store::{ColdStore, StoreError};
use crate::records::{BatchMeta, BatchWalker, RecordError, WalkLimits};
use crate::types::{LeaderEpoch, Offset, TimestampMs};

/// Largest batch that [`ColdLog::read`] shows, which holds one in memory. Brokers refuse
/// batches of more than a few MiB unless they are told otherwise.
pub const READ_BATCH_BYTES_MAX: u32 = 64 << 20;

/// Largest index file that a look-up reads; more is scanned for instead.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// Why nothing more, or not all, was appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ColdAppendError {
    /// A call before this one failed halfway.
    #[error("{dir} takes nothing after a failed write: open it again")]
    Poisoned {
        /// The partition's directory.
        dir: Arc<str>,
    },
    /// The bytes are no batches. Nothing was written.
    #[error("a batch for {dir} is not valid")]
    Record {
        /// The partition's directory.
        dir: Arc<str>,
        /// What is wrong with the first bad one.
        #[source]
        source: RecordError,
    },
    /// The last batch is not whole. Nothing was written.
    #[error("a batch for {dir} breaks off after {bytes} bytes")]
    CutOff {
        /// The partition's directory.
        dir: Arc<str>,
        /// Bytes of it that were there.
        bytes: u64,
    },
    /// Only format v2 carries an epoch. Nothing was written.
    #[error("a batch for {dir} has the old format {magic}, want 2")]
    OldFormat {
        /// The partition's directory.
        dir: Arc<str>,
        /// Its format.
        magic: u8,
    },
    /// A batch that does not follow the one before it. Nothing was written.
    #[error("a batch for {dir} begins at offset {base_offset}, the log ends at {log_end}")]
    NotNext {
        /// The partition's directory.
        dir: Arc<str>,
        /// First offset of the batch.
        base_offset: Offset,
        /// Where it had to begin.
        log_end: Offset,
    },
    /// A leader's epoch never goes back. Nothing was written.
    #[error("a batch for {dir} has epoch {epoch}, the log is at {latest} already")]
    EpochGoesBack {
        /// The partition's directory.
        dir: Arc<str>,
        /// Of the batch.
        epoch: LeaderEpoch,
        /// Of the batch before it.
        latest: LeaderEpoch,
    },
    /// The system refused; the log takes nothing more until it is opened again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why not all batches were shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ColdReadError {
    /// The system refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was verified when the log was opened, or written since, is damaged.
    #[error("{path} is damaged at position {position}: check the disk and open the log again")]
    Damaged {
        /// The file.
        path: LogPath,
        /// Where in it, in bytes.
        position: u64,
        /// What is wrong.
        #[source]
        damage: Damage,
    },
}

/// See the module's text.
#[derive(Debug)]
pub struct ColdLog {
    dir: Arc<str>,
    config: LogConfig,
    log_start: Offset,
    log_end: Offset,
    sealed: Vec<SealedSegment>,
    active: Option<RecoveredSegment>,
    epochs: EpochCache,
    producers: ProducerState,
    poisoned: bool,
}

/// Bytes of side files that wait for the batches they speak of.
#[derive(Debug, Default)]
struct SideBytes {
    index: Vec<u8>,
    time_index: Vec<u8>,
    txn_index: Vec<u8>,
}

impl ColdLog {
    /// Opens the log in partition directory `dir`, as [`recovery::open`] does; the directory
    /// is made if needed.
    ///
    /// # Errors
    /// As [`recovery::open`].
    pub fn open(
        store: &mut dyn ColdStore,
        dir: &str,
        options: &OpenOptions,
    ) -> Result<(Self, OpenReport), LogOpenError> {
        let (recovered, report) = recovery::open(store, dir, options)?;
        Ok((Self::new(recovered), report))
    }

    /// The log as recovery found it.
    pub fn new(recovered: RecoveredLog) -> Self {
        let RecoveredLog {
            dir,
            config,
            log_start,
            log_end,
            recovery_point: _,
            sealed,
            active,
            epochs,
            producers,
        } = recovered;
        let poisoned = false;
        Self { dir, config, log_start, log_end, sealed, active, epochs, producers, poisoned }
    }

    /// For a shard to go on with it. `None` after a failed call: the log has to be opened
    /// again first.
    pub fn into_recovered(self) -> Option<RecoveredLog> {
        (!self.poisoned).then_some(RecoveredLog {
            dir: self.dir,
            config: self.config,
            log_start: self.log_start,
            log_end: self.log_end,
            recovery_point: self.log_end,
            sealed: self.sealed,
            active: self.active,
            epochs: self.epochs,
            producers: self.producers,
        })
    }

    /// `topic-partition`.
    pub fn dir(&self) -> &Arc<str> {
        &self.dir
    }

    /// First offset that readers see, inclusive.
    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// Next offset to be written. Everything below is durable.
    pub fn log_end(&self) -> Offset {
        self.log_end
    }

    /// End of what a `read_committed` reader sees: the first open transaction, or the log end.
    pub fn last_stable_offset(&self) -> Offset {
        self.producers.last_stable_offset(self.log_end)
    }

    /// Bytes of record batches in all segments.
    pub fn size_bytes(&self) -> u64 {
        let sealed: u64 = self.sealed.iter().map(|sealed| sealed.size_bytes).sum();
        sealed + self.active.as_ref().map_or(0, |active| active.size_bytes)
    }

    /// Its segments, by base offset, the active one last.
    pub fn segments(&self) -> impl Iterator<Item = SegmentExtent> {
        let active = self.active.iter();
        let active = active.map(|it| SegmentExtent { base: it.base, len: it.size_bytes });
        self.sealed.iter().map(SealedSegment::extent).chain(active)
    }

    /// How many of its segments are no longer written to.
    pub fn sealed_count(&self) -> usize {
        self.sealed.len()
    }

    /// Epochs of the batches.
    pub fn epochs(&self) -> &EpochCache {
        &self.epochs
    }

    /// Producers and open transactions at the log end.
    pub fn producers(&self) -> &ProducerState {
        &self.producers
    }

    /// Whether a call failed and the log has to be opened again.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Appends whole v2 batches, one behind the other, of which the first begins at the log
    /// end. They are checked first, checksums included. Durable on return.
    ///
    /// # Errors
    /// [`ColdAppendError`]. After [`ColdAppendError::Store`] some of the first batches may be
    /// in the files, and the log has to be opened again; after another error nothing changed.
    pub fn append(
        &mut self,
        store: &mut dyn ColdStore,
        batches: &[u8],
    ) -> Result<(), ColdAppendError> {
        if self.poisoned {
            return Err(ColdAppendError::Poisoned { dir: Arc::clone(&self.dir) });
        }
        let metas = self.check(batches)?;
        if metas.is_empty() {
            return Ok(());
        }
        self.poisoned = true;
        self.write(store, batches, &metas)?;
        self.poisoned = false;
        Ok(())
    }

    fn check(&self, batches: &[u8]) -> Result<Vec<BatchMeta>, ColdAppendError> {
        let dir = || Arc::clone(&self.dir);
        let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
        let mut walker = BatchWalker::new(limits);
        let mut metas = Vec::new();
        let (mut log_end, mut latest) = (self.log_end, self.latest_epoch());
        let mut rest = batches;
        while !rest.is_empty() {
            let fed = walker.feed(rest);
            let fed = fed.map_err(|source| ColdAppendError::Record { dir: dir(), source })?;
            let (used, Some(meta)) = fed else {
                return Err(ColdAppendError::CutOff { dir: dir(), bytes: walker.pending_bytes() });
            };
            rest = rest.get(used..).unwrap_or_default();
            let (base_offset, epoch, magic) = (meta.base_offset, meta.leader_epoch, meta.magic);
            if magic != 2 {
                return Err(ColdAppendError::OldFormat { dir: dir(), magic });
            }
            if base_offset != log_end {
                return Err(ColdAppendError::NotNext { dir: dir(), base_offset, log_end });
            }
            if epoch < latest {
                return Err(ColdAppendError::EpochGoesBack { dir: dir(), epoch, latest });
            }
            (log_end, latest) = (meta.next_offset(), epoch);
            metas.push(meta);
        }
        Ok(metas)
    }

    fn latest_epoch(&self) -> LeaderEpoch {
        self.epochs.latest().map_or(LeaderEpoch::NONE, |entry| entry.epoch)
    }

    fn write(
        &mut self,
        store: &mut dyn ColdStore,
        batches: &[u8],
        metas: &[BatchMeta],
    ) -> Result<(), StoreError> {
        let mut changed = false;
        for meta in metas {
            changed |= self.epochs.on_batch(meta);
        }
        if changed {
            // First: what it says of offsets that a crash kept from the log is cut by recovery.
            let bytes = self.epochs.encode();
            store.replace(&self.path(names::LEADER_EPOCH_CHECKPOINT), bytes.as_bytes())?;
        }
        let (mut from, mut to) = (0, 0);
        let mut side = SideBytes::default();
        for meta in metas {
            if self.must_roll(meta) {
                let part = batches.get(from..to).unwrap_or_default();
                self.flush(store, part, &mut side)?;
                from = to;
                self.roll(store, roll::roll_base_offset(meta, self.log_end), meta.max_timestamp)?;
            } else if self.active.is_none() {
                self.begin_segment(store, self.log_end, meta.max_timestamp)?;
            }
            self.take(meta, &mut side);
            to += usize::try_from(meta.size_bytes).unwrap_or(usize::MAX);
        }
        self.flush(store, batches.get(from..to).unwrap_or_default(), &mut side)
    }

    fn must_roll(&self, incoming: &BatchMeta) -> bool {
        self.active.as_ref().is_some_and(|active| {
            let segment = ActiveSegment {
                size_bytes: active.size_bytes,
                first_timestamp: active.first_timestamp,
                created: active.created,
                jitter_ms: 0,
            };
            let now = incoming.max_timestamp;
            roll::should_roll(&self.config, &segment, &active.indexes, incoming, now).is_some()
        })
    }

    /// Counts a batch that goes to the end of the active segment.
    fn take(&mut self, meta: &BatchMeta, side: &mut SideBytes) {
        if let Some(active) = self.active.as_mut() {
            // A segment takes no batch that starts behind `segment.bytes`, an int32.
            let position = u32::try_from(active.size_bytes).unwrap_or(u32::MAX);
            if let Some((offset_entry, time_entry)) = active.indexes.on_batch(meta, position) {
                side.index.extend_from_slice(&offset_entry.encode(active.base));
                if let Some(entry) = time_entry {
                    side.time_index.extend_from_slice(&entry.encode(active.base));
                }
            }
            active.size_bytes += u64::from(meta.size_bytes);
            active.first_timestamp.get_or_insert(meta.max_timestamp);
        }
        if let Some(entry) = self.producers.on_batch(meta).and_then(|txn| txn.aborted()) {
            side.txn_index.extend_from_slice(&entry.encode());
        }
        self.log_end = meta.next_offset();
        self.producers.on_high_watermark(self.log_end);
    }

    /// Writes batches to the end of the active segment, then what its side files say of them.
    fn flush(
        &mut self,
        store: &mut dyn ColdStore,
        batches: &[u8],
        side: &mut SideBytes,
    ) -> Result<(), StoreError> {
        let Some(base) = self.active.as_ref().map(|active| active.base) else { return Ok(()) };
        if !batches.is_empty() {
            store.append(&self.segment_path(base, Kind::Log), batches)?;
        }
        let SideBytes { index, time_index, txn_index } = std::mem::take(side);
        let files =
            [(Kind::Index, index), (Kind::TimeIndex, time_index), (Kind::TxnIndex, txn_index)];
        for (place, (kind, bytes)) in files.into_iter().enumerate() {
            if bytes.is_empty() {
                continue;
            }
            store.append(&self.segment_path(base, kind), &bytes)?;
            if let Some(written) =
                self.active.as_mut().and_then(|active| active.side_bytes.get_mut(place))
            {
                *written += u64::try_from(bytes.len()).unwrap_or(0);
            }
        }
        Ok(())
    }

    /// Ends the active segment, whose batches are written, and begins the one at `base`.
    fn roll(
        &mut self,
        store: &mut dyn ColdStore,
        base: Offset,
        created: TimestampMs,
    ) -> Result<(), StoreError> {
        if let Some(mut active) = self.active.take() {
            if let Some(entry) = active.indexes.final_time_entry() {
                let path = self.segment_path(active.base, Kind::TimeIndex);
                store.append(&path, &entry.encode(active.base))?;
            }
            self.sealed.push(SealedSegment { base: active.base, size_bytes: active.size_bytes });
        }
        self.producers.advance_end_offset(base);
        let bytes = producer_snapshot::encode(&self.producers.snapshot());
        store.replace(&self.segment_path(base, Kind::Snapshot), &bytes)?;
        self.begin_segment(store, base, created)
    }

    fn begin_segment(
        &mut self,
        store: &mut dyn ColdStore,
        base: Offset,
        created: TimestampMs,
    ) -> Result<(), StoreError> {
        for kind in [Kind::Log, Kind::Index, Kind::TimeIndex] {
            store.append(&self.segment_path(base, kind), &[])?;
        }
        self.active = Some(RecoveredSegment {
            base,
            size_bytes: 0,
            indexes: SegmentIndexes::new(base, &self.config),
            side_bytes: [0; 3],
            first_timestamp: None,
            created,
        });
        Ok(())
    }

    /// Shows the batches from the one that holds `from` on, or the first behind it, in order,
    /// each with its bytes and verified, until `see` breaks or the log ends. Nothing below the
    /// log start is shown but the rest of a batch that reaches across it. Holds one batch in
    /// memory, of [`READ_BATCH_BYTES_MAX`] at most.
    ///
    /// # Errors
    /// [`ColdReadError`]; a larger batch counts as damage.
    pub fn read(
        &self,
        store: &dyn ColdStore,
        from: Offset,
        see: &mut dyn FnMut(&BatchMeta, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), ColdReadError> {
        let from = from.max(self.log_start);
        let active =
            self.active.iter().map(|it| SealedSegment { base: it.base, size_bytes: it.size_bytes });
        let segments: Vec<_> = self.sealed.iter().copied().chain(active).collect();
        let first = segments.partition_point(|segment| segment.base <= from).saturating_sub(1);
        let mut position = match segments.get(first) {
            Some(segment) => self.look_up(store, segment, from)?,
            None => 0,
        };
        for segment in segments.iter().skip(first) {
            let mut broke = false;
            self.read_segment(store, segment, position, &mut |meta, bytes| {
                if meta.last_offset < from {
                    return ControlFlow::Continue(());
                }
                let flow = see(meta, bytes);
                broke = flow.is_break();
                flow
            })?;
            if broke {
                break;
            }
            position = 0;
        }
        Ok(())
    }

    /// Where in a segment to begin to look for `offset`.
    fn look_up(
        &self,
        store: &dyn ColdStore,
        segment: &SealedSegment,
        offset: Offset,
    ) -> Result<u64, StoreError> {
        let path = self.segment_path(segment.base, Kind::Index);
        let Some(bytes) = store.read(&path, INDEX_BYTES_MAX)? else { return Ok(0) };
        // Without an index that can be read, all of it is walked.
        let Ok(index) = OffsetIndexFile::parse(segment.base, &bytes) else { return Ok(0) };
        let position = u64::from(index.lookup(offset).position);
        Ok(if position < segment.size_bytes { position } else { 0 })
    }

    /// Shows the batches of one segment from `position` on. Returns where the last one that was
    /// shown ends, the one that `see` broke at included.
    fn read_segment(
        &self,
        store: &dyn ColdStore,
        segment: &SealedSegment,
        position: u64,
        see: &mut dyn FnMut(&BatchMeta, &[u8]) -> ControlFlow<()>,
    ) -> Result<u64, ColdReadError> {
        let path = self.segment_path(segment.base, Kind::Log);
        if position >= segment.size_bytes {
            return Ok(position);
        }
        let limits = WalkLimits { batch_bytes_max: READ_BATCH_BYTES_MAX, check_crcs: true };
        let mut walker = BatchWalker::new(limits);
        // The first bytes of the batch that began in an earlier piece.
        let mut held: Vec<u8> = Vec::new();
        let mut end = position;
        let mut damage = None;
        let mut broke = false;
        store.scan(&path, position, &mut |piece| {
            let mut rest = piece;
            while !rest.is_empty() {
                let (used, meta) = match walker.feed(rest) {
                    Ok((used, Some(meta))) => (used, meta),
                    Ok((_, None)) => {
                        held.extend_from_slice(rest);
                        return ControlFlow::Continue(());
                    }
                    Err(error) => {
                        damage = Some(Damage::Record(error));
                        return ControlFlow::Break(());
                    }
                };
                let (own, behind) = rest.split_at(used.min(rest.len()));
                rest = behind;
                end += u64::from(meta.size_bytes);
                let flow = if held.is_empty() {
                    see(&meta, own)
                } else {
                    held.extend_from_slice(own);
                    let flow = see(&meta, &held);
                    held.clear();
                    flow
                };
                broke = flow.is_break();
                if broke || end >= segment.size_bytes {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        if damage.is_none() && !broke && end < segment.size_bytes {
            damage = Some(Damage::CutOff { bytes: walker.pending_bytes() });
        }
        match damage {
            Some(damage) => Err(ColdReadError::Damaged { path, position: end, damage }),
            None => Ok(end),
        }
    }

    fn path(&self, name: impl Into<String>) -> LogPath {
        LogPath { dir: Arc::clone(&self.dir), name: name.into() }
    }

    fn segment_path(&self, base: Offset, kind: Kind) -> LogPath {
        self.path(SegmentFileName::live(base, kind).to_string())
    }
}

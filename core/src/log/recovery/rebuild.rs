//! One segment's indexes, made anew from its batches.

use std::ops::ControlFlow;

use super::report::Damage;
use super::walk::{WalkStop, Walked, walk};
use crate::log::config::LogConfig;
use crate::log::disk::LogPath;
use crate::log::epoch_cache::EpochCache;
use crate::log::index::{SegmentIndexes, relative_offset};
use crate::log::producer_state::ProducerState;
use crate::log::store::{ColdStore, StoreError};
use crate::records::BatchMeta;
use crate::types::{LeaderEpoch, Offset, TimestampMs};

/// What a rebuild found.
#[derive(Debug)]
pub(super) struct Rebuilt {
    pub(super) indexes: SegmentIndexes,
    /// Contents of the offset, time and transaction index, without the final time entry.
    pub(super) offset_index: Vec<u8>,
    pub(super) time_index: Vec<u8>,
    pub(super) txn_index: Vec<u8>,
    pub(super) first_timestamp: Option<TimestampMs>,
    /// Behind the last batch; the base offset if there is none.
    pub(super) next_offset: Offset,
    pub(super) walked: Walked,
}

impl Rebuilt {
    /// What stands behind the last batch, if not the end of the file.
    pub(super) fn damage(&self) -> Option<Damage> {
        match self.walked.stop {
            WalkStop::Damage(damage) => Some(damage),
            WalkStop::FileEnd | WalkStop::Caller => None,
        }
    }
}

/// Epochs as a scan finds them in the batches.
#[derive(Debug)]
pub(super) struct ScannedEpochs {
    pub(super) cache: EpochCache,
    /// What the checkpoint says of the log's start, until a batch reaches it. The epoch may
    /// have begun in a segment that is gone, and batches behind the start need not carry it.
    at_start: Option<(LeaderEpoch, Offset)>,
}

impl ScannedEpochs {
    /// `stored` comes from the checkpoint; batches are scanned from `first_base` on.
    pub(super) fn new(mut stored: EpochCache, first_base: Offset, log_start: Offset) -> Self {
        let at_start = stored.epoch_for_offset(log_start).map(|epoch| (epoch, log_start));
        stored.truncate_from_end(first_base);
        Self { cache: stored, at_start }
    }

    fn on_batch(&mut self, meta: &BatchMeta) {
        // Not before: of an empty log the checkpoint may tell what batches once said that
        // a crash took away.
        if let Some((epoch, start)) = self.at_start.take_if(|(_, start)| meta.last_offset >= *start)
            && self.cache.latest().is_none()
        {
            self.cache.assign(epoch, start);
        }
        self.cache.on_batch(meta);
    }
}

/// Walks the segment that begins at `base`, checksums included, up to the first
/// batch that reaches to `limit` or past it. `producers` is the state at `base` and
/// is taken to the end; `epochs` too, if there is one.
pub(super) fn rebuild(
    store: &dyn ColdStore,
    path: &LogPath,
    base: Offset,
    config: &LogConfig,
    limit: Option<Offset>,
    producers: &mut ProducerState,
    mut epochs: Option<&mut ScannedEpochs>,
) -> Result<Rebuilt, StoreError> {
    let mut indexes = SegmentIndexes::new(base, config);
    let (mut offset_index, mut time_index, mut txn_index) = (Vec::new(), Vec::new(), Vec::new());
    let mut first_timestamp = None;
    let mut next_offset = base;
    let mut misplaced = None;
    let mut take = |meta: &BatchMeta, position: u64| {
        if limit.is_some_and(|limit| meta.last_offset >= limit) {
            return ControlFlow::Break(());
        }
        let position = u32::try_from(position).ok().filter(|at| i32::try_from(*at).is_ok());
        let fits = relative_offset(base, meta.last_offset).is_some();
        let Some(position) = position.filter(|_| fits && meta.base_offset >= next_offset) else {
            misplaced = Some(Damage::OutOfPlace {
                base_offset: meta.base_offset,
                last_offset: meta.last_offset,
                expected: next_offset,
            });
            return ControlFlow::Break(());
        };
        if let Some((offset_entry, time_entry)) = indexes.on_batch(meta, position) {
            offset_index.extend_from_slice(&offset_entry.encode(base));
            if let Some(entry) = time_entry {
                time_index.extend_from_slice(&entry.encode(base));
            }
        }
        if let Some(epochs) = epochs.as_deref_mut() {
            epochs.on_batch(meta);
        }
        if let Some(entry) = producers.on_batch(meta).and_then(|txn| txn.aborted()) {
            txn_index.extend_from_slice(&entry.encode());
        }
        // All of the log is below its high watermark here.
        producers.on_high_watermark(meta.next_offset());
        first_timestamp.get_or_insert(meta.max_timestamp);
        next_offset = meta.next_offset();
        ControlFlow::Continue(())
    };
    let mut walked = walk(store, path, 0, true, &mut take)?;
    if let Some(damage) = misplaced {
        walked.stop = WalkStop::Damage(damage);
    }
    Ok(Rebuilt {
        indexes,
        offset_index,
        time_index,
        txn_index,
        first_timestamp,
        next_offset,
        walked,
    })
}

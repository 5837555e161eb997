//! Index entries, and what the epoch cache is asked.

use std::hint::black_box;

use heliostat_core::log::config::LogConfig;
use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::index::SegmentIndexes;
use heliostat_core::records::BatchMeta;
use heliostat_core::types::{LeaderEpoch, Offset};

use crate::batches::{Run, Size};

/// Look-ups of one call.
pub const LOOKUPS: i64 = 1_000;
/// Epochs of a topic that has seen some years.
const EPOCHS: i32 = 100;
const EPOCH_OFFSETS: i64 = 1_000_000;

/// The indexes of a segment, and batches that each make an entry.
#[derive(Debug)]
pub struct Index {
    indexes: SegmentIndexes,
    batches: Vec<BatchMeta>,
}

impl Index {
    /// A run of batches of 16 KiB, above Kafka's `index.interval.bytes`.
    pub fn new() -> Self {
        let mut batches = Vec::new();
        crate::walk(&Run::new(Size::Usual, 0), |meta| batches.push(meta));
        Self { indexes: SegmentIndexes::new(Offset::ZERO, &LogConfig::default()), batches }
    }

    /// Makes and encodes entries; their number.
    pub fn enter(&mut self) -> usize {
        let (mut position, mut entries) = (0, 0);
        for meta in &self.batches {
            let entry = self.indexes.on_batch(meta, position);
            if let Some((offset, time)) = entry {
                black_box(offset.encode(Offset::ZERO));
                black_box(time.map(|time| time.encode(Offset::ZERO)));
                entries += 1;
            }
            position += meta.size_bytes;
        }
        entries
    }
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

/// An epoch cache of a hundred epochs.
#[derive(Debug)]
pub struct Epochs(EpochCache);

impl Epochs {
    /// Filled.
    pub fn new() -> Self {
        let mut cache = EpochCache::default();
        for epoch in 0..EPOCHS {
            cache.assign(LeaderEpoch(epoch), Offset(i64::from(epoch) * EPOCH_OFFSETS));
        }
        Self(cache)
    }

    /// Epochs of offsets all over the log; their sum.
    pub fn look_up(&self) -> i64 {
        let step = i64::from(EPOCHS) * EPOCH_OFFSETS / LOOKUPS;
        let found = |n: i64| self.0.epoch_for_offset(black_box(Offset(n * step)));
        (0..LOOKUPS).filter_map(found).map(|epoch| i64::from(epoch.0)).sum()
    }
}

impl Default for Epochs {
    fn default() -> Self {
        Self::new()
    }
}

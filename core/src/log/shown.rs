//! What readers of a log are shown: where it stands, and how many bytes of which files count.
//!
//! Whoever owns a log, a shard or a thread that opened it, shows it anew whenever it has moved.
//! Readers never ask the owner, so nothing that they do holds up an append.

use std::fmt::Debug;

use super::cold_log::ColdLog;
use super::epoch_cache::EpochCache;
use super::partition::{PartitionLog, RecoveredLog, SealedSegment};
use super::read_plan::SegmentExtent;
use crate::types::Offset;

/// Those who read a log that a shard owns.
pub trait LogReaders: Debug + Send + Sync {
    /// Takes over where `log` stands. Never waits: `false` if it could not be taken over now,
    /// then the same is shown again soon.
    fn show(&self, log: &PartitionLog) -> bool;
}

/// A log at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownLog {
    /// First offset that readers see, inclusive.
    pub log_start: Offset,
    /// Next offset to be written; everything below is verified and in the files.
    pub log_end: Offset,
    /// End of what a `read_committed` reader sees, exclusive. Everything below it that was
    /// aborted is in a `.txnindex` file.
    pub last_stable: Offset,
    /// By base offset; the last one grows.
    pub segments: Vec<SegmentExtent>,
    /// So many of them, from the first on, are sealed: neither they nor their indexes change.
    pub sealed: usize,
    /// Epochs of the batches.
    pub epochs: EpochCache,
}

impl ShownLog {
    /// Takes over where `log` stands. The same log only moves on, so what cannot have changed
    /// is not looked at: a call for a batch costs the same however many segments there are.
    pub fn follow(&mut self, log: &PartitionLog) {
        self.log_start = log.log_start_offset();
        self.log_end = log.log_end_offset();
        self.last_stable = log.shown_last_stable();
        let (sealed, moving) = (log.sealed_segments(), log.moving_segments());
        let first = sealed.first().map(|sealed| sealed.base);
        let first = first.or_else(|| moving.clone().next().map(|extent| extent.base));
        let same = self.segments.len() == sealed.len() + moving.clone().count()
            && self.segments.first().map(|extent| extent.base) == first;
        if same {
            // Some may have grown and been sealed since they were shown last.
            let from = self.sealed.min(sealed.len());
            let since = sealed.get(from..).unwrap_or_default();
            let since = since.iter().map(SealedSegment::extent).chain(moving);
            let known = self.segments.iter_mut().skip(from);
            known.zip(since).for_each(|(known, extent)| *known = extent);
        } else {
            self.segments.clear();
            self.segments.extend(sealed.iter().map(SealedSegment::extent).chain(moving));
        }
        self.sealed = sealed.len();
        if !self.epochs.has_ends_of(log.epochs()) {
            self.epochs.clone_from(log.epochs());
        }
    }

    /// A log that nobody writes to at the moment.
    pub fn of_recovered(log: &RecoveredLog) -> Self {
        let sealed = log.sealed.iter().map(SealedSegment::extent);
        let active = log.active.iter();
        let active = active.map(|it| SegmentExtent { base: it.base, len: it.size_bytes });
        Self {
            log_start: log.log_start,
            log_end: log.log_end,
            last_stable: log.producers.last_stable_offset(log.log_end),
            segments: sealed.chain(active).collect(),
            sealed: log.sealed.len(),
            epochs: log.epochs.clone(),
        }
    }

    /// A log that is written by plain calls, between two of them.
    pub fn of_cold(log: &ColdLog) -> Self {
        Self {
            log_start: log.log_start(),
            log_end: log.log_end(),
            last_stable: log.last_stable_offset(),
            segments: log.segments().collect(),
            sealed: log.sealed_count(),
            epochs: log.epochs().clone(),
        }
    }

    /// Whether a segment of it is sealed.
    pub fn is_sealed(&self, segment: SegmentExtent) -> bool {
        self.segments.get(self.sealed).is_none_or(|moving| segment.base < moving.base)
    }

    /// The segments that may hold `from` or what follows it, at most `max` of them.
    pub fn segments_from(&self, from: Offset, max: usize) -> &[SegmentExtent] {
        let after = self.segments.partition_point(|segment| segment.base <= from);
        let first = after.saturating_sub(1);
        let end = first.saturating_add(max).min(self.segments.len());
        self.segments.get(first..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::config::LogConfig;
    use crate::log::index::SegmentIndexes;
    use crate::log::producer_state::ProducerState;
    use crate::log::segment::RecoveredSegment;
    use crate::types::TimestampMs;

    #[test]
    fn segments_begin_with_the_one_that_has_the_offset() {
        let extent = |base| SegmentExtent { base: Offset(base), len: 1 };
        let shown =
            ShownLog { segments: [10, 20, 30, 40].map(extent).to_vec(), ..ShownLog::default() };
        let bases = |from, max| {
            let found = shown.segments_from(Offset(from), max).iter();
            found.map(|extent| extent.base.0).collect::<Vec<_>>()
        };
        assert_eq!(bases(5, 2), [10, 20]);
        assert_eq!(bases(19, 2), [10, 20]);
        assert_eq!(bases(20, 9), [20, 30, 40]);
        assert_eq!(bases(99, 9), [40]);
        assert!(ShownLog::default().segments_from(Offset(0), 1).is_empty());
    }

    /// Readers who were looking when a segment grew for the last time see all of it, also if it
    /// was sealed before they were shown the log again.
    #[test]
    fn a_segment_that_was_sealed_meanwhile_is_shown_whole() {
        let config = LogConfig::default();
        let sealed = |base, size_bytes| SealedSegment { base: Offset(base), size_bytes };
        let active = RecoveredSegment {
            base: Offset(20),
            size_bytes: 7,
            indexes: SegmentIndexes::new(Offset(20), &config),
            side_bytes: [0; 3],
            first_timestamp: None,
            created: TimestampMs(1),
        };
        let now = PartitionLog::new(RecoveredLog {
            dir: "t-0".into(),
            config,
            log_start: Offset::ZERO,
            log_end: Offset(25),
            recovery_point: Offset::ZERO,
            sealed: vec![sealed(0, 90), sealed(10, 80)],
            active: Some(active),
            epochs: EpochCache::default(),
            producers: ProducerState::new(Offset(25)),
        });
        let extent = |base, len| SegmentExtent { base: Offset(base), len };
        let mut shown = ShownLog {
            log_end: Offset(15),
            segments: vec![extent(0, 90), extent(10, 50), extent(20, 0)],
            sealed: 1,
            ..ShownLog::default()
        };
        let is_sealed = |shown: &ShownLog| {
            shown.segments.iter().map(|it| shown.is_sealed(*it)).collect::<Vec<_>>()
        };
        assert_eq!(is_sealed(&shown), [true, false, false]);
        shown.follow(&now);
        assert_eq!(shown.segments, [extent(0, 90), extent(10, 80), extent(20, 7)]);
        assert_eq!(is_sealed(&shown), [true, true, false]);
    }
}

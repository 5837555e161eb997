//! When a log begins a new segment, and what that segment is called.
//!
//! Kafka asks once for each append, which may hold many batches; here it is asked
//! for each batch. Segment borders therefore lie where a broker with small appends
//! would put them, and need not be those of the source.

use super::config::LogConfig;
use super::index::{SegmentIndexes, relative_offset};
use crate::records::BatchMeta;
use crate::types::{Offset, TimestampMs};

/// What a roll depends on besides the indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveSegment {
    /// Bytes of batches in it.
    pub size_bytes: u64,
    /// Largest timestamp of its first batch; `None` if there is no batch.
    pub first_timestamp: Option<TimestampMs>,
    /// Wall-clock time at which it was created, or was emptied.
    pub created: TimestampMs,
    /// Its own part of `segment.jitter.ms`, drawn once. Milliseconds.
    pub jitter_ms: i64,
}

/// Why a segment takes no further batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RollReason {
    /// The batch would make it larger than `segment.bytes`.
    Size,
    /// `segment.ms` has passed since its first batch.
    Time,
    /// No room for an offset entry.
    OffsetIndexFull,
    /// No room for a time entry but the final one.
    TimeIndexFull,
    /// The batch's last offset is more than an int32 away from the segment's base.
    OffsetRange,
}

/// Whether the active segment must be rolled before `incoming`; `now` is wall-clock time.
///
/// Time is measured between batches: from the largest timestamp of the segment's
/// first batch to that of the incoming one. Only if the first batch has none,
/// it is measured from the segment's creation to `now`.
///
/// A segment without batches is never rolled for size or time, so that a batch
/// larger than `segment.bytes` finds its place. It may be for [`RollReason::OffsetRange`];
/// the empty segment can then be dropped.
pub fn should_roll(
    config: &LogConfig,
    active: &ActiveSegment,
    indexes: &SegmentIndexes,
    incoming: &BatchMeta,
    now: TimestampMs,
) -> Option<RollReason> {
    let size_with = active.size_bytes.saturating_add(u64::from(incoming.size_bytes));
    let waited_ms = match active.first_timestamp {
        Some(first) if first.0 >= 0 => incoming.max_timestamp.0.saturating_sub(first.0),
        _ => now.0.saturating_sub(active.created.0),
    };
    let wait_ms_max = config.segment_ms().saturating_sub(active.jitter_ms);
    if active.size_bytes > 0 && size_with > u64::from(config.segment_bytes()) {
        Some(RollReason::Size)
    } else if active.size_bytes > 0 && waited_ms > wait_ms_max {
        Some(RollReason::Time)
    } else if indexes.is_offset_index_full() {
        Some(RollReason::OffsetIndexFull)
    } else if indexes.is_time_index_full() {
        Some(RollReason::TimeIndexFull)
    } else if relative_offset(indexes.base_offset(), incoming.last_offset).is_none() {
        Some(RollReason::OffsetRange)
    } else {
        None
    }
}

/// Base offset, and so the name, of the segment that a roll begins with `incoming`.
///
/// The log end, where Kafka takes the larger of log end and batch base: segments that
/// follow one another without a hole let recovery tell a gap of offsets, which is legal,
/// from a segment that a crash took. Only a gap that no relative offset spans lies
/// between two segments.
///
/// The first batch of an empty log is no roll: that segment is named after the
/// batch's base even if the log starts later.
pub fn roll_base_offset(incoming: &BatchMeta, log_end: Offset) -> Offset {
    let reachable = relative_offset(log_end, incoming.last_offset).is_some();
    if reachable { log_end } else { incoming.base_offset }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::config::LogConfigValues;
    use crate::log::test_batch::{TestBatch, batch};

    const NOW: TimestampMs = TimestampMs(1_000_000);

    fn config() -> LogConfig {
        LogConfig::new(LogConfigValues {
            segment_bytes: 1_000,
            segment_ms: 5_000,
            segment_index_bytes: 24,
            index_interval_bytes: 0,
            ..LogConfigValues::default()
        })
        .unwrap()
    }

    /// A segment based at 100 that was created now, with a first batch at time 2000.
    fn active(size_bytes: u64) -> ActiveSegment {
        let first_timestamp = (size_bytes > 0).then_some(TimestampMs(2_000));
        ActiveSegment { size_bytes, first_timestamp, created: NOW, jitter_ms: 0 }
    }

    #[track_caller]
    fn check(active: ActiveSegment, incoming: TestBatch, want: Option<RollReason>) {
        let indexes = SegmentIndexes::new(Offset(100), &config());
        let got = should_roll(&config(), &active, &indexes, &incoming.meta(), NOW);
        assert_eq!(got, want, "{active:?} and {incoming:?}");
    }

    #[test]
    fn a_batch_that_just_fits_is_taken() {
        check(active(900), batch(200, 200).time(2_000).size(100), None);
        check(active(901), batch(200, 200).time(2_000).size(100), Some(RollReason::Size));
        check(active(0), batch(200, 200).time(2_000).size(5_000), None);
    }

    #[test]
    fn time_runs_between_first_and_incoming_batch() {
        let at = |ms| batch(200, 200).time(ms);
        check(active(1), at(7_000), None);
        check(active(1), at(7_001), Some(RollReason::Time));
        check(ActiveSegment { jitter_ms: 10, ..active(1) }, at(6_991), Some(RollReason::Time));
        check(ActiveSegment { jitter_ms: 10, ..active(1) }, at(6_990), None);
        check(active(1), at(-1), None);
        check(active(1), at(i64::MAX), Some(RollReason::Time));
        check(active(0), at(i64::MAX), None);
    }

    #[test]
    fn without_a_first_timestamp_the_clock_counts() {
        let old = |age_ms: i64| ActiveSegment {
            first_timestamp: Some(TimestampMs::NONE),
            created: TimestampMs(NOW.0 - age_ms),
            ..active(1)
        };
        check(old(5_000), batch(200, 200).time(-1), None);
        check(old(5_001), batch(200, 200).time(-1), Some(RollReason::Time));
    }

    #[test]
    fn the_last_offset_must_fit_into_an_int32() {
        let limit = 100 + i64::from(i32::MAX);
        check(active(1), batch(limit, limit).time(0), None);
        check(active(1), batch(limit, limit + 1).time(0), Some(RollReason::OffsetRange));
        check(active(0), batch(limit + 1, limit + 1).time(0), Some(RollReason::OffsetRange));
        check(active(0), batch(99, 99).time(0), Some(RollReason::OffsetRange));
    }

    /// 24 bytes: three offset entries, two time entries of which one is for the roll.
    #[test]
    fn full_indexes_roll() {
        let reason = |indexes: &SegmentIndexes| {
            should_roll(&config(), &active(1), indexes, &batch(200, 200).time(0).meta(), NOW)
        };
        let mut timed = SegmentIndexes::new(Offset(100), &config());
        timed.on_batch(&batch(100, 100).meta(), 0);
        assert_eq!(reason(&timed), None);
        timed.on_batch(&batch(101, 101).meta(), 100);
        assert_eq!(reason(&timed), Some(RollReason::TimeIndexFull));
        let mut timeless = SegmentIndexes::new(Offset(100), &config());
        for offset in 100..104 {
            assert_eq!(reason(&timeless), None);
            timeless.on_batch(&batch(offset, offset).time(-1).meta(), 0);
        }
        assert_eq!(reason(&timeless), Some(RollReason::OffsetIndexFull));
    }

    #[test]
    fn the_new_segment_begins_at_the_log_end_if_the_batch_is_in_reach() {
        let base = |first, last| roll_base_offset(&batch(first, last).meta(), Offset(200));
        assert_eq!(base(200, 209), Offset(200));
        assert_eq!(base(250, 259), Offset(200));
        let reach = 200 + i64::from(i32::MAX);
        assert_eq!(base(reach, reach), Offset(200));
        assert_eq!(base(reach, reach + 1), Offset(reach));
    }
}

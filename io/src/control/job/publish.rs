//! Snapshots of a job.

use std::sync::Arc;

use heliostat_core::log::gaps::GapKind;
use heliostat_core::time::Tick;
use heliostat_core::types::Offset;

use super::super::copy::{Copy, estimate};
use super::super::status::{
    JobPhase, PARTITIONS_LISTED_MAX, PartitionState, PartitionStatus, Status, Totals, approximate,
};
use super::{Job, Published, refusals};
use crate::shard::snapshot::ShardSnapshot;

impl Job {
    pub(super) fn publish(&mut self) {
        let now = self.now();
        if self.phase == JobPhase::Copying && self.is_caught_up() {
            self.phase = JobPhase::Following;
        }
        self.copies.file();
        let stands = self.publication.timeless
            && self.publication.changes == self.copies.changes()
            && self.phase != JobPhase::Ended;
        let (partitions, sums, worst) = if stands {
            let last = self.published.borrow();
            (Arc::clone(&last.partitions), last.totals, last.worst.clone())
        } else {
            self.look_at_partitions(now)
        };
        let mut shards = ShardSnapshot::default();
        for port in &mut self.shards {
            if let Some(snapshot) = port.end.latest_snapshot() {
                port.snapshot = snapshot;
            }
            shards.add(&port.snapshot);
        }
        let log_dir = self.log_dir.borrow();
        let gaps = log_dir.gaps();
        let truncations = gaps.iter().filter(|gap| gap.kind == GapKind::Truncation).count();
        let totals = Totals { gaps: gaps.len() - truncations, truncations, ..sums };
        let failing = self.health.failing_since.map(|since| now.since(since));
        let status = Status {
            phase: self.phase,
            source_cluster: log_dir.source_cluster().map(Arc::from),
            source_trouble: self
                .health
                .trouble
                .clone()
                .map(|text| (text, failing.unwrap_or_default())),
            refresh_failures: self.health.failures,
            throttle: self.config.mirror.throttled_rate,
            parked: self.parked,
            free_bytes: self.free_bytes,
            elapsed: self.origin.elapsed(),
            totals,
            partitions,
            worst,
            refused: refusals(&self.topics),
            events: self.events.clone(),
            events_seen: self.events_seen,
            events_by_kind: self.events_by_kind.clone(),
            shards,
            shard_count: self.shards.len(),
            shard_times: self.shards.iter().map(|port| port.snapshot.time).collect(),
        };
        self.published.send_replace(Arc::new(status));
    }

    /// The figures of all partitions, which of them are listed one by one, and the worst.
    fn look_at_partitions(
        &mut self,
        now: Tick,
    ) -> (Arc<[PartitionStatus]>, Totals, Option<Arc<PartitionStatus>>) {
        // Nobody comes back for more after the last one.
        let listed_max =
            if self.phase == JobPhase::Ended { usize::MAX } else { PARTITIONS_LISTED_MAX };
        let all = look_at(self.copies.values(), now, listed_max);
        let timeless = all.is_calm && all.totals.lag.is_zero();
        self.publication = Published { changes: self.copies.changes(), timeless };
        (all.listed.into(), all.totals, all.worst.map(Arc::new))
    }
}

/// What [`look_at`] sees.
struct Look {
    /// By name.
    listed: Vec<PartitionStatus>,
    totals: Totals,
    /// Lacks the most.
    worst: Option<PartitionStatus>,
    /// Nothing holds a partition up.
    is_calm: bool,
}

/// Sums up all copies. Lists the first `listed_max`, and as many of those that do not go on:
/// all of very many would be as much memory again as the copies themselves.
fn look_at<'a>(
    copies: impl Iterator<Item = &'a Copy> + Clone,
    now: Tick,
    listed_max: usize,
) -> Look {
    let bytes_per_record = bytes_per_record(copies.clone());
    let mut look =
        Look { listed: Vec::new(), totals: Totals::default(), worst: None, is_calm: true };
    for copy in copies {
        let mut status = copy.status(now);
        if status.size_bytes == 0 {
            status.lag_bytes = estimate(status.lag_records, bytes_per_record);
        }
        add(&mut look.totals, &status);
        look.is_calm &= status.trouble.is_none();
        if status.lag_records > look.worst.as_ref().map_or(0, |worst| worst.lag_records) {
            look.worst = Some(status.clone());
        }
        let is_stuck = status.trouble.is_some()
            || matches!(status.state, PartitionState::Failed | PartitionState::NoRoom);
        let room = if is_stuck { listed_max.saturating_mul(2) } else { listed_max };
        if look.listed.len() < room {
            look.listed.push(status);
        }
    }
    look.listed.sort_by(|a, b| a.partition.cmp(&b.partition));
    look
}

/// Over all logs that hold something: what is missing of the others is estimated by it.
fn bytes_per_record<'a>(copies: impl Iterator<Item = &'a Copy>) -> f64 {
    let (mut bytes, mut records) = (0_u64, 0_u64);
    for copy in copies.filter(|copy| copy.size_bytes > 0) {
        bytes += copy.size_bytes;
        records += copy.ends.log_end.records_since(copy.ends.log_start);
    }
    approximate(bytes) / approximate(records.max(1))
}

fn add(totals: &mut Totals, partition: &PartitionStatus) {
    let is_failed = matches!(partition.state, PartitionState::Failed | PartitionState::Resting);
    let is_known = partition.target.is_some() || partition.source_high_watermark >= Offset::ZERO;
    let is_caught_up = is_known && partition.lag_records == 0 && !is_failed;
    totals.partitions += 1;
    match partition.state {
        PartitionState::Preparing => totals.preparing += 1,
        PartitionState::Mirroring => totals.mirroring += 1,
        PartitionState::NoRoom => totals.no_room += 1,
        PartitionState::Failed => totals.failed += 1,
        PartitionState::Resting => totals.resting += 1,
    }
    totals.empty += usize::from(partition.size_bytes == 0);
    totals.caught_up += usize::from(is_caught_up);
    totals.lag_records += partition.lag_records;
    totals.lag_bytes = totals.lag_bytes.saturating_add(partition.lag_bytes);
    let stable = partition.stable_lag_records().unwrap_or_default();
    totals.stable_lag_records = totals.stable_lag_records.saturating_add(stable);
    let stable = partition.stable_lag_bytes().unwrap_or_default();
    totals.stable_lag_bytes = totals.stable_lag_bytes.saturating_add(stable);
    totals.lag = totals.lag.max(partition.lag);
    totals.appended_at = totals.appended_at.max(partition.appended_at);
    if !is_failed {
        let target = partition.target.unwrap_or(Offset::ZERO);
        totals.left_records += target.records_since(partition.log_end);
    }
    totals.size_bytes += partition.size_bytes;
    totals.bytes_appended += partition.bytes_appended;
    totals.bytes_per_second += partition.bytes_per_second;
}

#[cfg(test)]
mod tests {
    use heliostat_core::engine::message::PartitionKey;
    use heliostat_core::types::{TopicId, TopicPartition};

    use super::*;
    use crate::control::copy::Phase;

    fn copy(index: i32, phase: Phase, size_bytes: u64) -> Copy {
        let at = TopicPartition::new("t", index);
        let mut copy = Copy::new(PartitionKey(0), at, TopicId::NONE);
        (copy.phase, copy.size_bytes) = (phase, size_bytes);
        copy
    }

    /// Nobody scrolls through 100,000 lines, but a failure must not hide behind them.
    #[test]
    fn all_are_summed_up_and_few_are_listed() {
        let failed = || Phase::Failed { reason: Arc::from("why") };
        let mut copies: Vec<_> = (0..10)
            .rev()
            .map(|index| match index {
                0 | 1 => copy(index, failed(), 0),
                2 => copy(index, Phase::Active { shard: 0 }, 0),
                _ => copy(index, Phase::Active { shard: 0 }, 100),
            })
            .collect();
        copies[4].target = Some(Offset(7));
        let look = look_at(copies.iter(), Tick::ZERO, 3);
        let Totals { partitions, mirroring, failed, empty, size_bytes, .. } = look.totals;
        assert_eq!((partitions, mirroring, failed, empty, size_bytes), (10, 8, 2, 3, 700));
        assert!(!look.is_calm);
        let worst = look.worst.unwrap();
        assert_eq!((worst.partition.partition, worst.lag_records), (5, 7));
        let listed: Vec<_> = look.listed.iter().map(|one| one.partition.partition).collect();
        assert_eq!(listed, [0, 1, 7, 8, 9]);
        assert_eq!(look_at(copies.iter(), Tick::ZERO, usize::MAX).listed.len(), 10);
    }
}

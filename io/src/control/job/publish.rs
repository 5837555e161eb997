//! Snapshots of a job.

use std::sync::Arc;

use heliostat_core::log::gaps::GapKind;
use heliostat_core::time::Tick;
use heliostat_core::types::Offset;

use super::super::copy::{Copy, estimate};
use super::super::status::{
    JobPhase, PartitionState, PartitionStatus, Status, Totals, approximate,
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
        let stands = self.publication.timeless && self.publication.changes == self.copies.changes();
        let (partitions, sums) = if stands {
            let last = self.published.borrow();
            (Arc::clone(&last.partitions), last.totals)
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
        let gaps = self.log_dir.gaps();
        let truncations = gaps.iter().filter(|gap| gap.kind == GapKind::Truncation).count();
        let totals = Totals { gaps: gaps.len() - truncations, truncations, ..sums };
        let failing = self.health.failing_since.map(|since| now.since(since));
        let status = Status {
            phase: self.phase,
            source_cluster: self.log_dir.source_cluster().map(Arc::from),
            source_trouble: self
                .health
                .trouble
                .clone()
                .map(|text| (text, failing.unwrap_or_default())),
            parked: self.parked,
            free_bytes: self.free_bytes,
            elapsed: self.origin.elapsed(),
            totals,
            partitions,
            refused: refusals(&self.topics),
            events: self.events.clone(),
            events_seen: self.events_seen,
            shards,
            shard_count: self.shards.len(),
        };
        self.published.send_replace(Arc::new(status));
    }

    /// Every partition's figures, by name, and their sums.
    fn look_at_partitions(&mut self, now: Tick) -> (Arc<[PartitionStatus]>, Totals) {
        let mut partitions: Vec<PartitionStatus> =
            self.copies.values().map(|copy: &Copy| copy.status(now)).collect();
        estimate_lag_bytes(&mut partitions);
        partitions.sort_by(|a, b| a.partition.cmp(&b.partition));
        let totals = totals(&partitions);
        let is_calm = partitions.iter().all(|partition| partition.trouble.is_none());
        self.publication =
            Published { changes: self.copies.changes(), timeless: is_calm && totals.lag.is_zero() };
        (partitions.into(), totals)
    }
}

/// What is missing of logs that nothing is known of, by the size of the others' records.
fn estimate_lag_bytes(partitions: &mut [PartitionStatus]) {
    let records = |p: &PartitionStatus| p.log_end.records_since(p.log_start);
    let known: u64 = partitions.iter().filter(|p| p.size_bytes > 0).map(records).sum();
    let bytes: u64 = partitions.iter().map(|p| p.size_bytes).sum();
    let each = approximate(bytes) / approximate(known.max(1));
    for partition in partitions.iter_mut().filter(|p| p.size_bytes == 0) {
        partition.lag_bytes = estimate(partition.lag_records, each);
    }
}

fn totals(partitions: &[PartitionStatus]) -> Totals {
    let mut totals = Totals { partitions: partitions.len(), ..Totals::default() };
    for partition in partitions {
        let is_failed = partition.state == PartitionState::Failed;
        let is_known =
            partition.target.is_some() || partition.source_high_watermark >= Offset::ZERO;
        let is_caught_up = is_known && partition.lag_records == 0 && !is_failed;
        totals.failed += usize::from(is_failed);
        totals.caught_up += usize::from(is_caught_up);
        totals.lag_records += partition.lag_records;
        totals.lag_bytes = totals.lag_bytes.saturating_add(partition.lag_bytes);
        totals.lag = totals.lag.max(partition.lag);
        if !is_failed {
            let target = partition.target.unwrap_or(Offset::ZERO);
            totals.left_records += target.records_since(partition.log_end);
        }
        totals.size_bytes += partition.size_bytes;
        totals.bytes_appended += partition.bytes_appended;
        totals.bytes_per_second += partition.bytes_per_second;
    }
    totals
}

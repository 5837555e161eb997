use std::collections::BTreeMap;
use std::sync::Arc;

use heliostat_core::types::{Offset, TopicId, TopicPartition};

use super::*;
use crate::control::{PartitionState, Totals};

fn status(topic: &str, partition: i32) -> PartitionStatus {
    PartitionStatus {
        partition: TopicPartition::new(topic, partition),
        topic_id: TopicId::NONE,
        state: PartitionState::Mirroring,
        trouble: None,
        shard: Some(0),
        log_start: Offset(3),
        log_end: Offset(40),
        recovery_point: Offset(40),
        last_stable: Offset(40),
        source_high_watermark: Offset(50),
        source_last_stable: Offset(45),
        target: Some(Offset(50)),
        lag_records: 10,
        lag_bytes: 100,
        lag: Duration::from_millis(1_500),
        size_bytes: 400,
        bytes_appended: 370,
        bytes_per_second: 12.5,
        appended_at: Some(Duration::from_secs(8)),
    }
}

fn job() -> Status {
    let one = status("orders", 1);
    Status {
        elapsed: Duration::from_secs(10),
        free_bytes: 1_000,
        totals: Totals {
            lag_records: 10,
            lag_bytes: 100,
            stable_lag_records: 5,
            stable_lag_bytes: 50,
            lag: Duration::from_millis(1_500),
            size_bytes: 400,
            bytes_per_second: 12.5,
            appended_at: Some(Duration::from_secs(8)),
            ..Totals::default()
        },
        partitions: [one.clone()].into(),
        worst: Some(Arc::new(one)),
        throttle: Some(5_000_000),
        refresh_failures: 4,
        events_by_kind: BTreeMap::from([(EventKind::BadBatch, 2)]),
        ..Status::default()
    }
}

fn mirror(name: &str) -> MirrorSnapshot {
    let states = BTreeMap::from([(MirrorState::Mirroring, 1), (MirrorState::Failed, 1)]);
    MirrorSnapshot { name: name.to_owned(), topics: 1, states, ..MirrorSnapshot::default() }
}

fn snapshot() -> Snapshot {
    let partition = |index, state, attempts| PartitionSnapshot {
        at: TopicPartition::new("orders", index),
        state,
        attempts,
        gaps: 0,
        truncations: 1,
    };
    let first = MirrorSnapshot {
        retries: 3,
        given_up: 1,
        failures: 7,
        gaps: 1,
        truncations: 2,
        job: Some(Arc::new(job())),
        partitions: vec![
            partition(0, MirrorState::Failed, 3),
            partition(1, MirrorState::Mirroring, 0),
        ],
        ..mirror("a")
    };
    Snapshot {
        phase: Phase::Running,
        node: 7,
        cluster: "c\"1".to_owned(),
        elapsed: Duration::from_secs(12),
        missing: vec!["mirror b".to_owned()],
        mirrors: vec![first, mirror("b")],
        ..Snapshot::default()
    }
}

/// Samples alone, without those of histograms.
fn samples(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("latency"));
    lines.map(|line| line.trim_start_matches("heliostat_")).collect::<Vec<_>>().join("\n")
}

#[test]
fn figures_of_two_mirrors() {
    let text = render_at(&snapshot(), Some(Duration::from_millis(250)));
    insta::assert_snapshot!(samples(&text), @r#"
    ready 0
    shard_failures 0
    uptime_seconds 12
    snapshot_age_seconds 0.25
    mirrors 2
    free_bytes 1000
    parked 0
    partitions_without_series 2
    host_info{cluster="c\"1",node="7"} 1
    mirror_partitions{mirror="a",state="LOG_TRUNCATION"} 0
    mirror_partitions{mirror="a",state="EPOCH_FENCING"} 0
    mirror_partitions{mirror="a",state="MIRRORING"} 1
    mirror_partitions{mirror="a",state="PAUSING"} 0
    mirror_partitions{mirror="a",state="PAUSED"} 0
    mirror_partitions{mirror="a",state="STOPPING"} 0
    mirror_partitions{mirror="a",state="STOPPED"} 0
    mirror_partitions{mirror="a",state="FAILED"} 1
    mirror_partitions{mirror="a",state="UNKNOWN"} 0
    mirror_partitions{mirror="b",state="LOG_TRUNCATION"} 0
    mirror_partitions{mirror="b",state="EPOCH_FENCING"} 0
    mirror_partitions{mirror="b",state="MIRRORING"} 1
    mirror_partitions{mirror="b",state="PAUSING"} 0
    mirror_partitions{mirror="b",state="PAUSED"} 0
    mirror_partitions{mirror="b",state="STOPPING"} 0
    mirror_partitions{mirror="b",state="STOPPED"} 0
    mirror_partitions{mirror="b",state="FAILED"} 1
    mirror_partitions{mirror="b",state="UNKNOWN"} 0
    mirror_topics{mirror="a"} 1
    mirror_topics{mirror="b"} 1
    mirror_retries{mirror="a"} 3
    mirror_retries{mirror="b"} 0
    mirror_given_up_partitions{mirror="a"} 1
    mirror_given_up_partitions{mirror="b"} 0
    mirror_gaps{mirror="a"} 1
    mirror_gaps{mirror="b"} 0
    mirror_truncations{mirror="a"} 2
    mirror_truncations{mirror="b"} 0
    mirror_lag_records{mirror="a"} 10
    mirror_lag_bytes{mirror="a"} 100
    mirror_stable_lag_records{mirror="a"} 5
    mirror_stable_lag_bytes{mirror="a"} 50
    mirror_lag_seconds{mirror="a"} 1.5
    mirror_max_lag_records{mirror="a"} 10
    mirror_size_bytes{mirror="a"} 400
    mirror_bytes_per_second{mirror="a"} 12.5
    mirror_idle_seconds{mirror="a"} 2
    mirror_throttle_bytes_per_second{mirror="a"} 5000000
    mirror_source_unreachable_seconds{mirror="a"} 0
    mirror_refused_topics{mirror="a"} 0
    mirror_appended_bytes_total{mirror="a"} 0
    mirror_appended_batches_total{mirror="a"} 0
    mirror_received_bytes_total{mirror="a"} 0
    mirror_written_bytes_total{mirror="a"} 0
    mirror_fetches_total{mirror="a"} 0
    mirror_disconnects_total{mirror="a"} 0
    mirror_source_throttle_seconds_total{mirror="a"} 0
    mirror_fetch_seconds_total{mirror="a",on="source"} 0
    mirror_fetch_seconds_total{mirror="a",on="network"} 0
    mirror_fetch_seconds_total{mirror="a",on="disk"} 0
    mirror_fetch_seconds_total{mirror="a",on="throttle"} 0
    mirror_errors_total{mirror="a",kind="topic_metadata_refresh"} 4
    mirror_errors_total{mirror="a",kind="partition_failed"} 7
    mirror_errors_total{mirror="a",kind="bad_batch"} 2
    mirror_errors_total{mirror="a",kind="gap"} 0
    mirror_errors_total{mirror="a",kind="truncation"} 0
    mirror_errors_total{mirror="b",kind="topic_metadata_refresh"} 0
    mirror_errors_total{mirror="b",kind="partition_failed"} 0
    mirror_errors_total{mirror="b",kind="bad_batch"} 0
    mirror_errors_total{mirror="b",kind="gap"} 0
    mirror_errors_total{mirror="b",kind="truncation"} 0
    mirror_worst_partition_lag_records{mirror="a",topic="orders",partition="1"} 10
    mirror_partition_state{mirror="a",topic="orders",partition="0",state="FAILED"} 1
    mirror_partition_state{mirror="a",topic="orders",partition="1",state="MIRRORING"} 1
    mirror_partition_retries{mirror="a",topic="orders",partition="0"} 3
    mirror_partition_retries{mirror="a",topic="orders",partition="1"} 0
    mirror_partition_gaps{mirror="a",topic="orders",partition="0"} 0
    mirror_partition_gaps{mirror="a",topic="orders",partition="1"} 0
    mirror_partition_truncations{mirror="a",topic="orders",partition="0"} 1
    mirror_partition_truncations{mirror="a",topic="orders",partition="1"} 1
    mirror_partition_lag_records{mirror="a",topic="orders",partition="1"} 10
    mirror_partition_lag_bytes{mirror="a",topic="orders",partition="1"} 100
    mirror_partition_stable_lag_records{mirror="a",topic="orders",partition="1"} 5
    mirror_partition_stable_lag_bytes{mirror="a",topic="orders",partition="1"} 50
    mirror_partition_lag_seconds{mirror="a",topic="orders",partition="1"} 1.5
    mirror_partition_idle_seconds{mirror="a",topic="orders",partition="1"} 2
    mirror_partition_log_start_offset{mirror="a",topic="orders",partition="1"} 3
    mirror_partition_log_end_offset{mirror="a",topic="orders",partition="1"} 40
    mirror_partition_size_bytes{mirror="a",topic="orders",partition="1"} 400
    mirror_partition_bytes_per_second{mirror="a",topic="orders",partition="1"} 12.5
    mirror_partition_appended_bytes_total{mirror="a",topic="orders",partition="1"} 370
    "#);
}

#[test]
fn every_sample_is_of_a_metric_that_has_begun() {
    let text = render_at(&snapshot(), None);
    let mut name = "";
    let mut names = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            name = rest.split(' ').next().unwrap();
            assert!(names.insert(name), "{name} twice");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(name), "{line} behind {name}");
            let value = line.rsplit(' ').next().unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(
        text.contains("heliostat_mirror_fetch_latency_seconds_bucket{mirror=\"a\",le=\"0.5\"}")
    );
    assert!(text.contains("heliostat_mirror_append_latency_seconds_count{mirror=\"a\"} 0\n"));
}

/// Of too many there are sums, and the worst by name.
#[test]
fn partitions_that_are_left_out_are_counted() {
    let mut all = snapshot();
    for mirror in &mut all.mirrors {
        mirror.partitions.clear();
    }
    let text = render_at(&all, None);
    assert!(!text.contains("mirror_partition_lag_records{"));
    assert!(text.contains("heliostat_partitions_without_series 4\n"));
    let worst = "heliostat_mirror_worst_partition_lag_records{mirror=\"a\",topic=\"orders\",\
                 partition=\"1\"} 10\n";
    assert!(text.contains(worst));
}

//! A job's figures as Prometheus text.
//!
//! The number of series is bounded: partitions beyond a limit are only in the sums.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::prometheus::{Kind, Text};
use super::status::{PartitionStatus, Status};

/// Partitions with series of their own.
const PARTITIONS_MAX: usize = 2_000;
/// Percentiles of latencies.
const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// The text of one scrape.
pub(super) fn render(status: &Status) -> String {
    let mut out = Text::default();
    for (name, help, value) in counters(status) {
        out.head(name, Kind::Counter, help);
        out.line(name, &[], value);
    }
    for (name, help, value) in gauges(status) {
        out.head(name, Kind::Gauge, help);
        out.line(name, &[], value);
    }
    let totals = &status.totals;
    out.head("lag_seconds", Kind::Gauge, "Longest time that a partition has lacked something");
    out.line("lag_seconds", &[], totals.lag.as_secs_f64());
    states(&mut out, status);
    latency(
        &mut out,
        "fetch_latency_seconds",
        "Fetch sent to first byte of its answer",
        &status.shards.fetch_latency_us,
    );
    latency(
        &mut out,
        "append_latency_seconds",
        "First byte received to write complete",
        &status.shards.append_latency_us,
    );
    partitions(&mut out, status);
    out.finish()
}

/// Name, help, value.
type Sample = (&'static str, &'static str, u64);

/// What only grows.
fn counters(status: &Status) -> [Sample; 21] {
    let stats = &status.shards.stats;
    [
        ("appended_bytes_total", "Batch bytes below log end offsets", stats.append.bytes_appended),
        ("appended_batches_total", "Batches below log end offsets", stats.append.batches_appended),
        (
            "copied_bytes_total",
            "Batch bytes moved in memory on their way to a file",
            stats.append.bytes_copied,
        ),
        (
            "discarded_bytes_total",
            "Batch bytes received and dropped",
            stats.append.bytes_discarded + stats.record_bytes_dropped,
        ),
        ("written_bytes_total", "Bytes written to segment files", stats.append.bytes_written),
        ("writes_total", "Writes to segment files", stats.append.writes),
        ("syncs_total", "Syncs of segment files", stats.append.syncs),
        ("received_bytes_total", "Record bytes received", stats.record_bytes_received),
        ("fetches_total", "Fetch requests sent", stats.fetches),
        ("disconnects_total", "Connections to the source that broke", stats.disconnects),
        ("buffer_waits_total", "Times a connection waited for a buffer", stats.buffer_waits),
        (
            "source_throttle_ms_total",
            "Milliseconds that the source asked for silence",
            stats.broker_throttle_ms,
        ),
        (
            "fetch_waiting_ms_total",
            "Milliseconds of all connections from a question to its answer's first byte",
            millis(stats.spent.waiting),
        ),
        (
            "fetch_receiving_ms_total",
            "From there to the answer's end, unless stalled",
            millis(stats.spent.receiving),
        ),
        (
            "fetch_stalled_ms_total",
            "Part of an answer was there, and no buffer for it",
            millis(stats.spent.stalled),
        ),
        (
            "fetch_throttled_ms_total",
            "A question was held up by the throttle",
            millis(stats.spent.throttled),
        ),
        ("stripe_ranges_total", "Ranges asked for by stripes", stats.stripes.ranges),
        ("stripe_holes_total", "Of these, what was missing before one", stats.stripes.holes),
        ("stripe_ranges_lost_total", "Ranges that brought nothing", stats.stripes.lost),
        (
            "stripe_overlap_bytes_total",
            "Record bytes that stripes brought twice",
            stats.stripes.overlap_bytes,
        ),
        ("events_total", "Events of the job", status.events_seen),
    ]
}

/// What goes both ways.
fn gauges(status: &Status) -> [Sample; 11] {
    let totals = &status.totals;
    [
        ("size_bytes", "Bytes of all logs", totals.size_bytes),
        ("lag_records", "Offsets that the source has and the copy lacks", totals.lag_records),
        ("lag_bytes", "The same in bytes, an estimate", totals.lag_bytes),
        ("free_bytes", "Room of the log dir", status.free_bytes),
        ("parked", "1 while free space is low and nothing is fetched", u64::from(status.parked)),
        (
            "source_unreachable",
            "1 while no broker of the source answers",
            u64::from(status.source_trouble.is_some()),
        ),
        ("gaps", "Gaps on record", number(totals.gaps)),
        ("truncations", "Truncations on record", number(totals.truncations)),
        ("partitions", "Partitions of the job", number(totals.partitions)),
        ("caught_up_partitions", "Partitions without lag", number(totals.caught_up)),
        (
            "mirror_topic_refused",
            "Topics included by a pattern and not copied",
            number(status.refused.len()),
        ),
    ]
}

fn states(out: &mut Text, status: &Status) {
    out.head("partition_state", Kind::Gauge, "Partitions in a state");
    let totals = &status.totals;
    for (count, label) in [
        (totals.preparing, "preparing"),
        (totals.mirroring, "mirroring"),
        (totals.no_room, "no_room"),
        (totals.failed, "failed"),
    ] {
        out.line("partition_state", &[("state", label)], count);
    }
}

fn latency(out: &mut Text, name: &str, help: &str, histogram: &Histogram<u64>) {
    out.head(name, Kind::Summary, help);
    for quantile in QUANTILES {
        let us = Duration::from_micros(histogram.value_at_quantile(quantile));
        out.line(name, &[("quantile", quantile.to_string().as_str())], us.as_secs_f64());
    }
    out.line(&format!("{name}_count"), &[], histogram.len());
}

fn partitions(out: &mut Text, status: &Status) {
    type Value = fn(&PartitionStatus) -> String;
    let values: [(&str, &str, Value); 5] = [
        ("partition_lag_records", "Offsets that the copy lacks", |p| p.lag_records.to_string()),
        ("partition_lag_seconds", "Time that it has lacked something", |p| {
            p.lag.as_secs_f64().to_string()
        }),
        ("partition_log_end_offset", "End of the copy", |p| p.log_end.to_string()),
        ("partition_log_start_offset", "Start of the copy", |p| p.log_start.to_string()),
        ("partition_size_bytes", "Bytes of the log", |p| p.size_bytes.to_string()),
    ];
    for (name, help, value) in values {
        out.head(name, Kind::Gauge, help);
        for partition in status.partitions.iter().take(PARTITIONS_MAX) {
            let at = &partition.partition;
            let index = at.partition.to_string();
            let labels = [("topic", &*at.topic), ("partition", index.as_str())];
            out.line(name, &labels, value(partition));
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn number(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

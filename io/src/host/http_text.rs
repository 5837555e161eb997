//! A host's figures as Prometheus text.
//!
//! Names follow KIP-1279, section Metrics: `mirror_partitions` with a state is
//! `<State>PartitionState`, `mirror_topics` is `MirrorTopicCount`, `mirror_max_lag_records` is
//! `MaxLag`, `mirror_errors_total` has the errors by kind, `shard_failures` is `DeadThreadCount`.

use std::time::Duration;

use heliostat_core::coordinator::MirrorState;

use super::snapshot::{Look, MirrorSnapshot, PartitionSnapshot, Phase, Snapshot};
use crate::control::prometheus::{Kind, Text};
use crate::control::{EventKind, PartitionStatus, Status};

/// The text of one scrape.
pub(super) fn render(look: &Look) -> String {
    let age = look.snapshot.taken_at.map(|at| at.elapsed());
    render_at(&look.snapshot, age)
}

fn render_at(snapshot: &Snapshot, age: Option<Duration>) -> String {
    let mut out = Text::default();
    host(&mut out, snapshot, age);
    states(&mut out, &snapshot.mirrors);
    for series in OF_MIRRORS {
        series.of(&mut out, &snapshot.mirrors);
    }
    spent(&mut out, &snapshot.mirrors);
    errors(&mut out, &snapshot.mirrors);
    latencies(&mut out, &snapshot.mirrors);
    worst(&mut out, &snapshot.mirrors);
    partitions(&mut out, &snapshot.mirrors);
    out.finish()
}

fn host(out: &mut Text, snapshot: &Snapshot, age: Option<Duration>) {
    let mut gauge = |name, help, value: String| {
        out.head(name, Kind::Gauge, help);
        out.line(name, &[], value);
    };
    let is_ready = snapshot.phase == Phase::Running && snapshot.missing.is_empty();
    gauge("ready", "1 while every mirror's job runs", u8::from(is_ready).to_string());
    let failures = snapshot.shard_errors.len();
    gauge("shard_failures", "Shards that have failed since the start", failures.to_string());
    let uptime = snapshot.elapsed;
    gauge("uptime_seconds", "Time since the start", seconds(uptime));
    if let Some(age) = age {
        gauge("snapshot_age_seconds", "Time since these figures were taken", seconds(age));
    }
    gauge("mirrors", "Mirrors of this host", snapshot.mirrors.len().to_string());
    let jobs = snapshot.mirrors.iter().filter_map(|mirror| mirror.job.as_ref());
    // All copy into one log dir.
    if let Some(free) = jobs.clone().map(|job| job.free_bytes).max() {
        gauge("free_bytes", "Room of the log dir", free.to_string());
        let is_parked = jobs.clone().any(|job| job.parked);
        let help = "1 while free space is low and nothing is fetched";
        gauge("parked", help, u8::from(is_parked).to_string());
    }
    let is_left_out = |mirror: &&MirrorSnapshot| mirror.partitions.is_empty();
    let left_out = snapshot.mirrors.iter().filter(is_left_out).map(MirrorSnapshot::partition_count);
    gauge(
        "partitions_without_series",
        "Partitions in the sums alone, for there are more than metrics.partitions.max",
        left_out.sum::<usize>().to_string(),
    );
    out.head("host_info", Kind::Gauge, "Who this is");
    let node = snapshot.node.to_string();
    out.line("host_info", &[("cluster", &snapshot.cluster), ("node", &node)], 1);
}

/// Every state of every mirror has a series, so that it is known to be 0.
fn states(out: &mut Text, mirrors: &[MirrorSnapshot]) {
    out.head("mirror_partitions", Kind::Gauge, "Partitions in a state");
    for mirror in mirrors {
        for state in MirrorState::ALL {
            let count = mirror.states.get(&state).copied().unwrap_or_default();
            let labels = [("mirror", mirror.name.as_str()), ("state", state.name())];
            out.line("mirror_partitions", &labels, count);
        }
    }
}

/// One metric; things without a value have no sample.
struct Series<T: 'static> {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&T) -> Option<String>,
}

impl Series<MirrorSnapshot> {
    fn of(&self, out: &mut Text, mirrors: &[MirrorSnapshot]) {
        out.head(self.name, self.kind, self.help);
        for mirror in mirrors {
            if let Some(value) = (self.value)(mirror) {
                out.line(self.name, &[("mirror", &mirror.name)], value);
            }
        }
    }
}

const fn gauge<T>(
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> Option<String>,
) -> Series<T> {
    Series { name, kind: Kind::Gauge, help, value }
}

const fn counter<T>(
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> Option<String>,
) -> Series<T> {
    Series { name, kind: Kind::Counter, help, value }
}

fn of_job<T: ToString>(mirror: &MirrorSnapshot, value: impl Fn(&Status) -> T) -> Option<String> {
    mirror.job.as_ref().map(|job| value(job).to_string())
}

const OF_MIRRORS: &[Series<MirrorSnapshot>] = &[
    gauge("mirror_topics", "Topics of the mirror", |it| Some(it.topics.to_string())),
    gauge("mirror_retries", "Failures since the last success, of all partitions", |it| {
        Some(it.retries.to_string())
    }),
    gauge("mirror_given_up_partitions", "Failed partitions that wait for an operator", |it| {
        Some(it.given_up.to_string())
    }),
    gauge("mirror_gaps", "Gaps on record", |it| Some(it.gaps.to_string())),
    gauge("mirror_truncations", "Truncations on record", |it| Some(it.truncations.to_string())),
    gauge("mirror_lag_records", "Offsets below high watermarks that are missing", |it| {
        of_job(it, |job| job.totals.lag_records)
    }),
    gauge("mirror_lag_bytes", "The same in bytes, an estimate", |it| {
        of_job(it, |job| job.totals.lag_bytes)
    }),
    gauge(
        "mirror_stable_lag_records",
        "Offsets below last stable offsets that are missing",
        |it| of_job(it, |job| job.totals.stable_lag_records),
    ),
    gauge("mirror_stable_lag_bytes", "The same in bytes, an estimate", |it| {
        of_job(it, |job| job.totals.stable_lag_bytes)
    }),
    gauge("mirror_lag_seconds", "Longest time that a partition has lacked something", |it| {
        of_job(it, |job| seconds(job.totals.lag))
    }),
    gauge("mirror_max_lag_records", "Offsets that one partition lacks at most", |it| {
        of_job(it, |job| job.worst.as_ref().map_or(0, |worst| worst.lag_records))
    }),
    gauge("mirror_size_bytes", "Bytes of all logs", |it| of_job(it, |job| job.totals.size_bytes)),
    gauge("mirror_bytes_per_second", "Bytes appended a second, smoothed", |it| {
        of_job(it, |job| job.totals.bytes_per_second)
    }),
    gauge("mirror_idle_seconds", "Time since bytes were appended last, or the job began", |it| {
        of_job(it, |job| seconds(idle(job, job.totals.appended_at)))
    }),
    gauge("mirror_throttle_bytes_per_second", "What throttled partitions may take", |it| {
        it.job.as_ref()?.throttle.map(|rate| rate.to_string())
    }),
    gauge(
        "mirror_source_unreachable_seconds",
        "Time since no broker answers; 0 if one does",
        |it| {
            of_job(it, |job| {
                let since = job.source_trouble.as_ref().map(|(_, since)| *since);
                // It has only just begun.
                seconds(since.map_or(Duration::ZERO, |since| since.max(Duration::from_millis(1))))
            })
        },
    ),
    gauge("mirror_refused_topics", "Topics included by a pattern and not copied", |it| {
        of_job(it, |job| job.refused.len())
    }),
    counter("mirror_appended_bytes_total", "Batch bytes below log end offsets", |it| {
        of_job(it, |job| job.shards.stats.append.bytes_appended)
    }),
    counter("mirror_appended_batches_total", "Batches below log end offsets", |it| {
        of_job(it, |job| job.shards.stats.append.batches_appended)
    }),
    counter("mirror_received_bytes_total", "Record bytes received", |it| {
        of_job(it, |job| job.shards.stats.record_bytes_received)
    }),
    counter("mirror_written_bytes_total", "Bytes written to segment files", |it| {
        of_job(it, |job| job.shards.stats.append.bytes_written)
    }),
    counter("mirror_fetches_total", "Fetch requests sent", |it| {
        of_job(it, |job| job.shards.stats.fetches)
    }),
    counter("mirror_disconnects_total", "Connections to the source that broke", |it| {
        of_job(it, |job| job.shards.stats.disconnects)
    }),
    counter("mirror_source_throttle_seconds_total", "Silence that the source asked for", |it| {
        of_job(it, |job| seconds(Duration::from_millis(job.shards.stats.broker_throttle_ms)))
    }),
];

/// Time since something was appended, as the job saw it last.
fn idle(job: &Status, appended_at: Option<Duration>) -> Duration {
    job.elapsed.saturating_sub(appended_at.unwrap_or_default())
}

fn spent(out: &mut Text, mirrors: &[MirrorSnapshot]) {
    let name = "mirror_fetch_seconds_total";
    let help = "Time of all connections with something to fetch, by what they waited for";
    out.head(name, Kind::Counter, help);
    for mirror in mirrors {
        let Some(job) = &mirror.job else { continue };
        let spent = job.shards.stats.spent;
        for (on, time) in [
            ("source", spent.waiting),
            ("network", spent.receiving),
            ("disk", spent.stalled),
            ("throttle", spent.throttled),
        ] {
            out.line(name, &[("mirror", &mirror.name), ("on", on)], seconds(time));
        }
    }
}

fn errors(out: &mut Text, mirrors: &[MirrorSnapshot]) {
    let name = "mirror_errors_total";
    out.head(name, Kind::Counter, "Errors by kind");
    for mirror in mirrors {
        let job = mirror.job.as_deref();
        let events = |kind| {
            let of_kind = job.and_then(|job| job.events_by_kind.get(&kind).copied());
            of_kind.unwrap_or_default()
        };
        for (kind, count) in [
            ("topic_metadata_refresh", job.map_or(0, |job| job.refresh_failures)),
            ("partition_failed", mirror.failures),
            ("bad_batch", events(EventKind::BadBatch)),
            ("gap", events(EventKind::Gap)),
            ("truncation", events(EventKind::Truncated)),
        ] {
            out.line(name, &[("mirror", &mirror.name), ("kind", kind)], count);
        }
    }
}

fn latencies(out: &mut Text, mirrors: &[MirrorSnapshot]) {
    let name = "mirror_fetch_latency_seconds";
    out.head(name, Kind::Histogram, "Fetch sent to first byte of its answer");
    for mirror in mirrors {
        if let Some(job) = &mirror.job {
            out.histogram(name, &[("mirror", &mirror.name)], &job.shards.fetch_latency_us);
        }
    }
    let name = "mirror_append_latency_seconds";
    out.head(name, Kind::Histogram, "First byte received to write complete");
    for mirror in mirrors {
        if let Some(job) = &mirror.job {
            out.histogram(name, &[("mirror", &mirror.name)], &job.shards.append_latency_us);
        }
    }
}

/// Of each mirror the partition that lacks the most, also where partitions have no series.
fn worst(out: &mut Text, mirrors: &[MirrorSnapshot]) {
    let name = "mirror_worst_partition_lag_records";
    out.head(name, Kind::Gauge, "The partition that lacks the most offsets");
    for mirror in mirrors {
        let Some(worst) = mirror.job.as_ref().and_then(|job| job.worst.as_ref()) else { continue };
        let index = worst.partition.partition.to_string();
        let labels = [
            ("mirror", mirror.name.as_str()),
            ("topic", &*worst.partition.topic),
            ("partition", index.as_str()),
        ];
        out.line(name, &labels, worst.lag_records);
    }
}

/// A partition, and what its job says of it.
struct Partition<'a> {
    known: &'a PartitionSnapshot,
    job: Option<&'a Status>,
    status: Option<&'a PartitionStatus>,
}

impl Partition<'_> {
    fn of<T: ToString>(&self, value: impl Fn(&PartitionStatus) -> T) -> Option<String> {
        self.status.map(|status| value(status).to_string())
    }
}

/// Name, kind, help, value.
type OfPartition = (&'static str, Kind, &'static str, fn(&Partition<'_>) -> Option<String>);

const OF_PARTITIONS: &[OfPartition] = &[
    ("retries", Kind::Gauge, "Failures since the last success; -1 for an operator", |it| {
        Some(it.known.attempts.to_string())
    }),
    ("gaps", Kind::Gauge, "Gaps on record", |it| Some(it.known.gaps.to_string())),
    ("truncations", Kind::Gauge, "Truncations on record", |it| {
        Some(it.known.truncations.to_string())
    }),
    ("lag_records", Kind::Gauge, "Offsets below the high watermark that are missing", |it| {
        it.of(|status| status.lag_records)
    }),
    ("lag_bytes", Kind::Gauge, "The same in bytes, an estimate", |it| {
        it.of(|status| status.lag_bytes)
    }),
    ("stable_lag_records", Kind::Gauge, "Offsets below the last stable one, missing", |it| {
        it.status?.stable_lag_records().map(|lag| lag.to_string())
    }),
    ("stable_lag_bytes", Kind::Gauge, "The same in bytes, an estimate", |it| {
        it.status?.stable_lag_bytes().map(|lag| lag.to_string())
    }),
    ("lag_seconds", Kind::Gauge, "Time that it has lacked something", |it| {
        it.of(|status| seconds(status.lag))
    }),
    ("idle_seconds", Kind::Gauge, "Time since bytes were appended last, or the job began", |it| {
        Some(seconds(idle(it.job?, it.status?.appended_at)))
    }),
    ("log_start_offset", Kind::Gauge, "Start of the copy", |it| it.of(|status| status.log_start)),
    ("log_end_offset", Kind::Gauge, "End of the copy, exclusive", |it| {
        it.of(|status| status.log_end)
    }),
    ("size_bytes", Kind::Gauge, "Bytes of the log", |it| it.of(|status| status.size_bytes)),
    ("bytes_per_second", Kind::Gauge, "Bytes appended a second, smoothed", |it| {
        it.of(|status| status.bytes_per_second)
    }),
    ("appended_bytes_total", Kind::Counter, "Batch bytes below the log end offset", |it| {
        it.of(|status| status.bytes_appended)
    }),
];

fn partitions(out: &mut Text, mirrors: &[MirrorSnapshot]) {
    let name = "mirror_partition_state";
    out.head(name, Kind::Gauge, "1 for the state that the partition is in");
    for mirror in mirrors {
        for known in &mirror.partitions {
            let index = known.at.partition.to_string();
            let [mirror, topic, partition] = labels(mirror, known, &index);
            out.line(name, &[mirror, topic, partition, ("state", known.state.name())], 1);
        }
    }
    for (name, kind, help, value) in OF_PARTITIONS {
        let name = format!("mirror_partition_{name}");
        out.head(&name, *kind, help);
        for mirror in mirrors {
            for known in &mirror.partitions {
                let (job, status) = (mirror.job.as_deref(), mirror.status_of(&known.at));
                if let Some(value) = value(&Partition { known, job, status }) {
                    let index = known.at.partition.to_string();
                    out.line(&name, &labels(mirror, known, &index), value);
                }
            }
        }
    }
}

fn labels<'a>(
    mirror: &'a MirrorSnapshot,
    known: &'a PartitionSnapshot,
    index: &'a str,
) -> [(&'a str, &'a str); 3] {
    [("mirror", &mirror.name), ("topic", &known.at.topic), ("partition", index)]
}

fn seconds(time: Duration) -> String {
    time.as_secs_f64().to_string()
}

#[cfg(test)]
mod tests;

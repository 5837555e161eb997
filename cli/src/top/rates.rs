//! Rates, and what binds, from figures that only ever rise.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use heliostat_core::protocol::mirror::MirrorTime;

use crate::output::approximate;

/// Over how long a rate is taken: the host counts in steps of a quarter of a second and more.
const WINDOW_MS: i64 = 5_000;
/// Of a thread's time: above it the processor is what binds.
const BUSY_PERCENT: u8 = 90;
/// Least time of a thread that says something.
const SHARD_MS_MIN: i64 = 250;

/// What binds a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Binds {
    /// Its source takes long to answer.
    Source,
    /// Answers take long to come.
    Network,
    /// `mirror.replication.throttled.rate`
    Throttle,
    /// What has come cannot be written fast enough.
    Disk,
    /// One of its shards has no processor time left.
    Cpu,
}

impl fmt::Display for Binds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Source => "source",
            Self::Network => "network",
            Self::Throttle => "throttle",
            Self::Disk => "disk",
            Self::Cpu => "CPU",
        })
    }
}

/// Where time went of late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy {
    /// What most of it went to.
    pub(super) binds: Option<Binds>,
    /// How much of the time of connections that was; of CPU, how busy the busiest shard is.
    pub(super) percent: u8,
    /// Processor time of the busiest shard.
    pub(super) cpu_percent: u8,
}

/// One look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// By the host's clock.
    pub(super) at_ms: i64,
    /// Appended until then.
    pub(super) bytes: i64,
    /// Of a mirror.
    pub(super) time: Option<MirrorTime>,
}

/// The looks of late at one thing.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    /// Rising in time and bytes.
    samples: VecDeque<Sample>,
}

impl Meter {
    /// Another look. What has fallen was counted anew: a host or a job has begun again.
    pub(super) fn push(&mut self, sample: Sample) {
        if let Some(last) = self.samples.back() {
            if sample.at_ms < last.at_ms || sample.bytes < last.bytes {
                self.samples.clear();
            } else if sample.at_ms == last.at_ms {
                return;
            }
        }
        self.samples.push_back(sample);
        let now = self.samples.back().map_or(0, |last| last.at_ms);
        // The oldest one is as old as the window, or the one after it would do.
        while self.samples.get(1).is_some_and(|second| now - second.at_ms >= WINDOW_MS) {
            self.samples.pop_front();
        }
    }

    fn ends(&self) -> Option<(&Sample, &Sample)> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        (first.at_ms < last.at_ms).then_some((first, last))
    }

    /// Bytes a second; `None` before there are two looks.
    pub(super) fn rate(&self) -> Option<f64> {
        let (first, last) = self.ends()?;
        let bytes = u64::try_from(last.bytes - first.bytes).ok()?;
        let time = Duration::from_millis(u64::try_from(last.at_ms - first.at_ms).ok()?);
        Some(approximate(bytes) / time.as_secs_f64())
    }

    /// Where time went between the first look and the last.
    pub(super) fn busy(&self) -> Option<Busy> {
        let (first, last) = self.ends()?;
        let (before, after) = (first.time.as_ref()?, last.time.as_ref()?);
        let spent = [
            (after.source_ms - before.source_ms, Binds::Source),
            (after.network_ms - before.network_ms, Binds::Network),
            (after.disk_ms - before.disk_ms, Binds::Disk),
            (after.throttle_ms - before.throttle_ms, Binds::Throttle),
        ];
        let shards = before.shards.iter().zip(&after.shards);
        let shares = shards.map(|(before, after)| {
            let elapsed = after.elapsed_ms - before.elapsed_ms;
            let cpu = after.cpu_ms - before.cpu_ms;
            if elapsed < SHARD_MS_MIN { 0 } else { percent(cpu, elapsed) }
        });
        let cpu_percent = shares.max().unwrap_or(0);
        if cpu_percent >= BUSY_PERCENT {
            let binds = Some(Binds::Cpu);
            return Some(Busy { binds, percent: cpu_percent, cpu_percent });
        }
        let all: i64 = spent.iter().map(|(time, _)| time.max(&0)).sum();
        let most = spent.into_iter().max_by_key(|(time, _)| *time).filter(|(time, _)| *time > 0);
        Some(Busy {
            binds: most.map(|(_, binds)| binds),
            percent: most.map_or(0, |(time, _)| percent(time, all)),
            cpu_percent,
        })
    }
}

/// `part` of `all`, from 0 to 100.
fn percent(part: i64, all: i64) -> u8 {
    let percent = part.max(0).saturating_mul(100).checked_div(all.max(1)).unwrap_or(0);
    u8::try_from(percent.min(100)).unwrap_or(100)
}

/// Meters by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Meters {
    all: BTreeMap<String, Meter>,
}

impl Meters {
    /// Another look at `name`; its meter.
    pub(super) fn push(&mut self, name: &str, sample: Sample) -> &Meter {
        let meter = self.all.entry(name.to_owned()).or_default();
        meter.push(sample);
        meter
    }

    /// Forgets all that are not among these.
    pub(super) fn retain(&mut self, names: &BTreeSet<&str>) {
        self.all.retain(|name, _| names.contains(name.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use heliostat_core::protocol::mirror::MirrorShardTime;

    use super::*;

    fn meter(samples: &[(i64, i64)]) -> Meter {
        let mut meter = Meter::default();
        for (at_ms, bytes) in samples {
            meter.push(Sample { at_ms: *at_ms, bytes: *bytes, time: None });
        }
        meter
    }

    #[test]
    fn a_rate_needs_two_looks() {
        assert_eq!(meter(&[]).rate(), None);
        assert_eq!(meter(&[(1_000, 50)]).rate(), None);
        // The same moment twice is one look.
        assert_eq!(meter(&[(1_000, 50), (1_000, 50)]).rate(), None);
        assert_eq!(meter(&[(1_000, 50), (3_000, 250)]).rate(), Some(100.0));
    }

    #[test]
    fn a_rate_is_of_the_last_seconds() {
        let meter = meter(&[(0, 0), (1_000, 9_000), (4_000, 9_000), (6_000, 9_500)]);
        assert_eq!(meter.rate(), Some(100.0), "from the second on");
    }

    #[test]
    fn counters_that_begin_anew_are_no_rate() {
        let restarted = meter(&[(8_000, 9_000), (9_000, 9_900), (400, 100)]);
        assert_eq!(restarted.rate(), None);
        let mut meter = meter(&[(8_000, 9_000), (9_000, 100)]);
        assert_eq!(meter.rate(), None);
        meter.push(Sample { at_ms: 11_000, bytes: 300, time: None });
        assert_eq!(meter.rate(), Some(100.0));
    }

    fn busy(spent: [i64; 4], cpu_ms: i64) -> Busy {
        let time = |elapsed_ms, [source_ms, network_ms, disk_ms, throttle_ms]: [i64; 4], cpu_ms| {
            let idle = MirrorShardTime { elapsed_ms, cpu_ms: 0 };
            let shards = vec![idle, MirrorShardTime { elapsed_ms, cpu_ms }];
            MirrorTime { elapsed_ms, source_ms, network_ms, disk_ms, throttle_ms, shards }
        };
        let mut meter = Meter::default();
        let sample = |at_ms, time| Sample { at_ms, bytes: 0, time: Some(time) };
        // What was before counts for nothing.
        meter.push(sample(1_000, time(1_000, [70, 70, 70, 70], 1_000)));
        let [source, network, disk, throttle] = spent.map(|it| it + 70);
        meter.push(sample(3_000, time(3_000, [source, network, disk, throttle], 1_000 + cpu_ms)));
        meter.busy().unwrap()
    }

    #[test]
    fn what_most_time_went_to_is_what_binds() {
        assert_eq!(busy([0; 4], 0), Busy { binds: None, percent: 0, cpu_percent: 0 });
        for (index, binds) in
            [Binds::Source, Binds::Network, Binds::Disk, Binds::Throttle].into_iter().enumerate()
        {
            let mut spent = [100; 4];
            spent[index] = 700;
            let wanted = Busy { binds: Some(binds), percent: 70, cpu_percent: 50 };
            assert_eq!(busy(spent, 1_000), wanted);
        }
    }

    #[test]
    fn a_shard_without_time_left_binds_whatever_its_connections_wait_for() {
        let wanted = Busy { binds: Some(Binds::Cpu), percent: 95, cpu_percent: 95 };
        assert_eq!(busy([0, 900, 0, 0], 1_900), wanted);
        assert_eq!(busy([0, 900, 0, 0], 1_780).binds, Some(Binds::Network));
    }

    #[test]
    fn meters_of_what_has_gone_go() {
        let mut meters = Meters::default();
        for name in ["a", "b"] {
            meters.push(name, Sample { at_ms: 0, bytes: 0, time: None });
        }
        meters.retain(&BTreeSet::from(["b"]));
        assert_eq!(meters.all.keys().collect::<Vec<_>>(), ["b"]);
    }
}

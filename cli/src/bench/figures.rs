//! What was measured.

use std::time::Duration;

use hdrhistogram::Histogram;
use heliostat_core::engine::spent::TimeSpent;
use heliostat_io::control::Status;

use super::lap::{Lap, LapEnd, Look};
use super::origin::Variant;
use super::series::{Point, Series};
use crate::output::approximate;

/// Points of the series: more than a screen has columns, and few enough for a page.
const POINTS_MAX: usize = 1_000;
/// Shortest span of a point.
const POINT_MIN: Duration = Duration::from_millis(200);
/// So long without a byte is one, and not a late report.
const STANDSTILL_MIN: Duration = Duration::from_secs(1);
/// Single rounds that are kept; the sums have all of them.
const ROUNDS_MAX: usize = 1_000;

/// One measured copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) variant: usize,
    pub(super) number: u64,
    pub(super) ended: LapEnd,
    pub(super) bytes: u64,
    pub(super) took: Duration,
    pub(super) cpu: Duration,
    pub(super) copied_bytes: u64,
    pub(super) fetch: Latency,
    pub(super) append: Latency,
    pub(super) spent: TimeSpent,
}

/// Percentiles, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latency {
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
}

impl Latency {
    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self { p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }
}

impl Round {
    fn new(variant: usize, number: u64, lap: &Lap) -> Self {
        let shards = &lap.status.shards;
        Self {
            variant,
            number,
            ended: lap.ended,
            bytes: shards.stats.append.bytes_appended,
            took: lap.took,
            cpu: lap.cpu,
            copied_bytes: shards.stats.append.bytes_copied,
            fetch: Latency::of(&shards.fetch_latency_us),
            append: Latency::of(&shards.append_latency_us),
            spent: shards.stats.spent,
        }
    }

    pub(super) fn megabytes_per_second(&self) -> f64 {
        approximate(self.bytes) / 1e6 / self.took.as_secs_f64().max(1e-9)
    }

    pub(super) fn cpu_seconds_per_gigabyte(&self) -> f64 {
        self.cpu.as_secs_f64() / (approximate(self.bytes.max(1)) / 1e9)
    }
}

/// All rounds of one variant together.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    pub(super) variant: Variant,
    pub(super) fetch_us: Histogram<u64>,
    pub(super) append_us: Histogram<u64>,
    pub(super) spent: TimeSpent,
    pub(super) bytes: u64,
    pub(super) took: Duration,
    pub(super) cpu: Duration,
    pub(super) disconnects: u64,
    pub(super) gaps: u64,
    pub(super) truncations: u64,
    pub(super) rounds: u64,
}

impl Sum {
    fn new(variant: Variant) -> Self {
        // An empty snapshot has the histograms' bounds.
        let empty = Status::default().shards;
        Self {
            variant,
            fetch_us: empty.fetch_latency_us,
            append_us: empty.append_latency_us,
            spent: TimeSpent::default(),
            bytes: 0,
            took: Duration::ZERO,
            cpu: Duration::ZERO,
            disconnects: 0,
            gaps: 0,
            truncations: 0,
            rounds: 0,
        }
    }

    fn add(&mut self, lap: &Lap) {
        let status = &lap.status;
        let shards = &status.shards;
        // The bounds are the same, so adding cannot fail.
        let _ = self.fetch_us.add(&shards.fetch_latency_us);
        let _ = self.append_us.add(&shards.append_latency_us);
        self.spent.add(&shards.stats.spent);
        self.bytes += shards.stats.append.bytes_appended;
        self.took += lap.took;
        self.cpu += lap.cpu;
        self.disconnects += shards.stats.disconnects;
        self.gaps += u64::try_from(status.totals.gaps).unwrap_or(u64::MAX);
        self.truncations += u64::try_from(status.totals.truncations).unwrap_or(u64::MAX);
        self.rounds += 1;
    }
}

/// Everything of a benchmark, in bounded memory however long it runs.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) series: Series,
    pub(super) sums: Vec<Sum>,
    /// The latest ones.
    pub(super) rounds: Vec<Round>,
    /// Of the last look: time and what the copy had cost and held by then.
    last: (Duration, Duration, u64),
}

impl Figures {
    pub(super) fn new(variants: &[Variant]) -> Self {
        Self {
            series: Series::new(POINTS_MAX),
            sums: variants.iter().copied().map(Sum::new).collect(),
            rounds: Vec::new(),
            last: Default::default(),
        }
    }

    /// A copy begins, at this time since the start.
    pub(super) fn begin(&mut self, now: Duration) {
        self.last = (now, Duration::ZERO, 0);
    }

    /// Takes a look's figures into the series.
    pub(super) fn look(&mut self, now: Duration, look: &Look<'_>, variant: usize, lap: u64) {
        let bytes = look.status.shards.stats.append.bytes_appended;
        let (from, _, before) = self.last;
        let waited = now.saturating_sub(from);
        // Shards tell of themselves a few times a second, the processor's clock is coarse:
        // only what lasts is a standstill.
        if waited < POINT_MIN || (bytes == before && waited < STANDSTILL_MIN) {
            return;
        }
        self.point(now, look.cpu, bytes, (variant, lap));
    }

    fn point(&mut self, now: Duration, cpu: Duration, bytes: u64, (variant, lap): (usize, u64)) {
        let (from, cpu_before, bytes_before) = self.last;
        self.last = (now, cpu, bytes);
        let point = Point {
            from,
            to: now,
            bytes: bytes.saturating_sub(bytes_before),
            cpu: cpu.saturating_sub(cpu_before),
            variant,
            lap,
        };
        self.series.push(point, POINT_MIN);
    }

    /// Takes in a copy that has ended.
    pub(super) fn end(&mut self, now: Duration, variant: usize, number: u64, lap: &Lap) {
        let round = Round::new(variant, number, lap);
        self.point(now, lap.cpu, round.bytes, (variant, number));
        if let Some(sum) = self.sums.get_mut(variant) {
            sum.add(lap);
        }
        if self.rounds.len() >= ROUNDS_MAX {
            self.rounds.remove(0);
        }
        self.rounds.push(round);
    }

    /// The median of a figure over the rounds of a variant; those that were cut short do not
    /// count beside one that was not.
    pub(super) fn median(&self, variant: usize, of: impl Fn(&Round) -> f64) -> f64 {
        let own = || self.rounds.iter().filter(|round| round.variant == variant);
        let whole: Vec<_> = own().filter(|round| round.is_whole()).map(&of).collect();
        median(if whole.is_empty() { own().map(&of).collect() } else { whole })
    }
}

impl Round {
    fn is_whole(&self) -> bool {
        matches!(self.ended, LapEnd::CaughtUp | LapEnd::Bytes)
    }
}

/// The lower one of two in the middle; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::args::Append;
    use super::*;

    const VARIANT: Variant = Variant { append: Append::Auto, fetch_bytes: 1 };

    fn lap(ended: LapEnd, bytes: u64, took: u64) -> Lap {
        let mut status = Status::default();
        status.shards.stats.append.bytes_appended = bytes;
        status.shards.append_latency_us.record(bytes).unwrap();
        let (took, cpu) = (Duration::from_secs(took), Duration::from_secs(1));
        Lap { ended, took, cpu, status: Arc::new(status) }
    }

    #[test]
    fn a_median_is_one_of_the_values() {
        assert!((median(vec![9.0, 1.0, 5.0]) - 5.0).abs() < f64::EPSILON);
        assert!((median(vec![9.0, 1.0]) - 1.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).abs() < f64::EPSILON);
    }

    #[test]
    fn a_round_that_was_cut_short_counts_only_alone() {
        let mut figures = Figures::new(&[VARIANT]);
        let rate = |figures: &Figures| figures.median(0, Round::megabytes_per_second);
        let second = Duration::from_secs(1);
        figures.end(second, 0, 0, &lap(LapEnd::Time, 1_000_000, 1));
        assert!((rate(&figures) - 1.0).abs() < 1e-9);
        figures.end(second, 0, 1, &lap(LapEnd::CaughtUp, 9_000_000, 1));
        assert!((rate(&figures) - 9.0).abs() < 1e-9);
        assert_eq!((figures.sums[0].bytes, figures.sums[0].append_us.len()), (10_000_000, 2));
    }

    #[test]
    fn memory_is_bounded_and_sums_are_not_cut() {
        let mut figures = Figures::new(&[VARIANT]);
        for number in 0..5_000 {
            figures.begin(Duration::from_secs(number));
            figures.end(Duration::from_secs(number + 1), 0, number, &lap(LapEnd::CaughtUp, 2, 1));
        }
        assert!(figures.rounds.len() <= ROUNDS_MAX);
        assert!(figures.series.points().len() <= POINTS_MAX);
        assert_eq!((figures.sums[0].rounds, figures.sums[0].bytes), (5_000, 10_000));
        assert_eq!(figures.series.points().iter().map(|point| point.bytes).sum::<u64>(), 10_000);
    }
}

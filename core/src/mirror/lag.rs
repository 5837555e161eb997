//! How far a copy is behind its source, in seconds, and how fast it goes.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Tick;
use crate::types::Offset;

/// Remembered high watermarks of one partition; a longer lag is told from the oldest.
const SAMPLES_MAX: usize = 64;

/// When the source's high watermark was first seen where.
#[derive(Clone, Debug, Default)]
pub struct LagClock {
    /// Rising in both.
    samples: VecDeque<(Tick, Offset)>,
}

impl LagClock {
    /// Takes note that the high watermark is `offset` and the copy ends at `log_end`.
    pub fn observe(&mut self, now: Tick, offset: Offset, log_end: Offset) {
        // Most of very many copies lack nothing: they take no memory then.
        if offset <= log_end {
            self.samples = VecDeque::new();
            return;
        }
        // A source that lost its tail: what was seen above is no longer true.
        while self.samples.back().is_some_and(|&(_, seen)| seen > offset) {
            self.samples.pop_back();
        }
        if self.samples.back().is_none_or(|&(_, seen)| seen < offset) {
            self.samples.push_back((now, offset));
        }
        while self.samples.front().is_some_and(|&(_, seen)| seen <= log_end) {
            self.samples.pop_front();
        }
        if self.samples.len() > SAMPLES_MAX {
            // The oldest says how long it has been; thin out behind it.
            self.samples.remove(1);
        }
    }

    /// For how long the source has had records that the copy lacks. Counts from the first
    /// sight of them, so it is at most as long as the copy is observed.
    pub fn lag(&self, now: Tick) -> Duration {
        self.samples.front().map_or(Duration::ZERO, |&(since, _)| now.since(since))
    }
}

/// Units a second, smoothed over some seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    last: Option<(Tick, u64)>,
    per_second: f64,
}

/// Time over which a rate is smoothed.
const RATE_SECONDS: f64 = 3.0;

impl Rate {
    /// The counter stands at `total`; one that fell has begun anew.
    pub fn observe(&mut self, now: Tick, total: u64) {
        let Some((then, before)) = self.last else {
            self.last = Some((now, total));
            return;
        };
        let seconds = now.since(then).as_secs_f64();
        // Two reports of one moment say nothing about speed.
        if seconds < 0.05 {
            return;
        }
        let current = to_f64(total.saturating_sub(before)) / seconds;
        let weight = 1.0 - (-seconds / RATE_SECONDS).exp();
        self.per_second += (current - self.per_second) * weight;
        self.last = Some((now, total));
    }

    /// The counter will begin at 0 again; the rate stays.
    pub fn restart(&mut self, now: Tick) {
        self.last = Some((now, 0));
    }

    /// Units a second.
    pub fn per_second(&self) -> f64 {
        self.per_second.max(0.0)
    }
}

/// Exact up to 2^53, which is enough for a display.
fn to_f64(value: u64) -> f64 {
    let high = u32::try_from(value >> 32).unwrap_or(u32::MAX);
    let low = u32::try_from(value & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Tick {
        Tick::ZERO.after(Duration::from_secs(seconds))
    }

    #[test]
    fn lag_counts_from_the_first_sight_of_what_is_missing() {
        let mut clock = LagClock::default();
        clock.observe(at(0), Offset(10), Offset(10));
        assert_eq!(clock.lag(at(5)), Duration::ZERO);
        clock.observe(at(5), Offset(20), Offset(10));
        clock.observe(at(8), Offset(30), Offset(15));
        assert_eq!(clock.lag(at(9)), Duration::from_secs(4));
        clock.observe(at(9), Offset(30), Offset(20));
        assert_eq!(clock.lag(at(9)), Duration::from_secs(1));
        clock.observe(at(10), Offset(30), Offset(30));
        assert_eq!(clock.lag(at(20)), Duration::ZERO);
    }

    #[test]
    fn memory_is_bounded_and_keeps_the_oldest() {
        let mut clock = LagClock::default();
        for second in 0..1_000_u32 {
            clock.observe(at(second.into()), Offset(i64::from(second) + 1), Offset(0));
        }
        assert!(clock.samples.len() <= SAMPLES_MAX);
        assert_eq!(clock.lag(at(1_000)), Duration::from_secs(1_000));
        // The source lost its tail, and nothing is missing any more.
        clock.observe(at(1_000), Offset(0), Offset(0));
        assert_eq!(clock.lag(at(1_001)), Duration::ZERO);
    }

    #[test]
    fn rates_approach_the_truth_and_survive_a_restart() {
        let mut rate = Rate::default();
        for second in 0..30 {
            rate.observe(at(second), second * 1_000);
        }
        assert!((990.0..=1_000.0).contains(&rate.per_second()), "{}", rate.per_second());
        rate.restart(at(30));
        rate.observe(at(31), 1_000);
        assert!((990.0..=1_000.0).contains(&rate.per_second()), "{}", rate.per_second());
    }
}

//! How dense a partition's offsets are, and how fast a broker's partitions are copied: by these,
//! ranges are planned and connections are added or given up.

use std::time::Duration;

use super::config::StripeLimits;
use crate::time::Tick;

/// Bytes after which older ones count half.
const MEMORY_BYTES: u64 = 4 << 20;
/// A measurement lasts so many round trips, if that is longer than the configured time: three
/// until a new connection brings something, and three in which its window grows eightfold.
const MEASURE_ROUND_TRIPS: u32 = 6;
/// A rate that rises more from one measurement to the next is not its level's own yet.
const RISES_PERCENT: u32 = 10;
/// A step is not taken back before so many measurements.
const PATIENCE: u32 = 3;
/// A step is taken for a full success as soon as it has brought so much of what as many more
/// connections bring at best.
const SUCCESS_PERCENT: u64 = 75;
/// Below it the path, and not its connections, is the limit.
const SHARED_PERCENT: u64 = 50;
/// Connections that are kept, of those that the rate needs.
const KEPT_PERCENT: u64 = 125;
/// The first step, and one after a full success.
const FACTOR_FIRST: usize = 2;
const FACTOR_NEXT: usize = 4;

/// What is counted is counted so many times: halves of few batches are to stay exact. A batch that
/// is taken for one hundredth larger than it is makes a hole of every sixth range.
const COUNTED: u64 = 1 << 20;

/// Bytes, batches and offsets that were appended of late, each [`COUNTED`] times.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Density {
    bytes: u64,
    offsets: u64,
    batches: u64,
}

impl Density {
    /// `offsets` holds those that compaction left out as well.
    pub(super) fn observe(&mut self, bytes: u64, offsets: u64, batches: u64) {
        let count = |sum: u64, n: u64| sum.saturating_add(n.saturating_mul(COUNTED));
        self.bytes = count(self.bytes, bytes);
        self.offsets = count(self.offsets, offsets);
        self.batches = count(self.batches, batches);
        if self.bytes > MEMORY_BYTES * COUNTED {
            self.bytes = (self.bytes / 2).max(1);
            self.offsets = (self.offsets / 2).max(1);
            self.batches = (self.batches / 2).max(1);
        }
    }

    /// Bytes that so many offsets may have; none if nothing is known, or for a negative number.
    pub(super) fn bytes(&self, offsets: i64) -> u64 {
        scale(u64::try_from(offsets).unwrap_or(0), self.bytes, self.offsets)
    }

    /// Whether nothing is known.
    pub(super) fn is_unknown(&self) -> bool {
        self.bytes == 0
    }

    /// Offsets that so many bytes may have.
    pub(super) fn offsets(&self, bytes: u64) -> i64 {
        i64::try_from(scale(bytes, self.offsets, self.bytes)).unwrap_or(i64::MAX)
    }

    pub(super) fn batch_bytes(&self) -> u64 {
        self.bytes.checked_div(self.batches).unwrap_or(0)
    }

    pub(super) fn batch_offsets(&self) -> i64 {
        i64::try_from(self.offsets.checked_div(self.batches).unwrap_or(0)).unwrap_or(i64::MAX)
    }
}

fn scale(n: u64, times: u64, by: u64) -> u64 {
    let scaled = (u128::from(n) * u128::from(times)).checked_div(u128::from(by));
    u64::try_from(scaled.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Finds the number of connections that a broker is worth.
///
/// While the path is not full, a connection carries the same whether there are others or not: it
/// is bound by a buffer, or by losses. So a first step doubles their number; one that brings
/// nearly twice as much shows that the path was far from full, and the next one goes four times
/// as high, as a window grows in slow start. A step that brings less shows by how much it went
/// too far: what the rate needs is kept, and a little more. One that brings nothing is taken back,
/// and tried again after a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Climb {
    level: usize,
    /// Level and rate to compare with, while a higher level is tried.
    before: Option<(usize, u64)>,
    /// What the next step multiplies the level by.
    factor: usize,
    /// Rate of the measurement before, on the same level.
    last: Option<u64>,
    /// Measurements on this level.
    measured: u32,
    since: Tick,
    /// Nothing counts before `since`, and not what arrives first after it either: that was
    /// on its way before.
    settling: bool,
    /// Bytes in all when the measurement began, and since then.
    began_with: u64,
    bytes: u64,
    hold_until: Tick,
}

impl Climb {
    pub(super) fn new(now: Tick) -> Self {
        Self {
            level: 1,
            before: None,
            factor: FACTOR_FIRST,
            last: None,
            measured: 0,
            since: now,
            settling: true,
            began_with: 0,
            bytes: 0,
            hold_until: Tick::ZERO,
        }
    }

    /// Connections that it may have now.
    pub(super) fn level(&self) -> usize {
        self.level
    }

    /// There was too little to fetch: what was measured says nothing of the path.
    pub(super) fn pause(&mut self, now: Tick) {
        self.since = self.since.max(now);
        self.settling = true;
        self.bytes = 0;
        self.last = None;
        self.measured = 0;
    }

    /// The path shows that it is full while a higher level is tried: that would bring nothing.
    pub(super) fn path_is_full(&mut self, now: Tick, limits: &StripeLimits) {
        if let Some((before, _)) = self.before.take() {
            self.level = before;
            self.hold(now, limits);
            self.pause(now);
        }
    }

    fn hold(&mut self, now: Tick, limits: &StripeLimits) {
        self.hold_until = now.after(limits.retry_after);
        self.factor = FACTOR_FIRST;
    }

    /// `bytes` have been appended in all. Whether a measurement is complete.
    pub(super) fn observe(
        &mut self,
        bytes: u64,
        now: Tick,
        rtt: Duration,
        limits: &StripeLimits,
    ) -> bool {
        if self.settling {
            if now >= self.since {
                self.since = now;
                self.settling = false;
                self.began_with = bytes;
            }
            return false;
        }
        self.bytes = bytes - self.began_with;
        now.since(self.since) >= measuring(rtt, limits) && self.bytes > 0
    }

    /// The level from here on, within `least` and `allowed`, if it changes. Call when a measurement
    /// is complete.
    pub(super) fn decide(
        &mut self,
        now: Tick,
        (least, allowed): (usize, usize),
        limits: &StripeLimits,
    ) -> Option<usize> {
        let nanos = u64::try_from(now.since(self.since).as_nanos()).unwrap_or(u64::MAX);
        let rate = scale(self.bytes, 1_000_000_000, nanos);
        self.since = now;
        self.began_with += std::mem::take(&mut self.bytes);
        self.measured += 1;
        let last = self.last.replace(rate);
        // What a connection carries without others is still rising, as after its start.
        let steady = last.filter(|&last| !is_gain(last, rate, RISES_PERCENT));
        let mean = steady.map(|last| last / 2 + rate / 2);
        let old = self.level;
        match self.before {
            Some(before) => self.judge(before, rate, mean, (now, allowed), limits),
            None if mean.is_some() && now >= self.hold_until => {
                self.climb(mean.unwrap_or(rate), allowed);
            }
            None => {}
        }
        if self.level > allowed {
            self.before = None;
        }
        self.level = self.level.min(allowed).max(least);
        if self.level == old {
            return None;
        }
        self.last = None;
        self.measured = 0;
        self.settling = true;
        Some(self.level)
    }

    /// Tries a higher level, if there is one.
    fn climb(&mut self, rate: u64, allowed: usize) {
        self.before = None;
        if allowed > self.level {
            self.before = Some((self.level, rate));
            self.level = self.level.saturating_mul(self.factor).min(allowed);
        }
    }

    /// What became of a step that was made at `old`, level and rate of before.
    fn judge(
        &mut self,
        old: (usize, u64),
        rate: u64,
        mean: Option<u64>,
        (now, allowed): (Tick, usize),
        limits: &StripeLimits,
    ) {
        let whole = self.measured > 1 && self.brings(SUCCESS_PERCENT, old, rate);
        if limits.gain_percent == 0 || whole {
            self.factor = FACTOR_NEXT;
            return self.climb(rate, allowed);
        }
        let Some(mean) = mean.filter(|_| self.measured >= PATIENCE) else { return };
        let (level_before, rate_before) = old;
        self.before = None;
        self.factor = FACTOR_FIRST;
        // Of a larger step a smaller gain shows that one between the two would have paid.
        let steps = (self.level / level_before.max(1) / FACTOR_FIRST).max(1);
        let gain = limits.gain_percent / u32::try_from(steps).unwrap_or(u32::MAX);
        if !is_gain(rate_before, mean, gain.max(1)) {
            self.level = level_before;
            return self.hold(now, limits);
        }
        let kept = u64::try_from(level_before).unwrap_or(u64::MAX);
        let needed = scale(kept.saturating_mul(KEPT_PERCENT), mean, rate_before) / 100 + 1;
        let needed = usize::try_from(needed).unwrap_or(usize::MAX);
        if !self.brings(SHARED_PERCENT, old, mean) {
            self.hold(now, limits);
        }
        if needed < self.level {
            self.level = needed.max(level_before);
        } else if now >= self.hold_until {
            self.climb(mean, allowed);
        }
    }

    /// Whether `rate` is so many percent of what this level would bring if each connection
    /// carried as much as before.
    fn brings(&self, percent: u64, (level, rate_before): (usize, u64), rate: u64) -> bool {
        let now = u64::try_from(self.level).unwrap_or(u64::MAX);
        let before = u64::try_from(level).unwrap_or(u64::MAX);
        u128::from(rate) * u128::from(before) * 100
            >= u128::from(rate_before) * u128::from(now) * u128::from(percent)
    }
}

fn measuring(rtt: Duration, limits: &StripeLimits) -> Duration {
    limits.measure_for.max(rtt.saturating_mul(MEASURE_ROUND_TRIPS))
}

fn is_gain(old: u64, new: u64, percent: u32) -> bool {
    percent == 0 || u128::from(new) * 100 >= u128::from(old) * u128::from(100 + percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    fn limits() -> StripeLimits {
        StripeLimits { connections_max: 32, ..StripeLimits::default() }
    }

    /// Levels in the course of `seconds`, on a path where `rate` of a level flows.
    fn climb(climb: &mut Climb, seconds: u64, rate: impl Fn(u64) -> u64) -> Vec<usize> {
        let limits = limits();
        let mut levels = vec![climb.level()];
        let mut bytes = climb.began_with;
        for tenth in 0..seconds * 10 {
            let now = Tick(tenth * 100_000_000);
            bytes += rate(u64::try_from(climb.level()).unwrap()) / 10;
            if climb.observe(bytes, now, RTT, &limits) {
                levels.extend(climb.decide(now, (1, limits.connections_max), &limits));
            }
        }
        levels
    }

    /// Goal: what one connection carries does not take long to multiply. Method: a source whose
    /// send buffer binds.
    #[test]
    fn a_path_that_is_far_from_full_is_climbed_within_seconds() {
        let mut it = Climb::new(Tick::ZERO);
        assert_eq!(climb(&mut it, 4, |level| 1_250_000 * level), [1, 2, 8, 32]);
    }

    #[test]
    fn a_step_that_went_too_far_keeps_what_the_rate_needs() {
        let mut it = Climb::new(Tick::ZERO);
        let levels = climb(&mut it, 20, |level| 1_250_000 * level.min(12));
        assert_eq!(levels, [1, 2, 8, 32, 16]);
        // Where most of a step pays, one more is tried.
        let mut it = Climb::new(Tick::ZERO);
        let levels = climb(&mut it, 20, |level| 1_250_000 * level.min(18));
        assert_eq!(levels, [1, 2, 8, 32, 23, 32, 23]);
    }

    #[test]
    fn goes_back_where_more_bring_nothing_and_tries_again_later() {
        let mut it = Climb::new(Tick::ZERO);
        let levels = climb(&mut it, 20, |level| 2_500_000 * level.min(2));
        assert_eq!(levels, [1, 2, 8, 2]);
        let mut it = Climb::new(Tick::ZERO);
        let levels = climb(&mut it, 60, |_| 2_500_000);
        assert_eq!(levels, [1, 2, 1, 2, 1]);
    }

    #[test]
    fn nothing_is_more_than_allowed() {
        let mut it = Climb::new(Tick::ZERO);
        let limits = limits();
        climb(&mut it, 20, |level| 2_500_000 * level);
        for (at, allowed) in [(60, 3), (90, 1)] {
            let now = Tick(at * 1_000_000_000);
            let bytes = at << 30;
            it.observe(bytes, now, RTT, &limits);
            assert!(it.observe(bytes + 1, now.after(Duration::from_secs(2)), RTT, &limits));
            assert_eq!(it.decide(now, (1, allowed), &limits), Some(allowed));
        }
    }

    #[test]
    fn equal_batches_are_known_exactly_however_often_older_ones_count_half() {
        let mut density = Density::default();
        for run in 0..1_000 {
            let batches = 1 + run % 7;
            density.observe(65_700 * batches, 64 * batches, batches);
        }
        assert_eq!((density.batch_bytes(), density.batch_offsets()), (65_700, 64));
        assert!((1_023..=1_024).contains(&density.offsets(16 * 65_700)));
    }

    #[test]
    fn a_density_without_data_divides_by_nothing() {
        let mut density = Density::default();
        assert_eq!((density.bytes(7), density.offsets(7), density.batch_offsets()), (0, 0, 0));
        density.observe(3_000, 30, 3);
        assert_eq!((density.bytes(7), density.offsets(250)), (700, 2));
        assert_eq!(
            (density.bytes(-7), density.batch_bytes(), density.batch_offsets()),
            (0, 1_000, 10)
        );
        for _ in 0..1_000 {
            density.observe(u64::from(u32::MAX), 1, 1);
        }
        assert_eq!(density.offsets(1_000), 0);
    }
}

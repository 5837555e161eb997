//! How dense a partition's offsets are, and how fast a broker's partitions are copied: by these,
//! ranges are planned and connections are added or given up.

use std::time::Duration;

use super::config::StripeLimits;
use crate::time::Tick;

/// Bytes after which older ones count half.
const MEMORY_BYTES: u64 = 4 << 20;
/// A measurement lasts so many round trips, if that is longer than the configured time.
const MEASURE_ROUND_TRIPS: u32 = 16;
/// Between two measurements of a level: a rate that rises more is not its own yet.
const RISES_PERCENT: u32 = 10;

/// Bytes, batches and offsets that were appended of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Density {
    bytes: u64,
    offsets: u64,
    batches: u64,
}

impl Density {
    /// `offsets` holds those that compaction left out as well.
    pub(super) fn observe(&mut self, bytes: u64, offsets: u64, batches: u64) {
        self.bytes += bytes;
        self.offsets += offsets;
        self.batches += batches;
        if self.bytes > MEMORY_BYTES {
            self.bytes = (self.bytes / 2).max(1);
            self.offsets = (self.offsets / 2).max(1);
            self.batches = (self.batches / 2).max(1);
        }
    }

    /// Bytes that so many offsets may have; none if nothing is known, or for a negative number.
    pub(super) fn bytes(&self, offsets: i64) -> u64 {
        scale(u64::try_from(offsets).unwrap_or(0), self.bytes, self.offsets)
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

/// Finds the number of connections that a broker is worth: doubles it while that makes
/// copying faster, goes back when it does not, and tries again after a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Climb {
    level: usize,
    /// Level and rate to compare with, while a higher level is tried.
    before: Option<(usize, u64)>,
    /// Rate of the measurement before, on the same level.
    last: Option<u64>,
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
            last: None,
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
    }

    /// The path shows that it is full while a higher level is tried: that would bring nothing.
    pub(super) fn path_is_full(&mut self, now: Tick, limits: &StripeLimits) {
        if let Some((before, _)) = self.before.take() {
            self.level = before;
            self.hold_until = now.after(limits.retry_after);
            self.pause(now);
        }
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
        rtt: Duration,
        (least, allowed): (usize, usize),
        limits: &StripeLimits,
    ) -> Option<usize> {
        let nanos = u64::try_from(now.since(self.since).as_nanos()).unwrap_or(u64::MAX);
        let rate = scale(self.bytes, 1_000_000_000, nanos);
        self.since = now;
        self.began_with += std::mem::take(&mut self.bytes);
        let last = self.last.replace(rate);
        let level = match self.before.take() {
            Some((before, old)) if !is_gain(old, rate, limits.gain_percent) => {
                self.hold_until = now.after(limits.retry_after);
                before.min(allowed)
            }
            // What a connection carries without others is still rising, as after its start.
            None if last.is_none_or(|last| is_gain(last, rate, RISES_PERCENT)) => {
                self.level.min(allowed)
            }
            _ if allowed > self.level && now >= self.hold_until => {
                self.before = Some((self.level, rate));
                (self.level * 2).min(allowed)
            }
            _ => self.level.min(allowed),
        };
        let level = level.max(least);
        let changed = std::mem::replace(&mut self.level, level) != level;
        if changed {
            self.last = None;
            // Connections open and grow their windows first.
            self.since = now.after(measuring(rtt, limits));
            self.settling = true;
        }
        changed.then_some(level)
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
        StripeLimits { connections_max: 8, ..StripeLimits::default() }
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
                levels.extend(climb.decide(now, RTT, (1, limits.connections_max), &limits));
            }
        }
        levels
    }

    #[test]
    fn doubles_while_it_pays_and_goes_back_where_it_does_not() {
        let mut it = Climb::new(Tick::ZERO);
        assert_eq!(climb(&mut it, 20, |level| 2_500_000 * level), [1, 2, 4, 8]);
        // A link that two fill: four are tried, and again only after the pause.
        let mut it = Climb::new(Tick::ZERO);
        let levels = climb(&mut it, 20, |level| 2_500_000 * level.min(2));
        assert_eq!(levels, [1, 2, 4, 2]);
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
            assert_eq!(it.decide(now, RTT, (1, allowed), &limits), Some(allowed));
        }
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

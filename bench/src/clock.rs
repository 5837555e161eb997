//! Times that are kept, and times that were taken.

use std::time::{Duration, Instant};

use rustix::thread::{ClockId, clock_nanosleep_relative};
use rustix::time::{Timespec, clock_gettime};

/// Blocks until `due`; not at all if that is past.
pub(crate) fn wait_until(due: Instant) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let request = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        // Interrupted or not: the clock decides.
        let _ = clock_nanosleep_relative(ClockId::Monotonic, &request);
    }
}

/// A time on the clock that all processes of this machine share, in nanoseconds.
pub(crate) fn monotonic_ns(at: Instant) -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let ago = at.elapsed();
    let seconds = Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or(0));
    let now = seconds + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0));
    u64::try_from(now.saturating_sub(ago).as_nanos()).unwrap_or(u64::MAX)
}

/// The time that `percent` of `took` do not exceed, in microseconds; 0 of nothing. Sorts.
pub(crate) fn quantile_us(took: &mut [Duration], percent: usize) -> f64 {
    took.sort_unstable();
    let rank = (took.len() * percent).div_ceil(100).max(1);
    took.get(rank - 1).map_or(0.0, |took| took.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_rank() {
        let mut took: Vec<_> = (1..=200).rev().map(Duration::from_micros).collect();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(close(quantile_us(&mut took, 50), 100.0));
        assert!(close(quantile_us(&mut took, 99), 198.0));
        assert!(close(quantile_us(&mut [], 99), 0.0));
    }

    #[test]
    fn a_time_that_comes_is_waited_for() {
        let due = Instant::now() + Duration::from_millis(2);
        wait_until(due);
        assert!(Instant::now() >= due);
    }
}

//! How long to wait before the next try, and since when it has been failing.

use std::time::Duration;

use crate::time::Tick;

/// How waits grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// Wait after the first failure, before jitter.
    pub wait_min: Duration,
    /// No wait is longer, jitter included.
    pub wait_max: Duration,
}

impl BackoffPolicy {
    /// Waits from `wait_min` on, doubled with each failure up to `wait_max`.
    ///
    /// # Panics
    ///
    /// If `wait_min` is zero, which would be a busy loop, or above `wait_max`.
    pub const fn new(wait_min: Duration, wait_max: Duration) -> Self {
        assert!(wait_min.as_nanos() > 0, "a back-off without a wait is a busy loop");
        assert!(wait_min.as_nanos() <= wait_max.as_nanos(), "shortest wait above the longest");
        Self { wait_min, wait_max }
    }

    /// The wait after `failures` failures in a row, spread by `random` over the
    /// upper half of it, so that what failed together does not return together.
    fn wait(self, failures: u32, random: u64) -> Duration {
        let doublings = failures.saturating_sub(1).min(63);
        let full = u32::try_from(1_u64 << doublings.min(31)).unwrap_or(u32::MAX);
        let full = self.wait_min.saturating_mul(full).min(self.wait_max);
        let half = full / 2;
        // Parts of 2^32 of the half: exact enough, and never above it.
        let part = u128::from(random >> 32);
        let spread = (full.saturating_sub(half).as_nanos() * part) >> 32;
        half + Duration::from_nanos(u64::try_from(spread).unwrap_or(u64::MAX))
    }
}

impl Default for BackoffPolicy {
    /// 100 ms, doubled up to 30 s.
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(30))
    }
}

/// The failures in a row of one thing: a broker, a partition. It never gives up;
/// whoever counts attempts reads [`attempts`](Self::attempts).
///
/// The policy is the caller's: there is one of these for each of very many partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    attempts: u32,
    /// Of the first failure; means nothing before.
    since: Tick,
    retry_at: Tick,
}

impl Backoff {
    /// It failed at `now`: returns the instant before which not to try again.
    /// `random` is any number, best from a seeded stream of its own.
    pub fn failed(&mut self, policy: BackoffPolicy, now: Tick, random: u64) -> Tick {
        if self.attempts == 0 {
            self.since = now;
        }
        self.attempts = self.attempts.saturating_add(1);
        self.retry_at = now.after(policy.wait(self.attempts, random));
        self.retry_at
    }

    /// It worked: the next failure starts with the shortest wait.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Whether a try is due at `now`.
    pub fn is_due(&self, now: Tick) -> bool {
        now >= self.retry_at
    }

    /// Instant before which not to try; [`Tick::ZERO`] while nothing fails.
    pub fn retry_at(&self) -> Tick {
        self.retry_at
    }

    /// Failures since the last success.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Instant of the first failure since the last success.
    pub fn failing_since(&self) -> Option<Tick> {
        (self.attempts > 0).then_some(self.since)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLICY: BackoffPolicy =
        BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(30));

    #[test]
    fn waits_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..12)
            .map(|_| backoff.failed(POLICY, Tick(1_000), u64::MAX).since(Tick(1_000)).as_millis())
            .collect();
        let want = [99, 199, 399, 799, 1599, 3199, 6399, 12_799, 25_599, 29_999, 29_999, 29_999];
        assert_eq!(waits, want, "the greatest random value stays just below the full wait");
    }

    #[test]
    fn failing_since_is_the_first_failure() {
        let mut backoff = Backoff::default();
        assert_eq!((backoff.failing_since(), backoff.attempts()), (None, 0));
        assert!(backoff.is_due(Tick::ZERO));

        let retry_at = backoff.failed(POLICY, Tick(5), 0);
        assert_eq!(retry_at.since(Tick(5)), Duration::from_millis(50));
        assert!(!backoff.is_due(Tick(retry_at.0 - 1)) && backoff.is_due(retry_at));
        backoff.failed(POLICY, Tick(1 << 40), 0);
        assert_eq!((backoff.failing_since(), backoff.attempts()), (Some(Tick(5)), 2));

        backoff.succeeded();
        assert_eq!(backoff, Backoff::default());
    }

    proptest! {
        /// However long it fails: half of the full wait at least, never more than it.
        #[test]
        fn waits_keep_their_bounds(failures in 1..u32::MAX, random: u64) {
            let mut backoff = Backoff { attempts: failures - 1, ..Backoff::default() };
            let wait = backoff.failed(POLICY, Tick::ZERO, random).since(Tick::ZERO);
            let full = 0.1 * 2_f64.powi(i32::try_from(failures.min(99)).unwrap() - 1);
            let full = full.min(30.0);
            prop_assert!(wait.as_secs_f64() >= full / 2.0 - 1e-6);
            prop_assert!(wait.as_secs_f64() <= full + 1e-6);
        }
    }
}

//! When a failed partition is tried again.
//!
//! The KIP clears the count of attempts on each entry into LOG_TRUNCATION, so an alignment that
//! never works would be tried for ever with the shortest wait. Here only a new beginning clears
//! it: PAUSED, STOPPED, LOG_TRUNCATION out of STOPPED or UNKNOWN, a successful fetch, and an
//! operator's recover.

use std::time::Duration;

/// Keys `mirror.failed.retry.*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Doubled with each attempt, the first included: the first wait is twice as long.
    pub initial: Duration,
    /// No wait is longer, before jitter.
    pub max: Duration,
    /// With so many attempts it waits for an operator; 0 for never by itself.
    pub max_attempts: u16,
}

impl Default for RetryPolicy {
    /// 1 s, 5 minutes, 10 attempts.
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_secs(300), max_attempts: 10 }
    }
}

impl RetryPolicy {
    /// The wait after `attempts`, between 80 and 120 % of the full one as `random` has it; `None`
    /// if an operator has to act.
    #[must_use]
    pub fn wait(self, attempts: Attempts, random: u64) -> Option<Duration> {
        let attempts = attempts.counted()?;
        if attempts >= self.max_attempts {
            return None;
        }
        let times = 1_u32.checked_shl(attempts.into()).unwrap_or(u32::MAX);
        let full = self.initial.saturating_mul(times).min(self.max);
        // Parts of 2^32 of two fifths.
        let spread = (full.as_nanos() * 2 / 5 * u128::from(random >> 32)) >> 32;
        let spread = Duration::from_nanos(u64::try_from(spread).unwrap_or(u64::MAX));
        Some((full / 5 * 4).saturating_add(spread))
    }
}

/// `RetryAttempt` of the stored state: failures since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts(i16);

impl Attempts {
    /// Trying again cannot help.
    pub const NEVER_AGAIN: Self = Self(-1);

    /// From the wire or the log. Every negative number means the same.
    #[must_use]
    pub fn new(stored: i16) -> Self {
        Self(stored.max(-1))
    }

    /// As it is stored.
    #[must_use]
    pub fn stored(self) -> i16 {
        self.0
    }

    /// How many; `None` for [`Self::NEVER_AGAIN`].
    #[must_use]
    pub fn counted(self) -> Option<u16> {
        u16::try_from(self.0).ok()
    }

    /// One more. What cannot help stays that way.
    #[must_use]
    pub fn another(self) -> Self {
        if self == Self::NEVER_AGAIN { self } else { Self(self.0.saturating_add(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_two_seconds_to_five_minutes() {
        let policy = RetryPolicy { max_attempts: 100, ..RetryPolicy::default() };
        let middle = u64::MAX / 2;
        let seconds = |attempts| {
            let wait = policy.wait(Attempts::new(attempts), middle);
            wait.map(|wait| wait.as_secs_f64().round())
        };
        let waits: Vec<_> = (1..=9).filter_map(seconds).collect();
        assert_eq!(waits, [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0]);
        assert_eq!(seconds(99), Some(300.0));
        assert_eq!(seconds(100), None);
        assert_eq!(seconds(i16::MAX), None);
    }

    #[test]
    fn jitter_is_a_fifth_each_way() {
        let wait = |random| RetryPolicy::default().wait(Attempts::new(1), random);
        assert_eq!(wait(0), Some(Duration::from_millis(1_600)));
        let longest = wait(u64::MAX).unwrap_or_default();
        assert!(
            longest > Duration::from_micros(2_399_999) && longest <= Duration::from_millis(2_400)
        );
    }

    #[test]
    fn ten_attempts_and_then_an_operator() {
        let policy = RetryPolicy::default();
        assert!(policy.wait(Attempts::new(9), 0).is_some());
        assert_eq!(policy.wait(Attempts::new(10), 0), None);
        assert_eq!(policy.wait(Attempts::NEVER_AGAIN, 0), None);
        let never = RetryPolicy { max_attempts: 0, ..policy };
        assert_eq!(never.wait(Attempts::new(1), 0), None);
    }

    #[test]
    fn counts_do_not_turn_round() {
        assert_eq!(Attempts::new(i16::MAX).another(), Attempts::new(i16::MAX));
        assert_eq!(Attempts::NEVER_AGAIN.another(), Attempts::NEVER_AGAIN);
        assert_eq!(Attempts::new(-7), Attempts::NEVER_AGAIN);
        assert_eq!(Attempts::default().another().counted(), Some(1));
    }
}

//! Waits between attempts: they double, up to a limit, and vary at random so that many
//! clients do not come back at the same moment.

use std::time::Duration;

/// Limits of a back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Wait after the first failure.
    pub initial: Duration,
    /// Longest wait.
    pub max: Duration,
}

impl Backoff {
    /// Wait after the `failures`th failure in a row (from 1): the doubled initial wait,
    /// varied by up to a fifth either way by `random`, never above the limit.
    pub fn wait(self, failures: u32, random: u64) -> Duration {
        let doubled = 2_u32.checked_pow(failures.saturating_sub(1));
        let base = doubled.and_then(|factor| self.initial.checked_mul(factor));
        let base = base.unwrap_or(self.max).min(self.max);
        // 80 to 120 percent.
        let percent = 80 + u32::try_from(random % 41).unwrap_or(20);
        base.saturating_mul(percent).checked_div(100).unwrap_or(base).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn waits_double_up_to_the_limit() {
        let backoff =
            Backoff { initial: Duration::from_millis(100), max: Duration::from_millis(1_000) };
        // 20 % 41 is the middle of the variation.
        let waits: Vec<_> = (1..=5).map(|n| backoff.wait(n, 20).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_000]);
        assert_eq!(backoff.wait(1, 0).as_millis(), 80);
        assert_eq!(backoff.wait(1, 40).as_millis(), 120);
    }

    proptest! {
        #[test]
        fn no_wait_is_above_the_limit(initial: u32, max: u32, failures: u32, random: u64) {
            let backoff = Backoff {
                initial: Duration::from_millis(initial.into()),
                max: Duration::from_millis(max.into()),
            };
            prop_assert!(backoff.wait(failures, random) <= backoff.max);
        }
    }
}

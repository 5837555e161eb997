//! Time as an argument: monotonic instants that the driver passes in.

use std::time::Duration;

/// A monotonic instant, in nanoseconds since an origin that the driver chose.
/// Not wall-clock time: it only compares with ticks of the same driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than every other instant: "no deadline".
    pub const NEVER: Self = Self(u64::MAX);

    /// `self + wait`; saturates at [`Tick::NEVER`].
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The last multiple of `step` that is not later; itself for no step.
    #[must_use]
    pub fn round_down(self, step: Duration) -> Self {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self(self.0 - self.0 % step)
    }

    /// Time from `earlier` to here; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_down_ends_on_a_multiple_and_never_later() {
        let step = Duration::from_secs(1);
        for (tick, rounded) in [
            (0, 0),
            (999_999_999, 0),
            (1_000_000_000, 1_000_000_000),
            (1_999_999_999, 1_000_000_000),
        ] {
            assert_eq!(Tick(tick).round_down(step), Tick(rounded));
        }
        assert_eq!(Tick(7).round_down(Duration::ZERO), Tick(7));
        assert_eq!(Tick(7).round_down(Duration::MAX), Tick(0));
    }
}

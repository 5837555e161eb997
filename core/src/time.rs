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

    /// Time from `earlier` to here; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

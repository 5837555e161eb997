//! Where the time of fetching goes, and so what bounds it.

use std::fmt;
use std::time::Duration;

/// Time of all connections together, since the start. Of answers without records nothing is
/// counted: a long poll waits for data and not for a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// From sending a question to the first byte of its answer.
    pub waiting: Duration,
    /// From there to the answer's end, without [`stalled`](Self::stalled).
    pub receiving: Duration,
    /// Part of an answer was there and no buffer for it: the disk had not taken what came
    /// before. Not of stripes, which wait for their turn.
    pub stalled: Duration,
    /// Something was to be asked for and the throttle did not let it.
    pub throttled: Duration,
    /// A range of a stripe was there and those before it were not: no bound of its own, since
    /// they are the ones that are waited for.
    pub out_of_turn: Duration,
}

/// What most of the time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The source takes long to begin its answers.
    Source,
    /// Answers take long to come; a processor that is busy looks the same.
    Network,
    /// What has come cannot be written fast enough.
    Disk,
    /// `mirror.replication.throttled.rate`
    Throttle,
}

impl TimeSpent {
    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.waiting += other.waiting;
        self.receiving += other.receiving;
        self.stalled += other.stalled;
        self.throttled += other.throttled;
        self.out_of_turn += other.out_of_turn;
    }

    /// What most of it was spent on; `None` if nothing was.
    pub fn bound(&self) -> Option<Bound> {
        let parts = [
            (self.waiting, Bound::Source),
            (self.receiving, Bound::Network),
            (self.stalled, Bound::Disk),
            (self.throttled, Bound::Throttle),
        ];
        let (longest, bound) = parts.into_iter().max_by_key(|(time, _)| *time)?;
        (!longest.is_zero()).then_some(bound)
    }
}

impl Bound {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Network => "network",
            Self::Disk => "disk",
            Self::Throttle => "throttle",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source: waiting for answers to begin (its disks, or the round trip)",
            Self::Network => "network: answers take long to come (or the processor is busy)",
            Self::Disk => "disk: what has come cannot be written fast enough",
            Self::Throttle => "throttle: mirror.replication.throttled.rate",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_part_is_the_bound() {
        let mut spent = TimeSpent::default();
        assert_eq!(spent.bound(), None);
        let second = Duration::from_secs(1);
        spent.add(&TimeSpent { receiving: second, ..TimeSpent::default() });
        assert_eq!(spent.bound(), Some(Bound::Network));
        spent.add(&TimeSpent { stalled: second * 3, waiting: second, ..TimeSpent::default() });
        assert_eq!(spent.bound(), Some(Bound::Disk));
        spent.add(&TimeSpent { throttled: second * 4, ..TimeSpent::default() });
        assert_eq!(spent.bound(), Some(Bound::Throttle));
    }
}

//! How many bytes a fetch may carry, partition by partition, and whether it waits.

use crate::time::Tick;

/// The byte budget of one response. Ask it before each partition, tell it after.
///
/// The limits are those of the request, of the partition and of the broker's
/// `fetch.max.bytes`. Only the first partition that has data may exceed them, by
/// sending its first batch whole: so a batch larger than every limit still gets
/// through, one a response.
#[derive(Clone, Copy, Debug)]
pub struct FetchBudget {
    left: u64,
    first_batch_whole: bool,
}

/// What one partition may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// Bytes at most.
    pub bytes_max: u64,
    /// Send the first batch whole even if it is larger than that.
    pub first_batch_whole: bool,
}

impl FetchBudget {
    /// A budget of the lesser of the request's and the broker's limit.
    pub fn new(request_max_bytes: u32, fetch_max_bytes: u32) -> Self {
        Self { left: u64::from(request_max_bytes.min(fetch_max_bytes)), first_batch_whole: true }
    }

    /// What the next partition may read.
    pub fn next(&self, partition_max_bytes: u32) -> Take {
        Take {
            bytes_max: self.left.min(u64::from(partition_max_bytes)),
            first_batch_whole: self.first_batch_whole,
        }
    }

    /// Counts what a partition takes. Nothing read leaves the exception to the next.
    pub fn took(&mut self, bytes: u64) {
        if bytes > 0 {
            self.first_batch_whole = false;
            self.left = self.left.saturating_sub(bytes);
        }
    }
}

/// What was found when a fetch was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitFacts {
    /// Bytes of records ready.
    pub bytes: u64,
    /// Partitions that could be looked at (known here).
    pub readable: usize,
    /// One of these has an error or a diverging epoch, which must not wait.
    pub urgent: bool,
}

/// Whether a fetch is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitDecision {
    /// Now, with what is there.
    Answer,
    /// Not yet: look again when something changes, at this instant at the latest.
    WaitUntil(Tick),
}

/// Kafka's long poll: wait for `min_bytes` until `deadline`, but never with an
/// error in hand or with nothing to wait for.
pub fn decide_wait(facts: WaitFacts, min_bytes: u32, deadline: Tick, now: Tick) -> WaitDecision {
    let enough = facts.bytes >= u64::from(min_bytes);
    if enough || facts.urgent || facts.readable == 0 || now >= deadline {
        WaitDecision::Answer
    } else {
        WaitDecision::WaitUntil(deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_partition_with_data_alone_may_exceed_the_limits() {
        let mut budget = FetchBudget::new(1000, 600);
        assert_eq!(budget.next(100), Take { bytes_max: 100, first_batch_whole: true });
        budget.took(0);
        assert_eq!(budget.next(700), Take { bytes_max: 600, first_batch_whole: true });
        budget.took(5000);
        assert_eq!(budget.next(700), Take { bytes_max: 0, first_batch_whole: false });
    }

    #[test]
    fn limits_shrink_by_what_was_taken() {
        let mut budget = FetchBudget::new(500, u32::MAX);
        budget.took(200);
        assert_eq!(budget.next(1000).bytes_max, 300);
    }

    #[test]
    fn fetch_waits_for_bytes_but_never_with_an_error() {
        let idle = WaitFacts { bytes: 9, readable: 1, urgent: false };
        let decide = |facts, now| decide_wait(facts, 10, Tick(100), Tick(now));
        assert_eq!(decide(idle, 0), WaitDecision::WaitUntil(Tick(100)));
        assert_eq!(decide(idle, 100), WaitDecision::Answer);
        assert_eq!(decide(WaitFacts { bytes: 10, ..idle }, 0), WaitDecision::Answer);
        assert_eq!(decide(WaitFacts { urgent: true, ..idle }, 0), WaitDecision::Answer);
        assert_eq!(decide(WaitFacts { readable: 0, ..idle }, 0), WaitDecision::Answer);
    }
}

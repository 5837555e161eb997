//! `MirrorLeaderEpoch`: how a follower keeps to one history of a mirror partition.
//!
//! A leader checks a follower's position when the request comes, and reads its log when
//! there is something to answer. In between its log may have become another: after an
//! unclean election at the source, a mirror's leader cuts its tail and copies what the
//! source has now. For an ordinary partition the leader epoch fences that; batches of a
//! mirror carry the source's epochs, which lie below the destination's, so it cannot.
//!
//! ```text
//!  follower                                  leader
//!     | value 0 ------------------------------> |
//!     | <------- batches of epochs 3, 3, told 5 |   3 is above 0: nothing is taken
//!     | value 5 ------------------------------> |
//!     | <---- batches of epochs 3, 3, 5, told 5 |   all taken
//!     |                                         |   its history becomes 3, 7
//!     | <------- batches of epochs 7, 7, told 7 |   7 is above 5: nothing is taken
//!     | value 7, last fetched epoch 5 --------> |   which is not the leader's history
//!     | <------------ diverging: epoch 3 ends … |   cut, and fetch again
//! ```
//!
//! What is taken is never above what the leader had told before the position was checked,
//! and every new history begins with a new epoch.

use crate::protocol::fetch_stream::{DivergingEpoch, PartitionEnd};
use crate::types::LeaderEpoch;

/// What a leader tells a follower: the latest epoch of its log. [`LeaderEpoch::NONE`], which
/// is left out of the answer, for consumers and for followers that did not send the field
/// (`asked` is [`LeaderEpoch::NONE`]), for ordinary partitions (`latest` is `None`), and
/// while the log has no epoch.
pub fn leader_answer(
    is_follower: bool,
    asked: LeaderEpoch,
    latest: Option<LeaderEpoch>,
) -> LeaderEpoch {
    match (is_follower, asked.known(), latest) {
        (true, Some(_), Some(latest)) => latest,
        _ => LeaderEpoch::NONE,
    }
}

/// What becomes of a fetched batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is appended.
    Append,
    /// It, and all behind it in this answer, is dropped.
    Drop,
}

/// What follows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Fetch from the log end, which may be where it was.
    Fetch,
    /// Cut the log to the common point, call [`FollowerEpoch::truncated`], fetch again.
    Align(DivergingEpoch),
    /// The leader sends batches that are above the value, and tells none: it does not take
    /// the partition for a mirror. Back off, and look at the metadata.
    LeaderSilent,
}

/// The follower's side, for one partition and one leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerEpoch {
    /// Highest epoch that is taken.
    value: LeaderEpoch,
    /// Epoch of the last batch that is there.
    last: LeaderEpoch,
    /// Whether a batch of the answer under way was dropped.
    dropping: bool,
}

impl FollowerEpoch {
    /// At a leader that it has not fetched from yet: the value is 0. `last` is the epoch of
    /// the last batch of its log, [`LeaderEpoch::NONE`] for none.
    pub fn new(last: LeaderEpoch) -> Self {
        Self { value: LeaderEpoch(0), last, dropping: false }
    }

    /// Sent as `MirrorLeaderEpoch`.
    pub fn value(&self) -> LeaderEpoch {
        self.value
    }

    /// Sent as the last fetched epoch.
    pub fn last_fetched(&self) -> LeaderEpoch {
        self.last
    }

    /// The next batch of the answer has this epoch. Append up to the first that is dropped.
    ///
    /// A batch of an old format has no epoch, and passes. One whose epoch is below the last
    /// one's is dropped like one above the value: epochs of one history never fall.
    pub fn on_batch(&mut self, epoch: LeaderEpoch) -> Verdict {
        let known = epoch.known();
        if self.dropping || known.is_some_and(|epoch| epoch > self.value || epoch < self.last) {
            self.dropping = true;
            return Verdict::Drop;
        }
        self.last = known.unwrap_or(self.last);
        Verdict::Append
    }

    /// The answer has ended, with `end` behind its records: the value is raised to what the
    /// leader tells. It counts from the next question on, whose position the leader checks.
    pub fn on_answer_end(&mut self, end: &PartitionEnd) -> Next {
        let dropped = std::mem::take(&mut self.dropping);
        let told = end.mirror_leader_epoch.and_then(LeaderEpoch::known);
        if let Some(told) = told {
            self.value = self.value.max(told);
        }
        match end.diverging_epoch {
            Some(diverging) => Next::Align(diverging),
            None if dropped && told.is_none() => Next::LeaderSilent,
            None => Next::Fetch,
        }
    }

    /// The log was cut, and ends in `last` now. The value falls back with it: what the leader
    /// told was about a history that it may not have any more.
    pub fn truncated(&mut self, last: LeaderEpoch) {
        self.last = last;
        self.value = self.value.min(last.max(LeaderEpoch(0)));
        self.dropping = false;
    }

    /// Another leader, or the same after another election: begin again at 0.
    pub fn new_leader(&mut self) {
        *self = Self::new(self.last);
    }
}

#[cfg(test)]
mod tests;

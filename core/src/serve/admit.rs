//! Which offsets of a partition a fetch may read, in the order of a leader's checks.

use kafka_protocol::error::ResponseError;

use super::isolation::IsolationLevel;
use super::request::FetchParams;
use crate::types::{LeaderEpoch, Offset, TopicId};

/// Where a served partition stands. All taken at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedFacts {
    /// Identity of the topic; may be [`TopicId::NONE`].
    pub topic_id: TopicId,
    /// Epoch of the partition's leader.
    pub leader_epoch: LeaderEpoch,
    /// Whether this node is that leader.
    pub is_leader: bool,
    /// First readable offset.
    pub log_start: Offset,
    /// Readable end, exclusive.
    pub high_watermark: Offset,
    /// First offset of the oldest open transaction, or the high watermark if that is lower.
    pub last_stable: Offset,
    /// End of the log, exclusive.
    pub log_end: Offset,
}

impl ServedFacts {
    /// Readable end for `isolation`, exclusive.
    pub fn readable_end(&self, isolation: IsolationLevel) -> Offset {
        match isolation {
            IsolationLevel::ReadUncommitted => self.high_watermark,
            IsolationLevel::ReadCommitted => self.last_stable.min(self.high_watermark),
        }
    }

    /// As a follower reads, which moves the high watermark itself: up to the log end.
    #[must_use]
    pub fn read_by_follower(self) -> Self {
        Self { high_watermark: self.log_end, last_stable: self.log_end, ..self }
    }
}

/// Offsets that may be read; empty if `to <= from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBounds {
    /// First offset, inclusive.
    pub from: Offset,
    /// End, exclusive.
    pub to: Offset,
}

/// The last point that the client's log and ours may share: `epoch` ends at `end` here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Largest epoch here that is not above the client's.
    pub epoch: LeaderEpoch,
    /// Where it ends here, exclusive.
    pub end: Offset,
}

/// Why nothing is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFault {
    /// An error code for this partition.
    Error(ResponseError),
    /// The client's log holds what ours does not; no error on the wire.
    Diverging(Divergence),
}

impl From<ResponseError> for ReadFault {
    fn from(error: ResponseError) -> Self {
        Self::Error(error)
    }
}

/// The leader epoch that a client believes in, against ours. Unknown passes.
///
/// # Errors
///
/// `FENCED_LEADER_EPOCH` for an older, `UNKNOWN_LEADER_EPOCH` for a newer one,
/// then `NOT_LEADER_OR_FOLLOWER` if the leader is elsewhere.
pub fn check_leader_epoch(asked: LeaderEpoch, facts: &ServedFacts) -> Result<(), ResponseError> {
    match asked.known() {
        Some(epoch) if epoch < facts.leader_epoch => Err(ResponseError::FencedLeaderEpoch),
        Some(epoch) if epoch > facts.leader_epoch => Err(ResponseError::UnknownLeaderEpoch),
        Some(_) | None if !facts.is_leader => Err(ResponseError::NotLeaderOrFollower),
        Some(_) | None => Ok(()),
    }
}

/// What `asked` may read of a partition that stands at `facts`.
///
/// `asked_topic` is the ID in the request, [`TopicId::NONE`] below v13.
/// `epoch_end` answers for an epoch with the largest known one not above it and
/// its end, `None` if it cannot tell.
///
/// # Errors
///
/// The first check that fails, as a leader orders them: topic identity, leader
/// epoch, leadership, divergence, offset range.
pub fn admit_read(
    asked_topic: TopicId,
    asked: &FetchParams,
    isolation: IsolationLevel,
    facts: &ServedFacts,
    epoch_end: impl FnOnce(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
) -> Result<ReadBounds, ReadFault> {
    if let (Some(theirs), Some(ours)) = (asked_topic.known(), facts.topic_id.known())
        && theirs != ours
    {
        return Err(ResponseError::InconsistentTopicId.into());
    }
    check_leader_epoch(asked.current_leader_epoch, facts)?;
    let from = asked.fetch_offset;
    if let Some(last) = asked.last_fetched_epoch.known() {
        let (epoch, end) = epoch_end(last).ok_or(ResponseError::OffsetOutOfRange)?;
        // Below the log start nothing can be compared any more.
        if from < facts.log_start {
            return Err(ResponseError::OffsetOutOfRange.into());
        }
        if epoch < last || end < from {
            return Err(ReadFault::Diverging(Divergence { epoch, end }));
        }
    }
    if from < facts.log_start || from > facts.log_end {
        return Err(ResponseError::OffsetOutOfRange.into());
    }
    // An offset between the readable end and the log end is legal and reads nothing.
    Ok(ReadBounds { from, to: facts.readable_end(isolation).max(from) })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const FACTS: ServedFacts = ServedFacts {
        topic_id: TopicId(Uuid::from_u128(1)),
        leader_epoch: LeaderEpoch(5),
        is_leader: true,
        log_start: Offset(10),
        high_watermark: Offset(90),
        last_stable: Offset(70),
        log_end: Offset(100),
    };

    fn asked(offset: i64) -> FetchParams {
        FetchParams {
            fetch_offset: Offset(offset),
            partition_max_bytes: 1,
            current_leader_epoch: LeaderEpoch::NONE,
            last_fetched_epoch: LeaderEpoch::NONE,
            log_start_offset: Offset::NONE,
            mirror_leader_epoch: LeaderEpoch::NONE,
        }
    }

    /// Epoch 3 ends at 50, epoch 5 at the log end; 4 never wrote.
    fn epochs(asked: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        match asked.0 {
            3 | 4 => Some((LeaderEpoch(3), Offset(50))),
            5 => Some((LeaderEpoch(5), Offset(100))),
            _ => None,
        }
    }

    fn admit(asked: &FetchParams, isolation: IsolationLevel) -> Result<ReadBounds, ReadFault> {
        admit_read(TopicId::NONE, asked, isolation, &FACTS, epochs)
    }

    const UNCOMMITTED: IsolationLevel = IsolationLevel::ReadUncommitted;

    #[test]
    fn reads_end_at_the_watermark_of_the_isolation() {
        let to = |offset, isolation| admit(&asked(offset), isolation).map(|bounds| bounds.to.0);
        assert_eq!(to(10, UNCOMMITTED), Ok(90));
        assert_eq!(to(10, IsolationLevel::ReadCommitted), Ok(70));
        // Past the watermark: legal, and empty.
        assert_eq!(to(95, UNCOMMITTED), Ok(95));
        assert_eq!(to(100, UNCOMMITTED), Ok(100));
    }

    #[test]
    fn followers_read_up_to_the_log_end() {
        let facts = FACTS.read_by_follower();
        let got = admit_read(TopicId::NONE, &asked(95), UNCOMMITTED, &facts, epochs);
        assert_eq!(got.map(|bounds| bounds.to), Ok(Offset(100)));
    }

    #[test]
    fn offsets_outside_of_the_log_are_out_of_range() {
        for offset in [9, 101, -1] {
            let got = admit(&asked(offset), UNCOMMITTED);
            assert_eq!(got, Err(ResponseError::OffsetOutOfRange.into()), "{offset}");
        }
    }

    #[test]
    fn leader_epoch_is_fenced_or_unknown() {
        let with = |epoch| FetchParams { current_leader_epoch: LeaderEpoch(epoch), ..asked(10) };
        let fault = |epoch| admit(&with(epoch), UNCOMMITTED).err();
        assert_eq!(fault(4), Some(ResponseError::FencedLeaderEpoch.into()));
        assert_eq!(fault(5), None);
        assert_eq!(fault(6), Some(ResponseError::UnknownLeaderEpoch.into()));
    }

    #[test]
    fn another_leader_is_told_after_the_epoch() {
        let facts = ServedFacts { is_leader: false, ..FACTS };
        let check = |epoch| check_leader_epoch(LeaderEpoch(epoch), &facts);
        assert_eq!(check(4), Err(ResponseError::FencedLeaderEpoch));
        assert_eq!(check(5), Err(ResponseError::NotLeaderOrFollower));
        assert_eq!(check(-1), Err(ResponseError::NotLeaderOrFollower));
    }

    #[test]
    fn other_topic_id_is_inconsistent() {
        let other = TopicId(Uuid::from_u128(2));
        let got = admit_read(other, &asked(10), UNCOMMITTED, &FACTS, epochs);
        assert_eq!(got, Err(ResponseError::InconsistentTopicId.into()));
    }

    #[test]
    fn last_fetched_epoch_finds_the_divergence() {
        let fault = |epoch, offset| {
            let params = FetchParams { last_fetched_epoch: LeaderEpoch(epoch), ..asked(offset) };
            admit(&params, UNCOMMITTED).err()
        };
        let at_50 = ReadFault::Diverging(Divergence { epoch: LeaderEpoch(3), end: Offset(50) });
        assert_eq!(fault(3, 50), None);
        assert_eq!(fault(3, 51), Some(at_50));
        // An epoch that never wrote here diverges at the end of the one below it.
        assert_eq!(fault(4, 50), Some(at_50));
        assert_eq!(fault(5, 100), None);
        // Unknown epochs and trimmed offsets cannot be compared.
        assert_eq!(fault(6, 60), Some(ResponseError::OffsetOutOfRange.into()));
        assert_eq!(fault(3, 9), Some(ResponseError::OffsetOutOfRange.into()));
    }
}

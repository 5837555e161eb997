//! Builds Fetch requests as a follower of a mirror sends them to its leader.
//!
//! They are version 19's, which kafka-protocol does not know: version 18 and one tagged
//! field more in each partition. [`FetchPlan`] has no place for the field and no version
//! that carries it, so no request to a source can have it.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::ReplicaState;

use super::fetch_request::{FETCH_VERSION_SENT_MAX, FetchPlan};
use super::frame::{EncodeError, RequestId, encode_request_as};
use crate::types::{BrokerId, LeaderEpoch, Offset};

/// First version with `MirrorLeaderEpoch`.
pub const FETCH_VERSION_MIRROR_EPOCH: i16 = 19;
/// Tag of `MirrorLeaderEpoch` in a partition.
const TAG_MIRROR_LEADER_EPOCH: i32 = 2;

/// What a follower tells of one partition besides its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerPartition {
    /// Start of its own log.
    pub log_start: Offset,
    /// Highest batch epoch that it takes; [`LeaderEpoch::NONE`] where the partition is no
    /// mirror, and not sent then.
    pub mirror_leader_epoch: LeaderEpoch,
}

/// A Fetch request of a follower.
#[derive(Clone, Copy, Debug)]
pub struct FollowerFetch<'a> {
    /// Positions, session and limits, as a consumer has them.
    pub plan: FetchPlan<'a>,
    /// Node ID of the follower.
    pub replica: BrokerId,
    /// Epoch of its registration; −1 for none.
    pub replica_epoch: i64,
    /// In the order of the plan's partitions.
    pub partitions: &'a [FollowerPartition],
}

impl FollowerFetch<'_> {
    /// The request as a frame of version 19.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] if a text is too long for its field.
    ///
    /// # Panics
    ///
    /// If a topic has no ID.
    pub fn encode(&self, id: RequestId<'_>) -> Result<Bytes, EncodeError> {
        encode_request_as(id, FETCH_VERSION_MIRROR_EPOCH, FETCH_VERSION_SENT_MAX, &self.request())
    }

    fn request(&self) -> FetchRequest {
        let mut request = self.plan.request(FETCH_VERSION_SENT_MAX).with_replica_state(
            ReplicaState::default()
                .with_replica_id(self.replica.0.into())
                .with_replica_epoch(self.replica_epoch),
        );
        let asked = request.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        for (asked, own) in asked.zip(self.partitions) {
            asked.log_start_offset = own.log_start.0;
            if let Some(epoch) = own.mirror_leader_epoch.known() {
                let mut field = BytesMut::with_capacity(4);
                field.put_i32(epoch.0);
                asked.unknown_tagged_fields.insert(TAG_MIRROR_LEADER_EPOCH, field.freeze());
            }
        }
        request
    }
}

#[cfg(test)]
mod tests;

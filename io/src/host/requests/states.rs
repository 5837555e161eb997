//! The internal APIs of KIP-1279: states read and written, leader epochs raised.

use std::sync::Arc;

use heliostat_core::coordinator::fencing::admit;
use heliostat_core::coordinator::partition::Stored;
use heliostat_core::coordinator::{MirrorKey, MirrorState};
use heliostat_core::metadata::controller::{bump_leader_epochs, bump_response};
use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::{
    BumpLeaderEpochsRequest, BumpLeaderEpochsResponse, ReadMirrorStatesRequest,
    ReadMirrorStatesResponse, StateOfPartition, StatesOfTopic, WriteMirrorStatesRequest,
    WriteMirrorStatesResponse, WriteStatesPartition, WrittenPartition, WrittenTopic,
};
use heliostat_core::types::LeaderEpoch;

use super::super::HostError;
use super::super::run::Host;

impl Host {
    fn key(&self, mirror: &str, topic: &str, partition: i32) -> Option<MirrorKey> {
        let known = self.image().topic(topic)?;
        let topic = known.partition(partition).map(|_| known.id)?;
        Some(MirrorKey { mirror: Arc::from(mirror), topic, partition })
    }

    pub(super) fn read_states(&self, asked: ReadMirrorStatesRequest) -> ReadMirrorStatesResponse {
        let mut response = ReadMirrorStatesResponse::default();
        if !self.image().has_mirror(&asked.mirror_name) {
            response.error_code = ErrorCode::UNKNOWN_CLUSTER_MIRROR.0;
            response.error_message = Some(format!("mirror {} is not known", asked.mirror_name));
            return response;
        }
        for topic in asked.topics {
            let state = |index| {
                let key = self.key(&asked.mirror_name, &topic.name, index);
                self.state_of(key.as_ref(), index)
            };
            let partitions = topic.partitions.iter().map(|it| state(it.partition_index)).collect();
            response.topics.push(StatesOfTopic { name: topic.name, partitions });
        }
        response
    }

    /// A partition of which nothing is known is in state UNKNOWN; that is no error.
    fn state_of(&self, key: Option<&MirrorKey>, partition_index: i32) -> StateOfPartition {
        let mut of = StateOfPartition {
            partition_index,
            state: MirrorState::Unknown.id(),
            ..StateOfPartition::default()
        };
        let Some(key) = key else { return of };
        if let Some(mirror) = self.mirrors.get(key) {
            let Stored { state, previous, attempts, reason, leader_epoch, state_epoch } =
                mirror.stored();
            of.state = state.id();
            of.previous_state = previous.id();
            of.retry_attempt = attempts.stored();
            of.error_message = reason.as_deref().map(str::to_owned);
            of.leader_epoch = leader_epoch.0;
            of.state_epoch = *state_epoch;
        }
        if let Some(last) = self.mirrors.last_mirrored(key) {
            of.last_mirror_epoch = last.epoch.0;
            of.last_mirror_offset = last.offset.0;
        }
        of
    }

    /// In a cluster of one host no other broker leads a partition, so there is nobody whose word
    /// about one could be newer than the host's own: each write is fenced, or refused.
    pub(super) fn write_states(
        &self,
        asked: WriteMirrorStatesRequest,
    ) -> WriteMirrorStatesResponse {
        let mut response = WriteMirrorStatesResponse::default();
        if !self.image().has_mirror(&asked.mirror_name) {
            response.error_code = ErrorCode::UNKNOWN_CLUSTER_MIRROR.0;
            response.error_message = Some(format!("mirror {} is not known", asked.mirror_name));
            return response;
        }
        for topic in asked.topics {
            let written = |it: &WriteStatesPartition| {
                let key = self.key(&asked.mirror_name, &topic.name, it.partition_index);
                self.refuse_write(key.as_ref(), it)
            };
            let partitions = topic.partitions.iter().map(written).collect();
            response.topics.push(WrittenTopic { name: topic.name, partitions });
        }
        response
    }

    fn refuse_write(
        &self,
        key: Option<&MirrorKey>,
        asked: &WriteStatesPartition,
    ) -> WrittenPartition {
        let (code, message) = match key.map(|key| self.mirrors.get(key)) {
            None => (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "this host has no such partition"),
            Some(None) => (ErrorCode::INVALID_CLUSTER_MIRROR_STATES, NOT_LEADER),
            Some(Some(mirror)) => {
                let epoch = LeaderEpoch(asked.leader_epoch);
                match admit(mirror.stored(), epoch, asked.state_epoch) {
                    Err(code) => (code, "the state has been written since"),
                    Ok(()) => (ErrorCode::INVALID_CLUSTER_MIRROR_STATES, NOT_LEADER),
                }
            }
        };
        let state_epoch = key.and_then(|key| self.mirrors.get(key));
        WrittenPartition {
            partition_index: asked.partition_index,
            error_code: code.0,
            error_message: Some(message.to_owned()),
            state_epoch: state_epoch.map_or(-1, |it| it.stored().state_epoch),
        }
    }

    pub(super) async fn bump_epochs(
        &mut self,
        asked: BumpLeaderEpochsRequest,
    ) -> Result<BumpLeaderEpochsResponse, HostError> {
        // What is refused is refused whatever the others are.
        let answer = bump_response(&bump_leader_epochs(self.image(), &asked).answer);
        let wanted = asked.topics.iter().flat_map(|topic| {
            let id = topic.topic_id;
            let partitions = topic.partitions.iter();
            partitions.map(move |it| (id, it.partition_index, LeaderEpoch(it.min_leader_epoch)))
        });
        self.raise(wanted.collect()).await?;
        Ok(answer)
    }
}

const NOT_LEADER: &str =
    "this host leads the partition itself, and writes its states; ask for another state instead";

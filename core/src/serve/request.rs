//! A Fetch request as the server sees it, independent of the wire version.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::FetchPartition;
use kafka_protocol::protocol::Decodable;

use super::isolation::IsolationLevel;
use crate::protocol::FETCH_VERSION_MIRROR_EPOCH;
use crate::types::{BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition};

/// Fetch version from which topics travel by ID and not by name.
pub(super) const VERSION_TOPIC_IDS: i16 = 13;
/// Fetch version from which topics to forget and sessions exist.
pub(super) const VERSION_SESSIONS: i16 = 7;
/// Fetch version from which a follower tells of itself in a struct of its own.
const VERSION_REPLICA_STATE: i16 = 15;
/// Newest version that kafka-protocol decodes. Version 19 adds a tagged field to it.
const VERSION_DECODED_MAX: i16 = 18;
/// Tag of `MirrorLeaderEpoch` in a partition of a request.
pub(super) const TAG_MIRROR_LEADER_EPOCH: u32 = 2;

/// A Fetch request that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Fetch v{version} cannot be read: {reason}")]
pub struct FetchDecodeError {
    /// Version of the request.
    pub version: i16,
    /// What the decoder says.
    pub reason: String,
}

/// Reads the body of a Fetch request, up to version 19. Its shape has been checked.
///
/// # Errors
///
/// [`FetchDecodeError`] for a body or a version that is none.
pub fn decode_fetch(version: i16, body: &Bytes) -> Result<FetchRequest, FetchDecodeError> {
    let known = if version == FETCH_VERSION_MIRROR_EPOCH { VERSION_DECODED_MAX } else { version };
    FetchRequest::decode(&mut body.clone(), known)
        .map_err(|error| FetchDecodeError { version, reason: error.to_string() })
}

/// A topic as the request names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey {
    /// Up to v12.
    Name(Arc<str>),
    /// From v13 on.
    Id(TopicId),
}

/// A partition as the request names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKey {
    /// The topic.
    pub topic: TopicKey,
    /// Partition index.
    pub partition: i32,
}

impl PartitionKey {
    /// By name, for versions without topic IDs.
    pub fn named(partition: &TopicPartition) -> Self {
        Self { topic: TopicKey::Name(Arc::clone(&partition.topic)), partition: partition.partition }
    }
}

/// What a client wants of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchParams {
    /// First offset wanted.
    pub fetch_offset: Offset,
    /// Bytes of records wanted at most; the first batch may exceed it.
    pub partition_max_bytes: u32,
    /// Leader epoch that the client knows, [`LeaderEpoch::NONE`] for no check.
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch of the last record that the client has, [`LeaderEpoch::NONE`] for no check.
    pub last_fetched_epoch: LeaderEpoch,
    /// Log start offset of a follower; −1 from consumers.
    pub log_start_offset: Offset,
    /// `MirrorLeaderEpoch` of a mirror's follower, [`LeaderEpoch::NONE`] from all others
    /// and before version 19.
    pub mirror_leader_epoch: LeaderEpoch,
}

/// One Fetch request. Negative sizes count as 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequestFacts {
    /// Wire version.
    pub version: i16,
    /// Longest wait for `min_bytes`, in milliseconds.
    pub max_wait_ms: u32,
    /// Bytes to wait for.
    pub min_bytes: u32,
    /// Bytes of records in the whole response; the first batch may exceed it.
    pub max_bytes: u32,
    /// What the client may see of transactions.
    pub isolation: IsolationLevel,
    /// The follower that fetches, `None` for a consumer.
    pub replica: Option<BrokerId>,
    /// Session, 0 for none.
    pub session_id: i32,
    /// Epoch in the session: 0 asks for a full fetch and a session, −1 for a full
    /// fetch without one.
    pub session_epoch: i32,
    /// Partitions, in the client's order.
    pub partitions: Vec<(PartitionKey, FetchParams)>,
    /// Partitions to drop from the session.
    pub forgotten: Vec<PartitionKey>,
}

impl FetchRequestFacts {
    /// Reads the facts out of a decoded request.
    pub fn from_wire(version: i16, request: &FetchRequest) -> Self {
        let by_id = version >= VERSION_TOPIC_IDS;
        let key = |name: &str, id: uuid::Uuid| {
            if by_id { TopicKey::Id(TopicId(id)) } else { TopicKey::Name(Arc::from(name)) }
        };
        let mut partitions = Vec::new();
        for topic in &request.topics {
            let topic_key = key(topic.topic.as_str(), topic.topic_id);
            partitions.extend(topic.partitions.iter().map(|asked| {
                let key = PartitionKey { topic: topic_key.clone(), partition: asked.partition };
                let params = FetchParams {
                    fetch_offset: Offset(asked.fetch_offset),
                    partition_max_bytes: size(asked.partition_max_bytes),
                    current_leader_epoch: LeaderEpoch(asked.current_leader_epoch),
                    last_fetched_epoch: LeaderEpoch(asked.last_fetched_epoch),
                    log_start_offset: Offset(asked.log_start_offset),
                    mirror_leader_epoch: mirror_leader_epoch(version, asked),
                };
                (key, params)
            }));
        }
        let mut forgotten = Vec::new();
        for topic in &request.forgotten_topics_data {
            let topic_key = key(topic.topic.as_str(), topic.topic_id);
            forgotten.extend(
                topic
                    .partitions
                    .iter()
                    .map(|&partition| PartitionKey { topic: topic_key.clone(), partition }),
            );
        }
        // Before sessions every fetch is a full one that asks for none.
        let sessions = version >= VERSION_SESSIONS;
        let replica = if version >= VERSION_REPLICA_STATE {
            request.replica_state.replica_id.0
        } else {
            request.replica_id.0
        };
        Self {
            version,
            max_wait_ms: size(request.max_wait_ms),
            min_bytes: size(request.min_bytes),
            max_bytes: size(request.max_bytes),
            isolation: IsolationLevel::from_wire(request.isolation_level),
            replica: (replica >= 0).then_some(BrokerId(replica)),
            session_id: if sessions { request.session_id } else { 0 },
            session_epoch: if sessions { request.session_epoch } else { -1 },
            partitions,
            forgotten,
        }
    }
}

/// The tagged field that kafka-protocol does not know, and that older versions do not have.
fn mirror_leader_epoch(version: i16, asked: &FetchPartition) -> LeaderEpoch {
    if version < FETCH_VERSION_MIRROR_EPOCH {
        return LeaderEpoch::NONE;
    }
    let tag = TAG_MIRROR_LEADER_EPOCH.cast_signed();
    let field = asked.unknown_tagged_fields.get(&tag);
    let bytes = field.and_then(|field| <[u8; 4]>::try_from(&field[..]).ok());
    bytes.map_or(LeaderEpoch::NONE, |bytes| LeaderEpoch(i32::from_be_bytes(bytes)))
}

fn size(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

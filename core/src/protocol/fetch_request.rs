//! Builds Fetch requests as a consumer sends them.
//!
//! Heliostat fetches as a consumer: replica ID and log start offset are −1, so
//! that the source serves up to its high watermark and tiered segments as well,
//! and counts nobody as a replica.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request as wire;
use kafka_protocol::messages::{FetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::frame::{EncodeError, RequestId, encode_request};
use crate::types::{LeaderEpoch, Offset, TopicId};

/// First version with fetch sessions.
pub const FETCH_VERSION_SESSIONS: i16 = 7;
/// First version on which a broker sends zstd data; below it answers error 76.
pub const FETCH_VERSION_ZSTD: i16 = 10;
/// Last version that names topics by name.
pub const FETCH_VERSION_NAMES_MAX: i16 = 12;
/// Newest version that is sent.
pub const FETCH_VERSION_SENT_MAX: i16 = 18;

/// A topic by both of its names. The ID is [`TopicId::NONE`] where the source has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopicIdentity {
    /// Topic name.
    pub name: Arc<str>,
    /// Topic ID.
    pub id: TopicId,
}

impl fmt::Display for TopicIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// What is asked of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPosition {
    /// First offset wanted.
    pub fetch_offset: Offset,
    /// Epoch of the leader as metadata has it; −1 not to be checked. Sent from version 9 on.
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch of the last batch that is there; −1 for none. Sent from version 12 on,
    /// where the broker checks it against its log.
    pub last_fetched_epoch: LeaderEpoch,
    /// Most bytes to return; the first batch of a response may be larger.
    pub partition_max_bytes: u32,
}

/// One partition of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// Its topic.
    pub topic: TopicIdentity,
    /// Partition index.
    pub index: i32,
    /// What is asked of it.
    pub position: FetchPosition,
}

/// A partition that leaves the fetch session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgottenPartition {
    /// Its topic, with the ID that it was fetched by.
    pub topic: TopicIdentity,
    /// Partition index.
    pub index: i32,
}

/// Everything that a Fetch request says.
#[derive(Clone, Copy, Debug)]
pub struct FetchPlan<'a> {
    /// Longest wait for `min_bytes`, in milliseconds.
    pub max_wait_ms: u32,
    /// Bytes from which on the broker answers at once.
    pub min_bytes: u32,
    /// Most bytes of the whole response; its first batch may be larger.
    pub max_bytes: u32,
    /// Fetch session; 0 for none. Sent from version 7 on.
    pub session_id: i32,
    /// Epoch within the session: 0 opens one, −1 wants none. Sent from version 7 on.
    pub session_epoch: i32,
    /// Partitions to fetch; neighbours of one topic share its entry.
    pub partitions: &'a [FetchPartition],
    /// Partitions to drop from the session. Sent from version 7 on.
    pub forgotten: &'a [ForgottenPartition],
    /// Rack of this host, for which brokers choose a near replica; empty for none.
    /// Sent from version 11 on.
    pub rack: &'a str,
}

impl FetchPlan<'_> {
    /// The request as a frame of `version`. Topics go by ID from version 13 on.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] if a text is too long for its field.
    ///
    /// # Panics
    ///
    /// If a topic has no ID and the version names topics by ID: the version was
    /// not chosen with [`BrokerApis::fetch_version`](super::BrokerApis::fetch_version).
    pub fn encode(&self, version: i16, id: RequestId<'_>) -> Result<Bytes, EncodeError> {
        encode_request(id, version, &self.request(version))
    }

    /// The body in `version`, as a consumer's.
    pub(super) fn request(&self, version: i16) -> FetchRequest {
        let by_id = version > FETCH_VERSION_NAMES_MAX;
        let mut request = FetchRequest::default()
            .with_replica_id((-1).into())
            .with_max_wait_ms(to_i32(self.max_wait_ms))
            .with_min_bytes(to_i32(self.min_bytes))
            .with_max_bytes(to_i32(self.max_bytes))
            .with_isolation_level(0)
            .with_topics(topics(self.partitions, version));
        if version >= FETCH_VERSION_SESSIONS {
            request = request
                .with_session_id(self.session_id)
                .with_session_epoch(self.session_epoch)
                .with_forgotten_topics_data(forgotten(self.forgotten, by_id));
        }
        if version >= 11 {
            request.rack_id = StrBytes::from_string(self.rack.to_owned());
        }
        request
    }
}

/// Kafka's limits are signed; what is above means "no limit".
fn to_i32(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn topics(partitions: &[FetchPartition], version: i16) -> Vec<wire::FetchTopic> {
    let by_id = version > FETCH_VERSION_NAMES_MAX;
    partitions
        .chunk_by(|a, b| a.topic == b.topic)
        .filter_map(|run| {
            let partitions = run.iter().map(|part| {
                let position = &part.position;
                let mut out = wire::FetchPartition::default()
                    .with_partition(part.index)
                    .with_current_leader_epoch(position.current_leader_epoch.0)
                    .with_fetch_offset(position.fetch_offset.0)
                    .with_log_start_offset(-1)
                    .with_partition_max_bytes(to_i32(position.partition_max_bytes));
                if version >= 12 {
                    out.last_fetched_epoch = position.last_fetched_epoch.0;
                }
                out
            });
            let out = wire::FetchTopic::default().with_partitions(partitions.collect());
            let topic = &run.first()?.topic;
            Some(if by_id {
                out.with_topic_id(known_id(topic))
            } else {
                out.with_topic(wire_name(topic))
            })
        })
        .collect()
}

fn forgotten(partitions: &[ForgottenPartition], by_id: bool) -> Vec<wire::ForgottenTopic> {
    partitions
        .chunk_by(|a, b| a.topic == b.topic)
        .filter_map(|run| {
            let out = wire::ForgottenTopic::default()
                .with_partitions(run.iter().map(|part| part.index).collect());
            let topic = &run.first()?.topic;
            Some(if by_id {
                out.with_topic_id(known_id(topic))
            } else {
                out.with_topic(wire_name(topic))
            })
        })
        .collect()
}

fn known_id(topic: &TopicIdentity) -> uuid::Uuid {
    assert!(topic.id.known().is_some(), "topic {topic} has no ID, yet is fetched by ID");
    topic.id.0
}

fn wire_name(topic: &TopicIdentity) -> TopicName {
    TopicName(StrBytes::from_string(topic.name.to_string()))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::protocol::{Decodable, decode_request_header_from_buffer};
    use uuid::Uuid;

    use super::*;

    fn topic(name: &str, id: u128) -> TopicIdentity {
        TopicIdentity { name: Arc::from(name), id: TopicId(Uuid::from_u128(id)) }
    }

    fn partition(topic: &TopicIdentity, index: i32) -> FetchPartition {
        let position = FetchPosition {
            fetch_offset: Offset(100 + i64::from(index)),
            current_leader_epoch: LeaderEpoch(5),
            last_fetched_epoch: LeaderEpoch(4),
            partition_max_bytes: u32::MAX,
        };
        FetchPartition { topic: topic.clone(), index, position }
    }

    /// The request as another implementation reads it.
    fn sent(version: i16) -> FetchRequest {
        let (a, b) = (topic("a", 1), topic("b", 2));
        let plan = FetchPlan {
            max_wait_ms: 1000,
            min_bytes: 1,
            max_bytes: 10 << 20,
            session_id: if version >= 7 { 9 } else { 0 },
            session_epoch: if version >= 7 { 3 } else { -1 },
            partitions: &[partition(&a, 0), partition(&a, 1), partition(&b, 0)],
            forgotten: if version >= 7 {
                &[ForgottenPartition { topic: b, index: 7 }]
            } else {
                &[]
            },
            rack: "r1",
        };
        let id = RequestId { correlation_id: 77, client_id: "me" };
        let mut bytes = plan.encode(version, id).unwrap();

        let size = bytes.split_to(4);
        assert_eq!(
            u32::from_be_bytes(size[..].try_into().unwrap()),
            u32::try_from(bytes.len()).unwrap()
        );
        let header = decode_request_header_from_buffer(&mut bytes).unwrap();
        assert_eq!((header.request_api_key, header.request_api_version), (1, version));
        assert_eq!(header.correlation_id, 77);
        assert_eq!(header.client_id.as_deref(), Some("me"));
        let request = FetchRequest::decode(&mut bytes, version).unwrap();
        assert!(bytes.is_empty());
        request
    }

    #[test]
    fn every_version_says_what_it_can() {
        for version in 4..=FETCH_VERSION_SENT_MAX {
            let request = sent(version);
            assert_eq!(request.replica_id.0, -1, "v{version}: a consumer");
            assert_eq!(request.replica_state.replica_id.0, -1, "v{version}: a consumer");
            assert_eq!(request.isolation_level, 0);
            assert_eq!((request.max_wait_ms, request.min_bytes), (1000, 1));
            assert_eq!(request.max_bytes, 10 << 20);
            assert_eq!(request.rack_id.as_str(), if version >= 11 { "r1" } else { "" });
            assert_eq!(request.session_id, if version >= 7 { 9 } else { 0 });

            let counts: Vec<_> = request.topics.iter().map(|t| t.partitions.len()).collect();
            assert_eq!(counts, [2, 1], "neighbours share a topic");
            let first = &request.topics[0];
            let (name, id) = (first.topic.0.as_str(), first.topic_id.as_u128());
            assert_eq!((name, id), if version >= 13 { ("", 1) } else { ("a", 0) }, "v{version}");
            let part = &first.partitions[1];
            assert_eq!((part.partition, part.fetch_offset), (1, 101));
            assert_eq!(part.current_leader_epoch, if version >= 9 { 5 } else { -1 });
            assert_eq!(part.last_fetched_epoch, if version >= 12 { 4 } else { -1 });
            assert_eq!(part.log_start_offset, -1);
            assert_eq!(part.partition_max_bytes, i32::MAX);

            if version >= 7 {
                let gone = &request.forgotten_topics_data[0];
                assert_eq!(gone.partitions, [7]);
                assert_eq!(gone.topic_id.as_u128(), if version >= 13 { 2 } else { 0 });
            }
        }
    }

    #[test]
    fn a_text_that_does_not_fit_is_an_error() {
        let plan = FetchPlan {
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: 0,
            session_id: 0,
            session_epoch: -1,
            partitions: &[],
            forgotten: &[],
            rack: "",
        };
        let client_id = "x".repeat(40_000);
        let id = RequestId { correlation_id: 0, client_id: &client_id };
        let error = plan.encode(12, id).unwrap_err();
        assert_eq!((error.api_key, error.version), (1, 12));
    }
}

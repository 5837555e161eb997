//! CreateTopics 8: version 7, and for each topic the mirror that makes it.

use super::field::{Field, read_nullable_array, structs};
use crate::protocol::wire::{DecodeError, Reader};
use crate::types::{BrokerId, TopicId};

/// Key of CreateTopics.
pub const CREATE_TOPICS_KEY: i16 = 19;

/// The version whose codecs are here, the only one with [`MirrorInfo`].
pub const CREATE_TOPICS_VERSION_MIRROR_INFO: i16 = 8;

structs! {
    /// Makes topics.
    struct CreateTopicsRequest {
        /// Which.
        topics: Vec<CreatableTopic> = "topics",
        /// Milliseconds that the client waits until all replicas know of the topics.
        timeout_ms: i32 = "timeoutMs" or 60_000,
        /// Whether to check only, and to make nothing.
        validate_only: bool = "validateOnly",
    }

    /// A topic to make.
    struct CreatableTopic {
        /// Its name.
        name: String = "name",
        /// Its partitions; -1 for the default, or where they are assigned.
        num_partitions: i32 = "numPartitions" or -1,
        /// Replicas of each; -1 for the default, or where they are assigned.
        replication_factor: i16 = "replicationFactor" or -1,
        /// Brokers of each partition; empty leaves it to the host.
        assignments: Vec<CreatableReplicaAssignment> = "assignments",
        /// Its own configs.
        configs: Vec<CreatableTopicConfig> = "configs",
        /// What a mirror knows of it; null for a topic that no mirror makes.
        mirror_info: Option<MirrorInfo> = "MirrorInfo",
    }

    /// Brokers of a partition.
    struct CreatableReplicaAssignment {
        /// The partition.
        partition_index: i32 = "partitionIndex",
        /// They; the first leads.
        broker_ids: Vec<BrokerId> = "brokerIds",
    }

    /// A config of a topic to make.
    struct CreatableTopicConfig {
        /// The key.
        name: String = "name",
        /// The value; null for the default.
        value: Option<String> = "value",
    }

    /// What a mirror knows of a topic.
    struct MirrorInfo {
        /// The source's ID, which the topic gets; all zeros for a new one.
        topic_id: TopicId = "TopicId",
    }

    /// What came of it.
    struct CreateTopicsResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "throttleTimeMs",
        /// One for each topic.
        topics: Vec<CreatedTopic> = "topics",
    }

    /// What came of a topic.
    struct CreatedTopic {
        /// Its name.
        name: String = "name",
        /// Its ID; all zeros if it was not made.
        topic_id: TopicId = "topicId",
        /// 0 for none.
        error_code: i16 = "errorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "errorMessage",
        /// Its partitions; -1 if it was not made.
        num_partitions: i32 = "numPartitions" or -1,
        /// Replicas of each; -1 if it was not made.
        replication_factor: i16 = "replicationFactor" or -1,
        /// Its configs, defaults included; null if the client may not see them.
        configs: Option<Vec<CreatedTopicConfig>> = "configs",
        @ 0
        /// Why there are no configs; 0 for none.
        topic_config_error_code: i16 = "topicConfigErrorCode" or 0,
    }

    /// A config of a new topic.
    struct CreatedTopicConfig {
        /// The key.
        name: String = "name",
        /// The value; null for a secret.
        value: Option<String> = "value",
        /// Whether clients cannot change it.
        read_only: bool = "readOnly",
        /// Where it comes from, by Kafka's numbers.
        config_source: i8 = "configSource" or -1,
        /// Whether it is a secret.
        is_sensitive: bool = "isSensitive",
    }
}

/// Before a struct that may be null.
const NULL: i8 = -1;
const PRESENT: i8 = 1;

impl Field for Option<MirrorInfo> {
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        // Kafka takes every negative number for null, and every other for a struct.
        if reader.i8(name)? < 0 { Ok(None) } else { MirrorInfo::read(reader, name).map(Some) }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Some(info) => {
                PRESENT.write(out);
                info.write(out);
            }
            None => NULL.write(out),
        }
    }
}

impl Field for Option<Vec<CreatedTopicConfig>> {
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        read_nullable_array(reader, name)
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Some(configs) => configs.write(out),
            None => out.push(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::create_topics_request as theirs;
    use kafka_protocol::protocol::{Encodable, StrBytes};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::protocol::mirror::{decode, encode};

    const ID: &[u8] = b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10";

    fn id() -> TopicId {
        TopicId(Uuid::from_slice(ID).unwrap())
    }

    #[track_caller]
    fn check<M: Field + PartialEq + std::fmt::Debug>(message: M, parts: &[&[u8]]) {
        let bytes = parts.concat();
        assert_eq!(encode(&message), bytes);
        assert_eq!(decode::<M>(&bytes), Ok(message));
        for cut in 0..bytes.len() {
            assert!(decode::<M>(&bytes[..cut]).is_err(), "{cut} of {}", bytes.len());
        }
        let longer = [&bytes[..], b"\0"].concat();
        assert_eq!(decode::<M>(&longer), Err(DecodeError::FrameNotConsumed { left: 1 }));
    }

    fn topic(name: &str, mirror_info: Option<MirrorInfo>) -> CreatableTopic {
        CreatableTopic { name: name.into(), mirror_info, ..CreatableTopic::default() }
    }

    #[test]
    fn requests_carry_what_a_mirror_knows() {
        let assignment =
            CreatableReplicaAssignment { partition_index: 2, broker_ids: vec![BrokerId(7)] };
        let config = CreatableTopicConfig { name: "a".into(), value: Some("b".into()) };
        let by_mirror = CreatableTopic {
            num_partitions: 3,
            replication_factor: 1,
            assignments: vec![assignment],
            configs: vec![config, CreatableTopicConfig { name: "c".into(), value: None }],
            ..topic("t", Some(MirrorInfo { topic_id: id() }))
        };
        check(
            CreateTopicsRequest {
                topics: vec![by_mirror, topic("u", None)],
                timeout_ms: 258,
                validate_only: true,
            },
            &[
                b"\x03",
                b"\x02t\0\0\0\x03\0\x01",
                b"\x02\0\0\0\x02\x02\0\0\0\x07\0",
                b"\x03\x02a\x02b\0\x02c\0\0",
                b"\x01",
                ID,
                b"\0\0",
                b"\x02u\xff\xff\xff\xff\xff\xff\x01\x01\xff\0",
                b"\0\0\x01\x02\x01\0",
            ],
        );
        // No topic, and Kafka's own default of a minute.
        check(CreateTopicsRequest::default(), &[b"\x01\0\0\xea\x60\0\0"]);
    }

    #[test]
    fn responses_tell_of_each_topic() {
        let config = CreatedTopicConfig {
            name: "a".into(),
            value: Some("b".into()),
            read_only: true,
            config_source: 5,
            is_sensitive: false,
        };
        let made = CreatedTopic {
            name: "t".into(),
            topic_id: id(),
            num_partitions: 3,
            replication_factor: 1,
            configs: Some(vec![config]),
            ..CreatedTopic::default()
        };
        let refused = CreatedTopic {
            name: "u".into(),
            error_code: 36,
            error_message: Some("no".into()),
            topic_config_error_code: 29,
            ..CreatedTopic::default()
        };
        check(
            CreateTopicsResponse { throttle_time_ms: 1, topics: vec![made, refused] },
            &[
                b"\0\0\0\x01\x03",
                b"\x02t",
                ID,
                b"\0\0\0\0\0\0\x03\0\x01",
                b"\x02\x02a\x02b\x01\x05\0\0",
                b"\0",
                b"\x02u\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                b"\0\x24\x03no\xff\xff\xff\xff\xff\xff\0",
                b"\x01\0\x02\0\x1d",
                b"\0",
            ],
        );
    }

    /// But for the mirror's struct, version 8 is the version that another implementation knows.
    #[test]
    fn it_is_version_7_with_one_byte_more_where_no_mirror_makes_the_topic() {
        let theirs = {
            let topic = theirs::CreatableTopic::default()
                .with_name(StrBytes::from_static_str("t").into())
                .with_num_partitions(4)
                .with_replication_factor(2);
            let mut out = bytes::BytesMut::new();
            theirs::CreateTopicsRequest::default()
                .with_topics(vec![topic])
                .with_timeout_ms(9)
                .encode(&mut out, 7)
                .unwrap();
            out.to_vec()
        };
        let topic = CreatableTopic { num_partitions: 4, replication_factor: 2, ..topic("t", None) };
        let mut ours = encode(&CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 9,
            validate_only: false,
        });
        // Count, name, two numbers, two empty arrays; then the mark.
        assert_eq!(ours.remove(1 + 2 + 4 + 2 + 1 + 1), 0xff);
        assert_eq!(ours, theirs);
    }

    #[test]
    fn any_negative_mark_is_null_and_counts_are_held_against_the_bytes() {
        let with =
            |mark: &[u8]| [b"\x02\x02u\0\0\0\0\0\0\x01\x01", mark, b"\0\0\0\0\0\0\0"].concat();
        let null = decode::<CreateTopicsRequest>(&with(b"\xfe")).unwrap();
        assert_eq!(null.topics[0].mirror_info, None);
        assert!(decode::<CreateTopicsRequest>(&with(b"\x01")).is_err(), "no ID behind the mark");
        let many = decode::<CreateTopicsRequest>(b"\xff\xff\xff\xff\x0f\0\0");
        assert!(matches!(many, Err(DecodeError::PastFrame { field: "topics", .. })), "{many:?}");
        let null = decode::<CreateTopicsRequest>(b"\0\0\0\0\0\0\0");
        assert_eq!(null, Err(DecodeError::Null { field: "topics" }));
    }

    #[test]
    fn only_kafkas_own_field_is_tagged() {
        assert_eq!(TAGGED, [("CreatedTopic", "topicConfigErrorCode", 0)]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_danger(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(message) = decode::<CreateTopicsRequest>(&bytes) {
                prop_assert_eq!(decode(&encode(&message)), Ok(message));
            }
            if let Ok(message) = decode::<CreateTopicsResponse>(&bytes) {
                prop_assert_eq!(decode(&encode(&message)), Ok(message));
            }
        }

        /// What is near a message: one byte of it is another.
        #[test]
        fn a_wrong_byte_is_no_danger(at in 0..60_usize, byte: u8, mirror: bool) {
            let info = mirror.then(|| MirrorInfo { topic_id: id() });
            let config = CreatableTopicConfig { name: "a".into(), value: None };
            let topic = CreatableTopic { configs: vec![config], ..topic("t", info) };
            let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
            let mut bytes = encode(&request);
            prop_assert_eq!(decode(&bytes), Ok(request));
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(message) = decode::<CreateTopicsRequest>(&bytes) {
                prop_assert_eq!(decode(&encode(&message)), Ok(message));
            }
        }
    }
}

//! Where a leader epoch ends in the source's log.
//!
//! Asked from version 3 on only, as a consumer: older versions are a follower's
//! and need a right on the cluster.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::offset_for_leader_epoch_request as wire;
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::api_versions::throttle;
use super::body::Body;
use super::frame::{EncodeError, RequestId, encode_request};
use super::wire::DecodeError;
use super::{Api, ErrorCode};
use crate::types::{LeaderEpoch, Offset, TopicPartition};

/// A question about one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochEndQuery {
    /// The partition.
    pub partition: TopicPartition,
    /// Epoch of the leader as metadata has it; −1 not to be checked.
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch whose end is asked for.
    pub leader_epoch: LeaderEpoch,
}

/// Asks where epochs end.
#[derive(Clone, Copy, Debug)]
pub struct EpochEndsRequest<'a> {
    /// The questions; neighbours of one topic share its entry.
    pub queries: &'a [EpochEndQuery],
}

impl EpochEndsRequest<'_> {
    /// The request as a frame of `version`, 3 or newer.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] if a name is too long for the field.
    pub fn encode(&self, version: i16, id: RequestId<'_>) -> Result<Bytes, EncodeError> {
        let topics = self
            .queries
            .chunk_by(|a, b| a.partition.topic == b.partition.topic)
            .filter_map(|run| {
                let partition = |query: &EpochEndQuery| {
                    wire::OffsetForLeaderPartition::default()
                        .with_partition(query.partition.partition)
                        .with_current_leader_epoch(query.current_leader_epoch.0)
                        .with_leader_epoch(query.leader_epoch.0)
                };
                let name = run.first()?.partition.topic.to_string();
                Some(
                    wire::OffsetForLeaderTopic::default()
                        .with_topic(TopicName(StrBytes::from_string(name)))
                        .with_partitions(run.iter().map(partition).collect()),
                )
            })
            .collect();
        let request =
            OffsetForLeaderEpochRequest::default().with_replica_id((-1).into()).with_topics(topics);
        encode_request(id, version, &request)
    }
}

/// Answer for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The partition.
    pub partition: TopicPartition,
    /// Error of the partition.
    pub error: ErrorCode,
    /// The epoch asked for, or the largest below it that the log has; −1 for none.
    pub leader_epoch: LeaderEpoch,
    /// Where that epoch ends, exclusive; −1 for unknown.
    pub end_offset: Offset,
}

impl EpochEnd {
    /// Reads the body of a response of `version`: throttle time in milliseconds, and the answers.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] that names the field.
    pub fn decode(version: i16, body: &[u8]) -> Result<(u32, Vec<Self>), DecodeError> {
        let mut body = Body::new(body, Api::OffsetForLeaderEpoch.is_flexible(version));
        let throttle_ms = throttle(&mut body)?;
        let topics = body.array("topics", 2, |body| {
            let name: Arc<str> = Arc::from(body.str("topics.topic")?);
            let partitions = body.array("partitions", 18, |body| {
                let error = ErrorCode(body.i16("error_code")?);
                let index = body.i32("partition")?;
                let leader_epoch = LeaderEpoch(body.i32("leader_epoch")?);
                let end_offset = Offset(body.i64("end_offset")?);
                body.tags("tagged fields of a partition")?;
                let partition = TopicPartition::new(Arc::clone(&name), index);
                Ok(Self { partition, error, leader_epoch, end_offset })
            })?;
            body.tags("tagged fields of a topic")?;
            Ok(partitions)
        })?;
        body.finish()?;
        Ok((throttle_ms, topics.into_iter().flatten().collect()))
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::OffsetForLeaderEpochResponse;
    use kafka_protocol::messages::offset_for_leader_epoch_response as theirs;
    use kafka_protocol::protocol::{Decodable, Encodable, decode_request_header_from_buffer};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_version_agrees_with_the_oracle(
            version in 3..=4_i16,
            rows in prop::collection::vec(
                ("[a-z]{1,5}", any::<i32>(), any::<i16>(), any::<i64>(), any::<i32>()), 0..5),
            damage: (prop::sample::Index, u8),
        ) {
            let topics = rows.iter().map(|(name, index, error, end, epoch)| {
                let partition = theirs::EpochEndOffset::default()
                    .with_partition(*index)
                    .with_error_code(*error)
                    .with_leader_epoch(*epoch)
                    .with_end_offset(*end);
                theirs::OffsetForLeaderTopicResult::default()
                    .with_topic(TopicName(StrBytes::from_string(name.clone())))
                    .with_partitions(vec![partition])
            });
            let response = OffsetForLeaderEpochResponse::default()
                .with_throttle_time_ms(7)
                .with_topics(topics.collect());
            let mut bytes = bytes::BytesMut::new();
            response.encode(&mut bytes, version).unwrap();
            let want = rows.iter().map(|(name, index, error, end, epoch)| EpochEnd {
                partition: TopicPartition::new(name.as_str(), *index),
                error: ErrorCode(*error),
                leader_epoch: LeaderEpoch(*epoch),
                end_offset: Offset(*end),
            });
            prop_assert_eq!(EpochEnd::decode(version, &bytes), Ok((7, want.collect::<Vec<_>>())));
            let at = damage.0.index(bytes.len());
            bytes[at] = damage.1;
            let _ = EpochEnd::decode(version, &bytes);
        }
    }

    #[test]
    fn requests_ask_as_a_consumer() {
        let query = |topic: &str, index| EpochEndQuery {
            partition: TopicPartition::new(topic, index),
            current_leader_epoch: LeaderEpoch(4),
            leader_epoch: LeaderEpoch(3),
        };
        for version in 3..=4 {
            let id = RequestId { correlation_id: 1, client_id: "c" };
            let queries = [query("a", 0), query("a", 1), query("b", 0)];
            let request = EpochEndsRequest { queries: &queries };
            let mut frame = request.encode(version, id).unwrap().slice(4..);
            decode_request_header_from_buffer(&mut frame).unwrap();
            let read = OffsetForLeaderEpochRequest::decode(&mut frame, version).unwrap();
            assert_eq!(read.replica_id.0, -1);
            let partitions: Vec<_> = read.topics.iter().map(|t| t.partitions.len()).collect();
            assert_eq!(partitions, [2, 1]);
            let first = &read.topics[0].partitions[1];
            assert_eq!((first.partition, first.current_leader_epoch), (1, 4));
            assert_eq!(first.leader_epoch, 3);
        }
    }
}

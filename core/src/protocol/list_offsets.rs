//! First and last offsets of partitions, and offsets by time.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::list_offsets_request as wire;
use kafka_protocol::messages::{ListOffsetsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::api_versions::throttle;
use super::body::Body;
use super::frame::{EncodeError, RequestId, encode_request};
use super::wire::DecodeError;
use super::{Api, ErrorCode};
use crate::types::{LeaderEpoch, Offset, TimestampMs, TopicPartition};

/// Which offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetAt {
    /// The log start offset.
    Earliest,
    /// The high watermark: uncommitted transactions are not left out.
    Latest,
    /// First record whose timestamp is at or above this.
    Time(TimestampMs),
}

impl OffsetAt {
    fn timestamp(self) -> i64 {
        match self {
            Self::Latest => -1,
            Self::Earliest => -2,
            Self::Time(time) => time.0,
        }
    }
}

/// A question about one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetQuery {
    /// The partition.
    pub partition: TopicPartition,
    /// Epoch of the leader as metadata has it; −1 not to be checked. Sent from version 4 on.
    pub current_leader_epoch: LeaderEpoch,
    /// Which offset.
    pub at: OffsetAt,
}

/// Asks for offsets as a consumer.
#[derive(Clone, Copy, Debug)]
pub struct OffsetsRequest<'a> {
    /// The questions; neighbours of one topic share its entry.
    pub queries: &'a [OffsetQuery],
    /// How long the broker may look into tiered storage, in milliseconds. Sent from version 10 on.
    pub timeout_ms: u32,
}

impl OffsetsRequest<'_> {
    /// The request as a frame of `version`.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] if a name is too long for the field.
    pub fn encode(&self, version: i16, id: RequestId<'_>) -> Result<Bytes, EncodeError> {
        let topics = self
            .queries
            .chunk_by(|a, b| a.partition.topic == b.partition.topic)
            .filter_map(|run| {
                let partition = |query: &OffsetQuery| {
                    let mut out = wire::ListOffsetsPartition::default()
                        .with_partition_index(query.partition.partition)
                        .with_timestamp(query.at.timestamp());
                    if version >= 4 {
                        out.current_leader_epoch = query.current_leader_epoch.0;
                    }
                    out
                };
                let name = run.first()?.partition.topic.to_string();
                Some(
                    wire::ListOffsetsTopic::default()
                        .with_name(TopicName(StrBytes::from_string(name)))
                        .with_partitions(run.iter().map(partition).collect()),
                )
            })
            .collect();
        let mut request =
            ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(topics);
        if version >= 10 {
            request.timeout_ms = i32::try_from(self.timeout_ms).unwrap_or(i32::MAX);
        }
        encode_request(id, version, &request)
    }
}

/// Answer for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    /// The partition.
    pub partition: TopicPartition,
    /// Error of the partition.
    pub error: ErrorCode,
    /// The offset; −1 with an error, and where no record is as late as asked.
    pub offset: Offset,
    /// Timestamp of the record found; −1 for first and last offsets.
    pub timestamp: TimestampMs,
    /// Epoch of the record at the offset; −1 for unknown, and below version 4.
    pub leader_epoch: LeaderEpoch,
}

impl ListedOffset {
    /// Reads the body of a response of `version`: throttle time in milliseconds, and the answers.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] that names the field.
    pub fn decode(version: i16, body: &[u8]) -> Result<(u32, Vec<Self>), DecodeError> {
        let mut body = Body::new(body, Api::ListOffsets.is_flexible(version));
        let throttle_ms = if version >= 2 { throttle(&mut body)? } else { 0 };
        let topics = body.array("topics", 2, |body| {
            let name: Arc<str> = Arc::from(body.str("topics.name")?);
            let partitions = body.array("partitions", 22, |body| {
                let index = body.i32("partition_index")?;
                let error = ErrorCode(body.i16("error_code")?);
                let timestamp = TimestampMs(body.i64("timestamp")?);
                let offset = Offset(body.i64("offset")?);
                let epoch = if version >= 4 { body.i32("leader_epoch")? } else { -1 };
                body.tags("tagged fields of a partition")?;
                let partition = TopicPartition::new(Arc::clone(&name), index);
                let leader_epoch = LeaderEpoch(epoch).known().unwrap_or_default();
                Ok(Self { partition, error, offset, timestamp, leader_epoch })
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
    use kafka_protocol::messages::ListOffsetsResponse;
    use kafka_protocol::messages::list_offsets_response as theirs;
    use kafka_protocol::protocol::{Decodable, Encodable, decode_request_header_from_buffer};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_version_agrees_with_the_oracle(
            version in 1..=10_i16,
            rows in prop::collection::vec(
                ("[a-z]{1,5}", any::<i32>(), any::<i16>(), any::<i64>(), any::<i64>(), -1..9_i32),
                0..5),
            damage: (prop::sample::Index, u8),
        ) {
            let topics = rows.iter().map(|(name, index, error, timestamp, offset, epoch)| {
                let mut partition = theirs::ListOffsetsPartitionResponse::default()
                    .with_partition_index(*index)
                    .with_error_code(*error)
                    .with_timestamp(*timestamp)
                    .with_offset(*offset);
                if version >= 4 {
                    partition.leader_epoch = *epoch;
                }
                theirs::ListOffsetsTopicResponse::default()
                    .with_name(TopicName(StrBytes::from_string(name.clone())))
                    .with_partitions(vec![partition])
            });
            let response = ListOffsetsResponse::default().with_topics(topics.collect());
            let mut bytes = bytes::BytesMut::new();
            response.encode(&mut bytes, version).unwrap();

            let want = rows.iter().map(|(name, index, error, timestamp, offset, epoch)| {
                ListedOffset {
                    partition: TopicPartition::new(name.as_str(), *index),
                    error: ErrorCode(*error),
                    offset: Offset(*offset),
                    timestamp: TimestampMs(*timestamp),
                    leader_epoch: LeaderEpoch(if version >= 4 { *epoch } else { -1 }),
                }
            });
            prop_assert_eq!(
                ListedOffset::decode(version, &bytes),
                Ok((0, want.collect::<Vec<_>>()))
            );
            let at = damage.0.index(bytes.len());
            bytes[at] = damage.1;
            let _ = ListedOffset::decode(version, &bytes);
        }
    }

    #[test]
    fn requests_ask_as_a_consumer() {
        let query = |topic: &str, index, at| OffsetQuery {
            partition: TopicPartition::new(topic, index),
            current_leader_epoch: LeaderEpoch(4),
            at,
        };
        let queries = [
            query("a", 0, OffsetAt::Earliest),
            query("a", 1, OffsetAt::Latest),
            query("b", 0, OffsetAt::Time(TimestampMs(77))),
        ];
        for version in 1..=10 {
            let id = RequestId { correlation_id: 1, client_id: "c" };
            let request = OffsetsRequest { queries: &queries, timeout_ms: 500 };
            let mut frame = request.encode(version, id).unwrap().slice(4..);
            decode_request_header_from_buffer(&mut frame).unwrap();
            let read = ListOffsetsRequest::decode(&mut frame, version).unwrap();
            assert_eq!((read.replica_id.0, read.isolation_level), (-1, 0));
            let asked: Vec<_> = read
                .topics
                .iter()
                .flat_map(|topic| topic.partitions.iter().map(|p| (topic.name.as_str(), p)))
                .map(|(name, p)| (name, p.partition_index, p.timestamp, p.current_leader_epoch))
                .collect();
            let epoch = if version >= 4 { 4 } else { -1 };
            assert_eq!(asked, [("a", 0, -2, epoch), ("a", 1, -1, epoch), ("b", 0, 77, epoch)]);
            assert_eq!(read.topics.len(), 2);
        }
    }
}

//! Answers to Fetch, and decoding them.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use heliostat_core::protocol::fetch_stream::{FetchEvent, FetchLimits, FetchStream};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchResponse, ResponseHeader};
use kafka_protocol::protocol::Encodable;
use uuid::Uuid;

/// Version of every answer: what Kafka 3.9 and newer are asked in.
pub(crate) const VERSION: i16 = 16;
/// Session of every answer.
const SESSION: i32 = 9;
/// Partitions of a topic.
pub(crate) const TOPIC_PARTITIONS: i32 = 100;

/// ID of the topic that holds the `n`th partition of all.
pub(crate) fn topic_id(n: i32) -> Uuid {
    Uuid::from_u128(u128::from((n / TOPIC_PARTITIONS).unsigned_abs()) + 1)
}

/// One partition of an answer: its number among all, and its records.
pub(crate) fn frame(partitions: impl IntoIterator<Item = (i32, Bytes)>) -> Vec<u8> {
    let mut response = FetchResponse::default().with_session_id(SESSION);
    for (n, records) in partitions {
        let data = PartitionData::default()
            .with_partition_index(n % TOPIC_PARTITIONS)
            .with_high_watermark(i64::MAX / 2)
            .with_last_stable_offset(i64::MAX / 2)
            .with_log_start_offset(0)
            .with_records(Some(records));
        match response.responses.last_mut().filter(|topic| topic.topic_id == topic_id(n)) {
            Some(topic) => topic.partitions.push(data),
            None => response.responses.push(
                FetchableTopicResponse::default()
                    .with_topic_id(topic_id(n))
                    .with_partitions(vec![data]),
            ),
        }
    }
    let mut body = BytesMut::new();
    ResponseHeader::default().encode(&mut body, 1).expect("a header");
    response.encode(&mut body, VERSION).expect("an answer");
    sized(&body)
}

/// A frame: its size, and its bytes.
pub(crate) fn sized(body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).expect("a small frame").to_be_bytes();
    [&size[..], body].concat()
}

/// A whole answer, and a decoder that waits for it.
#[derive(Debug)]
pub struct Answer {
    stream: FetchStream,
    frame: Vec<u8>,
}

impl Answer {
    /// `partitions` with `records_bytes` each, in topics of a hundred.
    pub fn new(partitions: i32, records_bytes: usize) -> Self {
        let records = Bytes::from(vec![0; records_bytes]);
        let frame = frame((0..partitions).map(|n| (n, records.clone())));
        Self { stream: FetchStream::new(VERSION, FetchLimits::default()), frame }
    }

    /// Decodes it, records passed over; the number of partitions.
    ///
    /// # Panics
    /// If it cannot be decoded.
    pub fn decode(&mut self) -> usize {
        let (mut rest, mut partitions) = (self.frame.as_slice(), 0);
        loop {
            let (used, event) = self.stream.feed(rest).expect("a legal answer");
            rest = &rest[used..];
            match black_box(event) {
                Some(FetchEvent::Partition(header)) => {
                    let records = usize::try_from(header.records_bytes).expect("they are here");
                    self.stream.records_taken(header.records_bytes);
                    rest = &rest[records..];
                    partitions += 1;
                }
                Some(FetchEvent::End { .. }) => return partitions,
                Some(FetchEvent::Header(_) | FetchEvent::PartitionEnd(_)) => {}
                None => return 0,
            }
        }
    }
}

//! How a source answers a shard: handshake and Fetch, by topic IDs and without sessions.

use bytes::{BufMut, Bytes, BytesMut};
use heliostat_core::types::{LeaderEpoch, Offset, TopicId};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::fetch_request::FetchPartition;
use kafka_protocol::messages::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{
    ApiVersionsResponse, FetchRequest, FetchResponse, RequestHeader, ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable};

use crate::rng::Chance;
use crate::source::{Fetched, Seen, View};

const OUT_OF_RANGE: i16 = 1;
const NOT_LEADER: i16 = 6;
const FENCED: i16 = 74;
const UNKNOWN_EPOCH: i16 = 75;
const UNKNOWN_ID: i16 = 100;
/// Fetch versions that name topics by their IDs.
const VERSIONS: (i16, i16) = (13, 17);

/// How a source answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Without faults.
    pub(crate) is_healing: bool,
    /// It does not look at the epoch of what was fetched last: a sabotage.
    pub(crate) is_blind: bool,
}

/// The answer to a request frame, both with their sizes.
pub(crate) fn answer(
    frame: &Bytes,
    look: &dyn Fn(TopicId, i32) -> Seen,
    chance: &mut Chance,
    how: How,
) -> Bytes {
    let mut request = frame.slice(4..);
    let key = i16::from_be_bytes([request[0], request[1]]);
    let version = i16::from_be_bytes([request[2], request[3]]);
    let header = RequestHeader::decode(&mut request, 2).expect("the header can be read");
    let mut out = BytesMut::new();
    out.put_u32(0);
    let reply = ResponseHeader::default().with_correlation_id(header.correlation_id);
    if key == 18 {
        reply.encode(&mut out, 0).expect("the header can be encoded");
        versions().encode(&mut out, version).expect("the answer can be encoded");
    } else {
        reply.encode(&mut out, 1).expect("the header can be encoded");
        let asked = FetchRequest::decode(&mut request, version).expect("Fetch can be read");
        let response = fetch(&asked, look, chance, how);
        response.encode(&mut out, version).expect("the answer can be encoded");
    }
    let size = u32::try_from(out.len() - 4).expect("small");
    out[..4].copy_from_slice(&size.to_be_bytes());
    out.freeze()
}

fn versions() -> ApiVersionsResponse {
    let api = |key, (min, max)| {
        ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max)
    };
    ApiVersionsResponse::default().with_api_keys(vec![api(1, VERSIONS), api(18, (0, 3))])
}

fn fetch(
    asked: &FetchRequest,
    look: &dyn Fn(TopicId, i32) -> Seen,
    chance: &mut Chance,
    how: How,
) -> FetchResponse {
    let topics = asked.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let data = PartitionData::default()
                .with_partition_index(partition.partition)
                .with_high_watermark(-1)
                .with_last_stable_offset(-1)
                .with_log_start_offset(-1)
                .with_records(Some(Bytes::new()));
            match look(TopicId(topic.topic_id), partition.partition) {
                Seen::Away => data.with_error_code(NOT_LEADER),
                Seen::Gone => data.with_error_code(UNKNOWN_ID),
                Seen::Is(view) => part(data, partition, &view, chance, how),
            }
        });
        let partitions = partitions.collect();
        FetchableTopicResponse::default().with_topic_id(topic.topic_id).with_partitions(partitions)
    });
    FetchResponse::default().with_responses(topics.collect())
}

fn part(
    data: PartitionData,
    asked: &FetchPartition,
    view: &View,
    chance: &mut Chance,
    how: How,
) -> PartitionData {
    if asked.current_leader_epoch >= 0 {
        if asked.current_leader_epoch < view.epoch.0 {
            return data.with_error_code(FENCED);
        }
        if asked.current_leader_epoch > view.epoch.0 {
            return data.with_error_code(UNKNOWN_EPOCH);
        }
    }
    let data = data
        .with_high_watermark(view.end.0)
        .with_last_stable_offset(view.end.0)
        .with_log_start_offset(view.start.0);
    let last = if how.is_blind { -1 } else { asked.last_fetched_epoch };
    match view.fetch(Offset(asked.fetch_offset), LeaderEpoch(last)) {
        Fetched::OutOfRange => data.with_error_code(OUT_OF_RANGE),
        Fetched::Diverging(at) => data.with_diverging_epoch(
            EpochEndOffset::default().with_epoch(at.epoch.0).with_end_offset(at.end_offset.0),
        ),
        Fetched::Batches(batches) => {
            let mut records: Vec<u8> = Vec::new();
            for batch in &batches {
                records.extend_from_slice(&batch.bytes);
            }
            let first = batches.first().map_or(0, |batch| batch.bytes.len());
            if !how.is_healing && batches.len() > 1 && chance.percent(10) {
                records.truncate(chance.between(first, records.len() - 1));
            }
            // Behind the checksum, which covers all that follows it.
            if !how.is_healing && first > 22 && chance.percent(2) {
                records[chance.between(21, first - 1)] ^= 1 << chance.below(8);
            }
            data.with_records(Some(records.into()))
        }
    }
}

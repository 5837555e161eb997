//! Requests and answers of the synthetic source, a thread for each connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResult;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, DescribeConfigsRequest, DescribeConfigsResponse,
    FetchRequest, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, RequestHeader, ResponseHeader,
    TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use uuid::Uuid;

use super::asked::AskedFor;
use super::fetch::Session;
use super::log::SyntheticLog;
use super::raw;

/// What is spoken, with versions that carry topic IDs.
const SERVED: [(ApiKey, i16, i16, i16); 6] = [
    (ApiKey::Fetch, 1, 13, 13),
    (ApiKey::ListOffsets, 2, 4, 6),
    (ApiKey::Metadata, 3, 10, 12),
    (ApiKey::ApiVersions, 18, 0, 3),
    (ApiKey::OffsetForLeaderEpoch, 23, 3, 4),
    (ApiKey::DescribeConfigs, 32, 1, 4),
];
/// Largest request: a first fetch of a million partitions.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Asks for the start of a log.
const EARLIEST: i64 = -2;
/// How long a client may take for a request or an answer.
const PEER_TIMEOUT: Duration = Duration::from_mins(10);

/// Of topic names; a number follows.
const PREFIX: &str = "synthetic-";

/// What is served.
pub(crate) struct Served {
    /// All partitions.
    pub(crate) log: SyntheticLog,
    /// Partitions of a topic.
    pub(crate) per_topic: u64,
    /// When [`Offered::Later`](super::Offered::Later) is to begin.
    pub(crate) told: Arc<OnceLock<Instant>>,
}

/// The one broker.
pub(crate) struct Cluster {
    pub(super) log: SyntheticLog,
    address: SocketAddr,
    pub(super) asked: AskedFor,
    /// Batches of each partition, where they come to whoever goes on.
    turns: Vec<AtomicU64>,
    topics: Vec<Topic>,
    per_topic: u64,
    sessions: AtomicI32,
    told: Arc<OnceLock<Instant>>,
}

struct Topic {
    name: String,
    id: Uuid,
}

impl Cluster {
    /// Partitions are spread over topics of `per_topic`.
    fn new(served: Served, address: SocketAddr) -> Self {
        let Served { log, per_topic, told } = served;
        let per_topic = per_topic.max(1);
        let topics = (0..log.partitions.div_ceil(per_topic))
            .map(|at| Topic {
                name: format!("{PREFIX}{at}"),
                id: Uuid::from_u64_pair(0x4000, (1 << 63) | at),
            })
            .collect();
        let asked = AskedFor::new(log.partitions);
        let turning = if log.takes_turns() { log.partitions } else { 0 };
        let turns = (0..turning).map(|_| AtomicU64::new(0)).collect();
        Self { log, address, asked, turns, topics, per_topic, sessions: AtomicI32::new(1), told }
    }

    /// When batches began to come.
    fn begun(&self) -> Option<Instant> {
        if self.log.is_told() { self.told.get().copied() } else { self.asked.all_since() }
    }

    pub(super) fn births(&self) -> u64 {
        match self.begun() {
            Some(begun) => self.log.births(begun.elapsed()),
            // What is stored is there before anybody asks.
            None if self.log.is_stored() => self.log.births(Duration::ZERO),
            None => 0,
        }
    }

    pub(super) fn birth(&self, births: u64) -> Option<Instant> {
        let begun = self.begun()?;
        self.log.birth(births).map(|at| begun + at)
    }

    /// Batches that a partition holds for somebody who has the first `has`.
    pub(super) fn batches_for(&self, number: u64, births: u64, has: u64) -> u64 {
        match usize::try_from(number).ok().and_then(|at| self.turns.get(at)) {
            None => self.log.batches(number, births),
            Some(turn) if self.asked.all_since().is_some() => {
                turn.fetch_max(has + 1, Ordering::Relaxed);
                has + 1
            }
            Some(turn) => turn.load(Ordering::Relaxed),
        }
    }

    /// Batches that a partition holds.
    fn batches(&self, number: u64) -> u64 {
        match usize::try_from(number).ok().and_then(|at| self.turns.get(at)) {
            None => self.log.batches(number, self.births()),
            Some(turn) => turn.load(Ordering::Relaxed),
        }
    }

    pub(super) fn session_id(&self) -> i32 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Number of a partition among all.
    pub(super) fn number(&self, (topic, partition): (Uuid, i32)) -> Option<u64> {
        let (_, low) = topic.as_u64_pair();
        let number = (low & !(1 << 63)).checked_mul(self.per_topic)?;
        let number = number.checked_add(u64::try_from(partition).ok()?)?;
        (number < self.log.partitions).then_some(number)
    }

    fn named(&self, name: &str) -> Option<&Topic> {
        let number = name.strip_prefix(PREFIX)?.parse::<usize>().ok()?;
        self.topics.get(number)
    }

    fn partitions_of(&self, topic: &Topic) -> i32 {
        let (_, low) = topic.id.as_u64_pair();
        let first = (low & !(1 << 63)) * self.per_topic;
        let count = self.log.partitions.saturating_sub(first).min(self.per_topic);
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let asked: Vec<&Topic> = match &request.topics {
            None => self.topics.iter().collect(),
            Some(topics) => topics
                .iter()
                .filter_map(|asked| match &asked.name {
                    Some(name) => self.named(name),
                    None => self.topics.iter().find(|topic| topic.id == asked.topic_id),
                })
                .collect(),
        };
        let one = |topic: &Topic| {
            let partition = |index| {
                MetadataResponsePartition::default()
                    .with_partition_index(index)
                    .with_leader_id(BrokerId(1))
                    .with_leader_epoch(0)
                    .with_replica_nodes(vec![BrokerId(1)])
                    .with_isr_nodes(vec![BrokerId(1)])
            };
            MetadataResponseTopic::default()
                .with_name(Some(TopicName(text(&topic.name))))
                .with_topic_id(topic.id)
                .with_partitions((0..self.partitions_of(topic)).map(partition).collect())
        };
        let broker = MetadataResponseBroker::default()
            .with_node_id(BrokerId(1))
            .with_host(text(&self.address.ip().to_string()))
            .with_port(i32::from(self.address.port()));
        MetadataResponse::default()
            .with_brokers(vec![broker])
            .with_cluster_id(Some(text("synthetic")))
            .with_controller_id(BrokerId(1))
            .with_topics(asked.into_iter().map(one).collect())
    }

    fn end_of(&self, topic: &str, partition: i32) -> Option<i64> {
        let number = self.number((self.named(topic)?.id, partition))?;
        Some(self.log.end(self.batches(number)))
    }

    fn list_offsets(&self, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| {
                let offset = if partition.timestamp == EARLIEST {
                    Some(0)
                } else {
                    self.end_of(&topic.name, partition.partition_index)
                };
                ListOffsetsPartitionResponse::default()
                    .with_partition_index(partition.partition_index)
                    .with_error_code(if offset.is_some() { 0 } else { 3 })
                    .with_offset(offset.unwrap_or(-1))
                    .with_leader_epoch(0)
            });
            ListOffsetsTopicResponse::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions.collect())
        });
        ListOffsetsResponse::default().with_topics(topics.collect())
    }

    fn epochs(&self, request: &OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse {
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| {
                let end = self.end_of(&topic.topic, partition.partition);
                EpochEndOffset::default()
                    .with_partition(partition.partition)
                    .with_error_code(if end.is_some() { 0 } else { 3 })
                    .with_leader_epoch(0)
                    .with_end_offset(end.unwrap_or(-1))
            });
            OffsetForLeaderTopicResult::default()
                .with_topic(topic.topic.clone())
                .with_partitions(partitions.collect())
        });
        OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
    }
}

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// Serves until the process ends; calls `listening` with the addresses of the listener and of
/// the raw port.
pub(crate) fn serve(
    served: Served,
    listening: impl FnOnce(SocketAddr, SocketAddr),
) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let cluster = Arc::new(Cluster::new(served, address));
    listening(address, raw::serve(&cluster)?);
    loop {
        let (stream, _) = listener.accept()?;
        let cluster = Arc::clone(&cluster);
        // It ends with its connection.
        std::thread::spawn(move || {
            // A client that goes is no fault of the source.
            let _ = connection(&cluster, stream);
        });
    }
}

fn connection(cluster: &Arc<Cluster>, mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PEER_TIMEOUT))?;
    let mut session = Session::new(cluster);
    loop {
        let mut size = [0; 4];
        stream.read_exact(&mut size)?;
        let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
        if size > REQUEST_BYTES_MAX {
            return Err(io::Error::other("a request too large"));
        }
        let mut frame = vec![0; size];
        stream.read_exact(&mut frame)?;
        let response =
            answer(cluster, &mut session, Bytes::from(frame)).map_err(io::Error::other)?;
        stream.write_all(&response)?;
    }
}

fn answer(
    cluster: &Cluster,
    session: &mut Session,
    mut frame: Bytes,
) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    let code = frame.get(..2).and_then(|code| code.try_into().ok()).map_or(-1, i16::from_be_bytes);
    let version = frame.get(2..4).and_then(|it| it.try_into().ok()).map_or(-1, i16::from_be_bytes);
    let api = SERVED.iter().find(|(_, served, ..)| *served == code);
    let Some((api, _, min, max)) = api.copied() else { return Err("an API not served".into()) };
    let header = RequestHeader::decode(&mut frame, api.request_header_version(version))?;
    let mut out = BytesMut::new();
    out.put_i32(0);
    let known = (min..=max).contains(&version);
    let spoken = if known { version } else { 0 };
    ResponseHeader::default()
        .with_correlation_id(header.correlation_id)
        .encode(&mut out, api.response_header_version(spoken))?;
    match api {
        ApiKey::ApiVersions => {
            let keys = SERVED.iter().map(|(_, code, min, max)| {
                ApiVersion::default()
                    .with_api_key(*code)
                    .with_min_version(*min)
                    .with_max_version(*max)
            });
            ApiVersionsResponse::default()
                .with_error_code(if known { 0 } else { 35 })
                .with_api_keys(keys.collect())
                .encode(&mut out, spoken)?;
        }
        _ if !known => return Err("a version not served".into()),
        ApiKey::Metadata => {
            let request = MetadataRequest::decode(&mut frame, version)?;
            cluster.metadata(&request).encode(&mut out, version)?;
        }
        ApiKey::ListOffsets => {
            let request = ListOffsetsRequest::decode(&mut frame, version)?;
            cluster.list_offsets(&request).encode(&mut out, version)?;
        }
        ApiKey::OffsetForLeaderEpoch => {
            let request = OffsetForLeaderEpochRequest::decode(&mut frame, version)?;
            cluster.epochs(&request).encode(&mut out, version)?;
        }
        ApiKey::DescribeConfigs => {
            let request = DescribeConfigsRequest::decode(&mut frame, version)?;
            let results = request.resources.iter().map(|resource| {
                DescribeConfigsResult::default()
                    .with_resource_type(resource.resource_type)
                    .with_resource_name(resource.resource_name.clone())
            });
            DescribeConfigsResponse::default()
                .with_results(results.collect())
                .encode(&mut out, version)?;
        }
        _ => {
            let request = FetchRequest::decode(&mut frame, version)?;
            session.answer(&request).encode(&mut out, version)?;
        }
    }
    let size = i32::try_from(out.len() - 4)?;
    if let Some(field) = out.get_mut(..4) {
        field.copy_from_slice(&size.to_be_bytes());
    }
    Ok(out.freeze())
}

//! A blocking connection to one broker, for what needs no JVM: who leads, and bytes that no
//! client would send.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, ListOffsetsRequest, MetadataRequest, MetadataResponse,
    ProduceRequest, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable as _, HeaderVersion, Request, StrBytes};
use uuid::Uuid;

use super::error::{KafkaError, Result};

/// A broker that does not answer within this is taken for dead.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Largest response that is accepted.
const RESPONSE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Newest Metadata version that is used: the first with topic IDs and names that may be absent.
const METADATA_MAX: i16 = 12;
/// Produce versions of record format 2 that a broker accepts as they come; the newer ones add
/// nothing to the bytes.
const PRODUCE_MIN: i16 = 3;

/// The first ListOffsets that all brokers have which the harness runs.
const LIST_OFFSETS: i16 = 1;
/// "End of the log" as a timestamp.
const LATEST: i64 = -1;
/// Who is no replica.
const CONSUMER: BrokerId = BrokerId(-1);

/// What a broker knows of the cluster.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// Live brokers, by node ID, as `host:port`.
    pub brokers: BTreeMap<i32, String>,
    /// Active controller; with `KRaft` any broker that forwards to it.
    pub controller: i32,
    /// Topics that were asked for.
    pub topics: Vec<TopicView>,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    /// Name.
    pub name: String,
    /// Topic ID; nil where the broker has none.
    pub id: Uuid,
    /// Kafka's error code of the topic; 0 is none.
    pub error_code: i16,
    /// Partitions in order.
    pub partitions: Vec<PartitionView>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Index.
    pub partition: i32,
    /// Node ID of the leader; `None` while there is none.
    pub leader: Option<i32>,
    /// Leader epoch; −1 where the broker does not tell.
    pub leader_epoch: i32,
    /// Node IDs of the replicas, preferred leader first.
    pub replicas: Vec<i32>,
    /// Node IDs of the in-sync replicas.
    pub isr: Vec<i32>,
}

impl TopicView {
    /// The partition of that index.
    pub fn partition(&self, partition: i32) -> Option<&PartitionView> {
        self.partitions.iter().find(|p| p.partition == partition)
    }
}

/// A connection. Requests go one after another.
#[derive(Debug)]
pub struct Wire {
    address: String,
    stream: TcpStream,
    correlation_id: i32,
    /// Lowest and highest version by API key, as the broker offers them.
    versions: BTreeMap<i16, (i16, i16)>,
}

impl Wire {
    /// Connects and asks which versions the broker has.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Wire`] when nobody listens or the broker closes the connection.
    pub fn connect(address: &str) -> Result<Self> {
        Self::connect_within(address, TIMEOUT)
    }

    /// [`connect`](Self::connect) with a limit of its own for every answer, for brokers that may
    /// be paused.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub fn connect_within(address: &str, timeout: Duration) -> Result<Self> {
        let failed = |source| KafkaError::Wire { address: address.into(), what: "connect", source };
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_read_timeout(Some(timeout)).map_err(failed)?;
        stream.set_write_timeout(Some(timeout)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut wire =
            Self { address: address.into(), stream, correlation_id: 0, versions: BTreeMap::new() };
        let answer = wire.call(&ApiVersionsRequest::default(), 0)?;
        check("ApiVersions", answer.error_code)?;
        wire.versions =
            answer.api_keys.iter().map(|a| (a.api_key, (a.min_version, a.max_version))).collect();
        Ok(wire)
    }

    /// Lowest and highest version of an API that the broker offers.
    pub fn offered(&self, api_key: i16) -> Option<(i16, i16)> {
        self.versions.get(&api_key).copied()
    }

    /// Sends `request` in `version` and waits for its response.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Wire`] when the connection breaks, [`KafkaError::Codec`] when a message does
    /// not fit the version.
    pub fn call<R: Request>(&mut self, request: &R, version: i16) -> Result<R::Response> {
        self.send(request, version)?;
        let mut frame = self.receive()?;
        let codec = |message: String| KafkaError::Codec { api: api_name::<R>(), message };
        let header_version = <R::Response as HeaderVersion>::header_version(version);
        let header =
            ResponseHeader::decode(&mut frame, header_version).map_err(|e| codec(e.to_string()))?;
        if header.correlation_id != self.correlation_id {
            return Err(codec(format!(
                "correlation ID {} answers {}",
                header.correlation_id, self.correlation_id
            )));
        }
        R::Response::decode(&mut frame, version).map_err(|e| codec(e.to_string()))
    }

    fn send<R: Request>(&mut self, request: &R, version: i16) -> Result<()> {
        let codec = |message: String| KafkaError::Codec { api: api_name::<R>(), message };
        self.correlation_id += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(StrBytes::from_static_str("harness")));
        let mut body = BytesMut::new();
        header.encode(&mut body, R::header_version(version)).map_err(|e| codec(e.to_string()))?;
        request.encode(&mut body, version).map_err(|e| codec(e.to_string()))?;
        let size = i32::try_from(body.len()).map_err(|e| codec(e.to_string()))?;
        let failed = self.failed("send");
        self.stream
            .write_all(&size.to_be_bytes())
            .and_then(|()| self.stream.write_all(&body))
            .map_err(failed)
    }

    fn receive(&mut self) -> Result<Bytes> {
        let failed = self.failed("receive");
        let mut size = [0; 4];
        let read = self.stream.read_exact(&mut size).and_then(|()| {
            let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
            if size > RESPONSE_BYTES_MAX {
                return Err(io::Error::other("response too large"));
            }
            let mut frame = vec![0; size];
            self.stream.read_exact(&mut frame).map(|()| frame)
        });
        read.map(Bytes::from).map_err(failed)
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> KafkaError + use<> {
        let address = self.address.clone();
        move |source| KafkaError::Wire { address, what, source }
    }

    /// The broker's view of the cluster and of `topics`.
    ///
    /// # Errors
    ///
    /// Those of [`call`](Self::call).
    pub fn metadata(&mut self, topics: &[&str]) -> Result<ClusterView> {
        let version =
            self.offered(MetadataRequest::KEY).map_or(1, |(_, max)| max.min(METADATA_MAX));
        let names = topics.iter().map(|name| {
            MetadataRequestTopic::default()
                .with_name(Some(TopicName(StrBytes::from_string((*name).to_owned()))))
        });
        let request = MetadataRequest::default()
            .with_topics(Some(names.collect()))
            .with_allow_auto_topic_creation(false);
        Ok(cluster_view(&self.call(&request, version)?))
    }

    /// Log end offsets of partitions 0 to `partitions` of a topic that this broker leads; those
    /// that it does not lead, or not yet, are left out.
    ///
    /// # Errors
    ///
    /// Those of [`call`](Self::call).
    pub fn ends(&mut self, topic: &str, partitions: i32) -> Result<BTreeMap<i32, i64>> {
        let partition = |index| {
            ListOffsetsPartition::default().with_partition_index(index).with_timestamp(LATEST)
        };
        let asked = ListOffsetsTopic::default()
            .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
            .with_partitions((0..partitions).map(partition).collect());
        let request =
            ListOffsetsRequest::default().with_replica_id(CONSUMER).with_topics(vec![asked]);
        let answer = self.call(&request, LIST_OFFSETS)?;
        let found = answer.topics.iter().flat_map(|topic| &topic.partitions);
        Ok(found
            .filter(|partition| partition.error_code == 0)
            .map(|partition| (partition.partition_index, partition.offset))
            .collect())
    }

    /// Sends `records` as they are, with Produce v3, and returns the offset of the first.
    ///
    /// The broker checks sizes, CRC, magic and sequence; it sets base offset and leader epoch and
    /// keeps the other bytes, unless the topic's configuration makes it recompress.
    ///
    /// # Errors
    ///
    /// [`KafkaError::ErrorCode`] with the broker's verdict on the records.
    pub fn produce(&mut self, topic: &str, partition: i32, records: Bytes) -> Result<i64> {
        let data =
            PartitionProduceData::default().with_index(partition).with_records(Some(records));
        let topic_data = TopicProduceData::default()
            .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
            .with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(i32::try_from(TIMEOUT.as_millis()).unwrap_or(i32::MAX))
            .with_topic_data(vec![topic_data]);
        let answer = self.call(&request, PRODUCE_MIN)?;
        let first = answer.responses.first().and_then(|t| t.partition_responses.first());
        let first = first.ok_or_else(|| KafkaError::Codec {
            api: "Produce",
            message: "the response has no partition".into(),
        })?;
        check("Produce", first.error_code)?;
        Ok(first.base_offset)
    }
}

fn cluster_view(answer: &MetadataResponse) -> ClusterView {
    let nodes = |ids: &[BrokerId]| ids.iter().map(|id| id.0).collect();
    ClusterView {
        brokers: answer
            .brokers
            .iter()
            .map(|b| (b.node_id.0, format!("{}:{}", b.host.as_str(), b.port)))
            .collect(),
        controller: answer.controller_id.0,
        topics: answer
            .topics
            .iter()
            .map(|topic| {
                let mut partitions: Vec<_> = topic
                    .partitions
                    .iter()
                    .map(|p| PartitionView {
                        partition: p.partition_index,
                        leader: (p.leader_id.0 >= 0).then_some(p.leader_id.0),
                        leader_epoch: p.leader_epoch,
                        replicas: nodes(&p.replica_nodes),
                        isr: nodes(&p.isr_nodes),
                    })
                    .collect();
                partitions.sort_by_key(|p| p.partition);
                TopicView {
                    name: topic.name.as_ref().map_or_else(String::new, |n| n.as_str().to_owned()),
                    id: topic.topic_id,
                    error_code: topic.error_code,
                    partitions,
                }
            })
            .collect(),
    }
}

fn check(api: &'static str, code: i16) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(KafkaError::ErrorCode { api, code }) }
}

fn api_name<R>() -> &'static str {
    std::any::type_name::<R>().rsplit("::").next().unwrap_or("request")
}

/// Whether somebody accepts connections at `address`.
pub(crate) fn listens(address: &str) -> bool {
    TcpStream::connect(address).is_ok()
}

//! A raw client over kafka-protocol's encoders, and a listener to talk to.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use heliostat_core::log::config::LogConfig;
use heliostat_core::records::{BatchBuilder, Compression, EndTxnMarker, NewRecord};
use heliostat_core::types::{
    BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicId,
};
use heliostat_io::listener::hosted::{Catalog, CatalogConfig, Partition, TopicSpec};
use heliostat_io::listener::{Listener, ListenerConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{
    ApiKey, FetchRequest, FetchResponse, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, Request, StrBytes};
use tempfile::TempDir;
use uuid::Uuid;

pub(crate) const NODE: BrokerId = BrokerId(1);
/// Longer than anything here takes, shorter than a person's patience.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// A catalog in a fresh directory, and a listener on it.
pub(crate) struct Served {
    pub(crate) listener: Option<Listener>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) dir: TempDir,
}

pub(crate) fn catalog_config() -> CatalogConfig {
    CatalogConfig {
        cluster_id: "test-cluster".to_owned(),
        node_id: NODE,
        log: LogConfig::default(),
    }
}

pub(crate) fn listener_config() -> ListenerConfig {
    ListenerConfig::new((Ipv4Addr::LOCALHOST, 0).into(), NODE)
}

impl Served {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ListenerConfig)) -> Self {
        let dir = tempfile::tempdir().expect("scratch directory");
        let catalog = Arc::new(Catalog::open(dir.path(), catalog_config()).expect("empty log dir"));
        let mut config = listener_config();
        change(&mut config);
        let listener = Listener::start(Arc::clone(&catalog), config).expect("loopback");
        Self { listener: Some(listener), catalog, dir }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.as_ref().expect("running").address()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address())
    }

    pub(crate) fn topic(&self, name: &str, partitions: i32) -> Vec<Arc<Partition>> {
        self.topic_with(name, partitions, LogConfig::default())
    }

    pub(crate) fn topic_with(
        &self,
        name: &str,
        partitions: i32,
        log: LogConfig,
    ) -> Vec<Arc<Partition>> {
        let spec = TopicSpec {
            name: name.to_owned(),
            partitions,
            topic_id: topic_id(name),
            configs: BTreeMap::from([("cleanup.policy".to_owned(), "compact".to_owned())]),
            log,
        };
        self.catalog.create_topic(spec).expect("new topic").partitions
    }
}

pub(crate) fn topic_id(name: &str) -> TopicId {
    let mut bytes = [0x40; 16];
    for (slot, byte) in bytes.iter_mut().zip(name.bytes()) {
        *slot = byte;
    }
    TopicId(Uuid::from_bytes(bytes))
}

/// A batch of `records` records with values of `bytes` bytes, time 1000 on.
pub(crate) fn batch(records: u8, bytes: usize) -> Vec<u8> {
    build(BatchBuilder::new(Offset(0)), records, bytes, 1000)
}

pub(crate) fn batch_at(records: u8, bytes: usize, time: i64) -> Vec<u8> {
    build(BatchBuilder::new(Offset(0)), records, bytes, time)
}

pub(crate) fn compressed(codec: Compression, records: u8, bytes: usize, time: i64) -> Vec<u8> {
    build(BatchBuilder::new(Offset(0)).compression(codec), records, bytes, time)
}

pub(crate) fn transactional(producer: i64, records: u8) -> Vec<u8> {
    let builder = BatchBuilder::new(Offset(0))
        .producer(ProducerId(producer), ProducerEpoch(0), 0)
        .transactional();
    build(builder, records, 10, 1000)
}

pub(crate) fn marker(producer: i64, committed: bool) -> Vec<u8> {
    EndTxnMarker {
        offset: Offset(0),
        leader_epoch: LeaderEpoch(0),
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(0),
        committed,
        coordinator_epoch: 0,
        timestamp: TimestampMs(1000),
    }
    .build()
    .expect("marker")
}

fn build(mut builder: BatchBuilder, records: u8, bytes: usize, time: i64) -> Vec<u8> {
    for index in 0..records {
        let value = vec![index; bytes];
        let record = NewRecord {
            timestamp: TimestampMs(time + i64::from(index)),
            key: Some(b"key"),
            value: Some(&value),
            headers: &[("h", Some(b"v"))],
        };
        builder.push(&record).expect("small");
    }
    builder.build().expect("small")
}

pub(crate) fn append(partition: &Partition, mut batch: Vec<u8>) -> Vec<u8> {
    partition.append_as_leader(&mut batch).expect("appended");
    batch
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    next_id: i32,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("listening");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Self { stream, next_id: 0 }
    }

    /// Sends a request and does not wait; its correlation ID.
    pub(crate) fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        self.next_id += 1;
        let mut out = BytesMut::new();
        out.put_i32(0);
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.next_id)
            .with_client_id(Some(text("test")));
        header.encode(&mut out, R::header_version(version)).expect("header");
        request.encode(&mut out, version).expect("request");
        let length = i32::try_from(out.len() - 4).expect("small");
        out[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&out).expect("sent");
        self.next_id
    }

    /// The next response; panics if it is not the one of `id`.
    pub(crate) fn receive<R: Request>(&mut self, version: i16, id: i32) -> R::Response {
        let mut frame = self.frame();
        let api = ApiKey::try_from(R::KEY).expect("known");
        let header = api.response_header_version(version);
        let header = ResponseHeader::decode(&mut frame, header).expect("header");
        assert_eq!(header.correlation_id, id);
        let response = R::Response::decode(&mut frame, version).expect("body");
        assert!(!frame.has_remaining(), "{api:?} v{version}: bytes behind the response");
        response
    }

    pub(crate) fn frame(&mut self) -> Bytes {
        let mut field = [0; 4];
        self.stream.read_exact(&mut field).expect("a response");
        let length = usize::try_from(i32::from_be_bytes(field)).expect("not negative");
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame).expect("a whole response");
        frame.into()
    }

    pub(crate) fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let id = self.send(version, request);
        self.receive::<R>(version, id)
    }

    /// Whether the listener closes, after whatever it still sends.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut sink = [0; 4096];
        loop {
            match self.stream.read(&mut sink) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}

/// What a fetch asks of one partition.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) max_bytes: i32,
    pub(crate) epoch: i32,
    pub(crate) last_epoch: i32,
}

pub(crate) fn ask(partition: i32, offset: i64) -> Ask {
    Ask { partition, offset, max_bytes: 1 << 20, epoch: -1, last_epoch: -1 }
}

/// A full fetch without a session that waits for nothing.
pub(crate) fn fetch(version: i16, topic: &str, asks: &[Ask]) -> FetchRequest {
    let partitions = asks.iter().map(|ask| {
        let mut out = FetchPartition::default()
            .with_partition(ask.partition)
            .with_fetch_offset(ask.offset)
            .with_partition_max_bytes(ask.max_bytes);
        if version >= 9 {
            out.current_leader_epoch = ask.epoch;
        }
        if version >= 12 {
            out.last_fetched_epoch = ask.last_epoch;
        }
        out
    });
    let mut fetched = FetchTopic::default().with_partitions(partitions.collect());
    if version >= 13 {
        fetched.topic_id = topic_id(topic).0;
    } else {
        fetched.topic = TopicName(text(topic));
    }
    let mut request = FetchRequest::default()
        .with_max_bytes(i32::MAX)
        .with_topics(if asks.is_empty() { Vec::new() } else { vec![fetched] });
    if version >= 7 {
        request.session_epoch = -1;
    }
    request
}

/// The partitions of a response, in order.
pub(crate) fn partitions(response: &FetchResponse) -> Vec<&PartitionData> {
    response.responses.iter().flat_map(|topic| &topic.partitions).collect()
}

/// The one partition of a response.
pub(crate) fn only(response: &FetchResponse) -> &PartitionData {
    match partitions(response)[..] {
        [only] => only,
        ref all => panic!("{} partitions in the response", all.len()),
    }
}

pub(crate) fn records(partition: &PartitionData) -> &[u8] {
    partition.records.as_deref().unwrap_or_default()
}

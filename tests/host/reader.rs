//! A client that reads a host's logs, over kafka-protocol's encoders.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use heliostat_core::records::{BatchMeta, BatchWalker, WalkLimits};
use heliostat_core::types::TopicId;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{
    ApiKey, FetchRequest, FetchResponse, ListOffsetsRequest, OffsetForLeaderEpochRequest,
    RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, Request, StrBytes};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(50);

pub(crate) struct Reader {
    stream: TcpStream,
    next_id: i32,
}

/// What is asked of one partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) offset: i64,
    pub(crate) epoch: i32,
    pub(crate) last_epoch: i32,
    pub(crate) max_bytes: i32,
    pub(crate) max_wait_ms: i32,
    pub(crate) committed: bool,
    /// Of a session, with its epoch.
    pub(crate) session: (i32, i32),
}

pub(crate) fn ask(offset: i64) -> Ask {
    Ask {
        offset,
        epoch: -1,
        last_epoch: -1,
        max_bytes: 1 << 20,
        max_wait_ms: 0,
        committed: false,
        session: (0, -1),
    }
}

/// The topic, as a version names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named<'a> {
    Name(&'a str),
    Id(TopicId),
}

pub(crate) fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

impl Reader {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, next_id: 0 }
    }

    pub(crate) fn send<R: Request>(&mut self, version: i16, request: &R) {
        self.next_id += 1;
        let mut out = BytesMut::new();
        out.put_i32(0);
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.next_id);
        header.encode(&mut out, R::header_version(version)).unwrap();
        request.encode(&mut out, version).unwrap();
        let length = i32::try_from(out.len() - 4).unwrap();
        out[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&out).unwrap();
    }

    /// The next answer; `None` if the host has closed.
    pub(crate) fn try_receive<R: Request>(&mut self, version: i16) -> Option<R::Response> {
        let mut field = [0; 4];
        self.stream.read_exact(&mut field).ok()?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(field)).unwrap()];
        self.stream.read_exact(&mut frame).ok()?;
        let mut frame = Bytes::from(frame);
        let header = ApiKey::try_from(R::KEY).unwrap().response_header_version(version);
        let header = ResponseHeader::decode(&mut frame, header).unwrap();
        assert_eq!(header.correlation_id, self.next_id);
        let response = R::Response::decode(&mut frame, version).unwrap();
        assert!(!frame.has_remaining(), "bytes behind the response");
        Some(response)
    }

    pub(crate) fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.send(version, request);
        self.try_receive::<R>(version).unwrap()
    }

    pub(crate) fn fetch(
        &mut self,
        version: i16,
        topic: Named<'_>,
        partition: i32,
        ask: Ask,
    ) -> PartitionData {
        self.send_fetch(version, topic, partition, ask);
        self.fetched(version)
    }

    pub(crate) fn send_fetch(&mut self, version: i16, topic: Named<'_>, partition: i32, ask: Ask) {
        self.send(version, &fetch(version, topic, partition, ask));
    }

    pub(crate) fn fetched(&mut self, version: i16) -> PartitionData {
        let mut response = self.try_receive::<FetchRequest>(version).unwrap();
        assert_eq!(response.error_code, 0);
        response.responses.remove(0).partitions.remove(0)
    }

    /// The end of an epoch and which it is; or the error.
    pub(crate) fn epoch_end(
        &mut self,
        topic: &str,
        current: i32,
        epoch: i32,
    ) -> Result<(i32, i64), i16> {
        let partition = OffsetForLeaderPartition::default()
            .with_partition(0)
            .with_current_leader_epoch(current)
            .with_leader_epoch(epoch);
        let topic = OffsetForLeaderTopic::default()
            .with_topic(name(topic))
            .with_partitions(vec![partition]);
        let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
        let found = self.call(4, &request).topics.remove(0).partitions.remove(0);
        match found.error_code {
            0 => Ok((found.leader_epoch, found.end_offset)),
            error => Err(error),
        }
    }

    /// Offset and epoch; or the error.
    pub(crate) fn list_offset(&mut self, topic: &str, timestamp: i64) -> Result<(i64, i32), i16> {
        let partition =
            ListOffsetsPartition::default().with_timestamp(timestamp).with_current_leader_epoch(-1);
        let topic =
            ListOffsetsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default().with_topics(vec![topic]);
        let found = self.call(7, &request).topics.remove(0).partitions.remove(0);
        match found.error_code {
            0 => Ok((found.offset, found.leader_epoch)),
            error => Err(error),
        }
    }

    /// All that there is of a partition, its checksums checked.
    pub(crate) fn read_all(&mut self, topic: &str, partition: i32) -> Vec<u8> {
        let mut all = Vec::new();
        let mut next = 0;
        loop {
            let got = self.fetch(12, Named::Name(topic), partition, ask(next));
            assert_eq!(got.error_code, 0, "{topic}-{partition} at {next}");
            let bytes = got.records.unwrap_or_default();
            let metas = walk(&bytes);
            let Some(last) = metas.last() else { return all };
            assert!(metas[0].base_offset.0 >= next);
            next = last.next_offset().0;
            let whole: usize = metas.iter().map(size).sum();
            all.extend_from_slice(&bytes[..whole]);
        }
    }
}

pub(crate) fn size(meta: &BatchMeta) -> usize {
    usize::try_from(meta.size_bytes).unwrap()
}

pub(crate) fn fetch(version: i16, topic: Named<'_>, partition: i32, ask: Ask) -> FetchRequest {
    let mut one = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(ask.offset)
        .with_partition_max_bytes(ask.max_bytes);
    if version >= 9 {
        one.current_leader_epoch = ask.epoch;
    }
    if version >= 12 {
        one.last_fetched_epoch = ask.last_epoch;
    }
    let mut wanted = FetchTopic::default().with_partitions(vec![one]);
    match topic {
        Named::Name(topic) => wanted.topic = name(topic),
        Named::Id(id) => wanted.topic_id = id.0,
    }
    let mut request = FetchRequest::default()
        .with_max_bytes(i32::MAX)
        .with_min_bytes(1)
        .with_max_wait_ms(ask.max_wait_ms)
        .with_isolation_level(i8::from(ask.committed))
        .with_topics(vec![wanted]);
    if version >= 7 {
        (request.session_id, request.session_epoch) = ask.session;
    }
    request
}

/// The one partition of an answer, if it says something of it.
pub(crate) fn only(response: FetchResponse) -> Option<PartitionData> {
    response.responses.into_iter().next()?.partitions.into_iter().next()
}

/// The whole batches of an answer; the last may be cut off.
pub(crate) fn walk(bytes: &[u8]) -> Vec<BatchMeta> {
    let mut walker = BatchWalker::new(WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true });
    let (mut rest, mut metas) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (used, meta) = walker.feed(rest).unwrap();
        let Some(meta) = meta else { break };
        metas.push(meta);
        rest = &rest[used..];
    }
    metas
}

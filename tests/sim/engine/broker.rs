//! How a broker of the source answers: handshake, fetch sessions, Fetch.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::{BufMut, Bytes, BytesMut};
use heliostat_core::types::{LeaderEpoch, Offset};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use kafka_protocol::messages::{
    ApiVersionsResponse, BrokerId, FetchRequest, FetchResponse, RequestHeader, ResponseHeader,
    TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

use crate::cluster::{Batch, Cluster, Replica, View};
use crate::disk::Faults;
use crate::rng::Chance;

const NONE: i16 = 0;
const OUT_OF_RANGE: i16 = 1;
const UNKNOWN_TOPIC: i16 = 3;
const NOT_LEADER: i16 = 6;
const UNSUPPORTED: i16 = 35;
const STORAGE_ERROR: i16 = 56;
const NO_SUCH_SESSION: i16 = 70;
const BAD_SESSION_EPOCH: i16 = 71;
const FENCED: i16 = 74;
const UNKNOWN_EPOCH: i16 = 75;
const NOT_AVAILABLE: i16 = 78;
const UNKNOWN_ID: i16 = 100;
const SESSION_ID_ERROR: i16 = 106;

/// What a fetch asks of one partition.
#[derive(Clone, Copy, Debug)]
struct Position {
    offset: i64,
    leader_epoch: i32,
    last_epoch: i32,
    max_bytes: usize,
    /// High watermark and log start that were told last.
    told: (i64, i64),
}

#[derive(Debug)]
struct Session {
    epoch: i32,
    by_id: bool,
    partitions: BTreeMap<usize, Position>,
}

/// What a broker remembers and how it is.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) id: i32,
    /// Newest Fetch version.
    pub(crate) fetch_version: i16,
    sessions: BTreeMap<i32, Session>,
    next_session: i32,
    chance: Chance,
}

/// How often, in percent or permille, a broker misbehaves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BrokerFaults {
    pub(crate) no_session: usize,
    pub(crate) throttle: usize,
    pub(crate) corrupt: usize,
    pub(crate) storage: usize,
    pub(crate) not_available: usize,
    pub(crate) hints: bool,
    pub(crate) broken_answer: usize,
    pub(crate) session_epoch: usize,
}

/// Batches that were served: by partition, the offset in front of each.
pub(crate) type Served = Vec<(usize, i64, Rc<Batch>)>;

pub(crate) struct Answer {
    pub(crate) frame: Bytes,
    pub(crate) served: Served,
    /// Nothing new: the broker would wait for more.
    pub(crate) is_idle: bool,
}

/// The part of the answer that belongs to one partition.
struct Part {
    data: PartitionData,
    hint: bool,
}

impl Broker {
    pub(crate) fn new(id: i32, fetch_version: i16, chance: Chance) -> Self {
        Self { id, fetch_version, sessions: BTreeMap::new(), next_session: id * 1000, chance }
    }

    pub(crate) fn forget_sessions(&mut self) {
        self.sessions.clear();
    }

    /// The answer to a request frame, its size included.
    pub(crate) fn answer(
        &mut self,
        frame: &Bytes,
        cluster: &Cluster,
        plan: &BrokerFaults,
        faults: &mut Faults,
    ) -> Answer {
        let mut request = frame.slice(4..);
        let key = i16::from_be_bytes([request[0], request[1]]);
        let version = i16::from_be_bytes([request[2], request[3]]);
        let flexible = if key == 18 { version >= 3 } else { version >= 12 };
        let header = RequestHeader::decode(&mut request, if flexible { 2 } else { 1 })
            .expect("the header can be read");
        let mut out = BytesMut::new();
        out.put_u32(0);
        let id = header.correlation_id;
        let mut served = Vec::new();
        let mut is_idle = false;
        if key == 18 {
            out.put_i32(id);
            let (response, version) = self.versions(version);
            response.encode(&mut out, version).expect("the answer can be encoded");
        } else {
            assert_eq!(key, 1, "only ApiVersions and Fetch are asked");
            let wrong = self.chance.below(1_000) < plan.broken_answer;
            if wrong {
                faults.count("answer to another request");
            }
            ResponseHeader::default()
                .with_correlation_id(id + i32::from(wrong))
                .encode(&mut out, i16::from(flexible))
                .expect("the header can be encoded");
            let fetch = FetchRequest::decode(&mut request, version).expect("Fetch can be read");
            let response = self.fetch(&fetch, version, cluster, plan, faults, &mut served);
            let quiet = |data: &PartitionData| {
                data.error_code == NONE
                    && data.diverging_epoch.epoch < 0
                    && data.records.as_ref().is_none_or(Bytes::is_empty)
            };
            is_idle = response.responses.iter().flat_map(|topic| &topic.partitions).all(quiet)
                && response.error_code == NONE
                && response.throttle_time_ms == 0
                && fetch.max_wait_ms > 0;
            response.encode(&mut out, version).expect("the answer can be encoded");
        }
        let size = u32::try_from(out.len() - 4).expect("small");
        out[..4].copy_from_slice(&size.to_be_bytes());
        Answer { frame: out.freeze(), served, is_idle }
    }

    /// The answer, and the version that it is written in.
    fn versions(&self, version: i16) -> (ApiVersionsResponse, i16) {
        let newest = if self.fetch_version <= 11 { 2 } else { 3 };
        let refused = version > newest;
        let api = |key, min, max| {
            ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max)
        };
        let response = ApiVersionsResponse::default()
            .with_error_code(if refused { UNSUPPORTED } else { NONE })
            .with_api_keys(vec![api(1, 4, self.fetch_version), api(18, 0, newest)]);
        (response, if refused { 0 } else { version })
    }

    fn fetch(
        &mut self,
        request: &FetchRequest,
        version: i16,
        cluster: &Cluster,
        plan: &BrokerFaults,
        faults: &mut Faults,
        served: &mut Served,
    ) -> FetchResponse {
        let mut response = FetchResponse::default();
        let throttled = self.chance.percent(plan.throttle);
        if throttled {
            faults.count("throttled answer");
            response.throttle_time_ms = self.chance.pick(&[50, 400, 3_000]);
        }
        let asked = asked(request, version, cluster);
        if version < 7 || request.session_epoch <= 0 {
            if request.session_id != 0 {
                self.sessions.remove(&request.session_id);
            }
            if throttled {
                return response;
            }
            let mut partitions: Vec<_> = asked;
            let parts = self.parts(&mut partitions, false, version, cluster, plan, faults, served);
            if version >= 7 && request.session_epoch == 0 {
                if self.chance.percent(plan.no_session) {
                    faults.count("no room for a session");
                } else {
                    self.next_session += 1;
                    response.session_id = self.next_session;
                    let partitions = partitions.into_iter().collect();
                    let by_id = version > 12;
                    self.sessions
                        .insert(self.next_session, Session { epoch: 1, by_id, partitions });
                }
            }
            return self.assemble(response, parts, version, cluster);
        }
        let Some(mut session) = self.sessions.remove(&request.session_id) else {
            faults.count("session evicted");
            return response.with_error_code(NO_SUCH_SESSION);
        };
        if self.chance.below(1_000) < plan.session_epoch {
            session.epoch += 1;
        }
        if session.epoch != request.session_epoch {
            self.sessions.insert(request.session_id, session);
            faults.count("session epoch error");
            return response.with_error_code(BAD_SESSION_EPOCH);
        }
        if session.by_id != (version > 12) {
            self.sessions.insert(request.session_id, session);
            return response.with_error_code(SESSION_ID_ERROR);
        }
        session.epoch += 1;
        for topic in &request.forgotten_topics_data {
            for index in &topic.partitions {
                if let Some(p) = find(cluster, version, &topic.topic, topic.topic_id, *index) {
                    session.partitions.remove(&p);
                }
            }
        }
        session.partitions.extend(asked);
        response.session_id = request.session_id;
        if !throttled {
            let mut partitions: Vec<_> = session.partitions.into_iter().collect();
            // What gave records goes to the end, as in Kafka.
            if partitions.len() > 1 {
                let turn = self.chance.below(partitions.len());
                partitions.rotate_left(turn);
            }
            let parts = self.parts(&mut partitions, true, version, cluster, plan, faults, served);
            session.partitions = partitions.into_iter().collect();
            response = self.assemble(response, parts, version, cluster);
        }
        self.sessions.insert(request.session_id, session);
        response
    }

    #[expect(clippy::too_many_arguments, reason = "the surroundings of one answer")]
    fn parts(
        &mut self,
        partitions: &mut [(usize, Position)],
        incremental: bool,
        version: i16,
        cluster: &Cluster,
        plan: &BrokerFaults,
        faults: &mut Faults,
        served: &mut Served,
    ) -> Vec<(usize, Part)> {
        let mut room = 3_000_000;
        let mut first = true;
        let mut parts = Vec::new();
        for (p, position) in partitions {
            let budget = (room, first);
            let mut part = self.part(*p, position, version, budget, cluster, plan, faults, served);
            let bytes = part.data.records.as_ref().map_or(0, Bytes::len);
            if bytes > 0 {
                first = false;
                room -= bytes.min(room);
            }
            let told = (part.data.high_watermark, part.data.log_start_offset);
            let news = bytes > 0
                || part.data.error_code != NONE
                || part.data.diverging_epoch.epoch >= 0
                || position.told != told;
            position.told = if part.data.error_code == NONE { told } else { (-1, -1) };
            if version < 5 {
                part.data.log_start_offset = -1;
            }
            if !incremental || news {
                parts.push((*p, part));
            }
        }
        parts
    }

    #[expect(clippy::too_many_arguments, reason = "the surroundings of one answer")]
    fn part(
        &mut self,
        p: usize,
        position: &Position,
        version: i16,
        budget: (usize, bool),
        cluster: &Cluster,
        plan: &BrokerFaults,
        faults: &mut Faults,
        served: &mut Served,
    ) -> Part {
        let partition = &cluster.partitions[p];
        let data = PartitionData::default()
            .with_partition_index(partition.index)
            .with_high_watermark(-1)
            .with_last_stable_offset(-1)
            .with_log_start_offset(-1)
            .with_records(Some(Bytes::new()));
        let plain =
            |data: PartitionData, error| Part { data: data.with_error_code(error), hint: false };
        let topic = &cluster.topics[partition.topic];
        if topic.deleted {
            faults.count("topic deleted");
            return plain(data, if version > 12 { UNKNOWN_ID } else { UNKNOWN_TOPIC });
        }
        let Some(replica) = partition.replicas.get(&self.id) else {
            faults.count("broker without the partition");
            return plain(data, NOT_LEADER);
        };
        let View { leader, epoch } = replica.view;
        if leader != self.id {
            let hint = plan.hints && version >= 12;
            faults.count(if hint { "not the leader, with a hint" } else { "not the leader" });
            return Part { data: data.with_error_code(NOT_LEADER), hint };
        }
        if leader != partition.truth.leader {
            faults.count("a deposed leader answers");
        }
        if version >= 9 && position.leader_epoch >= 0 {
            if position.leader_epoch < epoch {
                faults.count("fenced epoch");
                let hint = plan.hints && version >= 12;
                return Part { data: data.with_error_code(FENCED), hint };
            }
            if position.leader_epoch > epoch {
                faults.count("unknown epoch");
                return plain(data, UNKNOWN_EPOCH);
            }
        }
        if self.chance.below(1_000) < plan.storage {
            faults.count("storage error of a broker");
            return plain(data, STORAGE_ERROR);
        }
        let data = data.with_log_start_offset(replica.log_start);
        if version >= 12 && position.last_epoch >= 0 {
            let asked = LeaderEpoch(position.last_epoch);
            let (found, end) = replica.epochs.end_offset_for(asked, Offset(replica.end));
            if found == LeaderEpoch::NONE || position.offset < replica.log_start {
                faults.count("offset out of range");
                return plain(data, OUT_OF_RANGE);
            }
            if found < asked || end.0 < position.offset {
                faults.count("diverging epoch");
                let diverging =
                    EpochEndOffset::default().with_epoch(found.0).with_end_offset(end.0);
                return plain(
                    data.with_high_watermark(replica.high_watermark)
                        .with_last_stable_offset(replica.high_watermark)
                        .with_diverging_epoch(diverging),
                    NONE,
                );
            }
        }
        if position.offset < replica.log_start || position.offset > replica.end {
            faults.count("offset out of range");
            return plain(data, OUT_OF_RANGE);
        }
        if position.offset > replica.high_watermark && self.chance.percent(plan.not_available) {
            faults.count("offset not available");
            return plain(data, NOT_AVAILABLE);
        }
        let mut records = gather(replica, p, position, budget, faults, served);
        if records.len() > 20 && self.chance.below(1_000) < plan.corrupt {
            // Base offset and epoch are under no checksum.
            let at = self.chance.between(17, records.len() - 1);
            if unprotected(&records, at) {
                records[8] ^= 1;
            } else {
                records[at] ^= 1 << self.chance.below(8);
            }
            faults.count("corrupt batch on the wire");
        }
        let data = data
            .with_high_watermark(replica.high_watermark)
            .with_last_stable_offset(replica.high_watermark)
            .with_records(Some(records.freeze()));
        plain(data, NONE)
    }

    fn assemble(
        &self,
        mut response: FetchResponse,
        parts: Vec<(usize, Part)>,
        version: i16,
        cluster: &Cluster,
    ) -> FetchResponse {
        let mut hinted = Vec::new();
        for (p, Part { mut data, hint }) in parts {
            let Some(partition) = cluster.partitions.get(p) else { continue };
            if let Some(replica) = partition.replicas.get(&self.id).filter(|_| hint) {
                let View { leader, epoch } = replica.view;
                data.current_leader = LeaderIdAndEpoch::default()
                    .with_leader_id(BrokerId(leader))
                    .with_leader_epoch(epoch);
                hinted.push(leader);
            }
            let topic = &cluster.topics[partition.topic];
            let same = |entry: &FetchableTopicResponse| {
                if version > 12 {
                    entry.topic_id == topic.id
                } else {
                    entry.topic.0.as_str() == topic.name
                }
            };
            if response.responses.last().is_none_or(|last| !same(last)) {
                let name = TopicName(StrBytes::from_string(topic.name.clone()));
                let mut entry = FetchableTopicResponse::default();
                if version > 12 {
                    entry.topic_id = topic.id;
                } else {
                    entry.topic = name;
                }
                response.responses.push(entry);
            }
            if let Some(last) = response.responses.last_mut() {
                last.partitions.push(data);
            }
        }
        hinted.sort_unstable();
        hinted.dedup();
        if version >= 16 {
            response.node_endpoints = hinted
                .into_iter()
                .filter(|id| *id >= 0)
                .map(|id| {
                    NodeEndpoint::default()
                        .with_node_id(BrokerId(id))
                        .with_host(StrBytes::from_string(host(id)))
                        .with_port(9092)
                })
                .collect();
        }
        response
    }
}

/// Batches of a segment of a broker.
const SEGMENT_BATCHES: usize = 37;

/// Batches of a segment below the high watermark from the position on, the last one cut off where the
/// limit is; the first one of a response is whole whatever its size.
fn gather(
    replica: &Replica,
    p: usize,
    position: &Position,
    (room, first): (usize, bool),
    faults: &mut Faults,
    served: &mut Served,
) -> BytesMut {
    let limit = position.max_bytes.min(room);
    let mut records = BytesMut::new();
    let mut before = position.offset;
    for (n, batch) in replica.log.iter().enumerate().skip(replica.index_at(position.offset)) {
        if batch.last >= replica.high_watermark {
            break;
        }
        if n % SEGMENT_BATCHES == 0 && !records.is_empty() {
            faults.count("answer ends with a segment");
            break;
        }
        let whole = (first && records.is_empty()) || records.len() + batch.bytes.len() <= limit;
        if !whole {
            let part = limit.saturating_sub(records.len());
            records.extend_from_slice(&batch.bytes[..part.min(batch.bytes.len())]);
            if part > 0 {
                faults.count("last batch cut off");
            }
            break;
        }
        if batch.bytes.len() > 1 << 20 {
            faults.count("batch larger than a slot");
        }
        if batch.base < replica.log_start {
            faults.count("log starts inside a batch");
        }
        records.extend_from_slice(&batch.bytes);
        if batch.base < before {
            // A stripe's guess lies within a batch; it is appended behind the one before it.
            served.push((p, batch.base, Rc::clone(batch)));
        }
        // It follows whatever ends in the gap before it: the copy may have a batch from there that
        // has been cleaned away since.
        for at in before..=batch.base.max(before) {
            served.push((p, at, Rc::clone(batch)));
        }
        before = batch.last + 1;
    }
    records
}

pub(crate) fn host(broker: i32) -> String {
    format!("b{broker}")
}

/// Whether a batch's checksum does not cover byte `at`.
fn unprotected(records: &[u8], at: usize) -> bool {
    let mut start = 0;
    while let Some(length) = records.get(start + 8..start + 12) {
        let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
        let end = start + 12 + usize::try_from(length).unwrap_or(0);
        if at < end {
            return at < start + 8 || (start + 12..start + 16).contains(&at);
        }
        start = end;
    }
    true
}

fn find(
    cluster: &Cluster,
    version: i16,
    name: &TopicName,
    id: uuid::Uuid,
    index: i32,
) -> Option<usize> {
    let topic = cluster.topics.iter().position(|topic| {
        if version > 12 { topic.id == id } else { topic.name == name.0.as_str() }
    })?;
    cluster.partitions.iter().position(|it| it.topic == topic && it.index == index)
}

/// Partitions of a request.
fn asked(request: &FetchRequest, version: i16, cluster: &Cluster) -> Vec<(usize, Position)> {
    let mut known = Vec::new();
    for topic in &request.topics {
        for asked in &topic.partitions {
            let p = find(cluster, version, &topic.topic, topic.topic_id, asked.partition);
            let position = Position {
                offset: asked.fetch_offset,
                leader_epoch: asked.current_leader_epoch,
                last_epoch: asked.last_fetched_epoch,
                max_bytes: usize::try_from(asked.partition_max_bytes).unwrap_or(0),
                told: (-1, -1),
            };
            known.push((p.expect("only what exists is asked for"), position));
        }
    }
    known
}

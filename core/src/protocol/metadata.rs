//! Brokers, topics and leaders of the source.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::TopicName;
use kafka_protocol::messages::metadata_request as wire;
use kafka_protocol::protocol::StrBytes;

use super::api_versions::throttle;
use super::body::Body;
use super::frame::{EncodeError, RequestId, encode_request};
use super::wire::DecodeError;
use super::{Api, ErrorCode, TopicIdentity};
use crate::types::{BrokerId, LeaderEpoch, TopicId};

/// First version whose leader epochs can be relied on: before, a broker might
/// answer from a state older than one it had already answered from.
const EPOCHS_FROM: i16 = 9;

/// Asks for metadata. Never creates a topic.
#[derive(Clone, Copy, Debug)]
pub struct MetadataRequest<'a> {
    /// Topic names; `None` for all topics, an empty slice for the brokers only.
    pub topics: Option<&'a [Arc<str>]>,
}

impl MetadataRequest<'_> {
    /// The request as a frame of `version`.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] if a name is too long for the field.
    pub fn encode(&self, version: i16, id: RequestId<'_>) -> Result<Bytes, EncodeError> {
        let topics = self.topics.map(|names| {
            let topic = |name: &Arc<str>| {
                let name = TopicName(StrBytes::from_string(name.to_string()));
                wire::MetadataRequestTopic::default().with_name(Some(name))
            };
            names.iter().map(topic).collect()
        });
        let mut request = kafka_protocol::messages::MetadataRequest::default().with_topics(topics);
        if version >= 4 {
            request.allow_auto_topic_creation = false;
        }
        encode_request(id, version, &request)
    }
}

/// What a broker knows of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// How long the broker's quota asks the client to keep silent, in milliseconds.
    pub throttle_ms: u32,
    /// Live brokers, on the listener that was asked.
    pub brokers: Vec<MetadataBroker>,
    /// Identity of the cluster; `None` below version 2, or while a broker starts.
    pub cluster_id: Option<String>,
    /// Node ID of the controller; −1 for none.
    pub controller: BrokerId,
    /// Topics asked for.
    pub topics: Vec<MetadataTopic>,
    /// Error of the whole request; none below version 13.
    pub error: ErrorCode,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataBroker {
    /// Node ID.
    pub node: BrokerId,
    /// Host as the broker advertises it.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Rack, if it has one.
    pub rack: Option<String>,
}

/// A topic, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataTopic {
    /// Error of the topic.
    pub error: ErrorCode,
    /// Name, and ID where the source has one (version 10 and newer).
    pub identity: TopicIdentity,
    /// One of Kafka's own topics, `__consumer_offsets` for example.
    pub is_internal: bool,
    /// Partitions in any order.
    pub partitions: Vec<MetadataPartition>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataPartition {
    /// Error of the partition.
    pub error: ErrorCode,
    /// Partition index.
    pub index: i32,
    /// Node ID of the leader; −1 for none.
    pub leader: BrokerId,
    /// Epoch of the leader; −1 for unknown, and in versions whose epochs cannot
    /// be relied on (below 9). −1 replaces no epoch that is known.
    pub leader_epoch: LeaderEpoch,
    /// Node IDs of all replicas.
    pub replicas: Vec<BrokerId>,
    /// Node IDs of the replicas in sync.
    pub isr: Vec<BrokerId>,
    /// Node IDs of replicas that are down (version 5 and newer).
    pub offline_replicas: Vec<BrokerId>,
}

impl Metadata {
    /// Reads the body of a response of `version`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] that names the field.
    pub fn decode(version: i16, body: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new(body, Api::Metadata.is_flexible(version));
        let throttle_ms = if version >= 3 { throttle(&mut body)? } else { 0 };
        let brokers = body.array("brokers", 9, |body| broker(version, body))?;
        let cluster_id =
            if version >= 2 { body.nullable_str("cluster_id")?.map(str::to_owned) } else { None };
        let controller = BrokerId(if version >= 1 { body.i32("controller_id")? } else { -1 });
        let topics = body.array("topics", 4, |body| topic(version, body))?;
        if (8..=10).contains(&version) {
            body.i32("cluster_authorized_operations")?;
        }
        let error = ErrorCode(if version >= 13 { body.i16("error_code")? } else { 0 });
        body.finish()?;
        Ok(Self { throttle_ms, brokers, cluster_id, controller, topics, error })
    }
}

fn broker(version: i16, body: &mut Body<'_>) -> Result<MetadataBroker, DecodeError> {
    let node = BrokerId(body.i32("brokers.node_id")?);
    let host = body.str("brokers.host")?.to_owned();
    let port = body.i32("brokers.port")?;
    let port = u16::try_from(port).map_err(|_| DecodeError::Port { got: port })?;
    let rack =
        if version >= 1 { body.nullable_str("brokers.rack")?.map(str::to_owned) } else { None };
    body.tags("tagged fields of a broker")?;
    Ok(MetadataBroker { node, host, port, rack })
}

fn topic(version: i16, body: &mut Body<'_>) -> Result<MetadataTopic, DecodeError> {
    let error = ErrorCode(body.i16("topics.error_code")?);
    // Null only where the question was by ID, which it never is.
    let name = Arc::from(body.str("topics.name")?);
    let id = if version >= 10 { body.topic_id("topics.topic_id")? } else { TopicId::NONE };
    let is_internal = version >= 1 && body.bool("topics.is_internal")?;
    let partitions = body.array("partitions", 13, |body| partition(version, body))?;
    if version >= 8 {
        body.i32("topics.topic_authorized_operations")?;
    }
    body.tags("tagged fields of a topic")?;
    Ok(MetadataTopic { error, identity: TopicIdentity { name, id }, is_internal, partitions })
}

fn partition(version: i16, body: &mut Body<'_>) -> Result<MetadataPartition, DecodeError> {
    let nodes =
        |body: &mut Body<'_>, field| body.array(field, 4, |body| body.i32(field).map(BrokerId));
    let error = ErrorCode(body.i16("partitions.error_code")?);
    let index = body.i32("partitions.partition_index")?;
    if index < 0 {
        let field = "partitions.partition_index";
        return Err(DecodeError::Negative { field, got: i64::from(index) });
    }
    let leader = BrokerId(body.i32("partitions.leader_id")?);
    let epoch = if version >= 7 { body.i32("partitions.leader_epoch")? } else { -1 };
    let leader_epoch = LeaderEpoch(epoch).known().filter(|_| version >= EPOCHS_FROM);
    let replicas = nodes(body, "partitions.replica_nodes")?;
    let isr = nodes(body, "partitions.isr_nodes")?;
    let offline_replicas =
        if version >= 5 { nodes(body, "partitions.offline_replicas")? } else { Vec::new() };
    body.tags("tagged fields of a partition")?;
    let leader_epoch = leader_epoch.unwrap_or_default();
    Ok(MetadataPartition { error, index, leader, leader_epoch, replicas, isr, offline_replicas })
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::MetadataResponse;
    use kafka_protocol::messages::metadata_response as theirs;
    use kafka_protocol::protocol::{Decodable, Encodable, decode_request_header_from_buffer};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn response(version: i16, seed: &Seed) -> MetadataResponse {
        let nodes = |ids: &[i32]| ids.iter().map(|&id| id.into()).collect::<Vec<_>>();
        let mut partition = theirs::MetadataResponsePartition::default()
            .with_error_code(seed.error)
            .with_partition_index(seed.index)
            .with_leader_id(seed.nodes.first().copied().unwrap_or(-1).into())
            .with_replica_nodes(nodes(&seed.nodes))
            .with_isr_nodes(nodes(&seed.nodes[..seed.nodes.len() / 2]));
        let mut topic = theirs::MetadataResponseTopic::default()
            .with_error_code(seed.error)
            .with_name(Some(TopicName(StrBytes::from_string(seed.name.clone()))));
        let mut broker = theirs::MetadataResponseBroker::default()
            .with_node_id(3.into())
            .with_host(StrBytes::from_string(seed.name.clone()))
            .with_port(9092);
        let mut out = MetadataResponse::default();
        if version >= 1 {
            broker.rack = seed.rack.clone().map(StrBytes::from_string);
            topic.is_internal = seed.internal;
            out.controller_id = 3.into();
        }
        if version >= 2 {
            out.cluster_id = Some(StrBytes::from_static_str("cluster"));
        }
        if version >= 5 {
            partition.offline_replicas = nodes(&seed.nodes);
        }
        if version >= 7 {
            partition.leader_epoch = seed.epoch;
        }
        if version >= 10 {
            topic.topic_id = Uuid::from_u128(seed.id);
        }
        if version >= 13 {
            out.error_code = seed.error;
        }
        topic.partitions = vec![partition; seed.copies];
        out.with_brokers(vec![broker]).with_topics(vec![topic; seed.copies])
    }

    #[derive(Clone, Debug)]
    struct Seed {
        error: i16,
        index: i32,
        nodes: Vec<i32>,
        name: String,
        rack: Option<String>,
        internal: bool,
        epoch: i32,
        id: u128,
        copies: usize,
    }

    prop_compose! {
        fn seed()(
            error: i16,
            index in 0..i32::MAX,
            nodes in prop::collection::vec(any::<i32>(), 0..4),
            name in "[a-z]{0,20}",
            rack in prop::option::of("[a-z]{0,4}"),
            internal: bool,
            epoch in -1..5_i32,
            id: u128,
            copies in 0..3_usize,
        ) -> Seed {
            Seed { error, index, nodes, name, rack, internal, epoch, id, copies }
        }
    }

    fn encoded(version: i16, response: &MetadataResponse) -> Vec<u8> {
        let mut bytes = bytes::BytesMut::new();
        response.encode(&mut bytes, version).unwrap();
        bytes.to_vec()
    }

    proptest! {
        #[test]
        fn every_version_agrees_with_the_oracle(seed in seed(), version in 0..=13_i16) {
            let got = Metadata::decode(version, &encoded(version, &response(version, &seed)));
            let got = got.unwrap();
            let cluster_id = (version >= 2).then(|| "cluster".to_owned());
            prop_assert_eq!(got.cluster_id, cluster_id);
            prop_assert_eq!(got.controller, BrokerId(if version >= 1 { 3 } else { -1 }));
            prop_assert_eq!(got.error, ErrorCode(if version >= 13 { seed.error } else { 0 }));
            let rack = seed.rack.clone().filter(|_| version >= 1);
            let broker =
                MetadataBroker { node: BrokerId(3), host: seed.name.clone(), port: 9092, rack };
            prop_assert_eq!(got.brokers, vec![broker]);

            let nodes: Vec<_> = seed.nodes.iter().copied().map(BrokerId).collect();
            let partition = MetadataPartition {
                error: ErrorCode(seed.error),
                index: seed.index,
                leader: nodes.first().copied().unwrap_or(BrokerId::NONE),
                leader_epoch: LeaderEpoch(if version >= 9 { seed.epoch } else { -1 }),
                isr: nodes[..nodes.len() / 2].to_vec(),
                offline_replicas: if version >= 5 { nodes.clone() } else { vec![] },
                replicas: nodes,
            };
            let id = TopicId(Uuid::from_u128(if version >= 10 { seed.id } else { 0 }));
            let topic = MetadataTopic {
                error: ErrorCode(seed.error),
                identity: TopicIdentity { name: Arc::from(seed.name.as_str()), id },
                is_internal: seed.internal && version >= 1,
                partitions: vec![partition; seed.copies],
            };
            prop_assert_eq!(got.topics, vec![topic; seed.copies]);
        }

        #[test]
        fn damage_never_panics(
            seed in seed(),
            version in 0..=13_i16,
            at: prop::sample::Index,
            value: u8,
            cut: prop::sample::Index,
        ) {
            let mut bytes = encoded(version, &response(version, &seed));
            let at = at.index(bytes.len());
            bytes[at] = value;
            let _ = Metadata::decode(version, &bytes);
            bytes.truncate(cut.index(bytes.len()));
            prop_assert!(Metadata::decode(version, &bytes).is_err(), "cut short");
        }
    }

    #[test]
    fn huge_counts_are_refused_at_once() {
        let mut body = vec![0; 4];
        body.extend([0x7f, 0xff, 0xff, 0xff, 0, 0]);
        let error = Metadata::decode(8, &body).unwrap_err();
        let need = 0x7fff_ffff * 9;
        assert_eq!(error, DecodeError::PastFrame { field: "brokers", need, left: 2 });
    }

    #[test]
    fn requests_create_no_topic() {
        for version in 4..=13 {
            let names = [Arc::from("a"), Arc::from("b")];
            for topics in [None, Some(&names[..]), Some(&[])] {
                let id = RequestId { correlation_id: 1, client_id: "c" };
                let mut frame = MetadataRequest { topics }.encode(version, id).unwrap().slice(4..);
                decode_request_header_from_buffer(&mut frame).unwrap();
                let read = kafka_protocol::messages::MetadataRequest::decode(&mut frame, version);
                let read = read.unwrap();
                assert!(!read.allow_auto_topic_creation);
                let names = read.topics.map(|topics| {
                    topics.into_iter().map(|t| t.name.unwrap().to_string()).collect::<Vec<_>>()
                });
                let want = topics.map(|names| names.iter().map(ToString::to_string).collect());
                assert_eq!(names, want, "v{version}");
            }
        }
    }
}

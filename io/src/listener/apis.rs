//! What is served, and who serves it: ApiVersions, Metadata, DescribeCluster.

use heliostat_core::protocol::FETCH_VERSION_MIRROR_EPOCH;
use heliostat_core::serve::NodeEndpoint;
use heliostat_core::types::TopicId;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, DescribeClusterRequest, DescribeClusterResponse,
    MetadataRequest, MetadataResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::hosted::{Partition, Topic};
use super::service::{CatalogService, Service};

/// Every API with its lowest and highest version. Produce is among them because
/// clients tell from its version which record format a broker speaks.
const SERVED: [(ApiKey, i16, i16); 8] = [
    (ApiKey::Produce, 3, 13),
    (ApiKey::Fetch, 4, 18),
    (ApiKey::ListOffsets, 1, 10),
    (ApiKey::Metadata, 0, 13),
    (ApiKey::ApiVersions, 0, 4),
    (ApiKey::OffsetForLeaderEpoch, 2, 4),
    (ApiKey::DescribeConfigs, 1, 4),
    (ApiKey::DescribeCluster, 0, 2),
];

/// What [`SERVED`] becomes where followers fetch.
pub(super) fn served(followers: bool) -> impl Iterator<Item = (ApiKey, i16, i16)> {
    SERVED.into_iter().map(move |(api, min, max)| match api {
        ApiKey::Fetch if followers => (api, min, FETCH_VERSION_MIRROR_EPOCH),
        _ => (api, min, max),
    })
}

/// The endpoint type "broker" of DescribeCluster.
const ENDPOINT_BROKERS: i8 = 1;

pub(super) fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// The answer and the version to encode it in: a version that is not served is
/// answered in version 0, with what is.
pub(super) fn api_versions(service: &Service, version: i16) -> (i16, ApiVersionsResponse) {
    let known = (0..=4).contains(&version);
    let error = if known { 0 } else { ResponseError::UnsupportedVersion.code() };
    let keys = served(service.config().followers).filter_map(|(api, min, max)| {
        let code = (0..=i16::MAX).find(|&code| ApiKey::try_from(code) == Ok(api))?;
        Some(ApiVersion::default().with_api_key(code).with_min_version(min).with_max_version(max))
    });
    let response =
        ApiVersionsResponse::default().with_error_code(error).with_api_keys(keys.collect());
    (if known { version } else { 0 }, response)
}

pub(super) fn metadata(
    service: &CatalogService,
    version: i16,
    request: &MetadataRequest,
) -> MetadataResponse {
    let catalog = service.catalog();
    let everything = match &request.topics {
        None => true,
        // Before v1 an empty list could only mean all.
        Some(topics) => version == 0 && topics.is_empty(),
    };
    let topics = if everything {
        catalog.topics().iter().map(|topic| known_topic(topic, version)).collect()
    } else {
        let asked = request.topics.iter().flatten();
        asked
            .map(|asked| match (&asked.name, TopicId(asked.topic_id).known()) {
                (_, Some(id)) => catalog.topic_by_id(id).map_or_else(
                    || unknown_topic(None, id, ResponseError::UnknownTopicId, version),
                    |topic| known_topic(&topic, version),
                ),
                (Some(name), None) => catalog.topic(name).map_or_else(
                    || {
                        let error = ResponseError::UnknownTopicOrPartition;
                        unknown_topic(Some(name.clone()), TopicId::NONE, error, version)
                    },
                    |topic| known_topic(&topic, version),
                ),
                (None, None) => {
                    unknown_topic(None, TopicId::NONE, ResponseError::InvalidRequest, version)
                }
            })
            .collect()
    };
    let nodes = catalog.nodes();
    let broker = |node: &NodeEndpoint| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(node.node.0))
            .with_host(text(&node.host))
            .with_port(i32::from(node.port))
    };
    let controller = nodes.first().map_or(-1, |node| node.node.0);
    let mut response = MetadataResponse::default()
        .with_brokers(nodes.iter().map(broker).collect())
        .with_topics(topics);
    if version >= 1 {
        response.controller_id = BrokerId(controller);
    }
    if version >= 2 {
        response.cluster_id = Some(text(&catalog.config().cluster_id));
    }
    response
}

fn known_topic(topic: &Topic, version: i16) -> MetadataResponseTopic {
    let partitions = topic.partitions.iter().map(|partition| one_partition(partition, version));
    let mut out = MetadataResponseTopic::default()
        .with_name(Some(TopicName(text(&topic.name))))
        .with_partitions(partitions.collect());
    if version >= 10 {
        out.topic_id = topic.topic_id.0;
    }
    if version >= 1 {
        out.is_internal = matches!(&*topic.name, "__consumer_offsets" | "__transaction_state");
    }
    out
}

fn one_partition(partition: &Partition, version: i16) -> MetadataResponsePartition {
    let leadership = partition.leadership();
    let leader = BrokerId(leadership.leader.0);
    let error = if leader.0 < 0 { ResponseError::LeaderNotAvailable.code() } else { 0 };
    // The replicas stay known while none leads; with one node it is always the same.
    let replicas = if leader.0 < 0 { Vec::new() } else { vec![leader] };
    let mut out = MetadataResponsePartition::default()
        .with_error_code(error)
        .with_partition_index(partition.id().partition)
        .with_leader_id(leader)
        .with_replica_nodes(replicas.clone())
        .with_isr_nodes(replicas);
    if version >= 7 {
        out.leader_epoch = leadership.epoch.0;
    }
    out
}

fn unknown_topic(
    name: Option<TopicName>,
    id: TopicId,
    error: ResponseError,
    version: i16,
) -> MetadataResponseTopic {
    // Only from v12 on may the name be null.
    let name = if version >= 12 { name } else { Some(name.unwrap_or_default()) };
    let mut out = MetadataResponseTopic::default().with_error_code(error.code()).with_name(name);
    if version >= 10 {
        out.topic_id = id.0;
    }
    out
}

pub(super) fn describe_cluster(
    service: &CatalogService,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    let catalog = service.catalog();
    if request.endpoint_type != ENDPOINT_BROKERS {
        let error = ResponseError::UnsupportedEndpointType.code();
        return DescribeClusterResponse::default()
            .with_error_code(error)
            .with_error_message(Some(text("this listener serves brokers, not controllers")));
    }
    let nodes = catalog.nodes();
    let broker = |node: &NodeEndpoint| {
        DescribeClusterBroker::default()
            .with_broker_id(BrokerId(node.node.0))
            .with_host(text(&node.host))
            .with_port(i32::from(node.port))
    };
    DescribeClusterResponse::default()
        .with_cluster_id(text(&catalog.config().cluster_id))
        .with_controller_id(BrokerId(nodes.first().map_or(-1, |node| node.node.0)))
        .with_brokers(nodes.iter().map(broker).collect())
}

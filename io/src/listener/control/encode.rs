//! Writes responses in the version that was asked, without what it has no field for.

use bytes::{BufMut, Bytes};
use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::{
    self, CREATE_TOPICS_VERSION_MIRROR_INFO, CreateTopicsResponse, CreatedTopicConfig,
};
use heliostat_core::serve::NodeEndpoint;
use heliostat_core::types::BrokerId;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::update_features_response::UpdatableFeatureResult;
use kafka_protocol::messages::{
    self as kafka, CreatePartitionsResponse, DeleteTopicsResponse, DescribeClusterResponse,
    DescribeConfigsResponse, FindCoordinatorResponse, IncrementalAlterConfigsResponse,
    MetadataResponse, TopicName, UpdateFeaturesResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::super::frame::{ConnectionError, Request, encode_response, frame_response};
use super::response::{
    ClusterAnswer, ConfigEntry, ConfigsAnswer, ControlResponse, CoordinatorAnswer, FeatureOutcome,
    MetadataAnswer, PartitionAnswer, Refusal, ResourceOutcome, TopicAnswer, TopicDeleted,
    TopicOutcome,
};

/// Writes the response to `request`.
///
/// # Errors
///
/// [`ConnectionError::NoErrorField`] for a refusal that the version cannot tell,
/// [`ConnectionError::Response`] for one that answers something else or does not fit.
pub(super) fn encode(
    request: &Request,
    response: ControlResponse,
) -> Result<Bytes, ConnectionError> {
    let version = request.version;
    let key = api_key(&response);
    if key != request.api_key {
        let (asked, got) = (request.api_key, key);
        let reason = format!("API key {asked} was answered as API key {got}");
        return Err(ConnectionError::Response(reason));
    }
    macro_rules! kafka {
        ($body:expr) => {
            encode_response(request, version, &$body)
        };
    }
    match response {
        ControlResponse::Metadata(answer) => kafka!(metadata(request, answer)?),
        ControlResponse::DescribeCluster(answer) => kafka!(describe_cluster(answer)),
        ControlResponse::FindCoordinator(answers) => kafka!(find_coordinator(version, answers)),
        ControlResponse::CreateTopics(answer) if version >= CREATE_TOPICS_VERSION_MIRROR_INFO => {
            mirror_body(request, &answer)
        }
        ControlResponse::CreateTopics(answer) => kafka!(create_topics(answer)),
        ControlResponse::DeleteTopics(topics) => kafka!(delete_topics(version, topics)),
        ControlResponse::CreatePartitions(topics) => kafka!(create_partitions(topics)),
        ControlResponse::DescribeConfigs(answers) => kafka!(describe_configs(answers)),
        ControlResponse::IncrementalAlterConfigs(outcomes) => kafka!(alter_configs(outcomes)),
        ControlResponse::UpdateFeatures(answer) => kafka!(update_features(version, answer)),
        ControlResponse::CreateClusterMirror(body) | ControlResponse::DeleteClusterMirror(body) => {
            mirror_body(request, &body)
        }
        ControlResponse::StartMirrorTopics(body)
        | ControlResponse::StopMirrorTopics(body)
        | ControlResponse::PauseMirrorTopics(body)
        | ControlResponse::ResumeMirrorTopics(body)
        | ControlResponse::RecoverMirrorTopics(body) => mirror_body(request, &body),
        ControlResponse::ListClusterMirrors(body) => mirror_body(request, &body),
        ControlResponse::DescribeClusterMirrors(body) => mirror_body(request, &body),
        ControlResponse::ReadMirrorStates(body) => mirror_body(request, &body),
        ControlResponse::WriteMirrorStates(body) => mirror_body(request, &body),
        ControlResponse::BumpLeaderEpochs(body) => mirror_body(request, &body),
    }
}

fn mirror_body(request: &Request, body: &impl mirror::Field) -> Result<Bytes, ConnectionError> {
    frame_response(request, request.version, |out| {
        out.put_slice(&mirror::encode(body));
        Ok(())
    })
}

/// The API that a response is of.
fn api_key(response: &ControlResponse) -> i16 {
    use kafka_protocol::protocol::Request as _;
    use mirror::MirrorRequest as _;
    match response {
        ControlResponse::Metadata(_) => kafka::MetadataRequest::KEY,
        ControlResponse::DescribeCluster(_) => kafka::DescribeClusterRequest::KEY,
        ControlResponse::FindCoordinator(_) => kafka::FindCoordinatorRequest::KEY,
        ControlResponse::CreateTopics(_) => mirror::CREATE_TOPICS_KEY,
        ControlResponse::DeleteTopics(_) => kafka::DeleteTopicsRequest::KEY,
        ControlResponse::CreatePartitions(_) => kafka::CreatePartitionsRequest::KEY,
        ControlResponse::DescribeConfigs(_) => kafka::DescribeConfigsRequest::KEY,
        ControlResponse::IncrementalAlterConfigs(_) => kafka::IncrementalAlterConfigsRequest::KEY,
        ControlResponse::UpdateFeatures(_) => kafka::UpdateFeaturesRequest::KEY,
        ControlResponse::CreateClusterMirror(_) => mirror::CreateClusterMirrorRequest::API_KEY,
        ControlResponse::StartMirrorTopics(_) => mirror::StartMirrorTopicsRequest::API_KEY,
        ControlResponse::StopMirrorTopics(_) => mirror::StopMirrorTopicsRequest::API_KEY,
        ControlResponse::ListClusterMirrors(_) => mirror::ListClusterMirrorsRequest::API_KEY,
        ControlResponse::DescribeClusterMirrors(_) => {
            mirror::DescribeClusterMirrorsRequest::API_KEY
        }
        ControlResponse::ReadMirrorStates(_) => mirror::ReadMirrorStatesRequest::API_KEY,
        ControlResponse::WriteMirrorStates(_) => mirror::WriteMirrorStatesRequest::API_KEY,
        ControlResponse::PauseMirrorTopics(_) => mirror::PauseMirrorTopicsRequest::API_KEY,
        ControlResponse::ResumeMirrorTopics(_) => mirror::ResumeMirrorTopicsRequest::API_KEY,
        ControlResponse::DeleteClusterMirror(_) => mirror::DeleteClusterMirrorRequest::API_KEY,
        ControlResponse::BumpLeaderEpochs(_) => mirror::BumpLeaderEpochsRequest::API_KEY,
        ControlResponse::RecoverMirrorTopics(_) => mirror::RecoverMirrorTopicsRequest::API_KEY,
    }
}

fn text(value: String) -> StrBytes {
    StrBytes::from_string(value)
}

fn host(node: &NodeEndpoint) -> StrBytes {
    text(String::from(&*node.host))
}

fn ids(brokers: Vec<BrokerId>) -> Vec<kafka::BrokerId> {
    brokers.into_iter().map(|id| kafka::BrokerId(id.0)).collect()
}

/// Error code and message; none of either if it was done.
fn outcome(result: Result<(), Refusal>) -> (i16, Option<StrBytes>) {
    match result {
        Ok(()) => (ErrorCode::NONE.0, None),
        Err(refusal) => (refusal.code.0, refusal.message.map(text)),
    }
}

fn metadata(
    request: &Request,
    answer: Result<MetadataAnswer, Refusal>,
) -> Result<MetadataResponse, ConnectionError> {
    let (api_key, version) = (request.api_key, request.version);
    let answer = match answer {
        Ok(answer) => answer,
        Err(Refusal { code, .. }) if version >= 13 => {
            return Ok(MetadataResponse::default().with_error_code(code.0));
        }
        Err(Refusal { code, .. }) => {
            return Err(ConnectionError::NoErrorField { api_key, version, error: code });
        }
    };
    let broker = |node: &NodeEndpoint| {
        MetadataResponseBroker::default()
            .with_node_id(kafka::BrokerId(node.node.0))
            .with_host(host(node))
            .with_port(i32::from(node.port))
    };
    let topics = answer.topics.into_iter().map(|topic| topic_metadata(version, topic));
    let mut out = MetadataResponse::default()
        .with_brokers(answer.brokers.iter().map(broker).collect())
        .with_cluster_id(Some(text(answer.cluster_id)))
        .with_controller_id(kafka::BrokerId(answer.controller.0))
        .with_topics(topics.collect());
    if let Some(bits) = answer.authorized_operations
        && (8..=10).contains(&version)
    {
        out.cluster_authorized_operations = bits;
    }
    Ok(out)
}

fn topic_metadata(version: i16, topic: TopicAnswer) -> MetadataResponseTopic {
    let name = topic.name.map(|name| TopicName(text(name)));
    // Only from v12 on may the name be null.
    let name = if version >= 12 { name } else { Some(name.unwrap_or_default()) };
    let partitions = topic.partitions.into_iter().map(|one| partition_metadata(version, one));
    let mut out = MetadataResponseTopic::default()
        .with_error_code(topic.error.0)
        .with_name(name)
        .with_is_internal(topic.is_internal)
        .with_partitions(partitions.collect());
    if version >= 10 {
        out.topic_id = topic.topic_id.0;
    }
    if let Some(bits) = topic.authorized_operations
        && version >= 8
    {
        out.topic_authorized_operations = bits;
    }
    out
}

fn partition_metadata(version: i16, partition: PartitionAnswer) -> MetadataResponsePartition {
    let mut out = MetadataResponsePartition::default()
        .with_error_code(partition.error.0)
        .with_partition_index(partition.partition)
        .with_leader_id(kafka::BrokerId(partition.leader.0))
        .with_replica_nodes(ids(partition.replicas))
        .with_isr_nodes(ids(partition.isr));
    if version >= 5 {
        out.offline_replicas = ids(partition.offline_replicas);
    }
    if version >= 7 {
        out.leader_epoch = partition.leader_epoch.0;
    }
    out
}

fn describe_cluster(answer: Result<ClusterAnswer, Refusal>) -> DescribeClusterResponse {
    let answer = match answer {
        Ok(answer) => answer,
        Err(refusal) => {
            return DescribeClusterResponse::default()
                .with_error_code(refusal.code.0)
                .with_error_message(refusal.message.map(text));
        }
    };
    let broker = |node: &NodeEndpoint| {
        DescribeClusterBroker::default()
            .with_broker_id(kafka::BrokerId(node.node.0))
            .with_host(host(node))
            .with_port(i32::from(node.port))
    };
    let mut out = DescribeClusterResponse::default()
        .with_cluster_id(text(answer.cluster_id))
        .with_controller_id(kafka::BrokerId(answer.controller.0))
        .with_brokers(answer.brokers.iter().map(broker).collect());
    if let Some(bits) = answer.authorized_operations {
        out.cluster_authorized_operations = bits;
    }
    out
}

/// No broker, for a key that none coordinates.
const NO_NODE: kafka::BrokerId = kafka::BrokerId(-1);
const NO_PORT: i32 = -1;

fn find_coordinator(version: i16, answers: Vec<CoordinatorAnswer>) -> FindCoordinatorResponse {
    let coordinators = answers.into_iter().map(|CoordinatorAnswer { key, result }| {
        let out = Coordinator::default().with_key(text(key));
        match result {
            Ok(node) => out
                .with_node_id(kafka::BrokerId(node.node.0))
                .with_host(host(&node))
                .with_port(i32::from(node.port))
                .with_error_message(None),
            Err(refusal) => out
                .with_node_id(NO_NODE)
                .with_port(NO_PORT)
                .with_error_code(refusal.code.0)
                .with_error_message(refusal.message.map(text)),
        }
    });
    let mut coordinators: Vec<_> = coordinators.collect();
    if version >= 4 {
        return FindCoordinatorResponse::default().with_coordinators(coordinators);
    }
    // A request of these versions has one key.
    let only = coordinators.pop().unwrap_or_else(|| {
        Coordinator::default()
            .with_node_id(NO_NODE)
            .with_port(NO_PORT)
            .with_error_code(ErrorCode::COORDINATOR_NOT_AVAILABLE.0)
            .with_error_message(None)
    });
    let mut out = FindCoordinatorResponse::default()
        .with_error_code(only.error_code)
        .with_node_id(only.node_id)
        .with_host(only.host)
        .with_port(only.port);
    if version >= 1 {
        out.error_message = only.error_message;
    }
    out
}

fn create_topics(answer: CreateTopicsResponse) -> kafka::CreateTopicsResponse {
    let config = |config: CreatedTopicConfig| {
        CreatableTopicConfigs::default()
            .with_name(text(config.name))
            .with_value(config.value.map(text))
            .with_read_only(config.read_only)
            .with_config_source(config.config_source)
            .with_is_sensitive(config.is_sensitive)
    };
    let topics = answer.topics.into_iter().map(|topic| {
        let configs = topic.configs.map(|configs| configs.into_iter().map(config).collect());
        CreatableTopicResult::default()
            .with_name(TopicName(text(topic.name)))
            .with_topic_id(topic.topic_id.0)
            .with_error_code(topic.error_code)
            .with_error_message(topic.error_message.map(text))
            .with_num_partitions(topic.num_partitions)
            .with_replication_factor(topic.replication_factor)
            .with_topic_config_error_code(topic.topic_config_error_code)
            .with_configs(configs)
    });
    kafka::CreateTopicsResponse::default()
        .with_throttle_time_ms(answer.throttle_time_ms)
        .with_topics(topics.collect())
}

fn delete_topics(version: i16, topics: Vec<TopicDeleted>) -> DeleteTopicsResponse {
    let topics = topics.into_iter().map(|topic| {
        let (code, message) = outcome(topic.result);
        let name = topic.name.map(|name| TopicName(text(name)));
        // Only from v6 on may the name be null.
        let name = if version >= 6 { name } else { Some(name.unwrap_or_default()) };
        DeletableTopicResult::default()
            .with_name(name)
            .with_topic_id(topic.topic_id.0)
            .with_error_code(code)
            .with_error_message(message)
    });
    DeleteTopicsResponse::default().with_responses(topics.collect())
}

fn create_partitions(topics: Vec<TopicOutcome>) -> CreatePartitionsResponse {
    let results = topics.into_iter().map(|topic| {
        let (code, message) = outcome(topic.result);
        CreatePartitionsTopicResult::default()
            .with_name(TopicName(text(topic.name)))
            .with_error_code(code)
            .with_error_message(message)
    });
    CreatePartitionsResponse::default().with_results(results.collect())
}

fn describe_configs(answers: Vec<ConfigsAnswer>) -> DescribeConfigsResponse {
    let results = answers.into_iter().map(|ConfigsAnswer { resource, result }| {
        let out = DescribeConfigsResult::default()
            .with_resource_type(resource.kind.0)
            .with_resource_name(text(resource.name));
        match result {
            Ok(configs) => out
                .with_configs(configs.into_iter().map(config_entry).collect())
                .with_error_message(None),
            Err(refusal) => {
                out.with_error_code(refusal.code.0).with_error_message(refusal.message.map(text))
            }
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn config_entry(entry: ConfigEntry) -> DescribeConfigsResourceResult {
    let synonyms = entry.synonyms.into_iter().map(|synonym| {
        DescribeConfigsSynonym::default()
            .with_name(text(synonym.name))
            .with_value(synonym.value.map(text))
            .with_source(synonym.source)
    });
    DescribeConfigsResourceResult::default()
        .with_name(text(entry.name))
        .with_value(entry.value.map(text))
        .with_read_only(entry.read_only)
        .with_config_source(entry.source)
        .with_is_sensitive(entry.is_sensitive)
        .with_synonyms(synonyms.collect())
        .with_config_type(entry.config_type)
        .with_documentation(entry.documentation.map(text))
}

fn alter_configs(outcomes: Vec<ResourceOutcome>) -> IncrementalAlterConfigsResponse {
    let responses = outcomes.into_iter().map(|ResourceOutcome { resource, result }| {
        let (code, message) = outcome(result);
        AlterConfigsResourceResponse::default()
            .with_error_code(code)
            .with_error_message(message)
            .with_resource_type(resource.kind.0)
            .with_resource_name(text(resource.name))
    });
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}

fn update_features(
    version: i16,
    answer: Result<Vec<FeatureOutcome>, Refusal>,
) -> UpdateFeaturesResponse {
    let outcomes = match answer {
        // From v2 on a request is done as a whole, or not at all.
        Ok(outcomes) if version >= 2 => {
            outcomes.into_iter().try_for_each(|feature| feature.result).map(|()| Vec::new())
        }
        other => other,
    };
    match outcomes {
        Ok(outcomes) => {
            let results = outcomes.into_iter().map(|FeatureOutcome { feature, result }| {
                let (code, message) = outcome(result);
                UpdatableFeatureResult::default()
                    .with_feature(text(feature))
                    .with_error_code(code)
                    .with_error_message(message)
            });
            UpdateFeaturesResponse::default()
                .with_error_message(None)
                .with_results(results.collect())
        }
        Err(refusal) => UpdateFeaturesResponse::default()
            .with_error_code(refusal.code.0)
            .with_error_message(refusal.message.map(text)),
    }
}

//! Reads requests: the shape of the bytes first, then what they mean.

use std::time::Duration;

use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::{
    self, CREATE_TOPICS_VERSION_MIRROR_INFO, CreatableReplicaAssignment, CreatableTopic,
    CreatableTopicConfig, CreateTopicsRequest, MIRROR_API_KEYS, MirrorRequest,
};
use heliostat_core::serve::check_request_shape;
use heliostat_core::types::{BrokerId, TopicId};
use kafka_protocol::messages::{
    self as kafka, ApiKey, CreatePartitionsRequest, DeleteTopicsRequest, DescribeClusterRequest,
    DescribeConfigsRequest, FindCoordinatorRequest, IncrementalAlterConfigsRequest,
    MetadataRequest, UpdateFeaturesRequest,
};
use kafka_protocol::protocol::{Decodable, StrBytes};
use uuid::Uuid;

use super::super::frame::{ConnectionError, Request};
use super::apis;
use super::request::{
    AlterOperation, ClusterQuery, ConfigChange, ConfigResource, ConfigsChange, ConfigsQuery,
    ControlRequest, CoordinatorKind, CoordinatorQuery, FeatureUpdate, FeaturesUpdate,
    MetadataQuery, PartitionsCreation, PartitionsOfTopic, ResourceChanges, ResourceKind,
    ResourceQuery, TopicRef, TopicsDeletion, UpgradeKind,
};
use super::response::{ControlResponse, CoordinatorAnswer, Refusal, ResourceOutcome};

/// Endpoint types of DescribeCluster.
const ENDPOINT_BROKERS: i8 = 1;
const ENDPOINT_CONTROLLERS: i8 = 2;

/// A request that was read.
#[derive(Debug)]
pub(super) enum Decoded {
    /// For the control thread.
    Ask(ControlRequest),
    /// It asks for what the protocol does not know; the answer is clear without the host.
    Answer(ControlResponse),
}

/// Reads a request of a served version.
///
/// # Errors
///
/// [`ConnectionError::Request`] for one that is not served, and for bytes that are none.
pub(super) fn decode(request: &Request) -> Result<Decoded, ConnectionError> {
    let (key, version) = (request.api_key, request.version);
    if !apis::is_served(key, version) {
        return Err(ConnectionError::Request(format!("API key {key} v{version} is not served")));
    }
    if MIRROR_API_KEYS.contains(&key) {
        return mirror_request(key, &request.body).map(Decoded::Ask);
    }
    let api = request.api().ok_or_else(|| not_served(key))?;
    if api == ApiKey::CreateTopics && version == CREATE_TOPICS_VERSION_MIRROR_INFO {
        let asked = mirror::decode(&request.body).map_err(refused)?;
        return Ok(Decoded::Ask(ControlRequest::CreateTopics(asked)));
    }
    check_request_shape(api, version, &request.body).map_err(refused)?;
    Ok(Decoded::Ask(match api {
        ApiKey::Metadata => ControlRequest::Metadata(metadata(version, body(request)?)),
        ApiKey::DescribeCluster => return Ok(describe_cluster(body(request)?)),
        ApiKey::FindCoordinator => return Ok(find_coordinator(version, body(request)?)),
        ApiKey::CreateTopics => ControlRequest::CreateTopics(create_topics(body(request)?)),
        ApiKey::DeleteTopics => ControlRequest::DeleteTopics(delete_topics(body(request)?)),
        ApiKey::CreatePartitions => {
            ControlRequest::CreatePartitions(create_partitions(body(request)?))
        }
        ApiKey::DescribeConfigs => {
            ControlRequest::DescribeConfigs(describe_configs(body(request)?))
        }
        ApiKey::IncrementalAlterConfigs => return Ok(alter_configs(body(request)?)),
        ApiKey::UpdateFeatures => return Ok(update_features(version, body(request)?)),
        _ => return Err(not_served(key)),
    }))
}

fn not_served(key: i16) -> ConnectionError {
    ConnectionError::Request(format!("API key {key} is not served"))
}

fn refused(error: impl std::fmt::Display) -> ConnectionError {
    ConnectionError::Request(error.to_string())
}

fn body<T: Decodable>(request: &Request) -> Result<T, ConnectionError> {
    T::decode(&mut request.body.clone(), request.version).map_err(refused)
}

fn mirror_request(key: i16, bytes: &[u8]) -> Result<ControlRequest, ConnectionError> {
    macro_rules! decode {
        ($($api:ident($request:ident),)*) => {
            match key {
                $(mirror::$request::API_KEY => {
                    mirror::decode(bytes).map(ControlRequest::$api).map_err(refused)
                })*
                _ => Err(not_served(key)),
            }
        };
    }
    decode! {
        CreateClusterMirror(CreateClusterMirrorRequest),
        StartMirrorTopics(StartMirrorTopicsRequest),
        StopMirrorTopics(StopMirrorTopicsRequest),
        ListClusterMirrors(ListClusterMirrorsRequest),
        DescribeClusterMirrors(DescribeClusterMirrorsRequest),
        ReadMirrorStates(ReadMirrorStatesRequest),
        WriteMirrorStates(WriteMirrorStatesRequest),
        PauseMirrorTopics(PauseMirrorTopicsRequest),
        ResumeMirrorTopics(ResumeMirrorTopicsRequest),
        DeleteClusterMirror(DeleteClusterMirrorRequest),
        BumpLeaderEpochs(BumpLeaderEpochsRequest),
        RecoverMirrorTopics(RecoverMirrorTopicsRequest),
    }
}

fn owned(text: &StrBytes) -> String {
    text.as_str().to_owned()
}

fn texts(texts: &[StrBytes]) -> Vec<String> {
    texts.iter().map(owned).collect()
}

/// A client's timeout; a negative one is no wait.
fn timeout(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn brokers(ids: &[kafka::BrokerId]) -> Vec<BrokerId> {
    ids.iter().map(|id| BrokerId(id.0)).collect()
}

fn topic_ref(name: Option<&kafka::TopicName>, id: Uuid) -> TopicRef {
    match (TopicId(id).known(), name) {
        (None, Some(name)) => TopicRef::Name(owned(&name.0)),
        (id, _) => TopicRef::Id(id.unwrap_or(TopicId::NONE)),
    }
}

fn metadata(version: i16, request: MetadataRequest) -> MetadataQuery {
    // Before v1 an empty list could only mean all.
    let topics = request.topics.filter(|topics| version > 0 || !topics.is_empty());
    let topics = topics.map(|topics| {
        topics.iter().map(|topic| topic_ref(topic.name.as_ref(), topic.topic_id)).collect()
    });
    MetadataQuery {
        topics,
        allow_auto_topic_creation: request.allow_auto_topic_creation,
        include_topic_authorized_operations: request.include_topic_authorized_operations,
        include_cluster_authorized_operations: request.include_cluster_authorized_operations,
    }
}

fn describe_cluster(request: DescribeClusterRequest) -> Decoded {
    let refusal = match request.endpoint_type {
        ENDPOINT_BROKERS => {
            return Decoded::Ask(ControlRequest::DescribeCluster(ClusterQuery {
                include_authorized_operations: request.include_cluster_authorized_operations,
                include_fenced_brokers: request.include_fenced_brokers,
            }));
        }
        ENDPOINT_CONTROLLERS => Refusal::new(
            ErrorCode::MISMATCHED_ENDPOINT_TYPE,
            "this listener serves brokers, not controllers",
        ),
        other => Refusal::new(
            ErrorCode::UNSUPPORTED_ENDPOINT_TYPE,
            format!("endpoint type {other} is not known"),
        ),
    };
    Decoded::Answer(ControlResponse::DescribeCluster(Err(refusal)))
}

fn find_coordinator(version: i16, request: FindCoordinatorRequest) -> Decoded {
    let keys =
        if version >= 4 { texts(&request.coordinator_keys) } else { vec![owned(&request.key)] };
    let kind = match request.key_type {
        0 => CoordinatorKind::Group,
        1 => CoordinatorKind::Transaction,
        2 => CoordinatorKind::Share,
        3 => CoordinatorKind::ClusterMirror,
        other => {
            let message = format!("coordinator type {other} is not known");
            let refusal = Refusal::new(ErrorCode::INVALID_REQUEST, message);
            let answer = |key| CoordinatorAnswer { key, result: Err(refusal.clone()) };
            let answers = keys.into_iter().map(answer).collect();
            return Decoded::Answer(ControlResponse::FindCoordinator(answers));
        }
    };
    Decoded::Ask(ControlRequest::FindCoordinator(CoordinatorQuery { kind, keys }))
}

fn create_topics(request: kafka::CreateTopicsRequest) -> CreateTopicsRequest {
    let topics = request.topics.iter().map(|topic| CreatableTopic {
        name: owned(&topic.name.0),
        num_partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic
            .assignments
            .iter()
            .map(|assignment| CreatableReplicaAssignment {
                partition_index: assignment.partition_index,
                broker_ids: brokers(&assignment.broker_ids),
            })
            .collect(),
        configs: topic
            .configs
            .iter()
            .map(|config| CreatableTopicConfig {
                name: owned(&config.name),
                value: config.value.as_ref().map(owned),
            })
            .collect(),
        mirror_info: None,
    });
    CreateTopicsRequest {
        topics: topics.collect(),
        timeout_ms: request.timeout_ms,
        validate_only: request.validate_only,
    }
}

fn delete_topics(request: DeleteTopicsRequest) -> TopicsDeletion {
    let named = request.topic_names.iter().map(|name| TopicRef::Name(owned(&name.0)));
    let topics = request.topics.iter().map(|topic| topic_ref(topic.name.as_ref(), topic.topic_id));
    TopicsDeletion { topics: named.chain(topics).collect(), timeout: timeout(request.timeout_ms) }
}

fn create_partitions(request: CreatePartitionsRequest) -> PartitionsCreation {
    let topics = request.topics.iter().map(|topic| PartitionsOfTopic {
        name: owned(&topic.name.0),
        count: topic.count,
        assignments: topic.assignments.as_ref().map(|assignments| {
            assignments.iter().map(|assignment| brokers(&assignment.broker_ids)).collect()
        }),
    });
    PartitionsCreation {
        topics: topics.collect(),
        timeout: timeout(request.timeout_ms),
        validate_only: request.validate_only,
    }
}

fn resource(kind: i8, name: &StrBytes) -> ConfigResource {
    ConfigResource { kind: ResourceKind(kind), name: owned(name) }
}

fn describe_configs(request: DescribeConfigsRequest) -> ConfigsQuery {
    let resources = request.resources.iter().map(|asked| ResourceQuery {
        resource: resource(asked.resource_type, &asked.resource_name),
        keys: asked.configuration_keys.as_ref().map(|keys| texts(keys)),
    });
    ConfigsQuery {
        resources: resources.collect(),
        include_synonyms: request.include_synonyms,
        include_documentation: request.include_documentation,
    }
}

fn alter_configs(request: IncrementalAlterConfigsRequest) -> Decoded {
    let operation = |number: i8| match number {
        0 => Some(AlterOperation::Set),
        1 => Some(AlterOperation::Delete),
        2 => Some(AlterOperation::Append),
        3 => Some(AlterOperation::Subtract),
        _ => None,
    };
    let mut resources = Vec::new();
    for asked in &request.resources {
        let mut changes = Vec::new();
        for config in &asked.configs {
            let Some(operation) = operation(config.config_operation) else {
                return Decoded::Answer(unknown_operation(&request, config.config_operation));
            };
            let value = config.value.as_ref().map(owned);
            changes.push(ConfigChange { name: owned(&config.name), operation, value });
        }
        let resource = resource(asked.resource_type, &asked.resource_name);
        resources.push(ResourceChanges { resource, changes });
    }
    let change = ConfigsChange { resources, validate_only: request.validate_only };
    Decoded::Ask(ControlRequest::IncrementalAlterConfigs(change))
}

fn unknown_operation(request: &IncrementalAlterConfigsRequest, number: i8) -> ControlResponse {
    let message = format!("config operation {number} is not known; nothing was changed");
    let refusal = Refusal::new(ErrorCode::INVALID_REQUEST, message);
    let outcomes = request.resources.iter().map(|asked| ResourceOutcome {
        resource: resource(asked.resource_type, &asked.resource_name),
        result: Err(refusal.clone()),
    });
    ControlResponse::IncrementalAlterConfigs(outcomes.collect())
}

fn update_features(version: i16, request: UpdateFeaturesRequest) -> Decoded {
    let mut updates = Vec::new();
    for update in &request.feature_updates {
        let upgrade = match update.upgrade_type {
            // Before v1 a downgrade is allowed or not, and none loses anything.
            _ if version == 0 && update.allow_downgrade => UpgradeKind::SafeDowngrade,
            _ if version == 0 => UpgradeKind::Upgrade,
            1 => UpgradeKind::Upgrade,
            2 => UpgradeKind::SafeDowngrade,
            3 => UpgradeKind::UnsafeDowngrade,
            other => {
                let message = format!("upgrade type {other} is not known; nothing was changed");
                let refusal = Refusal::new(ErrorCode::INVALID_REQUEST, message);
                return Decoded::Answer(ControlResponse::UpdateFeatures(Err(refusal)));
            }
        };
        let (feature, level) = (owned(&update.feature), update.max_version_level);
        updates.push(FeatureUpdate { feature, level, upgrade });
    }
    Decoded::Ask(ControlRequest::UpdateFeatures(FeaturesUpdate {
        updates,
        timeout: timeout(request.timeout_ms),
        validate_only: request.validate_only,
    }))
}

#[cfg(test)]
mod tests;

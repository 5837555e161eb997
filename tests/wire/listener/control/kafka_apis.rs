//! Kafka's own APIs, in every version that is served.

use std::time::Duration;

use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::{
    self as mirror, CreateTopicsResponse, CreatedTopic, CreatedTopicConfig,
};
use heliostat_core::types::{BrokerId, LeaderEpoch, TopicId};
use heliostat_io::listener::control::{
    AlterOperation, ClusterAnswer, ClusterQuery, ConfigChange, ConfigEntry, ConfigResource,
    ConfigSynonym, ConfigsAnswer, ConfigsChange, ConfigsQuery, ControlRequest, ControlResponse,
    CoordinatorAnswer, CoordinatorKind, CoordinatorQuery, FeatureOutcome, FeatureUpdate,
    FeaturesUpdate, MetadataAnswer, MetadataQuery, PartitionAnswer, PartitionsCreation,
    PartitionsOfTopic, Refusal, ResourceChanges, ResourceKind, ResourceOutcome, ResourceQuery,
    TopicAnswer, TopicDeleted, TopicOutcome, TopicRef, TopicsDeletion, UpgradeKind,
};
use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::update_features_request::FeatureUpdateKey;
use kafka_protocol::messages::{
    self as kafka, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    DescribeClusterRequest, DescribeConfigsRequest, FindCoordinatorRequest,
    IncrementalAlterConfigsRequest, MetadataRequest, TopicName, UpdateFeaturesRequest,
};

use super::host::{Host, node, nothing};
use crate::client::{NODE, text, topic_id};

/// A timeout of clients.
const TIMEOUT_MS: i32 = 1234;
const TIMEOUT: Duration = Duration::from_millis(1234);

fn no(code: ErrorCode) -> Refusal {
    Refusal::new(code, "no")
}

fn metadata_answer() -> MetadataAnswer {
    let partition = PartitionAnswer {
        error: ErrorCode::NONE,
        partition: 0,
        leader: NODE,
        leader_epoch: LeaderEpoch(5),
        replicas: vec![NODE, BrokerId(2)],
        isr: vec![NODE],
        offline_replicas: vec![BrokerId(2)],
    };
    let there = TopicAnswer {
        error: ErrorCode::NONE,
        name: Some("one".to_owned()),
        topic_id: topic_id("one"),
        is_internal: true,
        partitions: vec![partition],
        authorized_operations: Some(8),
    };
    let unknown = TopicAnswer {
        error: ErrorCode::UNKNOWN_TOPIC_ID,
        name: None,
        topic_id: topic_id("two"),
        is_internal: false,
        partitions: Vec::new(),
        authorized_operations: None,
    };
    MetadataAnswer { topics: vec![there, unknown], authorized_operations: Some(16), ..nothing() }
}

#[test]
fn metadata() {
    let mut host = Host::new();
    let mut client = host.client();
    for version in 0..=13 {
        let one = MetadataRequestTopic::default().with_name(Some(TopicName(text("one"))));
        let mut request = MetadataRequest::default().with_topics(Some(vec![one]));
        let mut topics = vec![TopicRef::Name("one".to_owned())];
        if version >= 12 {
            let two =
                MetadataRequestTopic::default().with_name(None).with_topic_id(topic_id("two").0);
            request.topics.as_mut().expect("some").push(two);
            topics.push(TopicRef::Id(topic_id("two")));
        }
        request.allow_auto_topic_creation = version < 4;
        request.include_topic_authorized_operations = version >= 8;
        let want = MetadataQuery {
            topics: Some(topics),
            allow_auto_topic_creation: version < 4,
            include_topic_authorized_operations: version >= 8,
            include_cluster_authorized_operations: false,
        };
        let answer = ControlResponse::Metadata(Ok(metadata_answer()));
        let want = ControlRequest::Metadata(want);
        let got = host.trip(&mut client, (version, &request), want, answer);
        let broker = &got.brokers[0];
        assert_eq!((broker.node_id.0, broker.host.as_str(), broker.port), (1, "here", 9092));
        assert_eq!(got.cluster_id.as_deref(), (version >= 2).then_some("dst"));
        assert_eq!(got.controller_id.0, if version >= 1 { 1 } else { -1 });
        let with_bits = (8..=10).contains(&version);
        assert_eq!(got.cluster_authorized_operations, if with_bits { 16 } else { i32::MIN });
        let [one, two] = &got.topics[..] else { panic!("two topics") };
        assert_eq!(one.name.as_ref().expect("known").0.as_str(), "one");
        assert_eq!(one.is_internal, version >= 1);
        assert_eq!(one.topic_authorized_operations, if version >= 8 { 8 } else { i32::MIN });
        let id = |known: &str| if version >= 10 { topic_id(known) } else { TopicId::NONE };
        assert_eq!((one.topic_id, two.topic_id), (id("one").0, id("two").0));
        let partition = &one.partitions[0];
        assert_eq!(partition.leader_epoch, if version >= 7 { 5 } else { -1 });
        assert_eq!((partition.replica_nodes.len(), partition.isr_nodes.len()), (2, 1));
        assert_eq!(partition.offline_replicas.len(), usize::from(version >= 5));
        assert_eq!((two.error_code, two.name.is_none()), (100, version >= 12));
    }
}

#[test]
fn all_topics_and_none_are_told_apart() {
    let mut host = Host::new();
    let mut client = host.client();
    let all = MetadataRequest::default().with_topics(None);
    let none = MetadataRequest::default().with_topics(Some(Vec::new()));
    for (version, request, want) in
        [(0, &none, None), (1, &all, None), (1, &none, Some(Vec::new())), (13, &all, None)]
    {
        let want = MetadataQuery {
            topics: want,
            allow_auto_topic_creation: true,
            include_topic_authorized_operations: false,
            include_cluster_authorized_operations: false,
        };
        let answer = ControlResponse::Metadata(Ok(nothing()));
        let got =
            host.trip(&mut client, (version, request), ControlRequest::Metadata(want), answer);
        assert_eq!(got.topics, []);
    }
}

#[test]
fn describe_cluster() {
    let mut host = Host::new();
    let mut client = host.client();
    for version in 0..=2 {
        let mut request =
            DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
        request.include_fenced_brokers = version >= 2;
        let want = ClusterQuery {
            include_authorized_operations: true,
            include_fenced_brokers: version >= 2,
        };
        let answer = ClusterAnswer {
            cluster_id: "dst".to_owned(),
            controller: NODE,
            brokers: vec![node()],
            authorized_operations: Some(32),
        };
        let got = host.trip(
            &mut client,
            (version, &request),
            ControlRequest::DescribeCluster(want),
            ControlResponse::DescribeCluster(Ok(answer)),
        );
        assert_eq!((got.error_code, got.cluster_id.as_str(), got.controller_id.0), (0, "dst", 1));
        assert_eq!(got.brokers[0].port, 9092);
        assert_eq!(got.cluster_authorized_operations, 32);
        let refusal = ControlResponse::DescribeCluster(Err(no(ErrorCode::NOT_CONTROLLER)));
        let want = ControlRequest::DescribeCluster(want);
        let got = host.trip(&mut client, (version, &request), want, refusal);
        assert_eq!((got.error_code, got.error_message.as_deref()), (41, Some("no")));
    }
    // Without the control thread.
    for (endpoint_type, code) in [(2, 114), (7, 115)] {
        let request = DescribeClusterRequest::default().with_endpoint_type(endpoint_type);
        assert_eq!(client.call(1, &request).error_code, code);
    }
}

#[test]
fn find_coordinator() {
    let mut host = Host::new();
    let mut client = host.client();
    for version in 0..=6 {
        let kind =
            if version == 0 { CoordinatorKind::Group } else { CoordinatorKind::ClusterMirror };
        let mut request = FindCoordinatorRequest::default();
        request.key_type = if version == 0 { 0 } else { 3 };
        let mut keys = vec!["west".to_owned()];
        if version >= 4 {
            keys.push("other".to_owned());
            request.coordinator_keys = vec![text("west"), text("other")];
        } else {
            request.key = text("west");
        }
        let found = |key: &String| CoordinatorAnswer {
            key: key.clone(),
            result: if key == "west" { Ok(node()) } else { Err(no(ErrorCode::NOT_COORDINATOR)) },
        };
        let answer = ControlResponse::FindCoordinator(keys.iter().map(found).collect());
        let want = ControlRequest::FindCoordinator(CoordinatorQuery { kind, keys: keys.clone() });
        let got = host.trip(&mut client, (version, &request), want.clone(), answer);
        if version >= 4 {
            let [west, other] = &got.coordinators[..] else { panic!("two keys") };
            assert_eq!((west.key.as_str(), west.node_id.0, west.port), ("west", 1, 9092));
            assert_eq!((west.error_code, west.error_message.as_deref()), (0, None));
            assert_eq!((other.error_code, other.node_id.0), (16, -1));
            assert_eq!(other.error_message.as_deref(), Some("no"));
        } else {
            assert_eq!((got.node_id.0, got.host.as_str(), got.port), (1, "here", 9092));
            let result = Err(no(ErrorCode::NOT_COORDINATOR));
            let answer = vec![CoordinatorAnswer { key: "west".to_owned(), result }];
            let answer = ControlResponse::FindCoordinator(answer);
            let got = host.trip(&mut client, (version, &request), want, answer);
            assert_eq!((got.error_code, got.node_id.0), (16, -1));
            // The codec leaves an empty text where version 0 has none.
            let message = if version >= 1 { "no" } else { "" };
            assert_eq!(got.error_message.as_deref(), Some(message));
        }
    }
    let unknown = FindCoordinatorRequest::default().with_key_type(9);
    let unknown = unknown.with_coordinator_keys(vec![text("west")]);
    assert_eq!(client.call(6, &unknown).coordinators[0].error_code, 42);
}

#[test]
fn create_topics() {
    let mut host = Host::new();
    let mut client = host.client();
    for version in 2..=7 {
        let assignment = CreatableReplicaAssignment::default()
            .with_partition_index(4)
            .with_broker_ids(vec![kafka::BrokerId(7)]);
        let topic = CreatableTopic::default()
            .with_name(TopicName(text("one")))
            .with_num_partitions(3)
            .with_replication_factor(1)
            .with_assignments(vec![assignment])
            .with_configs(vec![
                CreatableTopicConfig::default().with_name(text("a")).with_value(None),
            ]);
        let request = CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(TIMEOUT_MS)
            .with_validate_only(true);
        let topic = mirror::CreatableTopic {
            name: "one".to_owned(),
            num_partitions: 3,
            replication_factor: 1,
            assignments: vec![mirror::CreatableReplicaAssignment {
                partition_index: 4,
                broker_ids: vec![BrokerId(7)],
            }],
            configs: vec![mirror::CreatableTopicConfig { name: "a".to_owned(), value: None }],
            mirror_info: None,
        };
        let want = mirror::CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: TIMEOUT_MS,
            validate_only: true,
        };
        let config = CreatedTopicConfig {
            name: "a".to_owned(),
            value: Some("b".to_owned()),
            read_only: false,
            config_source: 5,
            is_sensitive: false,
        };
        let created = CreatedTopic {
            name: "one".to_owned(),
            topic_id: topic_id("one"),
            error_code: 36,
            error_message: Some("no".to_owned()),
            num_partitions: 3,
            replication_factor: 1,
            configs: Some(vec![config]),
            topic_config_error_code: 29,
        };
        let answer = CreateTopicsResponse { throttle_time_ms: 0, topics: vec![created] };
        let got = host.trip(
            &mut client,
            (version, &request),
            ControlRequest::CreateTopics(want),
            ControlResponse::CreateTopics(answer),
        );
        let topic = &got.topics[0];
        assert_eq!((topic.name.0.as_str(), topic.error_code), ("one", 36));
        assert_eq!(topic.error_message.as_deref(), Some("no"));
        let id = if version >= 7 { topic_id("one") } else { TopicId::NONE };
        assert_eq!(topic.topic_id, id.0);
        assert_eq!(topic.num_partitions, if version >= 5 { 3 } else { -1 });
        assert_eq!(topic.topic_config_error_code, if version >= 5 { 29 } else { 0 });
        let configs = topic.configs.as_ref().map_or(0, Vec::len);
        assert_eq!(configs, usize::from(version >= 5));
    }
}

#[test]
fn delete_topics() {
    let mut host = Host::new();
    let mut client = host.client();
    for version in 1..=6 {
        let mut request = DeleteTopicsRequest::default().with_timeout_ms(TIMEOUT_MS);
        let mut topics = vec![TopicRef::Name("one".to_owned())];
        if version >= 6 {
            let one = DeleteTopicState::default().with_name(Some(TopicName(text("one"))));
            let two = DeleteTopicState::default().with_name(None).with_topic_id(topic_id("two").0);
            request.topics = vec![one, two];
            topics.push(TopicRef::Id(topic_id("two")));
        } else {
            request.topic_names = vec![TopicName(text("one"))];
        }
        let one = TopicDeleted {
            name: Some("one".to_owned()),
            topic_id: topic_id("one"),
            result: Ok(()),
        };
        let two = TopicDeleted {
            name: None,
            topic_id: topic_id("two"),
            result: Err(no(ErrorCode::UNKNOWN_TOPIC_ID)),
        };
        let got = host.trip(
            &mut client,
            (version, &request),
            ControlRequest::DeleteTopics(TopicsDeletion { topics, timeout: TIMEOUT }),
            ControlResponse::DeleteTopics(vec![one, two]),
        );
        let [one, two] = &got.responses[..] else { panic!("two topics") };
        assert_eq!(one.name.as_ref().expect("known").0.as_str(), "one");
        assert_eq!((one.error_code, two.error_code), (0, 100));
        assert_eq!(two.error_message.as_deref(), (version >= 5).then_some("no"));
        assert_eq!(two.name.is_none(), version >= 6);
    }
}

#[test]
fn create_partitions() {
    let mut host = Host::new();
    let mut client = host.client();
    for version in 0..=3 {
        let assignment =
            CreatePartitionsAssignment::default().with_broker_ids(vec![kafka::BrokerId(7)]);
        let topic = |name: &str| {
            CreatePartitionsTopic::default().with_name(TopicName(text(name))).with_count(6)
        };
        let one = topic("one").with_assignments(Some(vec![assignment]));
        let request = CreatePartitionsRequest::default()
            .with_topics(vec![one, topic("two").with_assignments(None)])
            .with_timeout_ms(TIMEOUT_MS);
        let of = |name: &str, assignments| PartitionsOfTopic {
            name: name.to_owned(),
            count: 6,
            assignments,
        };
        let want = PartitionsCreation {
            topics: vec![of("one", Some(vec![vec![BrokerId(7)]])), of("two", None)],
            timeout: TIMEOUT,
            validate_only: false,
        };
        let outcome = |name: &str, result| TopicOutcome { name: name.to_owned(), result };
        let answer =
            vec![outcome("one", Ok(())), outcome("two", Err(no(ErrorCode::INVALID_PARTITIONS)))];
        let got = host.trip(
            &mut client,
            (version, &request),
            ControlRequest::CreatePartitions(want),
            ControlResponse::CreatePartitions(answer),
        );
        let results: Vec<_> = got
            .results
            .iter()
            .map(|one| (one.name.0.as_str(), one.error_code, one.error_message.as_deref()))
            .collect();
        assert_eq!(results, [("one", 0, None), ("two", 37, Some("no"))]);
    }
}

fn resource(kind: ResourceKind, name: &str) -> ConfigResource {
    ConfigResource { kind, name: name.to_owned() }
}

fn entry(name: &str) -> ConfigEntry {
    let synonym = ConfigSynonym { name: name.to_owned(), value: Some("c".to_owned()), source: 4 };
    ConfigEntry {
        name: name.to_owned(),
        value: Some("b".to_owned()),
        read_only: true,
        source: 1,
        is_sensitive: false,
        synonyms: vec![synonym],
        config_type: 2,
        documentation: Some("what it is for".to_owned()),
    }
}

#[test]
fn describe_configs() {
    let mut host = Host::new();
    let mut client = host.client();
    for version in 1..=4 {
        let asked = [(2, "one"), (4, "1"), (64, "west")].map(|(kind, name)| {
            DescribeConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(name))
                .with_configuration_keys((kind == 2).then(|| vec![text("a")]))
        });
        let mut request = DescribeConfigsRequest::default()
            .with_resources(asked.to_vec())
            .with_include_synonyms(true);
        request.include_documentation = version >= 3;
        let resources = [
            resource(ResourceKind::TOPIC, "one"),
            resource(ResourceKind::BROKER, "1"),
            resource(ResourceKind::CLUSTER_MIRROR, "west"),
        ];
        let queries = resources.iter().map(|resource| ResourceQuery {
            resource: resource.clone(),
            keys: (resource.kind == ResourceKind::TOPIC).then(|| vec!["a".to_owned()]),
        });
        let want = ConfigsQuery {
            resources: queries.collect(),
            include_synonyms: true,
            include_documentation: version >= 3,
        };
        let answers = resources.map(|resource| ConfigsAnswer {
            result: if resource.kind == ResourceKind::CLUSTER_MIRROR {
                Err(no(ErrorCode::UNKNOWN_CLUSTER_MIRROR))
            } else {
                Ok(vec![entry("a")])
            },
            resource,
        });
        let got = host.trip(
            &mut client,
            (version, &request),
            ControlRequest::DescribeConfigs(want),
            ControlResponse::DescribeConfigs(answers.to_vec()),
        );
        let [topic, broker, mirror] = &got.results[..] else { panic!("three resources") };
        assert_eq!((topic.resource_type, topic.resource_name.as_str()), (2, "one"));
        assert_eq!((broker.resource_type, mirror.resource_type), (4, 64));
        assert_eq!((mirror.error_code, mirror.error_message.as_deref()), (137, Some("no")));
        let config = &topic.configs[0];
        assert_eq!((config.name.as_str(), config.value.as_deref()), ("a", Some("b")));
        assert_eq!((config.read_only, config.config_source), (true, 1));
        assert_eq!(config.synonyms[0].value.as_deref(), Some("c"));
        assert_eq!(config.config_type, if version >= 3 { 2 } else { 0 });
        let documentation = if version >= 3 { "what it is for" } else { "" };
        assert_eq!(config.documentation.as_deref(), Some(documentation));
        assert_eq!((topic.error_code, topic.error_message.as_deref()), (0, None));
    }
}

#[test]
fn incremental_alter_configs() {
    let mut host = Host::new();
    let mut client = host.client();
    for version in 0..=1 {
        let config = |name: &str, operation, value: Option<&str>| {
            AlterableConfig::default()
                .with_name(text(name))
                .with_config_operation(operation)
                .with_value(value.map(text))
        };
        let changes = vec![
            config("a", 0, Some("1")),
            config("b", 1, None),
            config("c", 2, Some("2")),
            config("d", 3, Some("3")),
        ];
        let mirror =
            AlterConfigsResource::default().with_resource_type(64).with_resource_name(text("west"));
        let request = IncrementalAlterConfigsRequest::default()
            .with_resources(vec![mirror.clone().with_configs(changes)])
            .with_validate_only(true);
        let change = |name: &str, operation, value: Option<&str>| ConfigChange {
            name: name.to_owned(),
            operation,
            value: value.map(str::to_owned),
        };
        let changes = vec![
            change("a", AlterOperation::Set, Some("1")),
            change("b", AlterOperation::Delete, None),
            change("c", AlterOperation::Append, Some("2")),
            change("d", AlterOperation::Subtract, Some("3")),
        ];
        let west = || resource(ResourceKind::CLUSTER_MIRROR, "west");
        let want = ConfigsChange {
            resources: vec![ResourceChanges { resource: west(), changes }],
            validate_only: true,
        };
        let refusal = Err(no(ErrorCode::INVALID_CONFIG));
        let answer = vec![ResourceOutcome { resource: west(), result: refusal }];
        let got = host.trip(
            &mut client,
            (version, &request),
            ControlRequest::IncrementalAlterConfigs(want),
            ControlResponse::IncrementalAlterConfigs(answer),
        );
        let only = &got.responses[0];
        assert_eq!((only.error_code, only.error_message.as_deref()), (40, Some("no")));
        assert_eq!((only.resource_type, only.resource_name.as_str()), (64, "west"));
        // An operation that nobody knows is refused without the control thread.
        let unknown = IncrementalAlterConfigsRequest::default()
            .with_resources(vec![mirror.with_configs(vec![config("a", 9, None)])]);
        assert_eq!(client.call(version, &unknown).responses[0].error_code, 42);
    }
}

#[test]
fn update_features() {
    let mut host = Host::new();
    let mut client = host.client();
    for version in 0..=2 {
        let mut update = FeatureUpdateKey::default()
            .with_feature(text("mirror.version"))
            .with_max_version_level(0);
        if version == 0 {
            update.allow_downgrade = true;
        } else {
            update.upgrade_type = 2;
        }
        let request = UpdateFeaturesRequest::default()
            .with_feature_updates(vec![update.clone()])
            .with_timeout_ms(TIMEOUT_MS);
        let want = ControlRequest::UpdateFeatures(FeaturesUpdate {
            updates: vec![FeatureUpdate {
                feature: "mirror.version".to_owned(),
                level: 0,
                upgrade: UpgradeKind::SafeDowngrade,
            }],
            timeout: TIMEOUT,
            validate_only: false,
        });
        let outcome = |result| {
            let feature = "mirror.version".to_owned();
            ControlResponse::UpdateFeatures(Ok(vec![FeatureOutcome { feature, result }]))
        };
        let refusal = outcome(Err(no(ErrorCode::FEATURE_UPDATE_FAILED)));
        let got = host.trip(&mut client, (version, &request), want.clone(), refusal);
        if version >= 2 {
            assert_eq!((got.error_code, got.error_message.as_deref()), (96, Some("no")));
        } else {
            let only = &got.results[0];
            assert_eq!((got.error_code, only.error_code), (0, 96));
            assert_eq!(only.feature.as_str(), "mirror.version");
        }
        let got = host.trip(&mut client, (version, &request), want.clone(), outcome(Ok(())));
        assert_eq!((got.error_code, got.error_message.as_deref()), (0, None));
        assert_eq!(got.results.len(), usize::from(version < 2));
        let whole = ControlResponse::UpdateFeatures(Err(no(ErrorCode::NOT_CONTROLLER)));
        assert_eq!(host.trip(&mut client, (version, &request), want, whole).error_code, 41);
        if version >= 1 {
            update.upgrade_type = 7;
            let unknown =
                UpdateFeaturesRequest::default().with_feature_updates(vec![update.clone()]);
            assert_eq!(client.call(version, &unknown).error_code, 42);
        }
    }
}

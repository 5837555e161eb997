//! The client against scripted servers that answer canned bytes.

use std::time::Duration;

use heliostat_core::config::AdminConfig;
use heliostat_core::protocol::admin::{
    AdminRequest, AlterConfigsRequest, AlterConfigsResponse, AlteredResource, ClusterBroker,
    ConfigSynonym as Synonym, DescribeClusterRequest, DescribeClusterResponse,
    DescribeConfigsRequest, DescribeConfigsResponse, DescribeConfigsResult, DescribedConfig,
    FeaturesRequest, FeaturesResponse, FinalizedFeature, FindCoordinatorRequest,
    FindCoordinatorResponse, FoundCoordinator, UpdateFeaturesRequest, UpdateFeaturesResponse,
    UpdatedFeature,
};
use heliostat_core::protocol::mirror::{
    ClusterMirrorResponse, CreateClusterMirrorRequest, CreateTopicsRequest, CreateTopicsResponse,
    CreatedTopic as Made, DeleteClusterMirrorRequest, DescribeClusterMirrorsRequest,
    DescribeClusterMirrorsResponse, DescribedClusterMirror, DescribedMirrorPartition,
    DescribedMirrorTopic, ListClusterMirrorsRequest, ListClusterMirrorsResponse,
    ListedClusterMirror, MirrorTopicResult, MirrorTopicsResponse, PauseMirrorTopicsRequest,
    RecoverMirrorTopicsRequest, ResumeMirrorTopicsRequest, StartMirrorTopicsRequest,
    StopMirrorTopicsRequest, decode, encode,
};
use heliostat_core::protocol::{Api, ErrorCode};
use heliostat_core::types::{BrokerId, Offset, TimestampMs, TopicId};
use kafka_protocol::messages::MetadataResponse;
use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
use kafka_protocol::protocol::StrBytes;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::source_client::HostPort;
use crate::source_client::fake::{Asked, Broker, Peer, Script, closed_port, frame, versions};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn settings() -> AdminConfig {
    AdminConfig::parse(b"request.timeout.ms=5000\ndefault.api.timeout.ms=10000").unwrap()
}

fn client(at: &HostPort) -> AdminClient {
    AdminClient::new(vec![at.clone()], settings())
}

/// Negotiates as a server that has everything.
fn greet(peer: &mut Peer) {
    let asked = peer.read().unwrap();
    assert_eq!(asked.api, 18);
    let all: Vec<_> = Api::ALL.map(|api| (api.key(), 0, 8)).to_vec();
    peer.answer(asked, &versions(&all));
}

/// A response frame with a body that is written already.
fn raw(to: Asked, body: &[u8]) -> Vec<u8> {
    // The negotiation's answer has no tagged fields in its header.
    let tags: &[u8] = if to.api == 18 { b"" } else { b"\0" };
    let rest = [&to.correlation.to_be_bytes()[..], tags, body].concat();
    let size = i32::try_from(rest.len()).unwrap();
    [&size.to_be_bytes()[..], &rest].concat()
}

/// The next request, which is an `R`.
#[track_caller]
fn expect<R: AdminRequest>(peer: &mut Peer) -> (Asked, R) {
    let asked = peer.read().unwrap();
    assert_eq!((asked.api, asked.version), (R::API.key(), R::VERSION));
    // Key, version, correlation ID, client ID, no tags.
    let body = &peer.frame[2 + 2 + 4 + 2 + "heliostat-admin".len() + 1..];
    (asked, decode(body).unwrap())
}

/// Takes an `R` and answers it.
fn serve<R: AdminRequest>(peer: &mut Peer, response: &R::Response) -> R {
    let (asked, request) = expect(peer);
    peer.write(&raw(asked, &encode(response)));
    request
}

/// One broker, at `at`, in the answer to Metadata.
fn serve_metadata(peer: &mut Peer, brokers: &[(i32, &HostPort)]) {
    let asked = peer.read().unwrap();
    assert_eq!(asked.api, 3);
    let broker = |(node, at): &(i32, &HostPort)| {
        MetadataResponseBroker::default()
            .with_node_id((*node).into())
            .with_host(StrBytes::from_string(at.host.to_string()))
            .with_port(at.port.into())
    };
    let brokers = brokers.iter().map(broker).collect();
    peer.write(&frame(asked, &MetadataResponse::default().with_brokers(brokers)));
}

/// A method against a server that expects `R`, looks at it with `check`, and answers.
fn one<R, T>(
    check: impl FnOnce(R) + Send + 'static,
    response: R::Response,
    call: impl AsyncFnOnce(&mut AdminClient) -> T,
) -> T
where
    R: AdminRequest<Response: Send> + 'static,
{
    let server = Broker::one(move |peer| {
        greet(peer);
        check(serve::<R>(peer, &response));
    });
    let outcome = runtime().block_on(call(&mut client(&server.at)));
    server.finish();
    outcome
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn result(topic: &str, error_code: i16, message: Option<&str>) -> MirrorTopicResult {
    MirrorTopicResult {
        name: topic.into(),
        error_code,
        error_message: message.map(Into::into),
        ..MirrorTopicResult::default()
    }
}

fn results(topics: Vec<MirrorTopicResult>) -> MirrorTopicsResponse {
    MirrorTopicsResponse { topics, ..MirrorTopicsResponse::default() }
}

fn done(topic: &str) -> TopicOutcome {
    TopicOutcome { topic: topic.into(), refusal: None, partitions: None, lag: None, state: None }
}

#[test]
fn mirrors_are_created_and_deleted() {
    let check = |request: CreateClusterMirrorRequest| {
        assert_eq!((request.mirror_name.as_str(), request.config.len()), ("west", 1));
        assert_eq!(request.config[0].value.as_deref(), Some("a:1"));
    };
    let configs = [("bootstrap.servers".to_owned(), "a:1".to_owned())];
    let call = async |it: &mut AdminClient| it.create_cluster_mirror("west", configs).await;
    assert_eq!(one(check, ClusterMirrorResponse::default(), call), Ok(()));

    let check = |request: DeleteClusterMirrorRequest| assert!(request.validate_only);
    let refused = ClusterMirrorResponse {
        error_code: 143,
        error_message: Some("topic a is MIRRORING; stop it first".into()),
        ..ClusterMirrorResponse::default()
    };
    let call = async |it: &mut AdminClient| {
        it.delete_cluster_mirror("west", DeleteOptions { validate_only: true }).await
    };
    let error = one(check, refused, call).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode(143)));
    let want = "CLUSTER_MIRROR_NOT_EMPTY (143): topic a is MIRRORING; stop it first";
    assert_eq!(error.to_string(), want);
}

#[test]
fn topics_are_started_with_patterns_that_the_host_resolves() {
    let check = |request: StartMirrorTopicsRequest| {
        assert!(request.topics.is_empty() && request.validate_only);
        assert_eq!(request.include_patterns, ["orders.*"]);
        assert_eq!(request.exclude_patterns, [".*-test"]);
    };
    let told = MirrorTopicResult {
        num_partitions: 3,
        lag: 0,
        state: "UNKNOWN".into(),
        ..result("orders-b", 0, None)
    };
    let answer = results(vec![told, result("orders-a", 138, Some("of mirror east"))]);
    let options = StartOptions {
        include_patterns: names(&["orders.*"]),
        exclude_patterns: names(&[".*-test"]),
        validate_only: true,
    };
    let call = async |it: &mut AdminClient| it.start_mirror_topics("west", &[], options).await;
    let outcomes = one(check, answer, call).unwrap();
    let refusal = Refusal { code: ErrorCode(138), message: Some("of mirror east".into()) };
    let want = [
        TopicOutcome { refusal: Some(refusal), ..done("orders-a") },
        TopicOutcome {
            partitions: Some(3),
            lag: Some(0),
            state: Some("UNKNOWN".into()),
            ..done("orders-b")
        },
    ];
    assert_eq!(outcomes, want);
}

#[test]
fn topics_are_stopped_paused_resumed_and_recovered() {
    let topics = names(&["b", "a"]);
    let answer = || results(vec![result("b", 0, None), result("a", 0, None)]);
    let want = Ok(vec![done("a"), done("b")]);

    let check = |request: StopMirrorTopicsRequest| {
        assert_eq!((request.topics.len(), request.patterns), (2, names(&["b", "a"])));
        assert!(!request.validate_only);
    };
    let options = StopOptions { patterns: topics.clone(), validate_only: false };
    let call = async |it: &mut AdminClient| it.stop_mirror_topics("w", &topics, options).await;
    assert_eq!(one(check, answer(), call), want);

    let check = |request: PauseMirrorTopicsRequest| assert_eq!(request.topics.len(), 2);
    let call = async |it: &mut AdminClient| it.pause_mirror_topics("w", &topics).await;
    assert_eq!(one(check, answer(), call), want);

    let check = |request: ResumeMirrorTopicsRequest| assert_eq!(request.topics.len(), 2);
    let call = async |it: &mut AdminClient| it.resume_mirror_topics("w", &topics).await;
    assert_eq!(one(check, answer(), call), want);

    let check = |request: RecoverMirrorTopicsRequest| assert_eq!(request.topics.len(), 2);
    let call = async |it: &mut AdminClient| it.recover_mirror_topics("w", &topics).await;
    assert_eq!(one(check, answer(), call), want);
}

#[test]
fn an_answer_without_a_topic_that_was_named_is_none() {
    let topics = names(&["a", "b"]);
    let call = async |it: &mut AdminClient| it.pause_mirror_topics("w", &topics).await;
    let check = |_: PauseMirrorTopicsRequest| {};
    let error = one(check, results(vec![result("a", 0, None)]), call).unwrap_err();
    let want = AdminError::Incomplete { api: Api::PauseMirrorTopics, missing: "b".into() };
    assert_eq!(error, want);
}

#[test]
fn a_refusal_at_the_top_counts_unless_topics_say_more() {
    let topics = names(&["a"]);
    let at_the_top = |topics| MirrorTopicsResponse { error_code: 137, ..results(topics) };
    let call = async |it: &mut AdminClient| it.pause_mirror_topics("w", &topics).await;
    let check = |_: PauseMirrorTopicsRequest| {};
    let error = one(check, at_the_top(vec![]), call).unwrap_err();
    assert_eq!(error.to_string(), "UNKNOWN_CLUSTER_MIRROR (137)");
    let call = async |it: &mut AdminClient| it.pause_mirror_topics("w", &topics).await;
    let outcomes = one(check, at_the_top(vec![result("a", 137, None)]), call).unwrap();
    assert_eq!(outcomes[0].refusal.as_ref().unwrap().code, ErrorCode(137));
}

#[test]
fn mirrors_are_listed_by_name() {
    let mirror = |name: &str, cluster: &str| ListedClusterMirror {
        mirror_name: name.into(),
        source_cluster_id: cluster.into(),
        topic_count: 2,
        topic_names: names(&["t"]),
        ..ListedClusterMirror::default()
    };
    let answer = ListClusterMirrorsResponse {
        mirrors: vec![mirror("b", ""), mirror("a", "id")],
        ..ListClusterMirrorsResponse::default()
    };
    let check = |request: ListClusterMirrorsRequest| assert!(request.include_topic_names);
    let call = async |it: &mut AdminClient| it.list_cluster_mirrors(true).await;
    let mirrors = one(check, answer, call).unwrap();
    let ids: Vec<_> =
        mirrors.iter().map(|it| (it.name.as_str(), it.source_cluster_id.as_deref())).collect();
    assert_eq!(ids, [("a", Some("id")), ("b", None)]);
    assert_eq!((mirrors[0].source_bootstrap.as_ref(), mirrors[0].topic_count), (None, 2));
}

fn described(name: &str, error_code: i16, partitions: &[i32]) -> DescribedClusterMirror {
    let partition = |index: &i32| DescribedMirrorPartition {
        partition_index: *index,
        source_offset: 9,
        destination_offset: 7,
        lag: 2,
        state: "MIRRORING".into(),
        failing_since_ms: 5,
        ..DescribedMirrorPartition::default()
    };
    DescribedClusterMirror {
        error_code,
        mirror_name: name.into(),
        topics: vec![DescribedMirrorTopic {
            topic_name: "t".into(),
            partitions: partitions.iter().map(partition).collect(),
            ..DescribedMirrorTopic::default()
        }],
        source_bootstrap: "a:1".into(),
        ..DescribedClusterMirror::default()
    }
}

/// Answers a description.
fn serve_description(peer: &mut Peer, mirrors: Vec<DescribedClusterMirror>) {
    let response =
        DescribeClusterMirrorsResponse { mirrors, ..DescribeClusterMirrorsResponse::default() };
    serve::<DescribeClusterMirrorsRequest>(peer, &response);
}

#[test]
fn descriptions_of_all_brokers_are_one() {
    let second = Broker::one(|peer| {
        greet(peer);
        serve_description(peer, vec![described("w", 0, &[0, 2]), described("x", 0, &[])]);
    });
    let second_at = second.at.clone();
    let first = Broker::start(move |at| {
        let at = at.clone();
        vec![Box::new(move |peer: &mut Peer| {
            greet(peer);
            serve_metadata(peer, &[(1, &at), (2, &second_at)]);
            serve_description(peer, vec![described("w", 0, &[1]), described("x", 144, &[])]);
        })]
    });
    let mirrors = names(&["w", "x"]);
    let mut client = client(&first.at);
    let found = runtime().block_on(client.describe_cluster_mirrors(&mirrors)).unwrap();
    first.finish();
    second.finish();
    assert_eq!(found.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["w", "x"]);
    assert_eq!(found[0].source_bootstrap.as_deref(), Some("a:1"));
    let partitions = &found[0].topics["t"];
    assert_eq!(partitions.iter().map(|it| it.index).collect::<Vec<_>>(), [0, 1, 2]);
    let it = &partitions[0];
    assert_eq!((it.source_offset, it.lag), (Some(Offset(9)), Some(2)));
    assert_eq!((it.last_mirror_offset, it.failing_since), (None, Some(TimestampMs(5))));
    assert_eq!((it.desired_state.as_ref(), it.state.as_str()), (None, "MIRRORING"));
}

#[test]
fn a_mirror_that_every_broker_refuses_is_an_error() {
    let server = Broker::start(|at| {
        let at = at.clone();
        vec![Box::new(move |peer: &mut Peer| {
            greet(peer);
            serve_metadata(peer, &[(1, &at)]);
            serve_description(peer, vec![described("w", 137, &[])]);
        })]
    });
    let mirrors = names(&["w"]);
    let mut client = client(&server.at);
    let error = runtime().block_on(client.describe_cluster_mirrors(&mirrors)).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode(137)));
    server.finish();
}

#[test]
fn figures_are_asked_for_by_level_and_missed_where_there_are_none() {
    let with_figures = |mirrors| DescribeClusterMirrorsResponse {
        mirrors,
        taken_at_ms: 5,
        ..DescribeClusterMirrorsResponse::default()
    };
    let server = Broker::one(move |peer| {
        greet(peer);
        let mut serve_it = |response| serve::<DescribeClusterMirrorsRequest>(peer, &response);
        let asked = serve_it(with_figures(vec![described("w", 137, &[])]));
        assert!(asked.include_figures && asked.mirror_names.is_empty());
        assert_eq!((asked.depth, asked.rows_max), (0, -1));
        let asked = serve_it(with_figures(vec![described("w", 0, &[])]));
        assert_eq!((asked.depth, asked.rows_max, asked.contains.as_str()), (1, 9, "x"));
        assert_eq!(asked.mirror_names, ["w"]);
        let asked = serve_it(with_figures(vec![described("w", 137, &[])]));
        assert_eq!((asked.depth, asked.rows_max), (2, 8));
        assert_eq!((asked.mirror_names, asked.topic_names), (names(&["w"]), names(&["t"])));
        serve_it(DescribeClusterMirrorsResponse::default());
    });
    let topics = FiguresQuery::Topics { mirror: "w".into(), contains: "x".into(), rows_max: 9 };
    let partitions =
        FiguresQuery::Partitions { mirror: "w".into(), topic: "t".into(), rows_max: 8 };
    let mut client = client(&server.at);
    runtime().block_on(async {
        client.mirror_figures(&FiguresQuery::Mirrors).await.unwrap();
        let answer = client.mirror_figures(&topics).await.unwrap();
        assert_eq!(answer.mirrors[0].mirror_name, "w");
        let gone = client.mirror_figures(&partitions).await.unwrap_err();
        assert_eq!(gone.code(), Some(ErrorCode(137)));
        let none = client.mirror_figures(&FiguresQuery::Mirrors).await.unwrap_err();
        assert!(none.to_string().contains("says nothing of figures"), "{none}");
    });
    server.finish();
}

#[test]
fn configs_are_described_without_secrets() {
    let secret = DescribedConfig {
        name: "sasl.jaas.config".into(),
        value: Some("s3cret".into()),
        config_source: 1,
        is_sensitive: true,
        synonyms: vec![Synonym { name: "x".into(), value: Some("s3cret".into()), source: 4 }],
        ..DescribedConfig::default()
    };
    let plain = DescribedConfig {
        name: "bootstrap.servers".into(),
        value: Some("a:1".into()),
        config_source: 5,
        ..DescribedConfig::default()
    };
    let answer = DescribeConfigsResponse {
        results: vec![DescribeConfigsResult {
            resource_type: 64,
            resource_name: "w".into(),
            configs: vec![secret, plain],
            ..DescribeConfigsResult::default()
        }],
        ..DescribeConfigsResponse::default()
    };
    let check = |request: DescribeConfigsRequest| {
        assert_eq!(request.resources[0].resource_type, 64);
        assert!(request.include_synonyms);
    };
    let mirror = ConfigResource::Mirror("w".into());
    let call = async |it: &mut AdminClient| it.describe_configs(&mirror).await;
    let entries = one(check, answer, call).unwrap();
    assert!(!format!("{entries:?}").contains("s3cret"), "{entries:?}");
    let shown: Vec<_> = entries.iter().map(|it| (it.name.as_str(), it.value.as_deref())).collect();
    assert_eq!(shown, [("bootstrap.servers", Some("a:1")), ("sasl.jaas.config", None)]);
    assert!(!entries[0].source.is_dynamic() && entries[1].source.is_dynamic());
    assert_eq!(entries[1].synonyms[0].source.name(), "STATIC_BROKER_CONFIG");
}

#[test]
fn configs_are_altered() {
    let check = |request: AlterConfigsRequest| {
        let configs = &request.resources[0].configs;
        let ops: Vec<_> =
            configs.iter().map(|it| (it.config_operation, it.value.as_deref())).collect();
        assert_eq!(ops, [(0, Some("v")), (1, None), (2, Some("w")), (3, Some("x"))]);
        assert!(request.validate_only);
    };
    let answer = AlterConfigsResponse {
        responses: vec![AlteredResource {
            error_code: 40,
            error_message: Some("a=v: want a number".into()),
            ..AlteredResource::default()
        }],
        ..AlterConfigsResponse::default()
    };
    let ops = [
        ("a".to_owned(), ConfigOp::Set("v".into())),
        ("b".to_owned(), ConfigOp::Delete),
        ("c".to_owned(), ConfigOp::Append("w".into())),
        ("d".to_owned(), ConfigOp::Subtract("x".into())),
    ];
    let topic = ConfigResource::Topic("t".into());
    let call = async |it: &mut AdminClient| it.incremental_alter_configs(&topic, ops, true).await;
    let error = one(check, answer, call).unwrap_err();
    assert_eq!(error.to_string(), "INVALID_CONFIG (40): a=v: want a number");
}

#[test]
fn a_brokers_configs_are_asked_of_that_broker() {
    let second = Broker::one(|peer| {
        greet(peer);
        let answer = DescribeConfigsResponse {
            results: vec![DescribeConfigsResult {
                resource_type: 4,
                resource_name: "2".into(),
                ..DescribeConfigsResult::default()
            }],
            ..DescribeConfigsResponse::default()
        };
        serve::<DescribeConfigsRequest>(peer, &answer);
    });
    let second_at = second.at.clone();
    let first = Broker::start(move |at| {
        let at = at.clone();
        vec![Box::new(move |peer: &mut Peer| {
            greet(peer);
            serve_metadata(peer, &[(1, &at), (2, &second_at)]);
        })]
    });
    let broker = ConfigResource::Broker(BrokerId(2));
    let entries = runtime().block_on(client(&first.at).describe_configs(&broker)).unwrap();
    assert_eq!(entries, []);
    first.finish();
    second.finish();
}

#[test]
fn topics_are_created_with_the_ids_of_their_source() {
    let id = TopicId(uuid::Uuid::from_u128(7));
    let check = move |request: CreateTopicsRequest| {
        let topics = request.topics;
        assert_eq!(topics[0].mirror_info.as_ref().unwrap().topic_id, id);
        assert_eq!((topics[0].num_partitions, topics[0].replication_factor), (3, -1));
        assert_eq!((topics[1].num_partitions, topics[1].mirror_info.as_ref()), (-1, None));
        assert_eq!(topics[1].configs[0].value.as_deref(), Some("5"));
        assert!(request.validate_only);
    };
    let made = |name: &str, error_code| Made { name: name.into(), error_code, ..Made::default() };
    let a = Made { topic_id: id, num_partitions: 3, ..made("a", 0) };
    let answer = |topics| CreateTopicsResponse { topics, ..CreateTopicsResponse::default() };
    let topics = [
        NewTopic {
            name: "a".into(),
            partitions: Some(3),
            mirror_id: Some(id),
            ..NewTopic::default()
        },
        NewTopic {
            name: "b".into(),
            configs: vec![("retention.ms".into(), "5".into())],
            ..NewTopic::default()
        },
    ];
    let call = async |it: &mut AdminClient| it.create_topics(&topics, true).await;
    let created = one(check, answer(vec![a.clone(), made("b", 36)]), call).unwrap();
    assert_eq!((created[0].refusal.as_ref(), created[0].id), (None, Some(id)));
    assert_eq!(created[0].partitions, Some(3));
    let refusal = created[1].refusal.as_ref().unwrap();
    assert_eq!((refusal.code, created[1].id), (ErrorCode(36), None));

    let call = async |it: &mut AdminClient| it.create_topics(&topics, true).await;
    let error = one(check, answer(vec![a]), call).unwrap_err();
    assert_eq!(error, AdminError::Incomplete { api: Api::CreateTopics, missing: "b".into() });
}

#[test]
fn clusters_and_coordinators_are_found() {
    let broker =
        |port| ClusterBroker { broker_id: 1, host: "h".into(), port, ..ClusterBroker::default() };
    let answer = DescribeClusterResponse {
        cluster_id: "c".into(),
        controller_id: 1,
        brokers: vec![broker(9092), broker(-1)],
        ..DescribeClusterResponse::default()
    };
    let call = async |it: &mut AdminClient| it.describe_cluster().await;
    let cluster = one(|_: DescribeClusterRequest| {}, answer, call).unwrap();
    assert_eq!((cluster.cluster_id.as_str(), cluster.controller), ("c", BrokerId(1)));
    assert_eq!(cluster.brokers, [(BrokerId(1), "h:9092".parse().unwrap())]);

    let found = FoundCoordinator {
        key: "w".into(),
        node_id: 1,
        host: "h".into(),
        port: 9092,
        ..FoundCoordinator::default()
    };
    let answer =
        FindCoordinatorResponse { coordinators: vec![found], ..FindCoordinatorResponse::default() };
    let check = |request: FindCoordinatorRequest| assert_eq!(request.key_type, 3);
    let call = async |it: &mut AdminClient| it.find_coordinator("w").await;
    let coordinator = one(check, answer, call).unwrap();
    assert_eq!((coordinator.node, coordinator.port), (BrokerId(1), 9092));
}

#[test]
fn features_are_read_and_upgraded() {
    let finalized = FinalizedFeature {
        name: "mirror.version".into(),
        max_version_level: 1,
        min_version_level: 0,
    };
    let answer = FeaturesResponse {
        finalized_features_epoch: 3,
        finalized_features: vec![finalized],
        ..FeaturesResponse::default()
    };
    let call = async |it: &mut AdminClient| it.features().await;
    let features = one(|_: FeaturesRequest| {}, answer, call).unwrap();
    let want = Feature { name: "mirror.version".into(), min: 0, max: 1 };
    assert_eq!((features.epoch, features.finalized), (3, vec![want]));

    let answer = UpdateFeaturesResponse {
        results: vec![UpdatedFeature { error_code: 95, ..UpdatedFeature::default() }],
        ..UpdateFeaturesResponse::default()
    };
    let check = |request: UpdateFeaturesRequest| {
        assert_eq!(request.feature_updates[0].max_version_level, 1);
        assert_eq!(request.timeout_ms, 10_000);
    };
    let call = async |it: &mut AdminClient| it.upgrade_feature("mirror.version", 1, false).await;
    let error = one(check, answer, call).unwrap_err();
    assert_eq!(error.to_string(), "INVALID_UPDATE_VERSION (95)");
}

#[test]
fn a_refusal_that_passes_is_asked_again_on_the_same_terms() {
    let server = Broker::start(|_| {
        let loading: Script = Box::new(|peer: &mut Peer| {
            greet(peer);
            let response =
                ClusterMirrorResponse { error_code: 14, ..ClusterMirrorResponse::default() };
            serve::<DeleteClusterMirrorRequest>(peer, &response);
        });
        let loaded: Script = Box::new(|peer: &mut Peer| {
            greet(peer);
            serve::<DeleteClusterMirrorRequest>(peer, &ClusterMirrorResponse::default());
        });
        vec![loading, loaded]
    });
    let mut client = client(&server.at);
    let call = client.delete_cluster_mirror("w", DeleteOptions::default());
    assert_eq!(runtime().block_on(call), Ok(()));
    server.finish();
}

#[test]
fn a_question_goes_to_the_next_server_and_a_change_to_the_first_that_connects() {
    let closes = Broker::one(|peer| {
        greet(peer);
        peer.read();
    });
    let answers = Broker::start(|_| {
        let list: Script = Box::new(|peer: &mut Peer| {
            greet(peer);
            serve::<ListClusterMirrorsRequest>(peer, &ListClusterMirrorsResponse::default());
        });
        let delete: Script = Box::new(|peer: &mut Peer| {
            greet(peer);
            serve::<DeleteClusterMirrorRequest>(peer, &ClusterMirrorResponse::default());
        });
        vec![list, delete]
    });
    let bootstrap = vec![closed_port(), closes.at.clone(), answers.at.clone()];
    let mut client = AdminClient::new(bootstrap, settings());
    let runtime = runtime();
    assert_eq!(runtime.block_on(client.list_cluster_mirrors(false)), Ok(vec![]));
    let delete = client.delete_cluster_mirror("w", DeleteOptions::default());
    assert_eq!(runtime.block_on(delete), Ok(()));
    closes.finish();
    answers.finish();
}

/// A connection on which a request is read, and then left to `script`.
fn after_a_request(script: impl FnOnce(&mut Peer, Asked) + Send + 'static) -> Script {
    Box::new(move |peer: &mut Peer| {
        greet(peer);
        let asked = peer.read().unwrap();
        script(peer, asked);
    })
}

/// What a change and a question say to a server that does `script` with the request.
fn broken(
    request_timeout: &str,
    script: impl FnOnce(&mut Peer, Asked) + Clone + Send + 'static,
) -> (AdminError, AdminError, HostPort) {
    let server = Broker::start(|_| vec![after_a_request(script.clone()), after_a_request(script)]);
    let text = format!("request.timeout.ms={request_timeout}");
    let config = AdminConfig::parse(text.as_bytes()).unwrap();
    let mut client = AdminClient::new(vec![server.at.clone()], config);
    let runtime = runtime();
    let change = runtime.block_on(client.delete_cluster_mirror("w", DeleteOptions::default()));
    let question = runtime.block_on(client.list_cluster_mirrors(false));
    let at = server.at.clone();
    drop(client);
    server.finish();
    (change.unwrap_err(), question.unwrap_err(), at)
}

#[test]
fn a_server_that_hangs_is_given_up_and_a_change_is_uncertain() {
    let (change, question, at) = broken("50", |peer, _| {
        // Until the client has gone.
        assert!(peer.read().is_none());
    });
    assert_eq!(
        change.to_string(),
        format!(
            "{at}: no answer to DeleteClusterMirror within 50 ms; the broker hangs or is \
             overloaded, or raise request.timeout.ms; whether DeleteClusterMirror took effect is \
             unknown: look before it is asked again"
        )
    );
    assert!(matches!(question, AdminError::Unanswered { .. }), "{question:?}");
}

#[test]
fn a_server_that_closes_is_told() {
    let (change, question, at) = broken("5000", |_, _| {});
    let closed = "closed the connection during DeleteClusterMirror, 0 bytes into the response";
    assert!(change.to_string().starts_with(&format!("{at}: {closed}")), "{change}");
    assert!(matches!(change, AdminError::Uncertain { .. }), "{change:?}");
    let wanted = format!("no server answers ListClusterMirrors: {at}: closed the connection");
    assert!(question.to_string().starts_with(&wanted), "{question}");
}

#[test]
fn garbage_and_huge_sizes_are_refused() {
    let (change, question, _) = broken("5000", |peer, asked| {
        peer.write(&raw(asked, b"\0\0\0\0\0\0\x05ab"));
    });
    let text = change.to_string();
    assert!(text.contains("broke the Kafka protocol in its answer to DeleteCluster"), "{text}");
    assert!(matches!(question, AdminError::Unanswered { .. }), "{question:?}");
    let (change, _, _) = broken("5000", |peer, _| peer.write(b"\x7f\xff\xff\xff\0\0\0\0"));
    assert!(change.to_string().contains("2147483647"), "{change}");
    let (change, _, _) = broken("5000", |peer, asked| {
        let other = Asked { correlation: 77, ..asked };
        peer.write(&raw(other, b"\0\0\0\0\0\0\0\0"));
    });
    assert!(change.to_string().contains("answered request 77 where 1 was asked"), "{change}");
}

#[test]
fn a_server_without_the_api_is_named() {
    let server = Broker::one(|peer| {
        let asked = peer.read().unwrap();
        peer.answer(asked, &versions(&[(18, 0, 4), (3, 4, 13), (99, 1, 2)]));
    });
    let error = runtime().block_on(client(&server.at).list_cluster_mirrors(false)).unwrap_err();
    let want = AdminError::Unsupported { api: Api::ListClusterMirrors, peer: server.at.clone() };
    assert_eq!(error, want);
    server.finish();
}

#[test]
fn an_error_that_does_not_pass_in_time_is_told_with_its_reason() {
    let server = Broker::one(|peer| {
        greet(peer);
        let response =
            ListClusterMirrorsResponse { error_code: 15, ..ListClusterMirrorsResponse::default() };
        serve::<ListClusterMirrorsRequest>(peer, &response);
    });
    let config = AdminConfig::parse(b"request.timeout.ms=90\ndefault.api.timeout.ms=90").unwrap();
    let mut client = AdminClient::new(vec![server.at.clone()], config);
    let error = runtime().block_on(client.list_cluster_mirrors(false)).unwrap_err();
    let want = AdminError::Timeout {
        api: Api::ListClusterMirrors,
        after: Duration::from_millis(90),
        last: Some(Refusal { code: ErrorCode(15), message: None }),
    };
    assert_eq!(error, want);
    server.finish();
}

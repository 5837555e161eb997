//! The APIs of KIP-1279 and CreateTopics 8, there and back.

use heliostat_core::protocol::mirror::{
    self, BumpLeaderEpochsRequest, BumpLeaderEpochsResponse, BumpTopic, CREATE_TOPICS_KEY,
    ClusterMirrorConfig, ClusterMirrorResponse, CreatableTopic, CreateClusterMirrorRequest,
    CreateTopicsRequest, CreateTopicsResponse, CreatedTopic, DeleteClusterMirrorRequest,
    DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse, DescribedClusterMirror, Field,
    ListClusterMirrorsRequest, ListClusterMirrorsResponse, ListedClusterMirror, MirrorInfo,
    MirrorRequest, MirrorTopicResult, MirrorTopicsResponse, PauseMirrorTopicsRequest,
    ReadMirrorStatesRequest, ReadMirrorStatesResponse, RecoverMirrorTopic,
    RecoverMirrorTopicsRequest, ResumeMirrorTopicsRequest, StartMirrorTopic,
    StartMirrorTopicsRequest, StatesOfTopic, StopMirrorTopicsRequest, WriteMirrorStatesRequest,
    WriteMirrorStatesResponse, WrittenTopic,
};
use heliostat_io::listener::control::{ControlRequest, ControlResponse};

use super::host::{Host, receive_mirror, receive_raw, send_mirror, send_raw};
use crate::client::{Client, topic_id};

/// Puts a message into its variant.
type Variant<M, V> = fn(M) -> V;

/// One API there and back: what the control thread gets and gives is what the client does.
fn trip<M>(
    host: &mut Host,
    client: &mut Client,
    (request, as_request): (M, Variant<M, ControlRequest>),
    (response, as_response): (M::Response, Variant<M::Response, ControlResponse>),
) where
    M: MirrorRequest + Clone,
    M::Response: Field + Clone + PartialEq + std::fmt::Debug,
{
    send_mirror(client, &request);
    let call = host.next();
    assert_eq!(call.request, as_request(request));
    assert!(call.answer(as_response(response.clone())));
    assert_eq!(receive_mirror::<M::Response>(client), response);
}

fn mirror_name() -> String {
    "west".to_owned()
}

#[test]
fn mirrors_are_made_removed_and_shown() {
    let mut host = Host::new();
    let mut client = host.client();
    let done = || ClusterMirrorResponse {
        error_code: 136,
        error_message: Some("west is there".to_owned()),
        ..ClusterMirrorResponse::default()
    };
    let config =
        ClusterMirrorConfig { name: "bootstrap.servers".into(), value: Some("h:1".into()) };
    let create = CreateClusterMirrorRequest { mirror_name: mirror_name(), config: vec![config] };
    trip(
        &mut host,
        &mut client,
        (create, ControlRequest::CreateClusterMirror),
        (done(), ControlResponse::CreateClusterMirror),
    );
    trip(
        &mut host,
        &mut client,
        (
            DeleteClusterMirrorRequest { mirror_name: mirror_name(), validate_only: false },
            ControlRequest::DeleteClusterMirror,
        ),
        (done(), ControlResponse::DeleteClusterMirror),
    );
    let listed = ListedClusterMirror {
        mirror_name: mirror_name(),
        topic_names: vec!["one".into()],
        ..ListedClusterMirror::default()
    };
    trip(
        &mut host,
        &mut client,
        (
            ListClusterMirrorsRequest { include_topic_names: true },
            ControlRequest::ListClusterMirrors,
        ),
        (
            ListClusterMirrorsResponse { mirrors: vec![listed], ..Default::default() },
            ControlResponse::ListClusterMirrors,
        ),
    );
    let described =
        DescribedClusterMirror { mirror_name: mirror_name(), ..DescribedClusterMirror::default() };
    trip(
        &mut host,
        &mut client,
        (
            DescribeClusterMirrorsRequest {
                mirror_names: vec![mirror_name()],
                ..DescribeClusterMirrorsRequest::default()
            },
            ControlRequest::DescribeClusterMirrors,
        ),
        (
            DescribeClusterMirrorsResponse { mirrors: vec![described], ..Default::default() },
            ControlResponse::DescribeClusterMirrors,
        ),
    );
}

#[test]
fn topics_are_started_stopped_paused_resumed_and_recovered() {
    let mut host = Host::new();
    let mut client = host.client();
    let result = MirrorTopicResult {
        name: "one".into(),
        error_code: 138,
        error_message: Some("one is in east".into()),
        ..MirrorTopicResult::default()
    };
    let done = || MirrorTopicsResponse {
        mirror_name: mirror_name(),
        topics: vec![result.clone()],
        ..MirrorTopicsResponse::default()
    };
    let start = StartMirrorTopicsRequest {
        mirror_name: mirror_name(),
        topics: vec![StartMirrorTopic { topic_name: "one".into(), ..Default::default() }],
        include_patterns: vec!["a.*".into()],
        exclude_patterns: Vec::new(),
        validate_only: false,
    };
    trip(
        &mut host,
        &mut client,
        (start, ControlRequest::StartMirrorTopics),
        (done(), ControlResponse::StartMirrorTopics),
    );
    let stop = StopMirrorTopicsRequest { mirror_name: mirror_name(), ..Default::default() };
    trip(
        &mut host,
        &mut client,
        (stop, ControlRequest::StopMirrorTopics),
        (done(), ControlResponse::StopMirrorTopics),
    );
    let pause = PauseMirrorTopicsRequest { mirror_name: mirror_name(), ..Default::default() };
    trip(
        &mut host,
        &mut client,
        (pause, ControlRequest::PauseMirrorTopics),
        (done(), ControlResponse::PauseMirrorTopics),
    );
    let resume = ResumeMirrorTopicsRequest { mirror_name: mirror_name(), ..Default::default() };
    trip(
        &mut host,
        &mut client,
        (resume, ControlRequest::ResumeMirrorTopics),
        (done(), ControlResponse::ResumeMirrorTopics),
    );
    let recover = RecoverMirrorTopicsRequest {
        mirror_name: mirror_name(),
        topics: vec![RecoverMirrorTopic { topic_name: "one".into() }],
    };
    trip(
        &mut host,
        &mut client,
        (recover, ControlRequest::RecoverMirrorTopics),
        (done(), ControlResponse::RecoverMirrorTopics),
    );
}

#[test]
fn states_and_epochs_go_both_ways() {
    let mut host = Host::new();
    let mut client = host.client();
    let read = ReadMirrorStatesRequest { mirror_name: mirror_name(), ..Default::default() };
    let states = StatesOfTopic { name: "one".into(), ..StatesOfTopic::default() };
    trip(
        &mut host,
        &mut client,
        (read, ControlRequest::ReadMirrorStates),
        (
            ReadMirrorStatesResponse { topics: vec![states], ..Default::default() },
            ControlResponse::ReadMirrorStates,
        ),
    );
    let write = WriteMirrorStatesRequest { mirror_name: mirror_name(), ..Default::default() };
    let written = WrittenTopic { name: "one".into(), ..WrittenTopic::default() };
    trip(
        &mut host,
        &mut client,
        (write, ControlRequest::WriteMirrorStates),
        (
            WriteMirrorStatesResponse { topics: vec![written], ..Default::default() },
            ControlResponse::WriteMirrorStates,
        ),
    );
    let topic = BumpTopic { topic_id: topic_id("one"), partitions: Vec::new() };
    trip(
        &mut host,
        &mut client,
        (BumpLeaderEpochsRequest { topics: vec![topic] }, ControlRequest::BumpLeaderEpochs),
        (BumpLeaderEpochsResponse::default(), ControlResponse::BumpLeaderEpochs),
    );
}

#[test]
fn create_topics_8_carries_the_sources_id() {
    let mut host = Host::new();
    let mut client = host.client();
    let topic = CreatableTopic {
        name: "one".into(),
        num_partitions: 3,
        mirror_info: Some(MirrorInfo { topic_id: topic_id("one") }),
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
    send_raw(&mut client, CREATE_TOPICS_KEY, 8, &mirror::encode(&request));
    let call = host.next();
    assert_eq!(call.request, ControlRequest::CreateTopics(request));
    let created = CreatedTopic {
        name: "one".into(),
        topic_id: topic_id("one"),
        num_partitions: 3,
        replication_factor: 1,
        configs: Some(Vec::new()),
        ..CreatedTopic::default()
    };
    let response = CreateTopicsResponse { throttle_time_ms: 0, topics: vec![created] };
    assert!(call.answer(ControlResponse::CreateTopics(response.clone())));
    let got: CreateTopicsResponse = mirror::decode(&receive_raw(&mut client)).expect("v8");
    assert_eq!(got, response);
}

//! Calls that wait: their order, their deadline, and what ends them.

use std::io::Write;
use std::time::Duration;

use heliostat_core::protocol::mirror::{
    ClusterMirrorResponse, ListClusterMirrorsRequest, ListClusterMirrorsResponse,
};
use heliostat_io::listener::control::{
    ControlLimits, ControlRequest, ControlResponse, CoordinatorAnswer,
};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, CreateTopicsRequest, FindCoordinatorRequest, MetadataRequest, TopicName,
};

use super::host::{Host, ask_for, node, nothing, query, receive_mirror, send_mirror};
use crate::client::text;

fn impatient(queued_requests_max: usize) -> Host {
    let request_timeout = Duration::from_millis(500);
    Host::with(ControlLimits { queued_requests_max, request_timeout }, |_| {})
}

fn metadata() -> ControlResponse {
    ControlResponse::Metadata(Ok(nothing()))
}

#[test]
fn pipelined_requests_are_answered_in_order_and_one_at_a_time() {
    let mut host = Host::new();
    let mut client = host.client();
    let first = client.send(13, &ask_for("first"));
    let versions = client.send(3, &ApiVersionsRequest::default());
    let keys = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("k")]);
    let second = client.send(4, &keys);
    let third = client.send(9, &ask_for("third"));
    let call = host.next();
    assert_eq!(call.request, ControlRequest::Metadata(query("first")));
    // Another connection's turn comes before this one's second request.
    let mut other = host.client();
    let asked = other.send(13, &ask_for("other"));
    let others = host.next();
    assert_eq!(others.request, ControlRequest::Metadata(query("other")));
    assert!(others.answer(metadata()));
    other.receive::<MetadataRequest>(13, asked);
    assert!(call.answer(metadata()));
    let call = host.next();
    assert!(matches!(call.request, ControlRequest::FindCoordinator(_)));
    let found = CoordinatorAnswer { key: "k".into(), result: Ok(node()) };
    assert!(call.answer(ControlResponse::FindCoordinator(vec![found])));
    assert!(host.next().answer(metadata()));
    client.receive::<MetadataRequest>(13, first);
    client.receive::<ApiVersionsRequest>(3, versions);
    client.receive::<FindCoordinatorRequest>(4, second);
    client.receive::<MetadataRequest>(9, third);
}

#[test]
fn late_answers_time_out_in_the_schema_of_the_api() {
    let mut host = impatient(500);
    let mut client = host.client();
    // Taken, and never answered in time.
    let id = client.send(13, &ask_for("one"));
    let call = host.next();
    assert_eq!(client.receive::<MetadataRequest>(13, id).error_code, 7);
    assert!(!call.answer(metadata()), "nobody waits any more");
    let topic = CreatableTopic::default().with_name(TopicName(text("one")));
    let request = CreateTopicsRequest::default().with_topics(vec![topic]);
    let id = client.send(7, &request);
    let call = host.next();
    let response = client.receive::<CreateTopicsRequest>(7, id);
    assert_eq!((response.topics[0].name.0.as_str(), response.topics[0].error_code), ("one", 7));
    let message = response.topics[0].error_message.as_deref().expect("a reason");
    assert!(message.contains("unknown"), "{message}");
    drop(call);
    send_mirror(&mut client, &ListClusterMirrorsRequest::default());
    let _call = host.next();
    assert_eq!(receive_mirror::<ListClusterMirrorsResponse>(&mut client).error_code, 7);
    // The connection goes on.
    host.serves_only(&mut client, "later");
}

#[test]
fn versions_without_a_field_for_the_error_are_closed() {
    let mut host = impatient(500);
    let mut client = host.client();
    client.send(12, &ask_for("one"));
    assert!(client.is_closed());
    let mut client = host.client();
    host.serves_only(&mut client, "what timed out in the queue is passed over");
}

#[test]
fn without_room_in_the_queue_requests_wait_and_time_out() {
    let mut host = impatient(1);
    let mut clients = [(); 3].map(|()| host.client());
    let ids = [0, 1, 2].map(|index: usize| {
        let client = &mut clients[index];
        client.send(13, &ask_for("one"))
    });
    // None was taken: one waited in the queue, two for room in it.
    for (client, id) in clients.iter_mut().zip(ids) {
        assert_eq!(client.receive::<MetadataRequest>(13, id).error_code, 7);
    }
    assert_eq!(host.calls.as_ref().expect("not dropped").waiting(), 1);
    host.serves_only(&mut clients[2], "of the three none is left");
}

#[test]
fn requests_that_wait_for_room_have_their_turn() {
    let limits = ControlLimits { queued_requests_max: 1, ..ControlLimits::default() };
    let mut host = Host::with(limits, |_| {});
    let mut clients: Vec<_> = (0..20).map(|_| host.client()).collect();
    let ids: Vec<_> = clients.iter_mut().map(|client| client.send(13, &ask_for("one"))).collect();
    for _ in &ids {
        assert!(host.calls.as_ref().expect("not dropped").waiting() <= 1);
        assert!(host.next().answer(metadata()));
    }
    for (client, id) in clients.iter_mut().zip(ids) {
        assert_eq!(client.receive::<MetadataRequest>(13, id).error_code, 0);
    }
}

#[test]
fn a_call_that_is_dropped_or_answered_as_another_closes_its_connection() {
    let mut host = Host::new();
    let mut patient = host.client();
    let mut client = host.client();
    client.send(13, &ask_for("one"));
    drop(host.next());
    assert!(client.is_closed());
    let mut client = host.client();
    client.send(13, &ask_for("one"));
    let other = ControlResponse::CreateClusterMirror(ClusterMirrorResponse::default());
    assert!(host.next().answer(other));
    assert!(client.is_closed());
    host.serves_only(&mut patient, "unharmed");
}

#[test]
fn without_a_control_thread_connections_close_at_their_next_call() {
    let mut host = Host::new();
    let mut waiting = host.client();
    let mut client = host.client();
    waiting.send(13, &ask_for("one"));
    let _call = host.next();
    host.calls = None;
    assert_eq!(client.call(3, &ApiVersionsRequest::default()).error_code, 0);
    client.send(13, &ask_for("one"));
    assert!(client.is_closed());
}

#[test]
fn stop_waits_for_no_call_and_no_half_request() {
    let mut host = Host::new();
    let mut waiting = host.client();
    waiting.send(13, &ask_for("taken"));
    let taken = host.next();
    let mut queued = host.client();
    queued.send(13, &ask_for("queued"));
    let mut half_length = host.client();
    half_length.stream.write_all(&[0, 0]).expect("sent");
    let mut half_frame = host.client();
    half_frame.stream.write_all(&[0, 0, 4, 0, 0, 3]).expect("sent");
    let mut idle = host.client();
    idle.call(3, &ApiVersionsRequest::default());
    host.listener.take().expect("running").stop();
    for client in [&mut waiting, &mut queued, &mut half_length, &mut half_frame, &mut idle] {
        assert!(client.is_closed());
    }
    assert!(!taken.answer(metadata()), "its connection is gone");
    assert!(host.try_next().is_none(), "and so is the call that was queued");
}

#[test]
fn a_client_need_not_say_who_it_is() {
    let mut host = Host::new();
    let mut client = host.client();
    // DescribeCluster v0, whose header is flexible, with a null client ID.
    let body = b"\0\x3c\0\0\0\0\0\x01\xff\xff\0\0\0";
    let length = i32::try_from(body.len()).expect("small").to_be_bytes();
    client.stream.write_all(&[&length[..], body].concat()).expect("sent");
    assert_eq!(host.next().caller.client_id, None);
}

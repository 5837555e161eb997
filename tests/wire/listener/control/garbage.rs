//! What no client sends ends its own connection, and never reaches the control thread.

use std::io::Write;

use bytes::BytesMut;
use heliostat_core::protocol::mirror::{self, StartMirrorTopic, StartMirrorTopicsRequest};
use heliostat_io::listener::control::ControlLimits;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    DescribeClusterRequest, DescribeConfigsRequest, FetchRequest, FindCoordinatorRequest,
    IncrementalAlterConfigsRequest, MetadataRequest, ProduceRequest, TopicName,
    UpdateFeaturesRequest,
};
use kafka_protocol::protocol::{Encodable, Request};

use super::host::{Host, frame};
use crate::client::text;

/// Closed, and nobody else notices.
#[track_caller]
fn refused(host: &mut Host, name: &str, bytes: &[u8]) {
    let mut stranger = host.client();
    stranger.stream.write_all(bytes).expect("sent");
    assert!(stranger.is_closed(), "{name}");
}

#[test]
fn strangers_are_closed_and_others_go_on() {
    let mut host = Host::new();
    let mut patient = host.client();
    let sized = |length: i32, body: &[u8]| [&length.to_be_bytes()[..], body].concat();
    let strangers: [(&str, Vec<u8>); 12] = [
        ("HTTP", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec()),
        ("TLS hello", [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 400]].concat()),
        ("largest length", sized(i32::MAX, b"abc")),
        ("negative length", sized(-1, b"abc")),
        ("most negative length", sized(i32::MIN, b"abc")),
        ("empty frame", sized(0, b"")),
        ("short header", sized(5, b"\0\x03\0\x0dx")),
        ("negative API key", frame(-1, 0, b"\0")),
        // Metadata v1 for two billion topics, and for a negative number of them.
        ("false count", sized(14, b"\0\x03\0\x01\0\0\0\x01\xff\xff\x7f\xff\xff\xff")),
        ("negative count", sized(14, b"\0\x03\0\x01\0\0\0\x01\xff\xff\xff\xff\xff\xfe")),
        ("false count of topics", frame(19, 8, b"\xff\xff\xff\xff\x0f\0\0\0\0\0\0")),
        ("false count of mirror topics", frame(96, 0, b"\x02w\xff\xff\xff\xff\x0f")),
    ];
    for (name, bytes) in strangers {
        refused(&mut host, name, &bytes);
        host.serves_only(&mut patient, name);
    }
}

#[test]
fn what_is_not_served_is_closed() {
    let mut host = Host::new();
    for (key, version) in [
        (ProduceRequest::KEY, 2),
        (ProduceRequest::KEY, 14),
        (FetchRequest::KEY, 3),
        (FetchRequest::KEY, 19),
        (93, 0),
        (97, 0),
        (106, 0),
        (108, 0),
        (i16::MAX, 0),
        (MetadataRequest::KEY, 14),
        (MetadataRequest::KEY, -1),
        (CreateTopicsRequest::KEY, 1),
        (CreateTopicsRequest::KEY, 9),
        (DescribeConfigsRequest::KEY, 0),
        (94, 1),
        (99, -1),
    ] {
        refused(&mut host, &format!("{key} v{version}"), &frame(key, version, &[0; 40]));
    }
    let mut patient = host.client();
    host.serves_only(&mut patient, "none of them was asked");
}

fn body(request: &impl Encodable, version: i16) -> Vec<u8> {
    let mut out = BytesMut::new();
    request.encode(&mut out, version).expect("encodes");
    out.to_vec()
}

/// A request of each API in its highest version, which has a flexible header.
fn bodies() -> Vec<(i16, i16, Vec<u8>)> {
    let topic = CreatableTopic::default().with_name(TopicName(text("one")));
    let start = StartMirrorTopicsRequest {
        mirror_name: "west".into(),
        topics: vec![StartMirrorTopic { topic_name: "one".into(), ..Default::default() }],
        ..Default::default()
    };
    let eighth = mirror::CreateTopicsRequest {
        topics: vec![mirror::CreatableTopic { name: "one".into(), ..Default::default() }],
        ..Default::default()
    };
    vec![
        (3, 13, body(&super::host::ask_for("one"), 13)),
        (10, 6, body(&FindCoordinatorRequest::default().with_coordinator_keys(vec![text("a")]), 6)),
        (18, 4, body(&ApiVersionsRequest::default(), 4)),
        (19, 7, body(&CreateTopicsRequest::default().with_topics(vec![topic]), 7)),
        (19, 8, mirror::encode(&eighth)),
        (20, 6, body(&DeleteTopicsRequest::default(), 6)),
        (32, 4, body(&DescribeConfigsRequest::default(), 4)),
        (37, 3, body(&CreatePartitionsRequest::default(), 3)),
        (44, 1, body(&IncrementalAlterConfigsRequest::default(), 1)),
        (57, 2, body(&UpdateFeaturesRequest::default(), 2)),
        (60, 2, body(&DescribeClusterRequest::default(), 2)),
        (95, 0, mirror::encode(&start)),
    ]
}

#[test]
fn requests_that_end_early_are_closed() {
    let mut host = Host::new();
    for (key, version, body) in bodies() {
        for end in [0, body.len() / 2, body.len() - 1] {
            let cut = frame(key, version, &body[..end]);
            refused(&mut host, &format!("{key} v{version} cut at {end}"), &cut);
        }
    }
    let mut patient = host.client();
    host.serves_only(&mut patient, "none of them was asked");
}

#[test]
fn frames_have_a_limit() {
    let mut host =
        Host::with(ControlLimits::default(), |config| config.socket_request_max_bytes = 100);
    let mut patient = host.client();
    host.serves_only(&mut patient, "short");
    refused(&mut host, "101 bytes", &101_i32.to_be_bytes());
    host.serves_only(&mut patient, "short");
}

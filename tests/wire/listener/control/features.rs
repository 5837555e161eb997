//! ApiVersions, and what the level of `mirror.version` changes.

use heliostat_core::protocol::mirror::{
    BumpLeaderEpochsRequest, CreateClusterMirrorRequest, DeleteClusterMirrorRequest,
    DescribeClusterMirrorsRequest, ListClusterMirrorsRequest, MirrorRequest,
    PauseMirrorTopicsRequest, ReadMirrorStatesRequest, RecoverMirrorTopicsRequest,
    ResumeMirrorTopicsRequest, StartMirrorTopicsRequest, StopMirrorTopicsRequest,
    WriteMirrorStatesRequest,
};
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::host::{EPOCH, Host, receive_mirror, send_mirror};
use crate::apis::refuses_records;
use crate::client::Client;

#[test]
fn api_versions_lists_what_is_served_in_every_version() {
    let host = Host::new();
    let mut client = host.client();
    for version in 0..=4 {
        let response = client.call(version, &ApiVersionsRequest::default());
        assert_eq!(response.error_code, 0);
        let listed: Vec<_> = response
            .api_keys
            .iter()
            .map(|api| (api.api_key, api.min_version, api.max_version))
            .collect();
        let kafka = [
            (0, 3, 13),
            (1, 4, 18),
            (2, 1, 10),
            (3, 0, 13),
            (10, 0, 6),
            (18, 0, 4),
            (19, 2, 8),
            (20, 1, 6),
            (23, 2, 4),
            (32, 1, 4),
            (37, 0, 3),
            (44, 0, 1),
            (57, 0, 2),
            (60, 0, 2),
        ];
        let mirrors = [94, 95, 96, 98, 99, 100, 101, 102, 103, 104, 105, 107];
        let want: Vec<_> =
            kafka.into_iter().chain(mirrors.into_iter().map(|key| (key, 0, 0))).collect();
        assert_eq!(listed, want, "v{version}");
    }
}

fn supported(response: &ApiVersionsResponse) -> Vec<(&str, i16, i16)> {
    let features = response.supported_features.iter();
    features.map(|one| (one.name.as_str(), one.min_version, one.max_version)).collect()
}

fn finalized(response: &ApiVersionsResponse) -> Vec<(&str, i16, i16)> {
    let features = response.finalized_features.iter();
    features.map(|one| (one.name.as_str(), one.min_version_level, one.max_version_level)).collect()
}

#[test]
fn features_are_told_as_each_version_can_take_them() {
    let host = Host::new();
    let mut client = host.client();
    let request = ApiVersionsRequest::default();
    assert_eq!(client.call(2, &request).finalized_features, []);
    let third = client.call(3, &request);
    assert_eq!(supported(&third), [], "its clients cannot read a feature that begins at 0");
    assert_eq!(finalized(&third), [("mirror.version", 1, 1)]);
    let fourth = client.call(4, &request);
    assert_eq!(supported(&fourth), [("mirror.version", 0, 1)]);
    assert_eq!(finalized(&fourth), [("mirror.version", 1, 1)]);
    assert_eq!(fourth.finalized_features_epoch, EPOCH);
    host.features.set_mirror_version(0, EPOCH + 1);
    let fourth = client.call(4, &request);
    assert_eq!(supported(&fourth), [("mirror.version", 0, 1)]);
    assert_eq!(finalized(&fourth), []);
    assert_eq!(fourth.finalized_features_epoch, EPOCH + 1);
}

#[test]
fn unknown_version_is_answered_in_version_0() {
    use bytes::Buf;
    use kafka_protocol::protocol::Decodable;
    use std::io::Write;

    let mut host = Host::new();
    let mut client = host.client();
    let body = b"\0\x12\0\x63\0\0\0\x07\0\x01x\0\x09\x09";
    let length = i32::try_from(body.len()).expect("small").to_be_bytes();
    client.stream.write_all(&[&length[..], body].concat()).expect("sent");
    let mut frame = client.frame();
    assert_eq!(frame.get_i32(), 7);
    let response = ApiVersionsResponse::decode(&mut frame, 0).expect("v0");
    assert_eq!((response.error_code, response.api_keys.len()), (35, 26));
    host.serves_only(&mut client, "after");
}

/// UNSUPPORTED_VERSION in the response of the API itself.
macro_rules! refused {
    ($client:expr, $request:expr) => {{
        let request = $request;
        send_mirror($client, &request);
        let response = receive_response(&request, $client);
        assert_eq!(response.error_code, 35);
        let message = response.error_message.expect("a reason");
        assert!(message.contains("mirror.version"), "{message}");
    }};
}

fn receive_response<M: MirrorRequest>(_: &M, client: &mut Client) -> M::Response {
    receive_mirror(client)
}

#[test]
fn without_the_feature_every_mirror_api_says_so_itself() {
    let mut host = Host::new();
    let mut client = host.client();
    host.features.set_mirror_version(0, EPOCH + 1);
    let it = &mut client;
    refused!(it, CreateClusterMirrorRequest::default());
    refused!(it, StartMirrorTopicsRequest::default());
    refused!(it, StopMirrorTopicsRequest::default());
    refused!(it, ListClusterMirrorsRequest::default());
    refused!(it, DescribeClusterMirrorsRequest::default());
    refused!(it, ReadMirrorStatesRequest::default());
    refused!(it, WriteMirrorStatesRequest::default());
    refused!(it, PauseMirrorTopicsRequest::default());
    refused!(it, ResumeMirrorTopicsRequest::default());
    refused!(it, DeleteClusterMirrorRequest::default());
    refused!(it, BumpLeaderEpochsRequest::default());
    refused!(it, RecoverMirrorTopicsRequest::default());
    host.serves_only(&mut client, "the control thread saw none of them");
    // Which mirror it was stays in the answer.
    let request = StopMirrorTopicsRequest {
        mirror_name: "west".into(),
        ..StopMirrorTopicsRequest::default()
    };
    send_mirror(&mut client, &request);
    assert_eq!(receive_response(&request, &mut client).mirror_name, "west");
}

/// librdkafka reads nothing from a broker that does not list Produce, so a host answers it.
#[test]
fn records_are_refused_and_nobody_is_asked() {
    let mut host = Host::new();
    refuses_records(&mut host.client(), "takes no records from producers");
    let mut patient = host.client();
    host.serves_only(&mut patient, "after");
}

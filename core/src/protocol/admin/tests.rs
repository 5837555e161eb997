//! Another implementation is the oracle: what is written here is read there, and the other way
//! round.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes, decode_request_header_from_buffer};
use proptest::prelude::*;

use super::messages::TAGGED;
use super::*;
use crate::protocol::RequestId;
use crate::protocol::mirror::{
    CREATE_TOPICS_KEY, CREATE_TOPICS_VERSION_MIRROR_INFO, CreateTopicsRequest,
    DeleteClusterMirrorRequest, decode, encode,
};

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// The request as the other implementation reads it; all of its bytes are used.
#[track_caller]
fn sent<T: Decodable, R: AdminRequest>(request: &R) -> T {
    let id = RequestId { correlation_id: 7, client_id: "ops" };
    let frame = request.frame(id).unwrap();
    let size = i32::from_be_bytes(*frame.first_chunk().unwrap());
    assert_eq!(usize::try_from(size).unwrap(), frame.len() - 4);
    let mut frame = frame.slice(4..);
    let header = decode_request_header_from_buffer(&mut frame).unwrap();
    assert_eq!((header.request_api_key, header.request_api_version), (R::API.key(), R::VERSION));
    assert_eq!((header.correlation_id, header.client_id), (7, Some(text("ops"))));
    let read = T::decode(&mut frame, R::VERSION).unwrap();
    assert!(frame.is_empty());
    read
}

/// What is read here of what the other implementation writes.
#[track_caller]
fn answered<R: AdminRequest>(response: &impl Encodable) -> (u32, R::Response) {
    let mut body = BytesMut::new();
    response.encode(&mut body, R::VERSION).unwrap();
    R::answer(&body).unwrap()
}

#[test]
fn configs_are_asked_for_and_read() {
    let resource = |names: Option<Vec<String>>| DescribeConfigsResource {
        resource_type: 64,
        resource_name: "west".into(),
        configuration_keys: ConfigNames(names),
    };
    let request = DescribeConfigsRequest {
        resources: vec![resource(None), resource(Some(vec!["a".into()]))],
        include_synonyms: true,
        include_documentation: false,
    };
    let read: theirs::DescribeConfigsRequest = sent(&request);
    assert_eq!(read.resources[0].configuration_keys, None);
    assert_eq!(read.resources[1].configuration_keys, Some(vec![text("a")]));
    assert_eq!((read.resources[0].resource_type, read.include_synonyms), (64, true));
    assert_eq!(decode(&encode(&request)), Ok(request));

    let synonym = theirs::describe_configs_response::DescribeConfigsSynonym::default()
        .with_name(text("log.retention.ms"))
        .with_value(Some(text("5")))
        .with_source(4);
    let config = theirs::describe_configs_response::DescribeConfigsResourceResult::default()
        .with_name(text("retention.ms"))
        .with_value(None)
        .with_config_source(1)
        .with_is_sensitive(true)
        .with_synonyms(vec![synonym])
        .with_documentation(Some(text("how long")));
    let result = theirs::describe_configs_response::DescribeConfigsResult::default()
        .with_error_code(3)
        .with_error_message(Some(text("no")))
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configs(vec![config]);
    let response = theirs::DescribeConfigsResponse::default()
        .with_throttle_time_ms(9)
        .with_results(vec![result]);
    let (throttle_ms, read) = answered::<DescribeConfigsRequest>(&response);
    let config = DescribedConfig {
        name: "retention.ms".into(),
        value: None,
        read_only: false,
        config_source: 1,
        is_sensitive: true,
        synonyms: vec![ConfigSynonym {
            name: "log.retention.ms".into(),
            value: Some("5".into()),
            source: 4,
        }],
        config_type: 0,
        documentation: Some("how long".into()),
    };
    let result = DescribeConfigsResult {
        error_code: 3,
        error_message: Some("no".into()),
        resource_type: 2,
        resource_name: "t".into(),
        configs: vec![config],
    };
    assert_eq!((throttle_ms, read.results), (9, vec![result]));
}

#[test]
fn configs_are_altered() {
    let change = |name: &str, operation, value: Option<&str>| AlteredConfig {
        name: name.into(),
        config_operation: operation,
        value: value.map(Into::into),
    };
    let request = AlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: 4,
            resource_name: "1".into(),
            configs: vec![change("a", 0, Some("b")), change("c", 1, None)],
        }],
        validate_only: true,
    };
    let read: theirs::IncrementalAlterConfigsRequest = sent(&request);
    let configs = &read.resources[0].configs;
    assert_eq!((configs[0].value.as_deref(), configs[0].config_operation), (Some("b"), 0));
    assert_eq!((configs[1].value.as_deref(), configs[1].config_operation), (None, 1));
    assert!(read.validate_only);

    let one = theirs::incremental_alter_configs_response::AlterConfigsResourceResponse::default()
        .with_error_code(40)
        .with_resource_type(4)
        .with_resource_name(text("1"));
    let response = theirs::IncrementalAlterConfigsResponse::default().with_responses(vec![one]);
    let (_, read) = answered::<AlterConfigsRequest>(&response);
    assert_eq!((read.responses[0].error_code, read.responses[0].resource_type), (40, 4));
}

#[test]
fn features_are_read_and_updated() {
    let request = FeaturesRequest {
        client_software_name: "heliostat".into(),
        client_software_version: "1".into(),
    };
    let read: theirs::ApiVersionsRequest = sent(&request);
    assert_eq!(read.client_software_name, text("heliostat"));

    let api = theirs::api_versions_response::ApiVersion::default()
        .with_api_key(94)
        .with_min_version(0)
        .with_max_version(0);
    let supported = theirs::api_versions_response::SupportedFeatureKey::default()
        .with_name(text("mirror.version"))
        .with_max_version(1);
    let finalized = theirs::api_versions_response::FinalizedFeatureKey::default()
        .with_name(text("mirror.version"))
        .with_max_version_level(1);
    // A throttle time is not where other answers have it.
    let response = theirs::ApiVersionsResponse::default()
        .with_error_code(1)
        .with_api_keys(vec![api])
        .with_throttle_time_ms(9)
        .with_supported_features(vec![supported])
        .with_finalized_features_epoch(3)
        .with_finalized_features(vec![finalized]);
    let (throttle_ms, read) = answered::<FeaturesRequest>(&response);
    assert_eq!((throttle_ms, read.throttle_time_ms, read.finalized_features_epoch), (0, 9, 3));
    assert_eq!(read.supported_features[0].max_version, 1);
    assert_eq!(read.finalized_features[0].name, "mirror.version");

    let update = FeatureUpdate { feature: "mirror.version".into(), ..FeatureUpdate::default() };
    let request =
        UpdateFeaturesRequest { feature_updates: vec![update], ..UpdateFeaturesRequest::default() };
    let read: theirs::UpdateFeaturesRequest = sent(&request);
    assert_eq!((read.timeout_ms, read.feature_updates[0].upgrade_type), (60_000, 1));
    let one = theirs::update_features_response::UpdatableFeatureResult::default()
        .with_feature(text("mirror.version"))
        .with_error_code(96);
    let response = theirs::UpdateFeaturesResponse::default().with_results(vec![one]);
    let (_, read) = answered::<UpdateFeaturesRequest>(&response);
    assert_eq!((read.error_code, read.results[0].error_code), (0, 96));
}

#[test]
fn clusters_and_coordinators_are_found() {
    let _: theirs::DescribeClusterRequest = sent(&DescribeClusterRequest::default());
    let broker = theirs::describe_cluster_response::DescribeClusterBroker::default()
        .with_broker_id(1.into())
        .with_host(text("h"))
        .with_port(9092);
    let response = theirs::DescribeClusterResponse::default()
        .with_throttle_time_ms(-1)
        .with_cluster_id(text("c"))
        .with_controller_id(1.into())
        .with_brokers(vec![broker]);
    let (throttle_ms, read) = answered::<DescribeClusterRequest>(&response);
    assert_eq!((throttle_ms, read.cluster_id.as_str(), read.brokers[0].port), (0, "c", 9092));

    let request = FindCoordinatorRequest { key_type: 3, coordinator_keys: vec!["west".into()] };
    let read: theirs::FindCoordinatorRequest = sent(&request);
    assert_eq!((read.key_type, read.coordinator_keys), (3, vec![text("west")]));
    let found = theirs::find_coordinator_response::Coordinator::default()
        .with_key(text("west"))
        .with_node_id(1.into())
        .with_host(text("h"))
        .with_port(9092);
    let response = theirs::FindCoordinatorResponse::default().with_coordinators(vec![found]);
    let (_, read) = answered::<FindCoordinatorRequest>(&response);
    assert_eq!((read.coordinators[0].node_id, read.coordinators[0].host.as_str()), (1, "h"));
}

#[test]
fn mirror_requests_are_framed_as_the_others() {
    let request = DeleteClusterMirrorRequest { mirror_name: "w".into(), validate_only: false };
    let id = RequestId { correlation_id: 258, client_id: "ops" };
    let frame = request.frame(id).unwrap();
    let want: &[u8] = b"\0\0\0\x11\0\x68\0\0\0\0\x01\x02\0\x03ops\0\x02w\0";
    assert_eq!(frame, Bytes::from_static(want));
    let long = "x".repeat(40_000);
    let error = request.frame(RequestId { correlation_id: 1, client_id: &long }).unwrap_err();
    assert_eq!((error.api_key, error.version), (104, 0));
}

#[test]
fn topics_are_made_in_the_version_of_mirrors() {
    assert_eq!(CreateTopicsRequest::API.key(), CREATE_TOPICS_KEY);
    assert_eq!(CreateTopicsRequest::VERSION, CREATE_TOPICS_VERSION_MIRROR_INFO);
    let frame =
        CreateTopicsRequest::default().frame(RequestId { correlation_id: 1, client_id: "" });
    assert_eq!(&frame.unwrap()[4..8], b"\0\x13\0\x08");
}

/// Kafka's own tags, and none of ours.
#[test]
fn tags_are_kafkas() {
    let want = [
        ("FeaturesResponse", "SupportedFeatures", 0),
        ("FeaturesResponse", "FinalizedFeaturesEpoch", 1),
        ("FeaturesResponse", "FinalizedFeatures", 2),
    ];
    assert_eq!(TAGGED, want);
}

proptest! {
    /// Anything is a message or an error; what is read is written the same way.
    #[test]
    fn arbitrary_bytes_are_no_danger(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fn read<R: AdminRequest<Response: PartialEq + std::fmt::Debug>>(bytes: &[u8]) {
            if let Ok((_, message)) = R::answer(bytes) {
                assert_eq!(decode::<R::Response>(&encode(&message)), Ok(message));
            }
        }
        read::<FeaturesRequest>(&bytes);
        read::<DescribeConfigsRequest>(&bytes);
        read::<FindCoordinatorRequest>(&bytes);
        read::<AlterConfigsRequest>(&bytes);
        read::<UpdateFeaturesRequest>(&bytes);
        read::<DescribeClusterRequest>(&bytes);
    }
}

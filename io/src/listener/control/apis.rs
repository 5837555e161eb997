//! What is served, in which versions.

use bytes::Bytes;
use heliostat_core::protocol::mirror::{CREATE_TOPICS_VERSION_MIRROR_INFO, MIRROR_API_KEYS};
use heliostat_core::serve::check_request_shape;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest, FetchRequest,
    FindCoordinatorRequest, IncrementalAlterConfigsRequest, ListOffsetsRequest, MetadataRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, UpdateFeaturesRequest,
};
use kafka_protocol::protocol::{Request as _, StrBytes};

use super::super::frame::{ConnectionError, Request, encode_response};
use super::features::{FeatureLevels, MIRROR_VERSION_FEATURE, MIRROR_VERSION_MAX};

/// Kafka's own APIs with their lowest and highest version.
const KAFKA: [(i16, i16, i16); 14] = [
    (ProduceRequest::KEY, 3, 13),
    (FetchRequest::KEY, 4, 18),
    (ListOffsetsRequest::KEY, 1, 10),
    (MetadataRequest::KEY, 0, 13),
    (FindCoordinatorRequest::KEY, 0, 6),
    (ApiVersionsRequest::KEY, 0, API_VERSIONS_MAX),
    (CreateTopicsRequest::KEY, 2, CREATE_TOPICS_VERSION_MIRROR_INFO),
    (DeleteTopicsRequest::KEY, 1, 6),
    (OffsetForLeaderEpochRequest::KEY, 2, 4),
    (DescribeConfigsRequest::KEY, 1, 4),
    (CreatePartitionsRequest::KEY, 0, 3),
    (IncrementalAlterConfigsRequest::KEY, 0, 1),
    (UpdateFeaturesRequest::KEY, 0, 2),
    (DescribeClusterRequest::KEY, 0, 2),
];

const API_VERSIONS_MAX: i16 = 4;

/// Clients that speak less refuse a whole answer with a feature that begins at level 0.
const API_VERSIONS_WITH_LEVEL_0: i16 = 4;

pub(super) fn served() -> impl Iterator<Item = (i16, i16, i16)> {
    KAFKA.into_iter().chain(MIRROR_API_KEYS.iter().map(|&key| (key, 0, 0)))
}

pub(super) fn is_served(api_key: i16, version: i16) -> bool {
    served().any(|(key, min, max)| key == api_key && (min..=max).contains(&version))
}

/// Refuses what is not served, and bodies that claim more than they hold. For Kafka's own APIs.
///
/// # Errors
///
/// [`ConnectionError::Request`].
pub(super) fn check(request: &Request) -> Result<(), ConnectionError> {
    let (key, version) = (request.api_key, request.version);
    let api = request.api().filter(|_| is_served(key, version)).ok_or_else(|| {
        ConnectionError::Request(format!("API key {key} v{version} is not served"))
    })?;
    check_request_shape(api, version, &request.body)
        .map_err(|error| ConnectionError::Request(error.to_string()))
}

/// A version that is not served is answered in version 0, with what is.
///
/// # Errors
///
/// [`ConnectionError::Request`] for bytes that are no request of a version that is served.
pub(super) fn api_versions(
    request: &Request,
    features: &FeatureLevels,
) -> Result<Bytes, ConnectionError> {
    let known = (0..=API_VERSIONS_MAX).contains(&request.version);
    let version = if known { request.version } else { 0 };
    if known {
        check_request_shape(ApiKey::ApiVersions, version, &request.body)
            .map_err(|error| ConnectionError::Request(error.to_string()))?;
    }
    let mut response = ApiVersionsResponse::default().with_api_keys(
        served()
            .map(|(key, min, max)| {
                ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max)
            })
            .collect(),
    );
    if !known {
        response.error_code = ResponseError::UnsupportedVersion.code();
    }
    let name = StrBytes::from_static_str(MIRROR_VERSION_FEATURE);
    if version >= API_VERSIONS_WITH_LEVEL_0 {
        let supported = SupportedFeatureKey::default()
            .with_name(name.clone())
            .with_min_version(0)
            .with_max_version(MIRROR_VERSION_MAX);
        response.supported_features = vec![supported];
    }
    // Level 0 is no finalized feature.
    let level = features.mirror_version();
    if level > 0 {
        let finalized = FinalizedFeatureKey::default()
            .with_name(name)
            .with_min_version_level(level)
            .with_max_version_level(level);
        response.finalized_features = vec![finalized];
    }
    response.finalized_features_epoch = features.epoch();
    encode_response(request, version, &response)
}

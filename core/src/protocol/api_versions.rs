//! Which versions of which requests a broker and this product have in common.
//!
//! Versions are negotiated once a connection. The newest `ApiVersions` request is
//! sent first; a broker that does not know it answers `UNSUPPORTED_VERSION` in the
//! oldest form, which says (from Kafka 2.4 on) what it does know.

use std::fmt;

use bytes::Bytes;
use kafka_protocol::messages::ApiVersionsRequest;
use kafka_protocol::protocol::StrBytes;

use super::body::Body;
use super::frame::{EncodeError, RequestId, encode_request};
use super::wire::DecodeError;
use super::{ErrorCode, FETCH_VERSION_NAMES_MAX, FETCH_VERSION_SENT_MAX};

/// Versions of a request, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiRange {
    /// Oldest version.
    pub min: i16,
    /// Newest version.
    pub max: i16,
}

impl ApiRange {
    /// The newest version that both have.
    pub fn newest_common(self, other: Self) -> Option<i16> {
        let newest = self.max.min(other.max);
        (newest >= self.min && newest >= other.min).then_some(newest)
    }
}

impl fmt::Display for ApiRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}

/// Requests that are sent: to a source, and by an admin client to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// Record batches.
    Fetch,
    /// First and last offsets.
    ListOffsets,
    /// Brokers, topics, leaders.
    Metadata,
    /// This negotiation.
    ApiVersions,
    /// Where an epoch ends.
    OffsetForLeaderEpoch,
    /// Configs of topics, brokers and mirrors.
    DescribeConfigs,
    /// Which broker coordinates a mirror.
    FindCoordinator,
    /// New topics.
    CreateTopics,
    /// Changes of configs.
    IncrementalAlterConfigs,
    /// Changes of feature levels.
    UpdateFeatures,
    /// Identity of a cluster, and its brokers.
    DescribeCluster,
    /// A new mirror.
    CreateClusterMirror,
    /// Topics to be mirrored.
    StartMirrorTopics,
    /// Topics to become writable.
    StopMirrorTopics,
    /// Every mirror.
    ListClusterMirrors,
    /// Mirrors with their partitions.
    DescribeClusterMirrors,
    /// States of partitions.
    ReadMirrorStates,
    /// States of partitions, to be stored.
    WriteMirrorStates,
    /// Topics to be left as they are.
    PauseMirrorTopics,
    /// Paused topics to be mirrored again.
    ResumeMirrorTopics,
    /// A mirror to be removed.
    DeleteClusterMirror,
    /// Leader epochs to be raised.
    BumpLeaderEpochs,
    /// Failed partitions to be tried again.
    RecoverMirrorTopics,
}

impl Api {
    /// Every request that is sent.
    pub const ALL: [Self; 23] = [
        Self::Fetch,
        Self::ListOffsets,
        Self::Metadata,
        Self::ApiVersions,
        Self::OffsetForLeaderEpoch,
        Self::DescribeConfigs,
        Self::FindCoordinator,
        Self::CreateTopics,
        Self::IncrementalAlterConfigs,
        Self::UpdateFeatures,
        Self::DescribeCluster,
        Self::CreateClusterMirror,
        Self::StartMirrorTopics,
        Self::StopMirrorTopics,
        Self::ListClusterMirrors,
        Self::DescribeClusterMirrors,
        Self::ReadMirrorStates,
        Self::WriteMirrorStates,
        Self::PauseMirrorTopics,
        Self::ResumeMirrorTopics,
        Self::DeleteClusterMirror,
        Self::BumpLeaderEpochs,
        Self::RecoverMirrorTopics,
    ];

    /// Kafka's API key, or KIP-1279's.
    pub const fn key(self) -> i16 {
        match self {
            Self::Fetch => 1,
            Self::ListOffsets => 2,
            Self::Metadata => 3,
            Self::FindCoordinator => 10,
            Self::ApiVersions => 18,
            Self::CreateTopics => 19,
            Self::OffsetForLeaderEpoch => 23,
            Self::DescribeConfigs => 32,
            Self::IncrementalAlterConfigs => 44,
            Self::UpdateFeatures => 57,
            Self::DescribeCluster => 60,
            Self::CreateClusterMirror => 94,
            Self::StartMirrorTopics => 95,
            Self::StopMirrorTopics => 96,
            Self::ListClusterMirrors => 98,
            Self::DescribeClusterMirrors => 99,
            Self::ReadMirrorStates => 100,
            Self::WriteMirrorStates => 101,
            Self::PauseMirrorTopics => 102,
            Self::ResumeMirrorTopics => 103,
            Self::DeleteClusterMirror => 104,
            Self::BumpLeaderEpochs => 105,
            Self::RecoverMirrorTopics => 107,
        }
    }

    /// Versions that are implemented here.
    pub fn ours(self) -> ApiRange {
        let (min, max) = match self {
            Self::Fetch => (4, FETCH_VERSION_SENT_MAX),
            // Version 0 answers with a list of segments.
            Self::ListOffsets => (1, 10),
            // Below 4 a question for an unknown topic can create it at the source.
            Self::Metadata => (4, 13),
            Self::ApiVersions => (0, 4),
            // Below 3 it is a follower's request, and needs a follower's rights.
            Self::OffsetForLeaderEpoch => (3, 4),
            Self::DescribeConfigs => (1, 4),
            // From 4 on a request has several keys.
            Self::FindCoordinator => (4, 4),
            // The one version that says which topic of a source it is.
            Self::CreateTopics => (8, 8),
            Self::IncrementalAlterConfigs | Self::UpdateFeatures => (1, 1),
            // All others have one version.
            _ => (0, 0),
        };
        ApiRange { min, max }
    }

    /// First version with compact lengths and tagged fields.
    fn flexible_from(self) -> i16 {
        match self {
            Self::Fetch => 12,
            Self::ListOffsets => 6,
            Self::Metadata => 9,
            Self::ApiVersions | Self::FindCoordinator => 3,
            Self::OffsetForLeaderEpoch | Self::DescribeConfigs => 4,
            Self::CreateTopics => 5,
            Self::IncrementalAlterConfigs => 1,
            _ => 0,
        }
    }

    /// Whether bodies of `version` have compact lengths and tagged fields.
    pub fn is_flexible(self, version: i16) -> bool {
        version >= self.flexible_from()
    }

    /// Whether tagged fields follow the correlation ID of a response of `version`.
    /// `ApiVersions` has none in any version: it is read before versions are known.
    pub fn response_header_is_flexible(self, version: i16) -> bool {
        self != Self::ApiVersions && self.is_flexible(version)
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Why no version of a request can be used with a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// The broker does not offer the request.
    #[error("the broker does not offer {api}")]
    NotOffered {
        /// The request.
        api: Api,
    },
    /// It offers other versions.
    #[error("the broker offers {api} versions {broker}, this release speaks {ours}")]
    NoneInCommon {
        /// The request.
        api: Api,
        /// What the broker offers.
        broker: ApiRange,
        /// What is implemented here; for Fetch of topics without IDs, at most 12.
        ours: ApiRange,
    },
}

/// What a broker offers, for the requests that are sent to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerApis {
    ranges: [Option<ApiRange>; Api::ALL.len()],
}

impl BrokerApis {
    /// Versions of `api` that the broker offers.
    pub fn offered(&self, api: Api) -> Option<ApiRange> {
        let at = Api::ALL.iter().position(|&other| other == api)?;
        self.ranges.get(at).copied().flatten()
    }

    /// The newest version of `api` that both have.
    ///
    /// # Errors
    ///
    /// [`VersionError`] with what both sides have.
    pub fn negotiate(&self, api: Api) -> Result<i16, VersionError> {
        self.negotiate_within(api, api.ours())
    }

    /// The newest Fetch version for a session. One topic without an ID keeps the
    /// whole session at version 12, the last that goes by name: brokers can offer
    /// more while their metadata gives no IDs.
    ///
    /// # Errors
    ///
    /// [`VersionError`] with what both sides have.
    pub fn fetch_version(&self, all_topics_have_ids: bool) -> Result<i16, VersionError> {
        let mut ours = Api::Fetch.ours();
        if !all_topics_have_ids {
            ours.max = FETCH_VERSION_NAMES_MAX;
        }
        self.negotiate_within(Api::Fetch, ours)
    }

    /// The newest version of `api` within `ours` that the broker offers.
    ///
    /// # Errors
    ///
    /// [`VersionError`] with what both sides have.
    pub fn negotiate_within(&self, api: Api, ours: ApiRange) -> Result<i16, VersionError> {
        let broker = self.offered(api).ok_or(VersionError::NotOffered { api })?;
        ours.newest_common(broker).ok_or(VersionError::NoneInCommon { api, broker, ours })
    }

    fn set(&mut self, key: i16, range: ApiRange) {
        let at = Api::ALL.iter().position(|api| api.key() == key);
        if let Some(slot) = at.and_then(|at| self.ranges.get_mut(at)) {
            *slot = Some(range);
        }
    }
}

/// Answer to an `ApiVersions` request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiVersions {
    /// `UNSUPPORTED_VERSION` asks for [`ApiVersions::retry_version`].
    pub error: ErrorCode,
    /// What the broker offers.
    pub apis: BrokerApis,
    /// How long the broker's quota asks the client to keep silent, in milliseconds.
    pub throttle_ms: u32,
}

impl ApiVersions {
    /// The request as a frame of `version`.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] if the client ID is too long.
    pub fn request(version: i16, id: RequestId<'_>) -> Result<Bytes, EncodeError> {
        let mut request = ApiVersionsRequest::default();
        if version >= 3 {
            request = request
                .with_client_software_name(StrBytes::from_static_str("heliostat"))
                .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        }
        encode_request(id, version, &request)
    }

    /// Reads the body of the answer to a request of `version`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] that names the field.
    pub fn decode(version: i16, body: &[u8]) -> Result<Self, DecodeError> {
        let mut peek = Body::new(body, false);
        let error = ErrorCode(peek.i16("error_code")?);
        // A broker that does not know the version writes the oldest form.
        let version = if error == ErrorCode::UNSUPPORTED_VERSION { 0 } else { version };

        let mut body = Body::new(body, Api::ApiVersions.is_flexible(version));
        body.i16("error_code")?;
        let mut apis = BrokerApis::default();
        body.array("api_keys", 6, |body| {
            let key = body.i16("api_key")?;
            let range = ApiRange { min: body.i16("min_version")?, max: body.i16("max_version")? };
            body.tags("tagged fields of an api_key")?;
            apis.set(key, range);
            Ok(())
        })?;
        let throttle_ms = if version >= 1 { throttle(&mut body)? } else { 0 };
        body.finish()?;
        Ok(Self { error, apis, throttle_ms })
    }

    /// The version to ask again with after `UNSUPPORTED_VERSION`: the newest that
    /// the broker names, or the oldest there is.
    pub fn retry_version(&self) -> i16 {
        self.apis.negotiate(Api::ApiVersions).unwrap_or(0)
    }
}

/// The throttle time that almost every response has.
pub(super) fn throttle(body: &mut Body<'_>) -> Result<u32, DecodeError> {
    let field = "throttle_time_ms";
    let got = body.i32(field)?;
    u32::try_from(got).map_err(|_| DecodeError::Negative { field, got: i64::from(got) })
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{
        ApiKey, ApiVersionsResponse, api_versions_response::ApiVersion,
    };
    use kafka_protocol::protocol::Encodable;

    use super::*;
    use crate::protocol::mirror::MIRROR_API_KEYS;

    fn response(apis: &[(i16, i16, i16)]) -> ApiVersionsResponse {
        let keys = apis.iter().map(|&(key, min, max)| {
            ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max)
        });
        ApiVersionsResponse::default().with_api_keys(keys.collect())
    }

    fn encoded(version: i16, response: &ApiVersionsResponse) -> Vec<u8> {
        let mut bytes = bytes::BytesMut::new();
        response.encode(&mut bytes, version).unwrap();
        bytes.to_vec()
    }

    fn offering(apis: &[(i16, i16, i16)]) -> BrokerApis {
        ApiVersions::decode(4, &encoded(4, &response(apis))).unwrap().apis
    }

    #[test]
    fn keys_and_flexible_versions_agree_with_another_implementation() {
        for api in Api::ALL {
            // Those of KIP-1279 are in no release.
            let Ok(theirs) = ApiKey::try_from(api.key()) else {
                assert!(MIRROR_API_KEYS.contains(&api.key()), "{api}");
                assert!(api.response_header_is_flexible(0), "{api}");
                continue;
            };
            for version in api.ours().min..=api.ours().max {
                assert_eq!(
                    i16::from(api.response_header_is_flexible(version)),
                    theirs.response_header_version(version),
                    "{api} v{version}"
                );
                assert_eq!(
                    api.is_flexible(version),
                    theirs.request_header_version(version) == 2,
                    "{api} v{version}"
                );
            }
        }
    }

    #[test]
    fn every_version_of_the_answer_is_read() {
        for version in 0..=4 {
            let mut sent = response(&[(1, 4, 17), (3, 0, 12), (999, 1, 2)]);
            if version >= 1 {
                sent.throttle_time_ms = 5;
            }
            let got = ApiVersions::decode(version, &encoded(version, &sent)).unwrap();
            assert_eq!(got.error, ErrorCode::NONE);
            assert_eq!(got.apis.offered(Api::Fetch), Some(ApiRange { min: 4, max: 17 }));
            assert_eq!(got.apis.offered(Api::ListOffsets), None);
            assert_eq!(got.throttle_ms, if version >= 1 { 5 } else { 0 });
        }
    }

    #[test]
    fn an_old_broker_answers_in_the_oldest_form() {
        let refused = |apis| {
            let sent = response(apis).with_error_code(ErrorCode::UNSUPPORTED_VERSION.0);
            ApiVersions::decode(4, &encoded(0, &sent)).unwrap()
        };
        assert_eq!(refused(&[(18, 0, 2)]).retry_version(), 2);
        assert_eq!(refused(&[(18, 0, 9)]).retry_version(), 4);
        assert_eq!(refused(&[]).retry_version(), 0, "Kafka before 2.4 does not say");
    }

    #[test]
    fn fetch_versions() {
        let kafka_2_1 = offering(&[(1, 0, 10)]);
        assert_eq!(kafka_2_1.fetch_version(false), Ok(10));
        let kafka_4 = offering(&[(1, 4, 18)]);
        assert_eq!(kafka_4.fetch_version(true), Ok(18));
        assert_eq!(kafka_4.fetch_version(false), Ok(12), "one topic without ID is enough");
        assert_eq!(offering(&[(1, 4, 99)]).fetch_version(true), Ok(18));
        assert_eq!(
            offering(&[(1, 13, 18)]).fetch_version(false),
            Err(VersionError::NoneInCommon {
                api: Api::Fetch,
                broker: ApiRange { min: 13, max: 18 },
                ours: ApiRange { min: 4, max: 12 },
            })
        );
        let error = offering(&[(1, 0, 3)]).fetch_version(true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the broker offers Fetch versions 0 to 3, this release speaks 4 to 18"
        );
        let error = offering(&[]).negotiate(Api::Metadata).unwrap_err();
        assert_eq!(error, VersionError::NotOffered { api: Api::Metadata });
    }

    #[test]
    fn counts_are_held_against_the_bytes() {
        assert_eq!(
            ApiVersions::decode(0, &[0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0]),
            Err(DecodeError::PastFrame { field: "api_keys", need: 0x7fff_ffff * 6, left: 2 })
        );
        assert_eq!(
            ApiVersions::decode(0, &[0, 0, 0, 0, 0, 0, 9]),
            Err(DecodeError::FrameNotConsumed { left: 1 })
        );
    }

    #[test]
    fn requests_name_the_product() {
        for version in 0..=4 {
            let id = RequestId { correlation_id: 1, client_id: "c" };
            let frame = ApiVersions::request(version, id).unwrap();
            let named = frame.windows(9).any(|window| window == b"heliostat");
            assert_eq!(named, version >= 3, "v{version}");
        }
    }
}

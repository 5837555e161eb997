//! Kafka's protocol as this product speaks it.
//!
//! The Fetch response, where the bytes are, has a streaming decoder of its own.
//! Requests are written by kafka-protocol's codecs; responses of the control
//! path are read here, since those codecs allocate by counts of the peer.

pub mod admin;
mod api_versions;
mod body;
mod describe_configs;
mod epoch_end;
mod error_code;
mod fetch_follower;
mod fetch_request;
pub mod fetch_stream;
mod frame;
mod list_offsets;
mod metadata;
pub mod mirror;
mod session;
pub(crate) mod wire;

pub use api_versions::{Api, ApiRange, ApiVersions, BrokerApis, VersionError};
pub use describe_configs::{ConfigsRequest, TopicConfig, TopicConfigs};
pub use epoch_end::{EpochEnd, EpochEndQuery, EpochEndsRequest};
pub use error_code::{ErrorCode, Reaction, SessionFault};
pub use fetch_follower::{FETCH_VERSION_MIRROR_EPOCH, FollowerFetch, FollowerPartition};
pub use fetch_request::{
    FETCH_VERSION_NAMES_MAX, FETCH_VERSION_SENT_MAX, FETCH_VERSION_SESSIONS, FETCH_VERSION_ZSTD,
    FetchPartition, FetchPlan, FetchPosition, ForgottenPartition, TopicIdentity,
};
pub use frame::{EncodeError, RequestId, split_response};
pub use list_offsets::{ListedOffset, OffsetAt, OffsetQuery, OffsetsRequest};
pub use metadata::{Metadata, MetadataBroker, MetadataPartition, MetadataRequest, MetadataTopic};
pub use session::{Answered, FetchSession, HeaderOutcome, SessionRequest};
pub use wire::DecodeError;

//! The control API of a mirroring host: requests are read and checked on the listener's
//! thread, decided on by the control thread, and answered by the connection that asked.
//!
//! ```text
//! frame -> header -> shape -> ControlRequest -> [bounded queue] -> ControlCalls::next
//!                                                                        |
//! frame <- version's schema <- ControlResponse <------ one shot ------ answer
//! ```
//!
//! Nothing that a peer sends reaches the control thread but requests that are whole, in a
//! version that is served. Each connection has one request under way at a time, so a slow
//! control thread is felt by those who ask it and costs no memory beyond what they sent.

mod apis;
pub(in crate::listener) mod connection;
mod decode;
mod encode;
mod features;
mod port;
mod refuse;
mod request;
mod response;

pub use features::{FeatureLevels, MIRROR_VERSION_FEATURE, MIRROR_VERSION_MAX};
pub use port::{
    Caller, ControlCall, ControlCalls, ControlLimits, ControlPort, ControlReply, control_port,
};
pub use request::{
    AlterOperation, ClusterQuery, ConfigChange, ConfigResource, ConfigsChange, ConfigsQuery,
    ControlRequest, CoordinatorKind, CoordinatorQuery, FeatureUpdate, FeaturesUpdate,
    MetadataQuery, PartitionsCreation, PartitionsOfTopic, ResourceChanges, ResourceKind,
    ResourceQuery, TopicRef, TopicsDeletion, UpgradeKind,
};
pub use response::{
    ClusterAnswer, ConfigEntry, ConfigSynonym, ConfigsAnswer, ControlResponse, CoordinatorAnswer,
    FeatureOutcome, MetadataAnswer, PartitionAnswer, Refusal, ResourceOutcome, TopicAnswer,
    TopicDeleted, TopicOutcome,
};

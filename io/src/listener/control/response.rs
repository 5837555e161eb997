//! What the host answers, whatever the version it was asked in: the listener leaves out
//! what an old version has no field for.

use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::{
    BumpLeaderEpochsResponse, ClusterMirrorResponse, CreateTopicsResponse,
    DescribeClusterMirrorsResponse, ListClusterMirrorsResponse, MirrorTopicsResponse,
    ReadMirrorStatesResponse, WriteMirrorStatesResponse,
};
use heliostat_core::serve::NodeEndpoint;
use heliostat_core::types::{BrokerId, LeaderEpoch, TopicId};

use super::request::ConfigResource;

/// A response, one variant for each API. Of another API than the request's, it ends the
/// connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlResponse {
    /// Metadata. A refusal of the whole can be told from version 13 on; before, the
    /// connection ends.
    Metadata(Result<MetadataAnswer, Refusal>),
    /// DescribeCluster.
    DescribeCluster(Result<ClusterAnswer, Refusal>),
    /// FindCoordinator, an entry for each key.
    FindCoordinator(Vec<CoordinatorAnswer>),
    /// CreateTopics, an entry for each topic.
    CreateTopics(CreateTopicsResponse),
    /// DeleteTopics, an entry for each topic.
    DeleteTopics(Vec<TopicDeleted>),
    /// CreatePartitions, an entry for each topic.
    CreatePartitions(Vec<TopicOutcome>),
    /// DescribeConfigs, an entry for each resource.
    DescribeConfigs(Vec<ConfigsAnswer>),
    /// IncrementalAlterConfigs, an entry for each resource.
    IncrementalAlterConfigs(Vec<ResourceOutcome>),
    /// UpdateFeatures, an entry for each feature. From version 2 on only the first refusal
    /// is told, as that of the whole.
    UpdateFeatures(Result<Vec<FeatureOutcome>, Refusal>),
    /// CreateClusterMirror.
    CreateClusterMirror(ClusterMirrorResponse),
    /// StartMirrorTopics.
    StartMirrorTopics(MirrorTopicsResponse),
    /// StopMirrorTopics.
    StopMirrorTopics(MirrorTopicsResponse),
    /// ListClusterMirrors.
    ListClusterMirrors(ListClusterMirrorsResponse),
    /// DescribeClusterMirrors.
    DescribeClusterMirrors(DescribeClusterMirrorsResponse),
    /// ReadMirrorStates.
    ReadMirrorStates(ReadMirrorStatesResponse),
    /// WriteMirrorStates.
    WriteMirrorStates(WriteMirrorStatesResponse),
    /// PauseMirrorTopics.
    PauseMirrorTopics(MirrorTopicsResponse),
    /// ResumeMirrorTopics.
    ResumeMirrorTopics(MirrorTopicsResponse),
    /// DeleteClusterMirror.
    DeleteClusterMirror(ClusterMirrorResponse),
    /// BumpLeaderEpochs.
    BumpLeaderEpochs(BumpLeaderEpochsResponse),
    /// RecoverMirrorTopics.
    RecoverMirrorTopics(MirrorTopicsResponse),
}

/// Why something is not done: what clients see of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Never [`ErrorCode::NONE`].
    pub code: ErrorCode,
    /// The thing, the cause and the remedy. Clients show their own sentence for `None`.
    pub message: Option<String>,
}

impl Refusal {
    /// A refusal that explains itself.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()) }
    }
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self { code, message: None }
    }
}

/// Brokers and topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataAnswer {
    /// The brokers.
    pub brokers: Vec<NodeEndpoint>,
    /// The cluster's ID.
    pub cluster_id: String,
    /// Broker to send changes to; -1 for none.
    pub controller: BrokerId,
    /// The topics that were asked for, those that are not there included.
    pub topics: Vec<TopicAnswer>,
    /// Bits of what the client may do with the cluster, if it asked.
    pub authorized_operations: Option<i32>,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicAnswer {
    /// [`ErrorCode::NONE`] if it is there.
    pub error: ErrorCode,
    /// Its name; `None` if it was asked for by an ID that is not known.
    pub name: Option<String>,
    /// Its ID; all zeros if it was asked for by a name that is not known.
    pub topic_id: TopicId,
    /// Whether clients leave it alone unless they name it.
    pub is_internal: bool,
    /// In their order.
    pub partitions: Vec<PartitionAnswer>,
    /// Bits of what the client may do with it, if it asked.
    pub authorized_operations: Option<i32>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionAnswer {
    /// [`ErrorCode::NONE`], or why it cannot be used.
    pub error: ErrorCode,
    /// The partition.
    pub partition: i32,
    /// Its leader; -1 for none.
    pub leader: BrokerId,
    /// The leader's epoch.
    pub leader_epoch: LeaderEpoch,
    /// All replicas; the first is preferred as leader.
    pub replicas: Vec<BrokerId>,
    /// Those that are in sync.
    pub isr: Vec<BrokerId>,
    /// Those that are not there.
    pub offline_replicas: Vec<BrokerId>,
}

/// The brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterAnswer {
    /// The cluster's ID.
    pub cluster_id: String,
    /// Broker to send changes to; -1 for none.
    pub controller: BrokerId,
    /// The brokers.
    pub brokers: Vec<NodeEndpoint>,
    /// Bits of what the client may do with the cluster, if it asked.
    pub authorized_operations: Option<i32>,
}

/// Who coordinates a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorAnswer {
    /// The key.
    pub key: String,
    /// The broker.
    pub result: Result<NodeEndpoint, Refusal>,
}

/// What came of a topic to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDeleted {
    /// Its name; `None` if it was named by an ID that is not known.
    pub name: Option<String>,
    /// Its ID; all zeros if it was named by a name that is not known.
    pub topic_id: TopicId,
    /// Whether it is deleted.
    pub result: Result<(), Refusal>,
}

/// What came of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicOutcome {
    /// Its name.
    pub name: String,
    /// Whether it was done.
    pub result: Result<(), Refusal>,
}

/// Configs of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigsAnswer {
    /// The resource.
    pub resource: ConfigResource,
    /// Its configs.
    pub result: Result<Vec<ConfigEntry>, Refusal>,
}

/// A config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The key.
    pub name: String,
    /// The value; `None` for a secret, or where there is none.
    pub value: Option<String>,
    /// Whether clients cannot change it.
    pub read_only: bool,
    /// Where it comes from, by Kafka's numbers.
    pub source: i8,
    /// Whether it is a secret.
    pub is_sensitive: bool,
    /// What it stands in for, if the client asked.
    pub synonyms: Vec<ConfigSynonym>,
    /// Type of the value, by Kafka's numbers; 0 for unknown.
    pub config_type: i8,
    /// What it is for, if the client asked.
    pub documentation: Option<String>,
}

/// A value that a config would have if others were not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The key.
    pub name: String,
    /// The value; `None` for a secret.
    pub value: Option<String>,
    /// Where it comes from, by Kafka's numbers.
    pub source: i8,
}

/// What came of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceOutcome {
    /// The resource.
    pub resource: ConfigResource,
    /// Whether it was done.
    pub result: Result<(), Refusal>,
}

/// What came of a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureOutcome {
    /// The feature.
    pub feature: String,
    /// Whether it was done.
    pub result: Result<(), Refusal>,
}

//! What a client asks the host, whatever the version it asked in.

use std::time::Duration;

use heliostat_core::protocol::mirror::{
    BumpLeaderEpochsRequest, CreateClusterMirrorRequest, CreateTopicsRequest,
    DeleteClusterMirrorRequest, DescribeClusterMirrorsRequest, ListClusterMirrorsRequest,
    PauseMirrorTopicsRequest, ReadMirrorStatesRequest, RecoverMirrorTopicsRequest,
    ResumeMirrorTopicsRequest, StartMirrorTopicsRequest, StopMirrorTopicsRequest,
    WriteMirrorStatesRequest,
};
use heliostat_core::types::{BrokerId, TopicId};

/// A request, one variant for each API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// Metadata.
    Metadata(MetadataQuery),
    /// DescribeCluster of brokers.
    DescribeCluster(ClusterQuery),
    /// FindCoordinator.
    FindCoordinator(CoordinatorQuery),
    /// CreateTopics, with mirrors' facts where the version has them.
    CreateTopics(CreateTopicsRequest),
    /// DeleteTopics.
    DeleteTopics(TopicsDeletion),
    /// CreatePartitions.
    CreatePartitions(PartitionsCreation),
    /// DescribeConfigs.
    DescribeConfigs(ConfigsQuery),
    /// IncrementalAlterConfigs.
    IncrementalAlterConfigs(ConfigsChange),
    /// UpdateFeatures.
    UpdateFeatures(FeaturesUpdate),
    /// CreateClusterMirror.
    CreateClusterMirror(CreateClusterMirrorRequest),
    /// StartMirrorTopics.
    StartMirrorTopics(StartMirrorTopicsRequest),
    /// StopMirrorTopics.
    StopMirrorTopics(StopMirrorTopicsRequest),
    /// ListClusterMirrors.
    ListClusterMirrors(ListClusterMirrorsRequest),
    /// DescribeClusterMirrors.
    DescribeClusterMirrors(DescribeClusterMirrorsRequest),
    /// ReadMirrorStates.
    ReadMirrorStates(ReadMirrorStatesRequest),
    /// WriteMirrorStates.
    WriteMirrorStates(WriteMirrorStatesRequest),
    /// PauseMirrorTopics.
    PauseMirrorTopics(PauseMirrorTopicsRequest),
    /// ResumeMirrorTopics.
    ResumeMirrorTopics(ResumeMirrorTopicsRequest),
    /// DeleteClusterMirror.
    DeleteClusterMirror(DeleteClusterMirrorRequest),
    /// BumpLeaderEpochs.
    BumpLeaderEpochs(BumpLeaderEpochsRequest),
    /// RecoverMirrorTopics.
    RecoverMirrorTopics(RecoverMirrorTopicsRequest),
}

/// A topic as a client names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicRef {
    /// By name.
    Name(String),
    /// By ID; all zeros where a client named neither.
    Id(TopicId),
}

/// Asks for brokers and topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataQuery {
    /// Which topics; `None` for all, empty for none.
    pub topics: Option<Vec<TopicRef>>,
    /// Whether unknown topics may be made.
    pub allow_auto_topic_creation: bool,
    /// Whether to say what the client may do with each topic.
    pub include_topic_authorized_operations: bool,
    /// Whether to say what the client may do with the cluster.
    pub include_cluster_authorized_operations: bool,
}

/// Asks for the brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterQuery {
    /// Whether to say what the client may do with the cluster.
    pub include_authorized_operations: bool,
    /// Whether brokers that are fenced are among them.
    pub include_fenced_brokers: bool,
}

/// What a coordinator coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CoordinatorKind {
    /// Groups of consumers, by group ID.
    Group,
    /// Transactions, by transactional ID.
    Transaction,
    /// Share groups, by group, topic ID and partition.
    Share,
    /// Mirrors, by mirror name, or by `mirror:topicId:partition`.
    ClusterMirror,
}

/// Asks which broker coordinates each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorQuery {
    /// Of what kind.
    pub kind: CoordinatorKind,
    /// The keys; exactly one before version 4.
    pub keys: Vec<String>,
}

/// Deletes topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicsDeletion {
    /// Which.
    pub topics: Vec<TopicRef>,
    /// How long the client waits for it.
    pub timeout: Duration,
}

/// Gives topics more partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionsCreation {
    /// Which topics.
    pub topics: Vec<PartitionsOfTopic>,
    /// How long the client waits for it.
    pub timeout: Duration,
    /// Whether to check only.
    pub validate_only: bool,
}

/// Partitions that a topic is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionsOfTopic {
    /// The topic.
    pub name: String,
    /// All its partitions, the present ones included.
    pub count: i32,
    /// Brokers of each new one; `None` leaves them to the host.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

/// Kafka's number of a kind of resource that has configs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKind(pub i8);

impl ResourceKind {
    /// A topic.
    pub const TOPIC: Self = Self(2);
    /// A broker; its name is its ID, empty for the defaults of all.
    pub const BROKER: Self = Self(4);
    /// A mirror.
    pub const CLUSTER_MIRROR: Self = Self(64);
}

/// What has configs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigResource {
    /// Of what kind.
    pub kind: ResourceKind,
    /// Its name.
    pub name: String,
}

/// Asks for configs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigsQuery {
    /// Of which resources.
    pub resources: Vec<ResourceQuery>,
    /// Whether to say what each value stands in for.
    pub include_synonyms: bool,
    /// Whether to explain the configs.
    pub include_documentation: bool,
}

/// Configs of one resource that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceQuery {
    /// The resource.
    pub resource: ConfigResource,
    /// Names of configs; `None` for all.
    pub keys: Option<Vec<String>>,
}

/// Changes configs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigsChange {
    /// Of which resources.
    pub resources: Vec<ResourceChanges>,
    /// Whether to check only.
    pub validate_only: bool,
}

/// Changes of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceChanges {
    /// The resource.
    pub resource: ConfigResource,
    /// In the client's order.
    pub changes: Vec<ConfigChange>,
}

/// A change of one config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// The config.
    pub name: String,
    /// What to do with it.
    pub operation: AlterOperation,
    /// The value; `None` for null.
    pub value: Option<String>,
}

/// How a config is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlterOperation {
    /// Gets the value.
    Set,
    /// Goes back to its default.
    Delete,
    /// The value's entries are added to the list.
    Append,
    /// The value's entries are taken from the list.
    Subtract,
}

/// Changes levels of features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeaturesUpdate {
    /// Which.
    pub updates: Vec<FeatureUpdate>,
    /// How long the client waits for it.
    pub timeout: Duration,
    /// Whether to check only.
    pub validate_only: bool,
}

/// A new level of a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureUpdate {
    /// The feature.
    pub feature: String,
    /// Its new level; 0 turns it off.
    pub level: i16,
    /// Which way it may go.
    pub upgrade: UpgradeKind,
}

/// Which way a level may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpgradeKind {
    /// Up.
    Upgrade,
    /// Down, where nothing is lost by it.
    SafeDowngrade,
    /// Down, whatever is lost by it.
    UnsafeDowngrade,
}

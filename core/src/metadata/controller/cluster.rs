//! The cluster itself: its features and its one broker.

use uuid::Uuid;

use super::code;
use super::decision::{Decision, Draft, Refusal, shown};
use crate::metadata::image::{METADATA_VERSION, MIRROR_VERSION, MetadataImage};
use crate::metadata::record::{
    BrokerEndpoint, BrokerFeature, FeatureLevelRecord, RegisterBrokerRecord,
};
use crate::types::BrokerId;

/// Highest level of `mirror.version`.
const MIRROR_VERSION_MAX: i16 = 1;

/// Lowest `metadata.version` whose brokers read the records that are written here: 3.7-IV2, the
/// first with log dirs of partitions.
pub const METADATA_VERSION_MIN: i16 = 17;

/// What the host registers at each start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerRegistration {
    /// Its node ID.
    pub node: BrokerId,
    /// Differs with each start of its process.
    pub incarnation: Uuid,
    /// Rises with each registration: the metadata log's end offset.
    pub epoch: i64,
    /// Listeners as clients reach them.
    pub end_points: Vec<BrokerEndpoint>,
    /// What it supports.
    pub features: Vec<BrokerFeature>,
    /// Where it stands.
    pub rack: Option<String>,
    /// IDs of its log dirs.
    pub log_dirs: Vec<Uuid>,
}

/// A feature's new level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureUpdate {
    /// Name of the feature.
    pub name: String,
    /// Its level; 0 for off.
    pub level: i16,
    /// Whether it may go down.
    pub allow_downgrade: bool,
}

/// What a new cluster begins with. One that has a metadata version keeps it.
///
/// # Errors
/// FEATURE_UPDATE_FAILED for a level below [`METADATA_VERSION_MIN`].
pub fn bootstrap(image: &MetadataImage, metadata_version: i16) -> Result<Decision<()>, Refusal> {
    let mut draft = Draft::new(image);
    if metadata_version < METADATA_VERSION_MIN {
        let message = format!(
            "{METADATA_VERSION} {metadata_version} is too low for the records that are written; \
             it must be {METADATA_VERSION_MIN} or higher"
        );
        return Err(Refusal::new(code::FEATURE_UPDATE_FAILED, message));
    }
    if image.feature(METADATA_VERSION) == 0 {
        let (name, feature_level) = (METADATA_VERSION.to_owned(), metadata_version);
        draft.push(FeatureLevelRecord { name, feature_level })?;
    }
    Ok(draft.finish(()))
}

/// Registers the host's broker, which leads from then on. Returns its epoch.
///
/// # Errors
/// INVALID_REGISTRATION without a listener, with an epoch that does not rise, or for a node ID
/// that is not the one that this metadata belongs to.
pub fn register_broker(
    image: &MetadataImage,
    broker: &BrokerRegistration,
) -> Result<Decision<i64>, Refusal> {
    let refused = |message| Err(Refusal::new(code::INVALID_REGISTRATION, message));
    let node = broker.node;
    let brokers = image.brokers().map(|it| BrokerId(it.registration.broker_id));
    let leaders = image.topics().flat_map(|topic| &topic.partitions).map(|it| it.node);
    if let Some(other) = brokers.chain(leaders).find(|other| *other != node) {
        return refused(format!(
            "node.id is {node}, but this metadata is that of node {other}; set node.id={other}, \
             or use log dirs of this node"
        ));
    }
    if broker.end_points.is_empty() {
        return refused(format!("node {node} has no listener that clients could reach"));
    }
    let known = image.broker(node).map(|it| it.registration.broker_epoch);
    if known.is_some_and(|known| known >= broker.epoch) {
        return refused(format!("node {node}: broker epoch {} does not rise", broker.epoch));
    }
    let mut draft = Draft::new(image);
    draft.push(RegisterBrokerRecord {
        broker_id: node.0,
        is_migrating_zk_broker: false,
        incarnation_id: broker.incarnation,
        broker_epoch: broker.epoch,
        end_points: broker.end_points.clone(),
        features: broker.features.clone(),
        rack: broker.rack.clone(),
        fenced: false,
        in_controlled_shutdown: false,
        log_dirs: broker.log_dirs.clone(),
    })?;
    Ok(draft.finish(broker.epoch))
}

/// Sets the level of `mirror.version`, the only feature that is an operator's.
///
/// # Errors
/// FEATURE_UPDATE_FAILED for another feature, or for turning it off while there are mirrors;
/// INVALID_UPDATE_VERSION for a level that does not exist, or one that goes down without leave.
pub fn update_feature(
    image: &MetadataImage,
    update: &FeatureUpdate,
) -> Result<Decision<()>, Refusal> {
    let name = &update.name;
    if name != MIRROR_VERSION {
        let message =
            format!("feature {} is not to be changed here; {MIRROR_VERSION} is", shown(name));
        return Err(Refusal::new(code::FEATURE_UPDATE_FAILED, message));
    }
    let (was, level) = (image.feature(name), update.level);
    if !(0..=MIRROR_VERSION_MAX).contains(&level) {
        let message = format!("{name} {level}: levels are 0 to {MIRROR_VERSION_MAX}");
        return Err(Refusal::new(code::INVALID_UPDATE_VERSION, message));
    }
    if level < was && !update.allow_downgrade {
        let message = format!("{name} is {was}; going down to {level} must be asked for as such");
        return Err(Refusal::new(code::INVALID_UPDATE_VERSION, message));
    }
    if level < was
        && let Some(mirror) = image.mirrors().next()
    {
        let message = format!("mirror {mirror} is there, perhaps others; delete them first");
        return Err(Refusal::new(code::FEATURE_UPDATE_FAILED, message));
    }
    let mut draft = Draft::new(image);
    if level != was {
        draft.push(FeatureLevelRecord { name: name.clone(), feature_level: level })?;
    }
    Ok(draft.finish(()))
}

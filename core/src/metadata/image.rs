//! What the metadata says now: features, brokers, topics with partitions, configs.
//!
//! The image of a log is that of its records in order, and the same as that of a snapshot. A
//! clone shares topics and configs with its original until one of them changes, so a decision
//! may be tried on a clone.
//!
//! The cluster has one node: a partition has one replica, which leads it. A record that says
//! otherwise is refused, and so is one that does not follow from what is there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use super::record::{
    ConfigRecord, FeatureLevelRecord, MetadataRecord, PartitionRecord, RegisterBrokerRecord,
    TopicRecord, is_sensitive,
};
use crate::coordinator::DesiredState;
use crate::types::{BrokerId, LeaderEpoch, TopicId};

/// The feature that turns mirrors on.
pub const MIRROR_VERSION: &str = "mirror.version";

/// The feature that says which records a cluster may write.
pub const METADATA_VERSION: &str = "metadata.version";

/// The internal config of a topic that ties it to a mirror.
pub const MIRROR_NAME: &str = "mirror.name";

/// Longest text that Kafka reads in a record, in bytes, inclusive.
pub const TEXT_BYTES_MAX: usize = 0x7fff;

const PAUSED: &str = ".paused";
const STOPPED: &str = ".stopped";

/// Kind of a resource that has configs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceType(pub i8);

impl ResourceType {
    /// A topic, by name.
    pub const TOPIC: Self = Self(2);
    /// A broker, by node ID; empty for all brokers.
    pub const BROKER: Self = Self(4);
    /// A mirror, by name.
    pub const MIRROR: Self = Self(64);
}

impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TOPIC => f.write_str("topic"),
            Self::BROKER => f.write_str("broker"),
            Self::MIRROR => f.write_str("mirror"),
            Self(other) => write!(f, "resource of type {other}"),
        }
    }
}

/// A broker that is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    /// Its registration.
    pub registration: RegisterBrokerRecord,
}

/// A partition. Small, since there may be a hundred thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    /// Its only replica, and its leader.
    pub node: BrokerId,
    /// Epoch of the leader.
    pub leader_epoch: LeaderEpoch,
    /// Counts the changes of the partition.
    pub partition_epoch: i32,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicImage {
    /// Its name.
    pub name: Arc<str>,
    /// Its ID.
    pub id: TopicId,
    /// By index, without holes.
    pub partitions: Vec<PartitionImage>,
}

impl TopicImage {
    /// How many partitions it has.
    #[must_use]
    pub fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).unwrap_or(i32::MAX)
    }

    /// The partition of an index.
    #[must_use]
    pub fn partition(&self, index: i32) -> Option<&PartitionImage> {
        self.partitions.get(usize::try_from(index).ok()?)
    }

    /// The record that says all of a partition.
    #[must_use]
    pub fn partition_record(&self, index: i32, partition: PartitionImage) -> PartitionRecord {
        let node = partition.node.0;
        PartitionRecord {
            partition_id: index,
            topic_id: self.id,
            replicas: vec![node],
            isr: vec![node],
            leader: node,
            leader_epoch: partition.leader_epoch.0,
            partition_epoch: partition.partition_epoch,
            directories: vec![Uuid::nil()],
            ..PartitionRecord::default()
        }
    }
}

/// Configs of one resource, by key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Configs(BTreeMap<Arc<str>, Arc<str>>);

impl Configs {
    /// The value of a key, if it is set.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|value| &**value)
    }

    /// Keys and values, in the order of the keys. Some are secrets: see [`is_sensitive`].
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl fmt::Debug for Configs {
    /// Without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self
            .iter()
            .map(|(key, value)| (key, if is_sensitive(key) { "[hidden]" } else { value }));
        f.debug_map().entries(shown).finish()
    }
}

/// The mirror that a topic belongs to, and what the operator wants of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorLink<'a> {
    /// Name of the mirror.
    pub mirror: &'a str,
    /// What is wanted.
    pub desired: DesiredState,
}

impl<'a> MirrorLink<'a> {
    /// Reads the value of [`MIRROR_NAME`].
    #[must_use]
    pub fn parse(value: &'a str) -> Self {
        if let Some(mirror) = value.strip_suffix(PAUSED) {
            return Self { mirror, desired: DesiredState::Paused };
        }
        match value.strip_suffix(STOPPED) {
            Some(mirror) => Self { mirror, desired: DesiredState::Stopped },
            None => Self { mirror: value, desired: DesiredState::Mirroring },
        }
    }

    /// The value of [`MIRROR_NAME`].
    #[must_use]
    pub fn to_value(self) -> String {
        let suffix = match self.desired {
            DesiredState::Mirroring => "",
            DesiredState::Paused => PAUSED,
            DesiredState::Stopped => STOPPED,
        };
        format!("{}{suffix}", self.mirror)
    }
}

/// Why a record does not follow from what is there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A partition, or the end, of a topic that is not there.
    #[error("topic ID {id} is unknown")]
    UnknownTopic {
        /// The ID.
        id: TopicId,
    },
    /// A topic of a name that another has.
    #[error("topic {name} exists already")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A topic of an ID that another has.
    #[error("topic {name} would have ID {id}, which another topic has")]
    IdTaken {
        /// Its name.
        name: String,
        /// Its ID.
        id: TopicId,
    },
    /// A partition behind a hole.
    #[error("partition {got} of topic {topic}, which has {count} partitions")]
    Hole {
        /// The topic.
        topic: String,
        /// The index.
        got: i32,
        /// How many there are.
        count: i32,
    },
    /// Not one replica that is in sync and leads.
    #[error("partition {topic}-{index} is not of one node; a standalone host has no other")]
    Replicas {
        /// The topic.
        topic: String,
        /// The index.
        index: i32,
    },
    /// A leader epoch that goes back, or a partition epoch that does not rise.
    #[error("partition {topic}-{index}: {field} {got} after {was}")]
    EpochBack {
        /// The topic.
        topic: String,
        /// The index.
        index: i32,
        /// Which epoch.
        field: &'static str,
        /// In the record.
        got: i32,
        /// Until now.
        was: i32,
    },
    /// The end of a broker that is not there, or of another registration.
    #[error("broker {id} of epoch {epoch} is not registered")]
    UnknownBroker {
        /// Its node ID.
        id: i32,
        /// The epoch of the record.
        epoch: i64,
    },
    /// A text that Kafka would not read.
    #[error("{field} has {bytes} bytes; a record holds {TEXT_BYTES_MAX}")]
    TextTooLong {
        /// Which.
        field: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// The begin or end of a transaction, which is whoever replays the log's to obey.
    #[error("{name} stands outside of a transaction's place")]
    Transaction {
        /// The record.
        name: &'static str,
    },
}

/// The metadata of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataImage {
    features: BTreeMap<Arc<str>, i16>,
    brokers: BTreeMap<BrokerId, Arc<BrokerImage>>,
    topics: BTreeMap<Arc<str>, Arc<TopicImage>>,
    names: BTreeMap<TopicId, Arc<str>>,
    configs: BTreeMap<ResourceType, BTreeMap<Arc<str>, Arc<Configs>>>,
    /// Of all topics.
    partition_count: usize,
}

impl MetadataImage {
    /// Follows a record. After an error nothing has changed.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn apply(&mut self, record: &MetadataRecord) -> Result<(), ImageError> {
        use MetadataRecord as R;
        match record {
            R::RegisterBroker(it) => {
                let broker = BrokerImage { registration: it.clone() };
                self.brokers.insert(BrokerId(it.broker_id), Arc::new(broker));
                Ok(())
            }
            R::UnregisterBroker(it) => {
                let (id, epoch) = (it.broker_id, it.broker_epoch);
                let known = self.brokers.get(&BrokerId(id));
                if known.is_none_or(|broker| broker.registration.broker_epoch != epoch) {
                    return Err(ImageError::UnknownBroker { id, epoch });
                }
                self.brokers.remove(&BrokerId(id));
                Ok(())
            }
            R::Topic(it) => self.add_topic(it),
            R::Partition(it) => self.set_partition(it),
            R::Config(it) => self.set_config(it),
            R::RemoveTopic(it) => self.remove_topic(it.topic_id),
            R::FeatureLevel(it) => {
                self.set_feature(it);
                Ok(())
            }
            R::NoOp(_) => Ok(()),
            R::BeginTransaction(_) | R::EndTransaction(_) | R::AbortTransaction(_) => {
                Err(ImageError::Transaction { name: record.name() })
            }
        }
    }

    fn add_topic(&mut self, it: &TopicRecord) -> Result<(), ImageError> {
        let (name, id) = (it.name.clone(), it.topic_id);
        if self.topics.contains_key(&*name) {
            return Err(ImageError::NameTaken { name });
        }
        if self.names.contains_key(&id) {
            return Err(ImageError::IdTaken { name, id });
        }
        let name: Arc<str> = name.into();
        let topic = TopicImage { name: name.clone(), id, partitions: Vec::new() };
        self.names.insert(id, name.clone());
        self.topics.insert(name, Arc::new(topic));
        Ok(())
    }

    fn set_partition(&mut self, it: &PartitionRecord) -> Result<(), ImageError> {
        let id = it.topic_id;
        let known = self.names.get(&id).and_then(|name| self.topics.get_mut(name));
        let shared = known.ok_or(ImageError::UnknownTopic { id })?;
        let index = it.partition_id;
        let topic = || shared.name.to_string();
        let is_alone = it.replicas == [it.leader] && it.isr == [it.leader];
        if !is_alone || !it.adding_replicas.is_empty() || !it.removing_replicas.is_empty() {
            return Err(ImageError::Replicas { topic: topic(), index });
        }
        let count = shared.partition_count();
        if !(0..=count).contains(&index) {
            return Err(ImageError::Hole { topic: topic(), got: index, count });
        }
        let was = shared.partition(index).copied();
        if let Some(was) = was {
            check_epochs(it, was, &shared.name)?;
        }
        let partition = PartitionImage {
            node: BrokerId(it.leader),
            leader_epoch: LeaderEpoch(it.leader_epoch),
            partition_epoch: it.partition_epoch,
        };
        let partitions = &mut Arc::make_mut(shared).partitions;
        match usize::try_from(index).ok().and_then(|index| partitions.get_mut(index)) {
            Some(place) => *place = partition,
            None => {
                partitions.push(partition);
                self.partition_count = self.partition_count.saturating_add(1);
            }
        }
        Ok(())
    }

    fn remove_topic(&mut self, id: TopicId) -> Result<(), ImageError> {
        let name = self.names.remove(&id).ok_or(ImageError::UnknownTopic { id })?;
        let partitions = self.topics.remove(&name).map_or(0, |topic| topic.partitions.len());
        self.partition_count = self.partition_count.saturating_sub(partitions);
        // As Kafka does: there is no record of its own for each of them.
        self.remove_resource(ResourceType::TOPIC, &name);
        Ok(())
    }

    fn set_config(&mut self, it: &ConfigRecord) -> Result<(), ImageError> {
        for (field, text) in [
            ("name of a resource", Some(&it.resource_name)),
            ("key of a config", Some(&it.name)),
            ("value of a config", it.value.as_ref()),
        ] {
            let bytes = text.map_or(0, String::len);
            if bytes > TEXT_BYTES_MAX {
                return Err(ImageError::TextTooLong { field, bytes });
            }
        }
        let kind = ResourceType(it.resource_type);
        if let Some(value) = &it.value {
            let resources = self.configs.entry(kind).or_default();
            let shared = resources.entry(it.resource_name.as_str().into()).or_default();
            Arc::make_mut(shared).0.insert(it.name.as_str().into(), value.as_str().into());
            return Ok(());
        }
        let resources = self.configs.get_mut(&kind);
        if let Some(shared) = resources.and_then(|all| all.get_mut(&*it.resource_name)) {
            let configs = &mut Arc::make_mut(shared).0;
            configs.remove(&*it.name);
            if configs.is_empty() {
                self.remove_resource(kind, &it.resource_name);
            }
        }
        Ok(())
    }

    fn remove_resource(&mut self, kind: ResourceType, name: &str) {
        let Some(resources) = self.configs.get_mut(&kind) else { return };
        resources.remove(name);
        if resources.is_empty() {
            self.configs.remove(&kind);
        }
    }

    fn set_feature(&mut self, it: &FeatureLevelRecord) {
        if it.feature_level == 0 {
            self.features.remove(&*it.name);
        } else {
            self.features.insert(it.name.as_str().into(), it.feature_level);
        }
    }

    /// The records that make this image of an empty one, in an order in which each follows.
    ///
    /// # Errors
    /// Whatever `see` says, which ends it.
    pub fn records<E>(
        &self,
        mut see: impl FnMut(MetadataRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        for (name, level) in &self.features {
            let (name, feature_level) = (name.to_string(), *level);
            see(FeatureLevelRecord { name, feature_level }.into())?;
        }
        for broker in self.brokers.values() {
            see(broker.registration.clone().into())?;
        }
        for topic in self.topics.values() {
            see(TopicRecord { name: topic.name.to_string(), topic_id: topic.id }.into())?;
            for (index, partition) in (0..).zip(&topic.partitions) {
                see(topic.partition_record(index, *partition).into())?;
            }
        }
        for (kind, resources) in &self.configs {
            for (resource, configs) in resources {
                for (key, value) in configs.iter() {
                    see(config_record(*kind, resource, key, Some(value)).into())?;
                }
            }
        }
        Ok(())
    }
}

/// What is asked of it.
impl MetadataImage {
    /// Level of a feature; 0 for off.
    #[must_use]
    pub fn feature(&self, name: &str) -> i16 {
        self.features.get(name).copied().unwrap_or(0)
    }

    /// Features that are on, with their levels.
    pub fn features(&self) -> impl Iterator<Item = (&str, i16)> {
        self.features.iter().map(|(name, level)| (&**name, *level))
    }

    /// A registered broker.
    #[must_use]
    pub fn broker(&self, id: BrokerId) -> Option<&BrokerImage> {
        self.brokers.get(&id).map(|broker| &**broker)
    }

    /// All registered brokers, by node ID.
    pub fn brokers(&self) -> impl Iterator<Item = &BrokerImage> {
        self.brokers.values().map(|broker| &**broker)
    }

    /// A topic by name.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&TopicImage> {
        self.topics.get(name).map(|topic| &**topic)
    }

    /// A topic by ID.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<&TopicImage> {
        self.topic(self.names.get(&id)?)
    }

    /// All topics, by name.
    pub fn topics(&self) -> impl Iterator<Item = &TopicImage> {
        self.topics.values().map(|topic| &**topic)
    }

    /// Epoch of a partition's leader.
    #[must_use]
    pub fn leader_epoch(&self, topic: &str, partition: i32) -> Option<LeaderEpoch> {
        self.topic(topic)?.partition(partition).map(|it| it.leader_epoch)
    }

    /// Partitions of all topics.
    #[must_use]
    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// Configs of a resource; `None` if none is set.
    #[must_use]
    pub fn configs(&self, kind: ResourceType, name: &str) -> Option<&Configs> {
        self.configs.get(&kind)?.get(name).map(|configs| &**configs)
    }

    /// The value of a resource's config, if it is set.
    #[must_use]
    pub fn config(&self, kind: ResourceType, name: &str, key: &str) -> Option<&str> {
        self.configs(kind, name)?.get(key)
    }

    /// All mirrors, by name: whatever has configs of a mirror.
    pub fn mirrors(&self) -> impl Iterator<Item = &str> {
        let mirrors = self.configs.get(&ResourceType::MIRROR);
        mirrors.into_iter().flat_map(BTreeMap::keys).map(|name| &**name)
    }

    /// Whether there is a mirror of this name.
    #[must_use]
    pub fn has_mirror(&self, name: &str) -> bool {
        self.configs(ResourceType::MIRROR, name).is_some()
    }

    /// The mirror that a topic belongs to, if it belongs to one.
    #[must_use]
    pub fn mirror_of(&self, topic: &str) -> Option<MirrorLink<'_>> {
        self.config(ResourceType::TOPIC, topic, MIRROR_NAME).map(MirrorLink::parse)
    }

    /// Topics of a mirror with what is wanted of each, by name. O(topics).
    pub fn topics_of(&self, mirror: &str) -> impl Iterator<Item = (&TopicImage, DesiredState)> {
        self.topics().filter_map(move |topic| {
            let link = self.mirror_of(&topic.name)?;
            (link.mirror == mirror).then_some((topic, link.desired))
        })
    }
}

/// The record that sets a config, or removes it.
#[must_use]
pub fn config_record(
    kind: ResourceType,
    resource: &str,
    key: &str,
    value: Option<&str>,
) -> ConfigRecord {
    ConfigRecord {
        resource_type: kind.0,
        resource_name: resource.to_owned(),
        name: key.to_owned(),
        value: value.map(str::to_owned),
    }
}

fn check_epochs(it: &PartitionRecord, was: PartitionImage, topic: &str) -> Result<(), ImageError> {
    let back = |field, got, was| {
        let (topic, index) = (topic.to_owned(), it.partition_id);
        Err(ImageError::EpochBack { topic, index, field, got, was })
    };
    if it.leader_epoch < was.leader_epoch.0 {
        return back("leader epoch", it.leader_epoch, was.leader_epoch.0);
    }
    if it.partition_epoch <= was.partition_epoch {
        return back("partition epoch", it.partition_epoch, was.partition_epoch);
    }
    Ok(())
}

#[cfg(test)]
mod tests;

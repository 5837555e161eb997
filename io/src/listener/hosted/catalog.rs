//! The topics of one served log dir, and the brokers that serve it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use heliostat_core::log::FileKind;
use heliostat_core::log::checkpoint::{
    OffsetCheckpoint, decode_offsets, encode_offsets, encode_partition_metadata,
};
use heliostat_core::log::config::LogConfig;
use heliostat_core::log::meta_properties::MetaProperties;
use heliostat_core::log::names::{
    CLEAN_SHUTDOWN, LOG_START_CHECKPOINT, META_PROPERTIES, PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT, REPLICATION_CHECKPOINT,
};
use heliostat_core::serve::NodeEndpoint;
use heliostat_core::types::{BrokerId, Offset, TopicId, TopicPartition};
use uuid::Uuid;

use super::bell::Bell;
use super::error::HostedError;
use super::load;
use super::partition::Partition;
use super::writer::write_file;

/// Identity and defaults of a served log dir.
#[derive(Clone, Debug)]
pub struct CatalogConfig {
    /// Cluster ID that clients are told.
    pub cluster_id: String,
    /// The broker that leads what nobody else leads.
    pub node_id: BrokerId,
    /// Settings of all logs that name none of their own.
    pub log: LogConfig,
}

/// A topic to make.
#[derive(Clone, Debug)]
pub struct TopicSpec {
    /// Its name.
    pub name: String,
    /// How many partitions.
    pub partitions: i32,
    /// Its identity.
    pub topic_id: TopicId,
    /// Topic configs that differ from the defaults, for `DescribeConfigs`.
    pub configs: BTreeMap<String, String>,
    /// Settings of its logs.
    pub log: LogConfig,
}

/// A served topic.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity, [`TopicId::NONE`] if it has none.
    pub topic_id: TopicId,
    /// Topic configs that differ from the defaults.
    pub configs: BTreeMap<String, String>,
    /// By index.
    pub partitions: Vec<Arc<Partition>>,
    log: LogConfig,
}

#[derive(Debug, Default)]
struct Topics {
    by_name: BTreeMap<Arc<str>, Topic>,
    by_id: HashMap<TopicId, Arc<str>>,
}

impl Topics {
    fn add(&mut self, topic: Topic) {
        if let Some(id) = topic.topic_id.known() {
            self.by_id.insert(id, Arc::clone(&topic.name));
        }
        self.by_name.insert(Arc::clone(&topic.name), topic);
    }

    fn by_id(&self, id: TopicId) -> Option<&Topic> {
        self.by_name.get(self.by_id.get(&id.known()?)?)
    }
}

/// Everything that a set of listeners serves. Shared between threads.
#[derive(Debug)]
pub struct Catalog {
    dir: PathBuf,
    config: CatalogConfig,
    bell: Arc<Bell>,
    topics: RwLock<Topics>,
    nodes: RwLock<BTreeMap<i32, NodeEndpoint>>,
}

impl Catalog {
    /// Opens a log dir in Kafka's layout, or makes an empty one.
    ///
    /// # Errors
    ///
    /// Files that cannot be read or hold what they must not.
    pub fn open(dir: &Path, config: CatalogConfig) -> Result<Self, HostedError> {
        fs::create_dir_all(dir).map_err(HostedError::file("creation", dir))?;
        let catalog = Self {
            dir: dir.to_path_buf(),
            config,
            bell: Arc::default(),
            topics: RwLock::default(),
            nodes: RwLock::default(),
        };
        let path = dir.join(META_PROPERTIES);
        if load::read_small(&path)?.is_none() {
            catalog.write_meta_properties()?;
        }
        catalog.load_topics()?;
        // From now on a stop must say that it was clean.
        super::writer::remove_file(&dir.join(CLEAN_SHUTDOWN))?;
        Ok(catalog)
    }

    fn write_meta_properties(&self) -> Result<(), HostedError> {
        let config = &self.config;
        let meta = MetaProperties::new(config.cluster_id.clone(), config.node_id, Uuid::new_v4());
        let text = meta.encode();
        write_file(&self.dir.join(META_PROPERTIES), text.as_bytes())
    }

    fn load_topics(&self) -> Result<(), HostedError> {
        let path = self.dir.join(LOG_START_CHECKPOINT);
        let starts = match load::read_small(&path)? {
            Some(bytes) => decode_offsets(FileKind::LogStartCheckpoint, &bytes)
                .map_err(HostedError::format(&path))?,
            None => OffsetCheckpoint::new(),
        };
        let mut found = BTreeMap::<TopicPartition, PathBuf>::new();
        for entry in fs::read_dir(&self.dir).map_err(HostedError::file("listing", &self.dir))? {
            let entry = entry.map_err(HostedError::file("listing", &self.dir))?;
            let name = entry.file_name();
            if let Some(id) = name.to_str().and_then(TopicPartition::from_dir_name)
                && entry.path().is_dir()
            {
                found.insert(id, entry.path());
            }
        }
        let mut topics = BTreeMap::<Arc<str>, Topic>::new();
        for (id, path) in found {
            let start = starts.get(&id).copied();
            let (log, node) = (self.config.log, self.config.node_id);
            let partition =
                load::open(&path, id.clone(), log, start, node, Arc::clone(&self.bell))?;
            let topic = topics.entry(Arc::clone(&id.topic)).or_insert_with(|| Topic {
                name: Arc::clone(&id.topic),
                topic_id: partition.topic_id(),
                configs: BTreeMap::new(),
                partitions: Vec::new(),
                log,
            });
            topic.partitions.push(Arc::new(partition));
        }
        let mut served = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        for topic in topics.into_values() {
            served.add(topic);
        }
        Ok(())
    }

    /// Identity and defaults.
    pub fn config(&self) -> &CatalogConfig {
        &self.config
    }

    /// The log dir.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Rings at every change.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Makes an empty topic.
    ///
    /// # Errors
    ///
    /// A name that is taken or that Kafka refuses; the disk.
    pub fn create_topic(&self, spec: TopicSpec) -> Result<Topic, HostedError> {
        if !is_topic_name(&spec.name) {
            return Err(HostedError::TopicName(spec.name));
        }
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        if topics.by_name.contains_key(spec.name.as_str()) {
            return Err(HostedError::TopicExists(spec.name));
        }
        let mut topic = Topic {
            name: spec.name.into(),
            topic_id: spec.topic_id,
            configs: spec.configs,
            partitions: Vec::new(),
            log: spec.log,
        };
        self.add_partitions(&mut topic, spec.partitions)?;
        topics.add(topic.clone());
        drop(topics);
        self.bell.ring();
        Ok(topic)
    }

    /// Grows a topic to `partitions`. Nothing happens if it has as many, or is unknown.
    ///
    /// # Errors
    ///
    /// The disk.
    pub fn grow_topic(&self, name: &str, partitions: i32) -> Result<(), HostedError> {
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(topic) = topics.by_name.get_mut(name) {
            self.add_partitions(topic, partitions)?;
        }
        drop(topics);
        self.bell.ring();
        Ok(())
    }

    fn add_partitions(&self, topic: &mut Topic, partitions: i32) -> Result<(), HostedError> {
        let have = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        for index in have..partitions {
            let id = TopicPartition::new(Arc::clone(&topic.name), index);
            let dir = self.dir.join(id.to_string());
            fs::create_dir_all(&dir).map_err(HostedError::file("creation", &dir))?;
            if let Some(topic_id) = topic.topic_id.known() {
                let text = encode_partition_metadata(topic_id);
                write_file(&dir.join(PARTITION_METADATA), text.as_bytes())?;
            }
            let (log, node) = (topic.log, self.config.node_id);
            let partition = load::open(&dir, id, log, None, node, Arc::clone(&self.bell))?;
            topic.partitions.push(Arc::new(partition));
        }
        Ok(())
    }

    /// Removes a topic and its files. Whether it was there.
    ///
    /// # Errors
    ///
    /// The disk.
    pub fn delete_topic(&self, name: &str) -> Result<bool, HostedError> {
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        let Some(topic) = topics.by_name.remove(name) else { return Ok(false) };
        topics.by_id.remove(&topic.topic_id);
        for partition in &topic.partitions {
            let dir = partition.dir();
            fs::remove_dir_all(dir).map_err(HostedError::file("removal", dir))?;
        }
        drop(topics);
        self.bell.ring();
        Ok(true)
    }

    /// All topics by name.
    pub fn topics(&self) -> Vec<Topic> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.by_name.values().cloned().collect()
    }

    /// A topic by name.
    pub fn topic(&self, name: &str) -> Option<Topic> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.by_name.get(name).cloned()
    }

    /// A topic by ID.
    pub fn topic_by_id(&self, id: TopicId) -> Option<Topic> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner).by_id(id).cloned()
    }

    /// A partition by name.
    pub fn partition(&self, topic: &str, partition: i32) -> Option<Arc<Partition>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(partition).ok()?;
        topics.by_name.get(topic)?.partitions.get(index).cloned()
    }

    /// A partition by topic ID.
    pub fn partition_by_id(&self, id: TopicId, partition: i32) -> Option<Arc<Partition>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(partition).ok()?;
        topics.by_id(id)?.partitions.get(index).cloned()
    }

    /// Tells where a broker listens; clients hear of it.
    pub fn register_node(&self, node: NodeEndpoint) {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        nodes.insert(node.node.0, node);
    }

    /// Forgets a broker.
    pub fn unregister_node(&self, node: BrokerId) {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner).remove(&node.0);
    }

    /// The brokers, by node ID.
    pub fn nodes(&self) -> Vec<NodeEndpoint> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.values().cloned().collect()
    }

    /// Makes everything durable and writes the checkpoints and the marker of a clean
    /// stop. Nothing may be appended afterwards.
    ///
    /// # Errors
    ///
    /// The disk.
    pub fn close(&self) -> Result<(), HostedError> {
        let mut ends = OffsetCheckpoint::new();
        let mut starts = OffsetCheckpoint::new();
        let mut watermarks = OffsetCheckpoint::new();
        for partition in self.topics().iter().flat_map(|topic| &topic.partitions) {
            partition.flush()?;
            let facts = partition.facts(self.config.node_id);
            ends.insert(partition.id().clone(), facts.log_end);
            watermarks.insert(partition.id().clone(), facts.high_watermark);
            // As Kafka: only where it is not the first segment's base.
            if facts.log_start > Offset::ZERO {
                starts.insert(partition.id().clone(), facts.log_start);
            }
        }
        for (name, kind, offsets) in [
            (RECOVERY_POINT_CHECKPOINT, FileKind::RecoveryPointCheckpoint, ends),
            (LOG_START_CHECKPOINT, FileKind::LogStartCheckpoint, starts),
            (REPLICATION_CHECKPOINT, FileKind::ReplicationCheckpoint, watermarks),
        ] {
            let path = self.dir.join(name);
            let text = encode_offsets(kind, &offsets).map_err(HostedError::format(&path))?;
            write_file(&path, text.as_bytes())?;
        }
        let marker = b"{\"version\":0,\"brokerEpoch\":-1}";
        write_file(&self.dir.join(CLEAN_SHUTDOWN), marker)
    }
}

fn is_topic_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(legal)
}

//! All logs of a host, by name and by ID.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use heliostat_core::types::{LeaderEpoch, TopicId, TopicPartition};

use super::files::OpenFiles;
use super::log::ServedLog;
use super::wakes::{WakeEnd, Wakes};

#[derive(Debug)]
struct Topic {
    id: TopicId,
    partitions: Vec<Arc<ServedLog>>,
}

#[derive(Debug, Default)]
struct Topics {
    by_name: BTreeMap<Arc<str>, Topic>,
    by_id: HashMap<TopicId, Arc<str>>,
}

/// See the module's text. Shared by the control thread, who says which logs there are, those
/// who show them, and the listener's threads.
#[derive(Debug)]
pub(crate) struct ServedLogs {
    dir: PathBuf,
    topics: RwLock<Topics>,
    next_id: AtomicU64,
    wakes: Arc<Wakes>,
    files: OpenFiles,
}

impl ServedLogs {
    /// Logs of the log dir `dir`; none yet.
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
            topics: RwLock::default(),
            next_id: AtomicU64::new(0),
            wakes: Arc::new(Wakes::new()),
            files: OpenFiles::default(),
        }
    }

    fn topics(&self) -> RwLockReadGuard<'_, Topics> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn topics_mut(&self) -> RwLockWriteGuard<'_, Topics> {
        self.topics.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is such a partition, led in `epoch`. A new one is hidden. A topic of the same name
    /// with another ID is gone. Partitions of a topic come in their order; one that leaves out
    /// others waits until they are there.
    pub(crate) fn set(&self, name: &Arc<str>, id: TopicId, partition: i32, epoch: LeaderEpoch) {
        let mut topics = self.topics_mut();
        if topics.by_name.get(name).is_some_and(|topic| topic.id != id) {
            topics.remove(name);
        }
        topics.by_id.insert(id, Arc::clone(name));
        let topic = topics
            .by_name
            .entry(Arc::clone(name))
            .or_insert_with(|| Topic { id, partitions: Vec::new() });
        let Ok(index) = usize::try_from(partition) else { return };
        match topic.partitions.get(index) {
            Some(log) => log.set_leader_epoch(epoch),
            None if topic.partitions.len() == index => {
                let at = TopicPartition::new(Arc::clone(name), partition);
                let number = self.next_id.fetch_add(1, Ordering::Relaxed);
                let log = ServedLog::new(number, at, id, epoch, Arc::clone(&self.wakes));
                topic.partitions.push(Arc::new(log));
            }
            None => {}
        }
    }

    /// The topic is gone; whoever waits for its logs hears of it.
    pub(crate) fn remove(&self, id: TopicId) {
        let mut topics = self.topics_mut();
        if let Some(name) = topics.by_id.get(&id).cloned() {
            topics.remove(&name);
        }
    }

    /// Name of the topic with this ID.
    pub(crate) fn name_of(&self, id: TopicId) -> Option<Arc<str>> {
        self.topics().by_id.get(&id).cloned()
    }

    /// A partition's log.
    pub(crate) fn log(&self, topic: &str, partition: i32) -> Option<Arc<ServedLog>> {
        let index = usize::try_from(partition).ok()?;
        self.topics().by_name.get(topic)?.partitions.get(index).cloned()
    }

    /// The same.
    pub(crate) fn log_at(&self, at: &TopicPartition) -> Option<Arc<ServedLog>> {
        self.log(&at.topic, at.partition)
    }

    /// The end of listener thread `index` for what changes.
    pub(crate) fn wake_end(&self, index: usize) -> WakeEnd {
        WakeEnd::new(Arc::clone(&self.wakes), index)
    }

    /// The files that readers have open.
    pub(crate) fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// The log dir.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Topics {
    fn remove(&mut self, name: &str) {
        let Some(topic) = self.by_name.remove(name) else { return };
        self.by_id.remove(&topic.id);
        topic.partitions.iter().for_each(|log| log.hide());
    }
}

//! Something of each partition, found by its name. A topic's name is kept once: with very many
//! partitions, keys that hold it would be most of a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use heliostat_core::types::TopicPartition;

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct ByName<T> {
    topics: BTreeMap<Arc<str>, BTreeMap<i32, T>>,
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self { topics: BTreeMap::new() }
    }
}

impl<T> ByName<T> {
    pub(super) fn get(&self, at: &TopicPartition) -> Option<&T> {
        self.topics.get(&at.topic)?.get(&at.partition)
    }

    /// What stands under `at`, made by `default` if there is nothing.
    pub(super) fn entry(&mut self, at: &TopicPartition, default: impl FnOnce() -> T) -> &mut T {
        let partitions = self.topics.entry(Arc::clone(&at.topic)).or_default();
        partitions.entry(at.partition).or_insert_with(default)
    }

    /// Forgets a topic; `false` if there was nothing of it.
    pub(super) fn remove(&mut self, topic: &str) -> bool {
        self.topics.remove(topic).is_some()
    }

    /// Everything of a topic, by partition.
    pub(super) fn of_topic(&self, topic: &str) -> impl Iterator<Item = &T> {
        self.topics.get(topic).into_iter().flat_map(BTreeMap::values)
    }

    /// All, by topic and partition.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, i32, &T)> {
        self.topics.iter().flat_map(|(topic, partitions)| {
            partitions.iter().map(move |(index, value)| (&**topic, *index, value))
        })
    }
}

//! Which partitions a throttle holds for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::types::TopicPartition;

/// Value of `mirror.replication.throttled.replicas`: `*`, or a list of `topic` and
/// `topic:partition`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThrottledPartitions {
    /// Every partition.
    All,
    /// The named ones. `None` stands for all partitions of a topic.
    Named(BTreeMap<Arc<str>, Option<BTreeSet<i32>>>),
}

impl ThrottledPartitions {
    /// Reads the value; an empty one names none. `None` if an entry is neither form.
    pub fn parse(text: &str) -> Option<Self> {
        if text.trim() == "*" {
            return Some(Self::All);
        }
        let mut named = BTreeMap::<Arc<str>, Option<BTreeSet<i32>>>::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (topic, partition) = match entry.split_once(':') {
                Some((topic, index)) => {
                    (topic, Some(index.parse().ok().filter(|index| *index >= 0)?))
                }
                None => (entry, None),
            };
            if topic.is_empty() || topic == "*" {
                return None;
            }
            let set = named.entry(Arc::from(topic)).or_insert_with(|| Some(BTreeSet::new()));
            match (partition, &mut *set) {
                (Some(index), Some(indexes)) => {
                    indexes.insert(index);
                }
                _ => *set = None,
            }
        }
        Some(Self::Named(named))
    }

    /// Whether the throttle holds for `partition`.
    pub fn contains(&self, partition: &TopicPartition) -> bool {
        match self {
            Self::All => true,
            Self::Named(named) => named.get(&partition.topic).is_some_and(|indexes| {
                indexes.as_ref().is_none_or(|indexes| indexes.contains(&partition.partition))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_name_topics_or_partitions() {
        let contains = |text: &str, topic: &str, index| {
            let it = ThrottledPartitions::parse(text).unwrap();
            it.contains(&TopicPartition::new(topic, index))
        };
        assert!(contains("*", "a", 0));
        assert!(!contains("", "a", 0));
        assert!(contains("a, b:1", "a", 7));
        assert!(contains("a, b:1", "b", 1) && !contains("a, b:1", "b", 0));
        assert!(contains("a:1,a,a:2", "a", 0));
        for bad in ["a:", "a:x", "a:-1", ":1", "a:1:2", "*,a"] {
            assert_eq!(ThrottledPartitions::parse(bad), None, "{bad}");
        }
    }
}

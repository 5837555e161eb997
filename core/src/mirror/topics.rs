//! The source's topics as metadata tells of them, and what each refresh changes.
//!
//! A broker can answer from a state older than the one it, or another, answered from
//! before. So an epoch that goes back is ignored, −1 replaces no epoch that is known, and
//! an end of a topic counts only once it was seen several times in a row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::message::Leader;
use crate::protocol::{ErrorCode, Metadata, MetadataTopic, TopicIdentity};
use crate::select::{Selection, TopicFilter};
use crate::types::{BrokerId, LeaderEpoch, TopicId, TopicPartition};

/// What a refresh of the metadata changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A partition that is to be copied from its log start on.
    NewPartition {
        /// Its topic.
        topic: TopicIdentity,
        /// Its index.
        index: i32,
        /// Who leads.
        leader: Leader,
    },
    /// Another leader, or another epoch of the same one.
    NewLeader {
        /// The partition.
        partition: TopicPartition,
        /// Who leads.
        leader: Leader,
        /// A new epoch has begun: the log may have been cut at the source.
        epoch_rose: bool,
    },
    /// The topic has got an ID where the source had none. It is the same topic.
    IdAppeared {
        /// Name and ID.
        topic: TopicIdentity,
    },
    /// The topic is not there any more; its partitions stop.
    Ended {
        /// Its name.
        topic: Arc<str>,
        /// What became of it.
        how: TopicEnd,
    },
}

/// What became of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicEnd {
    /// The source does not list it.
    #[error("the topic was deleted at the source, or this client may no longer describe it")]
    Gone,
    /// Another topic has its name.
    #[error(
        "the topic was recreated at the source (ID {known} before, {found} now); move the copy's \
         directories away to copy the new topic"
    )]
    Recreated {
        /// Of the topic that was copied.
        known: TopicId,
        /// Of the topic that is there now.
        found: TopicId,
    },
    /// Without topic IDs, this is how a recreated topic shows.
    #[error(
        "leader epochs of the topic went back (from {known} to {found}), and the source has no \
         topic IDs: the topic was recreated, or the source restored from a backup; move the copy's \
         directories away to copy it anew"
    )]
    EpochsWentBack {
        /// Newest epoch that was seen.
        known: LeaderEpoch,
        /// What the source says now.
        found: LeaderEpoch,
    },
    /// Without topic IDs, this is another sign of a recreated topic.
    #[error(
        "the topic has fewer partitions than before, and the source has no topic IDs: the topic \
         was recreated; move the copy's directories away to copy it anew"
    )]
    Shrunk,
}

impl TopicEnd {
    /// Refreshes in a row that have to say so.
    fn sightings(self) -> u32 {
        match self {
            Self::Gone | Self::Recreated { .. } => 2,
            // A stale broker says the same; only persistence tells them apart.
            Self::EpochsWentBack { .. } | Self::Shrunk => 3,
        }
    }
}

/// Outcome of a refresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refresh {
    /// In the order of topics and partitions.
    pub changes: Vec<Change>,
    /// Something looks like the end of a topic: refresh again soon, best at another broker.
    pub confirm_soon: bool,
    /// Leaders that were ignored because their epoch is older than a known one.
    pub stale_leaders: u32,
}

#[derive(Clone, Debug)]
struct Topic {
    id: TopicId,
    partitions: BTreeMap<i32, Partition>,
    suspicion: Option<(TopicEnd, u32)>,
    ended: bool,
}

#[derive(Clone, Debug)]
struct Partition {
    leader: Leader,
    /// Shared by neighbours that have the same, as most of very many do.
    isr: Arc<[BrokerId]>,
}

/// Topics that are or were copied. One instance a job.
#[derive(Clone, Debug, Default)]
pub struct Topics {
    topics: BTreeMap<Arc<str>, Topic>,
    refused: BTreeMap<Arc<str>, Selection>,
}

impl Topics {
    /// Compares what is known with the answer to a question for all topics.
    pub fn refresh(&mut self, metadata: &Metadata, wanted: &impl TopicFilter) -> Refresh {
        let mut out = Refresh::default();
        // A broker that is starting lists nothing; that is not the end of all topics.
        if metadata.brokers.is_empty() || !metadata.error.is_none() {
            return out;
        }
        let mut listed = BTreeSet::new();
        self.refused.clear();
        for topic in &metadata.topics {
            let name = &topic.identity.name;
            if topic.error.reaction() == crate::protocol::Reaction::UnknownTopic {
                continue;
            }
            listed.insert(Arc::clone(name));
            let selection = wanted.decide(name, topic.is_internal);
            if selection.refusal().is_some() {
                self.refused.insert(Arc::clone(name), selection);
            }
            if selection.is_selected() && topic.error == ErrorCode::NONE {
                self.refresh_topic(topic, &mut out);
            }
        }
        for (name, topic) in &mut self.topics {
            if !listed.contains(name) {
                topic.suspect(name, Some(TopicEnd::Gone), &mut out);
            }
        }
        out
    }

    fn refresh_topic(&mut self, seen: &MetadataTopic, out: &mut Refresh) {
        let identity = &seen.identity;
        let topic = self.topics.entry(Arc::clone(&identity.name)).or_insert_with(|| Topic {
            id: identity.id,
            partitions: BTreeMap::new(),
            suspicion: None,
            ended: false,
        });
        if topic.ended {
            return;
        }
        match (topic.id.known(), identity.id.known()) {
            (Some(known), Some(found)) if known != found => {
                let end = TopicEnd::Recreated { known, found };
                topic.suspect(&identity.name, Some(end), out);
                return;
            }
            (None, Some(found)) => {
                topic.id = found;
                out.changes.push(Change::IdAppeared { topic: identity.clone() });
            }
            // An ID does not vanish: this broker is older than the others.
            _ => {}
        }
        let suspicion = topic.refresh_partitions(seen, out);
        topic.suspect(&identity.name, suspicion, out);
    }

    /// A broker has named a new leader outside of metadata. `false`: it is older news.
    pub fn note_leader(&mut self, partition: &TopicPartition, leader: Leader) -> bool {
        let known = self
            .topics
            .get_mut(&partition.topic)
            .and_then(|topic| topic.partitions.get_mut(&partition.partition));
        let Some(known) = known else { return false };
        match merge(known.leader, leader) {
            Merge::New(leader) => {
                known.leader = leader;
                true
            }
            Merge::Same | Merge::Stale => false,
        }
    }

    /// Identity of a topic that has not ended.
    pub fn identity(&self, topic: &str) -> Option<TopicIdentity> {
        let (name, known) = self.topics.get_key_value(topic)?;
        (!known.ended).then(|| TopicIdentity { name: Arc::clone(name), id: known.id })
    }

    /// ID of a topic, one that has ended included; all zeros for unknown.
    pub fn id(&self, topic: &str) -> TopicId {
        self.topics.get(topic).map_or(TopicId::NONE, |topic| topic.id)
    }

    /// Who leads the partition, as far as it is known.
    pub fn leader(&self, partition: &TopicPartition) -> Option<Leader> {
        Some(self.partition(partition)?.leader)
    }

    /// Another replica in sync, for bytes that the leader has damaged.
    pub fn other_replica(&self, partition: &TopicPartition) -> Option<BrokerId> {
        let known = self.partition(partition)?;
        known.isr.iter().copied().find(|replica| *replica != known.leader.broker)
    }

    fn partition(&self, partition: &TopicPartition) -> Option<&Partition> {
        self.topics.get(&partition.topic)?.partitions.get(&partition.partition)
    }

    /// Topics of the last refresh that a pattern includes and that are not copied all the same.
    pub fn refused(&self) -> &BTreeMap<Arc<str>, Selection> {
        &self.refused
    }

    /// The topic of this name has this ID, if one is known: another one is another topic, and none
    /// is its end. A topic that has ended is looked at anew. `true` if nothing was known of it.
    pub fn expect(&mut self, name: &Arc<str>, id: TopicId) -> bool {
        let known = self.topics.get(name).is_some_and(|topic| !topic.ended);
        if !known {
            let topic = Topic { id, partitions: BTreeMap::new(), suspicion: None, ended: false };
            self.topics.insert(Arc::clone(name), topic);
        }
        !known
    }

    /// Whatever is listed under this name from now on is a new topic.
    pub fn forget(&mut self, topic: &str) {
        self.topics.remove(topic);
    }

    /// Whether a topic of this name was ever listed and selected.
    pub fn contains(&self, topic: &str) -> bool {
        self.topics.contains_key(topic)
    }
}

impl Topic {
    /// Takes over partitions and leaders; says what speaks against the topic being the same.
    fn refresh_partitions(&mut self, seen: &MetadataTopic, out: &mut Refresh) -> Option<TopicEnd> {
        let mut suspicion = None;
        let has_id = self.id.known().is_some();
        if !has_id && seen.partitions.len() < self.partitions.len() {
            suspicion = Some(TopicEnd::Shrunk);
        }
        let mut partitions: Vec<_> = seen.partitions.iter().collect();
        partitions.sort_by_key(|partition| partition.index);
        let identity = TopicIdentity { name: Arc::clone(&seen.identity.name), id: self.id };
        let mut isr: Arc<[BrokerId]> = Arc::from([]);
        for partition in partitions {
            let index = partition.index;
            if *isr != *partition.isr {
                isr = Arc::from(partition.isr.as_slice());
            }
            let leader = Leader { broker: partition.leader, epoch: partition.leader_epoch };
            let Some(known) = self.partitions.get_mut(&index) else {
                self.partitions.insert(index, Partition { leader, isr: Arc::clone(&isr) });
                let topic = identity.clone();
                out.changes.push(Change::NewPartition { topic, index, leader });
                continue;
            };
            let merged = merge(known.leader, leader);
            // Mostly it has not changed, and is shared with others already.
            if !matches!(merged, Merge::Stale) && known.isr != isr {
                known.isr = Arc::clone(&isr);
            }
            match merged {
                Merge::Same => {}
                Merge::New(leader) => {
                    let epoch_rose = leader.epoch > known.leader.epoch;
                    known.leader = leader;
                    let partition = TopicPartition::new(Arc::clone(&identity.name), index);
                    out.changes.push(Change::NewLeader { partition, leader, epoch_rose });
                }
                Merge::Stale => {
                    out.stale_leaders += 1;
                    let (known, found) = (known.leader.epoch, leader.epoch);
                    if !has_id {
                        suspicion = Some(TopicEnd::EpochsWentBack { known, found });
                    }
                }
            }
        }
        suspicion
    }

    /// Counts sightings of the same kind in a row; `None` takes suspicion away.
    fn suspect(&mut self, name: &Arc<str>, end: Option<TopicEnd>, out: &mut Refresh) {
        if self.ended {
            return;
        }
        let same =
            |a: &TopicEnd, b: &TopicEnd| std::mem::discriminant(a) == std::mem::discriminant(b);
        let before = match (&self.suspicion, &end) {
            (Some((before, count)), Some(end)) if same(before, end) => *count,
            _ => 0,
        };
        self.suspicion = end.map(|end| (end, before + 1));
        match self.suspicion {
            Some((how, count)) if count >= how.sightings() => {
                self.ended = true;
                out.changes.push(Change::Ended { topic: Arc::clone(name), how });
            }
            Some(_) => out.confirm_soon = true,
            None => {}
        }
    }
}

enum Merge {
    Same,
    New(Leader),
    Stale,
}

fn merge(known: Leader, seen: Leader) -> Merge {
    let epoch = match (known.epoch.known(), seen.epoch.known()) {
        (Some(known), Some(seen)) if seen < known => return Merge::Stale,
        // While all replicas restart, the epoch is −1; it means "ask later".
        (Some(known), None) => known,
        _ => seen.epoch,
    };
    let leader = Leader { broker: seen.broker, epoch };
    if leader == known { Merge::Same } else { Merge::New(leader) }
}

#[cfg(test)]
mod tests;

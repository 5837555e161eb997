//! Topics, made and removed.

use std::collections::BTreeSet;

use super::code;
use super::decision::{Decision, Draft, Named, Refusal, shown};
use super::keys::{check_value, find};
use super::start::check_id_free;
use crate::metadata::image::{
    MetadataImage, PartitionImage, ResourceType, TopicImage, config_record,
};
use crate::metadata::record::{RemoveTopicRecord, TopicRecord};
use crate::protocol::ErrorCode;
use crate::select::is_legal_name;
use crate::types::{BrokerId, LeaderEpoch, TopicId};

/// Partitions of one host, inclusive.
pub const PARTITIONS_MAX: usize = 1_000_000;

/// The log of this metadata, which lies beside the topics.
const METADATA_TOPIC: &str = "__cluster_metadata";

/// A topic to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// The ID that `MirrorInfo` gives it; [`TopicId::NONE`] for a random one.
    pub topic_id: TopicId,
    /// How many partitions; -1 for the default.
    pub partitions: i32,
    /// 1, or -1 for the default.
    pub replication_factor: i16,
    /// Replicas by partition, in place of the two above.
    pub assignments: Vec<(i32, Vec<i32>)>,
    /// Its configs; null leaves the default.
    pub configs: Vec<(String, Option<String>)>,
}

/// What a topic gets that does not say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicDefaults {
    /// This host.
    pub node: BrokerId,
    /// `num.partitions`
    pub partitions: i32,
}

/// A topic that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Its ID.
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: i32,
}

/// How a topic is named for its removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicKey {
    /// By name.
    Name(String),
    /// By ID.
    Id(TopicId),
}

/// Makes topics. `new_id` gives the ID of one that comes without, another one with each call.
///
/// Codes of a topic: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS for its name or the ID of
/// another, INCONSISTENT_TOPIC_ID for its name with another ID, INVALID_PARTITIONS,
/// INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST if it
/// stands twice.
#[must_use]
pub fn create_topics(
    image: &MetadataImage,
    topics: &[NewTopic],
    defaults: TopicDefaults,
    new_id: &mut dyn FnMut() -> TopicId,
) -> Decision<Vec<Named<CreatedTopic>>> {
    let mut draft = Draft::new(image);
    let mut seen = BTreeSet::new();
    let mut results = Vec::new();
    for topic in topics {
        let result = if seen.insert(&topic.name) {
            draft.attempt(|draft| create(draft, topic, defaults, new_id))
        } else {
            let message = format!("topic {} stands twice", shown(&topic.name));
            Err(Refusal::new(code::INVALID_REQUEST, message))
        };
        results.push(Named { name: topic.name.clone(), result });
    }
    draft.finish(results)
}

/// Removes topics with their partitions and configs; results have the topics' names, empty for an
/// unknown ID.
///
/// Codes of a topic: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.
#[must_use]
pub fn delete_topics(image: &MetadataImage, topics: &[TopicKey]) -> Decision<Vec<Named<TopicId>>> {
    let mut draft = Draft::new(image);
    let mut results = Vec::new();
    for key in topics {
        let (name, result) = match key {
            TopicKey::Name(name) => (name.clone(), named(draft.image(), name)),
            TopicKey::Id(id) => match draft.image().topic_by_id(*id) {
                Some(topic) => (topic.name.to_string(), Ok(topic.id)),
                None => (String::new(), Err(unknown_id(*id))),
            },
        };
        let result = result.and_then(|topic_id| {
            draft.push(RemoveTopicRecord { topic_id })?;
            Ok(topic_id)
        });
        results.push(Named { name, result });
    }
    draft.finish(results)
}

fn named(image: &MetadataImage, name: &str) -> Result<TopicId, Refusal> {
    image.topic(name).map(|topic| topic.id).ok_or_else(|| unknown_topic(name))
}

pub(super) fn unknown_topic(name: &str) -> Refusal {
    let message = format!("topic {} does not exist", shown(name));
    Refusal::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message)
}

pub(super) fn unknown_id(id: TopicId) -> Refusal {
    Refusal::new(ErrorCode::UNKNOWN_TOPIC_ID, format!("no topic has ID {id}"))
}

fn create(
    draft: &mut Draft<'_>,
    topic: &NewTopic,
    defaults: TopicDefaults,
    new_id: &mut dyn FnMut() -> TopicId,
) -> Result<CreatedTopic, Refusal> {
    let name = &topic.name;
    check_topic_name(name)?;
    let given = topic.topic_id.known();
    if let Some(known) = draft.image().topic(name) {
        if given.is_some_and(|id| id != known.id) {
            let message = format!("topic {name} has ID {}, not {}", known.id, topic.topic_id);
            return Err(Refusal::new(ErrorCode::INCONSISTENT_TOPIC_ID, message));
        }
        let message = format!("topic {name} exists already");
        return Err(Refusal::new(code::TOPIC_ALREADY_EXISTS, message));
    }
    check_id_free(draft.image(), name, given)?;
    let partitions = partitions(topic, defaults)?;
    let mut configs = Vec::new();
    for (key, value) in &topic.configs {
        let key = find(ResourceType::TOPIC, key)?;
        let Some(value) = value.as_deref().map(str::trim) else { continue };
        check_value(key, value)?;
        configs.push(config_record(ResourceType::TOPIC, name, key.name, Some(value)));
    }
    let id = given.unwrap_or_else(new_id);
    add_topic(draft, name, id, partitions, defaults.node)?;
    configs.into_iter().try_for_each(|record| draft.push(record))?;
    Ok(CreatedTopic { id, partitions })
}

/// How many partitions a new topic has.
fn partitions(topic: &NewTopic, defaults: TopicDefaults) -> Result<i32, Refusal> {
    let name = &topic.name;
    if topic.assignments.is_empty() {
        if ![1, -1].contains(&topic.replication_factor) {
            let message = format!(
                "topic {name}: replication factor {}, but this cluster has one node; give 1 or -1",
                topic.replication_factor
            );
            return Err(Refusal::new(code::INVALID_REPLICATION_FACTOR, message));
        }
        return match topic.partitions {
            -1 => Ok(defaults.partitions),
            count => Ok(count),
        };
    }
    if topic.partitions != -1 || topic.replication_factor != -1 {
        let message = format!("topic {name}: replicas are given, so the two counts must be -1");
        return Err(Refusal::new(code::INVALID_REQUEST, message));
    }
    let mut assignments: Vec<_> = topic.assignments.iter().collect();
    assignments.sort_by_key(|(index, _)| *index);
    for (want, (index, replicas)) in (0..).zip(assignments) {
        check_assignment(name, replicas, defaults.node)?;
        if *index != want {
            let message = format!("topic {name}: partition {want} is missing, or stands twice");
            return Err(Refusal::new(code::INVALID_REPLICA_ASSIGNMENT, message));
        }
    }
    Ok(i32::try_from(topic.assignments.len()).unwrap_or(i32::MAX))
}

pub(super) fn check_assignment(
    topic: &str,
    replicas: &[i32],
    node: BrokerId,
) -> Result<(), Refusal> {
    if replicas == [node.0] {
        return Ok(());
    }
    let message = format!("topic {topic}: replicas must be [{node}], the only node");
    Err(Refusal::new(code::INVALID_REPLICA_ASSIGNMENT, message))
}

/// Adds a topic and its partitions, which `node` leads.
pub(super) fn add_topic(
    draft: &mut Draft<'_>,
    name: &str,
    topic_id: TopicId,
    partitions: i32,
    node: BrokerId,
) -> Result<(), Refusal> {
    check_count(draft.image(), name, partitions, 0)?;
    check_node(draft.image(), name, node)?;
    draft.push(TopicRecord { name: name.to_owned(), topic_id })?;
    add_partitions(draft, name, partitions, node)
}

/// Adds partitions up to `count`.
pub(super) fn add_partitions(
    draft: &mut Draft<'_>,
    topic: &str,
    count: i32,
    node: BrokerId,
) -> Result<(), Refusal> {
    let new = PartitionImage { node, leader_epoch: LeaderEpoch(0), partition_epoch: 0 };
    let known = draft.image().topic(topic).ok_or_else(|| unknown_topic(topic))?;
    // Only what a record needs of it: a reference would keep the draft from growing.
    let topic = TopicImage { name: known.name.clone(), id: known.id, partitions: Vec::new() };
    let from = known.partition_count();
    (from..count).try_for_each(|index| draft.push(topic.partition_record(index, new)))
}

/// A topic may have this many partitions.
pub(super) fn check_count(
    image: &MetadataImage,
    topic: &str,
    count: i32,
    has: i32,
) -> Result<(), Refusal> {
    let refused = |message| Err(Refusal::new(code::INVALID_PARTITIONS, message));
    if count <= has {
        return refused(format!(
            "topic {topic}: {count} partitions; there must be more than {has}"
        ));
    }
    let more = usize::try_from(count.saturating_sub(has)).unwrap_or(usize::MAX);
    if image.partition_count().saturating_add(more) > PARTITIONS_MAX {
        return refused(format!(
            "topic {topic}: with {count} partitions the host would have more than \
             {PARTITIONS_MAX} in all"
        ));
    }
    Ok(())
}

/// The node is there and may lead.
fn check_node(image: &MetadataImage, topic: &str, node: BrokerId) -> Result<(), Refusal> {
    if image.broker(node).is_some_and(|broker| !broker.registration.fenced) {
        return Ok(());
    }
    let message = format!("topic {topic}: node {node} is not registered, or fenced; try again");
    Err(Refusal::new(code::INVALID_REPLICATION_FACTOR, message))
}

pub(super) fn check_topic_name(name: &str) -> Result<(), Refusal> {
    if is_legal_name(name) && name != METADATA_TOPIC {
        return Ok(());
    }
    let message = format!(
        "{:?} is no name of a topic: 1 to 249 letters, digits, dots, underscores and dashes, \
         not . or .., not {METADATA_TOPIC}",
        shown(name)
    );
    Err(Refusal::new(code::INVALID_TOPIC_EXCEPTION, message))
}

//! Partitions: more of them, and new leader epochs.

use std::collections::BTreeSet;

use super::code;
use super::decision::{Decision, Draft, Named, Refusal, TopicResults, shown};
use super::topics::{add_partitions, check_assignment, check_count, unknown_id, unknown_topic};
use crate::coordinator::DesiredState;
use crate::metadata::image::{MetadataImage, PartitionImage, TopicImage};
use crate::protocol::ErrorCode;
use crate::protocol::mirror::{BumpLeaderEpochsRequest, BumpPartition};
use crate::types::{BrokerId, LeaderEpoch, TopicId};

/// Nobody may ask for a leader epoch above it: half of all that there are.
const REQUESTED_EPOCH_MAX: i32 = i32::MAX / 2;

/// A topic that is to have more partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowTopic {
    /// Its name.
    pub name: String,
    /// Partitions that it has then.
    pub count: i32,
    /// Replicas of each new partition; empty for the host's choice.
    pub assignments: Vec<Vec<i32>>,
}

/// What came of a topic's new epochs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BumpResult {
    /// The topic.
    pub topic_id: TopicId,
    /// Its name; empty if it is not known.
    pub topic_name: String,
    /// By index, in the order of the request: the epoch from now on.
    pub partitions: Vec<(i32, Result<LeaderEpoch, Refusal>)>,
}

/// Gives topics more partitions.
///
/// Codes of a topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS,
/// INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST if it stands twice.
#[must_use]
pub fn create_partitions(
    image: &MetadataImage,
    topics: &[GrowTopic],
    node: BrokerId,
) -> Decision<TopicResults> {
    let mut draft = Draft::new(image);
    let mut seen = BTreeSet::new();
    let mut results = TopicResults::new();
    for topic in topics {
        let result = if seen.insert(&topic.name) {
            draft.attempt(|draft| grow(draft, topic, node))
        } else {
            let message = format!("topic {} stands twice", shown(&topic.name));
            Err(Refusal::new(code::INVALID_REQUEST, message))
        };
        results.push(Named { name: topic.name.clone(), result });
    }
    draft.finish(results)
}

fn grow(draft: &mut Draft<'_>, topic: &GrowTopic, node: BrokerId) -> Result<(), Refusal> {
    let name = &topic.name;
    let known = draft.image().topic(name).ok_or_else(|| unknown_topic(name))?;
    let has = known.partition_count();
    check_count(draft.image(), name, topic.count, has)?;
    if !topic.assignments.is_empty() {
        let more = topic.count.saturating_sub(has);
        if usize::try_from(more) != Ok(topic.assignments.len()) {
            let message = format!("topic {name}: {more} new partitions need as many replicas");
            return Err(Refusal::new(code::INVALID_REPLICA_ASSIGNMENT, message));
        }
        topic.assignments.iter().try_for_each(|it| check_assignment(name, it, node))?;
    }
    add_partitions(draft, name, topic.count, node)
}

/// Raises leader epochs: each becomes the requested one plus 1, unless it is above the requested
/// one already.
///
/// Codes of a partition: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST for an
/// epoch that none can be above.
#[must_use]
pub fn bump_leader_epochs(
    image: &MetadataImage,
    request: &BumpLeaderEpochsRequest,
) -> Decision<Vec<BumpResult>> {
    let mut draft = Draft::new(image);
    let mut results = Vec::new();
    for topic in &request.topics {
        let topic_id = topic.topic_id;
        let known = image.topic_by_id(topic_id);
        let bump = |asked: &BumpPartition| {
            let result = match known {
                Some(known) => bump(&mut draft, known, asked),
                None => Err(unknown_id(topic_id)),
            };
            (asked.partition_index, result)
        };
        let partitions = topic.partitions.iter().map(bump).collect();
        let topic_name = known.map(|topic| topic.name.to_string()).unwrap_or_default();
        results.push(BumpResult { topic_id, topic_name, partitions });
    }
    draft.finish(results)
}

fn bump(
    draft: &mut Draft<'_>,
    topic: &TopicImage,
    asked: &BumpPartition,
) -> Result<LeaderEpoch, Refusal> {
    let index = asked.partition_index;
    // The draft's: the same partition may stand in the request twice.
    let now = draft.image().topic_by_id(topic.id).and_then(|topic| topic.partition(index));
    let Some(&now) = now else {
        let message = format!("topic {} has no partition {index}", topic.name);
        return Err(Refusal::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message));
    };
    if now.leader_epoch.0 > asked.min_leader_epoch {
        return Ok(now.leader_epoch);
    }
    if asked.min_leader_epoch > REQUESTED_EPOCH_MAX {
        let message = format!(
            "leader epoch {} of partition {}-{index} is above {REQUESTED_EPOCH_MAX}: no cluster \
             has had so many elections, and few would be left for later ones",
            asked.min_leader_epoch, topic.name
        );
        return Err(Refusal::new(code::INVALID_REQUEST, message));
    }
    raise(draft, topic, index, now, asked.min_leader_epoch)
}

/// Gives each partition that clients may write to a new leader epoch: a host that has lost its
/// unflushed tail must not write other records under the same epoch. Written before the first
/// append of a start. Returns how many there are.
///
/// Writable are topics of no mirror and those that are wanted stopped. Whatever their partitions'
/// states are, a higher epoch does no harm. A partition that has used up its epochs stays as it
/// is, or nobody could delete its topic any more.
///
/// # Errors
/// Only a bug's.
pub fn new_epochs_at_start(image: &MetadataImage) -> Result<Decision<usize>, Refusal> {
    let mut draft = Draft::new(image);
    for topic in image.topics() {
        let link = image.mirror_of(&topic.name);
        if link.is_some_and(|link| link.desired != DesiredState::Stopped) {
            continue;
        }
        for (index, now) in (0..).zip(&topic.partitions) {
            if now.leader_epoch.0 < i32::MAX && now.partition_epoch < i32::MAX {
                raise(&mut draft, topic, index, *now, now.leader_epoch.0)?;
            }
        }
    }
    let decision = draft.finish(());
    let count = decision.records.len();
    Ok(Decision { records: decision.records, answer: count })
}

/// Raises a partition's leader epoch above `above`.
fn raise(
    draft: &mut Draft<'_>,
    topic: &TopicImage,
    index: i32,
    now: PartitionImage,
    above: i32,
) -> Result<LeaderEpoch, Refusal> {
    let raised = above.checked_add(1).zip(now.partition_epoch.checked_add(1));
    let Some((leader_epoch, partition_epoch)) = raised else {
        let message = format!(
            "partition {}-{index} has no epoch left above {above}; delete the topic and mirror it \
             anew",
            topic.name
        );
        return Err(Refusal::new(code::INVALID_REQUEST, message));
    };
    let leader_epoch = LeaderEpoch(leader_epoch);
    let next = PartitionImage { leader_epoch, partition_epoch, ..now };
    draft.push(topic.partition_record(index, next))?;
    Ok(leader_epoch)
}

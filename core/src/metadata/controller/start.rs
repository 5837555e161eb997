//! Topics that begin to be mirrored, or begin again.

use std::collections::BTreeSet;

use super::code;
use super::decision::{Decision, Draft, Named, Refusal, TopicResults, check_mirror, shown};
use super::members::{nothing_named, wish};
use super::patterns::{Patterns, TopicFilter};
use super::topics::{add_topic, check_topic_name};
use crate::coordinator::DesiredState;
use crate::metadata::image::{MetadataImage, MirrorLink};
use crate::protocol::ErrorCode;
use crate::protocol::mirror::{StartMirrorTopic, StartMirrorTopicsRequest};
use crate::types::{BrokerId, TopicId};

/// Wants topics mirrored. The host has resolved them at the source: name, ID (all zeros where the
/// source has none) and partition count. One without a count, and not here either, is taken and
/// made once it is seen. New topics come to `node`; `new_id` gives the ID of one whose source has
/// none, another one with each call.
///
/// The names and the include patterns are mirrored when seen from now on and no longer excluded,
/// the exclude patterns the other way round; other topics of the mirror that a new exclude pattern
/// matches are wanted stopped. The first start writes the default of a list with it, so that it
/// goes on to hold.
///
/// # Errors
/// UNSUPPORTED_VERSION, UNKNOWN_CLUSTER_MIRROR; INVALID_REQUEST without topics and patterns, or
/// for a bad pattern. Of a topic: INVALID_TOPIC_EXCEPTION, INCONSISTENT_TOPIC_ID,
/// TOPIC_ALREADY_EXISTS for the ID of another, TOPIC_ALREADY_IN_CLUSTER_MIRROR,
/// MIRROR_TOPIC_NOT_STOPPED for a paused one, INVALID_REPLICATION_FACTOR while the node is not
/// there, INVALID_PARTITIONS, INVALID_REQUEST if it is excluded or stands twice.
pub fn start_mirror_topics(
    image: &MetadataImage,
    request: &StartMirrorTopicsRequest,
    node: BrokerId,
    new_id: &mut dyn FnMut() -> TopicId,
) -> Result<Decision<TopicResults>, Refusal> {
    let mirror = &request.mirror_name;
    check_mirror(image, mirror)?;
    let include = Patterns::of(&request.include_patterns)?;
    let exclude = Patterns::of(&request.exclude_patterns)?;
    if request.topics.is_empty() && include.is_empty() && exclude.is_empty() {
        return Err(nothing_named());
    }
    let mut filter = TopicFilter::of(image, mirror)?;
    filter.include.take(&include, &mut filter.exclude)?;
    filter.exclude.take(&exclude, &mut filter.include)?;

    let mut draft = Draft::new(image);
    let mut seen = BTreeSet::new();
    let mut results = TopicResults::new();
    for topic in &request.topics {
        let name = topic.topic_name.clone();
        let result = if seen.insert(topic.topic_name.as_str()) {
            draft.attempt(|draft| {
                check_topic_name(&name)?;
                check_not_excluded(&filter, mirror, &name)?;
                start(draft, mirror, topic, node, new_id)?;
                // A name that a pattern stands for needs no pattern of its own.
                if !filter.include.matches(&name) {
                    filter.include.add(&name)?;
                }
                filter.exclude.remove(&name);
                Ok(())
            })
        } else {
            let message = format!("topic {} stands twice", shown(&name));
            Err(Refusal::new(code::INVALID_REQUEST, message))
        };
        results.push(Named { name, result });
    }
    filter.store(&mut draft, mirror)?;
    for (topic, desired) in image.topics_of(mirror) {
        let is_named = seen.contains(&*topic.name);
        if !is_named && desired != DesiredState::Stopped && exclude.matches(&topic.name) {
            wish(&mut draft, mirror, &topic.name, DesiredState::Stopped)?;
        }
    }
    Ok(draft.finish(results))
}

fn check_not_excluded(filter: &TopicFilter, mirror: &str, topic: &str) -> Result<(), Refusal> {
    let Some(pattern) = filter.exclude.matching_beside(topic) else { return Ok(()) };
    let message = format!(
        "topic {topic} matches {pattern:?} of mirror.topics.exclude, which wins; take the pattern \
         out of the list of mirror {mirror} first"
    );
    Err(Refusal::new(code::INVALID_REQUEST, message))
}

fn start(
    draft: &mut Draft<'_>,
    mirror: &str,
    topic: &StartMirrorTopic,
    node: BrokerId,
    new_id: &mut dyn FnMut() -> TopicId,
) -> Result<(), Refusal> {
    let name = &topic.topic_name;
    let id = topic.topic_id.known();
    if let Some(known) = draft.image().topic(name) {
        if id.is_some_and(|id| id != known.id) {
            let message = format!(
                "topic {name} has ID {} here and {} at the source: it is another topic; \
                 delete the one here first, if it is not needed",
                known.id, topic.topic_id
            );
            return Err(Refusal::new(ErrorCode::INCONSISTENT_TOPIC_ID, message));
        }
    } else {
        check_id_free(draft.image(), name, id)?;
        if topic.num_partitions <= 0 {
            // Nothing is known of it yet: the next look at the source brings it.
            return Ok(());
        }
        let id = id.unwrap_or_else(new_id);
        add_topic(draft, name, id, topic.num_partitions, node)?;
    }
    match draft.image().mirror_of(name) {
        Some(link) if link.mirror != mirror && link.desired != DesiredState::Stopped => {
            let message =
                format!("topic {name} belongs to mirror {}; stop it there first", link.mirror);
            Err(Refusal::new(code::TOPIC_ALREADY_IN_CLUSTER_MIRROR, message))
        }
        Some(MirrorLink { desired: DesiredState::Mirroring, .. }) => Ok(()),
        Some(MirrorLink { desired: DesiredState::Paused, .. }) => {
            let message = format!("topic {name} of mirror {mirror} is paused; resume it instead");
            Err(Refusal::new(code::MIRROR_TOPIC_NOT_STOPPED, message))
        }
        Some(_) | None => wish(draft, mirror, name, DesiredState::Mirroring),
    }
}

/// No other topic has the ID.
pub(super) fn check_id_free(
    image: &MetadataImage,
    name: &str,
    id: Option<TopicId>,
) -> Result<(), Refusal> {
    let Some(other) = id.and_then(|id| image.topic_by_id(id)) else { return Ok(()) };
    let message =
        format!("topic {name} would have ID {}, which topic {} has", other.id, other.name);
    Err(Refusal::new(code::TOPIC_ALREADY_EXISTS, message))
}

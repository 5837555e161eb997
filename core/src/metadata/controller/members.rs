//! Topics that belong to a mirror: stopped, paused, resumed.

use std::collections::BTreeSet;

use super::code;
use super::decision::{Decision, Draft, Named, Refusal, TopicResults, check_mirror, shown};
use super::patterns::{Patterns, TopicFilter};
use crate::coordinator::DesiredState;
use crate::metadata::image::{MIRROR_NAME, MetadataImage, MirrorLink, ResourceType, config_record};
use crate::protocol::ErrorCode;
use crate::protocol::mirror::{
    MirrorTopic, PauseMirrorTopicsRequest, RecoverMirrorTopicsRequest, ResumeMirrorTopicsRequest,
    StopMirrorTopicsRequest,
};
use crate::types::TopicId;

/// Wants topics writable here, those that patterns match included; the patterns are left out from
/// now on. Possible whatever state the topics are in; one that is stopped already is no error.
///
/// # Errors
/// UNSUPPORTED_VERSION, UNKNOWN_CLUSTER_MIRROR; INVALID_REQUEST without topics and patterns, or
/// for a bad pattern. Of a topic: UNKNOWN_TOPIC_OR_PARTITION, INCONSISTENT_TOPIC_ID,
/// UNKNOWN_CLUSTER_MIRROR if it is in none, TOPIC_NOT_IN_CLUSTER_MIRROR if in another.
pub fn stop_mirror_topics(
    image: &MetadataImage,
    request: &StopMirrorTopicsRequest,
) -> Result<Decision<TopicResults>, Refusal> {
    let mirror = &request.mirror_name;
    check_mirror(image, mirror)?;
    let patterns = Patterns::of(&request.patterns)?;
    if request.topics.is_empty() && patterns.is_empty() {
        return Err(nothing_named());
    }
    let mut draft = Draft::new(image);
    if !patterns.is_empty() {
        let mut filter = TopicFilter::of(image, mirror)?;
        filter.exclude.take(&patterns, &mut filter.include)?;
        filter.store(&mut draft, mirror)?;
    }
    let stop = |link: MirrorLink<'_>| match link.desired {
        DesiredState::Stopped => Ok(None),
        DesiredState::Mirroring | DesiredState::Paused => Ok(Some(DesiredState::Stopped)),
    };
    let mut results = for_each(&mut draft, mirror, &request.topics, stop);
    let named: BTreeSet<&str> = request.topics.iter().map(|it| &*it.topic_name).collect();
    for (topic, desired) in image.topics_of(mirror) {
        let is_new = !named.contains(&*topic.name) && desired != DesiredState::Stopped;
        if is_new && patterns.matches(&topic.name) {
            let result = wish(&mut draft, mirror, &topic.name, DesiredState::Stopped);
            results.push(Named { name: topic.name.to_string(), result });
        }
    }
    Ok(draft.finish(results))
}

/// Wants topics left as they are, and still not writable.
///
/// # Errors
/// As [`stop_mirror_topics`]; of a topic also MIRROR_TOPIC_BEING_STOPPED.
pub fn pause_mirror_topics(
    image: &MetadataImage,
    request: &PauseMirrorTopicsRequest,
) -> Result<Decision<TopicResults>, Refusal> {
    change(image, &request.mirror_name, &request.topics, |link| match link.desired {
        DesiredState::Paused => Ok(None),
        DesiredState::Mirroring => Ok(Some(DesiredState::Paused)),
        DesiredState::Stopped => {
            let message = "is stopped, or about to be: start it if it is to follow the source";
            Err(Refusal::new(code::MIRROR_TOPIC_BEING_STOPPED, message))
        }
    })
}

/// Wants paused topics mirrored again.
///
/// # Errors
/// As [`stop_mirror_topics`]; of a topic also MIRROR_TOPIC_NOT_PAUSED.
pub fn resume_mirror_topics(
    image: &MetadataImage,
    request: &ResumeMirrorTopicsRequest,
) -> Result<Decision<TopicResults>, Refusal> {
    change(image, &request.mirror_name, &request.topics, |link| match link.desired {
        DesiredState::Mirroring => Ok(None),
        DesiredState::Paused => Ok(Some(DesiredState::Mirroring)),
        DesiredState::Stopped => {
            let message = "is stopped, not paused: start it if it is to follow the source";
            Err(Refusal::new(code::MIRROR_TOPIC_NOT_PAUSED, message))
        }
    })
}

/// Whether failed partitions of topics may be tried again. It is the host's to do; the metadata
/// stays as it is.
///
/// # Errors
/// As [`stop_mirror_topics`].
pub fn check_recover_mirror_topics(
    image: &MetadataImage,
    request: &RecoverMirrorTopicsRequest,
) -> Result<TopicResults, Refusal> {
    let topics = request
        .topics
        .iter()
        .map(|it| MirrorTopic { topic_id: TopicId::NONE, topic_name: it.topic_name.clone() });
    let topics: Vec<_> = topics.collect();
    Ok(change(image, &request.mirror_name, &topics, |_| Ok(None))?.answer)
}

fn change(
    image: &MetadataImage,
    mirror: &str,
    topics: &[MirrorTopic],
    next: impl Fn(MirrorLink<'_>) -> Result<Option<DesiredState>, Refusal>,
) -> Result<Decision<TopicResults>, Refusal> {
    check_mirror(image, mirror)?;
    if topics.is_empty() {
        return Err(nothing_named());
    }
    let mut draft = Draft::new(image);
    let results = for_each(&mut draft, mirror, topics, next);
    Ok(draft.finish(results))
}

/// Gives each topic the wish that follows from its own; `None` leaves it.
fn for_each(
    draft: &mut Draft<'_>,
    mirror: &str,
    topics: &[MirrorTopic],
    next: impl Fn(MirrorLink<'_>) -> Result<Option<DesiredState>, Refusal>,
) -> TopicResults {
    let mut results = TopicResults::new();
    for topic in topics {
        let name = &topic.topic_name;
        let result = member(draft.image(), mirror, topic)
            .and_then(|link| {
                next(link).map_err(|it| Refusal {
                    message: format!("topic {name} of mirror {mirror} {}", it.message),
                    ..it
                })
            })
            .and_then(|desired| match desired {
                Some(desired) => wish(draft, mirror, name, desired),
                None => Ok(()),
            });
        results.push(Named { name: name.clone(), result });
    }
    results
}

/// Stores what is wanted of a topic.
pub(super) fn wish(
    draft: &mut Draft<'_>,
    mirror: &str,
    topic: &str,
    desired: DesiredState,
) -> Result<(), Refusal> {
    let value = MirrorLink { mirror, desired }.to_value();
    draft.push(config_record(ResourceType::TOPIC, topic, MIRROR_NAME, Some(&value)))
}

/// The topic's wish, if it is this mirror's.
fn member<'a>(
    image: &'a MetadataImage,
    mirror: &str,
    topic: &MirrorTopic,
) -> Result<MirrorLink<'a>, Refusal> {
    let name = shown(&topic.topic_name);
    let Some(known) = image.topic(&topic.topic_name) else {
        let message = format!("topic {name} does not exist");
        return Err(Refusal::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message));
    };
    if topic.topic_id.known().is_some_and(|id| id != known.id) {
        let message = format!("topic {name} has ID {}, not {}", known.id, topic.topic_id);
        return Err(Refusal::new(ErrorCode::INCONSISTENT_TOPIC_ID, message));
    }
    let Some(link) = image.mirror_of(&topic.topic_name) else {
        let message = format!("topic {name} belongs to no mirror; start it in one first");
        return Err(Refusal::new(code::UNKNOWN_CLUSTER_MIRROR, message));
    };
    if link.mirror != mirror {
        let message = format!("topic {name} belongs to mirror {}, not {mirror}", link.mirror);
        return Err(Refusal::new(code::TOPIC_NOT_IN_CLUSTER_MIRROR, message));
    }
    Ok(link)
}

pub(super) fn nothing_named() -> Refusal {
    Refusal::new(code::INVALID_REQUEST, "no topic is named; name topics, or patterns of topics")
}

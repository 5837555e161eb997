//! Mirrors as a whole.

use std::collections::BTreeSet;

use super::code;
use super::configs::check_change;
use super::decision::{Decision, Draft, Refusal, check_mirror, check_mirrors_on, shown};
use super::keys::{BOOTSTRAP_SERVERS, SOURCE_CLUSTER_ID, find};
use crate::coordinator::DesiredState;
use crate::metadata::image::{MIRROR_NAME, MetadataImage, ResourceType, config_record};
use crate::protocol::mirror::{CreateClusterMirrorRequest, DeleteClusterMirrorRequest};
use crate::select::is_legal_name;

/// Mirrors of one host, inclusive.
const MIRRORS_MAX: usize = 1_000;

/// Makes a mirror. The host has resolved `mirror.source.cluster.id` and put it into the request.
///
/// # Errors
/// UNSUPPORTED_VERSION while mirrors are off; INVALID_CLUSTER_MIRROR_NAME,
/// CLUSTER_MIRROR_ALREADY_EXISTS; INVALID_REQUEST without source or with a key twice;
/// INVALID_CONFIG for a key or value that a mirror does not take.
pub fn create_mirror(
    image: &MetadataImage,
    request: &CreateClusterMirrorRequest,
) -> Result<Decision<()>, Refusal> {
    check_mirrors_on(image)?;
    let mirror = &request.mirror_name;
    check_name(mirror)?;
    if image.has_mirror(mirror) {
        let message = format!("mirror {mirror} exists already");
        return Err(Refusal::new(code::CLUSTER_MIRROR_ALREADY_EXISTS, message));
    }
    if image.mirrors().count() >= MIRRORS_MAX {
        let message = format!("there are {MIRRORS_MAX} mirrors; delete one that is not needed");
        return Err(Refusal::new(code::INVALID_REQUEST, message));
    }
    let mut draft = Draft::new(image);
    let mut seen = BTreeSet::new();
    for config in &request.config {
        let key = find(ResourceType::MIRROR, &config.name)?;
        if !seen.insert(key.name) {
            let message = format!("key {} stands twice", key.name);
            return Err(Refusal::new(code::INVALID_REQUEST, message));
        }
        let Some(value) = config.value.as_deref().map(str::trim) else { continue };
        if [BOOTSTRAP_SERVERS, SOURCE_CLUSTER_ID].contains(&key.name) && value.is_empty() {
            continue;
        }
        check_change(ResourceType::MIRROR, key, None, Some(value))?;
        draft.push(config_record(ResourceType::MIRROR, mirror, key.name, Some(value)))?;
    }
    for key in [BOOTSTRAP_SERVERS, SOURCE_CLUSTER_ID] {
        if draft.image().config(ResourceType::MIRROR, mirror, key).is_none() {
            let message = format!("mirror {mirror} needs {key}");
            return Err(Refusal::new(code::INVALID_REQUEST, message));
        }
    }
    Ok(draft.finish(()))
}

/// Removes a mirror, and its name from the topics that it has stopped. They stay.
///
/// # Errors
/// UNSUPPORTED_VERSION, UNKNOWN_CLUSTER_MIRROR; CLUSTER_MIRROR_NOT_EMPTY unless all its topics
/// are wanted stopped. Whether their partitions are is for the host to check.
pub fn delete_mirror(
    image: &MetadataImage,
    request: &DeleteClusterMirrorRequest,
) -> Result<Decision<()>, Refusal> {
    let mirror = &request.mirror_name;
    check_mirror(image, mirror)?;
    let mut draft = Draft::new(image);
    for (topic, desired) in image.topics_of(mirror) {
        if desired != DesiredState::Stopped {
            let message = format!(
                "topic {} of mirror {mirror} is not stopped, nor perhaps others; stop them first",
                topic.name
            );
            return Err(Refusal::new(code::CLUSTER_MIRROR_NOT_EMPTY, message));
        }
        draft.push(config_record(ResourceType::TOPIC, &topic.name, MIRROR_NAME, None))?;
    }
    let configs = image.configs(ResourceType::MIRROR, mirror);
    for (key, _) in configs.into_iter().flat_map(|configs| configs.iter()) {
        draft.push(config_record(ResourceType::MIRROR, mirror, key, None))?;
    }
    Ok(draft.finish(()))
}

fn check_name(mirror: &str) -> Result<(), Refusal> {
    // These are how a topic's wish is written behind the mirror's name.
    let is_reserved = mirror.ends_with(".stopped") || mirror.ends_with(".paused");
    if is_legal_name(mirror) && !is_reserved {
        return Ok(());
    }
    let message = format!(
        "{:?} is no name of a mirror: 1 to 249 letters, digits, dots, underscores and dashes, \
         not . or .., not ending with .stopped or .paused",
        shown(mirror)
    );
    Err(Refusal::new(code::INVALID_CLUSTER_MIRROR_NAME, message))
}

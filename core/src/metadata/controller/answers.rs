//! Decisions as the answers of KIP-1279's requests.

use super::decision::{Named, Refusal, TopicResults, first_refusal};
use super::keys::{BOOTSTRAP_SERVERS, SOURCE_CLUSTER_ID};
use super::partitions::BumpResult;
use crate::coordinator::DesiredState;
use crate::metadata::image::{MetadataImage, ResourceType};
use crate::protocol::mirror::{
    BumpLeaderEpochsResponse, BumpedPartition, BumpedTopic, ClusterMirrorResponse,
    ListedClusterMirror, MirrorTopicResult, MirrorTopicsResponse,
};

/// Code and message of what was refused; 0 and none if nothing was.
fn told<T>(result: Result<T, &Refusal>) -> (i16, Option<String>) {
    result.err().map_or((0, None), |it| (it.code.0, Some(it.message.clone())))
}

/// Answers a request about a whole mirror.
#[must_use]
pub fn mirror_response(result: Result<(), &Refusal>) -> ClusterMirrorResponse {
    let (error_code, error_message) = told(result);
    ClusterMirrorResponse { throttle_time_ms: 0, error_code, error_message }
}

/// Answers a request about topics of a mirror: its own error is that of the first topic that has
/// one.
#[must_use]
pub fn topics_response(
    mirror: &str,
    result: Result<&TopicResults, &Refusal>,
) -> MirrorTopicsResponse {
    let whole = result.and_then(|topics| first_refusal(topics).map_or(Ok(()), Err));
    let (error_code, error_message) = told(whole);
    let topic = |it: &Named<()>| {
        let (error_code, error_message) = told(it.result.as_ref());
        let name = it.name.clone();
        MirrorTopicResult { name, error_code, error_message, ..MirrorTopicResult::default() }
    };
    MirrorTopicsResponse {
        throttle_time_ms: 0,
        error_code,
        error_message,
        mirror_name: mirror.to_owned(),
        topics: result.map(|topics| topics.iter().map(topic).collect()).unwrap_or_default(),
    }
}

/// Answers a request for higher leader epochs; each partition has its own error.
#[must_use]
pub fn bump_response(results: &[BumpResult]) -> BumpLeaderEpochsResponse {
    let topic = |it: &BumpResult| BumpedTopic {
        topic_name: it.topic_name.clone(),
        partitions: it
            .partitions
            .iter()
            .map(|(partition_index, result)| {
                let (error_code, error_message) = told(result.as_ref());
                let partition_index = *partition_index;
                BumpedPartition { partition_index, error_code, error_message }
            })
            .collect(),
    };
    let topics = results.iter().map(topic).collect();
    BumpLeaderEpochsResponse { topics, ..BumpLeaderEpochsResponse::default() }
}

/// All mirrors, by name: what a list shows of each. Topics are counted that are wanted mirrored,
/// and named, if asked for, that are not wanted stopped.
#[must_use]
pub fn list_mirrors(image: &MetadataImage, include_topic_names: bool) -> Vec<ListedClusterMirror> {
    let listed = |mirror: &str| {
        let config = |key| {
            let value = image.config(ResourceType::MIRROR, mirror, key);
            value.unwrap_or_default().to_owned()
        };
        ListedClusterMirror {
            mirror_name: mirror.to_owned(),
            source_bootstrap: config(BOOTSTRAP_SERVERS),
            source_cluster_id: config(SOURCE_CLUSTER_ID),
            ..ListedClusterMirror::default()
        }
    };
    let mut mirrors: Vec<_> = image.mirrors().map(listed).collect();
    for topic in image.topics() {
        let Some(link) = image.mirror_of(&topic.name) else { continue };
        let at = mirrors.binary_search_by(|it| it.mirror_name.as_str().cmp(link.mirror));
        let Some(mirror) = at.ok().and_then(|at| mirrors.get_mut(at)) else { continue };
        if link.desired == DesiredState::Mirroring {
            mirror.topic_count = mirror.topic_count.saturating_add(1);
        }
        if include_topic_names && link.desired != DesiredState::Stopped {
            mirror.topic_names.push(topic.name.to_string());
        }
    }
    mirrors
}

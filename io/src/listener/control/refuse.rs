//! Refusing a whole request, in the places that its response has for errors.

use heliostat_core::protocol::mirror::{
    BumpLeaderEpochsResponse, ClusterMirrorResponse, CreateTopicsRequest, CreateTopicsResponse,
    CreatedTopic, DescribeClusterMirrorsResponse, ListClusterMirrorsResponse, MirrorTopicsResponse,
    ReadMirrorStatesResponse, WriteMirrorStatesResponse,
};
use heliostat_core::types::TopicId;

use super::request::{ControlRequest, TopicRef, TopicsDeletion};
use super::response::{
    ConfigsAnswer, ControlResponse, CoordinatorAnswer, Refusal, ResourceOutcome, TopicDeleted,
    TopicOutcome,
};

impl ControlRequest {
    /// The response that refuses all of it: for the whole where the API has a field for
    /// that, else for each topic, resource or key.
    pub fn refused(&self, refusal: &Refusal) -> ControlResponse {
        let no = || refusal.clone();
        // The APIs of mirrors have a field for the whole.
        macro_rules! whole {
            ($api:ident, $response:ident $(, $field:ident: $value:expr)?) => {
                ControlResponse::$api($response {
                    error_code: refusal.code.0,
                    error_message: refusal.message.clone(),
                    $($field: $value,)?
                    ..$response::default()
                })
            };
        }
        macro_rules! topics {
            ($api:ident, $request:ident) => {
                whole!($api, MirrorTopicsResponse, mirror_name: $request.mirror_name.clone())
            };
        }
        match self {
            Self::Metadata(_) => ControlResponse::Metadata(Err(no())),
            Self::DescribeCluster(_) => ControlResponse::DescribeCluster(Err(no())),
            Self::FindCoordinator(query) => {
                let keys = query.keys.iter().cloned();
                let answer = |key| CoordinatorAnswer { key, result: Err(no()) };
                ControlResponse::FindCoordinator(keys.map(answer).collect())
            }
            Self::CreateTopics(request) => not_created(request, refusal),
            Self::DeleteTopics(request) => not_deleted(request, refusal),
            Self::CreatePartitions(request) => {
                let names = request.topics.iter().map(|topic| topic.name.clone());
                let outcome = |name| TopicOutcome { name, result: Err(no()) };
                ControlResponse::CreatePartitions(names.map(outcome).collect())
            }
            Self::DescribeConfigs(query) => {
                let resources = query.resources.iter().map(|asked| asked.resource.clone());
                let answer = |resource| ConfigsAnswer { resource, result: Err(no()) };
                ControlResponse::DescribeConfigs(resources.map(answer).collect())
            }
            Self::IncrementalAlterConfigs(change) => {
                let resources = change.resources.iter().map(|asked| asked.resource.clone());
                let outcome = |resource| ResourceOutcome { resource, result: Err(no()) };
                ControlResponse::IncrementalAlterConfigs(resources.map(outcome).collect())
            }
            Self::UpdateFeatures(_) => ControlResponse::UpdateFeatures(Err(no())),
            Self::CreateClusterMirror(_) => whole!(CreateClusterMirror, ClusterMirrorResponse),
            Self::DeleteClusterMirror(_) => whole!(DeleteClusterMirror, ClusterMirrorResponse),
            Self::StartMirrorTopics(request) => topics!(StartMirrorTopics, request),
            Self::StopMirrorTopics(request) => topics!(StopMirrorTopics, request),
            Self::PauseMirrorTopics(request) => topics!(PauseMirrorTopics, request),
            Self::ResumeMirrorTopics(request) => topics!(ResumeMirrorTopics, request),
            Self::RecoverMirrorTopics(request) => topics!(RecoverMirrorTopics, request),
            Self::ListClusterMirrors(_) => whole!(ListClusterMirrors, ListClusterMirrorsResponse),
            Self::DescribeClusterMirrors(_) => {
                whole!(DescribeClusterMirrors, DescribeClusterMirrorsResponse)
            }
            Self::ReadMirrorStates(_) => whole!(ReadMirrorStates, ReadMirrorStatesResponse),
            Self::WriteMirrorStates(_) => whole!(WriteMirrorStates, WriteMirrorStatesResponse),
            Self::BumpLeaderEpochs(_) => whole!(BumpLeaderEpochs, BumpLeaderEpochsResponse),
        }
    }
}

fn not_created(request: &CreateTopicsRequest, refusal: &Refusal) -> ControlResponse {
    let topics = request.topics.iter().map(|topic| CreatedTopic {
        name: topic.name.clone(),
        error_code: refusal.code.0,
        error_message: refusal.message.clone(),
        ..CreatedTopic::default()
    });
    let topics = topics.collect();
    ControlResponse::CreateTopics(CreateTopicsResponse { throttle_time_ms: 0, topics })
}

fn not_deleted(request: &TopicsDeletion, refusal: &Refusal) -> ControlResponse {
    let topics = request.topics.iter().map(|topic| {
        let (name, topic_id) = match topic {
            TopicRef::Name(name) => (Some(name.clone()), TopicId::NONE),
            TopicRef::Id(id) => (None, *id),
        };
        TopicDeleted { name, topic_id, result: Err(refusal.clone()) }
    });
    ControlResponse::DeleteTopics(topics.collect())
}

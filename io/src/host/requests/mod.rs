//! What clients ask of the host, one room for each kind of answer.
//!
//! An answer that changes something is given once it is durable. What has to be asked elsewhere
//! first, a source or a mirror's job, is asked by a task, and comes back as [`Ready`].

mod cluster;
mod configs;
mod create;
mod describe;
mod figures;
mod lifecycle;
mod start;
mod states;

pub(super) use configs::THROTTLED_RATE;
pub(super) use describe::Statuses;

use std::collections::BTreeSet;
use std::sync::Arc;

use heliostat_core::metadata::controller::{
    Refusal as Refused, TopicResults, mirror_response, topics_response,
};
use heliostat_core::protocol::Metadata;
use heliostat_core::protocol::mirror::{
    ClusterMirrorResponse, CreateClusterMirrorRequest, DeleteClusterMirrorRequest,
    DescribeClusterMirrorsRequest, MirrorTopicsResponse, StartMirrorTopicsRequest,
    StopMirrorTopicsRequest,
};

use super::HostError;
use super::run::Host;
use crate::listener::control::{
    ControlCall, ControlReply, ControlRequest, ControlResponse, Refusal,
};

/// A request that has what it waited for.
#[derive(Debug)]
pub(in crate::host) enum Ready {
    /// The source's cluster ID.
    Create(CreateClusterMirrorRequest, ControlReply, Result<Option<String>, String>),
    /// The source's topics.
    Start(StartMirrorTopicsRequest, ControlReply, Result<Box<Metadata>, String>),
    /// How partitions stand.
    Describe(DescribeClusterMirrorsRequest, ControlReply, Statuses),
    /// The same, for a dry run.
    Stop(StopMirrorTopicsRequest, ControlReply, Statuses),
    /// The same, for a dry run.
    Delete(DeleteClusterMirrorRequest, ControlReply, Statuses),
}

impl Host {
    pub(in crate::host) async fn take_call(&mut self, call: ControlCall) -> Result<(), HostError> {
        use ControlRequest as Asked;
        use ControlResponse as Answer;
        let ControlCall { request, reply, .. } = call;
        let response = match request {
            Asked::Metadata(query) => Answer::Metadata(Ok(self.metadata(&query))),
            Asked::DescribeCluster(_) => Answer::DescribeCluster(Ok(self.describe_cluster())),
            Asked::FindCoordinator(query) => Answer::FindCoordinator(self.find_coordinator(query)),
            Asked::CreateTopics(asked) => Answer::CreateTopics(self.create_topics(asked).await?),
            Asked::DeleteTopics(asked) => Answer::DeleteTopics(self.delete_topics(asked).await?),
            Asked::CreatePartitions(asked) => {
                Answer::CreatePartitions(self.create_partitions(asked).await?)
            }
            Asked::DescribeConfigs(query) => Answer::DescribeConfigs(self.describe_configs(&query)),
            Asked::IncrementalAlterConfigs(change) => {
                Answer::IncrementalAlterConfigs(self.alter_configs(change).await?)
            }
            Asked::UpdateFeatures(update) => {
                Answer::UpdateFeatures(Ok(self.update_features(update).await?))
            }
            Asked::CreateClusterMirror(asked) => {
                self.resolve_source(asked, reply);
                return Ok(());
            }
            Asked::StartMirrorTopics(asked) => {
                self.resolve_topics(asked, reply);
                return Ok(());
            }
            Asked::StopMirrorTopics(asked) if asked.validate_only => {
                let mirrors = vec![asked.mirror_name.clone()];
                self.gather(mirrors, &BTreeSet::new(), |statuses| {
                    Ready::Stop(asked, reply, statuses)
                });
                return Ok(());
            }
            Asked::StopMirrorTopics(asked) => {
                Answer::StopMirrorTopics(self.stop_topics(asked).await?)
            }
            Asked::PauseMirrorTopics(asked) => {
                Answer::PauseMirrorTopics(self.pause_topics(asked).await?)
            }
            Asked::ResumeMirrorTopics(asked) => {
                Answer::ResumeMirrorTopics(self.resume_topics(asked).await?)
            }
            Asked::RecoverMirrorTopics(asked) => {
                Answer::RecoverMirrorTopics(self.recover_topics(asked))
            }
            Asked::DeleteClusterMirror(asked) if asked.validate_only => {
                let mirrors = vec![asked.mirror_name.clone()];
                self.gather(mirrors, &BTreeSet::new(), |statuses| {
                    Ready::Delete(asked, reply, statuses)
                });
                return Ok(());
            }
            Asked::DeleteClusterMirror(asked) => {
                Answer::DeleteClusterMirror(self.delete_mirror(asked).await?)
            }
            Asked::ListClusterMirrors(asked) => Answer::ListClusterMirrors(self.list(&asked)),
            Asked::DescribeClusterMirrors(asked) => {
                // Without partitions, what jobs publish is enough.
                let mirrors = if asked.depth == 0 { Vec::new() } else { self.described(&asked) };
                let topics = asked.topic_names.iter().cloned().collect();
                self.gather(mirrors, &topics, |statuses| Ready::Describe(asked, reply, statuses));
                return Ok(());
            }
            Asked::ReadMirrorStates(asked) => Answer::ReadMirrorStates(self.read_states(asked)),
            Asked::WriteMirrorStates(asked) => Answer::WriteMirrorStates(self.write_states(asked)),
            Asked::BumpLeaderEpochs(asked) => {
                Answer::BumpLeaderEpochs(self.bump_epochs(asked).await?)
            }
        };
        // Whoever asked may have given up.
        reply.answer(response);
        Ok(())
    }

    pub(in crate::host) async fn take_ready(&mut self, ready: Ready) -> Result<(), HostError> {
        let (reply, response) = match ready {
            Ready::Create(asked, reply, resolved) => {
                let answer = self.create_mirror(asked, resolved).await?;
                (reply, ControlResponse::CreateClusterMirror(answer))
            }
            Ready::Start(asked, reply, resolved) => {
                let answer = self.start_topics(asked, resolved).await?;
                (reply, ControlResponse::StartMirrorTopics(answer))
            }
            Ready::Describe(asked, reply, statuses) => {
                let answer = self.describe(&asked, &statuses);
                (reply, ControlResponse::DescribeClusterMirrors(answer))
            }
            Ready::Stop(asked, reply, statuses) => {
                let answer = self.would_stop(&asked, &statuses);
                (reply, ControlResponse::StopMirrorTopics(answer))
            }
            Ready::Delete(asked, reply, statuses) => {
                let answer = self.would_delete(&asked, &statuses);
                (reply, ControlResponse::DeleteClusterMirror(answer))
            }
        };
        reply.answer(response);
        Ok(())
    }
}

fn refusal(refused: Refused) -> Refusal {
    Refusal { code: refused.code, message: Some(refused.message) }
}

/// The answer to a request about a whole mirror.
fn of_mirror(result: Result<(), Refused>) -> ClusterMirrorResponse {
    mirror_response(result.as_ref().copied())
}

/// The answer to a request about topics.
fn of_topics(mirror: &str, results: Result<TopicResults, Refused>) -> MirrorTopicsResponse {
    topics_response(mirror, results.as_ref())
}

/// A mirror's name as a key.
fn named(mirror: &str) -> Arc<str> {
    Arc::from(mirror)
}

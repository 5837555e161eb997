//! Topics are started: names and patterns are matched at the source.

use std::collections::BTreeMap;

use heliostat_core::coordinator::{DesiredState, MirrorState};
use heliostat_core::metadata::controller::{Refusal as Refused, start_mirror_topics};
use heliostat_core::protocol::mirror::{
    MirrorTopicsResponse, StartMirrorTopic, StartMirrorTopicsRequest,
};
use heliostat_core::protocol::{ErrorCode, Metadata, MetadataTopic};
use heliostat_core::select::TopicSelector;
use heliostat_core::types::TopicId;
use uuid::Uuid;

use super::super::HostError;
use super::super::run::{Host, News};
use super::super::steps::other_cluster;
use super::{Ready, of_topics};
use crate::listener::control::{ControlReply, ControlResponse};

impl Host {
    /// Asks the source for its topics; what it said last does if it cannot be reached.
    pub(super) fn resolve_topics(&mut self, asked: StartMirrorTopicsRequest, reply: ControlReply) {
        let Some(link) = self.links.get(asked.mirror_name.as_str()) else {
            let mut new_id = || TopicId(Uuid::new_v4());
            let outcome =
                start_mirror_topics(self.image(), &asked, self.config.node_id, &mut new_id);
            let outcome = outcome.and_then(|_| {
                let message = format!(
                    "the fetchers of mirror {} did not start; see this host's log",
                    asked.mirror_name
                );
                Err(Refused { code: ErrorCode::INVALID_REQUEST, message })
            });
            let response = of_topics(&asked.mirror_name, outcome);
            reply.answer(ControlResponse::StartMirrorTopics(response));
            return;
        };
        let mut client = self.source_admin(&asked.mirror_name, &link.config);
        let known = link.metadata.clone();
        let sender = self.news_sender.clone();
        tokio::task::spawn_local(async move {
            let resolved = match (client.metadata(None).await, known) {
                (Ok(metadata), _) => Ok(Box::new(metadata)),
                (Err(_), Some(known)) => Ok(known),
                (Err(error), None) => Err(error.to_string()),
            };
            let _ = sender.send(News::Ready(Box::new(Ready::Start(asked, reply, resolved))));
        });
    }

    pub(super) async fn start_topics(
        &mut self,
        asked: StartMirrorTopicsRequest,
        resolved: Result<Box<Metadata>, String>,
    ) -> Result<MirrorTopicsResponse, HostError> {
        let mirror = asked.mirror_name.clone();
        let metadata = match resolved {
            Ok(metadata) => metadata,
            Err(reason) => {
                let message = format!("the source of mirror {mirror} cannot be asked: {reason}");
                let refused = Refused { code: ErrorCode::INVALID_REQUEST, message };
                return Ok(of_topics(&mirror, Err(refused)));
            }
        };
        if let Some(refused) = self.is_of_another_cluster(&mirror, &metadata) {
            return Ok(of_topics(&mirror, Err(refused)));
        }
        let request = match self.resolved(asked, &metadata) {
            Ok(request) => request,
            Err(refused) => return Ok(of_topics(&mirror, Err(refused))),
        };
        let mut new_id = || TopicId(Uuid::new_v4());
        let node = self.config.node_id;
        let decision = match start_mirror_topics(self.image(), &request, node, &mut new_id) {
            Ok(decision) => decision,
            Err(refused) => return Ok(of_topics(&mirror, Err(refused))),
        };
        let counts: BTreeMap<&str, i32> =
            request.topics.iter().map(|it| (it.topic_name.as_str(), it.num_partitions)).collect();
        let mut response = of_topics(&mirror, Ok(decision.answer));
        for topic in &mut response.topics {
            topic.num_partitions = counts.get(topic.name.as_str()).copied().unwrap_or(-1);
        }
        if request.validate_only {
            return Ok(response);
        }
        let is_changed = !decision.records.is_empty();
        self.journal.decide(decision.records).await?;
        if is_changed {
            self.reload_filters(&mirror);
            self.watch_topics(&mirror);
        }
        let names: Vec<String> = response.topics.iter().map(|it| it.name.clone()).collect();
        for topic in names {
            self.want(&topic);
        }
        Ok(response)
    }

    /// What another cluster calls its topics says nothing of the mirror's.
    fn is_of_another_cluster(&self, mirror: &str, metadata: &Metadata) -> Option<Refused> {
        let known = self.links.get(mirror)?.config.source_cluster_id.as_deref()?;
        let found = metadata.cluster_id.as_deref().filter(|found| *found != known)?;
        let code = ErrorCode::INVALID_REQUEST;
        Some(Refused { code, message: other_cluster(Some(known), found).reason.to_string() })
    }

    /// The request with the topics that its names and patterns stand for at the source.
    fn resolved(
        &self,
        mut asked: StartMirrorTopicsRequest,
        metadata: &Metadata,
    ) -> Result<StartMirrorTopicsRequest, Refused> {
        let at_source = |name: &str| {
            let found = metadata.topics.iter().find(|topic| *topic.identity.name == *name);
            found.filter(|topic| topic.error.is_none())
        };
        for topic in &mut asked.topics {
            let Some(found) = at_source(&topic.topic_name) else { continue };
            check_claims(topic, found)?;
            topic.topic_id = found.identity.id;
            topic.num_partitions = count(found);
        }
        if !asked.include_patterns.is_empty() {
            let include = asked.include_patterns.join(",");
            let stored = self.links.get(asked.mirror_name.as_str());
            let stored = stored.map(|link| link.config.topics_exclude.clone()).unwrap_or_default();
            // What is included by name now is not excluded any more.
            let exclude: Vec<String> = stored
                .into_iter()
                .chain(asked.exclude_patterns.iter().cloned())
                .filter(|pattern| !asked.include_patterns.contains(pattern))
                .collect();
            let selector = TopicSelector::new(&include, &exclude.join(",")).map_err(|error| {
                Refused { code: ErrorCode::INVALID_REQUEST, message: error.to_string() }
            })?;
            for topic in &metadata.topics {
                let name = &topic.identity.name;
                let is_named = asked.topics.iter().any(|it| *it.topic_name == **name);
                let is_selected = selector.decide(name, topic.is_internal).is_selected();
                if is_selected
                    && !is_named
                    && topic.error.is_none()
                    && !self.is_settled(&asked, name)
                {
                    asked.topics.push(StartMirrorTopic {
                        topic_id: topic.identity.id,
                        topic_name: name.to_string(),
                        num_partitions: count(topic),
                    });
                }
            }
        }
        for topic in &asked.topics {
            self.check_stopped(&topic.topic_name)?;
        }
        Ok(asked)
    }

    /// Whether a pattern does not mean this topic: it is paused, and stays so.
    fn is_settled(&self, asked: &StartMirrorTopicsRequest, topic: &str) -> bool {
        self.image().mirror_of(topic).is_some_and(|link| {
            link.mirror == asked.mirror_name && link.desired == DesiredState::Paused
        })
    }

    /// A topic whose stop is under way cannot be started before it is over.
    fn check_stopped(&self, topic: &str) -> Result<(), Refused> {
        let link = self.image().mirror_of(topic);
        if link.is_none_or(|link| link.desired != DesiredState::Stopped) {
            return Ok(());
        }
        for key in self.keys_of(topic) {
            let state = self.mirrors.get(&key).map_or(MirrorState::Unknown, |it| it.state());
            if !matches!(state, MirrorState::Stopped | MirrorState::Unknown) {
                let message = format!(
                    "partition {} of topic {topic} is in state {state}; wait until it is STOPPED",
                    key.partition
                );
                return Err(Refused { code: ErrorCode::INVALID_CLUSTER_MIRROR_STATES, message });
            }
        }
        Ok(())
    }
}

fn count(topic: &MetadataTopic) -> i32 {
    i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX)
}

/// What a client filled in is checked, not trusted.
fn check_claims(claimed: &StartMirrorTopic, found: &MetadataTopic) -> Result<(), Refused> {
    let id = claimed.topic_id.known();
    match (id, found.identity.id.known()) {
        (Some(claimed_id), Some(found_id)) if claimed_id != found_id => {
            let message = format!(
                "topic {} has ID {found_id} at the source, the request says {claimed_id}",
                claimed.topic_name
            );
            Err(Refused { code: ErrorCode::INCONSISTENT_TOPIC_ID, message })
        }
        _ => Ok(()),
    }
}

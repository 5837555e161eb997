//! Topics are stopped, paused, resumed and recovered; mirrors are listed and deleted.

use std::collections::BTreeMap;

use heliostat_core::coordinator::MirrorState;
use heliostat_core::coordinator::partition::Event;
use heliostat_core::coordinator::state_log::tombstones;
use heliostat_core::metadata::controller::{
    Decision, Refusal as Refused, TopicResults, check_recover_mirror_topics, delete_mirror,
    list_mirrors, pause_mirror_topics, resume_mirror_topics, stop_mirror_topics,
};
use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::{
    ClusterMirrorResponse, DeleteClusterMirrorRequest, ListClusterMirrorsRequest,
    ListClusterMirrorsResponse, MirrorTopicsResponse, PauseMirrorTopicsRequest,
    RecoverMirrorTopicsRequest, ResumeMirrorTopicsRequest, StopMirrorTopicsRequest,
};

use super::super::HostError;
use super::super::run::{Host, random};
use super::describe::{Statuses, standing};
use super::{named, of_mirror, of_topics};

impl Host {
    pub(super) async fn stop_topics(
        &mut self,
        asked: StopMirrorTopicsRequest,
    ) -> Result<MirrorTopicsResponse, HostError> {
        let decision = stop_mirror_topics(self.image(), &asked);
        self.carry_wishes(asked.mirror_name, decision).await
    }

    pub(super) async fn pause_topics(
        &mut self,
        asked: PauseMirrorTopicsRequest,
    ) -> Result<MirrorTopicsResponse, HostError> {
        let decision = pause_mirror_topics(self.image(), &asked);
        self.carry_wishes(asked.mirror_name, decision).await
    }

    pub(super) async fn resume_topics(
        &mut self,
        asked: ResumeMirrorTopicsRequest,
    ) -> Result<MirrorTopicsResponse, HostError> {
        let decision = resume_mirror_topics(self.image(), &asked);
        self.carry_wishes(asked.mirror_name, decision).await
    }

    /// Makes wishes durable, then tells the partitions.
    async fn carry_wishes(
        &mut self,
        mirror: String,
        decision: Result<Decision<TopicResults>, Refused>,
    ) -> Result<MirrorTopicsResponse, HostError> {
        let Decision { records, answer } = match decision {
            Ok(decision) => decision,
            Err(refused) => return Ok(of_topics(&mirror, Err(refused))),
        };
        let is_changed = !records.is_empty();
        self.journal.decide(records).await?;
        if is_changed {
            self.reload_filters(&mirror);
        }
        let done: Vec<String> =
            answer.iter().filter(|it| it.result.is_ok()).map(|it| it.name.clone()).collect();
        for topic in done {
            self.want(&topic);
        }
        Ok(of_topics(&mirror, Ok(answer)))
    }

    pub(super) fn recover_topics(
        &mut self,
        asked: RecoverMirrorTopicsRequest,
    ) -> MirrorTopicsResponse {
        let outcome = check_recover_mirror_topics(self.image(), &asked);
        if let Ok(results) = &outcome {
            let now = self.now();
            for topic in results.iter().filter(|it| it.result.is_ok()) {
                for key in self.keys_of(&topic.name) {
                    self.mirrors.tell(&key, Event::Recover, now, random());
                }
            }
        }
        of_topics(&asked.mirror_name, outcome)
    }

    /// What a stop would do: with the records that it would cut off.
    pub(super) fn would_stop(
        &self,
        asked: &StopMirrorTopicsRequest,
        statuses: &Statuses,
    ) -> MirrorTopicsResponse {
        let outcome = stop_mirror_topics(self.image(), asked).map(|decision| decision.answer);
        let mut response = of_topics(&asked.mirror_name, outcome);
        for topic in &mut response.topics {
            let keys = self.keys_of(&topic.name);
            topic.num_partitions = i32::try_from(keys.len()).unwrap_or(i32::MAX);
            let states: BTreeMap<MirrorState, usize> =
                keys.iter().fold(BTreeMap::new(), |mut states, key| {
                    let state = self.mirrors.get(key).map_or(MirrorState::Unknown, |it| it.state());
                    *states.entry(state).or_default() += 1;
                    states
                });
            topic.state = states.keys().map(|state| state.name()).collect::<Vec<_>>().join(",");
            let lags = keys.iter().filter_map(|key| {
                standing(statuses, &asked.mirror_name, &topic.name, key.partition)
            });
            let lag: u64 = lags.map(|status| status.lag_records).sum();
            topic.lag = i64::try_from(lag).unwrap_or(i64::MAX);
        }
        response
    }

    pub(super) fn list(&self, asked: &ListClusterMirrorsRequest) -> ListClusterMirrorsResponse {
        ListClusterMirrorsResponse {
            mirrors: list_mirrors(self.image(), asked.include_topic_names),
            ..ListClusterMirrorsResponse::default()
        }
    }

    /// Whether every partition has reached what is wanted of it.
    fn check_all_stopped(&self, mirror: &str) -> Result<(), Refused> {
        let topics = self.image().topics_of(mirror);
        for (topic, _) in topics {
            for key in self.keys_of(&topic.name) {
                let state = self.mirrors.get(&key).map_or(MirrorState::Unknown, |it| it.state());
                if !matches!(state, MirrorState::Stopped | MirrorState::Unknown) {
                    let message = format!(
                        "partition {} of topic {} is in state {state}; wait until all are STOPPED",
                        key.partition, topic.name
                    );
                    let code = ErrorCode::INVALID_CLUSTER_MIRROR_STATES;
                    return Err(Refused { code, message });
                }
            }
        }
        Ok(())
    }

    pub(super) fn would_delete(
        &self,
        asked: &DeleteClusterMirrorRequest,
        _: &Statuses,
    ) -> ClusterMirrorResponse {
        let decision = delete_mirror(self.image(), asked);
        of_mirror(decision.and_then(|_| self.check_all_stopped(&asked.mirror_name)))
    }

    pub(super) async fn delete_mirror(
        &mut self,
        asked: DeleteClusterMirrorRequest,
    ) -> Result<ClusterMirrorResponse, HostError> {
        let decision = delete_mirror(self.image(), &asked);
        let checked = self.check_all_stopped(&asked.mirror_name);
        let records = match decision.and_then(|it| checked.map(|()| it.records)) {
            Ok(records) => records,
            Err(refused) => return Ok(of_mirror(Err(refused))),
        };
        self.journal.decide(records).await?;
        crate::fault::point("delete.decided");
        let keys = self.mirrors.keys_of(&asked.mirror_name);
        let records: Vec<_> = keys.iter().flat_map(tombstones).collect();
        if let Err(error) = self.journal.store(records.clone()).await {
            // The metadata says that it is gone. One made anew must not inherit them.
            tracing::warn!("states of mirror {}: {error}; tried again", asked.mirror_name);
            self.mirrors.owe(records);
        }
        for key in &keys {
            let _ = self.mirrors.forget(key);
        }
        if let Some(link) = self.links.get_mut(&named(&asked.mirror_name)) {
            link.end();
        }
        Ok(of_mirror(Ok(())))
    }
}

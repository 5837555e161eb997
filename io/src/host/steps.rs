//! What the coordinator wants begun and ended, in orders for jobs and writes of the controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use heliostat_core::coordinator::bump::above;
use heliostat_core::coordinator::partition::{Event, Failure, Run};
use heliostat_core::coordinator::{MirrorKey, MirrorState, Step};
use heliostat_core::metadata::controller::bump_leader_epochs;
use heliostat_core::metadata::image::ResourceType;
use heliostat_core::protocol::mirror::{BumpLeaderEpochsRequest, BumpPartition, BumpTopic};
use heliostat_core::types::{LeaderEpoch, TopicId, TopicPartition};

use super::HostError;
use super::failover::Stopping;
use super::link::{Doing, Running};
use super::run::Host;
use crate::control::steering::Order;

/// A partition and the run of its action.
pub(super) type Begun = (MirrorKey, TopicPartition, Run);

impl Host {
    pub(super) async fn carry_out(&mut self, steps: Vec<Step>) -> Result<(), HostError> {
        let mut look_up = BTreeMap::<Arc<str>, Vec<Begun>>::new();
        let mut raise = Vec::new();
        for step in steps {
            match step {
                Step::Abandon(key, run) => self.abandon(&key, run),
                Step::Begin(key, state, run) => {
                    let Some(at) = self.place(&key) else { continue };
                    match state {
                        MirrorState::LogTruncation => {
                            look_up
                                .entry(Arc::clone(&key.mirror))
                                .or_default()
                                .push((key, at, run));
                        }
                        MirrorState::EpochFencing => raise.push((key, at, run)),
                        MirrorState::Mirroring => self.follow(key, at, run),
                        MirrorState::Pausing => self.release(key, at, run, Doing::Pauses),
                        MirrorState::Stopping => self.release(key, at, run, Doing::Stops),
                        // They rest.
                        MirrorState::Paused
                        | MirrorState::Stopped
                        | MirrorState::Failed
                        | MirrorState::Unknown => {}
                    }
                }
            }
        }
        // What the alignment cuts may be ours, and known elsewhere: what is written here next must
        // not have its epoch.
        let mut used = Vec::new();
        for (key, at, _) in look_up.values().flatten() {
            if self.log_dir.borrow().has_log(at) {
                used.push((key.topic, at.partition, self.local_epoch(at)));
            }
        }
        if !used.is_empty() {
            for (_, reason) in self.raise(used).await? {
                tracing::warn!("leader epoch not raised: {reason}");
            }
        }
        for (mirror, begun) in look_up {
            self.look_up(&mirror, begun);
        }
        self.raise_fenced(raise).await
    }

    /// What is under way for a partition has no effect any more.
    fn abandon(&mut self, key: &MirrorKey, run: Run) {
        let Some(at) = self.place(key) else { return };
        if let Some(link) = self.links.get_mut(&key.mirror)
            && link.running.get(&at).is_some_and(|it| it.run == run)
        {
            link.running.remove(&at);
        }
    }

    /// Takes note that an action is under way. `false`: nobody works for this mirror.
    pub(super) fn runs(&mut self, begun: &Begun, doing: Doing) -> bool {
        let (key, at, run) = begun;
        let Some(link) = self.links.get_mut(&key.mirror) else { return false };
        let fenced_by = link.running.get(at).map_or(LeaderEpoch::NONE, |it| it.fenced_by);
        let running = Running { key: key.clone(), run: *run, doing, fenced_by };
        link.running.insert(at.clone(), running);
        true
    }

    fn follow(&mut self, key: MirrorKey, at: TopicPartition, run: Run) {
        let may_cut = self.aligned.remove(&key);
        let (local_epoch, unclean) = (self.local_epoch(&at), self.is_unclean(&at));
        let mirror = Arc::clone(&key.mirror);
        let begun = (key, at.clone(), run);
        if !self.runs(&begun, Doing::Follows) {
            return self.nobody_works(&begun.0, run);
        }
        if let Some(link) = self.links.get(&mirror) {
            if let Some(found) = &link.other_cluster {
                let failure = other_cluster(link.config.source_cluster_id.as_deref(), found);
                return self.report(&begun.0, |run| Event::Failed(run, failure), run);
            }
            link.order(Order::Follow { at, local_epoch, may_cut, unclean });
        }
    }

    /// The mirror's job did not start: its configs or this machine's limits are in the way.
    pub(super) fn nobody_works(&mut self, key: &MirrorKey, run: Run) {
        let reason = format!(
            "the fetchers of mirror {} did not start; see this host's log, and alter the mirror's \
             configs or restart the host",
            key.mirror
        );
        let failure = Failure { reason: Arc::from(reason), retryable: true };
        self.report(key, |run| Event::Failed(run, failure), run);
    }

    fn release(&mut self, key: MirrorKey, at: TopicPartition, run: Run, doing: Doing) {
        let mirror = Arc::clone(&key.mirror);
        let begun = (key, at.clone(), run);
        if self.runs(&begun, doing)
            && let Some(link) = self.links.get(&mirror)
        {
            return link.order(Order::Release { at });
        }
        // Nobody has it open.
        self.released(&begun.0, &at, run, doing);
    }

    /// A partition's log is closed, for a pause or a stop.
    pub(super) fn released(
        &mut self,
        key: &MirrorKey,
        at: &TopicPartition,
        run: Run,
        doing: Doing,
    ) {
        if doing == Doing::Pauses {
            self.report(key, Event::Finished, run);
        } else {
            crate::fault::point("stop.released");
            let last = self.mirrors.last_mirrored(key);
            self.to_inspect.push(Stopping { key: key.clone(), at: at.clone(), run, last });
        }
    }

    /// Raises the leader epochs of partitions that met a batch above theirs.
    async fn raise_fenced(&mut self, begun: Vec<Begun>) -> Result<(), HostError> {
        if begun.is_empty() {
            return Ok(());
        }
        let mut wanted = Vec::new();
        for (key, at, _) in &begun {
            let link = self.links.get(&key.mirror);
            let met = link
                .and_then(|link| link.running.get(at))
                .map_or(LeaderEpoch::NONE, |it| it.fenced_by);
            let source = link.map_or(LeaderEpoch::NONE, |link| link.source_epoch(at));
            let least = met.max(source).max(self.local_epoch(at));
            wanted.push((key.topic, at.partition, above(least)));
        }
        let refused = self.raise(wanted).await?;
        for (key, at, run) in begun {
            match refused.get(&(key.topic, at.partition)) {
                None => self.report(&key, Event::Finished, run),
                Some(reason) => {
                    let failure = Failure { reason: Arc::clone(reason), retryable: true };
                    self.report(&key, |run| Event::Failed(run, failure), run);
                }
            }
        }
        Ok(())
    }

    /// Raises leader epochs above the given ones, durably, in one decision; those that are above
    /// already stay. Returns what was refused, and why.
    pub(super) async fn raise(
        &mut self,
        wanted: Vec<(TopicId, i32, LeaderEpoch)>,
    ) -> Result<BTreeMap<(TopicId, i32), Arc<str>>, HostError> {
        let mut topics = BTreeMap::<TopicId, Vec<BumpPartition>>::new();
        for (topic, partition_index, epoch) in wanted {
            let bump = BumpPartition { partition_index, min_leader_epoch: epoch.0 };
            topics.entry(topic).or_default().push(bump);
        }
        let topics = topics
            .into_iter()
            .map(|(topic_id, partitions)| BumpTopic { topic_id, partitions })
            .collect();
        let decision = bump_leader_epochs(self.image(), &BumpLeaderEpochsRequest { topics });
        let mut refused = BTreeMap::new();
        let mut raised = Vec::new();
        for topic in decision.answer {
            for (partition, result) in topic.partitions {
                match result {
                    Ok(epoch) => {
                        let at = TopicPartition::new(topic.topic_name.as_str(), partition);
                        raised.push((topic.topic_id, at, epoch));
                    }
                    Err(refusal) => {
                        let reason = Arc::from(refusal.message);
                        refused.insert((topic.topic_id, partition), reason);
                    }
                }
            }
        }
        self.journal.decide(decision.records).await?;
        for (topic, at, epoch) in raised {
            let Some(mirror) = self.image().mirror_of(&at.topic).map(|it| Arc::from(it.mirror))
            else {
                continue;
            };
            let key = MirrorKey { mirror, topic, partition: at.partition };
            self.mirrors.set_leader_epoch(&key, epoch);
            if let Some(link) = self.links.get(&key.mirror) {
                link.order(Order::SetLocalEpoch { at, epoch });
            }
        }
        Ok(refused)
    }

    /// Whether the topic's copy may lose what the source has lost.
    pub(super) fn is_unclean(&self, at: &TopicPartition) -> bool {
        let key = "mirror.support.unclean.leader.election";
        self.image().config(ResourceType::TOPIC, &at.topic, key) == Some("true")
    }

    pub(super) fn local_epoch(&self, at: &TopicPartition) -> LeaderEpoch {
        self.image().leader_epoch(&at.topic, at.partition).unwrap_or(LeaderEpoch::NONE)
    }
}

/// Why a mirror's partitions do not go on while another cluster answers.
pub(super) fn other_cluster(known: Option<&str>, found: &str) -> Failure {
    let known = known.unwrap_or("unknown");
    let reason = format!(
        "cluster {found} answers at the source's addresses, the mirror is of cluster {known}; set \
         bootstrap.servers to that cluster's, and recover"
    );
    Failure { reason: Arc::from(reason), retryable: false }
}

//! What the coordinator wants, and what is begun for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use heliostat_core::coordinator::bump::above;
use heliostat_core::coordinator::partition::{Event, Run};
use heliostat_core::coordinator::{DesiredState, MirrorKey, MirrorState, StateRecord, Step};
use heliostat_core::metadata::controller::bump_leader_epochs;
use heliostat_core::metadata::image::ResourceType;
use heliostat_core::protocol::mirror::{BumpLeaderEpochsRequest, BumpPartition, BumpTopic};
use heliostat_core::types::{LeaderEpoch, TopicId, TopicPartition};

use super::{Begun, Doing, Down, Host, Running, Sabotage, Stopping, Task, other_cluster};
use crate::job::Order;

impl Host {
    pub(crate) fn want(&mut self, topic: &str) {
        let image = self.image();
        let Some(link) = image.mirror_of(topic) else { return };
        let (mirror, desired): (Arc<str>, DesiredState) = (Arc::from(link.mirror), link.desired);
        let Some(known) = image.topic(topic) else { return };
        let (id, epochs): (_, Vec<LeaderEpoch>) =
            (known.id, known.partitions.iter().map(|it| it.leader_epoch).collect());
        for (partition, epoch) in (0..).zip(epochs) {
            let key = MirrorKey { mirror: Arc::clone(&mirror), topic: id, partition };
            let (now, random) = (self.now, self.random());
            self.up().mirrors.wanted(&key, desired, now, random);
            self.up().mirrors.set_leader_epoch(&key, epoch);
        }
    }

    pub(crate) fn wake(&mut self) {
        let (now, random) = (self.now, self.random());
        self.up().mirrors.wake(now, || random);
    }

    pub(crate) fn settle(&mut self) -> Result<(), Down> {
        loop {
            let to_store = self.up().mirrors.take_records();
            let had_states = !to_store.is_empty();
            if had_states {
                let records = to_store.records();
                let lost = self.store(&records);
                let stopped: Vec<MirrorKey> = records
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| !lost.contains(place))
                    .filter_map(|(_, record)| match record {
                        StateRecord::Partition(key, Some(it)) => {
                            (it.state == MirrorState::Stopped).then(|| key.clone())
                        }
                        _ => None,
                    })
                    .collect();
                let (now, random) = (self.now, self.random());
                self.up().mirrors.on_stored(to_store, &lost, now, || random);
                for record in &records {
                    if let StateRecord::Partition(key, Some(it)) = record {
                        let what = format!(
                            "{} {}-{} {} lost {lost:?}",
                            self.cluster, key.mirror, key.partition, it.state
                        );
                        self.disk.registry.borrow_mut().say(what);
                    }
                }
                for key in &stopped {
                    self.check_stopped(key);
                }
            }
            let steps = self.up().mirrors.take_steps();
            if !had_states && steps.is_empty() {
                break;
            }
            self.carry_out(steps)?;
        }
        let up = self.up();
        let stopping = std::mem::take(&mut up.to_inspect);
        up.tasks.extend(stopping.into_iter().map(Task::Inspect));
        Ok(())
    }

    pub(crate) fn place(&self, key: &MirrorKey) -> Option<TopicPartition> {
        let topic = self.image().topic_by_id(key.topic)?;
        Some(TopicPartition::new(Arc::clone(&topic.name), key.partition))
    }

    pub(super) fn report(&mut self, key: &MirrorKey, event: Event) {
        let (now, random) = (self.now, self.random());
        self.up().mirrors.tell(key, event, now, random);
    }

    pub(super) fn carry_out(&mut self, steps: Vec<Step>) -> Result<(), Down> {
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
                        MirrorState::Mirroring => self.follow((key, at, run)),
                        MirrorState::Pausing => self.release((key, at, run), Doing::Pauses),
                        MirrorState::Stopping => self.release((key, at, run), Doing::Stops),
                        _ => {}
                    }
                }
            }
        }
        let mut used = Vec::new();
        for (key, at, _) in look_up.values().flatten() {
            if self.disk.store.has_log(&at.to_string()) && !self.sabotaged(Sabotage::OldEpoch) {
                used.push((key.topic, at.partition, self.local_epoch(at)));
            }
        }
        if !used.is_empty() {
            self.raise(used)?;
        }
        for (mirror, begun) in look_up {
            for (_, at, _) in &begun {
                // No client writes to it any more.
                self.close_own(at);
            }
            for one in &begun {
                self.runs(one, Doing::LooksUp);
            }
            let up = self.up();
            let Some(generation) = up.links.get(&mirror).map(|link| link.generation) else {
                continue;
            };
            up.tasks.push_back(Task::LookUp { mirror, generation, begun });
        }
        self.raise_fenced(raise)
    }

    pub(crate) fn close_own(&mut self, at: &TopicPartition) {
        if let Some(log) = self.up().own.remove(at) {
            self.disk.store.sync_dir(&at.to_string());
            self.disk.note(at, log.log_start(), log.log_end());
        }
    }

    pub(super) fn abandon(&mut self, key: &MirrorKey, run: Run) {
        let Some(at) = self.place(key) else { return };
        if let Some(link) = self.up().links.get_mut(&key.mirror)
            && link.running.get(&at).is_some_and(|it| it.run == run)
        {
            link.running.remove(&at);
        }
    }

    pub(super) fn runs(&mut self, begun: &Begun, doing: Doing) {
        let (key, at, run) = begun.clone();
        let Some(link) = self.up().links.get_mut(&key.mirror) else { return };
        let fenced_by = link.running.get(&at).map_or(LeaderEpoch::NONE, |it| it.fenced_by);
        link.running.insert(at, Running { key, run, doing, fenced_by });
    }

    pub(super) fn order(&mut self, mirror: &Arc<str>, order: Order) {
        if let Some(link) = self.up().links.get_mut(mirror) {
            link.orders.push_back(order);
        }
    }

    pub(super) fn follow(&mut self, begun: Begun) {
        let (key, at, run) = begun.clone();
        let may_cut = self.up().aligned.remove(&key);
        let (local_epoch, unclean) = (self.local_epoch(&at), self.is_unclean(&at));
        self.runs(&begun, Doing::Follows);
        if self.up().links.get(&key.mirror).is_some_and(|link| link.other_cluster) {
            return self.report(&key, Event::Failed(run, other_cluster()));
        }
        self.order(&key.mirror, Order::Follow { at, local_epoch, may_cut, unclean });
    }

    pub(super) fn release(&mut self, begun: Begun, doing: Doing) {
        self.runs(&begun, doing);
        self.order(&begun.0.mirror, Order::Release { at: begun.1 });
    }

    pub(super) fn released(&mut self, running: &Running, at: TopicPartition) {
        if running.doing == Doing::Pauses {
            return self.report(&running.key, Event::Finished(running.run));
        }
        let up = self.up();
        let last = up.mirrors.last_mirrored(&running.key);
        up.to_inspect.push(Stopping { key: running.key.clone(), at, run: running.run, last });
    }

    pub(super) fn raise_fenced(&mut self, begun: Vec<Begun>) -> Result<(), Down> {
        if begun.is_empty() {
            return Ok(());
        }
        let mut wanted = Vec::new();
        for (key, at, _) in &begun {
            let link = self.up().links.get(&key.mirror);
            let met = link.and_then(|link| link.running.get(at)).map(|it| it.fenced_by);
            let source = link.and_then(|link| link.epochs.get(at)).copied();
            let known = met.max(source).unwrap_or(LeaderEpoch::NONE);
            wanted.push((key.topic, at.partition, above(known.max(self.local_epoch(at)))));
        }
        self.raise(wanted)?;
        for (key, _, run) in begun {
            self.report(&key, Event::Finished(run));
        }
        Ok(())
    }

    pub(super) fn raise(&mut self, wanted: Vec<(TopicId, i32, LeaderEpoch)>) -> Result<(), Down> {
        let topic = |(topic_id, partition_index, epoch): (TopicId, i32, LeaderEpoch)| {
            let bump = BumpPartition { partition_index, min_leader_epoch: epoch.0 };
            BumpTopic { topic_id, partitions: vec![bump] }
        };
        let topics = wanted.into_iter().map(topic).collect();
        let decision = bump_leader_epochs(self.image(), &BumpLeaderEpochsRequest { topics });
        self.decide(&decision.records)?;
        for topic in decision.answer {
            for (partition, result) in topic.partitions {
                let Ok(epoch) = result else { continue };
                let at = TopicPartition::new(topic.topic_name.as_str(), partition);
                let link = self.image().mirror_of(&at.topic).map(|it| Arc::<str>::from(it.mirror));
                let Some(mirror) = link else { continue };
                let key =
                    MirrorKey { mirror: Arc::clone(&mirror), topic: topic.topic_id, partition };
                self.up().mirrors.set_leader_epoch(&key, epoch);
                self.order(&mirror, Order::SetLocalEpoch { at, epoch });
            }
        }
        Ok(())
    }

    pub(super) fn is_unclean(&self, at: &TopicPartition) -> bool {
        let key = "mirror.support.unclean.leader.election";
        self.image().config(ResourceType::TOPIC, &at.topic, key) == Some("true")
    }

    pub(crate) fn local_epoch(&self, at: &TopicPartition) -> LeaderEpoch {
        self.image().leader_epoch(&at.topic, at.partition).unwrap_or(LeaderEpoch::NONE)
    }
}

//! A job that a host steers: orders in, happenings out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use heliostat_core::coordinator::LastMirrored;
use heliostat_core::coordinator::alignment::{AlignStep, align_step};
use heliostat_core::engine::message::{Command, Leader, PartitionKey};
use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::partition::RecoveredLog;
use heliostat_core::mirror::returned::{CopyEnds, Repair};
use heliostat_core::protocol::{Metadata, TopicIdentity};
use heliostat_core::types::{LeaderEpoch, TopicId, TopicPartition};

use super::super::copy::{Copy, Goal, Opening, Phase, Then, Want};
use super::super::steering::{Happening, Order, Outcome, Steering, WatchedTopic};
use super::Job;

/// What a steered job has besides.
pub(super) struct Steered {
    steering: Steering,
    /// Topics of the mirror; the only ones whose leaders are watched.
    watched: BTreeSet<Arc<str>>,
    /// The IDs that their files carry.
    local_ids: BTreeMap<Arc<str>, TopicId>,
    /// Cluster ID of the source.
    cluster: Option<Arc<str>>,
    /// The source has said who it is, and is the one.
    confirmed: bool,
}

impl Steered {
    pub(super) fn new(steering: Steering) -> Self {
        Self {
            steering,
            watched: BTreeSet::new(),
            local_ids: BTreeMap::new(),
            cluster: None,
            confirmed: false,
        }
    }

    pub(super) fn local_id(&self, topic: &str) -> Option<TopicId> {
        self.local_ids.get(topic).copied()
    }

    fn tell(&self, at: &TopicPartition, outcome: Outcome) {
        // A host that has gone stops this job in a moment.
        let _ = self.steering.happenings.send(Happening::Of(at.clone(), outcome));
    }
}

/// The next order; never comes for a job that nobody steers.
pub(super) async fn next_order(steered: &mut Option<Steered>) -> Order {
    let order = match steered {
        Some(steered) => steered.steering.orders.recv().await,
        None => None,
    };
    match order {
        Some(order) => order,
        None => std::future::pending().await,
    }
}

impl Job {
    /// Takes an order, and those that wait behind it: very many come at once.
    pub(super) fn take_order(&mut self, order: Order) {
        self.obey(order);
        while let Some(order) =
            self.steered.as_mut().and_then(|steered| steered.steering.orders.try_recv().ok())
        {
            self.obey(order);
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Watch { cluster, topics } => self.watch(cluster, topics),
            Order::Align { at, last } => self.align(&at, last),
            Order::Follow { at, local_epoch, may_cut, unclean } => {
                self.follow(&at, local_epoch, may_cut, unclean);
            }
            Order::SetLocalEpoch { at, epoch } => self.set_local_epoch(&at, epoch),
            Order::Release { at } => self.release(&at),
            Order::Describe { topics, reply } => {
                let now = self.now();
                let is_asked = |copy: &&Copy| topics.is_empty() || topics.contains(&*copy.at.topic);
                let all = self.copies.values().filter(is_asked).map(|copy| copy.status(now));
                // Whoever asked may have given up.
                let _ = reply.send(all.collect());
            }
        }
    }

    fn watch(&mut self, cluster: Option<Arc<str>>, topics: Vec<WatchedTopic>) {
        let Some(steered) = &mut self.steered else { return };
        let watched: BTreeSet<_> = topics.iter().map(|topic| Arc::clone(&topic.name)).collect();
        for gone in steered.watched.difference(&watched) {
            self.topics.forget(gone);
        }
        let is_new = topics.iter().fold(!steered.confirmed, |is_new, topic| {
            self.topics.expect(&topic.name, topic.source_id) | is_new
        });
        steered.confirmed &= steered.cluster == cluster;
        steered.cluster = cluster;
        steered.watched = watched;
        steered.local_ids = topics.into_iter().map(|topic| (topic.name, topic.local_id)).collect();
        if is_new {
            self.refresh_soon();
        }
    }

    /// Whether the source is known to be the one that is mirrored: before, a look at it could
    /// cost the copy.
    pub(super) fn knows_its_source(&self) -> bool {
        self.steered.as_ref().is_none_or(|steered| steered.confirmed)
    }

    /// The partition's copy, which is made if there is none.
    fn steer(&mut self, at: &TopicPartition, goal: Goal) -> Option<&mut Copy> {
        // A topic that has ended may be there again, by the same ID or another one.
        if self.topics.contains(&at.topic) && self.topics.identity(&at.topic).is_none() {
            let known = self.topics.id(&at.topic);
            self.topics.expect(&at.topic, known);
            self.refresh_soon();
        }
        let source_id = self.topics.identity(&at.topic).map_or(TopicId::NONE, |topic| topic.id);
        let copies = &mut self.copies;
        let key = *self.by_name.entry(at, || copies.insert(at.clone(), source_id));
        let copy = self.copies.get_mut(key)?;
        copy.goal = goal;
        copy.topic_id = source_id.known().unwrap_or(copy.topic_id);
        (copy.attempts, copy.trouble, copy.told) = (0, None, false);
        // What the source has by now is asked anew.
        copy.target = None;
        Some(copy)
    }

    fn align(&mut self, at: &TopicPartition, last: Option<LastMirrored>) {
        let has_log = self.log_dir.borrow().has_log(at);
        let now = self.now();
        let Some(copy) = self.steer(at, Goal::Align) else { return };
        copy.align_to = last.map(Box::new);
        copy.epoch_checked = false;
        if copy.phase.shard().is_some() || matches!(copy.phase, Phase::Opening { .. }) {
            // It is given back, or opened, first; then its goal is looked at.
            let key = copy.key;
            return self.leave(key, Then::Rest);
        }
        if has_log {
            copy.phase = Phase::Opens { how: Opening::Whole, due: now };
        } else {
            self.aligned(at);
        }
    }

    fn follow(
        &mut self,
        at: &TopicPartition,
        local_epoch: LeaderEpoch,
        may_cut: bool,
        unclean: bool,
    ) {
        let now = self.now();
        let Some(copy) = self.steer(at, Goal::Follow) else { return };
        copy.local_epoch = local_epoch;
        (copy.may_cut, copy.unclean) = (may_cut, unclean);
        let key = copy.key;
        match &copy.phase {
            // It follows already; its host wants to hear so.
            Phase::Active { .. } => self.tell_if_follows(key),
            Phase::Leaving { .. } | Phase::Opening { .. } => {}
            _ => copy.phase = Phase::Asks { want: Want::Begin, due: now, asked: false },
        }
    }

    fn set_local_epoch(&mut self, at: &TopicPartition, epoch: LeaderEpoch) {
        let Some(copy) = self.by_name.get(at).and_then(|key| self.copies.get_mut(*key)) else {
            return;
        };
        copy.local_epoch = copy.local_epoch.max(epoch);
        let (key, epoch) = (copy.key, copy.local_epoch);
        if let Some(shard) = copy.phase.shard() {
            self.command(shard, Command::SetLocalEpoch { key, epoch });
        }
    }

    fn release(&mut self, at: &TopicPartition) {
        let Some(key) = self.by_name.get(at).copied() else {
            return self.tell(at, Outcome::Released);
        };
        let Some(copy) = self.copies.get_mut(key) else { return };
        copy.goal = Goal::Rest;
        match copy.phase {
            // The goal is looked at once it is open.
            Phase::Opening { .. } => {}
            Phase::Active { .. } | Phase::Leaving { .. } => self.leave(key, Then::Rest),
            _ => self.rest(key),
        }
    }

    /// A partition is left alone.
    pub(super) fn rest(&mut self, key: PartitionKey) {
        let Some(copy) = self.copies.get_mut(key) else { return };
        copy.phase = Phase::Rests;
        copy.epochs = EpochCache::default();
        let at = copy.at.clone();
        self.tell(&at, Outcome::Released);
    }

    fn aligned(&mut self, at: &TopicPartition) {
        if let Some(copy) = self.by_name.get(at).and_then(|key| self.copies.get_mut(*key)) {
            copy.phase = Phase::Rests;
            copy.goal = Goal::Rest;
            copy.epochs = EpochCache::default();
        }
        self.tell(at, Outcome::Aligned);
    }

    pub(super) fn tell(&self, at: &TopicPartition, outcome: Outcome) {
        if let Some(steered) = &self.steered {
            steered.tell(at, outcome);
        }
    }

    /// A shard has given a partition back as it was asked to.
    pub(super) fn given_back(&mut self, key: PartitionKey) {
        let now = self.now();
        let Some(copy) = self.copies.get_mut(key) else { return };
        match copy.goal {
            Goal::Rest => self.rest(key),
            Goal::Align => copy.phase = Phase::Opens { how: Opening::Whole, due: now },
            Goal::Follow => {
                copy.phase = Phase::Asks { want: Want::Begin, due: now, asked: false };
            }
        }
    }

    /// A log is open: unless it is to follow, this is where it rests, or is cut.
    pub(super) fn rest_or_align(
        &mut self,
        key: PartitionKey,
        log: RecoveredLog,
    ) -> Option<RecoveredLog> {
        let now = self.now();
        let copy = self.copies.get_mut(key)?;
        let last = match copy.goal {
            Goal::Follow => return Some(log),
            Goal::Rest => {
                let at = copy.at.clone();
                self.show_at_rest(&at, &log);
                self.rest(key);
                return None;
            }
            Goal::Align => copy.align_to.as_deref().copied(),
        };
        copy.ends = CopyEnds { log_start: log.log_start, log_end: log.log_end };
        copy.epochs.clone_from(&log.epochs);
        let at = copy.at.clone();
        match align_step(last, copy.ends, &copy.epochs, copy.epoch_checked) {
            AlignStep::Aligned => {
                self.show_at_rest(&at, &log);
                self.aligned(&at);
            }
            AlignStep::AskEpochEnd(epoch) => {
                let want = Want::EpochEnd(epoch);
                copy.phase = Phase::Asks { want, due: now, asked: false };
            }
            AlignStep::Truncate(to) => {
                let repair = Repair::Truncate { to };
                self.repair(key, repair, "it was not mirrored before the last stop");
            }
            AlignStep::BeginAnew => {
                copy.align_to = None;
                copy.phase = Phase::Asks { want: Want::Begin, due: now, asked: false };
            }
        }
        None
    }

    /// The host hears once that a partition follows.
    pub(super) fn tell_if_follows(&mut self, key: PartitionKey) {
        let Some(steered) = &self.steered else { return };
        let Some(copy) = self.copies.get_mut(key) else { return };
        if copy.told || copy.goal != Goal::Follow || !copy.follows() {
            return;
        }
        copy.told = true;
        copy.may_cut = false;
        steered.tell(&copy.at, Outcome::Follows);
    }

    /// A batch's epoch is above the destination's.
    pub(super) fn fenced(&mut self, key: PartitionKey, epoch: LeaderEpoch) {
        let Some(copy) = self.copies.get_mut(key) else { return };
        copy.phase = Phase::Rests;
        copy.goal = Goal::Rest;
        let at = copy.at.clone();
        self.tell(&at, Outcome::EpochFenced(epoch));
    }

    pub(super) fn take_steered_metadata(&mut self, metadata: &Metadata) {
        let Some(steered) = &mut self.steered else { return };
        let _ = steered.steering.happenings.send(Happening::Metadata(Box::new(metadata.clone())));
        let found = metadata.cluster_id.as_deref();
        steered.confirmed = match (steered.cluster.as_deref(), found) {
            (Some(known), Some(found)) => known == found,
            _ => true,
        };
        if !steered.confirmed {
            return;
        }
        let refresh = self.topics.refresh(metadata, &steered.watched);
        self.take_brokers(metadata);
        self.take_refresh(refresh);
    }

    /// The source tells of a partition for the first time; it may have been ordered before.
    pub(super) fn source_tells(&mut self, topic: &TopicIdentity, index: i32, leader: Leader) {
        let at = TopicPartition::new(Arc::clone(&topic.name), index);
        let Some(copy) = self.by_name.get(&at).and_then(|key| self.copies.get_mut(*key)) else {
            return;
        };
        copy.topic_id = topic.id;
        let key = copy.key;
        if let Some(shard) = copy.phase.shard() {
            self.command(shard, Command::SetTopicIdentity { key, topic: topic.clone() });
            self.command(shard, Command::SetLeader { key, leader });
        }
    }
}

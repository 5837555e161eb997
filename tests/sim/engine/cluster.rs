//! The source cluster: replicated partitions, elections, retention, compaction.
//!
//! Replicas follow Kafka's rules: a follower cuts itself back to where the leader's
//! epochs say, and the high watermark is the least end in sync. What a broker believes
//! about leadership may lag behind, so that a deposed leader goes on answering.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::records::{BatchBuilder, ControlType, NewRecord};
use heliostat_core::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};
use uuid::Uuid;

use crate::rng::Chance;

/// Largest log of a replica; retention takes what is older.
const BATCHES_MAX: usize = 400;

/// A batch as a replica has it.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) base: i64,
    pub(crate) last: i64,
    pub(crate) epoch: i32,
    pub(crate) bytes: Bytes,
    /// What was produced; a cleaned batch keeps it.
    pub(crate) origin: u64,
}

/// Where a produced batch stands in the tree of histories.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The batch before it; 0 for none.
    pub(crate) parent: u64,
    pub(crate) base: i64,
}

/// Who leads, in somebody's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// −1 for nobody.
    pub(crate) leader: i32,
    pub(crate) epoch: i32,
}

#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) log: Vec<Rc<Batch>>,
    pub(crate) epochs: EpochCache,
    pub(crate) log_start: i64,
    /// Log end, exclusive.
    pub(crate) end: i64,
    pub(crate) high_watermark: i64,
    /// Origin of the batch that was appended last; cut off if it begins at or behind the end.
    tip: u64,
    /// What its broker believes.
    pub(crate) view: View,
}

impl Replica {
    fn new(start: i64, view: View) -> Self {
        let log = Vec::new();
        let epochs = EpochCache::default();
        Self { log, epochs, log_start: start, end: start, high_watermark: start, tip: 0, view }
    }

    /// Index of the first batch that ends at or behind `offset`.
    pub(crate) fn index_at(&self, offset: i64) -> usize {
        self.log.partition_point(|batch| batch.last < offset)
    }

    fn append(&mut self, batch: Rc<Batch>) {
        self.epochs.assign(LeaderEpoch(batch.epoch), Offset(batch.base));
        self.end = batch.last + 1;
        self.tip = batch.origin;
        self.log.push(batch);
    }

    fn truncate(&mut self, to: i64) {
        while let Some(last) = self.log.last().filter(|batch| batch.last >= to) {
            self.end = last.base;
            self.log.pop();
        }
        self.end = self.end.min(to);
        self.epochs.truncate_from_end(Offset(self.end));
        self.high_watermark = self.high_watermark.min(self.end);
    }

    fn trim(&mut self, start: i64) {
        self.log_start = self.log_start.max(start.min(self.end));
        let gone = self.index_at(self.log_start);
        self.log.drain(..gone);
        self.epochs.truncate_from_start(Offset(self.log_start));
    }

    /// Kafka's rule for a follower that may have another history than its leader.
    fn align(&mut self, leader: &Self) {
        while let Some(latest) = self.epochs.latest() {
            let (epoch, end) = leader.epochs.end_offset_for(latest.epoch, Offset(leader.end));
            if epoch == LeaderEpoch::NONE {
                self.truncate(leader.log_start);
                return;
            }
            let own = if epoch == latest.epoch {
                self.end
            } else {
                let (_, own) = self.epochs.end_offset_for(epoch, Offset(self.end));
                if own.0 < 0 { self.end } else { own.0 }
            };
            let to = own.min(end.0);
            let shorter = to < self.end;
            self.truncate(to);
            if epoch == latest.epoch || !shorter {
                return;
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) topic: usize,
    pub(crate) index: i32,
    pub(crate) replicas: BTreeMap<i32, Replica>,
    pub(crate) truth: View,
    isr: BTreeSet<i32>,
    /// Ends that followers have fetched from this leader; not known before they do.
    acked: BTreeMap<i32, i64>,
    pub(crate) origins: BTreeMap<u64, Origin>,
    producers: BTreeMap<i64, (i32, bool)>,
    clock_ms: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub(crate) name: String,
    /// Nil: the brokers give no IDs.
    pub(crate) id: Uuid,
    pub(crate) deleted: bool,
}

/// Sizes of the batches of one world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) small_max: usize,
    pub(crate) large_permille: usize,
    pub(crate) large_max: usize,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) topics: Vec<Topic>,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) up: BTreeMap<i32, bool>,
    chance: Chance,
    sizes: Sizes,
    next_origin: u64,
}

pub(crate) fn int(n: usize) -> i64 {
    i64::try_from(n).expect("a small number")
}

impl Cluster {
    pub(crate) fn new(chance: Chance, sizes: Sizes, brokers: i32) -> Self {
        let up = (1..=brokers).map(|id| (id, true)).collect();
        let (topics, partitions) = (Vec::new(), Vec::new());
        Self { topics, partitions, up, chance, sizes, next_origin: 0 }
    }

    pub(crate) fn add_topic(&mut self, id: Uuid) -> usize {
        let name = format!("topic{}", self.topics.len());
        self.topics.push(Topic { name, id, deleted: false });
        self.topics.len() - 1
    }

    pub(crate) fn add_partition(&mut self, topic: usize) -> usize {
        let index = self.partitions.iter().filter(|it| it.topic == topic).count();
        let start = int(self.chance.pick(&[0, 0, 0, 57]));
        let brokers: Vec<i32> = self.up.keys().copied().collect();
        let mut hosts = brokers.clone();
        if hosts.len() > 2 && self.chance.percent(50) {
            hosts.remove(self.chance.below(hosts.len()));
        }
        let leader = self.chance.pick(&hosts);
        let truth = View { leader, epoch: 0 };
        let mut replicas: BTreeMap<_, _> =
            hosts.iter().map(|id| (*id, Replica::new(start, truth))).collect();
        if let Some(replica) = replicas.get_mut(&leader) {
            replica.epochs.assign(LeaderEpoch(0), Offset(start));
        }
        self.partitions.push(Partition {
            topic,
            index: i32::try_from(index).expect("a small number"),
            replicas,
            truth,
            isr: hosts.into_iter().collect(),
            acked: BTreeMap::new(),
            origins: BTreeMap::new(),
            producers: BTreeMap::new(),
            clock_ms: 1_000_000,
        });
        self.partitions.len() - 1
    }

    pub(crate) fn is_up(&self, broker: i32) -> bool {
        self.up.get(&broker).copied().unwrap_or(false)
    }

    /// The true leader's replica, if its broker is up.
    pub(crate) fn leader(&self, p: usize) -> Option<&Replica> {
        let partition = &self.partitions[p];
        let leader = partition.truth.leader;
        partition.replicas.get(&leader).filter(|_| self.is_up(leader))
    }

    fn leader_mut(&mut self, p: usize) -> Option<&mut Replica> {
        let leader = self.partitions[p].truth.leader;
        if !self.is_up(leader) {
            return None;
        }
        self.partitions[p].replicas.get_mut(&leader)
    }

    /// Origin of the last batch of the leader's history, cleaned or not; 0 for none.
    pub(crate) fn tip(&self, p: usize) -> u64 {
        let Some(leader) = self.leader(p) else { return 0 };
        let mut tip = leader.tip;
        while let Some(origin) = self.partitions[p].origins.get(&tip)
            && origin.base >= leader.end
        {
            tip = origin.parent;
        }
        tip
    }

    pub(crate) fn produce(&mut self, p: usize, batches: usize) {
        for _ in 0..batches {
            let truth = self.partitions[p].truth;
            // One that does not know that it leads takes nothing.
            let gap = self.chance.percent(4);
            let Some(leader) = self.leader(p).filter(|it| it.view == truth) else { return };
            // An epoch begins where its leader's log ended.
            let gap = gap && leader.log.last().is_some_and(|last| last.epoch == truth.epoch);
            let base = leader.end + if gap { 3 } else { 0 };
            let parent = self.tip(p);
            let epoch = self.partitions[p].truth.epoch;
            let bytes = self.build(p, base, epoch);
            self.next_origin += 1;
            let origin = self.next_origin;
            self.partitions[p].origins.insert(origin, Origin { parent, base });
            let last = base + last_delta(&bytes);
            let batch = Rc::new(Batch { base, last, epoch, bytes: bytes.into(), origin });
            if let Some(leader) = self.leader_mut(p) {
                leader.append(batch);
            }
        }
        if self.leader(p).is_some_and(|leader| leader.log.len() > BATCHES_MAX) {
            self.retain(p, 50);
        }
        self.move_high_watermark(p);
    }

    fn build(&mut self, p: usize, base: i64, epoch: i32) -> Vec<u8> {
        let Self { chance, partitions, sizes, .. } = self;
        let partition = &mut partitions[p];
        let mut builder = BatchBuilder::new(Offset(base)).leader_epoch(LeaderEpoch(epoch));
        partition.clock_ms += int(chance.between(0, 30)) - 5;
        let timestamp = TimestampMs(partition.clock_ms);
        let open: Vec<i64> =
            partition.producers.iter().filter(|(_, (_, open))| *open).map(|(id, _)| *id).collect();
        if !open.is_empty() && chance.percent(20) {
            let id = chance.pick(&open);
            partition.producers.entry(id).or_default().1 = false;
            let code = chance.pick(&[ControlType::Abort, ControlType::Commit]).code();
            let mut key = vec![0, 0];
            key.extend(code.to_be_bytes());
            let mut builder =
                builder.transactional().control().producer(ProducerId(id), ProducerEpoch(0), -1);
            let value = Some(&[0_u8, 0, 0, 0, 0, 7][..]);
            let record = NewRecord { timestamp, key: Some(&key), value, headers: &[] };
            builder.push(&record).expect("a record fits");
            return builder.build().expect("a marker can be built");
        }
        if chance.percent(40) {
            let id = int(chance.between(1, 4));
            let entry = partition.producers.entry(id).or_default();
            builder = builder.producer(ProducerId(id), ProducerEpoch(0), entry.0);
            if id > 2 {
                builder = builder.transactional();
            }
            *entry = (entry.0 + 4, id > 2);
        }
        let large = chance.below(1_000) < sizes.large_permille;
        let max = if large { sizes.large_max } else { sizes.small_max };
        let mut value = vec![0; chance.between(0, max)];
        let noise = value.len().min(64);
        chance.fill(&mut value[..noise]);
        let records = chance.between(0, 3);
        for part in 0..records {
            let value = if part == 0 { &value[..] } else { &value[..noise] };
            let record = NewRecord { timestamp, key: None, value: Some(value), headers: &[] };
            builder.push(&record).expect("a record fits");
        }
        let delta = i32::try_from(chance.between(records.max(1) - 1, 3)).expect("small");
        builder.last_offset_delta(delta).build().expect("a batch can be built")
    }

    fn move_high_watermark(&mut self, p: usize) {
        let partition = &self.partitions[p];
        let leads = partition.truth.leader;
        let others = partition.isr.iter().filter(|id| **id != leads);
        let ends = others.map(|id| partition.acked.get(id).copied().unwrap_or(0));
        let least = ends.chain(self.leader(p).map(|leader| leader.end)).min();
        if let (Some(least), Some(leader)) = (least, self.leader_mut(p)) {
            leader.high_watermark = leader.high_watermark.max(least.min(leader.end));
        }
    }

    /// One fetch of a follower.
    pub(crate) fn replicate(&mut self, p: usize, broker: i32, batches: usize) {
        let up = self.is_up(broker);
        let partition = &mut self.partitions[p];
        let truth = partition.truth;
        if !up || broker == truth.leader || !self.up.get(&truth.leader).copied().unwrap_or(false) {
            return;
        }
        let Some(mut follower) = partition.replicas.remove(&broker) else { return };
        if let Some(leader) = partition.replicas.get(&truth.leader)
            && follower.view == truth
        {
            follower.align(leader);
            if follower.end < leader.log_start {
                follower.truncate(follower.log_start);
                (follower.end, follower.log_start) = (leader.log_start, leader.log_start);
                follower.epochs.clear();
                follower.high_watermark = leader.log_start;
            }
            let from = leader.index_at(follower.end);
            for batch in leader.log[from..].iter().take(batches) {
                follower.append(Rc::clone(batch));
            }
            if from + batches >= leader.log.len() {
                follower.end = leader.end;
                follower.tip = leader.tip;
                partition.isr.insert(broker);
            }
            partition.acked.insert(broker, follower.end);
            follower.trim(leader.log_start);
            follower.high_watermark = leader.high_watermark.min(follower.end);
        }
        partition.replicas.insert(broker, follower);
        self.move_high_watermark(p);
    }

    /// The leader stops waiting for the others.
    pub(crate) fn shrink_isr(&mut self, p: usize) {
        let leader = self.partitions[p].truth.leader;
        if self.is_up(leader) {
            self.partitions[p].isr = BTreeSet::from([leader]);
            self.move_high_watermark(p);
        }
    }

    /// A new leader; says whether there was one to elect, and whether records were lost.
    pub(crate) fn elect(&mut self, p: usize, unclean: bool) -> Option<bool> {
        let partition = &self.partitions[p];
        let old = partition.truth;
        let committed = partition.replicas.get(&old.leader).map_or(0, |it| it.high_watermark);
        let choices: Vec<i32> = partition
            .replicas
            .iter()
            .filter(|(id, _)| **id != old.leader && self.is_up(**id))
            .filter(|(id, _)| partition.isr.contains(id) != unclean)
            .map(|(id, _)| *id)
            .collect();
        if choices.is_empty() {
            return None;
        }
        let leader = self.chance.pick(&choices);
        self.install(p, leader);
        let new = &self.partitions[p].replicas[&leader];
        Some(new.end < committed)
    }

    fn install(&mut self, p: usize, leader: i32) {
        let up: BTreeSet<i32> = self.up.iter().filter(|(_, up)| **up).map(|(id, _)| *id).collect();
        let partition = &mut self.partitions[p];
        let epoch = partition.truth.epoch + 1;
        partition.truth = View { leader, epoch };
        let was_in_sync = partition.isr.contains(&leader);
        partition.isr.retain(|id| was_in_sync && up.contains(id));
        partition.isr.insert(leader);
        partition.producers.clear();
        partition.acked.clear();
        if let Some(replica) = partition.replicas.get_mut(&leader) {
            replica.epochs.assign(LeaderEpoch(epoch), Offset(replica.end));
            replica.view = partition.truth;
        }
        self.move_high_watermark(p);
    }

    /// The same leader in a new epoch, of which it may hear later than others.
    pub(crate) fn bump_epoch(&mut self, p: usize) {
        let View { leader, .. } = self.partitions[p].truth;
        if !self.is_up(leader) {
            return;
        }
        let before = self.partitions[p].truth;
        self.install(p, leader);
        self.spread_views(p, 10);
        if self.chance.percent(60)
            && let Some(replica) = self.partitions[p].replicas.get_mut(&leader)
        {
            replica.view = before;
        }
    }

    /// Tells brokers who leads; those in `lagging` hear of it later.
    pub(crate) fn spread_views(&mut self, p: usize, lagging: usize) {
        for (id, up) in self.up.clone() {
            let late = self.chance.percent(lagging);
            let partition = &mut self.partitions[p];
            if let Some(replica) = partition.replicas.get_mut(&id)
                && up
                && !late
            {
                replica.view = partition.truth;
            }
        }
    }

    pub(crate) fn stop_broker(&mut self, broker: i32) {
        self.up.insert(broker, false);
        for p in 0..self.partitions.len() {
            if self.partitions[p].truth.leader == broker && self.elect(p, false).is_none() {
                let truth = &mut self.partitions[p].truth;
                *truth = View { leader: -1, epoch: truth.epoch + 1 };
            }
            let partition = &mut self.partitions[p];
            if partition.isr.len() > 1 {
                partition.isr.remove(&broker);
            }
            self.spread_views(p, 20);
            self.move_high_watermark(p);
        }
    }

    pub(crate) fn start_broker(&mut self, broker: i32) {
        self.up.insert(broker, true);
        for p in 0..self.partitions.len() {
            self.elect_if_none(p);
            let partition = &mut self.partitions[p];
            if let Some(replica) = partition.replicas.get_mut(&broker) {
                replica.view = partition.truth;
            }
        }
    }

    /// A member of the last set in sync that is up leads again.
    pub(crate) fn elect_if_none(&mut self, p: usize) {
        if self.partitions[p].truth.leader >= 0 {
            return;
        }
        let in_sync = self.partitions[p].isr.iter().copied().find(|id| self.is_up(*id));
        if let Some(leader) = in_sync {
            self.install(p, leader);
            self.spread_views(p, 0);
        }
    }

    /// DeleteRecords up to an offset, which may lie inside a batch.
    pub(crate) fn delete_records(&mut self, p: usize) {
        let behind = int(self.chance.between(0, 60));
        if let Some(leader) = self.leader_mut(p) {
            leader.trim((leader.high_watermark - behind).max(leader.log_start));
        }
    }

    /// Retention: `percent` of the batches go, from the front.
    pub(crate) fn retain(&mut self, p: usize, percent: usize) {
        if let Some(leader) = self.leader_mut(p) {
            let gone = leader.log.len() * percent / 100;
            let start = leader.log.get(gone).map_or(leader.high_watermark, |batch| batch.base);
            leader.trim(start.min(leader.high_watermark));
        }
    }

    /// The cleaner of one replica: batches vanish, or lose their records. The first batch of
    /// an epoch stays: a replica that never saw it would place the epoch's start too high,
    /// and no client of it could tell a lost tail any more.
    pub(crate) fn clean(&mut self, p: usize) {
        let hosts: Vec<i32> = self.partitions[p].replicas.keys().copied().collect();
        let broker = self.chance.pick(&hosts);
        let Self { chance, partitions, .. } = self;
        let Some(replica) = partitions[p].replicas.get_mut(&broker) else { return };
        let keep_from = replica.high_watermark;
        let (mut cleaned, mut epoch) = (Vec::new(), -1);
        for batch in std::mem::take(&mut replica.log) {
            let dirty = batch.last + 1 >= keep_from;
            let begins = std::mem::replace(&mut epoch, batch.epoch) != batch.epoch;
            match chance.below(10) {
                0 if !dirty && !begins => {}
                1 if !dirty => {
                    let delta = i32::try_from(batch.last - batch.base).expect("small");
                    let bytes = BatchBuilder::new(Offset(batch.base))
                        .leader_epoch(LeaderEpoch(batch.epoch))
                        .last_offset_delta(delta)
                        .build()
                        .expect("an empty batch can be built");
                    let Batch { base, last, epoch, origin, .. } = *batch;
                    let bytes = bytes.into();
                    cleaned.push(Rc::new(Batch { base, last, epoch, bytes, origin }));
                }
                _ => cleaned.push(batch),
            }
        }
        replica.log = cleaned;
    }

    /// Everything is well: all up, all in sync, everybody knows.
    pub(crate) fn heal(&mut self) {
        let brokers: Vec<i32> = self.up.keys().copied().collect();
        for broker in &brokers {
            self.start_broker(*broker);
        }
        for p in 0..self.partitions.len() {
            self.elect_if_none(p);
            self.spread_views(p, 0);
            for broker in &brokers {
                self.replicate(p, *broker, usize::MAX / 2);
            }
            for broker in &brokers {
                self.replicate(p, *broker, 0);
            }
            self.move_high_watermark(p);
        }
    }
}

/// `lastOffsetDelta` of a batch.
fn last_delta(batch: &[u8]) -> i64 {
    let field = batch[23..27].try_into().expect("four bytes");
    i64::from(i32::from_be_bytes(field))
}

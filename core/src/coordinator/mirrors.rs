//! All mirrored partitions of a host: which of them have something to store or to do, and which
//! wait for what time.
//!
//! Each is a [`PartitionMirror`]; here their actions are gathered, so that the states of many
//! partitions are stored together, and what follows is begun together.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::ops::Bound;
use std::sync::Arc;

use uuid::Uuid;

use super::partition::{Action, Cx, Event, PartitionMirror, Run, Stored};
use super::record::{LastMirrored, MirrorKey, StateRecord};
use super::retry::RetryPolicy;
use super::state::{DesiredState, MirrorState};
use crate::metadata::image::MetadataImage;
use crate::time::Tick;
use crate::types::{LeaderEpoch, TopicId};

/// What is to be done about one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Do what the state is about, and report with this run.
    Begin(MirrorKey, MirrorState, Run),
    /// End what was begun; nobody waits for its report.
    Abandon(MirrorKey, Run),
}

/// What is written to the state log in one go, in this order. [`Mirrors::on_stored`] wants it
/// back.
#[derive(Debug, Default)]
pub struct ToStore {
    /// What an earlier write could not get rid of.
    owed: Vec<StateRecord>,
    states: Vec<(MirrorKey, Stored)>,
    /// Positions that count no more once the state of the first key is durable. Behind the
    /// states: an alignment that has lost its position would begin anew.
    outdated: Vec<(MirrorKey, MirrorKey)>,
}

impl ToStore {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// The records, in order.
    #[must_use]
    pub fn records(&self) -> Vec<StateRecord> {
        let state = |(key, stored): &(MirrorKey, Stored)| {
            StateRecord::Partition(key.clone(), Some(stored.clone()))
        };
        let gone = |(_, key): &(MirrorKey, MirrorKey)| StateRecord::LastMirrored(key.clone(), None);
        let states = self.states.iter().map(state);
        self.owed.iter().cloned().chain(states).chain(self.outdated.iter().map(gone)).collect()
    }
}

#[derive(Debug)]
struct Entry {
    mirror: PartitionMirror,
    /// When it is to be woken, if ever.
    wakes: Option<Tick>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Mirrors {
    retry: RetryPolicy,
    entries: BTreeMap<MirrorKey, Entry>,
    last_mirrored: BTreeMap<MirrorKey, LastMirrored>,
    wakes: BTreeSet<(Tick, MirrorKey)>,
    /// To be made durable, together.
    to_store: Vec<(MirrorKey, Stored)>,
    owed: Vec<StateRecord>,
    outdated: Vec<(MirrorKey, MirrorKey)>,
    steps: Vec<Step>,
    actions: Vec<Action>,
}

impl Mirrors {
    /// No partitions yet.
    #[must_use]
    pub fn new(retry: RetryPolicy) -> Self {
        Self {
            retry,
            entries: BTreeMap::new(),
            last_mirrored: BTreeMap::new(),
            wakes: BTreeSet::new(),
            to_store: Vec::new(),
            owed: Vec::new(),
            outdated: Vec::new(),
            steps: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// Takes over what the state log holds. Nothing is done before [`Self::wanted`].
    pub fn restore(&mut self, record: StateRecord) {
        match record {
            StateRecord::LastMirrored(key, Some(last)) => {
                self.last_mirrored.insert(key, last);
            }
            StateRecord::LastMirrored(key, None) => {
                self.last_mirrored.remove(&key);
            }
            StateRecord::Partition(key, Some(stored)) => {
                // What is wanted of it is not known before it is said.
                let mirror = PartitionMirror::new(stored, DesiredState::Paused);
                self.entries.insert(key, Entry { mirror, wakes: None });
            }
            StateRecord::Partition(key, None) => self.drop_entry(&key),
        }
    }

    /// The operator's wish for a partition, durable; a partition that is not known is new.
    pub fn wanted(&mut self, key: &MirrorKey, desired: DesiredState, now: Tick, random: u64) {
        if !self.entries.contains_key(key) {
            let mirror = PartitionMirror::new(Stored::default(), desired);
            self.entries.insert(key.clone(), Entry { mirror, wakes: None });
        }
        self.tell(key, Event::Wanted(desired), now, random);
    }

    /// Tells a partition of an event; one that is not known has been forgotten.
    pub fn tell(&mut self, key: &MirrorKey, event: Event, now: Tick, random: u64) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let mut actions = take(&mut self.actions);
        let mut cx = Cx { retry: self.retry, now, random, actions: &mut actions };
        entry.mirror.on(event, &mut cx);
        for action in actions.drain(..) {
            match action {
                Action::Store(stored) => self.to_store.push((key.clone(), stored)),
                Action::Begin(state, run) => {
                    self.steps.push(Step::Begin(key.clone(), state, run));
                }
                Action::Abandon(run) => self.steps.push(Step::Abandon(key.clone(), run)),
                Action::WakeAt(at) => {
                    if let Some(before) = entry.wakes.replace(at) {
                        self.wakes.remove(&(before, key.clone()));
                    }
                    self.wakes.insert((at, key.clone()));
                }
            }
        }
        self.actions = actions;
    }

    /// The next state that is stored carries this leader epoch.
    pub fn set_leader_epoch(&mut self, key: &MirrorKey, epoch: LeaderEpoch) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.mirror.set_leader_epoch(epoch);
        }
    }

    /// What a stop has left, once it is durable; `None` once it is durable that it has left
    /// nothing.
    pub fn set_last_mirrored(&mut self, key: MirrorKey, last: Option<LastMirrored>) {
        self.owed.retain(|it| !matches!(it, StateRecord::LastMirrored(of, None) if *of == key));
        self.outdated.retain(|(_, of)| *of != key);
        self.restore(StateRecord::LastMirrored(key, last));
    }

    /// A partition is aligned and will mirror again: what its last stop has left, in whichever
    /// mirror, counts no more once its next state is durable.
    pub fn outdate(&mut self, key: &MirrorKey) {
        // Mirrors are few, and their partitions very many: all are aligned one after another.
        let mut next = self.last_mirrored.keys().next();
        while let Some(MirrorKey { mirror, .. }) = next {
            let of = MirrorKey { mirror: Arc::clone(mirror), ..key.clone() };
            if self.last_mirrored.remove(&of).is_some() {
                self.outdated.push((key.clone(), of.clone()));
            }
            let last = MirrorKey { topic: TopicId(Uuid::max()), partition: i32::MAX, ..of };
            let behind = (Bound::Excluded(last), Bound::Unbounded);
            next = self.last_mirrored.range(behind).next().map(|(key, _)| key);
        }
    }

    /// These were to be written and are not durable: they are written before what comes next.
    pub fn owe(&mut self, records: Vec<StateRecord>) {
        self.owed.extend(records);
    }

    /// States to be made durable in one go, with all that goes with them.
    #[must_use]
    pub fn take_records(&mut self) -> ToStore {
        if self.to_store.is_empty() {
            return ToStore::default();
        }
        let states = take(&mut self.to_store);
        let keys: BTreeSet<&MirrorKey> = states.iter().map(|(key, _)| key).collect();
        let (outdated, rest) =
            take(&mut self.outdated).into_iter().partition(|(key, _)| keys.contains(key));
        self.outdated = rest;
        ToStore { owed: take(&mut self.owed), states, outdated }
    }

    /// What became of them: `lost` are the places of records that are not known to be durable.
    /// Their states are stored again by and by, and the rest with the next ones.
    pub fn on_stored(
        &mut self,
        stored: ToStore,
        lost: &BTreeSet<usize>,
        now: Tick,
        mut random: impl FnMut() -> u64,
    ) {
        let ToStore { owed, states, outdated } = stored;
        let mut places = 0..;
        let mut is_lost = || places.next().is_some_and(|place| lost.contains(&place));
        self.owed.extend(owed.into_iter().filter(|_| is_lost()));
        let mut again = BTreeSet::new();
        for (key, _) in states {
            if is_lost() {
                self.tell(&key, Event::NotStored, now, random());
                again.insert(key);
            } else {
                self.tell(&key, Event::Stored, now, random());
            }
        }
        for (key, of) in outdated.into_iter().filter(|_| is_lost()) {
            if again.contains(&key) {
                self.outdated.push((key, of));
            } else {
                // The state is durable: nothing may follow it before this does.
                self.owed.push(StateRecord::LastMirrored(of, None));
            }
        }
    }

    /// Positions that a crash, or the disk, kept from going when mirroring went on.
    #[must_use]
    pub fn outdated(&self) -> Vec<MirrorKey> {
        let mirrors = |(_, mirror): &(&MirrorKey, &PartitionMirror)| {
            use MirrorState as Is;
            let state = mirror.state();
            mirror.is_aligned()
                && matches!(state, Is::Mirroring | Is::EpochFencing | Is::Pausing | Is::Paused)
        };
        let all = self.iter().filter(mirrors).map(|(key, _)| key);
        all.filter(|key| self.last_mirrored.contains_key(key)).cloned().collect()
    }

    /// What is stored of mirrors, topics and memberships that are gone.
    #[must_use]
    pub fn gone(&self, image: &MetadataImage) -> BTreeSet<MirrorKey> {
        let is_member = |key: &MirrorKey| {
            let topic = image.topic_by_id(key.topic)?;
            let link = image.mirror_of(&topic.name)?;
            Some(link.mirror == &*key.mirror && image.has_mirror(link.mirror))
        };
        let all = self.entries.keys().chain(self.last_mirrored.keys());
        all.filter(|key| is_member(key) != Some(true)).cloned().collect()
    }

    /// What is to be begun and ended, in order.
    #[must_use]
    pub fn take_steps(&mut self) -> Vec<Step> {
        take(&mut self.steps)
    }

    /// When the next partition is to be woken.
    #[must_use]
    pub fn next_wake(&self) -> Tick {
        self.wakes.first().map_or(Tick::NEVER, |(at, _)| *at)
    }

    /// Wakes the partitions whose time has come. `random` gives each a number of its own.
    pub fn wake(&mut self, now: Tick, mut random: impl FnMut() -> u64) {
        while let Some((at, key)) = self.wakes.pop_first() {
            if at > now {
                self.wakes.insert((at, key));
                return;
            }
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.wakes = None;
            }
            self.tell(&key, Event::Woken, now, random());
        }
    }

    /// Forgets a partition of a mirror that is deleted; the records that say so in the log.
    pub fn forget(&mut self, key: &MirrorKey) -> [StateRecord; 2] {
        self.drop_entry(key);
        self.last_mirrored.remove(key);
        [StateRecord::LastMirrored(key.clone(), None), StateRecord::Partition(key.clone(), None)]
    }

    fn drop_entry(&mut self, key: &MirrorKey) {
        if let Some(Entry { wakes: Some(at), .. }) = self.entries.remove(key) {
            self.wakes.remove(&(at, key.clone()));
        }
    }

    /// One partition.
    #[must_use]
    pub fn get(&self, key: &MirrorKey) -> Option<&PartitionMirror> {
        self.entries.get(key).map(|entry| &entry.mirror)
    }

    /// What the partition's last stop has left.
    #[must_use]
    pub fn last_mirrored(&self, key: &MirrorKey) -> Option<LastMirrored> {
        self.last_mirrored.get(key).copied()
    }

    /// All partitions, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&MirrorKey, &PartitionMirror)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.mirror))
    }

    /// Every key that has anything in the log: a state, or only what a stop has left.
    #[must_use]
    pub fn keys(&self) -> BTreeSet<&MirrorKey> {
        self.entries.keys().chain(self.last_mirrored.keys()).collect()
    }

    /// Those of one mirror.
    #[must_use]
    pub fn keys_of(&self, mirror: &str) -> BTreeSet<MirrorKey> {
        self.keys().into_iter().filter(|key| &*key.mirror == mirror).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::partition::Failure;
    use super::*;
    use crate::types::Offset;

    fn key(partition: i32) -> MirrorKey {
        MirrorKey { mirror: "m".into(), topic: TopicId(Uuid::from_u128(7)), partition }
    }

    fn at(seconds: u64) -> Tick {
        Tick::ZERO.after(Duration::from_secs(seconds))
    }

    /// Everything that waits is stored; the states, in order.
    fn store_all(mirrors: &mut Mirrors, now: Tick) -> Vec<MirrorState> {
        let batch = mirrors.take_records();
        let states = batch.states.iter().map(|(_, stored)| stored.state).collect();
        mirrors.on_stored(batch, &BTreeSet::new(), now, || 0);
        states
    }

    #[test]
    fn many_are_stored_together_before_anything_begins() {
        let mut mirrors = Mirrors::new(RetryPolicy::default());
        for partition in 0..3 {
            mirrors.wanted(&key(partition), DesiredState::Mirroring, at(0), 0);
        }
        assert_eq!(mirrors.take_steps(), []);
        assert_eq!(store_all(&mut mirrors, at(0)), [MirrorState::LogTruncation; 3]);
        let begun = mirrors.take_steps();
        assert_eq!(begun.len(), 3);
        for step in begun {
            let Step::Begin(key, MirrorState::LogTruncation, run) = step else {
                panic!("{step:?}")
            };
            mirrors.tell(&key, Event::Finished(run), at(1), 0);
        }
        assert_eq!(store_all(&mut mirrors, at(1)), [MirrorState::Mirroring; 3]);
    }

    /// A topic may have been stopped in several mirrors, one after another.
    #[test]
    fn what_is_outdated_is_so_in_every_mirror_and_for_no_other_partition() {
        let mut mirrors = Mirrors::new(RetryPolicy::default());
        let last = Some(LastMirrored { epoch: LeaderEpoch(1), offset: Offset(2) });
        let of = |mirror: &str, partition| MirrorKey { mirror: mirror.into(), ..key(partition) };
        for mirror in ["a", "m", "z"] {
            mirrors.set_last_mirrored(of(mirror, 0), last);
            mirrors.set_last_mirrored(of(mirror, 2), last);
        }
        mirrors.set_last_mirrored(of("b", 1), last);
        mirrors.set_last_mirrored(of("m", 1), last);
        mirrors.outdate(&key(1));
        let gone: Vec<_> = mirrors.outdated.iter().map(|(_, of)| of.clone()).collect();
        assert_eq!(gone, [of("b", 1), of("m", 1)]);
        mirrors.outdate(&key(2));
        let left: Vec<_> = mirrors.last_mirrored.keys().cloned().collect();
        assert_eq!(left, ["a", "m", "z"].map(|mirror| of(mirror, 0)));
        mirrors.outdate(&key(2));
        assert_eq!(mirrors.outdated.len(), 5);
    }

    #[test]
    fn a_failed_one_is_woken_at_its_time_and_a_restart_waits_again() {
        let mut mirrors = Mirrors::new(RetryPolicy::default());
        mirrors.wanted(&key(0), DesiredState::Mirroring, at(0), 0);
        store_all(&mut mirrors, at(0));
        let Some(Step::Begin(key, _, run)) = mirrors.take_steps().pop() else { panic!("a step") };
        let failure = Failure { reason: Arc::from("why"), retryable: true };
        mirrors.tell(&key, Event::Failed(run, failure), at(1), 0);
        let stored = mirrors.take_records().states;
        mirrors.tell(&key, Event::Stored, at(1), 0);
        let due = mirrors.next_wake();
        assert!(due > at(2) && due < at(4), "{due:?}");
        mirrors.wake(at(2), || 0);
        assert!(mirrors.take_records().is_empty());

        let mut again = Mirrors::new(RetryPolicy::default());
        let record = StateRecord::Partition(key.clone(), Some(stored[0].1.clone()));
        again.restore(record);
        assert_eq!(again.next_wake(), Tick::NEVER);
        again.wanted(&key, DesiredState::Mirroring, at(0), 0);
        assert!(again.next_wake() > at(1), "the wait begins anew");
        again.wake(at(9), || 0);
        assert_eq!(store_all(&mut again, at(9)), [MirrorState::LogTruncation]);
        assert_eq!(again.next_wake(), Tick::NEVER);
    }

    #[test]
    fn what_is_forgotten_leaves_tombstones_and_no_timer() {
        let mut mirrors = Mirrors::new(RetryPolicy::default());
        let failed = Stored { state: MirrorState::Failed, ..Stored::default() };
        mirrors.restore(StateRecord::Partition(key(1), Some(failed)));
        let last = LastMirrored { epoch: LeaderEpoch(3), offset: Offset(9) };
        mirrors.restore(StateRecord::LastMirrored(key(1), Some(last)));
        mirrors.restore(StateRecord::LastMirrored(key(2), Some(last)));
        mirrors.wanted(&key(1), DesiredState::Mirroring, at(0), 0);
        assert_ne!(mirrors.next_wake(), Tick::NEVER);
        assert_eq!(mirrors.last_mirrored(&key(1)), Some(last));
        assert_eq!(mirrors.keys_of("m").len(), 2);
        let tombstones = mirrors.forget(&key(1));
        assert!(tombstones.iter().all(|record| record.encode_value().is_none()));
        assert_eq!(mirrors.next_wake(), Tick::NEVER);
        assert!(mirrors.get(&key(1)).is_none() && mirrors.last_mirrored(&key(1)).is_none());
        // Late news of it is nobody's.
        mirrors.tell(&key(1), Event::Woken, at(99), 0);
        assert!(mirrors.take_records().is_empty());
        assert_eq!(mirrors.keys_of("m"), BTreeSet::from([key(2)]));
    }

    fn last() -> LastMirrored {
        LastMirrored { epoch: LeaderEpoch(3), offset: Offset(9) }
    }

    /// A partition whose alignment has ended, with the position of its last stop.
    fn aligned() -> Mirrors {
        let mut mirrors = Mirrors::new(RetryPolicy::default());
        let stored = Stored { state: MirrorState::LogTruncation, ..Stored::default() };
        mirrors.restore(StateRecord::Partition(key(1), Some(stored)));
        mirrors.restore(StateRecord::LastMirrored(key(1), Some(last())));
        mirrors.wanted(&key(1), DesiredState::Mirroring, at(0), 0);
        let Some(Step::Begin(_, _, run)) = mirrors.take_steps().pop() else { panic!("a step") };
        mirrors.outdate(&key(1));
        mirrors.tell(&key(1), Event::Finished(run), at(1), 0);
        mirrors
    }

    fn spelled(records: &[StateRecord]) -> Vec<String> {
        let spell = |record: &StateRecord| match record {
            StateRecord::Partition(_, Some(stored)) => stored.state.name().to_owned(),
            StateRecord::Partition(_, None) => "no state".to_owned(),
            StateRecord::LastMirrored(_, Some(_)) => "position".to_owned(),
            StateRecord::LastMirrored(_, None) => "no position".to_owned(),
        };
        records.iter().map(spell).collect()
    }

    /// A later stop would take it for its own.
    #[test]
    fn a_position_that_counts_no_more_goes_though_the_disk_refuses_it_once() {
        let mut mirrors = aligned();
        assert_eq!(mirrors.last_mirrored(&key(1)), None);
        let batch = mirrors.take_records();
        assert_eq!(spelled(&batch.records()), ["MIRRORING", "no position"]);
        mirrors.on_stored(batch, &BTreeSet::from([0, 1]), at(1), || 0);
        assert!(mirrors.take_records().is_empty());
        mirrors.wake(at(2), || 0);
        let batch = mirrors.take_records();
        assert_eq!(spelled(&batch.records()), ["MIRRORING", "no position"]);
        mirrors.on_stored(batch, &BTreeSet::from([1]), at(2), || 0);
        mirrors.wanted(&key(1), DesiredState::Stopped, at(3), 0);
        let batch = mirrors.take_records();
        assert_eq!(spelled(&batch.records()), ["no position", "STOPPING"]);
        mirrors.on_stored(batch, &BTreeSet::from([0, 1]), at(3), || 0);
        mirrors.set_last_mirrored(key(1), Some(last()));
        mirrors.wake(at(4), || 0);
        assert_eq!(spelled(&mirrors.take_records().records()), ["STOPPING"]);
    }

    /// The log is another source's from here on.
    #[test]
    fn an_alignment_outdates_positions_of_all_mirrors() {
        let mut mirrors = Mirrors::new(RetryPolicy::default());
        let other = MirrorKey { mirror: "other".into(), ..key(1) };
        mirrors.restore(StateRecord::LastMirrored(other.clone(), Some(last())));
        mirrors.restore(StateRecord::LastMirrored(key(2), Some(last())));
        mirrors.outdate(&key(1));
        assert_eq!(mirrors.last_mirrored(&other), None);
        assert_eq!(mirrors.last_mirrored(&key(2)), Some(last()));
    }

    /// A mirror made anew under the same name must not inherit them.
    #[test]
    fn tombstones_that_were_refused_come_before_the_next_states() {
        let mut mirrors = Mirrors::new(RetryPolicy::default());
        mirrors.owe(super::super::state_log::tombstones(&key(1)).to_vec());
        assert!(mirrors.take_records().is_empty());
        mirrors.wanted(&key(1), DesiredState::Mirroring, at(0), 0);
        let records = mirrors.take_records().records();
        assert_eq!(spelled(&records), ["no state", "no position", "LOG_TRUNCATION"]);
    }

    #[test]
    fn what_no_topic_of_a_mirror_has_is_gone() {
        let mut mirrors = Mirrors::new(RetryPolicy::default());
        mirrors.restore(StateRecord::LastMirrored(key(1), Some(last())));
        mirrors.restore(StateRecord::Partition(key(2), Some(Stored::default())));
        let gone = mirrors.gone(&MetadataImage::default());
        assert_eq!(gone, BTreeSet::from([key(1), key(2)]));
    }
}

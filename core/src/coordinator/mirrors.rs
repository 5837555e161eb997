//! All mirrored partitions of a host: which of them have something to store or to do, and which
//! wait for what time.
//!
//! Each is a [`PartitionMirror`]; here their actions are gathered, so that the states of many
//! partitions are stored together, and what follows is begun together.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use super::partition::{Action, Cx, Event, PartitionMirror, Run, Stored};
use super::record::{LastMirrored, MirrorKey, StateRecord};
use super::retry::RetryPolicy;
use super::state::{DesiredState, MirrorState};
use crate::time::Tick;
use crate::types::LeaderEpoch;

/// What is to be done about one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Do what the state is about, and report with this run.
    Begin(MirrorKey, MirrorState, Run),
    /// End what was begun; nobody waits for its report.
    Abandon(MirrorKey, Run),
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

    /// What a stop has left, once it is durable.
    pub fn set_last_mirrored(&mut self, key: MirrorKey, last: LastMirrored) {
        self.last_mirrored.insert(key, last);
    }

    /// States to be made durable in one go. Each is answered with [`Event::Stored`] or
    /// [`Event::NotStored`].
    #[must_use]
    pub fn take_to_store(&mut self) -> Vec<(MirrorKey, Stored)> {
        take(&mut self.to_store)
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
    use std::sync::Arc;
    use std::time::Duration;

    use uuid::Uuid;

    use super::super::partition::Failure;
    use super::*;
    use crate::types::{Offset, TopicId};

    fn key(partition: i32) -> MirrorKey {
        MirrorKey { mirror: "m".into(), topic: TopicId(Uuid::from_u128(7)), partition }
    }

    fn at(seconds: u64) -> Tick {
        Tick::ZERO.after(Duration::from_secs(seconds))
    }

    /// Everything that waits is stored; the states, in order.
    fn store_all(mirrors: &mut Mirrors, now: Tick) -> Vec<MirrorState> {
        let batch = mirrors.take_to_store();
        batch
            .into_iter()
            .map(|(key, stored)| {
                mirrors.tell(&key, Event::Stored, now, 0);
                stored.state
            })
            .collect()
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

    #[test]
    fn a_failed_one_is_woken_at_its_time_and_a_restart_waits_again() {
        let mut mirrors = Mirrors::new(RetryPolicy::default());
        mirrors.wanted(&key(0), DesiredState::Mirroring, at(0), 0);
        store_all(&mut mirrors, at(0));
        let Some(Step::Begin(key, _, run)) = mirrors.take_steps().pop() else { panic!("a step") };
        let failure = Failure { reason: Arc::from("why"), retryable: true };
        mirrors.tell(&key, Event::Failed(run, failure), at(1), 0);
        let stored = mirrors.take_to_store();
        mirrors.tell(&key, Event::Stored, at(1), 0);
        let due = mirrors.next_wake();
        assert!(due > at(2) && due < at(4), "{due:?}");
        mirrors.wake(at(2), || 0);
        assert_eq!(mirrors.take_to_store(), []);

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
        assert_eq!(mirrors.take_to_store(), []);
        assert_eq!(mirrors.keys_of("m"), BTreeSet::from([key(2)]));
    }
}

//! All partitions of a job, and which of them wait for what.
//!
//! A job looks for what is due after every event, so none of these looks may cost more with
//! more partitions. Whoever is lent to be changed is filed anew before the next look.

use std::collections::BTreeSet;

use heliostat_core::engine::message::PartitionKey;
use heliostat_core::time::Tick;
use heliostat_core::types::{TopicId, TopicPartition};

use super::copy::{Copy, Phase};

/// Where a partition is filed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filed {
    waits: Waits,
    reached: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waits {
    #[default]
    Nothing,
    /// Something is to be asked.
    Asks(Tick),
    /// An answer is awaited.
    Answer,
    Opens(Tick),
    Room,
}

impl Filed {
    fn of(copy: &Copy) -> Self {
        let waits = match copy.phase {
            Phase::Asks { due, asked: false, .. } => Waits::Asks(due),
            Phase::Asks { asked: true, .. } => Waits::Answer,
            Phase::Opens { due, .. } => Waits::Opens(due),
            Phase::NoRoom { .. } => Waits::Room,
            _ => Waits::Nothing,
        };
        Self { waits, reached: copy.reached_target() }
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// By key, which counts from 0.
    all: Vec<Copy>,
    /// Lent to be changed since they were filed, some of them more than once.
    lent: Vec<PartitionKey>,
    asks: BTreeSet<(Tick, PartitionKey)>,
    answers: BTreeSet<PartitionKey>,
    opens: BTreeSet<(Tick, PartitionKey)>,
    room: BTreeSet<PartitionKey>,
    /// Those that have reached their target.
    reached: usize,
    changes: u64,
}

impl Copies {
    /// Takes a copy in under the next key.
    pub(super) fn insert(&mut self, at: TopicPartition, topic_id: TopicId) -> PartitionKey {
        let key = PartitionKey(u64::try_from(self.all.len()).unwrap_or(u64::MAX));
        self.all.push(Copy::new(key, at, topic_id));
        self.lend(key);
        key
    }

    pub(super) fn get(&self, key: PartitionKey) -> Option<&Copy> {
        self.all.get(place(key))
    }

    pub(super) fn get_mut(&mut self, key: PartitionKey) -> Option<&mut Copy> {
        self.lend(key);
        self.all.get_mut(place(key))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Copy> + Clone {
        self.all.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Rises whenever a partition may have changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether each has what the source had when it was first seen, or never will. Not
    /// without partitions.
    pub(super) fn all_reached(&mut self) -> bool {
        self.file();
        !self.all.is_empty() && self.reached == self.all.len()
    }

    /// Up to `count` of those that have something to ask by `now`, the most urgent first.
    pub(super) fn due_to_ask(&mut self, now: Tick, count: usize) -> Vec<PartitionKey> {
        self.file();
        let due = self.asks.iter().take_while(|(due, _)| *due <= now);
        due.take(count).map(|(_, key)| *key).collect()
    }

    /// Up to `count` of those that are to be opened by `now`, the most urgent first.
    pub(super) fn due_to_open(&mut self, now: Tick, count: usize) -> Vec<PartitionKey> {
        self.file();
        let due = self.opens.iter().take_while(|(due, _)| *due <= now);
        due.take(count).map(|(_, key)| *key).collect()
    }

    /// Those that ask or await an answer.
    pub(super) fn asking(&mut self) -> Vec<PartitionKey> {
        self.file();
        self.answers.iter().copied().chain(self.asks.iter().map(|(_, key)| *key)).collect()
    }

    /// Those that wait for room on the disk.
    pub(super) fn waiting_for_room(&mut self) -> Vec<PartitionKey> {
        self.file();
        self.room.iter().copied().collect()
    }

    /// When the next one has something to ask.
    pub(super) fn next_ask(&mut self) -> Option<Tick> {
        self.file();
        self.asks.first().map(|(due, _)| *due)
    }

    /// When the next one is to be opened.
    pub(super) fn next_open(&mut self) -> Option<Tick> {
        self.file();
        self.opens.first().map(|(due, _)| *due)
    }

    fn lend(&mut self, key: PartitionKey) {
        self.changes += 1;
        if self.lent.last() != Some(&key) {
            self.lent.push(key);
        }
    }

    /// Files what was lent.
    pub(super) fn file(&mut self) {
        for key in std::mem::take(&mut self.lent) {
            let Some(copy) = self.all.get_mut(place(key)) else { continue };
            let (old, new) = (copy.filed, Filed::of(copy));
            if old == new {
                continue;
            }
            copy.filed = new;
            self.reached -= usize::from(old.reached);
            self.reached += usize::from(new.reached);
            match old.waits {
                Waits::Asks(due) => drop(self.asks.remove(&(due, key))),
                Waits::Answer => drop(self.answers.remove(&key)),
                Waits::Opens(due) => drop(self.opens.remove(&(due, key))),
                Waits::Room => drop(self.room.remove(&key)),
                Waits::Nothing => {}
            }
            match new.waits {
                Waits::Asks(due) => drop(self.asks.insert((due, key))),
                Waits::Answer => drop(self.answers.insert(key)),
                Waits::Opens(due) => drop(self.opens.insert((due, key))),
                Waits::Room => drop(self.room.insert(key)),
                Waits::Nothing => {}
            }
        }
    }
}

fn place(key: PartitionKey) -> usize {
    usize::try_from(key.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heliostat_core::types::Offset;

    use super::super::copy::{Opening, Want};
    use super::*;

    fn copies(count: u64) -> Copies {
        let mut copies = Copies::default();
        for key in 0..count {
            let at = TopicPartition::new("t", i32::try_from(key).unwrap());
            assert_eq!(copies.insert(at, TopicId::NONE), PartitionKey(key));
        }
        copies
    }

    fn at(ms: u64) -> Tick {
        Tick::ZERO.after(Duration::from_millis(ms))
    }

    #[test]
    fn who_is_changed_is_filed_anew() {
        let mut copies = copies(2);
        let [a, b] = [PartitionKey(0), PartitionKey(1)];
        assert_eq!(copies.due_to_ask(Tick::ZERO, 9), [a, b]);
        copies.get_mut(a).unwrap().phase =
            Phase::Asks { want: Want::Begin, due: at(5), asked: false };
        assert_eq!((copies.due_to_ask(at(4), 9), copies.next_ask()), (vec![b], Some(Tick::ZERO)));
        copies.get_mut(b).unwrap().phase =
            Phase::Asks { want: Want::Begin, due: at(1), asked: true };
        assert_eq!((copies.next_ask(), copies.asking()), (Some(at(5)), vec![b, a]));
        copies.get_mut(a).unwrap().phase = Phase::Opens { how: Opening::Whole, due: at(7) };
        assert_eq!((copies.next_ask(), copies.next_open()), (None, Some(at(7))));
        assert_eq!((copies.due_to_open(at(6), 9), copies.due_to_open(at(7), 9)), (vec![], vec![a]));
        copies.get_mut(a).unwrap().phase = Phase::NoRoom { how: Opening::Whole };
        assert_eq!((copies.next_open(), copies.waiting_for_room()), (None, vec![a]));
    }

    #[test]
    fn targets_are_reached_together() {
        let mut copies = copies(2);
        for key in [PartitionKey(0), PartitionKey(1)] {
            assert!(!copies.all_reached());
            let copy = copies.get_mut(key).unwrap();
            (copy.phase, copy.target) = (Phase::Active { shard: 0 }, Some(Offset::ZERO));
        }
        assert!(copies.all_reached());
        copies.get_mut(PartitionKey(1)).unwrap().target = Some(Offset(1));
        assert!(!copies.all_reached());
        assert!(!Copies::default().all_reached());
    }
}

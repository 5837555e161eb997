use proptest::prelude::*;

use super::*;
use crate::log::test_batch::batch;

fn cache(entries: &[(i32, i64)]) -> EpochCache {
    let entries = entries
        .iter()
        .map(|&(epoch, start)| EpochEntry {
            epoch: LeaderEpoch(epoch),
            start_offset: Offset(start),
        })
        .collect();
    EpochCache { entries }
}

#[track_caller]
fn assigned(before: &[(i32, i64)], entry: (i32, i64), after: &[(i32, i64)]) {
    let mut it = cache(before);
    let changed = it.assign(LeaderEpoch(entry.0), Offset(entry.1));
    assert_eq!(it, cache(after), "{before:?} and {entry:?}");
    assert_eq!(changed, before != after, "{before:?} and {entry:?}");
}

#[test]
fn assignments_follow_kafkas_rules() {
    assigned(&[], (0, 0), &[(0, 0)]);
    assigned(&[], (-1, 0), &[]);
    assigned(&[], (3, -1), &[]);
    // The latest epoch again: only an earlier start says anything new.
    assigned(&[(2, 10)], (2, 10), &[(2, 10)]);
    assigned(&[(2, 10)], (2, 20), &[(2, 10)]);
    assigned(&[(2, 10)], (2, 6), &[(2, 6)]);
    // Rising in both.
    assigned(&[(2, 10)], (4, 11), &[(2, 10), (4, 11)]);
    // A new epoch at the start of an epoch without records replaces it.
    assigned(&[(2, 10), (3, 15)], (4, 15), &[(2, 10), (4, 15)]);
    // The offset goes back.
    assigned(&[(1, 5), (2, 10), (3, 15)], (4, 8), &[(1, 5), (4, 8)]);
    // The epoch goes back, the offset does not.
    assigned(&[(1, 5), (2, 10), (3, 15)], (2, 20), &[(1, 5), (2, 20)]);
    assigned(&[(1, 5), (2, 10)], (0, 2), &[(0, 2)]);
}

#[test]
fn batches_feed_the_cache_and_old_formats_empty_it() {
    let mut it = EpochCache::default();
    assert!(it.on_batch(&batch(10, 19).epoch(3).meta()));
    assert!(!it.on_batch(&batch(20, 29).epoch(3).meta()));
    assert!(!it.on_batch(&batch(30, 39).epoch(-1).meta()));
    assert_eq!(it, cache(&[(3, 10)]));
    assert!(it.on_batch(&batch(40, 40).magic(1).epoch(-1).meta()));
    assert_eq!(it, cache(&[]));
    assert!(!it.on_batch(&batch(41, 41).magic(0).epoch(-1).meta()));
    assert!(it.on_batch(&batch(42, 43).epoch(3).meta()));
    assert_eq!(it, cache(&[(3, 42)]));
}

#[test]
fn end_offsets_are_kafkas() {
    let it = cache(&[(2, 10), (4, 15), (7, 30)]);
    let ask = |requested| {
        let (epoch, end) = it.end_offset_for(LeaderEpoch(requested), Offset(50));
        (epoch.0, end.0)
    };
    assert_eq!(ask(-1), (-1, -1));
    assert_eq!(ask(0), (0, 10), "older than all: itself, and the start of the oldest");
    assert_eq!(ask(2), (2, 15));
    assert_eq!(ask(3), (2, 15), "between two: the lower");
    assert_eq!(ask(6), (4, 30));
    assert_eq!(ask(7), (7, 50), "the latest ends with the log");
    assert_eq!(ask(8), (-1, -1), "newer than all");
    assert_eq!(
        EpochCache::default().end_offset_for(LeaderEpoch(0), Offset(9)),
        (LeaderEpoch::NONE, Offset::NONE)
    );
}

#[test]
fn truncations_keep_what_is_left_of_the_log() {
    let all = [(2, 10), (4, 15), (7, 30)];
    let cut = |from_end: i64| {
        let mut it = cache(&all);
        (it.truncate_from_end(Offset(from_end)), it)
    };
    assert_eq!(cut(31), (false, cache(&all)));
    assert_eq!(cut(30), (true, cache(&[(2, 10), (4, 15)])));
    assert_eq!(cut(16), (true, cache(&[(2, 10), (4, 15)])));
    assert_eq!(cut(0), (true, cache(&[])));
    assert_eq!(cut(-1), (false, cache(&all)));
    let trim = |start: i64| {
        let mut it = cache(&all);
        (it.truncate_from_start(Offset(start)), it)
    };
    assert_eq!(trim(9), (false, cache(&all)));
    assert_eq!(trim(10), (false, cache(&all)));
    assert_eq!(trim(12), (true, cache(&[(2, 12), (4, 15), (7, 30)])));
    assert_eq!(trim(15), (true, cache(&[(4, 15), (7, 30)])));
    assert_eq!(trim(99), (true, cache(&[(7, 99)])));
}

#[test]
fn offsets_know_their_epoch() {
    let it = cache(&[(2, 10), (4, 15)]);
    assert_eq!(it.epoch_for_offset(Offset(9)), None);
    assert_eq!(it.epoch_for_offset(Offset(10)), Some(LeaderEpoch(2)));
    assert_eq!(it.epoch_for_offset(Offset(14)), Some(LeaderEpoch(2)));
    assert_eq!(it.epoch_for_offset(Offset(99)), Some(LeaderEpoch(4)));
}

#[test]
fn the_checkpoint_is_kafkas() {
    let it = cache(&[(0, 0), (3, 4_211)]);
    assert_eq!(it.encode(), "0\n2\n0 0\n3 4211\n");
    assert_eq!(EpochCache::decode(b"0\n2\n0 0\n3 4211\n"), Ok(it));
    assert_eq!(EpochCache::decode(b"0\n3\n1 5\n2 9\n1 7\n"), Ok(cache(&[(1, 7)])));
    assert_eq!(
        EpochCache::decode(b"0\n1\n-1 5\n").unwrap_err().to_string(),
        "leader-epoch-checkpoint, line 3: want an epoch and an offset, neither negative, \
         got \"-1 5\""
    );
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Assign { epoch: i32, start: i64 },
    TruncateFromEnd(i64),
    TruncateFromStart(i64),
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    // Small ranges on purpose: collisions are where the bugs are.
    prop_oneof![
        8 => (-1..8_i32, -1..32_i64).prop_map(|(epoch, start)| Op::Assign { epoch, start }),
        2 => (-1..34_i64).prop_map(Op::TruncateFromEnd),
        2 => (-1..34_i64).prop_map(Op::TruncateFromStart),
        1 => Just(Op::Clear),
    ]
}

/// A sorted map, as Kafka keeps it, with every rule as a filter over all entries.
#[derive(Default)]
struct Model(std::collections::BTreeMap<i32, i64>);

impl Model {
    fn apply(&mut self, op: Op) {
        match op {
            Op::Assign { epoch, start } if epoch < 0 || start < 0 => {}
            Op::Assign { epoch, start } => {
                let needed = self.0.last_key_value().is_none_or(|(e, s)| *e != epoch || start < *s);
                if needed {
                    self.0.retain(|e, s| *e < epoch && *s < start);
                    self.0.insert(epoch, start);
                }
            }
            Op::TruncateFromEnd(end) if end < 0 => {}
            Op::TruncateFromEnd(end) => self.0.retain(|_, start| *start < end),
            Op::TruncateFromStart(log_start) => {
                let last = self.0.iter().rfind(|(_, start)| **start <= log_start);
                if let Some((epoch, _)) = last.map(|(e, s)| (*e, *s)) {
                    self.0.retain(|_, start| *start > log_start);
                    self.0.insert(epoch, log_start);
                }
            }
            Op::Clear => self.0.clear(),
        }
    }

    fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        self.0.iter().filter(|(_, start)| **start <= offset).map(|(epoch, _)| *epoch).max()
    }

    fn end_offset_for(&self, requested: i32, log_end: i64) -> (i32, i64) {
        let next = self.0.iter().find(|(epoch, _)| **epoch > requested);
        let floor = self.0.iter().rfind(|(epoch, _)| **epoch <= requested);
        match (floor, next) {
            _ if requested == -1 => (-1, -1),
            (Some((floor, _)), None) if *floor == requested => (requested, log_end),
            (_, None) => (-1, -1),
            (None, Some((_, start))) => (requested, *start),
            (Some((floor, _)), Some((_, start))) => (*floor, *start),
        }
    }
}

proptest! {
    /// Whatever a source says, the cache answers as Kafka's map does, and epochs
    /// and start offsets both rise strictly.
    #[test]
    fn agrees_with_the_model(ops in prop::collection::vec(op(), 0..64)) {
        let (mut it, mut model) = (EpochCache::default(), Model::default());
        for op in ops {
            let before = it.clone();
            let changed = match op {
                Op::Assign { epoch, start } => it.assign(LeaderEpoch(epoch), Offset(start)),
                Op::TruncateFromEnd(end) => it.truncate_from_end(Offset(end)),
                Op::TruncateFromStart(start) => it.truncate_from_start(Offset(start)),
                Op::Clear => it.clear(),
            };
            model.apply(op);
            let want: Vec<_> = model.0.iter().map(|(epoch, start)| (*epoch, *start)).collect();
            prop_assert_eq!(&it, &cache(&want), "after {:?}", op);
            prop_assert_eq!(changed, it != before, "after {:?}", op);
            let rising = |a: &EpochEntry, b: &EpochEntry| {
                a.epoch < b.epoch && a.start_offset < b.start_offset
            };
            prop_assert!(it.entries().is_sorted_by(rising), "after {:?}", op);
            for ask in -2..10 {
                let (epoch, end) = it.end_offset_for(LeaderEpoch(ask), Offset(40));
                prop_assert_eq!((epoch.0, end.0), model.end_offset_for(ask, 40));
                let at = i64::from(ask) * 4;
                prop_assert_eq!(
                    it.epoch_for_offset(Offset(at)).map(|epoch| epoch.0),
                    model.epoch_for_offset(at)
                );
            }
            prop_assert_eq!(EpochCache::decode(it.encode().as_bytes()), Ok(it.clone()));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, text in "[0-9 \n-]{0,60}") {
        let _ = EpochCache::decode(&bytes);
        let _ = EpochCache::decode(text.as_bytes());
    }
}

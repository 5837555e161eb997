use std::error::Error;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::coordinator::state::MirrorState;
use crate::log::cold_log::ColdLog;
use crate::log::config::LogConfigValues;
use crate::log::test_store::{TestStore, Torn};
use crate::records::{BatchBuilder, NewRecord};

const AS: AppendAs = AppendAs { timestamp: TimestampMs(5_000), leader_epoch: LeaderEpoch(3) };

/// Four partitions, small segments, compacted from 2,000 bytes on.
fn options() -> StateLogOptions {
    let values = LogConfigValues {
        segment_bytes: 1_500,
        index_interval_bytes: 300,
        ..LogConfigValues::default()
    };
    StateLogOptions {
        partitions: 4,
        log: LogConfig::new(values).unwrap(),
        compact_bytes_min: 2_000,
        ..StateLogOptions::default()
    }
}

/// A log dir that is there and empty.
fn empty() -> TestStore {
    TestStore::default()
}

fn open(store: &mut TestStore) -> (StateLog, Replayed) {
    StateLog::open(store, options()).unwrap()
}

fn key(index: u32) -> MirrorKey {
    let topic = TopicId(Uuid::from_u128(u128::from(index) + 1));
    MirrorKey { mirror: "west".into(), topic, partition: 0 }
}

fn stored(count: i32) -> Stored {
    Stored { state: MirrorState::Mirroring, state_epoch: count, ..Stored::default() }
}

fn state(index: u32, count: i32) -> StateRecord {
    StateRecord::Partition(key(index), Some(stored(count)))
}

fn last(index: u32, offset: i64) -> StateRecord {
    let last = LastMirrored { epoch: LeaderEpoch(2), offset: Offset(offset) };
    StateRecord::LastMirrored(key(index), Some(last))
}

fn dirs(store: &TestStore) -> Vec<String> {
    store.list("").unwrap().into_iter().map(|entry| entry.name).collect()
}

/// What another start of the host would find.
fn reopened(store: &TestStore) -> Replayed {
    let mut copy = store.clone();
    open(&mut copy).1
}

#[test]
fn what_is_acknowledged_is_found_again() {
    let mut store = empty();
    let (mut log, found) = open(&mut store);
    assert_eq!((found, log.partition_count()), (Replayed::default(), 4));
    assert!(dirs(&store).is_empty(), "nothing is made before there is something to keep");
    log.append(&mut store, &[], AS).unwrap();
    assert!(dirs(&store).is_empty());
    let records = [state(1, 1), last(1, 70), state(2, 1), state(1, 2), state(3, 1)];
    log.append(&mut store, &records, AS).unwrap();
    assert_eq!(dirs(&store), (0..4).map(|n| format!("__mirror_state-{n}")).collect::<Vec<_>>());
    log.append(&mut store, &tombstones(&key(2)), AS).unwrap();
    let found = reopened(&store);
    assert_eq!(found.states, BTreeMap::from([(key(1), stored(2)), (key(3), stored(1))]));
    let end = LastMirrored { epoch: LeaderEpoch(2), offset: Offset(70) };
    assert_eq!(found.last_mirrored, BTreeMap::from([(key(1), end)]));
    assert_eq!((found.unknown, found.cuts), (0, vec![]));
    // Both records of a key are in the partition of its hash, and nowhere else.
    let ends: BTreeMap<_, _> = log.ends().collect();
    let mut want = BTreeMap::from([0, 1, 2, 3].map(|n| (n, Offset(0))));
    for (index, records) in [(1, 3), (2, 3), (3, 1)] {
        let end = want.get_mut(&log.partition_of(&key(index))).unwrap();
        *end = end.plus(records);
    }
    assert_eq!(ends, want);
}

#[test]
fn the_directories_say_how_many_partitions_there_are() {
    let mut store = empty();
    let (mut log, _) = open(&mut store);
    log.append(&mut store, &[state(1, 1)], AS).unwrap();
    for partitions in [1, 50] {
        let options = StateLogOptions { partitions, ..options() };
        let (mut log, found) = StateLog::open(&mut store, options).unwrap();
        assert_eq!((log.partition_count(), found.states.len()), (4, 1));
        log.append(&mut store, &[state(1, i32::from(partitions))], AS).unwrap();
    }
    assert_eq!(reopened(&store).states, BTreeMap::from([(key(1), stored(50))]));
    // A crash in the making leaves the last directory, or none.
    for calls in 0.. {
        let mut store = empty();
        let (mut log, _) = open(&mut store);
        store.crash_after(calls, Torn::All);
        let made = log.append(&mut store, &[state(1, 1)], AS).is_ok();
        store.restart();
        let options = StateLogOptions { partitions: 9, ..options() };
        let (log, _) = StateLog::open(&mut store, options).unwrap();
        assert_eq!(log.partition_count(), if dirs(&store).is_empty() { 9 } else { 4 });
        if made {
            break;
        }
    }
}

#[test]
fn one_partitions_failure_is_that_partitions() {
    let mut store = empty();
    let (mut log, _) = open(&mut store);
    log.append(&mut store, &[state(0, 0)], AS).unwrap();
    let records: Vec<_> = (1..20).map(|index| state(index, 1)).collect();
    let broken = log.partition_of(&key(1));
    store.broken = vec![format!("__mirror_state-{broken}")];
    let error = log.append(&mut store, &records, AS).unwrap_err();
    let want: Vec<_> = (0..records.len())
        .filter(|index| log.partition_of(records[*index].key()) == broken)
        .collect();
    assert!(want.len() > 1 && want.len() < records.len());
    assert!(error.source().is_some());
    let StateAppendError::NotDurable { not_durable, .. } = error else { panic!("{error}") };
    assert_eq!(not_durable, want);
    let mut whole = store.clone();
    whole.broken.clear();
    let found = reopened(&whole);
    assert_eq!(found.states.len(), records.len() - want.len() + 1);
    // As long as it is broken nothing changes, and then it goes on by itself.
    let again: Vec<_> = want.iter().map(|index| records[*index].clone()).collect();
    assert!(log.append(&mut store, &again, AS).is_err());
    store.broken.clear();
    log.append(&mut store, &again, AS).unwrap();
    assert_eq!(reopened(&store).states.len(), records.len() + 1);
}

#[test]
fn a_record_that_no_log_holds_is_refused_before_anything_is_written() {
    let mut store = empty();
    let (mut log, _) = open(&mut store);
    let long = MirrorKey { mirror: "m".repeat(40_000).into(), ..key(1) };
    let records = [state(1, 1), StateRecord::Partition(long, None)];
    let refused = log.append(&mut store, &records, AS).unwrap_err();
    assert!(matches!(refused, StateAppendError::Refused { index: 1, .. }), "{refused}");
    assert!(dirs(&store).is_empty());
}

#[test]
fn epochs_do_not_go_back() {
    let mut store = empty();
    let (mut log, _) = open(&mut store);
    log.append(&mut store, &[state(1, 1)], AS).unwrap();
    let old = AppendAs { leader_epoch: LeaderEpoch(2), ..AS };
    let error = log.append(&mut store, &[state(1, 2)], old).unwrap_err();
    let StateAppendError::NotDurable { source, .. } = error else { panic!("{error}") };
    assert!(matches!(*source, StateWriteError::Append(_)), "{source}");
    log.append(&mut store, &[state(1, 3)], AS).unwrap();
    assert_eq!(reopened(&store).states, BTreeMap::from([(key(1), stored(3))]));
}

/// Key and value.
type RawRecord<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Writes records of any bytes to partition 0.
fn write_raw(store: &mut TestStore, records: &[RawRecord<'_>]) {
    let options = StateLog { options: options(), partitions: vec![] }.open_options(0);
    let (mut log, _) = ColdLog::open(store, "__mirror_state-0", &options).unwrap();
    let mut batch = BatchBuilder::new(log.log_end()).leader_epoch(LeaderEpoch(3));
    for (key, value) in records {
        let (key, value) = (*key, *value);
        batch.push(&NewRecord { timestamp: TimestampMs(1), key, value, headers: &[] }).unwrap();
    }
    log.append(store, &batch.build().unwrap()).unwrap();
}

#[test]
fn what_a_later_version_wrote_is_passed_over_and_kept() {
    let mut store = empty();
    let (mut log, _) = open(&mut store);
    log.append(&mut store, &[state(1, 1)], AS).unwrap();
    let known = state(1, 2).encode_key().unwrap();
    write_raw(
        &mut store,
        &[
            (Some(b"\0\x09key"), Some(b"v")),
            (Some(&known), Some(b"\0\x05new")),
            (Some(b"\0\x09"), None),
        ],
    );
    let (mut log, found) = open(&mut store);
    assert_eq!((found.unknown, found.states.len()), (3, 1));
    let filler: Vec<_> = (0..400).map(|count| state(2 + count % 7, 1)).collect();
    for records in filler.chunks(9) {
        log.append(&mut store, records, AS).unwrap();
        while log.compact_due(&mut store).unwrap().is_some() {}
    }
    let found = reopened(&store);
    assert_eq!((found.unknown, found.states.len()), (3, 8));
}

#[test]
fn what_cannot_be_decoded_is_named() {
    let refused = |record: RawRecord<'_>| {
        let mut store = empty();
        let (mut log, _) = open(&mut store);
        log.append(&mut store, &[state(9, 1)], AS).unwrap();
        let good = state(1, 1);
        let (key, value) = (good.encode_key().unwrap(), good.encode_value().unwrap());
        let before = log.ends().next().unwrap().1.0;
        write_raw(&mut store, &[(Some(&key), Some(&value)), record]);
        let error = StateLog::open(&mut store, options()).unwrap_err();
        (before, format!("{error}: {:?}", error.source().map(ToString::to_string)))
    };
    let key = state(1, 1).encode_key().unwrap();
    let (at, text) = refused((Some(&key), Some(b"\0\0\x0b\x10\0\0\0\0")));
    assert_eq!(
        text,
        format!(
            "__mirror_state-0, offset {}: the record cannot be decoded; see it with dump-log \
             --mirror-state-decoder: Some(\"__mirror_state: state 11 is unknown\")",
            at + 1
        )
    );
    let (at, text) = refused((None, Some(b"x")));
    assert_eq!(text, format!("__mirror_state-0, offset {}: the record has no key: None", at + 1));
}

#[test]
fn a_torn_end_is_cut_and_told() {
    let mut store = empty();
    let (mut log, _) = open(&mut store);
    log.append(&mut store, &[state(1, 1)], AS).unwrap();
    let index = log.partition_of(&key(1));
    let dir = format!("__mirror_state-{index}");
    let file = store.get_mut(&dir, "00000000000000000000.log").unwrap();
    file.extend_from_slice(&[9; 40]);
    let (_, found) = open(&mut store);
    assert_eq!(found.states.len(), 1);
    let [(partition, cut)] = found.cuts[..] else { panic!("one cut: {:?}", found.cuts) };
    assert_eq!((partition, cut.from, cut.bytes), (index, Offset(1), 40));
    // What was durable is not cut but named.
    let file = store.get_mut(&dir, "00000000000000000000.log").unwrap();
    file[70] ^= 1;
    let recovery_points = BTreeMap::from([(index, Offset(1))]);
    let refused = StateLog::open(&mut store, StateLogOptions { recovery_points, ..options() });
    assert!(matches!(refused, Err(StateLogError::Open { .. })), "{refused:?}");
}

/// 100,000 records are several batches in each partition, each of 1 MiB at most.
#[test]
fn any_number_of_records_goes_in_at_once() {
    let mut store = empty();
    let options = StateLogOptions { partitions: 2, ..StateLogOptions::default() };
    let (mut log, _) = StateLog::open(&mut store, options.clone()).unwrap();
    let records: Vec<_> = (0..100_000).map(|index| state(index, 1)).collect();
    log.append(&mut store, &records, AS).unwrap();
    let (again, found) = StateLog::open(&mut store, options).unwrap();
    assert_eq!(found.states.len(), records.len());
    assert_eq!(again.ends().map(|(_, end)| end.0).sum::<i64>(), 100_000);
    for partition in &again.partitions {
        let mut sizes = Vec::new();
        let read = partition.log().unwrap().read(&store, Offset::ZERO, &mut |meta, _| {
            sizes.push(meta.size_bytes);
            std::ops::ControlFlow::Continue(())
        });
        assert!(read.is_ok() && sizes.len() > 2);
        assert!(sizes.iter().all(|size| *size <= 1 << 20), "{sizes:?}");
    }
}

#[test]
fn compaction_leaves_the_newest_of_each_key_where_it_is() {
    let mut store = empty();
    let (mut log, _) = open(&mut store);
    let mut compacted = 0;
    for round in 0..60 {
        let mut records: Vec<_> = (0..4).map(|index| state(index, round)).collect();
        records.push(last(1, round.into()));
        log.append(&mut store, &records, AS).unwrap();
        while log.compact_due(&mut store).unwrap().is_some() {
            compacted += 1;
        }
    }
    assert!(compacted > 2, "{compacted}");
    let sizes: u64 = log.size_bytes();
    assert!(sizes < 4 * 2_000, "each partition stays below the least size: {sizes}");
    let before: Vec<_> = log.ends().collect();
    assert_eq!(before.iter().map(|(_, end)| end.0).sum::<i64>(), 300);
    let found = reopened(&store);
    assert_eq!(found.states, (0..4).map(|index| (key(index), stored(59))).collect());
    assert_eq!(found.last_mirrored[&key(1)].offset, Offset(59));
    // With everything deleted, next to nothing is left.
    for index in 0..4 {
        log.append(&mut store, &tombstones(&key(index)), AS).unwrap();
    }
    log.options.compact_bytes_min = 100;
    while log.compact_due(&mut store).unwrap().is_some() && log.size_bytes() > 4 * 100 {}
    assert!(log.size_bytes() <= 4 * 100, "{}", log.size_bytes());
    assert_eq!(reopened(&store), Replayed::default());
    let after: Vec<_> = log.ends().collect();
    assert!(before.iter().zip(&after).all(|(before, after)| before.1 <= after.1));
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(u32, Option<i32>, bool)>),
    Compact,
    Restart { with_points: bool },
}

fn steps() -> impl Strategy<Value = Vec<(Step, Option<(u64, usize)>)>> {
    let record = (0..6_u32, prop::option::weighted(0.7, 0..1_000_i32), any::<bool>());
    let step = prop_oneof![
        6 => prop::collection::vec(record, 1..25).prop_map(Step::Append),
        3 => Just(Step::Compact),
        1 => any::<bool>().prop_map(|with_points| Step::Restart { with_points }),
    ];
    let crash = prop::option::weighted(0.3, (0..40_u64, 0..3_usize));
    prop::collection::vec((step, crash), 1..40)
}

type Values = BTreeMap<(u32, bool), Option<i32>>;

fn record(index: u32, value: Option<i32>, is_state: bool) -> StateRecord {
    match (is_state, value) {
        (true, Some(value)) => state(index, value),
        (false, Some(value)) => last(index, value.into()),
        (true, None) => StateRecord::Partition(key(index), None),
        (false, None) => StateRecord::LastMirrored(key(index), None),
    }
}

fn values(found: &Replayed) -> Values {
    let mut all = Values::new();
    for index in 0..6 {
        let state = found.states.get(&key(index)).map(|stored| stored.state_epoch);
        let last = found.last_mirrored.get(&key(index));
        all.insert((index, true), state);
        all.insert((index, false), last.map(|last| i32::try_from(last.offset.0).unwrap()));
    }
    all
}

proptest! {
    /// Puts, tombstones, crashes anywhere, compactions: after each opening every key has the
    /// value that was acknowledged last, or a later one that was under way.
    #[test]
    fn acknowledged_values_survive(steps in steps()) {
        let mut store = empty();
        let small = StateLogOptions { compact_bytes_min: 500, ..options() };
        let (mut log, found) = StateLog::open(&mut store, small.clone()).unwrap();
        let mut model = values(&found);
        let mut ends = BTreeMap::new();
        for (step, crash) in steps {
            if let Some((calls, torn)) = crash {
                store.crash_after(calls, Torn::ALL[torn]);
            }
            // Per key, what may be found besides the model's value.
            let mut under_way: BTreeMap<(u32, bool), Vec<Option<i32>>> = BTreeMap::new();
            let mut restart = None;
            match step {
                Step::Append(records) => {
                    let encoded: Vec<_> =
                        records.iter().map(|(i, value, is_state)| record(*i, *value, *is_state)).collect();
                    let lost = match log.append(&mut store, &encoded, AS) {
                        Ok(()) => vec![],
                        Err(StateAppendError::NotDurable { not_durable, .. }) => not_durable,
                        Err(error) => panic!("{error}"),
                    };
                    for (place, (index, value, is_state)) in records.into_iter().enumerate() {
                        if lost.contains(&place) {
                            under_way.entry((index, is_state)).or_default().push(value);
                        } else {
                            model.insert((index, is_state), value);
                        }
                    }
                    if !lost.is_empty() {
                        restart = Some(false);
                    }
                }
                Step::Compact => match log.compact_due(&mut store) {
                    Ok(_) => {}
                    Err(_) => restart = Some(true),
                },
                Step::Restart { with_points } => restart = Some(with_points),
            }
            store.restart();
            if restart.is_none() {
                ends = log.ends().collect();
            }
            if let Some(with_points) = restart {
                let recovery_points = if with_points { ends.clone() } else { BTreeMap::new() };
                let options = StateLogOptions { recovery_points, ..small.clone() };
                let (opened, found) = StateLog::open(&mut store, options).unwrap();
                for (key, value) in values(&found) {
                    let late = under_way.get(&key);
                    let fits = model[&key] == value || late.is_some_and(|late| late.contains(&value));
                    prop_assert!(fits, "{:?}: {:?} is not {:?} or {:?}", key, value, model[&key], late);
                    model.insert(key, value);
                }
                log = opened;
            }
        }
        prop_assert_eq!(values(&reopened(&store)), model);
    }
}

use proptest::prelude::*;

use super::*;
use crate::log::config::LogConfigValues;
use crate::log::index::TimeIndexFile;
use crate::log::partition::PartitionLog;
use crate::log::test_store::{TestStore, Torn};
use crate::log::txn_index;
use crate::records::{BatchBuilder, EndTxnMarker, NewRecord};
use crate::types::{ProducerEpoch, ProducerId, TopicId};

const DIR: &str = "t-0";

/// Segments of 600 bytes, an index entry each 100.
fn options() -> OpenOptions {
    let values = LogConfigValues {
        segment_bytes: 600,
        index_interval_bytes: 100,
        ..LogConfigValues::default()
    };
    OpenOptions {
        config: LogConfig::new(values).unwrap(),
        topic_id: TopicId::NONE,
        clean: false,
        recovery_point: Offset::ZERO,
        log_start: None,
        truncate_to: None,
        now_ms: 1_000,
    }
}

fn open(store: &mut TestStore) -> ColdLog {
    ColdLog::open(store, DIR, &options()).unwrap().0
}

/// A batch of `records` records with values of 30 bytes.
fn data(base: i64, records: i64, epoch: i32) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Offset(base)).leader_epoch(LeaderEpoch(epoch));
    push(&mut batch, base, records);
    batch.build().unwrap()
}

fn push(batch: &mut BatchBuilder, base: i64, records: i64) {
    for index in 0..records {
        let (timestamp, value) = (TimestampMs(1_000 + base + index), [7; 30]);
        let record = NewRecord { timestamp, key: None, value: Some(&value), headers: &[] };
        batch.push(&record).unwrap();
    }
}

fn txn(base: i64, producer: i64, epoch: i32) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Offset(base))
        .leader_epoch(LeaderEpoch(epoch))
        .producer(ProducerId(producer), ProducerEpoch(3), 0)
        .transactional();
    push(&mut batch, base, 1);
    batch.build().unwrap()
}

fn abort(offset: i64, producer: i64, epoch: i32) -> Vec<u8> {
    let marker = EndTxnMarker {
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(epoch),
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(3),
        coordinator_epoch: 0,
        committed: false,
        timestamp: TimestampMs(2_000),
    };
    marker.build().unwrap()
}

/// All bytes from `from` on.
fn read(log: &ColdLog, store: &TestStore, from: i64) -> Vec<u8> {
    let mut all = Vec::new();
    log.read(store, Offset(from), &mut |meta, bytes| {
        assert_eq!(usize::try_from(meta.size_bytes), Ok(bytes.len()));
        all.extend_from_slice(bytes);
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

/// Everything that another recovery would find must be what is held in memory.
fn check_as_recovered(log: ColdLog, store: &TestStore) {
    let mut copy = store.clone();
    let (again, report) = ColdLog::open(&mut copy, DIR, &options()).unwrap();
    // The snapshot of a roll that a crash ended stays as long as it is the newest one.
    let is_snapshot = |name: &&str| name.contains(".snapshot");
    assert_eq!(report.cut, None);
    assert!(report.removed.iter().all(|name| is_snapshot(&name.as_str())), "{report:?}");
    // Indexes are made anew by recovery; those that were appended were the same.
    for name in copy.names(DIR) {
        assert_eq!(store.get(DIR, name), copy.get(DIR, name), "{name}");
    }
    let (log, again) = (log.into_recovered().unwrap(), again.into_recovered().unwrap());
    assert_eq!(log.log_start, again.log_start);
    assert_eq!(log.log_end, again.log_end);
    assert_eq!(log.sealed, again.sealed);
    assert_eq!(log.epochs, again.epochs);
    assert_eq!(log.producers.snapshot(), again.producers.snapshot());
    let (active, again) = (log.active.unwrap(), again.active.unwrap());
    assert_eq!(active.base, again.base);
    assert_eq!(active.size_bytes, again.size_bytes);
    assert_eq!(active.side_bytes, again.side_bytes);
    assert_eq!(active.indexes, again.indexes);
    assert_eq!(active.first_timestamp, again.first_timestamp);
}

/// Four segments of three epochs, with an aborted transaction that spans two of them.
fn script() -> Vec<Vec<u8>> {
    vec![
        [data(0, 2, 1), data(2, 3, 1)].concat(),
        [data(5, 1, 2), txn(6, 77, 2), data(7, 4, 2), data(11, 5, 4)].concat(),
        data(16, 9, 4),
        [abort(25, 77, 4), data(26, 1, 6)].concat(),
    ]
}

#[test]
fn what_is_appended_is_there_and_as_kafka_would_have_it() {
    let mut store = TestStore::default();
    let mut log = open(&mut store);
    let mut all = Vec::new();
    for batches in script() {
        log.append(&mut store, &batches).unwrap();
        all.extend(batches);
        assert_eq!(read(&log, &store, 0), all);
    }
    assert_eq!((log.log_start(), log.log_end()), (Offset(0), Offset(27)));
    assert_eq!(log.size_bytes(), u64::try_from(all.len()).unwrap());
    assert_eq!(store.get(DIR, "leader-epoch-checkpoint").unwrap(), b"0\n4\n1 0\n2 5\n4 11\n6 26\n");
    assert_eq!(
        store.names(DIR),
        [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "00000000000000000007.index",
            "00000000000000000007.log",
            "00000000000000000007.snapshot",
            "00000000000000000007.timeindex",
            "00000000000000000016.index",
            "00000000000000000016.log",
            "00000000000000000016.snapshot",
            "00000000000000000016.timeindex",
            "00000000000000000016.txnindex",
            "leader-epoch-checkpoint",
        ]
    );
    let aborted = store.get(DIR, "00000000000000000016.txnindex").unwrap();
    let aborted = txn_index::decode(Offset(16), aborted).unwrap();
    let aborted: Vec<_> = aborted.iter().map(|it| (it.first_offset.0, it.last_offset.0)).collect();
    assert_eq!(aborted, [(6, 25)]);
    let index = store.get(DIR, "00000000000000000000.index").unwrap();
    let offsets: Vec<_> =
        OffsetIndexFile::parse(Offset(0), index).unwrap().iter().map(|it| it.offset.0).collect();
    assert_eq!(offsets, [4, 5]);
    let times = store.get(DIR, "00000000000000000000.timeindex").unwrap();
    let last = TimeIndexFile::parse(Offset(0), times).unwrap().last().unwrap();
    assert_eq!((last.timestamp, last.offset), (TimestampMs(1_006), Offset(6)));
    check_as_recovered(log, &store);
}

#[test]
fn a_read_begins_with_the_batch_that_holds_the_offset() {
    let mut store = TestStore::default();
    let mut log = open(&mut store);
    for batches in script() {
        log.append(&mut store, &batches).unwrap();
    }
    let first_of = |from: i64| {
        let mut first = None;
        log.read(&store, Offset(from), &mut |meta, _| {
            first = Some((meta.base_offset.0, meta.last_offset.0));
            ControlFlow::Break(())
        })
        .unwrap();
        first
    };
    for (from, batch) in [(0, (0, 1)), (1, (0, 1)), (4, (2, 4)), (9, (7, 10)), (15, (11, 15))] {
        assert_eq!(first_of(from), Some(batch), "{from}");
    }
    assert_eq!(first_of(26), Some((26, 26)));
    assert_eq!(first_of(27), None);
}

#[test]
fn damage_that_comes_later_is_named() {
    let mut store = TestStore::default();
    let mut log = open(&mut store);
    log.append(&mut store, &[data(0, 1, 1), data(1, 1, 1)].concat()).unwrap();
    let at = data(0, 1, 1).len();
    let file = store.get_mut(DIR, "00000000000000000000.log").unwrap();
    file[at + 70] ^= 1;
    let mut seen = 0;
    let error = log.read(&store, Offset(0), &mut |_, _| {
        seen += 1;
        ControlFlow::Continue(())
    });
    let Err(ColdReadError::Damaged { position, .. }) = error else { panic!("{error:?}") };
    assert_eq!((seen, position), (1, u64::try_from(at).unwrap()));
    let file = store.get_mut(DIR, "00000000000000000000.log").unwrap();
    file.truncate(at + 5);
    let error = log.read(&store, Offset(0), &mut |_, _| ControlFlow::Continue(()));
    let cut = Damage::CutOff { bytes: 5 };
    assert!(matches!(error, Err(ColdReadError::Damaged { damage, .. }) if damage == cut));
}

#[test]
fn what_does_not_belong_there_changes_nothing() {
    let mut store = TestStore::default();
    let mut log = open(&mut store);
    log.append(&mut store, &data(0, 2, 3)).unwrap();
    let before = store.clone();
    let mut refuse = |batches: &[u8]| log.append(&mut store, batches).unwrap_err().to_string();
    insta::assert_snapshot!(
        refuse(&data(3, 1, 3)),
        @"a batch for t-0 begins at offset 3, the log ends at 2"
    );
    insta::assert_snapshot!(
        refuse(&[data(2, 1, 3), data(2, 1, 3)].concat()),
        @"a batch for t-0 begins at offset 2, the log ends at 3"
    );
    insta::assert_snapshot!(
        refuse(&data(2, 1, 2)),
        @"a batch for t-0 has epoch 2, the log is at 3 already"
    );
    insta::assert_snapshot!(
        refuse(&data(2, 1, 3)[..90]),
        @"a batch for t-0 breaks off after 90 bytes"
    );
    let mut damaged = data(2, 1, 3);
    damaged[80] ^= 1;
    insta::assert_snapshot!(refuse(&damaged), @"a batch for t-0 is not valid");
    assert_eq!(store, before);
    log.append(&mut store, &data(2, 1, 3)).unwrap();
    assert_eq!(log.log_end(), Offset(3));
}

#[test]
fn after_a_failure_it_has_to_be_opened_again() {
    let mut store = TestStore::default();
    let mut log = open(&mut store);
    store.crash_after(0, Torn::Nothing);
    let failed = log.append(&mut store, &data(0, 1, 1));
    assert!(matches!(failed, Err(ColdAppendError::Store(_))), "{failed:?}");
    store.restart();
    let failed = log.append(&mut store, &data(0, 1, 1));
    assert!(matches!(failed, Err(ColdAppendError::Poisoned { .. })), "{failed:?}");
    assert!(log.is_poisoned() && log.into_recovered().is_none());
    open(&mut store).append(&mut store, &data(0, 1, 1)).unwrap();
}

/// The process dies in each call of the last append; what recovery finds is whole batches of
/// it from the front, and everything else as if nothing had happened.
#[test]
fn a_crash_anywhere_leaves_whole_batches_from_the_front() {
    let script = script();
    for last in 0..script.len() {
        let mut before = TestStore::default();
        let mut log = open(&mut before);
        for batches in &script[..last] {
            log.append(&mut before, batches).unwrap();
        }
        let acknowledged = script[..last].concat();
        let mut calls = 0;
        let mut outcomes = std::collections::BTreeSet::new();
        loop {
            let mut done = false;
            for torn in Torn::ALL {
                let mut store = before.clone();
                let mut log = open(&mut store);
                store.crash_after(calls, torn);
                done = log.append(&mut store, &script[last]).is_ok();
                store.restart();
                let found = open(&mut store);
                let all = read(&found, &store, 0);
                assert!(all.starts_with(&acknowledged), "{last} {calls} {torn:?}");
                assert!(script[..=last].concat().starts_with(&all), "{last} {calls} {torn:?}");
                let latest = found.epochs().latest().map(|entry| entry.start_offset);
                assert!(latest.is_none_or(|start| start < found.log_end()));
                outcomes.insert(found.log_end());
                if done {
                    assert_eq!(all, script[..=last].concat());
                }
                if found.active.is_some() {
                    check_as_recovered(found, &store);
                }
            }
            if done {
                break;
            }
            calls += 1;
        }
        assert!(calls > 2 && outcomes.len() > 1, "{last}: {calls} {outcomes:?}");
    }
}

/// The same files, whoever goes on with them.
#[test]
fn a_shard_may_go_on_with_it() {
    let mut store = TestStore::default();
    let mut log = open(&mut store);
    for batches in script() {
        log.append(&mut store, &batches).unwrap();
    }
    assert_eq!(log.last_stable_offset(), Offset(27));
    let log = PartitionLog::new(log.into_recovered().unwrap());
    assert_eq!((log.log_end_offset(), log.recovery_point()), (Offset(27), Offset(27)));
    assert_eq!(log.last_fetched_epoch(), LeaderEpoch(6));
    assert!(log.is_quiet() && !log.is_empty());
}

/// A log without producers: 12 batches of 3 records.
fn plain(store: &mut TestStore) -> ColdLog {
    let mut log = open(store);
    for index in 0..12 {
        log.append(store, &data(index * 3, 3, i32::try_from(index / 5).unwrap())).unwrap();
    }
    log
}

/// What a rewrite makes of the batch at an offset.
fn keep(meta: &BatchMeta) -> Kept {
    match meta.base_offset.0 / 3 {
        1 | 9 => Kept::Whole,
        4 => {
            let (base, epoch) = (meta.base_offset.0 + 1, meta.leader_epoch.0);
            Kept::As(data(base, 1, epoch))
        }
        _ => Kept::Nothing,
    }
}

/// Batches with records, by their offsets.
fn kept_batches(log: &ColdLog, store: &TestStore) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    log.read(store, Offset(0), &mut |meta, _| {
        if meta.records_count > 0 {
            found.push((meta.base_offset.0, meta.last_offset.0));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

#[test]
fn a_rewrite_keeps_offsets_and_epochs() {
    let mut store = TestStore::default();
    let mut log = plain(&mut store);
    let (before, epochs) = (log.size_bytes(), log.epochs().clone());
    let mut seen = Vec::new();
    log.rewrite(&mut store, &mut |meta, _| {
        seen.push(meta.base_offset.0);
        keep(meta)
    })
    .unwrap();
    assert_eq!(seen, (0..12).map(|index| index * 3).collect::<Vec<_>>());
    assert_eq!(kept_batches(&log, &store), [(3, 5), (13, 13), (27, 29)]);
    assert_eq!((log.log_end(), log.epochs()), (Offset(36), &epochs));
    assert!(log.size_bytes() < before / 2);
    assert!(store.names(DIR).iter().all(|name| !name.contains(".swap")));
    log.append(&mut store, &data(36, 1, 2)).unwrap();
    // Small segments become one.
    log.rewrite(&mut store, &mut |_, _| Kept::Whole).unwrap();
    assert_eq!(log.sealed.len(), 2, "{:?}", log.sealed);
    let again = open(&mut store);
    assert_eq!(kept_batches(&again, &store), [(3, 5), (13, 13), (27, 29), (36, 36)]);
    assert_eq!(again.log_end(), Offset(37));
}

/// The process dies in each call of a rewrite, and perhaps again in each of the recovery.
#[test]
fn a_crash_in_a_rewrite_loses_nothing_that_stays() {
    let mut before = TestStore::default();
    let _ = plain(&mut before);
    let all: Vec<_> = (0..12).map(|index| (index * 3, index * 3 + 2)).collect();
    let kept = [(3, 5), (13, 13), (27, 29)];
    let (mut old, mut new) = (0, 0);
    for calls in 0.. {
        let mut done = false;
        for torn in Torn::ALL {
            let mut store = before.clone();
            let mut log = open(&mut store);
            store.crash_after(calls, torn);
            done = log.rewrite(&mut store, &mut |meta, _| keep(meta)).is_ok();
            for again in 0..40 {
                let mut store = store.clone();
                store.crash_after(again, torn);
                let crashed = ColdLog::open(&mut store, DIR, &options()).is_err();
                store.restart();
                let log = open(&mut store);
                let found = kept_batches(&log, &store);
                assert_eq!(log.log_end(), Offset(36), "{calls} {torn:?} {again}");
                assert!(found.iter().all(|it| all.contains(it) || kept.contains(it)));
                for record in [3, 4, 5, 13, 27, 28, 29] {
                    let holds = |it: &&(i64, i64)| (it.0..=it.1).contains(&record);
                    assert_eq!(found.iter().filter(holds).count(), 1, "{calls} {torn:?} {record}");
                }
                old += u32::from(found == all);
                new += u32::from(found == kept);
                check_as_recovered(log, &store);
                if !crashed {
                    break;
                }
            }
        }
        if done {
            break;
        }
    }
    assert!(old > 10 && new > 2, "both ends are seen: {old} {new}");
}

#[test]
fn a_rewrite_refuses_what_would_break_the_log() {
    let mut store = TestStore::default();
    let mut log = plain(&mut store);
    let moved = log.rewrite(&mut store, &mut |_, _| Kept::As(data(100, 1, 1))).unwrap_err();
    insta::assert_snapshot!(moved, @"t-0: the replacement of batch 0..=2 holds 100..=100");
    let mut log = open(&mut store);
    let half = log.rewrite(&mut store, &mut |_, _| Kept::As(data(0, 1, 0)[..70].to_vec()));
    insta::assert_snapshot!(half.unwrap_err(), @"t-0: the replacement of a batch is not valid");
    let again = log.rewrite(&mut store, &mut |_, _| Kept::Whole);
    assert!(matches!(again, Err(ColdRewriteError::Poisoned { .. })));
    let mut log = open(&mut store);
    assert_eq!(kept_batches(&log, &store).len(), 12);
    log.append(&mut store, &txn(36, 5, 2)).unwrap();
    let producers = log.rewrite(&mut store, &mut |_, _| Kept::Whole).unwrap_err();
    insta::assert_snapshot!(
        producers,
        @"t-0 has batches of 1 producers and cannot be compacted here"
    );
    log.append(&mut store, &data(37, 1, 2)).unwrap();
}

proptest! {
    /// Appends of any shape, crashes and reopenings: what was acknowledged is there, byte for
    /// byte, and the files are what recovery would make of them.
    #[test]
    fn acknowledged_batches_stay(
        steps in prop::collection::vec((1..4_i64, 1..12_i64, any::<bool>(), 0..14_u64, 0..3_usize), 1..20),
    ) {
        let mut store = TestStore::default();
        let mut log = open(&mut store);
        let (mut all, mut epoch) = (Vec::new(), 0);
        for (count, records, new_epoch, crash_after, torn) in steps {
            epoch += i32::from(new_epoch);
            let base = log.log_end().0;
            let batches: Vec<u8> =
                (0..count).flat_map(|index| data(base + index * records, records, epoch)).collect();
            store.crash_after(crash_after, Torn::ALL[torn]);
            let appended = log.append(&mut store, &batches).is_ok();
            store.restart();
            let before = [all.clone(), batches].concat();
            if appended {
                all.clone_from(&before);
            } else {
                log = open(&mut store);
                let found = read(&log, &store, 0);
                prop_assert!(found.starts_with(&all) && before.starts_with(&found));
                all = found;
            }
        }
        prop_assert_eq!(read(&log, &store, 0), all);
        if log.active.is_some() {
            check_as_recovered(log, &store);
        }
    }
}

use std::ops::ControlFlow;

use super::*;
use crate::log::cold_log::ColdLog;
use crate::log::config::{LogConfig, LogConfigValues};
use crate::log::names::{SegmentFileKind as Kind, SegmentFileName};
use crate::log::recovery::OpenOptions;
use crate::log::test_store::{TestStore, Torn};
use crate::log::txn_index;
use crate::records::{BatchBuilder, NewRecord};
use crate::types::{ProducerEpoch, ProducerId, TopicId};

const DIR: &str = "t-0";

/// Segments of 300 bytes.
fn options() -> OpenOptions {
    let values = LogConfigValues { segment_bytes: 300, ..LogConfigValues::default() };
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

const STOP: StopMarkers<'static> = StopMarkers {
    last_mirrored: LeaderEpoch(5),
    leader_epoch: LeaderEpoch(6),
    source_cluster_id: "src",
    timestamp: TimestampMs(9_000),
};

fn data(base: i64, epoch: i32, producer: Option<(i64, i16)>) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Offset(base)).leader_epoch(LeaderEpoch(epoch));
    if let Some((id, epoch)) = producer {
        batch = batch.producer(ProducerId(id), ProducerEpoch(epoch), 0).transactional();
    }
    let timestamp = TimestampMs(1_000);
    let record = NewRecord { timestamp, key: None, value: Some(b"value"), headers: &[] };
    batch.push(&record).unwrap();
    batch.build().unwrap()
}

fn marker(offset: i64, epoch: i32, producer: (i64, i16), committed: bool) -> Vec<u8> {
    let marker = EndTxnMarker {
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(epoch),
        producer_id: ProducerId(producer.0),
        producer_epoch: ProducerEpoch(producer.1),
        coordinator_epoch: 12,
        committed,
        timestamp: TimestampMs(1_500),
    };
    marker.build().unwrap()
}

/// A copy with two open transactions, one that ended, and a reset that came from the source.
fn mirrored(store: &mut TestStore) -> ColdLog {
    let foreign = MirrorPidReset {
        offset: Offset(0),
        leader_epoch: LeaderEpoch(1),
        source_cluster_id: "first",
        timestamp: TimestampMs(10),
    };
    let batches = [
        foreign.build().unwrap(),
        data(1, 4, Some((900, 2))),
        data(2, 4, Some((7, 0))),
        data(3, 5, Some((33, 1))),
        marker(4, 5, (33, 1), true),
        marker(5, 5, (900, 2), true),
        data(6, 5, Some((900, 2))),
        data(7, 5, None),
    ];
    let mut log = open(store);
    log.append(store, &batches.concat()).unwrap();
    log
}

/// What a stop does, from whatever the log holds. The host may have raised the epoch again.
fn stop(store: &mut TestStore, log: &mut ColdLog, epoch: i32) -> Result<usize, ()> {
    let stop = StopMarkers { leader_epoch: LeaderEpoch(epoch), ..STOP };
    let mut has_reset = false;
    let from = stop.written_from(log.epochs(), log.log_end());
    log.read(store, from, &mut |meta, _| {
        has_reset |= stop.is_reset(meta);
        ControlFlow::Continue(())
    })
    .unwrap();
    let batches = stop.missing(log.log_end(), log.producers(), has_reset).unwrap();
    for batch in &batches {
        log.append(store, batch).map_err(drop)?;
    }
    Ok(batches.len())
}

type Facts = (i64, i32, Option<ControlType>, i64, i16, i32);

fn facts(log: &ColdLog, store: &TestStore, from: i64) -> Vec<Facts> {
    let mut found = Vec::new();
    log.read(store, Offset(from), &mut |meta, _| {
        let producer = (meta.producer_id.0, meta.producer_epoch.0);
        let epoch = meta.leader_epoch.0;
        let coordinator = meta.coordinator_epoch;
        let control = meta.control;
        found.push((meta.base_offset.0, epoch, control, producer.0, producer.1, coordinator));
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

const WANT: [Facts; 3] = [
    (8, 6, Some(ControlType::Abort), 7, 0, 0),
    (9, 6, Some(ControlType::Abort), 900, 2, 12),
    (10, 6, Some(ControlType::MirrorPidReset), -1, -1, -1),
];

#[test]
fn two_open_transactions_are_three_records() {
    let mut store = TestStore::default();
    let mut log = mirrored(&mut store);
    assert_eq!(log.last_stable_offset(), Offset(2));
    assert_eq!(stop(&mut store, &mut log, 6), Ok(3));
    assert_eq!(facts(&log, &store, 8), WANT);
    assert_eq!(log.last_stable_offset(), Offset(11));
    assert_eq!(log.producers().producer_count(), 0);
    let mut aborted = Vec::new();
    for name in store.names(DIR) {
        let parsed = SegmentFileName::parse(name).filter(|it| it.kind == Kind::TxnIndex);
        let Some(SegmentFileName { base_offset, .. }) = parsed else { continue };
        let found = txn_index::decode(base_offset, store.get(DIR, name).unwrap()).unwrap();
        aborted.extend(found.iter().map(|it| (it.producer_id.0, it.first_offset.0)));
    }
    assert_eq!(aborted, [(7, 2), (900, 6)]);
    // Again, and again after a restart: there is nothing to do.
    assert_eq!(stop(&mut store, &mut log, 6), Ok(0));
    let mut log = open(&mut store);
    assert_eq!(stop(&mut store, &mut log, 7), Ok(0));
    assert_eq!(log.log_end(), Offset(11));
}

/// Producers stay forgotten however the log is opened later, and clients' IDs are new ones.
#[test]
fn after_the_reset_nobody_is_known_to_any_recovery() {
    let mut store = TestStore::default();
    let mut log = mirrored(&mut store);
    stop(&mut store, &mut log, 6).unwrap();
    // Behind the reset, and in the next segments: their snapshots were taken after it.
    for offset in 11..20 {
        log.append(&mut store, &data(offset, 6, None)).unwrap();
    }
    let snapshots: Vec<_> =
        store.names(DIR).into_iter().filter(|name| name.contains("snap")).collect();
    assert!(snapshots.len() > 2, "{snapshots:?}");
    for recovery_point in [0, 9, 11, 20] {
        let mut store = store.clone();
        let options = OpenOptions { recovery_point: Offset(recovery_point), ..options() };
        let (log, _) = ColdLog::open(&mut store, DIR, &options).unwrap();
        assert_eq!(log.producers().snapshot(), [], "{recovery_point}");
        assert_eq!(log.last_stable_offset(), Offset(20));
    }
    // Without the snapshots it comes from the batches.
    for name in snapshots.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>() {
        store.get_mut(DIR, &name).unwrap().clear();
    }
    let mut log = open(&mut store);
    assert_eq!(log.producers().snapshot(), []);
    log.append(&mut store, &data(20, 6, Some((900, 0)))).unwrap();
    let entry = log.producers().producer(ProducerId(900)).unwrap();
    assert_eq!(entry.epoch(), ProducerEpoch(0));
}

/// The process dies in each call, of this stop and of the one that goes on with it.
#[test]
fn a_crash_between_any_two_repeats_nothing() {
    let mut before = TestStore::default();
    let _ = mirrored(&mut before);
    let mut torn_in_half = 0;
    for calls in 0.. {
        let mut done = false;
        for torn in Torn::ALL {
            let mut store = before.clone();
            let mut log = open(&mut store);
            store.crash_after(calls, torn);
            done = stop(&mut store, &mut log, 6).is_ok();
            store.restart();
            let mut log = open(&mut store);
            torn_in_half += u32::from((9..11).contains(&log.log_end().0));
            store.crash_after(calls / 2, torn);
            let _ = stop(&mut store, &mut log, 7);
            store.restart();
            let mut log = open(&mut store);
            // The epoch was raised by each start of the host.
            stop(&mut store, &mut log, 8).unwrap();
            let mut found = facts(&log, &store, 8);
            for fact in &mut found {
                assert!((6..=8).contains(&fact.1));
                fact.1 = 6;
            }
            assert_eq!(found, WANT, "{calls} {torn:?}");
            assert_eq!(log.producers().snapshot(), []);
            assert_eq!(log.last_stable_offset(), Offset(11));
        }
        if done {
            break;
        }
    }
    assert!(torn_in_half > 3, "{torn_in_half}");
}

#[test]
fn without_transactions_there_is_one_reset() {
    let stop = StopMarkers { last_mirrored: LeaderEpoch::NONE, ..STOP };
    let batches = stop.missing(Offset(4), &ProducerState::new(Offset::ZERO), false).unwrap();
    assert_eq!(batches.len(), 1);
    assert_eq!(stop.written_from(&EpochCache::default(), Offset(4)), Offset(4));
}

#[test]
fn the_epoch_has_to_be_raised_first() {
    let nobody = ProducerState::new(Offset::ZERO);
    for epoch in [5, 4, -1] {
        let stop = StopMarkers { leader_epoch: LeaderEpoch(epoch), ..STOP };
        let refused = stop.missing(Offset(4), &nobody, false).unwrap_err();
        assert!(matches!(refused, MarkerError::EpochNotRaised { .. }), "{refused}");
    }
    let none =
        StopMarkers { last_mirrored: LeaderEpoch::NONE, leader_epoch: LeaderEpoch::NONE, ..STOP };
    assert!(none.missing(Offset(4), &nobody, false).is_err());
}

use proptest::prelude::*;

use super::*;
use crate::log::producer_snapshot;
use crate::log::test_batch::{TestBatch, batch};

const A: i64 = 7;
const B: i64 = 8;

fn data(id: i64, base: i64, last: i64) -> BatchMeta {
    batch(base, last).producer(id, 0, 0).transactional().meta()
}

fn marker(id: i64, at: i64, control: ControlType) -> TestBatch {
    batch(at, at).producer(id, 0, -1).transactional().control(Some(control), 3)
}

fn abort(id: i64, at: i64) -> BatchMeta {
    marker(id, at, ControlType::Abort).meta()
}

fn commit(id: i64, at: i64) -> BatchMeta {
    marker(id, at, ControlType::Commit).meta()
}

fn feed(batches: &[BatchMeta]) -> (ProducerState, Vec<CompletedTxn>) {
    let mut it = ProducerState::new(Offset::ZERO);
    let completed = batches.iter().filter_map(|batch| it.on_batch(batch)).collect();
    (it, completed)
}

fn done(id: i64, first: i64, last: i64, is_aborted: bool, stable: i64) -> CompletedTxn {
    CompletedTxn {
        producer_id: ProducerId(id),
        first_offset: Offset(first),
        last_offset: Offset(last),
        is_aborted,
        last_stable_offset: Offset(stable),
    }
}

fn never(now: i64) -> ProducerExpiry {
    ProducerExpiry { expiration_ms: i64::MAX, now: TimestampMs(now) }
}

/// ```text
/// 0..4 A data   5..9 B data   10..14 A data   15 A abort   16 B abort   17 A commit
/// ```
#[test]
fn interleaved_transactions_end_with_kafkas_last_stable_offsets() {
    let log =
        [data(A, 0, 4), data(B, 5, 9), data(A, 10, 14), abort(A, 15), abort(B, 16), commit(A, 17)];
    let (it, completed) = feed(&log);
    // B is still open when A aborts, so the log is stable up to B's start. When B
    // aborts, nothing is open. The last marker ends nothing.
    assert_eq!(completed, [done(A, 0, 15, true, 5), done(B, 5, 16, true, 17)]);
    assert_eq!(
        completed[0].aborted(),
        Some(AbortedTxn {
            producer_id: ProducerId(A),
            first_offset: Offset(0),
            last_offset: Offset(15),
            last_stable_offset: Offset(5),
        })
    );
    assert_eq!(it.end_offset(), Offset(18));
    let (_, completed) = feed(&[data(A, 0, 4), commit(A, 5)]);
    assert_eq!(completed, [done(A, 0, 5, false, 6)]);
    assert_eq!(completed[0].aborted(), None);
}

#[test]
fn the_last_stable_offset_waits_for_transactions_and_for_the_high_watermark() {
    let (mut it, _) = feed(&[data(A, 0, 4), data(B, 5, 9)]);
    assert_eq!(it.last_stable_offset(Offset(10)), Offset(0));
    it.on_batch(&abort(A, 10));
    assert_eq!(it.last_stable_offset(Offset(10)), Offset(0), "its marker is not below it");
    assert_eq!(it.last_stable_offset(Offset(11)), Offset(5));
    it.on_high_watermark(Offset(11));
    assert_eq!(it.first_unstable_offset(Offset(11)), Some(Offset(5)));
    assert_eq!(it.last_stable_offset(Offset(3)), Offset(3), "never above it");
    it.on_batch(&commit(B, 11));
    assert_eq!(it.last_stable_offset(Offset(12)), Offset(12));
    it.on_high_watermark(Offset(12));
    assert_eq!(it.first_unstable_offset(Offset(12)), None);
}

#[test]
fn a_transaction_that_stays_open_holds_everything_back() {
    let (mut it, completed) = feed(&[data(A, 0, 4), data(B, 5, 9), commit(B, 10)]);
    assert_eq!(completed, [done(B, 5, 10, false, 0)]);
    it.on_high_watermark(Offset(11));
    assert_eq!(it.last_stable_offset(Offset(11)), Offset(0));
    assert_eq!(it.open_txns().collect::<Vec<_>>(), [(ProducerId(A), Offset(0))]);
    it.on_log_start(Offset(3));
    assert_eq!(it.last_stable_offset(Offset(11)), Offset(3), "never below the log start");
}

#[test]
fn sequences_wrap_behind_2147483647() {
    let mut it = ProducerState::new(Offset::ZERO);
    it.on_batch(&batch(0, 2).producer(A, 0, i32::MAX - 1).meta());
    let last = |it: &ProducerState| {
        it.producer(ProducerId(A)).and_then(|entry| entry.batches().last().copied()).unwrap()
    };
    assert_eq!(last(&it).last_sequence, 0);
    assert_eq!(last(&it).offset_delta, 2);
    it.on_batch(&batch(3, 3).producer(A, 0, 1).meta());
    assert_eq!(last(&it).last_sequence, 1);
    it.on_batch(&batch(4, 4).producer(A, 0, i32::MAX).meta());
    assert_eq!(last(&it).last_sequence, i32::MAX);
}

#[test]
fn five_batches_of_the_newest_epoch_are_kept() {
    let mut it = ProducerState::new(Offset::ZERO);
    for base in 0..7 {
        let sequence = i32::try_from(base).unwrap();
        it.on_batch(&batch(base, base).producer(A, i16::MAX - 1, sequence).meta());
    }
    let kept = |it: &ProducerState| {
        let entry = it.producer(ProducerId(A)).unwrap();
        entry.batches().map(|batch| batch.last_offset.0).collect::<Vec<_>>()
    };
    assert_eq!(kept(&it), [2, 3, 4, 5, 6]);
    it.on_batch(&batch(7, 9).producer(A, i16::MAX, 0).meta());
    assert_eq!(kept(&it), [9]);
    assert_eq!(it.producer(ProducerId(A)).unwrap().epoch(), ProducerEpoch(32_767));
    // A follower takes an older epoch as it comes.
    it.on_batch(&batch(10, 10).producer(A, 3, 0).meta());
    assert_eq!(kept(&it), [10]);
}

/// Transaction version 2 raises the epoch with the marker.
#[test]
fn a_marker_with_a_new_epoch_ends_the_transaction_and_clears_the_batches() {
    let mut it = ProducerState::new(Offset::ZERO);
    it.on_batch(&data(A, 0, 4));
    let end = marker(A, 5, ControlType::Commit).producer(A, 1, -1).time(2_000).meta();
    assert_eq!(it.on_batch(&end), Some(done(A, 0, 5, false, 6)));
    let entry = it.producer(ProducerId(A)).unwrap();
    assert_eq!((entry.epoch(), entry.coordinator_epoch()), (ProducerEpoch(1), 3));
    assert_eq!((entry.batches().len(), entry.txn_first_offset()), (0, None));
    assert_eq!(entry.last_timestamp(), TimestampMs(2_000));
    // With the old epoch the batches stay.
    let (it, _) = feed(&[data(A, 0, 4), commit(A, 5)]);
    assert_eq!(it.producer(ProducerId(A)).unwrap().batches().len(), 1);
}

#[test]
fn a_marker_of_an_unknown_producer_makes_it_known() {
    let (it, completed) = feed(&[abort(A, 0)]);
    assert_eq!(completed, []);
    assert_eq!(it.last_stable_offset(Offset(1)), Offset(1));
    let [entry] = it.snapshot()[..] else { panic!("one producer") };
    assert_eq!(
        entry,
        SnapshotEntry {
            producer_id: ProducerId(A),
            producer_epoch: ProducerEpoch(0),
            last_sequence: -1,
            last_offset: Offset::NONE,
            offset_delta: 0,
            last_timestamp: TimestampMs(1_000),
            coordinator_epoch: 3,
            current_txn_first_offset: Offset::NONE,
        }
    );
}

#[test]
fn control_batches_that_end_nothing_change_nothing() {
    let quiet = batch(0, 0).producer(A, 0, -1).control(None, -1).meta();
    let later = marker(A, 1, ControlType::Other(9)).meta();
    let plain = batch(2, 5).meta();
    let old = batch(6, 6).magic(1).producer(A, 0, 0).meta();
    let (it, completed) = feed(&[quiet, later, plain, old]);
    assert_eq!((it.producer_count(), completed.len()), (0, 0));
    assert_eq!(it.end_offset(), Offset(7));
}

#[test]
fn data_outside_of_a_transaction_leaves_it_open() {
    let loose = batch(5, 9).producer(A, 0, 5).meta();
    let (mut it, _) = feed(&[data(A, 0, 4), loose]);
    assert_eq!(it.last_stable_offset(Offset(10)), Offset(0));
    assert_eq!(it.on_batch(&abort(A, 10)), Some(done(A, 0, 10, true, 11)));
}

#[test]
fn a_pid_reset_forgets_every_producer() {
    let reset = batch(10, 10).control(Some(ControlType::MirrorPidReset), -1).meta();
    let (mut it, _) = feed(&[data(A, 0, 4), data(B, 5, 9), reset]);
    assert_eq!(it.producer_count(), 0);
    assert_eq!(it.open_txns().count(), 0);
    assert_eq!(it.last_stable_offset(Offset(11)), Offset(11));
    // The same ID again is another producer.
    it.on_batch(&batch(11, 11).producer(A, 0, 0).meta());
    assert_eq!(it.producer(ProducerId(A)).unwrap().batches().len(), 1);
}

#[test]
fn a_snapshot_after_a_pid_reset_knows_nobody() {
    let reset = batch(6, 6).control(Some(ControlType::MirrorPidReset), -1).meta();
    let (mut it, completed) = feed(&[data(A, 0, 4), abort(A, 5), reset]);
    assert_eq!(completed.len(), 1, "the abort before it counts");
    assert_eq!(it.snapshot(), []);
    // The abort's marker is not replicated yet, so a committed reader waits for it.
    assert_eq!(it.first_unstable_offset(Offset(5)), Some(Offset(0)));
    it.on_high_watermark(Offset(7));
    assert_eq!(it.first_unstable_offset(Offset(7)), None);
    let loaded = ProducerState::load(&[], Offset(7), Offset::ZERO, never(0));
    assert_eq!(loaded, it);
}

#[test]
fn silent_producers_expire_but_not_in_a_transaction() {
    let (mut it, _) = feed(&[data(A, 0, 4), batch(5, 9).producer(B, 0, 0).meta()]);
    let at = |now| ProducerExpiry { expiration_ms: 500, now: TimestampMs(now) };
    assert_eq!(it.expire(at(1_499)), 0);
    let snapshot = it.snapshot();
    assert_eq!(it.expire(at(1_500)), 1);
    assert_eq!(it.producer_count(), 1);
    assert_eq!(it.expire(at(9_999_999)), 0);
    let loaded = ProducerState::load(&snapshot, Offset(10), Offset::ZERO, at(1_500));
    assert_eq!(loaded, it);
    it.on_batch(&commit(A, 10));
    assert_eq!(it.expire(at(1_500)), 1);
}

#[test]
fn the_snapshot_to_load_lies_in_the_log() {
    let at = |start, end| {
        let files = [0, 10, 20, 30].map(Offset);
        snapshot_to_load(files, Offset(start), Offset(end)).map(|offset| offset.0)
    };
    assert_eq!(at(0, 30), Some(30));
    assert_eq!(at(0, 29), Some(20));
    assert_eq!(at(10, 19), None, "one at the log start says nothing");
    assert_eq!(at(0, 0), None);
    let (mut it, _) = feed(&[data(A, 0, 4)]);
    assert!(!it.must_reload(Offset(5)));
    assert!(it.must_reload(Offset(3)));
    it.advance_end_offset(Offset(9));
    assert_eq!(it.end_offset(), Offset(9));
}

fn log() -> impl Strategy<Value = Vec<BatchMeta>> {
    let step = (0..4_i64, 0..3_i16, 0..6_u8, 1..4_i64);
    prop::collection::vec(step, 0..40).prop_map(|steps| {
        let mut next = 0;
        let mut place = |records: i64| {
            let base = next;
            next += records;
            (base, next - 1)
        };
        let log = steps.into_iter().map(|(id, epoch, what, records)| match what {
            0 => {
                let (at, _) = place(1);
                marker(id, at, ControlType::Abort).producer(id, epoch, -1).time(at).meta()
            }
            1 => {
                let (at, _) = place(1);
                marker(id, at, ControlType::Commit).producer(id, epoch, -1).time(at).meta()
            }
            2 => {
                let (base, last) = place(records);
                batch(base, last).producer(id, epoch, 0).time(last).meta()
            }
            _ => {
                let (base, last) = place(records);
                batch(base, last).producer(id, epoch, 0).time(last).transactional().meta()
            }
        });
        log.collect()
    })
}

/// Where each producer's open transaction began, from the whole log each time.
fn open_from(log: &[BatchMeta]) -> BTreeMap<ProducerId, Offset> {
    let mut open = BTreeMap::new();
    for batch in log {
        if batch.is_control() {
            open.remove(&batch.producer_id);
        } else if batch.is_transactional() {
            open.entry(batch.producer_id).or_insert(batch.base_offset);
        }
    }
    open
}

proptest! {
    #[test]
    fn transactions_agree_with_the_log(log in log()) {
        let mut it = ProducerState::new(Offset::ZERO);
        for (index, batch) in log.iter().enumerate() {
            let before = open_from(&log[..index]);
            let after = open_from(&log[..=index]);
            let completed = it.on_batch(batch);
            let first = before.get(&batch.producer_id).copied().filter(|_| batch.is_control());
            prop_assert_eq!(completed.map(|txn| txn.first_offset), first);
            let oldest = after.values().min().copied();
            if let Some(txn) = completed {
                prop_assert_eq!(txn.last_stable_offset, oldest.unwrap_or(batch.next_offset()));
            }
            prop_assert_eq!(it.open_txns().map(|(_, first)| first).min(), oldest);
            // Everything replicated: only open transactions count.
            let end = batch.next_offset();
            prop_assert_eq!(it.last_stable_offset(end), oldest.unwrap_or(end));
        }
    }

    /// A snapshot and the batches behind it give what the whole log gives.
    #[test]
    fn snapshot_and_replay_equal_the_whole_log(log in log(), cut in 0..40_usize) {
        let (whole, mut completed) = feed(&log);
        let cut = cut.min(log.len());
        let (first, before) = feed(&log[..cut]);
        let bytes = producer_snapshot::encode(&first.snapshot());
        let entries = producer_snapshot::decode(&bytes).unwrap();
        let mut it = ProducerState::load(&entries, first.end_offset(), Offset::ZERO, never(0));
        let after: Vec<_> = log[cut..].iter().filter_map(|batch| it.on_batch(batch)).collect();
        prop_assert_eq!(it.snapshot(), whole.snapshot());
        prop_assert_eq!(it.open_txns().collect::<Vec<_>>(), whole.open_txns().collect::<Vec<_>>());
        prop_assert_eq!(it.end_offset(), whole.end_offset());
        prop_assert_eq!(completed.split_off(before.len()), after);
    }
}

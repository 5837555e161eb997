//! Breaks the rules of the append path on purpose: the oracle has to see it.

use crate::oracle::Promise;
use crate::run_seed;
use crate::world::Sabotage;

const SEEDS: u64 = 60;

#[track_caller]
fn seen(sabotage: Sabotage, promise: Promise) {
    let mut found = Vec::new();
    for seed in 0..SEEDS {
        if let Err(violation) = run_seed(seed, sabotage).0 {
            found.push(violation.promise);
        }
        if found.contains(&promise) {
            return;
        }
    }
    assert_eq!(found, [promise], "{sabotage:?} went unseen in {SEEDS} seeds");
}

#[test]
fn two_writes_on_a_shared_block_are_seen() {
    seen(Sabotage::NothingHeld, Promise::Disk);
}

#[test]
fn a_log_end_past_an_unverified_batch_is_seen() {
    seen(Sabotage::Unverified, Promise::Bytes);
}

#[test]
fn a_recovery_point_past_the_sync_is_seen() {
    seen(Sabotage::SyncedByCompletion, Promise::Durable);
}

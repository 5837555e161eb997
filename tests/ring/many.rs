//! Queues that are far too small for what is asked.

use heliostat_core::log::disk::{DiskAction, DiskDone, DiskOp, FileId, OpId};
use heliostat_core::log::slot::{SlotClass, SlotPool, map_apart};

use crate::support::{create, disk, path};

#[test]
fn ten_thousand_writes_pass_a_submission_queue_of_two() {
    const WRITES: u64 = 10_000;
    const BLOCK: usize = 4096;
    let dir = tempfile::tempdir().expect("scratch");
    let mut disk = disk(dir.path(), 2, 8);
    let at = path("t-0", "00000000000000000000.log");
    create(&mut disk, FileId(1), &at);
    let mut pool = SlotPool::new(8 << 20, map_apart);
    let mut all = Vec::new();
    let mut next = 0;
    let mut seen = vec![false; usize::try_from(WRITES).expect("small")];
    while seen.iter().any(|seen| !seen) {
        while next < WRITES {
            let Some(mut slot) = pool.take(SlotClass::Small) else { break };
            slot.bytes_mut()[..8].copy_from_slice(&next.to_le_bytes());
            let position = next * 4096;
            let action = DiskAction::Write { file: FileId(1), position, slot, from: 0, len: BLOCK };
            // One at a time: the worst case for a queue of two.
            disk.submit([DiskOp { id: OpId(next), action }]).expect("ring works");
            next += 1;
        }
        disk.wait().expect("ring works");
        disk.reap(&mut all).expect("ring works");
        for outcome in all.drain(..) {
            assert_eq!(outcome.result, Ok(DiskDone::Written(BLOCK)));
            let index = usize::try_from(outcome.id.0).expect("small");
            assert!(!std::mem::replace(&mut seen[index], true), "one outcome an operation");
            pool.give(outcome.slot.expect("slot comes back"));
        }
    }
    assert!(disk.is_idle());
    assert_eq!(pool.lent_bytes(), 0);
    let bytes = std::fs::read(dir.path().join(at.to_string())).expect("readable");
    for (number, block) in (0..WRITES).zip(bytes.chunks(BLOCK)) {
        assert_eq!(block[..8], number.to_le_bytes(), "block {number}");
    }
}

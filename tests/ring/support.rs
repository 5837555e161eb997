//! What the tests of the disk share.

use std::path::Path;
use std::sync::Arc;

use heliostat_core::log::disk::{
    DiskAction, DiskDone, DiskError, DiskOp, DiskOutcome, FileId, LogPath, OpId,
};
use heliostat_core::log::slot::{Slot, SlotClass, SlotPool, map_apart};
use heliostat_io::disk::{Disk, DiskConfig};
use heliostat_io::ring::RingConfig;

/// A path below the log dir.
pub(crate) fn path(dir: &str, name: &str) -> LogPath {
    LogPath { dir: Arc::from(dir), name: name.to_owned() }
}

/// A disk with a ring of this size.
pub(crate) fn disk(dir: &Path, entries: u32, in_flight_max: u32) -> Disk {
    let ring = RingConfig { entries, in_flight_max };
    Disk::open(dir, DiskConfig { ring, ..DiskConfig::default() }).expect("disk opens")
}

/// A slot full of one byte.
pub(crate) fn slot_of(fill: u8, class: SlotClass) -> Slot {
    let mut slot = SlotPool::new(class.bytes(), map_apart).take(class).expect("one slot fits");
    slot.bytes_mut().fill(fill);
    slot
}

/// Blocks until `count` outcomes have come.
pub(crate) fn outcomes(disk: &mut Disk, count: usize) -> Vec<DiskOutcome> {
    let mut all = Vec::new();
    disk.reap(&mut all).expect("ring works");
    while all.len() < count {
        disk.wait().expect("ring works");
        disk.reap(&mut all).expect("ring works");
    }
    assert_eq!(all.len(), count, "one outcome an operation");
    all
}

/// Carries one operation out.
pub(crate) fn run(disk: &mut Disk, action: DiskAction) -> Result<DiskDone, DiskError> {
    disk.submit([DiskOp { id: OpId(u64::MAX), action }]).expect("ring works");
    let outcome = outcomes(disk, 1).remove(0);
    assert_eq!(outcome.id, OpId(u64::MAX));
    outcome.result
}

/// Creates a segment file; direct if the file system takes it. Says whether it did.
pub(crate) fn create(disk: &mut Disk, file: FileId, at: &LogPath) -> bool {
    let open = |direct| DiskAction::Open { file, path: at.clone(), create: true, direct };
    match run(disk, open(true)) {
        Ok(_) => true,
        Err(DiskError::DirectUnsupported) => {
            run(disk, open(false)).expect("buffered open works");
            false
        }
        Err(error) => panic!("{at} does not open: {error}"),
    }
}

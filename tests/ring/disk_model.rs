//! Goal: whatever the log asks for, the files hold what it asked for.
//! Method: random operations, as many in flight as may be, against byte vectors.

use std::collections::{BTreeMap, HashMap};

use heliostat_core::log::disk::{DiskAction, DiskDone, DiskOp, FileId, LogPath, OpId};
use heliostat_core::log::slot::{SlotClass, SlotPool, map_apart};
use heliostat_io::disk::Disk;
use proptest::prelude::*;

use crate::support::{create, disk, outcomes, path, run};

const BLOCK: usize = 4096;
const FILES: u64 = 3;

#[derive(Clone, Debug)]
enum Op {
    /// Blocks, so that direct files take them too.
    Write {
        file: u64,
        block: usize,
        blocks: usize,
        fill: u8,
    },
    Read {
        file: u64,
        position: usize,
        len: usize,
    },
    SetLength {
        file: u64,
        len: usize,
    },
    Preallocate {
        file: u64,
        from: usize,
        len: usize,
    },
    Sync {
        file: u64,
    },
    Reopen {
        file: u64,
    },
    WriteAt {
        side: u8,
        position: usize,
        len: usize,
        fill: u8,
        sync: bool,
    },
    Replace {
        side: u8,
        len: usize,
        fill: u8,
    },
    Remove {
        side: u8,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let file = || 0..FILES;
    let side = || 0..2_u8;
    prop_oneof![
        8 => (file(), 0..12_usize, 1..5_usize, any::<u8>())
            .prop_map(|(file, block, blocks, fill)| Op::Write { file, block, blocks, fill }),
        3 => (file(), 0..40_000_usize, 0..20_000_usize)
            .prop_map(|(file, position, len)| Op::Read { file, position, len }),
        2 => (file(), 0..40_000_usize).prop_map(|(file, len)| Op::SetLength { file, len }),
        2 => (file(), 0..40_000_usize, 1..20_000_usize)
            .prop_map(|(file, from, len)| Op::Preallocate { file, from, len }),
        2 => file().prop_map(|file| Op::Sync { file }),
        1 => file().prop_map(|file| Op::Reopen { file }),
        3 => (side(), 0..100_usize, 0..9_000_usize, any::<u8>(), any::<bool>()).prop_map(
            |(side, position, len, fill, sync)| Op::WriteAt { side, position, len, fill, sync }
        ),
        2 => (side(), 0..9_000_usize, any::<u8>())
            .prop_map(|(side, len, fill)| Op::Replace { side, len, fill }),
        1 => side().prop_map(|side| Op::Remove { side }),
    ]
}

/// What the files should hold.
#[derive(Default)]
struct World {
    contents: BTreeMap<String, Vec<u8>>,
    /// Operations in flight, and the answer of each read.
    in_flight: HashMap<OpId, Option<Vec<u8>>>,
    /// Ranges being written, by file.
    writing: HashMap<u64, Vec<(usize, usize)>>,
    pool: Option<SlotPool>,
    op_next: u64,
    file_next: u64,
    /// Current name of each file, and whether it is direct.
    files: Vec<(FileId, LogPath, bool)>,
}

impl World {
    fn settle(&mut self, disk: &mut Disk) {
        for outcome in outcomes(disk, self.in_flight.len()) {
            let expected = self.in_flight.remove(&outcome.id).expect("asked for");
            let done = outcome.result.expect("nothing fails here");
            if let Some(expected) = expected {
                assert_eq!(done, DiskDone::Read(expected), "read of {:?}", outcome.id);
            } else if let DiskDone::Written(bytes) = done {
                assert_eq!(bytes % BLOCK, 0);
            }
            if let (Some(slot), Some(pool)) = (outcome.slot, self.pool.as_mut()) {
                pool.give(slot);
            }
        }
        self.writing.clear();
    }

    fn submit(&mut self, disk: &mut Disk, action: DiskAction, expected: Option<Vec<u8>>) {
        let id = OpId(self.op_next);
        self.op_next += 1;
        self.in_flight.insert(id, expected);
        disk.submit([DiskOp { id, action }]).expect("ring works");
    }

    /// The model's bytes of a file, at least `len` long.
    fn grown(&mut self, name: &str, len: usize) -> &mut Vec<u8> {
        let bytes = self.contents.entry(name.to_owned()).or_default();
        bytes.resize(bytes.len().max(len), 0);
        bytes
    }

    fn write(&mut self, disk: &mut Disk, file: u64, (from, len): (usize, usize), fill: u8) {
        let end = from + len;
        let clash = |&(a, b): &(usize, usize)| a < end && from < b;
        if self.writing.get(&file).is_some_and(|ranges| ranges.iter().any(clash)) {
            self.settle(disk);
        }
        self.writing.entry(file).or_default().push((from, end));
        let mut slot = self
            .pool
            .get_or_insert_with(|| SlotPool::new(64 << 20, map_apart))
            .take(SlotClass::Small)
            .expect("pool is large");
        slot.bytes_mut()[BLOCK..BLOCK + len].fill(fill);
        let (id, path, _) = self.files[usize::try_from(file).expect("small")].clone();
        self.grown(&path.to_string(), end)[from..end].fill(fill);
        let position = u64::try_from(from).expect("small");
        let action = DiskAction::Write { file: id, position, slot, from: BLOCK, len };
        self.submit(disk, action, None);
    }

    fn on_file(&mut self, disk: &mut Disk, file: u64, op: &Op) {
        let u64_of = |n: usize| u64::try_from(n).expect("small");
        self.settle(disk);
        let index = usize::try_from(file).expect("small");
        let (id, path, direct) = self.files[index].clone();
        let name = path.to_string();
        match *op {
            Op::Read { position, len, .. } => {
                let bytes = self.grown(&name, 0);
                let from = position.min(bytes.len());
                let expected = bytes[from..(from + len).min(bytes.len())].to_vec();
                let position = u64_of(position);
                self.submit(disk, DiskAction::Read { file: id, position, len }, Some(expected));
                self.settle(disk);
            }
            Op::SetLength { len, .. } => {
                self.grown(&name, 0).resize(len, 0);
                self.submit(disk, DiskAction::SetLength { file: id, len: u64_of(len) }, None);
                self.settle(disk);
            }
            Op::Preallocate { from, len, .. } => {
                self.grown(&name, from + len);
                let (from, len) = (u64_of(from), u64_of(len));
                self.submit(disk, DiskAction::Preallocate { file: id, from, len }, None);
                self.settle(disk);
            }
            Op::Sync { .. } => self.submit(disk, DiskAction::Sync { file: id }, None),
            _ => {
                self.submit(disk, DiskAction::Close { file: id }, None);
                let file = FileId(FILES + self.file_next);
                self.file_next += 1;
                self.files[index].0 = file;
                let action = DiskAction::Open { file, path, create: false, direct };
                self.submit(disk, action, None);
                self.settle(disk);
            }
        }
    }

    /// Side files: any number in flight, one path keeps its order.
    fn on_side(&mut self, disk: &mut Disk, side: u8, op: &Op) {
        let path = path("t-0", &format!("side-{side}"));
        let name = path.to_string();
        let action = match *op {
            Op::WriteAt { position, len, fill, sync, .. } => {
                let bytes = self.grown(&name, position + len);
                bytes.truncate(position + len);
                bytes[position..].fill(fill);
                let position = u64::try_from(position).expect("small");
                DiskAction::WriteAt { path, position, bytes: vec![fill; len], sync }
            }
            Op::Replace { len, fill, .. } => {
                self.contents.insert(name, vec![fill; len]);
                DiskAction::Replace { path, bytes: vec![fill; len] }
            }
            _ => {
                self.contents.remove(&name);
                DiskAction::Remove { path }
            }
        };
        self.submit(disk, action, None);
    }
}

fn check(ops: &[Op], entries: u32, in_flight_max: u32) {
    let dir = tempfile::tempdir().expect("scratch");
    let mut disk = disk(dir.path(), entries, in_flight_max);
    let mut world = World::default();
    for file in 0..FILES {
        let at = path("t-0", &format!("{file:020}.log"));
        // One of them buffered, like a cold partition.
        let direct = file > 0 && create(&mut disk, FileId(file), &at);
        if file == 0 {
            let open = DiskAction::Open { file: FileId(0), path: at.clone(), create: true, direct };
            run(&mut disk, open).expect("buffered open works");
        }
        world.grown(&at.to_string(), 0);
        world.files.push((FileId(file), at, direct));
    }
    for op in ops {
        match *op {
            Op::Write { file, block, blocks, fill } => {
                world.write(&mut disk, file, (block * BLOCK, blocks * BLOCK), fill);
            }
            Op::Read { file, .. }
            | Op::SetLength { file, .. }
            | Op::Preallocate { file, .. }
            | Op::Sync { file }
            | Op::Reopen { file } => world.on_file(&mut disk, file, op),
            Op::WriteAt { side, .. } | Op::Replace { side, .. } | Op::Remove { side } => {
                world.on_side(&mut disk, side, op);
            }
        }
    }
    world.settle(&mut disk);
    assert!(disk.is_idle());
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir.path().join("t-0")).expect("made") {
        let entry = entry.expect("listing");
        let name = format!("t-0/{}", entry.file_name().to_string_lossy());
        found.insert(name, std::fs::read(entry.path()).expect("readable"));
    }
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        world.contents.keys().collect::<Vec<_>>(),
        "files in the directory"
    );
    for (name, bytes) in &found {
        let differs = bytes.iter().zip(&world.contents[name]).position(|(a, b)| a != b);
        assert_eq!(differs, None, "first different byte of {name}");
        assert_eq!(bytes.len(), world.contents[name].len(), "length of {name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Files hold what was asked, with a roomy ring and with one that is always full.
    #[test]
    fn files_hold_what_was_asked(ops in prop::collection::vec(op(), 1..40), tiny in any::<bool>()) {
        if tiny { check(&ops, 1, 2) } else { check(&ops, 32, 64) }
    }
}

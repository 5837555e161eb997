//! What the system refuses, and how that reaches the log.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use heliostat_core::log::disk::{DiskAction, DiskDone, DiskError, DiskOp, FileId, OpId};
use heliostat_core::log::slot::SlotClass;
use heliostat_io::ring::{File, Ring, RingConfig, RingOp};

use crate::child;
use crate::support::{create, disk, outcomes, path, run, slot_of};

const EBADF: i32 = 9;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;

#[test]
fn create_refuses_a_file_with_contents_and_takes_an_empty_one() {
    let dir = tempfile::tempdir().expect("scratch");
    std::fs::create_dir(dir.path().join("t-0")).expect("made");
    std::fs::write(dir.path().join("t-0/empty"), b"").expect("written");
    std::fs::write(dir.path().join("t-0/full"), b"x").expect("written");
    let mut disk = disk(dir.path(), 8, 8);
    let mut open = |file, name| {
        let path = path("t-0", name);
        run(&mut disk, DiskAction::Open { file: FileId(file), path, create: true, direct: false })
    };
    assert_eq!(open(1, "empty"), Ok(DiskDone::Done));
    assert_eq!(open(2, "full"), Err(DiskError::Io(EEXIST)));
    assert_eq!(std::fs::read(dir.path().join("t-0/full")).expect("kept"), b"x");
}

#[test]
fn create_makes_a_directory_again_that_was_removed() {
    let dir = tempfile::tempdir().expect("scratch");
    let mut disk = disk(dir.path(), 8, 8);
    create(&mut disk, FileId(1), &path("t-0", "a"));
    run(&mut disk, DiskAction::Close { file: FileId(1) }).expect("closes");
    std::fs::remove_dir_all(dir.path().join("t-0")).expect("removed");
    create(&mut disk, FileId(2), &path("t-0", "b"));
    assert!(dir.path().join("t-0/b").exists());
}

#[test]
fn paths_cannot_leave_the_log_dir_and_files_must_be_open() {
    let dir = tempfile::tempdir().expect("scratch");
    let mut disk = disk(dir.path(), 8, 8);
    for bad in [path("..", "x"), path("t-0", "../../x"), path("a/b", "x"), path("t-0", "")] {
        let action = DiskAction::Replace { path: bad, bytes: vec![1] };
        assert_eq!(run(&mut disk, action), Err(DiskError::Io(EINVAL)));
    }
    let slot = slot_of(1, SlotClass::Small);
    let action = DiskAction::Write { file: FileId(9), position: 0, slot, from: 0, len: 1 };
    disk.submit([DiskOp { id: OpId(1), action }]).expect("ring works");
    let outcome = outcomes(&mut disk, 1).remove(0);
    assert_eq!(outcome.result, Err(DiskError::Io(EBADF)));
    assert!(outcome.slot.is_some(), "the slot comes back from a failure too");
}

#[test]
fn a_failed_replace_leaves_no_file_beside() {
    let dir = tempfile::tempdir().expect("scratch");
    // The target is a directory: the rename fails after the contents were written.
    std::fs::create_dir_all(dir.path().join("t-0/target")).expect("made");
    let mut disk = disk(dir.path(), 8, 8);
    let action = DiskAction::Replace { path: path("t-0", "target"), bytes: vec![7; 100] };
    assert!(matches!(run(&mut disk, action), Err(DiskError::Io(_))));
    let left = std::fs::read_dir(dir.path().join("t-0")).expect("listing").count();
    assert_eq!(left, 1, "the file beside is removed");
}

/// Goal: no reader ever sees a part of a file. Method: each version is one repeated byte.
#[test]
fn replace_is_atomic_under_readers() {
    let dir = tempfile::tempdir().expect("scratch");
    let at = dir.path().join("checkpoint");
    let mut disk = disk(dir.path(), 8, 8);
    let version =
        |fill: u8| DiskAction::Replace { path: path("", "checkpoint"), bytes: vec![fill; 50_000] };
    run(&mut disk, version(0)).expect("replaces");
    let done = AtomicBool::new(false);
    let read = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut read = 0_usize;
            // At least one read after the last version.
            loop {
                let last = done.load(Ordering::Acquire);
                let bytes = std::fs::read(&at).expect("always there");
                assert_eq!(bytes.len(), 50_000, "whole");
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "of one version");
                read += 1;
                if last {
                    return read;
                }
            }
        });
        for fill in 1..=40 {
            run(&mut disk, version(fill)).expect("replaces");
        }
        done.store(true, Ordering::Release);
        reader.join().expect("reader saw whole files")
    });
    assert!(read > 1);
    assert_eq!(std::fs::read(&at).expect("there")[0], 40);
    assert!(!dir.path().join("checkpoint.tmp").exists());
}

/// A tmpfs of one MiB, if the user may mount.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().expect("scratch");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "heliostat-test"])
            .arg(dir.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_gives_short_writes_and_then_no_space() {
    let Some(small) = SmallDisk::mount() else {
        println!("skipped: this user may not mount a tmpfs");
        return;
    };
    let mut disk = disk(small.path(), 8, 8);
    let at = path("t-0", "00000000000000000000.log");
    create(&mut disk, FileId(1), &at);
    let mut position = 0;
    let (mut short, mut refused) = (false, false);
    // Odd blocks of filling first, so that the large write meets the end midway.
    let filling = vec![1; 300 << 10];
    let action =
        DiskAction::WriteAt { path: path("t-0", "x"), position: 0, bytes: filling, sync: true };
    run(&mut disk, action).expect("fits");
    for _ in 0..3 {
        let slot = slot_of(5, SlotClass::Large);
        let len = SlotClass::Large.bytes();
        let action = DiskAction::Write { file: FileId(1), position, slot, from: 0, len };
        disk.submit([DiskOp { id: OpId(1), action }]).expect("ring works");
        let outcome = outcomes(&mut disk, 1).remove(0);
        assert!(outcome.slot.is_some());
        match outcome.result {
            Ok(DiskDone::Written(bytes)) => {
                assert!(bytes > 0 && bytes < len);
                short = true;
                position += u64::try_from(bytes).expect("small");
            }
            Err(DiskError::NoSpace) => refused = true,
            other => panic!("unexpected {other:?}"),
        }
    }
    assert!(short && refused, "short {short}, refused {refused}");
    let preallocate = DiskAction::Preallocate { file: FileId(1), from: 0, len: 4 << 20 };
    assert_eq!(run(&mut disk, preallocate), Err(DiskError::NoSpace));
    let replace = DiskAction::Replace { path: path("t-0", "y"), bytes: vec![1; 100 << 10] };
    assert_eq!(run(&mut disk, replace), Err(DiskError::NoSpace));
    assert!(!small.path().join("t-0/y.tmp").exists(), "the file beside gives its room back");
    // With room again, the same goes through.
    run(&mut disk, DiskAction::Remove { path: path("t-0", "x") }).expect("removes");
    let replace = DiskAction::Replace { path: path("t-0", "y"), bytes: vec![1; 100 << 10] };
    run(&mut disk, replace).expect("fits now");
}

#[test]
fn a_dropped_ring_has_waited_for_its_writes() {
    const WRITES: u64 = 64;
    let dir = tempfile::tempdir().expect("scratch");
    let at = dir.path().join("file");
    let file: File = std::rc::Rc::new(std::fs::File::create(&at).expect("made").into());
    let mut ring = Ring::new(RingConfig { entries: 8, in_flight_max: 64 }).expect("ring");
    for number in 0..WRITES {
        let fill = u8::try_from(number).expect("small");
        let slot = slot_of(fill, SlotClass::Large);
        assert!(ring.has_room().expect("ring works"));
        let (file, len) = (std::rc::Rc::clone(&file), SlotClass::Large.bytes());
        let position = number << 20;
        ring.push((), RingOp::WriteSlot { file, position, slot, from: 0, len });
    }
    assert_eq!(ring.in_flight(), 64);
    drop(ring);
    assert_eq!(std::rc::Rc::strong_count(&file), 1, "everything in flight was given back");
    let written = std::fs::File::open(&at).expect("there");
    let mut byte = [0];
    for number in 0..WRITES {
        written.read_exact_at(&mut byte, number << 20).expect("written");
        assert_eq!(u64::from(byte[0]), number);
    }
}

/// Goal: a drop does not return while the kernel may write to a buffer.
/// Method: a read that ends only when another thread lets it.
#[test]
fn a_drop_waits_until_the_kernel_is_done() {
    let (reader, mut writer) = std::io::pipe().expect("pipe");
    let (submitted, wait_submitted) = std::sync::mpsc::channel();
    let released = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut ring = Ring::new(RingConfig { entries: 8, in_flight_max: 8 }).expect("ring");
            let file: File = std::rc::Rc::new(reader.into());
            ring.push((), RingOp::Read { file, position: 0, buffer: vec![0; 16], from: 0 });
            ring.submit().expect("submits");
            let thread = rustix::thread::gettid().as_raw_nonzero();
            submitted.send(thread).expect("other thread waits");
            drop(ring);
            assert!(released.load(Ordering::Acquire), "dropped before the read ended");
        });
        let thread = wait_submitted.recv().expect("submitted");
        // Until it sleeps in its drop, or is gone because it did not.
        let stat = format!("/proc/self/task/{thread}/stat");
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") S ")) {
            std::thread::yield_now();
        }
        released.store(true, Ordering::Release);
        writer.write_all(b"end").expect("pipe takes it");
    });
}

/// The same as a disk that fills up, for a user who may not mount: a limit on file size
/// in a second process.
#[test]
fn a_file_size_limit_gives_short_writes_and_then_an_error() {
    const EFBIG: i32 = 27;
    if let Some(dir) = child::argument() {
        let mut disk = disk(dir.as_ref(), 8, 8);
        let open = DiskAction::Open {
            file: FileId(1),
            path: path("", "file"),
            create: true,
            direct: false,
        };
        run(&mut disk, open).expect("opens");
        let mut write = |position| {
            let slot = slot_of(5, SlotClass::Large);
            let len = SlotClass::Large.bytes();
            let action = DiskAction::Write { file: FileId(1), position, slot, from: 0, len };
            run(&mut disk, action)
        };
        let (first, second) = (write(0), write(512 << 10));
        // Side files are completed by the driver, or fail as a whole.
        let bytes = vec![1; 1 << 20];
        let side = DiskAction::WriteAt { path: path("", "side"), position: 0, bytes, sync: false };
        child::answer(&format!("{first:?} {second:?} {:?}", run(&mut disk, side)));
        return;
    }
    let dir = tempfile::tempdir().expect("scratch");
    let at = dir.path().display().to_string();
    let test = "faults::a_file_size_limit_gives_short_writes_and_then_an_error";
    // Blocks of 512 bytes in a POSIX shell, of 1024 in bash; the exact value is read back.
    let answer = child::run(test, &at, "trap '' XFSZ; ulimit -f 1024");
    let written = std::fs::metadata(dir.path().join("file")).expect("made").len();
    assert!(written < 1 << 20, "the limit held: {written}");
    let expected = format!(
        "{:?} {:?} {:?}",
        Ok::<_, DiskError>(DiskDone::Written(usize::try_from(written).expect("small"))),
        Err::<DiskDone, _>(DiskError::Io(EFBIG)),
        Err::<DiskDone, _>(DiskError::Io(EFBIG)),
    );
    assert_eq!(answer, expected);
}

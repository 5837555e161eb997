//! Plain files, locks and probes.

use std::ops::ControlFlow;

use heliostat_core::log::store::ColdStore;
use heliostat_io::disk::{
    DirectIo, FileStore, LOCK_FILE, LockError, LogDirLock, disk_space, probe_direct_io,
};
use heliostat_tests::scenarios::mount::TmpFs;

use crate::child;
use crate::support::path;

const EACCES: i32 = 13;
const EFBIG: i32 = 27;
const ENOENT: i32 = 2;
const EINVAL: i32 = 22;

fn seen(store: &FileStore, name: &str, from: u64) -> Vec<u8> {
    let mut all = Vec::new();
    let mut see = |bytes: &[u8]| {
        all.extend_from_slice(bytes);
        ControlFlow::Continue(())
    };
    store.scan(&path("t-0", name), from, &mut see).expect("scans");
    all
}

#[test]
fn files_come_back_as_they_were_written() {
    let dir = tempfile::tempdir().expect("scratch");
    let mut store = FileStore::new(dir.path());
    let at = path("t-0", "a");
    assert_eq!(store.read(&at, 10).expect("absent is no error"), None);
    store.replace(&at, b"first").expect("makes the directory too");
    store.append(&at, b" second").expect("appends");
    assert_eq!(store.read(&at, 12).expect("reads"), Some(b"first second".to_vec()));
    assert_eq!(store.read(&at, 11).expect_err("too large").errno, EFBIG);
    store.set_len(&at, 5).expect("cuts");
    store.sync(&at).expect("syncs");
    store.rename(&at, "b").expect("renames");
    store.append(&path("t-0", "c"), b"made").expect("makes the file");
    let mut listed = store.list("t-0").expect("lists");
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    let listed: Vec<_> = listed.iter().map(|e| (e.name.as_str(), e.len, e.is_dir)).collect();
    assert_eq!(listed, [("b", 5, false), ("c", 4, false)]);
    assert_eq!(store.list("absent").expect_err("no such directory").errno, ENOENT);
    store.remove(&path("t-0", "b")).expect("removes");
    store.remove(&path("t-0", "b")).expect("absent is no error");
    store.create_dir("t-0").expect("there already is no error");
    let top = store.list("").expect("lists");
    assert_eq!(
        top.iter().map(|e| (e.name.as_str(), e.is_dir)).collect::<Vec<_>>(),
        [("t-0", true)]
    );
}

#[test]
fn a_scan_shows_every_byte_once_from_any_position() {
    let dir = tempfile::tempdir().expect("scratch");
    let mut store = FileStore::new(dir.path());
    // More than two windows, and not a whole number of pages.
    let contents: Vec<u8> = (0..=250_u8).cycle().take((17 << 20) + 123).collect();
    store.replace(&path("t-0", "large"), &contents).expect("written");
    for from in [0, 1, 4095, 8 << 20, (17 << 20) - 5, contents.len() - 1, contents.len(), 1 << 40] {
        let expected = contents.get(from..).unwrap_or_default();
        let all = seen(&store, "large", u64::try_from(from).expect("small"));
        assert!(all == expected, "from {from}: {} bytes of {}", all.len(), expected.len());
    }
    let mut pieces = 0;
    let mut once = |_: &[u8]| {
        pieces += 1;
        ControlFlow::Break(())
    };
    store.scan(&path("t-0", "large"), 0, &mut once).expect("scans");
    assert_eq!(pieces, 1, "a break ends it");
    let mut none = |_: &[u8]| ControlFlow::Continue(());
    assert_eq!(store.scan(&path("t-0", "no"), 0, &mut none).expect_err("absent").errno, ENOENT);
}

#[test]
fn the_store_keeps_to_its_files() {
    let dir = tempfile::tempdir().expect("scratch");
    let mut store = FileStore::new(dir.path());
    for bad in [path("..", "x"), path("t-0", "../x"), path("t-0", ""), path("t-0", "..")] {
        assert_eq!(store.replace(&bad, b"x").expect_err("refused").errno, EINVAL, "{bad}");
    }
    // Closing a descriptor of the lock file would release the lock.
    assert_eq!(store.read(&path("", LOCK_FILE), 1).expect_err("refused").errno, EACCES);
}

#[test]
fn a_failed_replace_keeps_the_old_file() {
    let dir = tempfile::tempdir().expect("scratch");
    let mut store = FileStore::new(dir.path());
    std::fs::create_dir_all(dir.path().join("t-0/target")).expect("made");
    store.replace(&path("t-0", "target"), b"x").expect_err("a directory is in the way");
    assert_eq!(store.list("t-0").expect("lists").len(), 1, "the file beside is removed");
}

#[test]
fn a_lock_excludes_other_processes_and_this_one() {
    if let Some(dir) = child::argument() {
        child::answer(&match LogDirLock::acquire(dir.as_ref()) {
            Ok(_) => "free".to_owned(),
            Err(error) => error.to_string(),
        });
        return;
    }
    let dir = tempfile::tempdir().expect("scratch");
    let at = dir.path().display().to_string();
    let other = || child::run("cold::a_lock_excludes_other_processes_and_this_one", &at, "");
    let lock = LogDirLock::acquire(dir.path()).expect("free");
    let refused = other();
    assert!(refused.contains(&at), "{refused}");
    assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
    let again = LogDirLock::acquire(dir.path());
    assert!(matches!(again, Err(LockError::HeldHere { .. })), "{again:?}");
    // A look by this process, and its refusal, have not released it.
    assert!(other().contains("in use"));
    drop(lock);
    assert_eq!(other(), "free");
    drop(LogDirLock::acquire(dir.path()).expect("free again"));
}

#[test]
fn probes_tell_the_unit_and_leave_nothing_behind() {
    let dir = tempfile::tempdir().expect("scratch");
    match probe_direct_io(dir.path()).expect("directory is writable") {
        DirectIo::Works { alignment } => {
            assert!(alignment.is_power_of_two() && (512..=4096).contains(&alignment));
        }
        DirectIo::Refused(why) => println!("direct I/O is refused here: {why}"),
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("listing").count(), 0);
    let space = disk_space(dir.path()).expect("known");
    assert!(space.free_bytes > 0 && space.free_bytes <= space.total_bytes);
    assert!(probe_direct_io(&dir.path().join("absent")).is_err());
}

/// Goal: a mirror starts on a full disk, and waits for room. Method: fill a small file system and
/// probe it; before it was full the answer was the same.
#[test]
fn a_full_disk_says_nothing_against_direct_writes() {
    if !TmpFs::is_allowed() {
        println!("skipped: this user may not mount a tmpfs");
        return;
    }
    let small = TmpFs::new(1 << 20).expect("allowed");
    let before = probe_direct_io(small.path()).expect("writable");
    let filling = std::fs::write(small.path().join("filling"), vec![1; 2 << 20]);
    assert_eq!(filling.map_err(|error| error.kind()), Err(std::io::ErrorKind::StorageFull));
    assert_eq!(probe_direct_io(small.path()).expect("a full disk is no reason"), before);
}

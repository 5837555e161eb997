//! A log dir: its file system, direct I/O, room.

use std::io;
use std::path::Path;

use super::{Fact, Verdict};
use crate::disk::{
    DirectIo, DiskSpace, LOCK_FILE, LockError, LogDirLock, disk_space, probe_direct_io,
};

/// Room below which preallocation and a few segments do not fit side by side.
const FREE_BYTES_WARN: u64 = 8 << 30;
/// Less than one segment.
const FREE_BYTES_FAIL: u64 = 1 << 30;

/// Kinds of file systems by the number that `statfs` gives.
const FILE_SYSTEMS: [(i64, &str, Kind); 11] = [
    (0xEF53, "ext4", Kind::Good),
    (0x5846_5342, "xfs", Kind::Good),
    (0x0102_1994, "tmpfs", Kind::Volatile),
    (0x9123_683E, "btrfs", Kind::Copying),
    (0x2FC1_2FC1, "zfs", Kind::Copying),
    (0xCA45_1A4E, "bcachefs", Kind::Copying),
    (0x794C_7630, "overlayfs", Kind::Layered),
    (0x6573_5546, "fuse", Kind::Layered),
    (0x6969, "nfs", Kind::Remote),
    (0xFF53_4D42, "cifs", Kind::Remote),
    (0xFE53_4D42, "smb2", Kind::Remote),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Good,
    Volatile,
    Copying,
    Layered,
    Remote,
}

pub(super) fn facts(dir: &Path) -> Vec<Fact> {
    let kind = match rustix::fs::statfs(dir) {
        Ok(stat) => judge_kind(stat.f_type),
        Err(errno) => return vec![unusable(dir, &errno.into())],
    };
    let direct = match probe_direct_io(dir) {
        Ok(direct) => judge_direct(direct),
        Err(error) => return vec![kind, unusable(dir, &error)],
    };
    let room = match disk_space(dir) {
        Ok(room) => judge_room(room),
        Err(error) => unusable(dir, &error),
    };
    vec![kind, direct, room]
}

fn unusable(dir: &Path, error: &io::Error) -> Fact {
    Fact::new("log_dir", error.to_string(), Verdict::Fail)
        .meaning(format!("no file can be written in {}", dir.display()))
        .remedy("make the directory, give it to this user, and mount it for writing")
}

pub(super) fn lock(dir: &Path) -> Fact {
    const NAME: &str = "log_dir.lock";
    // Locking would make the file.
    if dir.join(LOCK_FILE).exists()
        && let Err(error @ (LockError::Held { .. } | LockError::HeldHere { .. })) =
            LogDirLock::acquire(dir)
    {
        return Fact::new(NAME, error.to_string(), Verdict::Fail)
            .meaning("one process at a time writes to a log dir")
            .remedy("stop that process, or name another directory");
    }
    Fact::new(NAME, "free", Verdict::Ok).meaning("no other process writes to it")
}

fn judge_kind(number: i64) -> Fact {
    let known = FILE_SYSTEMS.iter().find(|(id, ..)| *id == number);
    let (name, kind) = known.map_or((format!("unknown ({number:#x})"), None), |(_, name, kind)| {
        ((*name).to_owned(), Some(*kind))
    });
    let (verdict, meaning) = match kind {
        Some(Kind::Good) => (Verdict::Ok, "appends are truly asynchronous"),
        Some(Kind::Volatile) => (Verdict::Warn, "the copy is gone when the machine stops"),
        Some(Kind::Copying) => {
            (Verdict::Warn, "it writes copies of its own, so that preallocation saves nothing")
        }
        Some(Kind::Layered) => (Verdict::Warn, "each write passes another layer first"),
        Some(Kind::Remote) => (
            Verdict::Warn,
            "locks and syncs depend on a server; Kafka's own rule is not to use it for logs",
        ),
        None => (Verdict::Warn, "nothing was measured on it"),
    };
    Fact::new("log_dir.file_system", name, verdict)
        .meaning(meaning)
        .remedy("put log.dirs on ext4 or xfs on a local disk")
}

fn judge_direct(direct: DirectIo) -> Fact {
    const NAME: &str = "log_dir.direct_io";
    match direct {
        DirectIo::Works { alignment } => {
            Fact::new(NAME, format!("works, units of {alignment} bytes"), Verdict::Ok)
                .meaning("hot partitions are written past the page cache")
        }
        DirectIo::Refused(why) => Fact::new(NAME, why.to_string(), Verdict::Warn)
            .meaning("all appends go through the page cache, at several times the CPU")
            .remedy("put log.dirs on ext4 or xfs on a local disk"),
    }
}

fn judge_room(room: DiskSpace) -> Fact {
    let verdict = match room.free_bytes {
        0..FREE_BYTES_FAIL => Verdict::Fail,
        FREE_BYTES_FAIL..FREE_BYTES_WARN => Verdict::Warn,
        _ => Verdict::Ok,
    };
    let value = format!("{} of {}", decimal(room.free_bytes), decimal(room.total_bytes));
    Fact::new("log_dir.free", value, verdict)
        .meaning("room for this user; a full disk stops appends until there is room again")
        .remedy("free some room, lower the retention of mirrored topics, or add a directory")
}

/// Room for reading, in the units that sizes of copies are given in.
fn decimal(bytes: u64) -> String {
    let (unit, name) = if bytes >= 1_000_000_000 { (10_000_000, "GB") } else { (10_000, "MB") };
    let hundredths = bytes / unit;
    format!("{}.{:02} {name}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DirectRefusal;

    #[test]
    fn a_log_dir_that_is_in_use_is_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(lock(dir.path()).verdict, Verdict::Ok);
        let held = LogDirLock::acquire(dir.path()).unwrap();
        let fact = lock(dir.path());
        assert_eq!(fact.verdict, Verdict::Fail);
        assert!(fact.value.contains("in use"), "{}", fact.value);
        drop(held);
        assert_eq!(lock(dir.path()).verdict, Verdict::Ok);
    }

    #[test]
    fn facts_of_a_directory_are_judged() {
        assert_eq!(judge_kind(0xEF53).verdict, Verdict::Ok);
        assert_eq!(judge_kind(0x6969).value, "nfs");
        assert_eq!(judge_kind(7).verdict, Verdict::Warn);
        assert_eq!(judge_direct(DirectIo::Works { alignment: 512 }).verdict, Verdict::Ok);
        let refused = judge_direct(DirectIo::Refused(DirectRefusal::Open));
        assert_eq!(refused.verdict, Verdict::Warn);
        for (free_bytes, verdict) in
            [(0, Verdict::Fail), (2 << 30, Verdict::Warn), (100 << 30, Verdict::Ok)]
        {
            assert_eq!(judge_room(DiskSpace { free_bytes, total_bytes: 1 << 40 }).verdict, verdict);
        }
        let room = DiskSpace { free_bytes: 5 << 20, total_bytes: 100 << 30 };
        assert_eq!(judge_room(room).value, "5.24 MB of 107.37 GB");
    }
}

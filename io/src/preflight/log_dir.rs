//! A log dir: its file system, direct I/O, room.

use std::io;
use std::path::Path;

use super::{Fact, Verdict, size};
use crate::disk::{DirectIo, DiskSpace, disk_space, probe_direct_io};

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
    let value = format!("{} of {}", size(room.free_bytes), size(room.total_bytes));
    Fact::new("log_dir.free", value, verdict)
        .meaning("room for this user; a full disk stops appends until there is room again")
        .remedy("free some room, lower the retention of mirrored topics, or add a directory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DirectRefusal;

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
    }
}

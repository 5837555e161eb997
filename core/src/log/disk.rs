//! What the log asks of the disk on the data path, as values.
//!
//! The log never waits: it emits [`DiskOp`]s and is told of each one's
//! [`DiskOutcome`]. io_uring and the simulated disk are two drivers of the same
//! operations. Nothing is ordered unless the log waits for a completion:
//! operations may complete in any order, and writes may be short.

use std::fmt;
use std::sync::Arc;

use super::slot::Slot;

/// An open segment file of this shard. Chosen by core, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// One operation in flight. Chosen by core, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// A file of a partition: `<log dir>/<dir>/<name>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPath {
    /// `topic-partition`, or empty for the log dir itself.
    pub dir: Arc<str>,
    /// File name.
    pub name: String,
}

impl fmt::Display for LogPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dir.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.dir, self.name)
        }
    }
}

/// One request to the disk.
#[derive(Debug)]
pub struct DiskOp {
    /// Comes back with the outcome.
    pub id: OpId,
    /// What to do.
    pub action: DiskAction,
}

/// What to do. Positions and lengths are bytes.
#[derive(Debug)]
pub enum DiskAction {
    /// Opens a segment file for writing. With `create`, makes it (it must not
    /// exist or be empty) and the partition's directory, and syncs the directory
    /// before completing, so that a file that was synced later cannot vanish.
    /// With `direct`, the driver opens it with `O_DIRECT`; [`DiskError::DirectUnsupported`]
    /// if the file system refuses.
    Open {
        /// Name of the file from here on.
        file: FileId,
        /// Where it is.
        path: LogPath,
        /// Make it.
        create: bool,
        /// Bypass the page cache; all writes will be block-aligned.
        direct: bool,
    },
    /// Closes a file; nothing else of it is in flight.
    Close {
        /// The file.
        file: FileId,
    },
    /// Writes `slot[from..from + len]` at `position`. May be short. The slot comes
    /// back with the completion.
    Write {
        /// The file.
        file: FileId,
        /// Where in the file.
        position: u64,
        /// The bytes; owned by the driver until completion.
        slot: Slot,
        /// First byte of the slot to write.
        from: usize,
        /// Bytes to write.
        len: usize,
    },
    /// `fdatasync`: what was completed before this was issued is durable once it completes.
    Sync {
        /// The file.
        file: FileId,
    },
    /// `fallocate` mode 0: the file grows, the tail reads as zeros.
    Preallocate {
        /// The file.
        file: FileId,
        /// From this position.
        from: u64,
        /// This many bytes.
        len: u64,
    },
    /// Cuts (or extends) the file to `len` and makes the new length durable.
    SetLength {
        /// The file.
        file: FileId,
        /// The new length.
        len: u64,
    },
    /// Reads `len` bytes at `position`; a shorter answer means the end of the file.
    Read {
        /// The file.
        file: FileId,
        /// Where in the file.
        position: u64,
        /// Bytes wanted.
        len: usize,
    },
    /// Writes small bytes at `position` of a side file (index, snapshot), which is
    /// created if missing and cut to the end of these bytes. Not durable unless `sync`.
    WriteAt {
        /// Where it is.
        path: LogPath,
        /// Where in the file.
        position: u64,
        /// The bytes.
        bytes: Vec<u8>,
        /// Complete only when durable, the directory entry included.
        sync: bool,
    },
    /// Replaces a whole small file atomically and durably: written beside, synced,
    /// renamed, directory synced.
    Replace {
        /// Where it is.
        path: LogPath,
        /// The whole contents.
        bytes: Vec<u8>,
    },
    /// Removes a file, durably; one that is not there is no error.
    Remove {
        /// Where it is.
        path: LogPath,
    },
}

/// How an operation ended.
#[derive(Debug)]
pub struct DiskOutcome {
    /// The operation.
    pub id: OpId,
    /// The slot of a write.
    pub slot: Option<Slot>,
    /// What happened.
    pub result: Result<DiskDone, DiskError>,
}

/// What an operation achieved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskDone {
    /// Everything that was asked.
    Done,
    /// So many bytes written, at least one.
    Written(usize),
    /// The bytes read.
    Read(Vec<u8>),
}

/// Why the disk refused. `EINTR` and `EAGAIN` never get here: the driver repeats them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// `ENOSPC` or `EDQUOT`: waits for room, loses nothing.
    #[error("no space left on the device")]
    NoSpace,
    /// The file system does not take `O_DIRECT`.
    #[error("the file system refuses O_DIRECT")]
    DirectUnsupported,
    /// Anything else, by its error number.
    #[error("I/O error {0}")]
    Io(i32),
}

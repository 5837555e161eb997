//! One process a log dir, by the same lock that a Kafka broker takes.
//!
//! Kafka locks the file `.lock` through Java's `FileChannel`, which on Linux is a POSIX
//! record lock over the whole file. Such a lock belongs to the process, not to the
//! descriptor: a second one in the same process succeeds, and closing any descriptor of
//! the file releases it. So this module remembers what the process holds and never opens
//! such a file again, and nothing else opens it at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

/// Kafka's name of the file.
pub const LOCK_FILE: &str = ".lock";

/// Device and inode of the lock files that this process holds.
static HELD: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// Why a log dir was not locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process has it.
    #[error(
        "log dir {dir} is in use by {}: stop it, or name another directory",
        holder(*.pid)
    )]
    Held {
        /// The log dir.
        dir: PathBuf,
        /// The process, if the kernel tells.
        pid: Option<u32>,
    },
    /// This process has it.
    #[error("log dir {dir} is in use by this process: it is named twice")]
    HeldHere {
        /// The log dir.
        dir: PathBuf,
    },
    /// The file cannot be made or locked.
    #[error("log dir {dir} cannot be locked; it must exist and be writable")]
    Io {
        /// The log dir.
        dir: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid} (a Kafka broker or another heliostat)"),
        None => "another process (a Kafka broker or another heliostat)".to_owned(),
    }
}

/// The lock of a log dir; dropping it unlocks. The file stays, as with Kafka.
#[derive(Debug)]
pub struct LogDirLock {
    file: Option<File>,
    key: (u64, u64),
}

impl LogDirLock {
    /// Locks a log dir, without waiting.
    ///
    /// # Errors
    /// [`LockError`], naming the directory and the remedy.
    pub fn acquire(dir: &Path) -> Result<Self, LockError> {
        let path = dir.join(LOCK_FILE);
        let failed = |source| LockError::Io { dir: dir.to_path_buf(), source };
        // Held to the end: nobody may open the file between the look and the entry.
        let mut held = held();
        if let Ok(metadata) = fs::metadata(&path)
            && held.contains(&key_of(&metadata))
        {
            return Err(LockError::HeldHere { dir: dir.to_path_buf() });
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o644);
        let file = file.open(&path).map_err(failed)?;
        let key = key_of(&file.metadata().map_err(failed)?);
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => {
                let pid = holder_of(key);
                return Err(LockError::Held { dir: dir.to_path_buf(), pid });
            }
            Err(errno) => return Err(failed(errno.into())),
        }
        held.push(key);
        Ok(Self { file: Some(file), key })
    }

    /// The process that uses a log dir, without taking or touching its lock.
    pub fn holder(dir: &Path) -> Option<u32> {
        let key = key_of(&fs::metadata(dir.join(LOCK_FILE)).ok()?);
        if held().contains(&key) { Some(std::process::id()) } else { holder_of(key) }
    }
}

impl Drop for LogDirLock {
    fn drop(&mut self) {
        let mut held = held();
        // Closing unlocks; only then may somebody else here try.
        drop(self.file.take());
        held.retain(|key| *key != self.key);
    }
}

fn held() -> MutexGuard<'static, Vec<(u64, u64)>> {
    // A panic elsewhere cannot leave the list half-changed.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key_of(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The process that has a record lock on a file, from the kernel's list.
fn holder_of((dev, ino): (u64, u64)) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let wanted = format!("{major:02x}:{minor:02x}:{ino}");
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // "4: POSIX  ADVISORY  WRITE 8618 fe:00:10027082 0 EOF"
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(4);
        let (pid, file) = (words.next()?, words.next()?);
        if file == wanted { pid.parse().ok() } else { None }
    })
}

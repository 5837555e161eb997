//! How much room a log dir has.

use std::io;
use std::path::Path;

/// Room of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that this user may still write; the share reserved for root is not in it.
    pub free_bytes: u64,
    /// Bytes of the whole file system.
    pub total_bytes: u64,
}

/// Room of the file system that `dir` lies on.
///
/// # Errors
/// From the system.
pub fn disk_space(dir: &Path) -> io::Result<DiskSpace> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(DiskSpace {
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
    })
}

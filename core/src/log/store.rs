//! File access off the data path: opening, recovery, truncation, checkpoints.
//!
//! These steps are rare, may block, and run on threads of their own, so they are
//! plain calls. The simulation gives the same trait over its disk.

use std::ops::ControlFlow;

use super::disk::LogPath;

/// Why a call failed: what was done, to which file, and the error number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{action} of {path} failed: {}", std::io::Error::from_raw_os_error(*errno))]
pub struct StoreError {
    /// `read`, `write`, `sync`, `rename`…
    pub action: &'static str,
    /// The file, as far as it is known.
    pub path: String,
    /// The system's error number.
    pub errno: i32,
}

/// A file or directory in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEntry {
    /// Name without its directory.
    pub name: String,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Blocking access to one log dir. Paths are relative to it.
pub trait ColdStore {
    /// What is in partition directory `dir` (empty: the log dir itself), in no order.
    /// An absent directory is an error with `ENOENT`.
    ///
    /// # Errors
    /// [`StoreError`] from the system.
    fn list(&self, dir: &str) -> Result<Vec<StoreEntry>, StoreError>;

    /// A whole small file, `None` if it is not there. Refuses (`EFBIG`) above `bytes_max`.
    ///
    /// # Errors
    /// [`StoreError`] from the system.
    fn read(&self, path: &LogPath, bytes_max: u64) -> Result<Option<Vec<u8>>, StoreError>;

    /// Shows the bytes of a file from `from` on, in order, in pieces of any size,
    /// until `see` breaks or the file ends. The file must not be written meanwhile.
    ///
    /// # Errors
    /// [`StoreError`] from the system.
    fn scan(
        &self,
        path: &LogPath,
        from: u64,
        see: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError>;

    /// Replaces a whole file atomically and durably, making the directory if needed.
    ///
    /// # Errors
    /// [`StoreError`] from the system; the old contents then still stand.
    fn replace(&mut self, path: &LogPath, bytes: &[u8]) -> Result<(), StoreError>;

    /// Appends to a file, durably, making it if needed.
    ///
    /// # Errors
    /// [`StoreError`] from the system; part of the bytes may be there.
    fn append(&mut self, path: &LogPath, bytes: &[u8]) -> Result<(), StoreError>;

    /// Cuts a file to `len`, durably.
    ///
    /// # Errors
    /// [`StoreError`] from the system.
    fn set_len(&mut self, path: &LogPath, len: u64) -> Result<(), StoreError>;

    /// Makes what a file holds durable.
    ///
    /// # Errors
    /// [`StoreError`] from the system.
    fn sync(&mut self, path: &LogPath) -> Result<(), StoreError>;

    /// Removes a file, durably; one that is not there is no error.
    ///
    /// # Errors
    /// [`StoreError`] from the system.
    fn remove(&mut self, path: &LogPath) -> Result<(), StoreError>;

    /// Renames a file within its directory, durably; an existing target is replaced.
    ///
    /// # Errors
    /// [`StoreError`] from the system.
    fn rename(&mut self, path: &LogPath, to_name: &str) -> Result<(), StoreError>;

    /// Makes the directory `dir`, durably; one that is there is no error.
    ///
    /// # Errors
    /// [`StoreError`] from the system.
    fn create_dir(&mut self, dir: &str) -> Result<(), StoreError>;
}

//! The simulated disk as the control thread sees it: calls that block and are durable.

use std::ops::ControlFlow;

use heliostat_core::log::disk::LogPath;
use heliostat_core::log::store::{ColdStore, StoreEntry, StoreError};

use crate::disk::SimDisk;

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EFBIG: i32 = 27;

/// Pieces that a scan shows; odd on purpose.
const PIECE_BYTES: usize = 7_001;

fn error(action: &'static str, path: &LogPath, errno: i32) -> StoreError {
    StoreError { action, path: path.to_string(), errno }
}

impl SimDisk {
    /// Counts a changing call; fails once the process is said to have died.
    fn cold(&mut self, action: &'static str, path: &LogPath) -> Result<(), StoreError> {
        match &mut self.cold_calls_left {
            None => Ok(()),
            Some(0) => Err(error(action, path, EIO)),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

impl ColdStore for SimDisk {
    fn list(&self, dir: &str) -> Result<Vec<StoreEntry>, StoreError> {
        if !self.has_dir(dir) {
            return Err(StoreError { action: "list", path: dir.to_owned(), errno: ENOENT });
        }
        let entry = |name: &str| {
            let bytes = self.contents(&format!("{dir}/{name}")).map_or(0, Vec::len);
            let len = u64::try_from(bytes).unwrap_or(u64::MAX);
            StoreEntry { name: name.to_owned(), len, is_dir: false }
        };
        Ok(self.files(dir).map(entry).collect())
    }

    fn read(&self, path: &LogPath, bytes_max: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(bytes) = self.contents(&path.to_string()) else { return Ok(None) };
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > bytes_max {
            return Err(error("read", path, EFBIG));
        }
        Ok(Some(bytes.clone()))
    }

    fn scan(
        &self,
        path: &LogPath,
        from: u64,
        see: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let bytes = self.contents(&path.to_string()).ok_or_else(|| error("scan", path, ENOENT))?;
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
        for piece in bytes[from..].chunks(PIECE_BYTES) {
            if see(piece).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn replace(&mut self, path: &LogPath, bytes: &[u8]) -> Result<(), StoreError> {
        self.cold("replace", path)?;
        self.replace_file(&path.to_string(), bytes);
        Ok(())
    }

    fn append(&mut self, path: &LogPath, bytes: &[u8]) -> Result<(), StoreError> {
        self.cold("append", path)?;
        self.append_file(&path.to_string(), bytes);
        Ok(())
    }

    fn set_len(&mut self, path: &LogPath, len: u64) -> Result<(), StoreError> {
        self.cold("cut", path)?;
        if self.set_file_len(&path.to_string(), len) {
            Ok(())
        } else {
            Err(error("cut", path, ENOENT))
        }
    }

    fn sync(&mut self, path: &LogPath) -> Result<(), StoreError> {
        self.cold("sync", path)?;
        if self.sync_file(&path.to_string()) { Ok(()) } else { Err(error("sync", path, ENOENT)) }
    }

    fn remove(&mut self, path: &LogPath) -> Result<(), StoreError> {
        self.cold("remove", path)?;
        self.remove_file(&path.to_string());
        Ok(())
    }

    fn rename(&mut self, path: &LogPath, to_name: &str) -> Result<(), StoreError> {
        self.cold("rename", path)?;
        let to = LogPath { dir: path.dir.clone(), name: to_name.to_owned() };
        if self.rename_file(&path.to_string(), &to.to_string()) {
            Ok(())
        } else {
            Err(error("rename", path, ENOENT))
        }
    }

    fn create_dir(&mut self, dir: &str) -> Result<(), StoreError> {
        self.make_dir(dir);
        Ok(())
    }
}

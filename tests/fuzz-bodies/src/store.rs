//! A log dir in memory.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use heliostat_core::log::disk::LogPath;
use heliostat_core::log::store::{ColdStore, StoreEntry, StoreError};

const ENOENT: i32 = 2;
const EFBIG: i32 = 27;

/// Files by directory and name. Whatever is written is durable.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MemoryStore {
    dirs: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
}

impl MemoryStore {
    /// Puts a file there.
    pub(crate) fn put(&mut self, dir: &str, name: &str, bytes: &[u8]) {
        self.dirs.entry(dir.to_owned()).or_default().insert(name.to_owned(), bytes.to_vec());
    }

    /// What a file holds; `None` if it is not there.
    pub(crate) fn get(&self, dir: &str, name: &str) -> Option<&[u8]> {
        self.dirs.get(dir)?.get(name).map(Vec::as_slice)
    }

    fn file(&mut self, action: &'static str, path: &LogPath) -> Result<&mut Vec<u8>, StoreError> {
        let dir = self.dirs.get_mut(&*path.dir);
        dir.and_then(|dir| dir.get_mut(&path.name)).ok_or_else(|| error(action, path, ENOENT))
    }
}

fn error(action: &'static str, path: &LogPath, errno: i32) -> StoreError {
    StoreError { action, path: path.to_string(), errno }
}

impl ColdStore for MemoryStore {
    fn list(&self, dir: &str) -> Result<Vec<StoreEntry>, StoreError> {
        let path = LogPath { dir: dir.into(), name: String::new() };
        let files = self.dirs.get(dir).ok_or_else(|| error("list", &path, ENOENT))?;
        let entry = |(name, bytes): (&String, &Vec<u8>)| StoreEntry {
            name: name.clone(),
            len: u64::try_from(bytes.len()).unwrap_or(0),
            is_dir: false,
        };
        Ok(files.iter().map(entry).collect())
    }

    fn read(&self, path: &LogPath, bytes_max: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.dirs.get(&*path.dir).and_then(|dir| dir.get(&path.name));
        match found {
            Some(bytes) if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > bytes_max => {
                Err(error("read", path, EFBIG))
            }
            found => Ok(found.cloned()),
        }
    }

    fn scan(
        &self,
        path: &LogPath,
        from: u64,
        see: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let found = self.dirs.get(&*path.dir).and_then(|dir| dir.get(&path.name));
        let bytes = found.ok_or_else(|| error("scan", path, ENOENT))?;
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
        // In odd pieces, so that nothing leans on their size.
        for part in bytes[from..].chunks(1009) {
            if see(part).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn replace(&mut self, path: &LogPath, bytes: &[u8]) -> Result<(), StoreError> {
        self.put(&path.dir.clone(), &path.name.clone(), bytes);
        Ok(())
    }

    fn append(&mut self, path: &LogPath, bytes: &[u8]) -> Result<(), StoreError> {
        let dir = self.dirs.entry(path.dir.to_string()).or_default();
        dir.entry(path.name.clone()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn set_len(&mut self, path: &LogPath, len: u64) -> Result<(), StoreError> {
        let len = usize::try_from(len).map_err(|_| error("set length", path, EFBIG))?;
        self.file("set length", path)?.resize(len, 0);
        Ok(())
    }

    fn sync(&mut self, path: &LogPath) -> Result<(), StoreError> {
        self.file("sync", path).map(|_| ())
    }

    fn remove(&mut self, path: &LogPath) -> Result<(), StoreError> {
        if let Some(dir) = self.dirs.get_mut(&*path.dir) {
            dir.remove(&path.name);
        }
        Ok(())
    }

    fn rename(&mut self, path: &LogPath, to_name: &str) -> Result<(), StoreError> {
        let bytes = std::mem::take(self.file("rename", path)?);
        self.remove(path)?;
        self.put(&path.dir.clone(), to_name, &bytes);
        Ok(())
    }

    fn create_dir(&mut self, dir: &str) -> Result<(), StoreError> {
        self.dirs.entry(dir.to_owned()).or_default();
        Ok(())
    }
}

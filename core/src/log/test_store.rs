//! A log dir in memory that stops working in the middle of a call, for tests.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::disk::LogPath;
use super::store::{ColdStore, StoreEntry, StoreError};

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EFBIG: i32 = 27;
/// Pieces that a scan shows; odd on purpose.
const PIECE_BYTES: usize = 101;

/// What the call in which the process dies leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Torn {
    Nothing,
    /// Of an append a part, of all else nothing.
    Half,
    All,
}

impl Torn {
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::Half, Self::All];
}

/// Files by directory and name. Whatever a call wrote is durable once it has returned.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TestStore {
    dirs: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// Changing calls left, and what the next one leaves; `None`: no crash is planned.
    crash: Option<(u64, Torn)>,
    /// Changing calls so far.
    pub(crate) calls: u64,
    /// Directories whose files cannot be changed.
    pub(crate) broken: Vec<String>,
}

impl TestStore {
    /// The call after `calls` more changing ones leaves `torn`; nothing works from then on.
    pub(crate) fn crash_after(&mut self, calls: u64, torn: Torn) {
        self.crash = Some((calls, torn));
    }

    /// The process starts again.
    pub(crate) fn restart(&mut self) {
        self.crash = None;
    }

    pub(crate) fn get(&self, dir: &str, name: &str) -> Option<&Vec<u8>> {
        self.dirs.get(dir)?.get(name)
    }

    pub(crate) fn get_mut(&mut self, dir: &str, name: &str) -> Option<&mut Vec<u8>> {
        self.dirs.get_mut(dir)?.get_mut(name)
    }

    pub(crate) fn names(&self, dir: &str) -> Vec<&str> {
        self.dirs.get(dir).into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    /// What of the call happens; an error once the process is said to have died.
    fn change(
        &mut self,
        action: &'static str,
        path: &LogPath,
        act: impl FnOnce(&mut Self, Torn) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if self.broken.iter().any(|dir| **dir == *path.dir) {
            return Err(error(action, path, EIO));
        }
        self.calls += 1;
        match &mut self.crash {
            None => act(self, Torn::All),
            Some((0, torn)) => {
                let left = std::mem::replace(torn, Torn::Nothing);
                if left != Torn::Nothing {
                    let _ = act(self, left);
                }
                Err(error(action, path, EIO))
            }
            Some((calls, _)) => {
                *calls -= 1;
                act(self, Torn::All)
            }
        }
    }

    fn file(&mut self, action: &'static str, path: &LogPath) -> Result<&mut Vec<u8>, StoreError> {
        self.get_mut(&path.dir, &path.name).ok_or_else(|| error(action, path, ENOENT))
    }

    fn put(&mut self, path: &LogPath, name: &str, bytes: Vec<u8>) {
        self.dirs.entry(path.dir.to_string()).or_default().insert(name.to_owned(), bytes);
    }
}

fn error(action: &'static str, path: &LogPath, errno: i32) -> StoreError {
    StoreError { action, path: path.to_string(), errno }
}

impl ColdStore for TestStore {
    fn list(&self, dir: &str) -> Result<Vec<StoreEntry>, StoreError> {
        let as_entry = |(name, bytes): (&String, &Vec<u8>)| StoreEntry {
            name: name.clone(),
            len: u64::try_from(bytes.len()).unwrap(),
            is_dir: false,
        };
        if dir.is_empty() {
            let dirs = self.dirs.keys().filter(|name| !name.is_empty());
            let dirs = dirs.map(|name| StoreEntry { name: name.clone(), len: 0, is_dir: true });
            let files = self.dirs.get("").into_iter().flatten().map(as_entry);
            return Ok(dirs.chain(files).collect());
        }
        let path = LogPath { dir: dir.into(), name: String::new() };
        let files = self.dirs.get(dir).ok_or_else(|| error("list", &path, ENOENT))?;
        Ok(files.iter().map(as_entry).collect())
    }

    fn read(&self, path: &LogPath, bytes_max: u64) -> Result<Option<Vec<u8>>, StoreError> {
        match self.get(&path.dir, &path.name) {
            Some(bytes) if u64::try_from(bytes.len()).unwrap() > bytes_max => {
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
        let bytes = self.get(&path.dir, &path.name).ok_or_else(|| error("scan", path, ENOENT))?;
        let from = usize::try_from(from).unwrap().min(bytes.len());
        for part in bytes[from..].chunks(PIECE_BYTES) {
            if see(part).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn replace(&mut self, path: &LogPath, bytes: &[u8]) -> Result<(), StoreError> {
        self.change("write", path, |it, torn| {
            if torn == Torn::Half {
                let half = bytes[..bytes.len() / 2].to_vec();
                it.put(path, &format!("{}.tmp", path.name), half);
            } else {
                it.put(path, &path.name, bytes.to_vec());
            }
            Ok(())
        })
    }

    fn append(&mut self, path: &LogPath, bytes: &[u8]) -> Result<(), StoreError> {
        self.change("append", path, |it, torn| {
            let len = if torn == Torn::Half { bytes.len() / 2 } else { bytes.len() };
            let dir = it.dirs.entry(path.dir.to_string()).or_default();
            dir.entry(path.name.clone()).or_default().extend_from_slice(&bytes[..len]);
            Ok(())
        })
    }

    fn set_len(&mut self, path: &LogPath, len: u64) -> Result<(), StoreError> {
        self.change("truncate", path, |it, torn| {
            if torn == Torn::All {
                it.file("truncate", path)?.resize(usize::try_from(len).unwrap(), 0);
            }
            Ok(())
        })
    }

    fn sync(&mut self, path: &LogPath) -> Result<(), StoreError> {
        self.change("sync", path, |it, _| it.file("sync", path).map(|_| ()))
    }

    fn remove(&mut self, path: &LogPath) -> Result<(), StoreError> {
        self.change("remove", path, |it, torn| {
            if torn == Torn::All
                && let Some(dir) = it.dirs.get_mut(&*path.dir)
            {
                dir.remove(&path.name);
            }
            Ok(())
        })
    }

    fn rename(&mut self, path: &LogPath, to_name: &str) -> Result<(), StoreError> {
        self.change("rename", path, |it, torn| {
            if torn == Torn::All {
                let bytes = it.file("rename", path)?.clone();
                it.dirs.entry(path.dir.to_string()).or_default().remove(&path.name);
                it.put(path, to_name, bytes);
            }
            Ok(())
        })
    }

    fn create_dir(&mut self, dir: &str) -> Result<(), StoreError> {
        let path = LogPath { dir: dir.into(), name: String::new() };
        self.change("create", &path, |it, torn| {
            if torn == Torn::All {
                it.dirs.entry(dir.to_owned()).or_default();
            }
            Ok(())
        })
    }
}

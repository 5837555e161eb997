//! A log dir in memory: calls fail, and the process dies inside of them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use heliostat_core::log::disk::LogPath;
use heliostat_core::log::store::{ColdStore, StoreEntry, StoreError};

use crate::rng::Chance;

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;

/// What a call leaves that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Torn {
    Nothing,
    /// Of an append a part, of all else nothing.
    Half,
    /// All of it: a sync that failed.
    All,
}

type Files = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct SimStore {
    dirs: Files,
    chance: Chance,
    /// Changing calls left before the process dies.
    pub(crate) dies_in: Option<usize>,
    /// Nothing works any more.
    pub(crate) dead: bool,
    /// Percentage of changing calls that fail.
    pub(crate) errors: usize,
    /// The disk is full.
    pub(crate) full: bool,
    /// Appends to logs are not synced, as a shard's are not.
    pub(crate) lazy: bool,
    /// How much of a file survives a crash, where that is not all.
    synced: BTreeMap<(String, String), usize>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl SimStore {
    pub(crate) fn new(chance: Chance) -> Self {
        Self {
            dirs: Files::new(),
            chance,
            dies_in: None,
            dead: false,
            errors: 0,
            full: false,
            lazy: false,
            synced: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// The same files on a disk without faults.
    pub(crate) fn view(&self) -> Self {
        Self { dirs: self.dirs.clone(), ..Self::new(Chance::new(0, 0)) }
    }

    /// Some of what was not synced is gone.
    pub(crate) fn crash(&mut self) {
        for ((dir, name), len) in std::mem::take(&mut self.synced) {
            if let Some(bytes) = self.dirs.get_mut(&dir).and_then(|dir| dir.get_mut(&name)) {
                let kept = self.chance.between(len.min(bytes.len()), bytes.len());
                if kept < bytes.len() {
                    *self.counts.entry("unsynced tail lost").or_default() += 1;
                }
                bytes.truncate(kept);
            }
        }
        (self.dead, self.dies_in, self.lazy) = (false, None, false);
    }

    /// All of a directory is durable.
    pub(crate) fn sync_dir(&mut self, dir: &str) {
        self.synced.retain(|(of, _), _| of != dir);
    }

    pub(crate) fn has_log(&self, dir: &str) -> bool {
        self.dirs.get(dir).is_some_and(|files| files.keys().any(|name| name.ends_with(".log")))
    }

    fn change(
        &mut self,
        action: &'static str,
        path: &LogPath,
        act: impl FnOnce(&mut Self, Torn) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if self.dead {
            return Err(error(action, path, EIO));
        }
        let grows = matches!(action, "append" | "write" | "create");
        let (fault, errno) = match &mut self.dies_in {
            Some(0) => {
                self.dead = true;
                ("died inside a call", EIO)
            }
            dies_in => {
                if let Some(left) = dies_in {
                    *left -= 1;
                }
                if self.full && grows {
                    ("disk full", ENOSPC)
                } else if self.errors > 0 && self.chance.percent(self.errors) {
                    ("call failed", EIO)
                } else {
                    return act(self, Torn::All);
                }
            }
        };
        *self.counts.entry(fault).or_default() += 1;
        let torn = self.chance.pick(&[Torn::Nothing, Torn::Half, Torn::All]);
        if torn != Torn::Nothing && !(errno == ENOSPC && torn == Torn::All) {
            let _ = act(self, torn);
        }
        Err(error(action, path, errno))
    }

    fn file(&mut self, action: &'static str, path: &LogPath) -> Result<&mut Vec<u8>, StoreError> {
        let file = self.dirs.get_mut(&*path.dir).and_then(|dir| dir.get_mut(&path.name));
        file.ok_or_else(|| error(action, path, ENOENT))
    }

    fn put(&mut self, path: &LogPath, name: &str, bytes: Vec<u8>) {
        self.dirs.entry(path.dir.to_string()).or_default().insert(name.to_owned(), bytes);
    }
}

fn of(path: &LogPath) -> (String, String) {
    (path.dir.to_string(), path.name.clone())
}

fn error(action: &'static str, path: &LogPath, errno: i32) -> StoreError {
    StoreError { action, path: path.to_string(), errno }
}

fn size(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

impl ColdStore for SimStore {
    fn list(&self, dir: &str) -> Result<Vec<StoreEntry>, StoreError> {
        let as_entry = |(name, bytes): (&String, &Vec<u8>)| StoreEntry {
            name: name.clone(),
            len: size(bytes),
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
        match self.dirs.get(&*path.dir).and_then(|dir| dir.get(&path.name)) {
            Some(bytes) if size(bytes) > bytes_max => Err(error("read", path, EFBIG)),
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
        let _ = see(&bytes[from..]);
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
            let file = dir.entry(path.name.clone()).or_default();
            let before = file.len();
            file.extend_from_slice(&bytes[..len]);
            if it.lazy && path.name.ends_with(".log") {
                it.synced.entry(of(path)).or_insert(before);
            }
            Ok(())
        })
    }

    fn set_len(&mut self, path: &LogPath, len: u64) -> Result<(), StoreError> {
        self.change("truncate", path, |it, torn| {
            if torn == Torn::All {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                it.file("truncate", path)?.resize(len, 0);
                it.synced.remove(&of(path));
            }
            Ok(())
        })
    }

    fn sync(&mut self, path: &LogPath) -> Result<(), StoreError> {
        self.change("sync", path, |it, torn| {
            if torn == Torn::All {
                it.synced.remove(&of(path));
            }
            it.file("sync", path).map(|_| ())
        })
    }

    fn remove(&mut self, path: &LogPath) -> Result<(), StoreError> {
        self.change("remove", path, |it, torn| {
            if torn == Torn::All
                && let Some(dir) = it.dirs.get_mut(&*path.dir)
            {
                dir.remove(&path.name);
                it.synced.remove(&of(path));
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
        if self.dirs.contains_key(dir) {
            return Ok(());
        }
        let path = LogPath { dir: dir.into(), name: String::new() };
        self.change("create", &path, |it, torn| {
            if torn == Torn::All {
                it.dirs.entry(dir.to_owned()).or_default();
            }
            Ok(())
        })
    }
}

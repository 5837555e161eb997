//! A log dir in memory: calls fail, and the process dies inside of them. The disk below is the
//! one of the engine's simulation, so what shards ask of it and what is called go to the same files.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use heliostat_core::log::disk::{DiskOutcome, LogPath};
use heliostat_core::log::store::{ColdStore, StoreEntry, StoreError};

use crate::disk::{CrashKind, FaultPlan, SimDisk};
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

/// See the module's text.
#[derive(Debug)]
pub(crate) struct SimStore {
    pub(crate) disk: SimDisk,
    chance: Chance,
    /// Changing calls left before the process dies.
    pub(crate) dies_in: Option<usize>,
    /// Nothing works any more.
    pub(crate) dead: bool,
    /// Percentage of changing calls that fail.
    pub(crate) errors: usize,
    /// The disk is full.
    pub(crate) full: bool,
    /// Appends to logs are not synced, as those of a broker are not.
    pub(crate) lazy: bool,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl SimStore {
    /// Both draw from `seed`, the second one for what the disk does with operations and crashes.
    pub(crate) fn new(chance: Chance, of_disk: Chance) -> Self {
        Self::over(SimDisk::new(of_disk, FaultPlan::default()), chance)
    }

    fn over(disk: SimDisk, chance: Chance) -> Self {
        Self {
            disk,
            chance,
            dies_in: None,
            dead: false,
            errors: 0,
            full: false,
            lazy: false,
            counts: BTreeMap::new(),
        }
    }

    /// The same files on a disk without faults.
    pub(crate) fn view(&self) -> Self {
        Self::over(self.disk.view(), Chance::new(0, 0))
    }

    /// What was under way happens in part, and some of what was not synced is gone.
    pub(crate) fn crash(&mut self) {
        let kind =
            self.chance.pick(&[CrashKind::Process, CrashKind::Power, CrashKind::PowerNothingKept]);
        drop(self.disk.crash(kind));
        (self.dead, self.dies_in, self.lazy) = (false, None, false);
    }

    /// The process ends, and nothing is lost.
    pub(crate) fn ends(&mut self) {
        drop(self.disk.crash(CrashKind::Process));
    }

    /// All of a directory is durable.
    pub(crate) fn sync_dir(&mut self, dir: &str) {
        let paths: Vec<String> = self.disk.files(dir).map(|name| format!("{dir}/{name}")).collect();
        for path in paths {
            self.disk.sync_file(&path);
        }
    }

    pub(crate) fn has_log(&self, dir: &str) -> bool {
        self.disk.files(dir).any(|name| name.ends_with(".log"))
    }

    /// One operation of a shard ends, whichever; `None` if there is none, or the process died.
    pub(crate) fn complete_one(&mut self) -> Option<DiskOutcome> {
        if self.dead || self.disk.in_flight() == 0 {
            return None;
        }
        match &mut self.dies_in {
            Some(0) => {
                self.dead = true;
                *self.counts.entry("died with operations in flight").or_default() += 1;
                return None;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.disk.plan = FaultPlan {
            short_write: 5,
            write_error: self.errors,
            no_space: if self.full { 100 } else { 0 },
            sync_error: self.errors,
            other_error: self.errors,
            direct_refused: 0,
            direct_block_bytes: 512,
        };
        self.disk.complete_one()
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
}

fn error(action: &'static str, path: &LogPath, errno: i32) -> StoreError {
    StoreError { action, path: path.to_string(), errno }
}

fn size(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

impl ColdStore for SimStore {
    fn list(&self, dir: &str) -> Result<Vec<StoreEntry>, StoreError> {
        let entry = |name: &str, path: &str| StoreEntry {
            name: name.to_owned(),
            len: self.disk.contents(path).map_or(0, |bytes| size(bytes)),
            is_dir: false,
        };
        if dir.is_empty() {
            let dirs = self.disk.dirs();
            let dirs = dirs.map(|name| StoreEntry { name: name.to_owned(), len: 0, is_dir: true });
            let files = self.disk.top_files().map(|name| entry(name, name));
            return Ok(dirs.chain(files).collect());
        }
        let path = LogPath { dir: dir.into(), name: String::new() };
        if !self.disk.has_dir(dir) {
            return Err(error("list", &path, ENOENT));
        }
        let files = self.disk.files(dir);
        Ok(files.map(|name| entry(name, &format!("{dir}/{name}"))).collect())
    }

    fn read(&self, path: &LogPath, bytes_max: u64) -> Result<Option<Vec<u8>>, StoreError> {
        match self.disk.contents(&path.to_string()) {
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
        let found = self.disk.contents(&path.to_string());
        let bytes = found.ok_or_else(|| error("scan", path, ENOENT))?;
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
        let _ = see(&bytes[from..]);
        Ok(())
    }

    fn replace(&mut self, path: &LogPath, bytes: &[u8]) -> Result<(), StoreError> {
        self.change("write", path, |it, torn| {
            if torn == Torn::Half {
                it.disk.replace_file(&format!("{path}.tmp"), &bytes[..bytes.len() / 2]);
            } else {
                it.disk.replace_file(&path.to_string(), bytes);
            }
            if !path.dir.is_empty() {
                it.disk.make_dir(&path.dir);
            }
            Ok(())
        })
    }

    fn append(&mut self, path: &LogPath, bytes: &[u8]) -> Result<(), StoreError> {
        self.change("append", path, |it, torn| {
            let len = if torn == Torn::Half { bytes.len() / 2 } else { bytes.len() };
            if it.lazy && path.name.ends_with(".log") {
                it.disk.append_lazily(&path.to_string(), &bytes[..len]);
            } else {
                it.disk.append_file(&path.to_string(), &bytes[..len]);
            }
            Ok(())
        })
    }

    fn set_len(&mut self, path: &LogPath, len: u64) -> Result<(), StoreError> {
        self.change("truncate", path, |it, torn| {
            if torn == Torn::All && !it.disk.set_file_len(&path.to_string(), len) {
                return Err(error("truncate", path, ENOENT));
            }
            Ok(())
        })
    }

    fn sync(&mut self, path: &LogPath) -> Result<(), StoreError> {
        self.change("sync", path, |it, torn| {
            let is_there = if torn == Torn::All {
                it.disk.sync_file(&path.to_string())
            } else {
                it.disk.contents(&path.to_string()).is_some()
            };
            if is_there { Ok(()) } else { Err(error("sync", path, ENOENT)) }
        })
    }

    fn remove(&mut self, path: &LogPath) -> Result<(), StoreError> {
        self.change("remove", path, |it, torn| {
            if torn == Torn::All {
                it.disk.remove_file(&path.to_string());
            }
            Ok(())
        })
    }

    fn rename(&mut self, path: &LogPath, to_name: &str) -> Result<(), StoreError> {
        self.change("rename", path, |it, torn| {
            let to = LogPath { dir: Arc::clone(&path.dir), name: to_name.to_owned() };
            if torn == Torn::All && !it.disk.rename_file(&path.to_string(), &to.to_string()) {
                return Err(error("rename", path, ENOENT));
            }
            Ok(())
        })
    }

    fn create_dir(&mut self, dir: &str) -> Result<(), StoreError> {
        if self.disk.has_dir(dir) {
            return Ok(());
        }
        let path = LogPath { dir: dir.into(), name: String::new() };
        self.change("create", &path, |it, torn| {
            if torn == Torn::All {
                it.disk.make_dir(dir);
            }
            Ok(())
        })
    }
}

//! A disk in memory that does all that a disk may do.
//!
//! * Operations complete in any order; writes may be short; any may fail.
//! * What a file holds and what of it survives a crash are two things. Each change
//!   that was not synced survives on its own or not; a write survives by sectors.
//! * A name that was not synced may be there or not; so may one that was removed.
//! * A sync makes durable what was complete when it was submitted.
//!
//! It watches its user as well: two writes in flight that share a block, a write
//! that is not aligned, an operation on a file that is not open.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use heliostat_core::log::disk::{
    DiskAction, DiskDone, DiskError, DiskOp, DiskOutcome, FileId, OpId,
};
use heliostat_core::log::slot::{Slot, SlotPool, map_apart};

use crate::rng::Chance;

/// What survives of a write that was cut by a crash.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Debug)]
enum Change {
    Write { position: usize, bytes: Vec<u8> },
    SetLength(usize),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write { position, bytes } => {
                let end = position + bytes.len();
                if to.len() < end {
                    to.resize(end, 0);
                }
                to[*position..end].copy_from_slice(bytes);
            }
            Self::SetLength(len) => to.resize(*len, 0),
        }
    }

    /// The same change as a crash leaves it.
    fn torn(&self, chance: &mut Chance, to: &mut Vec<u8>) {
        match self {
            Self::SetLength(_) => self.apply(to),
            Self::Write { position, bytes } => {
                let mut at = 0;
                while at < bytes.len() {
                    let sector_end = (position + at) / SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES;
                    let end = bytes.len().min(sector_end - position);
                    if chance.percent(60) {
                        let part = bytes[at..end].to_vec();
                        Self::Write { position: position + at, bytes: part }.apply(to);
                    }
                    at = end;
                }
            }
        }
    }
}

#[derive(Debug, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Changes from `durable` to `now`, each with its number.
    unsynced: Vec<(u64, Change)>,
}

impl Inode {
    fn change(&mut self, number: u64, change: Change) {
        change.apply(&mut self.now);
        self.unsynced.push((number, change));
    }

    /// Makes durable what happened up to change `number`.
    fn sync_to(&mut self, number: u64) {
        let later = self.unsynced.partition_point(|(at, _)| *at <= number);
        for (_, change) in self.unsynced.drain(..later) {
            change.apply(&mut self.durable);
        }
    }

    fn sync(&mut self) {
        self.sync_to(u64::MAX);
        assert!(self.durable == self.now, "the simulated disk is consistent");
    }
}

#[derive(Debug)]
struct Opened {
    inode: usize,
    block_bytes: u64,
}

#[derive(Debug)]
struct Flight {
    op: DiskOp,
    /// Changes so far when it was submitted.
    submitted: u64,
    /// Block size of its file at that time.
    block_bytes: u64,
}

/// How often what happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Faults {
    pub(crate) fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }
}

/// Percentages of what goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FaultPlan {
    pub(crate) short_write: usize,
    pub(crate) write_error: usize,
    pub(crate) no_space: usize,
    pub(crate) sync_error: usize,
    pub(crate) other_error: usize,
    pub(crate) direct_refused: usize,
    /// Alignment that direct files ask for.
    pub(crate) direct_block_bytes: u64,
}

/// What survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashKind {
    /// Only the process died: the kernel keeps what was written.
    Process,
    /// Power loss: each unsynced change on its own, or not.
    Power,
    /// Power loss, nothing that was not synced.
    PowerNothingKept,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct SimDisk {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    dirs: BTreeSet<String>,
    open: BTreeMap<FileId, Opened>,
    flights: Vec<Flight>,
    changes: u64,
    /// Writes that were called complete while they were in flight.
    lies: BTreeSet<OpId>,
    pub(crate) chance: Chance,
    pub(crate) plan: FaultPlan,
    pub(crate) faults: Faults,
    /// Rules that the user of the disk broke.
    pub(crate) broken: Vec<String>,
    /// Changing cold calls left before all of them fail, as if the process had died.
    pub(crate) cold_calls_left: Option<u64>,
    /// Syncs are called done and do nothing: a sabotage.
    pub(crate) syncs_lie: bool,
}

impl SimDisk {
    pub(crate) fn new(chance: Chance, plan: FaultPlan) -> Self {
        Self {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            dirs: BTreeSet::new(),
            open: BTreeMap::new(),
            flights: Vec::new(),
            changes: 0,
            lies: BTreeSet::new(),
            chance,
            plan,
            faults: Faults::default(),
            broken: Vec::new(),
            cold_calls_left: None,
            syncs_lie: false,
        }
    }

    /// The same files on a disk without faults, all of them durable.
    pub(crate) fn view(&self) -> Self {
        let mut view = Self::new(Chance::new(0, 0), FaultPlan::default());
        for (number, (name, inode)) in self.names.iter().enumerate() {
            let now = &self.inodes[*inode].now;
            view.inodes.push(Inode {
                now: now.clone(),
                durable: now.clone(),
                unsynced: Vec::new(),
            });
            view.names.insert(name.clone(), number);
        }
        view.durable_names = view.names.clone();
        view.dirs.clone_from(&self.dirs);
        view
    }

    /// Operations that have not completed.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    pub(crate) fn submit(&mut self, op: DiskOp) {
        let mut block_bytes = 1;
        if let Some(file) = file_of(&op.action) {
            match self.open.get(&file) {
                Some(opened) => block_bytes = opened.block_bytes,
                None => self.broken.push(format!("{:?} on a file that is not open", op.action)),
            }
        }
        self.watch_write(&op, block_bytes);
        if let DiskAction::Close { file } = op.action {
            let other = |flight: &&Flight| file_of(&flight.op.action) == Some(file);
            if let Some(flight) = self.flights.iter().find(other) {
                self.broken.push(format!("{file:?} is closed under {:?}", flight.op));
            }
        }
        self.flights.push(Flight { op, submitted: self.changes, block_bytes });
    }

    fn watch_write(&mut self, op: &DiskOp, block_bytes: u64) {
        let DiskAction::Write { file, position, len, .. } = &op.action else { return };
        let len = u64::try_from(*len).expect("fits");
        if !position.is_multiple_of(block_bytes) || !len.is_multiple_of(block_bytes) {
            self.broken
                .push(format!("write of {len} at {position} is not aligned to {block_bytes}"));
        }
        let inode = self.open.get(file).map(|opened| opened.inode);
        for flight in &self.flights {
            let (other, from, end) = match &flight.op.action {
                DiskAction::Write { file, position, len, .. } => {
                    (file, *position, *position + u64::try_from(*len).expect("fits"))
                }
                // Whatever lies behind the new length may go, whoever wrote it.
                DiskAction::SetLength { file, len } => (file, *len, u64::MAX),
                _ => continue,
            };
            if self.open.get(other).map(|opened| opened.inode) == inode
                && from < *position + len
                && *position < end
            {
                self.broken.push(format!(
                    "write {position}..{} while {from}..{end} of the same file is in flight",
                    position + len
                ));
            }
        }
    }

    /// Completes one operation in flight, chosen by chance. The operation's action is
    /// shown along with its outcome.
    pub(crate) fn complete_one(&mut self) -> Option<DiskOutcome> {
        if self.flights.is_empty() {
            return None;
        }
        let index = self.chance.below(self.flights.len());
        if index > 0 {
            self.faults.count("completed out of order");
        }
        let flight = self.flights.remove(index);
        Some(self.complete(flight))
    }

    /// Tells that a write is complete although it is still in flight: a sabotage.
    pub(crate) fn lie(&mut self) -> Option<DiskOutcome> {
        let lies = &mut self.lies;
        let honest = |flight: &&mut Flight| {
            matches!(flight.op.action, DiskAction::Write { .. }) && !lies.contains(&flight.op.id)
        };
        let flight = self.flights.iter_mut().find(honest)?;
        let id = flight.op.id;
        lies.insert(id);
        let DiskAction::Write { slot: held, len, .. } = &mut flight.op.action else { return None };
        // The disk keeps a copy of the bytes; the log gets its own slot back.
        let mut copy = SlotPool::new(0, map_apart).take_over_budget(held.class());
        copy.bytes_mut().copy_from_slice(held.bytes());
        let slot = Some(mem::replace(held, copy));
        Some(DiskOutcome { id, slot, result: Ok(DiskDone::Written(*len)) })
    }

    /// Whether the log believes that `id` was complete before it was.
    pub(crate) fn has_lied_about(&self, id: OpId) -> bool {
        self.lies.contains(&id)
    }

    fn complete(&mut self, flight: Flight) -> DiskOutcome {
        let Flight { op: DiskOp { id, action }, submitted, block_bytes } = flight;
        let (slot, result) = match action {
            DiskAction::Write { file, position, slot, from, len } => {
                let result =
                    self.write(file, position, &slot.bytes()[from..from + len], block_bytes);
                (Some(slot), result)
            }
            other => (None, self.act(other, submitted)),
        };
        DiskOutcome { id, slot, result }
    }

    fn write(
        &mut self,
        file: FileId,
        position: u64,
        bytes: &[u8],
        block_bytes: u64,
    ) -> Result<DiskDone, DiskError> {
        if self.chance.percent(self.plan.write_error) {
            self.faults.count("write failed");
            return Err(DiskError::Io(5));
        }
        if self.chance.percent(self.plan.no_space) {
            self.faults.count("no space");
            return Err(DiskError::NoSpace);
        }
        let mut written = bytes.len();
        if written > 1 && self.chance.percent(self.plan.short_write) {
            self.faults.count("short write");
            written = self.chance.between(1, written - 1);
            if block_bytes > 1 && self.chance.percent(70) {
                let block = usize::try_from(block_bytes).expect("fits");
                written = (written / block * block).max(1);
            }
        }
        let Some(inode) = self.open.get(&file).map(|opened| opened.inode) else {
            return Err(DiskError::Io(9));
        };
        let position = usize::try_from(position).expect("fits");
        self.change(inode, Change::Write { position, bytes: bytes[..written].to_vec() });
        Ok(DiskDone::Written(written))
    }

    fn act(&mut self, action: DiskAction, submitted: u64) -> Result<DiskDone, DiskError> {
        match action {
            DiskAction::Open { file, path, create, direct } => {
                self.open_file(file, &path.to_string(), create, direct)
            }
            DiskAction::Close { file } => {
                self.open.remove(&file);
                Ok(DiskDone::Done)
            }
            DiskAction::Sync { file } => {
                if self.chance.percent(self.plan.sync_error) {
                    self.faults.count("sync failed");
                    return Err(DiskError::Io(5));
                }
                let inode = self.inode_of(file)?;
                if !self.syncs_lie {
                    self.inodes[inode].sync_to(submitted);
                }
                Ok(DiskDone::Done)
            }
            DiskAction::Preallocate { file, from, len } => {
                if self.chance.percent(self.plan.no_space) {
                    self.faults.count("no space");
                    return Err(DiskError::NoSpace);
                }
                let inode = self.inode_of(file)?;
                let end = usize::try_from(from + len).expect("fits");
                if end > self.inodes[inode].now.len() {
                    self.change(inode, Change::SetLength(end));
                }
                Ok(DiskDone::Done)
            }
            DiskAction::SetLength { file, len } => {
                self.may_fail()?;
                let inode = self.inode_of(file)?;
                self.change(inode, Change::SetLength(usize::try_from(len).expect("fits")));
                self.inodes[inode].sync();
                Ok(DiskDone::Done)
            }
            DiskAction::Read { file, position, len } => {
                self.may_fail()?;
                let inode = self.inode_of(file)?;
                let bytes = &self.inodes[inode].now;
                let from = usize::try_from(position).expect("fits").min(bytes.len());
                let end = bytes.len().min(from + len);
                Ok(DiskDone::Read(bytes[from..end].to_vec()))
            }
            DiskAction::WriteAt { path, position, bytes, sync } => {
                self.may_fail()?;
                let path = path.to_string();
                let inode = self.make(&path);
                let position = usize::try_from(position).expect("fits");
                let end = position + bytes.len();
                self.change(inode, Change::Write { position, bytes });
                self.change(inode, Change::SetLength(end));
                if !sync {
                    self.faults.count("index written without sync");
                }
                if sync {
                    self.inodes[inode].sync();
                    self.durable_names.insert(path, inode);
                }
                Ok(DiskDone::Done)
            }
            DiskAction::Replace { path, bytes } => {
                self.may_fail()?;
                self.replace_file(&path.to_string(), &bytes);
                Ok(DiskDone::Done)
            }
            DiskAction::Remove { path } => {
                self.may_fail()?;
                self.remove_file(&path.to_string());
                Ok(DiskDone::Done)
            }
            DiskAction::Write { .. } => Err(DiskError::Io(22)),
        }
    }

    fn may_fail(&mut self) -> Result<(), DiskError> {
        if self.chance.percent(self.plan.other_error) {
            self.faults.count("other operation failed");
            return Err(DiskError::Io(5));
        }
        Ok(())
    }

    fn open_file(
        &mut self,
        file: FileId,
        path: &str,
        create: bool,
        direct: bool,
    ) -> Result<DiskDone, DiskError> {
        if direct && self.chance.percent(self.plan.direct_refused) {
            self.faults.count("O_DIRECT refused");
            return Err(DiskError::DirectUnsupported);
        }
        self.may_fail()?;
        let inode = match (self.names.get(path).copied(), create) {
            (Some(inode), true) if !self.inodes[inode].now.is_empty() => {
                self.broken.push(format!("{path} is created although it holds something"));
                inode
            }
            (Some(inode), _) => inode,
            (None, true) => {
                let inode = self.make(path);
                self.durable_names.insert(path.to_owned(), inode);
                inode
            }
            (None, false) => return Err(DiskError::Io(2)),
        };
        let block_bytes = if direct { self.plan.direct_block_bytes } else { 1 };
        self.open.insert(file, Opened { inode, block_bytes });
        Ok(DiskDone::Done)
    }

    fn inode_of(&self, file: FileId) -> Result<usize, DiskError> {
        self.open.get(&file).map(|opened| opened.inode).ok_or(DiskError::Io(9))
    }

    fn change(&mut self, inode: usize, change: Change) {
        self.changes += 1;
        let number = self.changes;
        self.inodes[inode].change(number, change);
    }

    /// The file at `path`, made if it is not there; its name is not durable then.
    fn make(&mut self, path: &str) -> usize {
        if let Some(inode) = self.names.get(path) {
            return *inode;
        }
        self.inodes.push(Inode::default());
        let inode = self.inodes.len() - 1;
        self.names.insert(path.to_owned(), inode);
        if let Some((dir, _)) = path.rsplit_once('/') {
            self.dirs.insert(dir.to_owned());
        }
        inode
    }

    pub(crate) fn replace_file(&mut self, path: &str, bytes: &[u8]) {
        self.inodes.push(Inode {
            now: bytes.to_vec(),
            durable: bytes.to_vec(),
            unsynced: Vec::new(),
        });
        let inode = self.inodes.len() - 1;
        self.names.insert(path.to_owned(), inode);
        self.durable_names.insert(path.to_owned(), inode);
    }

    /// Stops everything. Operations in flight happen in part or not at all; their
    /// slots come back, for the memory of a test has to.
    pub(crate) fn crash(&mut self, kind: CrashKind) -> Vec<Slot> {
        let mut slots = Vec::new();
        for flight in mem::take(&mut self.flights) {
            let happens = self.chance.percent(50);
            match flight.op.action {
                DiskAction::Write { file, position, slot, from, len } => {
                    if let (true, Ok(inode)) = (happens, self.inode_of(file)) {
                        let bytes = slot.bytes()[from..from + len].to_vec();
                        let position = usize::try_from(position).expect("fits");
                        self.change(inode, Change::Write { position, bytes });
                    }
                    slots.push(slot);
                }
                DiskAction::Replace { path, bytes } => {
                    let path = path.to_string();
                    if happens {
                        self.replace_file(&path, &bytes);
                    } else {
                        let part = self.chance.below(bytes.len() + 1);
                        self.replace_file(&format!("{path}.tmp"), &bytes[..part]);
                    }
                }
                DiskAction::Open { create: true, .. } if !happens => {
                    self.faults.count("unsynced name");
                }
                other if happens => {
                    let plan = mem::take(&mut self.plan);
                    let _ = self.act(other, flight.submitted);
                    self.plan = plan;
                }
                _ => {}
            }
        }
        self.open.clear();
        if kind != CrashKind::Process {
            self.lose_power(kind);
        }
        slots
    }

    fn lose_power(&mut self, kind: CrashKind) {
        let keep = if kind == CrashKind::Power { 50 } else { 0 };
        let known: BTreeSet<_> =
            self.names.keys().chain(self.durable_names.keys()).cloned().collect();
        for name in known {
            let (now, durable) = (self.names.get(&name), self.durable_names.get(&name));
            if now != durable {
                self.faults.count("unsynced name");
                let kept = if self.chance.percent(keep) { now } else { durable }.copied();
                match kept {
                    Some(inode) => self.names.insert(name.clone(), inode),
                    None => self.names.remove(&name),
                };
            }
        }
        self.durable_names = self.names.clone();
        for inode in &mut self.inodes {
            for (_, change) in mem::take(&mut inode.unsynced) {
                if self.chance.percent(keep) {
                    change.torn(&mut self.chance, &mut inode.durable);
                } else {
                    self.faults.count("unsynced change lost");
                }
            }
            inode.now.clone_from(&inode.durable);
        }
    }

    // What tests look at and break.

    /// Current contents of a file.
    pub(crate) fn contents(&self, path: &str) -> Option<&Vec<u8>> {
        self.names.get(path).map(|inode| &self.inodes[*inode].now)
    }

    /// Names of the files in `dir`.
    pub(crate) fn files(&self, dir: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{dir}/");
        self.names.keys().filter_map(move |path| path.strip_prefix(prefix.as_str()))
    }

    /// All directories that were ever made.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = &str> {
        self.dirs.iter().map(String::as_str)
    }

    /// Files at the top.
    pub(crate) fn top_files(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str).filter(|path| !path.contains('/'))
    }

    /// Whether `dir` was ever made.
    pub(crate) fn has_dir(&self, dir: &str) -> bool {
        self.dirs.contains(dir)
    }

    pub(crate) fn make_dir(&mut self, dir: &str) {
        self.dirs.insert(dir.to_owned());
    }

    pub(crate) fn remove_file(&mut self, path: &str) {
        self.names.remove(path);
        self.durable_names.remove(path);
    }

    pub(crate) fn rename_file(&mut self, path: &str, to: &str) -> bool {
        let Some(inode) = self.names.remove(path) else { return false };
        self.durable_names.remove(path);
        self.inodes[inode].sync();
        self.names.insert(to.to_owned(), inode);
        self.durable_names.insert(to.to_owned(), inode);
        true
    }

    /// Makes contents and name durable; `false` if there is no such file.
    pub(crate) fn sync_file(&mut self, path: &str) -> bool {
        let Some(inode) = self.names.get(path).copied() else { return false };
        self.inodes[inode].sync();
        self.durable_names.insert(path.to_owned(), inode);
        true
    }

    pub(crate) fn set_file_len(&mut self, path: &str, len: u64) -> bool {
        let Some(inode) = self.names.get(path).copied() else { return false };
        self.change(inode, Change::SetLength(usize::try_from(len).expect("fits")));
        self.sync_file(path)
    }

    pub(crate) fn append_file(&mut self, path: &str, bytes: &[u8]) {
        self.append_lazily(path, bytes);
        self.sync_file(path);
    }

    /// The same without a sync; the name of a new file is durable.
    pub(crate) fn append_lazily(&mut self, path: &str, bytes: &[u8]) {
        let inode = self.make(path);
        self.durable_names.insert(path.to_owned(), inode);
        let position = self.inodes[inode].now.len();
        self.change(inode, Change::Write { position, bytes: bytes.to_vec() });
    }
}

fn file_of(action: &DiskAction) -> Option<FileId> {
    match action {
        DiskAction::Close { file }
        | DiskAction::Write { file, .. }
        | DiskAction::Sync { file }
        | DiskAction::Preallocate { file, .. }
        | DiskAction::SetLength { file, .. }
        | DiskAction::Read { file, .. } => Some(*file),
        DiskAction::Open { .. }
        | DiskAction::WriteAt { .. }
        | DiskAction::Replace { .. }
        | DiskAction::Remove { .. } => None,
    }
}

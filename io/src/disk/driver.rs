//! Carries out the log's disk operations on a ring, for one log dir of one shard.
//!
//! ```text
//!   submit(ops) ──> waiting (same path busy) ──> backlog ──> ring
//!                                                   ^          │
//!                                  next step of a chain ── reap ──> outcomes
//! ```
//!
//! Requests that name a path (open, side files, remove) run one at a time per path, in
//! the order of submission; nothing else is ordered. What is queued here is bounded by
//! its issuer: slots by their pool, the rest by the number of partitions.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use heliostat_core::log::disk::{
    DiskAction, DiskDone, DiskError, DiskOp, DiskOutcome, FileId, LogPath, OpId,
};
use heliostat_core::log::slot::Slot;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::chain::{Chain, Place, Progress, disk_error, u64_of};
use super::group_sync::{GroupSyncThread, Worth};
use crate::ring::{Completion, File, Ring, RingConfig, RingError, RingFeatures, RingOp, RingReply};

/// Settings of a [`Disk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Size of its ring.
    pub ring: RingConfig,
    /// Block in bytes that direct reads are widened to; a power of two.
    pub alignment: usize,
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self { ring: RingConfig::default(), alignment: 4096 }
    }
}

/// Why a [`Disk`] did not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskOpenError {
    /// The log dir cannot be opened.
    #[error("log dir {dir} cannot be opened; check log.dirs, ownership and mounts")]
    LogDir {
        /// The log dir.
        dir: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// There is no ring for it.
    #[error(transparent)]
    Ring(#[from] RingError),
}

/// An open segment file.
#[derive(Debug)]
struct OpenFile {
    file: File,
    direct: bool,
}

/// What an operation in flight belongs to.
#[derive(Debug)]
enum Job {
    /// A single operation without an answer of its own.
    Plain(OpId),
    Write(OpId),
    Read(Reading),
    Chain(Box<Chain>),
    /// The end of a group of syncs.
    GroupSync,
}

/// Chains under way at once: each may hold a file between its steps, and a stop asks for
/// several for each partition.
const CHAINS_MAX: usize = 256;
/// Syncs under way at once, each by itself.
const SINGLE_SYNCS_MAX: usize = 16;
/// Syncs that must wait behind these before they go together.
const GROUP_MIN: usize = 32;

/// A sync that waits: whose it is, and the file.
type WaitingSync = (Job, File, bool);

/// Syncs on their way: a few by themselves, what gathers behind them together.
#[derive(Debug, Default)]
struct Syncs {
    /// When each began that is under way by itself; they end in about this order.
    begun: VecDeque<Instant>,
    waiting: VecDeque<WaitingSync>,
    /// The group under way, and since when.
    group: Option<(Vec<WaitingSync>, Instant)>,
    /// Groups so far.
    groups: u64,
    worth: Worth,
    /// `None` before the first group.
    thread: Option<GroupSyncThread>,
    /// The system gave no thread: no groups.
    refused: bool,
}

/// A read under way: `wanted` bytes, `skip` bytes into the buffer's aligned part.
#[derive(Debug)]
struct Reading {
    id: OpId,
    wanted: usize,
    skip: usize,
    /// Where the aligned part of the buffer starts.
    start: usize,
    filled: usize,
    direct: bool,
}

/// The disk under one log dir, on a ring of its own. Made, used and dropped on the
/// shard's thread; dropping it waits for what is in flight.
#[derive(Debug)]
pub struct Disk {
    root: File,
    ring: Ring<Job>,
    alignment: usize,
    files: HashMap<FileId, OpenFile>,
    /// Partition directories that are durable in the log dir.
    dirs_synced: HashSet<Arc<str>>,
    /// Paths with a chain under way, and who waits for it.
    busy: HashMap<LogPath, VecDeque<DiskOp>>,
    /// Requests that name a path and wait for their chain to begin, in order.
    queued: VecDeque<DiskOp>,
    /// Chains on paths that are under way.
    chains: usize,
    backlog: VecDeque<(Job, RingOp)>,
    syncs: Syncs,
    outcomes: Vec<DiskOutcome>,
    completions: Vec<Completion<Job>>,
}

impl Disk {
    /// Opens a log dir, which must exist, with a ring for the calling thread.
    ///
    /// # Errors
    /// [`DiskOpenError`], with the remedy.
    pub fn open(log_dir: &Path, config: DiskConfig) -> Result<Self, DiskOpenError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root: OwnedFd = rustix::fs::open(log_dir, flags, Mode::empty()).map_err(|errno| {
            DiskOpenError::LogDir { dir: log_dir.to_path_buf(), source: errno.into() }
        })?;
        Ok(Self {
            root: Rc::new(root),
            ring: Ring::new(config.ring)?,
            alignment: config.alignment.next_power_of_two(),
            files: HashMap::new(),
            dirs_synced: HashSet::new(),
            busy: HashMap::new(),
            queued: VecDeque::new(),
            chains: 0,
            backlog: VecDeque::new(),
            syncs: Syncs::default(),
            outcomes: Vec::new(),
            completions: Vec::new(),
        })
    }

    /// What the kernel granted to the ring.
    pub fn features(&self) -> RingFeatures {
        self.ring.features()
    }

    /// Starts operations, with one system call for all that fit the ring.
    ///
    /// # Errors
    /// [`RingError::Submit`]: the ring is broken and the shard cannot go on. Whatever
    /// is wrong with single operations comes as their outcome.
    pub fn submit(&mut self, ops: impl IntoIterator<Item = DiskOp>) -> Result<(), RingError> {
        for op in ops {
            self.start(op);
        }
        self.pump()
    }

    /// Takes the outcomes that are there, without waiting, and carries chains on.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn reap(&mut self, into: &mut Vec<DiskOutcome>) -> Result<(), RingError> {
        let mut completions = std::mem::take(&mut self.completions);
        let reaped = self.ring.reap(&mut completions);
        for completion in completions.drain(..) {
            self.on_completion(completion);
        }
        self.completions = completions;
        reaped?;
        self.pump()?;
        into.append(&mut self.outcomes);
        Ok(())
    }

    /// Resolves once there may be something to reap; borrows nothing of the disk, and
    /// dropping it loses nothing. Reap before awaiting it. Called on the shard's executor.
    ///
    /// # Errors
    /// [`RingError::Setup`] when out of file descriptors, at the first call only.
    pub fn completed(&mut self) -> Result<impl Future<Output = ()> + use<>, RingError> {
        if !self.outcomes.is_empty() {
            self.ring.ring_bell();
        }
        self.ring.completed()
    }

    /// Blocks the thread until something may be there to reap. For tools and tests.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn wait(&mut self) -> Result<(), RingError> {
        if self.outcomes.is_empty() { self.ring.wait() } else { Ok(()) }
    }

    /// Whether nothing is under way and no outcome waits.
    pub fn is_idle(&self) -> bool {
        self.ring.in_flight() == 0
            && self.backlog.is_empty()
            && self.syncs.waiting.is_empty()
            && self.busy.is_empty()
            && self.queued.is_empty()
            && self.outcomes.is_empty()
    }

    fn start(&mut self, op: DiskOp) {
        let names_path = matches!(
            op.action,
            DiskAction::Open { .. }
                | DiskAction::WriteAt { .. }
                | DiskAction::Replace { .. }
                | DiskAction::Remove { .. }
        );
        if !names_path {
            self.start_on_file(op);
        } else if self.chains < CHAINS_MAX && self.queued.is_empty() {
            self.start_chain(op);
        } else {
            self.queued.push_back(op);
        }
    }

    fn start_chain(&mut self, op: DiskOp) {
        let id = op.id;
        let (DiskAction::Open { path, .. }
        | DiskAction::WriteAt { path, .. }
        | DiskAction::Replace { path, .. }
        | DiskAction::Remove { path }) = &op.action
        else {
            return;
        };
        if let Some(waiting) = self.busy.get_mut(path) {
            waiting.push_back(op);
            return;
        }
        let place = match Place::new(path.clone()) {
            Ok(place) => place,
            Err(error) => return self.finish(id, None, Err(error)),
        };
        self.busy.insert(place.path.clone(), VecDeque::new());
        self.chains += 1;
        let chain = match op.action {
            DiskAction::Open { file, path, create, direct } => {
                let dir_known = self.dirs_synced.contains(&path.dir);
                Chain::open(id, place, (file, create, direct), dir_known)
            }
            DiskAction::WriteAt { position, bytes, sync, .. } => {
                Chain::write_at(id, place, (position, bytes), sync)
            }
            DiskAction::Replace { bytes, .. } => Chain::replace(id, place, bytes),
            // The others have no path and were started above.
            _ => Chain::remove(id, place),
        };
        self.step(Box::new(chain));
    }

    /// Starts an operation on an open file.
    fn start_on_file(&mut self, op: DiskOp) {
        let id = op.id;
        let file_id = match &op.action {
            DiskAction::Close { file }
            | DiskAction::Write { file, .. }
            | DiskAction::Sync { file }
            | DiskAction::Preallocate { file, .. }
            | DiskAction::SetLength { file, .. }
            | DiskAction::Read { file, .. } => *file,
            _ => return self.finish(id, None, Err(disk_error(Errno::INVAL))),
        };
        let Some(open) = self.files.get(&file_id) else {
            let slot = match op.action {
                DiskAction::Write { slot, .. } => Some(slot),
                _ => None,
            };
            return self.finish(id, slot, Err(disk_error(Errno::BADF)));
        };
        let file = Rc::clone(&open.file);
        let queued = match op.action {
            DiskAction::Write { position, slot, from, len, .. } => {
                assert!(len > 0, "a write has bytes");
                (Job::Write(id), RingOp::WriteSlot { file, position, slot, from, len })
            }
            DiskAction::Sync { .. } if !open.direct => {
                self.syncs.waiting.push_back((Job::Plain(id), file, true));
                return;
            }
            // Few and large; and without a change of the file's metadata a file system may not
            // flush the device for `syncfs`.
            DiskAction::Sync { .. } => {
                self.syncs.begun.push_back(Instant::now());
                (Job::Plain(id), RingOp::Sync { file, data_only: true })
            }
            DiskAction::Preallocate { from, len, .. } => {
                (Job::Plain(id), RingOp::Allocate { file, from, len })
            }
            DiskAction::Read { position, len, .. } => {
                let direct = open.direct;
                self.read_op(id, (file, direct), position, len)
            }
            DiskAction::SetLength { len, .. } => {
                return self.step(Box::new(Chain::set_length(id, file, len)));
            }
            _ => {
                drop(file);
                match self.files.remove(&file_id).and_then(|open| Rc::into_inner(open.file)) {
                    Some(file) => (Job::Plain(id), RingOp::Close { file: Some(file) }),
                    // The operations still in flight close it with their completion.
                    None => return self.finish(id, None, Err(disk_error(Errno::BUSY))),
                }
            }
        };
        self.backlog.push_back(queued);
    }

    /// Direct reads cover whole blocks, in a buffer that starts at one.
    fn read_op(
        &self,
        id: OpId,
        (file, direct): (File, bool),
        position: u64,
        wanted: usize,
    ) -> (Job, RingOp) {
        let block = if direct { self.alignment } else { 1 };
        let skip = usize::try_from(position % u64_of(block)).unwrap_or(0);
        let covered = skip.saturating_add(wanted).next_multiple_of(block);
        let mut buffer = vec![0; covered.saturating_add(block - 1)];
        let start = buffer.as_ptr().align_offset(block).min(block - 1);
        buffer.truncate(start.saturating_add(covered));
        let reading = Reading { id, wanted, skip, start, filled: 0, direct };
        let position = position - u64_of(skip);
        (Job::Read(reading), RingOp::Read { file, position, buffer, from: start })
    }

    fn on_completion(&mut self, completion: Completion<Job>) {
        let Completion { tag, op, result } = completion;
        if matches!(op, RingOp::Sync { .. })
            && let Some(begun) = self.syncs.begun.pop_front()
            && self.syncs.begun.len() + 1 >= SINGLE_SYNCS_MAX / 2
        {
            self.syncs.worth.single_took(begun.elapsed());
        }
        self.on_done(tag, op, result);
    }

    fn on_done(&mut self, tag: Job, op: RingOp, result: Result<RingReply, Errno>) {
        match tag {
            Job::GroupSync => self.end_group(),
            Job::Plain(id) => {
                let result = result.map(|_| DiskDone::Done).map_err(disk_error);
                self.finish(id, None, result);
            }
            Job::Write(id) => {
                let slot = match op {
                    RingOp::WriteSlot { slot, .. } => Some(slot),
                    _ => None,
                };
                let result = match result {
                    // No progress and no reason: not to be repeated for ever.
                    Ok(RingReply::Bytes(0)) => Err(disk_error(Errno::IO)),
                    Ok(RingReply::Bytes(bytes)) => Ok(DiskDone::Written(bytes)),
                    Ok(_) => Ok(DiskDone::Done),
                    Err(errno) => Err(disk_error(errno)),
                };
                self.finish(id, slot, result);
            }
            Job::Read(reading) => match result {
                Ok(RingReply::Bytes(bytes)) => self.on_read(reading, op, bytes),
                Ok(_) => self.on_read(reading, op, 0),
                Err(errno) => self.finish(reading.id, None, Err(disk_error(errno))),
            },
            Job::Chain(mut chain) => {
                match chain.on_completion(Completion { tag: (), op, result }) {
                    Progress::More => self.step(chain),
                    Progress::Finished(result) => self.end_chain(*chain, result),
                }
            }
        }
    }

    fn on_read(&mut self, mut reading: Reading, op: RingOp, bytes: usize) {
        let RingOp::Read { file, position, mut buffer, from } = op else { return };
        reading.filled += bytes;
        let needed = reading.skip + reading.wanted;
        // A direct read that does not end on a block has met the end of the file.
        let at_end = bytes == 0 || (reading.direct && !bytes.is_multiple_of(self.alignment));
        if reading.filled < needed && !at_end {
            let op = RingOp::Read {
                file,
                position: position.saturating_add(u64_of(bytes)),
                buffer,
                from: from + bytes,
            };
            self.backlog.push_back((Job::Read(reading), op));
            return;
        }
        let end = reading.start + reading.filled.min(needed);
        buffer.truncate(end);
        buffer.drain(..(reading.start + reading.skip).min(end));
        self.finish(reading.id, None, Ok(DiskDone::Read(buffer)));
    }

    /// Queues the next step of a chain, or ends it.
    fn step(&mut self, mut chain: Box<Chain>) {
        match chain.next_op(&self.root) {
            Ok(Some(RingOp::Sync { file, data_only })) => {
                self.syncs.waiting.push_back((Job::Chain(chain), file, data_only));
            }
            Ok(Some(op)) => self.backlog.push_back((Job::Chain(chain), op)),
            Ok(None) => self.end_chain(*chain, Ok(())),
            Err(error) => self.end_chain(*chain, Err(error)),
        }
    }

    fn end_chain(&mut self, chain: Chain, result: Result<(), DiskError>) {
        if let Some(dir) = chain.dir_synced {
            self.dirs_synced.insert(dir);
        }
        if let (Ok(()), Some((id, direct)), Some(file)) = (result, chain.opens, chain.file) {
            let before = self.files.insert(id, OpenFile { file, direct });
            assert!(before.is_none(), "file names are never reused");
        }
        self.finish(chain.id, None, result.map(|()| DiskDone::Done));
        let Some(place) = chain.place else { return };
        self.chains -= 1;
        // The next in line makes the path busy again, with the rest behind it.
        let mut waiting = self.busy.remove(&place.path).unwrap_or_default();
        if let Some(next) = waiting.pop_front() {
            self.start_chain(next);
            for op in waiting {
                self.start_chain(op);
            }
        }
    }

    fn finish(&mut self, id: OpId, slot: Option<Slot>, result: Result<DiskDone, DiskError>) {
        self.outcomes.push(DiskOutcome { id, slot, result });
    }

    /// Sends the syncs that wait on their way, by themselves or together.
    fn pump_syncs(&mut self) {
        while self.syncs.begun.len() < SINGLE_SYNCS_MAX
            && self.syncs.group.is_none()
            && let Some((job, file, data_only)) = self.syncs.waiting.pop_front()
        {
            self.syncs.begun.push_back(Instant::now());
            self.backlog.push_back((job, RingOp::Sync { file, data_only }));
        }
        let now = Instant::now();
        let gathered = self.syncs.waiting.len() >= GROUP_MIN && self.syncs.group.is_none();
        if gathered && self.syncs.worth.allows(now) {
            self.begin_group(now);
        }
    }

    fn begin_group(&mut self, now: Instant) {
        if self.syncs.thread.is_none() && !self.syncs.refused {
            let root = self.root.try_clone().map(std::fs::File::from);
            self.syncs.thread = root.and_then(GroupSyncThread::start).ok();
            self.syncs.refused = self.syncs.thread.is_none();
        }
        let thread = self.syncs.thread.as_ref();
        let Some(file) = thread.and_then(GroupSyncThread::begin) else { return };
        self.syncs.group = Some((std::mem::take(&mut self.syncs.waiting).into(), now));
        self.syncs.groups += 1;
        let read = RingOp::Read { file, position: 0, buffer: vec![0; 8], from: 0 };
        self.backlog.push_back((Job::GroupSync, read));
    }

    /// Whoever was in the group is done; or on the own file if it failed, which then tells.
    fn end_group(&mut self) {
        let Some((group, begun)) = self.syncs.group.take() else { return };
        let result = self.syncs.thread.as_ref().map(GroupSyncThread::result);
        let rounds = u32::try_from(group.len().div_ceil(SINGLE_SYNCS_MAX)).unwrap_or(u32::MAX);
        let instead = self.syncs.worth.single().saturating_mul(rounds);
        self.syncs.worth.group_took(begun.elapsed(), instead, Instant::now());
        let is_done = matches!(result, Some(Ok(())));
        if !is_done {
            self.syncs.worth.give_up();
        }
        for (job, file, data_only) in group {
            let op = RingOp::Sync { file, data_only };
            if is_done {
                self.on_done(job, op, Ok(RingReply::Done));
            } else {
                self.syncs.begun.push_back(Instant::now());
                self.backlog.push_back((job, op));
            }
        }
    }

    fn pump(&mut self) -> Result<(), RingError> {
        while self.chains < CHAINS_MAX
            && let Some(op) = self.queued.pop_front()
        {
            self.start_chain(op);
        }
        self.pump_syncs();
        while !self.backlog.is_empty() && self.ring.has_room()? {
            if let Some((job, op)) = self.backlog.pop_front() {
                self.ring.push(job, op);
            }
        }
        self.ring.submit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: u64 = 200;

    /// Creates files and syncs them all at once; how many groups it took.
    fn sync_many(thread: Option<GroupSyncThread>) -> u64 {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = Disk::open(dir.path(), DiskConfig::default()).unwrap();
        disk.syncs.thread = thread;
        let path = |n| LogPath { dir: Arc::from(format!("t-{n}")), name: "0.log".to_owned() };
        let open =
            |n| DiskAction::Open { file: FileId(n), path: path(n), create: true, direct: false };
        let sync = |n| DiskAction::Sync { file: FileId(n) };
        for opens in [true, false] {
            let action = |n| if opens { open(n) } else { sync(n) };
            disk.submit((0..FILES).map(|n| DiskOp { id: OpId(n), action: action(n) })).unwrap();
            let mut outcomes = Vec::new();
            while outcomes.len() < 200 {
                disk.wait().unwrap();
                disk.reap(&mut outcomes).unwrap();
            }
            assert!(disk.is_idle());
            let mut ids: Vec<_> = outcomes.iter().map(|outcome| outcome.id.0).collect();
            ids.sort_unstable();
            assert!(ids.into_iter().eq(0..FILES), "one outcome an operation");
            assert!(outcomes.iter().all(|outcome| outcome.result == Ok(DiskDone::Done)));
        }
        disk.syncs.groups
    }

    /// As a stop asks for, of all partitions at once.
    #[test]
    fn requests_of_several_steps_hold_few_files_open_together() {
        const REQUESTS: u64 = 3_000;
        let dir = tempfile::tempdir().unwrap();
        let mut disk = Disk::open(dir.path(), DiskConfig::default()).unwrap();
        let path = |n| LogPath { dir: Arc::from(""), name: format!("{n}.index") };
        let write =
            |n| DiskAction::WriteAt { path: path(n), position: 0, bytes: vec![1], sync: true };
        disk.submit((0..REQUESTS).map(|n| DiskOp { id: OpId(n), action: write(n) })).unwrap();
        let (mut outcomes, mut most) = (Vec::new(), 0);
        while !disk.is_idle() {
            most = most.max(std::fs::read_dir("/proc/self/fd").unwrap().count());
            disk.wait().unwrap();
            disk.reap(&mut outcomes).unwrap();
        }
        assert!(outcomes.iter().all(|outcome| outcome.result == Ok(DiskDone::Done)));
        assert_eq!(outcomes.len(), 3_000);
        assert!(most < 1_000, "{most} files were open");
    }

    #[test]
    fn syncs_that_gather_go_together() {
        assert!(sync_many(None) > 0);
    }

    #[test]
    fn after_a_group_that_fails_everybody_syncs_the_own_file() {
        let failing = GroupSyncThread::with(|| Err(Errno::IO)).unwrap();
        assert_eq!(sync_many(Some(failing)), 1, "and there is no second group");
    }
}

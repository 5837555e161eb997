//! The files of one segment that still changes: its `.log` with the writes in
//! flight, its indexes, and the steps that seal it.
//!
//! ```text
//!   Closed --open--> Opening --(direct, tail unknown)--> ReadingTail --> Open
//!     ^                                                                   |
//!     '---------------------------- close --------------------------------'
//!
//!   seal: wait for writes -> set length -> sync -> side files -> close
//! ```

mod rest;
mod seal;

use std::sync::Arc;

pub(super) use self::rest::RestingSegment;
use super::config::LogConfig;
use super::cx::{AppendMode, LogCx};
use super::disk::{DiskAction, DiskDone, DiskError, DiskOutcome, FileId, LogPath, OpId};
use super::failure::LogFailure;
use super::index::SegmentIndexes;
use super::names::{SegmentFileKind as FileKind, SegmentFileName};
use super::roll::{self, ActiveSegment};
use super::slot::Slot;
use super::txn_index::AbortedTxn;
use super::window::{PlannedWrite, WriteProgress, WriteWindow};
use crate::records::BatchMeta;
use crate::time::Tick;
use crate::types::{Offset, TimestampMs};

/// Index bytes that wait in memory before they are written out.
const SIDE_BYTES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    Closed,
    Opening { file: FileId, op: OpId, direct: bool },
    ReadingTail { file: FileId, op: OpId },
    Open { file: FileId, direct: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seal {
    /// Takes appends.
    No,
    /// No more appends; waits for its writes.
    Wanted,
    Cutting(OpId),
    Syncing(OpId),
    SideFiles {
        left: u32,
    },
    Done,
}

/// A sync under way and what it covers.
#[derive(Clone, Copy, Debug)]
struct Sync {
    op: OpId,
    /// Log end offset when it was submitted.
    offset: Offset,
    /// File position when it was submitted.
    end: u64,
}

/// An index file that grows by appending: what is written and what waits.
#[derive(Debug, Default)]
struct SideFile {
    written: u64,
    pending: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct LiveSegment {
    pub(super) base: Offset,
    pub(super) indexes: SegmentIndexes,
    first_timestamp: Option<TimestampMs>,
    created: TimestampMs,
    pub(super) window: WriteWindow,
    /// End of the data that was accepted: verified, and written or on its way.
    pub(super) accepted_end: u64,
    /// End of the data below the log end offset.
    pub(super) committed_end: u64,
    /// Everything below is durable, as an offset.
    pub(super) synced_offset: Offset,
    /// Bytes of the block in which `accepted_end` lies, up to there. Meaningful with
    /// direct files only, and only if `tail_known`.
    pub(super) tail: Vec<u8>,
    tail_known: bool,
    dir: Arc<str>,
    exists: bool,
    file: FileState,
    synced_end: u64,
    unsynced_since: Option<Tick>,
    sync: Option<Sync>,
    /// Length that is reserved on disk; 0 if nothing was preallocated.
    allocated: u64,
    /// Bytes of the shard's preallocation budget that this segment holds.
    budgeted: u64,
    preallocating: Option<(OpId, u64)>,
    preallocate_next: u64,
    preallocate_refused: bool,
    /// The file may be longer than its data.
    padded: bool,
    direct_refused: bool,
    offset_index: SideFile,
    time_index: SideFile,
    txn_index: SideFile,
    /// Where aborted transactions begin whose entries wait, and those that are being written.
    aborts_waiting: Option<Offset>,
    aborts_writing: Option<Offset>,
    side_ops: Vec<OpId>,
    seal: Seal,
    closing: Option<OpId>,
    /// The cut before an idle file is closed; no write is sent until it is done.
    cutting: Option<OpId>,
    /// Nothing more is written; files close as soon as nothing is under way.
    abandoned: bool,
    /// The first batch below the log end offset is preceded by a producer snapshot.
    pub(super) wants_snapshot: bool,
}

/// What recovery knows of the segment that appends go on in.
#[derive(Debug)]
pub struct RecoveredSegment {
    /// Base offset, from its name.
    pub base: Offset,
    /// Bytes of valid data; the file is exactly so long.
    pub size_bytes: u64,
    /// Index state; the files hold exactly these entries.
    pub indexes: SegmentIndexes,
    /// Bytes of the three index files: offset, time, transaction.
    pub side_bytes: [u64; 3],
    /// Largest timestamp of its first batch; `None` if there is no batch.
    pub first_timestamp: Option<TimestampMs>,
    /// Wall-clock time at which it was created.
    pub created: TimestampMs,
}

impl LiveSegment {
    /// A segment that is not on disk yet.
    pub(super) fn new(dir: Arc<str>, base: Offset, config: &LogConfig, wall_ms: i64) -> Self {
        let recovered = RecoveredSegment {
            base,
            size_bytes: 0,
            indexes: SegmentIndexes::new(base, config),
            side_bytes: [0; 3],
            first_timestamp: None,
            created: TimestampMs(wall_ms),
        };
        Self { exists: false, tail_known: true, ..Self::recovered(dir, recovered, base) }
    }

    /// A segment that recovery found; its data is durable up to `log_end`.
    pub(super) fn recovered(
        dir: Arc<str>,
        recovered: RecoveredSegment,
        synced_offset: Offset,
    ) -> Self {
        let RecoveredSegment { base, size_bytes, indexes, side_bytes, first_timestamp, created } =
            recovered;
        let side = |written| SideFile { written, pending: Vec::new() };
        Self {
            base,
            indexes,
            first_timestamp,
            created,
            window: WriteWindow::new(size_bytes, 1),
            accepted_end: size_bytes,
            committed_end: size_bytes,
            synced_offset,
            tail: Vec::new(),
            tail_known: size_bytes == 0,
            dir,
            exists: true,
            file: FileState::Closed,
            synced_end: size_bytes,
            unsynced_since: None,
            sync: None,
            allocated: 0,
            budgeted: 0,
            preallocating: None,
            preallocate_next: 0,
            preallocate_refused: false,
            padded: false,
            direct_refused: false,
            offset_index: side(side_bytes[0]),
            time_index: side(side_bytes[1]),
            txn_index: side(side_bytes[2]),
            aborts_waiting: None,
            aborts_writing: None,
            side_ops: Vec::new(),
            seal: Seal::No,
            closing: None,
            cutting: None,
            abandoned: false,
            wants_snapshot: false,
        }
    }

    /// Whether a new segment has to begin before `incoming`, by what was accepted so far.
    pub(super) fn must_roll(&self, config: &LogConfig, incoming: &BatchMeta, wall_ms: i64) -> bool {
        let active = ActiveSegment {
            size_bytes: self.accepted_end,
            first_timestamp: self.first_timestamp,
            created: self.created,
            jitter_ms: 0,
        };
        let now = TimestampMs(wall_ms);
        roll::should_roll(config, &active, &self.indexes, incoming, now).is_some()
    }

    /// A verified batch that ends at `end` goes into this segment.
    pub(super) fn accept(&mut self, meta: &BatchMeta, end: u64) {
        self.accepted_end = end;
        self.first_timestamp.get_or_insert(meta.max_timestamp);
    }

    pub(super) fn path(&self, kind: FileKind) -> LogPath {
        LogPath {
            dir: Arc::clone(&self.dir),
            name: SegmentFileName::live(self.base, kind).to_string(),
        }
    }

    /// Whether writes bypass the page cache at the moment.
    pub(super) fn is_direct(&self) -> bool {
        match self.file {
            FileState::Open { direct, .. } | FileState::Opening { direct, .. } => direct,
            FileState::ReadingTail { .. } => true,
            FileState::Closed => false,
        }
    }

    /// Whether a run may put bytes into slots: the block that they continue is known.
    pub(super) fn takes_bytes(&self) -> bool {
        match self.file {
            FileState::Opening { direct, .. } | FileState::Open { direct, .. } => {
                !direct || self.tail_known
            }
            FileState::ReadingTail { .. } | FileState::Closed => false,
        }
    }

    /// Whether the `.log` file is open or on its way to be.
    pub(super) fn holds_file(&self) -> bool {
        self.file != FileState::Closed
    }

    /// Opens the file for a run of `run_bytes`, or reopens it in the better mode.
    /// It stays closed while no more may be opened.
    pub(super) fn prepare(&mut self, run_bytes: u64, cx: &mut LogCx<'_>) {
        if self.file != FileState::Closed || cx.files_left > 0 {
            self.open_for(run_bytes, cx);
        }
    }

    /// As [`Self::prepare`], whatever is open already: for bytes that are here.
    pub(super) fn open_for(&mut self, run_bytes: u64, cx: &mut LogCx<'_>) {
        let wanted = match cx.limits.mode {
            AppendMode::Buffered => None,
            AppendMode::Direct { block_bytes } => Some(block_bytes),
            AppendMode::Auto { block_bytes } => {
                (run_bytes >= cx.limits.direct_run_bytes_min).then_some(block_bytes)
            }
        };
        let wanted = wanted.filter(|_| !self.direct_refused);
        match (self.file, wanted) {
            (FileState::Closed, _) => self.open(wanted, cx),
            // Hot now: the page cache was only a start.
            (FileState::Open { file, direct: false }, Some(_)) if self.is_quiet() => {
                self.close(file, cx);
                self.open(wanted, cx);
            }
            _ => {}
        }
    }

    fn open(&mut self, block_bytes: Option<u32>, cx: &mut LogCx<'_>) {
        let file = cx.ids.file();
        let direct = block_bytes.is_some();
        self.window.set_block_bytes(u64::from(block_bytes.unwrap_or(1)));
        self.tail_known = self.accepted_end == 0;
        self.tail.clear();
        let path = self.path(FileKind::Log);
        let op = cx.request(DiskAction::Open { file, path, create: !self.exists, direct });
        self.file = FileState::Opening { file, op, direct };
    }

    /// Nothing of the segment is under way on disk.
    pub(super) fn is_quiet(&self) -> bool {
        self.window.is_empty()
            && self.sync.is_none()
            && self.preallocating.is_none()
            && self.side_ops.is_empty()
            && self.closing.is_none()
            && self.cutting.is_none()
            && !(self.abandoned && self.file != FileState::Closed)
            && !matches!(self.seal, Seal::Cutting(_) | Seal::Syncing(_) | Seal::SideFiles { .. })
            && !matches!(self.file, FileState::Opening { .. } | FileState::ReadingTail { .. })
    }

    /// Plans the write of `slot[..data_len]`, whose first byte lies at `slot_at`.
    /// Pads the last block with zeros.
    pub(super) fn plan(&mut self, mut slot: Slot, slot_at: u64, data_len: usize, since: Tick) {
        let block = usize::try_from(self.window.block_bytes()).unwrap_or(1);
        let len = data_len.next_multiple_of(block);
        slot.bytes_mut()[data_len..len].fill(0);
        self.padded |= len > data_len;
        let data_end = slot_at + u64::try_from(data_len).unwrap_or(0);
        self.window.plan(PlannedWrite {
            position: slot_at,
            slot,
            from: 0,
            len,
            data_end,
            received_at: since,
        });
    }

    /// Goes back to `end`, whose block starts with `tail`.
    pub(super) fn reset_to(&mut self, end: u64, tail: Option<Vec<u8>>, cx: &mut LogCx<'_>) {
        for slot in self.window.reset_to(end) {
            cx.pool.give(slot);
        }
        self.accepted_end = end;
        // The file may hold refused bytes behind its data.
        self.padded = true;
        if let Some(tail) = tail {
            self.tail = tail;
            self.tail_known = true;
        } else {
            self.tail_known = !self.is_direct() || end.is_multiple_of(self.window.block_bytes());
            self.tail.clear();
        }
    }

    /// A batch has come below the log end offset.
    pub(super) fn commit(&mut self, meta: &BatchMeta, end: u64, cx: &mut LogCx<'_>) {
        // A segment takes no batch that starts behind `segment.bytes`, an int32.
        let position = u32::try_from(self.committed_end).unwrap_or(u32::MAX);
        if let Some((offset_entry, time_entry)) = self.indexes.on_batch(meta, position) {
            self.offset_index.pending.extend_from_slice(&offset_entry.encode(self.base));
            if let Some(entry) = time_entry {
                self.time_index.pending.extend_from_slice(&entry.encode(self.base));
            }
        }
        self.committed_end = end;
        self.unsynced_since.get_or_insert(cx.now);
    }

    /// Adds an entry of the transaction index.
    pub(super) fn push_aborted(&mut self, entry: &AbortedTxn) {
        self.txn_index.pending.extend_from_slice(&entry.encode());
        let first = self.aborts_waiting.map_or(entry.first_offset, |at| at.min(entry.first_offset));
        self.aborts_waiting = Some(first);
    }

    /// Where the first aborted transaction begins whose entry is not in the file yet.
    pub(super) fn untold_abort(&self) -> Option<Offset> {
        [self.aborts_waiting, self.aborts_writing].into_iter().flatten().min()
    }

    /// Sends what may go to the disk now.
    pub(super) fn pump(&mut self, cx: &mut LogCx<'_>) {
        if let (FileState::Open { file, direct }, None) = (self.file, self.cutting) {
            if direct && self.window.has_held() && !self.reserve(file, cx) {
                return;
            }
            while self.window.has_held() {
                let id = cx.ids.op();
                let Some((position, slot, from, len)) = self.window.next_ready(id) else { break };
                let action = DiskAction::Write { file, position, slot, from, len };
                cx.ops.push(super::disk::DiskOp { id, action });
            }
        }
        let waiting = self.offset_index.pending.len() + self.time_index.pending.len();
        // Readers of what is committed wait for entries of what was aborted.
        let is_due = waiting > SIDE_BYTES_MAX || self.aborts_waiting.is_some();
        if is_due && self.side_ops.is_empty() && !self.abandoned {
            self.write_side_files(false, cx);
        }
    }

    /// Keeps the planned writes inside preallocated space; `false` while they have to
    /// wait for it.
    fn reserve(&mut self, file: FileId, cx: &mut LogCx<'_>) -> bool {
        let block = self.window.block_bytes();
        let wanted = self.accepted_end.next_multiple_of(block);
        if self.preallocate_refused {
            return true;
        }
        if self.preallocating.is_none() && wanted + self.preallocate_next / 2 > self.allocated {
            self.return_budget(self.allocated.saturating_sub(self.committed_end), cx);
            self.preallocate_next = (self.preallocate_next * 2)
                .clamp(cx.limits.preallocate_bytes_min, cx.limits.preallocate_bytes_max)
                .next_multiple_of(block);
            let from = self.allocated.max(self.committed_end.next_multiple_of(block));
            let len = (wanted.saturating_sub(from) + self.preallocate_next)
                .min(*cx.preallocate_left / block * block);
            if from + len < wanted {
                // The budget is spent: extending writes are slower, but they work.
                return true;
            }
            *cx.preallocate_left -= len;
            self.budgeted += len;
            self.padded = true;
            let op = cx.request(DiskAction::Preallocate { file, from, len });
            self.preallocating = Some((op, from + len));
        }
        wanted <= self.allocated
    }

    /// Gives back what is held of the preallocation budget beyond `kept`.
    pub(super) fn return_budget(&mut self, kept: u64, cx: &mut LogCx<'_>) {
        let back = self.budgeted.saturating_sub(kept);
        self.budgeted -= back;
        *cx.preallocate_left += back;
    }

    /// Syncs if enough bytes or enough time have gathered.
    pub(super) fn flush_if_due(&mut self, log_end: Offset, force: bool, cx: &mut LogCx<'_>) {
        let FileState::Open { file, .. } = self.file else { return };
        let Some(since) = self.unsynced_since else { return };
        let due = force
            || self.committed_end - self.synced_end >= cx.limits.flush_bytes
            || cx.now.since(since) >= cx.limits.flush_after;
        if due && self.sync.is_none() && self.seal == Seal::No {
            let op = cx.request(DiskAction::Sync { file });
            cx.stats.syncs += 1;
            self.unsynced_since = None;
            self.sync = Some(Sync { op, offset: log_end, end: self.committed_end });
        }
    }

    /// When [`Self::flush_if_due`] has something to do, by time alone.
    pub(super) fn flush_deadline(&self, cx_flush_after: std::time::Duration) -> Tick {
        // Exactly when that would act: a deadline that nobody meets would come again at once.
        match (self.file, self.unsynced_since, self.sync, self.seal) {
            (FileState::Open { .. }, Some(since), None, Seal::No) => since.after(cx_flush_after),
            _ => Tick::NEVER,
        }
    }

    /// Whether everything that was accepted is durable and below the log end offset. What
    /// is written but waits for an earlier segment is neither.
    pub(super) fn is_synced(&self) -> bool {
        self.synced_end == self.committed_end
            && self.committed_end == self.accepted_end
            && self.sync.is_none()
    }

    /// Closes an idle file: cuts the reserved tail and gives the reservation back.
    /// The caller has seen it quiet and synced.
    pub(super) fn evict(&mut self, cx: &mut LogCx<'_>) {
        let FileState::Open { file, .. } = self.file else { return };
        self.return_budget(0, cx);
        self.allocated = 0;
        self.preallocate_next = 0;
        if self.padded {
            let len = self.committed_end;
            self.cutting = Some(cx.request(DiskAction::SetLength { file, len }));
            self.padded = false;
        } else {
            self.close(file, cx);
        }
    }

    fn close(&mut self, file: FileId, cx: &mut LogCx<'_>) {
        self.closing = Some(cx.request(DiskAction::Close { file }));
        self.file = FileState::Closed;
    }

    /// Writes nothing more, gives its buffers and reservations back, closes its file.
    pub(super) fn abandon(&mut self, cx: &mut LogCx<'_>) {
        self.abandoned = true;
        // The file stays open until what is under way on it has ended.
        match std::mem::replace(&mut self.seal, Seal::No) {
            Seal::Cutting(op) => self.cutting = Some(op),
            Seal::Syncing(op) => {
                self.sync = Some(Sync { op, offset: self.synced_offset, end: self.synced_end });
            }
            Seal::No | Seal::Wanted | Seal::SideFiles { .. } | Seal::Done => {}
        }
        for slot in self.window.reset_to(0) {
            cx.pool.give(slot);
        }
        self.return_budget(0, cx);
        self.close_abandoned(cx);
    }

    fn close_abandoned(&mut self, cx: &mut LogCx<'_>) {
        let quiet = self.window.is_empty()
            && self.sync.is_none()
            && self.preallocating.is_none()
            && self.closing.is_none()
            && self.cutting.is_none();
        if let (FileState::Open { file, .. }, true) = (self.file, quiet && self.abandoned) {
            self.close(file, cx);
        }
    }

    /// Whether `id` was asked for by this segment.
    pub(super) fn owns(&self, id: OpId) -> bool {
        let file_op = match self.file {
            FileState::Opening { op, .. } | FileState::ReadingTail { op, .. } => Some(op),
            FileState::Open { .. } | FileState::Closed => None,
        };
        let seal_op = match self.seal {
            Seal::Cutting(op) | Seal::Syncing(op) => Some(op),
            Seal::No | Seal::Wanted | Seal::SideFiles { .. } | Seal::Done => None,
        };
        let sync_op = self.sync.map(|sync| sync.op);
        let preallocation = self.preallocating.map(|(op, _)| op);
        [file_op, seal_op, sync_op, preallocation, self.closing, self.cutting].contains(&Some(id))
            || self.side_ops.contains(&id)
            || self.window.owns(id)
    }

    /// An operation that this segment owns completed. Slots go back to the pool.
    pub(super) fn on_outcome(
        &mut self,
        outcome: DiskOutcome,
        cx: &mut LogCx<'_>,
    ) -> Result<(), LogFailure> {
        let DiskOutcome { id, slot, result } = outcome;
        let after = self.route(id, slot, result, cx);
        self.close_abandoned(cx);
        // What an abandoned segment reports changes nothing any more.
        if self.abandoned { Ok(()) } else { after }
    }

    fn route(
        &mut self,
        id: OpId,
        slot: Option<Slot>,
        result: Result<DiskDone, DiskError>,
        cx: &mut LogCx<'_>,
    ) -> Result<(), LogFailure> {
        if let Some(slot) = slot {
            return self.on_write(id, slot, result, cx);
        }
        if let Some(index) = self.side_ops.iter().position(|&op| op == id) {
            self.side_ops.swap_remove(index);
            return self.on_side_done(result, cx);
        }
        match self.file {
            FileState::Opening { file, op, direct } if op == id => {
                return self.on_opened(file, direct, result, cx);
            }
            FileState::ReadingTail { file, op } if op == id => return self.on_tail(file, result),
            _ => {}
        }
        if self.sync.is_some_and(|sync| sync.op == id) {
            return self.on_synced(result);
        }
        if self.preallocating.is_some_and(|(op, _)| op == id) {
            self.on_preallocated(result.is_ok(), cx);
            return Ok(());
        }
        if self.cutting == Some(id) {
            self.cutting = None;
            return result.map(drop).or_else(|error| failed("cut to length", error));
        }
        if self.closing == Some(id) {
            self.closing = None;
            if self.file == FileState::Closed {
                self.tail_known = self.accepted_end == 0;
                self.tail.clear();
            }
            return Ok(());
        }
        self.on_seal_step(id, result, cx)
    }

    fn on_write(
        &mut self,
        id: OpId,
        slot: Slot,
        result: Result<DiskDone, DiskError>,
        cx: &mut LogCx<'_>,
    ) -> Result<(), LogFailure> {
        match result {
            Ok(done) => {
                let written = match done {
                    DiskDone::Written(n) => n,
                    DiskDone::Done | DiskDone::Read(_) => slot.class().bytes(),
                };
                cx.stats.writes += 1;
                cx.stats.bytes_written += u64::try_from(written).unwrap_or(0);
                if let Some(WriteProgress::Whole { slot, received_at }) =
                    self.window.on_written(id, written, slot)
                {
                    cx.pool.give(slot);
                    cx.stats.latency(cx.now.since(received_at));
                }
                Ok(())
            }
            Err(error) => {
                self.window.on_failed(id);
                cx.pool.give(slot);
                failed("write", error)
            }
        }
    }

    fn on_opened(
        &mut self,
        file: FileId,
        direct: bool,
        result: Result<DiskDone, DiskError>,
        cx: &mut LogCx<'_>,
    ) -> Result<(), LogFailure> {
        match result {
            Ok(_) => {}
            Err(DiskError::DirectUnsupported) if direct => {
                self.direct_refused = true;
                self.open_again_buffered(cx);
                return Ok(());
            }
            Err(error) => {
                self.file = FileState::Closed;
                return failed("open", error);
            }
        }
        self.exists = true;
        if direct && !self.tail_known {
            let block = self.window.block_bytes();
            let position = self.accepted_end / block * block;
            let len = usize::try_from(self.accepted_end - position).unwrap_or(0);
            if len > 0 {
                let op = cx.request(DiskAction::Read { file, position, len });
                self.file = FileState::ReadingTail { file, op };
                return Ok(());
            }
            self.tail_known = true;
        }
        self.file = FileState::Open { file, direct };
        Ok(())
    }

    fn open_again_buffered(&mut self, cx: &mut LogCx<'_>) {
        // Planned writes are aligned to the old block size, which is fine for a
        // buffered file; what follows continues byte by byte.
        let file = cx.ids.file();
        let path = self.path(FileKind::Log);
        let create = !self.exists;
        let op = cx.request(DiskAction::Open { file, path, create, direct: false });
        self.file = FileState::Opening { file, op, direct: false };
        if self.window.is_empty() {
            self.window.set_block_bytes(1);
        }
    }

    fn on_tail(
        &mut self,
        file: FileId,
        result: Result<DiskDone, DiskError>,
    ) -> Result<(), LogFailure> {
        self.file = FileState::Open { file, direct: true };
        let block = self.window.block_bytes();
        let wanted = usize::try_from(self.accepted_end % block).unwrap_or(0);
        match result {
            Ok(DiskDone::Read(mut bytes)) if bytes.len() >= wanted => {
                bytes.truncate(wanted);
                self.tail = bytes;
                self.tail_known = true;
                Ok(())
            }
            // Shorter than the log end offset says: somebody else cut the file.
            Ok(_) => failed("read of the tail block", EIO),
            Err(error) => failed("read of the tail block", error),
        }
    }

    fn on_synced(&mut self, result: Result<DiskDone, DiskError>) -> Result<(), LogFailure> {
        let Some(sync) = self.sync.take() else { return Ok(()) };
        match result {
            Ok(_) => {
                self.synced_end = sync.end;
                self.synced_offset = sync.offset;
                Ok(())
            }
            // The kernel may have dropped the dirty pages: a second sync would lie.
            Err(error) => failed("sync", error),
        }
    }

    fn on_preallocated(&mut self, ok: bool, cx: &mut LogCx<'_>) {
        let Some((_, end)) = self.preallocating.take() else { return };
        if ok {
            self.allocated = end;
        } else {
            // No room or no such call: writes extend the file and tell what is wrong.
            let _ = end;
            self.return_budget(self.allocated.saturating_sub(self.committed_end), cx);
            self.preallocate_refused = true;
        }
    }
}

fn failed(action: &'static str, error: DiskError) -> Result<(), LogFailure> {
    Err(LogFailure { action, error })
}

/// What a file that contradicts itself counts as.
const EIO: DiskError = DiskError::Io(5);

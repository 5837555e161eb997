//! The log of one partition on the data path: takes verified batches from a Fetch
//! response, brings them to the disk, and moves its offsets when they are there.
//!
//! Three ends, each at or before the one above it:
//!
//! * `accepted`: batches that were verified; fetching goes on from here;
//! * `log_end`: batches whose writes are complete, contiguously; readers, indexes,
//!   epochs and producer state go so far;
//! * `recovery_point`: what is durable; recovery after a crash scans from here.
//!
//! Invariant: nothing unverified is ever below the log end offset. Bytes may be
//! written ahead of their verification (a batch larger than a slot), but they lie
//! behind it and are overwritten if they turn out to be bad.
//!
//! The log is a value: it may be moved to another shard while it [is
//! quiet](PartitionLog::is_quiet). Opening, truncation and repair are
//! [`recovery`](super::recovery)'s, off the data path.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::config::LogConfig;
use super::cx::LogCx;
use super::disk::{DiskAction, DiskError, DiskOutcome, LogPath, OpId};
use super::epoch_cache::EpochCache;
use super::failure::{LogFailure, RunError};
use super::names::{self, SegmentFileKind, SegmentFileName};
use super::producer_snapshot;
use super::producer_state::ProducerState;
use super::read_plan::SegmentExtent;
use super::roll::roll_base_offset;
use super::run::Run;
use super::segment::{LiveSegment, RecoveredSegment, RestingSegment};
use crate::records::BatchMeta;
use crate::time::Tick;
use crate::types::{LeaderEpoch, Offset};

/// A segment that is complete: it only shrinks from the front, by deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedSegment {
    /// First offset it may hold.
    pub base: Offset,
    /// Length of its `.log`.
    pub size_bytes: u64,
}

impl SealedSegment {
    /// All of it counts.
    pub fn extent(&self) -> SegmentExtent {
        SegmentExtent { base: self.base, len: self.size_bytes }
    }
}

/// What recovery hands over: a log at rest.
#[derive(Debug)]
pub struct RecoveredLog {
    /// `topic-partition`.
    pub dir: Arc<str>,
    /// Roll and index settings.
    pub config: LogConfig,
    /// First offset that readers see.
    pub log_start: Offset,
    /// Next offset to be written.
    pub log_end: Offset,
    /// Durable up to here.
    pub recovery_point: Offset,
    /// All segments but the last, in order.
    pub sealed: Vec<SealedSegment>,
    /// The last one; `None` for a log without files.
    pub active: Option<RecoveredSegment>,
    /// Epochs of the batches; its checkpoint file says the same.
    pub epochs: EpochCache,
    /// Producers and open transactions at `log_end`.
    pub producers: ProducerState,
}

#[derive(Debug)]
struct PendingBatch {
    /// Sequence number of its segment.
    segment: u64,
    /// Where it ends in the segment's file.
    end: u64,
    meta: BatchMeta,
}

/// What is to be done with a batch.
enum Judgement {
    Accept,
    Roll,
    Skip,
}

/// See the module's text.
#[derive(Debug)]
pub struct PartitionLog {
    dir: Arc<str>,
    config: LogConfig,
    log_start: Offset,
    log_end: Offset,
    accepted: Offset,
    accepted_epoch: LeaderEpoch,
    recovery_point: Offset,
    sealed: Vec<SealedSegment>,
    live: VecDeque<LiveSegment>,
    /// In the place of the only live segment while its files are closed.
    resting: Option<Box<RestingSegment>>,
    /// Sequence number of the first live segment.
    live_first: u64,
    pending: VecDeque<PendingBatch>,
    epochs: EpochCache,
    /// First offset whose epoch is not in the checkpoint file yet.
    epochs_dirty_from: Option<Offset>,
    /// The same for what is being written to it.
    epochs_saving: Option<(OpId, Offset)>,
    producers: ProducerState,
    /// Boxed, as most logs of many have none.
    run: Option<Box<Run>>,
    epoch_limit: LeaderEpoch,
    side_ops: Vec<OpId>,
    /// Segment whose `.log` was removed; its other files follow.
    removing: Option<Offset>,
    /// Where the empty file lies that keeps the start of an empty log, once a segment of
    /// another name takes its place.
    husk: Option<Offset>,
    failure: Option<LogFailure>,
    closing: bool,
    /// Last time a run began.
    used_at: Tick,
    bytes_committed: u64,
    bytes_accepted: u64,
    batches_accepted: u64,
}

impl PartitionLog {
    /// The log as recovery found it.
    pub fn new(recovered: RecoveredLog) -> Self {
        let RecoveredLog {
            dir,
            config,
            log_start,
            log_end,
            recovery_point,
            sealed,
            active,
            epochs,
            producers,
        } = recovered;
        let accepted_epoch = epochs.latest().map_or(LeaderEpoch::NONE, |entry| entry.epoch);
        let resting = active.map(|active| Box::new(RestingSegment::recovered(active, log_end)));
        Self {
            dir,
            config,
            log_start,
            log_end,
            accepted: log_end,
            accepted_epoch,
            recovery_point,
            sealed,
            live: VecDeque::new(),
            resting,
            live_first: 0,
            pending: VecDeque::new(),
            epochs,
            epochs_dirty_from: None,
            epochs_saving: None,
            producers,
            run: None,
            epoch_limit: LeaderEpoch::NONE,
            side_ops: Vec::new(),
            removing: None,
            husk: None,
            failure: None,
            closing: false,
            used_at: Tick::ZERO,
            bytes_committed: 0,
            bytes_accepted: 0,
            batches_accepted: 0,
        }
    }

    /// `topic-partition`.
    pub fn dir(&self) -> &Arc<str> {
        &self.dir
    }

    /// First offset that readers see, inclusive.
    pub fn log_start_offset(&self) -> Offset {
        self.log_start
    }

    /// Next offset to be written; everything below is in the files.
    pub fn log_end_offset(&self) -> Offset {
        self.log_end
    }

    /// Where fetching goes on: verified, perhaps still on its way to the file.
    pub fn fetch_offset(&self) -> Offset {
        self.accepted
    }

    /// Epoch of the batch before [`Self::fetch_offset`]; [`LeaderEpoch::NONE`] if there is none.
    pub fn last_fetched_epoch(&self) -> LeaderEpoch {
        self.accepted_epoch
    }

    /// Everything below is durable, epochs included. What recovery may trust.
    pub fn recovery_point(&self) -> Offset {
        let saving = self.epochs_saving.map(|(_, from)| from);
        [self.epochs_dirty_from, saving]
            .into_iter()
            .flatten()
            .fold(self.recovery_point, Offset::min)
    }

    /// End of what a read_committed reader sees: the first open transaction, or the log end.
    pub fn last_stable_offset(&self) -> Offset {
        self.producers.last_stable_offset(self.log_end)
    }

    /// The same, but not beyond an aborted transaction of which no `.txnindex` file tells yet.
    pub fn shown_last_stable(&self) -> Offset {
        let untold = self.live.iter().filter_map(LiveSegment::untold_abort);
        untold.fold(self.last_stable_offset(), Offset::min)
    }

    /// Segments that change no more, by base offset. All others have higher ones.
    pub fn sealed_segments(&self) -> &[SealedSegment] {
        &self.sealed
    }

    /// The others, with their bytes below the log end offset.
    pub fn moving_segments(&self) -> impl Iterator<Item = SegmentExtent> + Clone {
        let live = self.live.iter();
        let live = live.map(|it| SegmentExtent { base: it.base, len: it.committed_end });
        let resting = self.resting.as_deref().into_iter();
        live.chain(resting.map(|it| SegmentExtent { base: it.base(), len: it.size_bytes() }))
    }

    /// Epochs of what lies below the log end offset.
    pub fn epochs(&self) -> &EpochCache {
        &self.epochs
    }

    /// Producers and open transactions of what lies below the log end offset.
    pub fn producers(&self) -> &ProducerState {
        &self.producers
    }

    /// Whether nothing was ever written, or everything was trimmed away.
    pub fn is_empty(&self) -> bool {
        self.log_start == self.accepted
            && self.live.iter().all(|live| live.accepted_end == 0)
            && self.resting.as_ref().is_none_or(|resting| resting.size_bytes() == 0)
            && self.sealed.is_empty()
    }

    /// Why it takes no more appends; it has to be opened again once it is quiet.
    pub fn failure(&self) -> Option<LogFailure> {
        self.failure
    }

    /// Nothing of it is under way on disk, and no run is being received.
    pub fn is_quiet(&self) -> bool {
        self.run.is_none()
            && self.side_ops.is_empty()
            && self.epochs_saving.is_none()
            && self.live.iter().all(LiveSegment::is_quiet)
    }

    /// Whether [`Self::begin_close`] has been carried out to its end.
    pub fn is_closed(&self) -> bool {
        self.closing && self.failure.is_none() && self.live.is_empty() && self.is_quiet()
    }

    /// Whether a `.log` file is open, and since when it has not been used.
    pub fn open_since(&self) -> Option<Tick> {
        self.live.iter().any(LiveSegment::holds_file).then_some(self.used_at)
    }

    /// Bytes that came below the log end offset since it was opened.
    pub fn bytes_committed(&self) -> u64 {
        self.bytes_committed
    }

    /// Bytes of batches that were accepted since it was opened.
    pub fn bytes_accepted(&self) -> u64 {
        self.bytes_accepted
    }

    /// The number of these batches.
    pub fn batches_accepted(&self) -> u64 {
        self.batches_accepted
    }

    /// Bytes of record batches in all its segments, up to the log end offset.
    pub fn size_bytes(&self) -> u64 {
        self.sealed.iter().map(|sealed| sealed.size_bytes).sum::<u64>()
            + self.live.iter().map(|live| live.committed_end).sum::<u64>()
            + self.resting.as_ref().map_or(0, |resting| resting.size_bytes())
    }

    /// Expects `bytes` of record batches. Batches of epochs above `epoch_limit` are
    /// refused ([`LeaderEpoch::NONE`]: no limit is known).
    ///
    /// # Panics
    /// If a run is under way, or the log has failed or is closing.
    pub fn begin_run(&mut self, bytes: u64, epoch_limit: LeaderEpoch, cx: &mut LogCx<'_>) {
        assert!(self.takes_runs(), "a run begins on an open log");
        self.used_at = cx.now;
        self.epoch_limit = epoch_limit;
        self.wake();
        let at = self.live.back().map_or(0, |live| live.accepted_end);
        if let Some(live) = self.live.back_mut() {
            live.prepare(bytes, cx);
        }
        self.run = Some(Box::new(Run::new(bytes, at, cx)));
    }

    /// Whether [`Self::begin_run`] may be called.
    pub fn takes_runs(&self) -> bool {
        self.run.is_none() && self.failure.is_none() && !self.closing
    }

    /// Record bytes of the run that the source still sends; 0 without a run.
    pub fn run_left(&self) -> u64 {
        self.run.as_ref().map_or(0, |run| run.left)
    }

    /// Where the next bytes of the run belong, never empty. `None` while the log waits
    /// for a buffer or for its file: try again after the next completion.
    pub fn read_buffer(&mut self, cx: &mut LogCx<'_>) -> Option<&mut [u8]> {
        let run = self.run.as_mut()?;
        match self.live.back_mut() {
            // There was none to spare when the run began.
            Some(live) if !live.holds_file() => live.prepare(run.total, cx),
            None if cx.files_left == 0 => return None,
            _ => {}
        }
        run.take_slot(self.live.back(), cx)?;
        run.free_bytes()
    }

    /// What [`Self::read_buffer`] has offered before, again.
    pub fn offered_buffer(&mut self) -> Option<&mut [u8]> {
        self.run.as_mut()?.free_bytes()
    }

    /// The first `n` bytes of [`Self::read_buffer`] have been received.
    ///
    /// # Errors
    /// [`RunError`] ends the run: the caller discards what the source still sends of it.
    ///
    /// # Panics
    /// Without a run, or if `n` is more than was offered.
    pub fn received(&mut self, n: usize, cx: &mut LogCx<'_>) -> Result<(), RunError> {
        assert!(self.run.is_some(), "bytes belong to a run");
        let from = self.run.as_mut().map_or(0, |run| run.advance(n, cx.now));
        let outcome = self.walk(from, cx);
        let (left, full) = self.run.as_ref().map_or((0, false), |run| (run.left, run.is_full()));
        let outcome = match outcome {
            Ok(()) if full && left > 0 => self.slot_full(cx),
            other => other,
        };
        if left == 0 || outcome.is_err() {
            self.end_run(cx);
        }
        self.pump(cx);
        outcome
    }

    /// The source sends no more of the run: the connection broke. What was accepted stays.
    pub fn abort_run(&mut self, cx: &mut LogCx<'_>) {
        if self.run.is_some() {
            self.end_run(cx);
            self.pump(cx);
            self.rest();
        }
    }

    /// Keeps what it takes to go on, and nothing else, once nothing is under way.
    fn rest(&mut self) {
        let is_idle = self.run.is_none() && self.pending.is_empty() && !self.closing;
        match self.live.front() {
            Some(live) if is_idle && self.live.len() == 1 && live.may_rest() => {}
            _ => return,
        }
        self.resting = self.live.pop_front().map(|live| Box::new(live.rest()));
        self.live = VecDeque::new();
        self.pending = VecDeque::new();
        self.sealed.shrink_to_fit();
        self.side_ops.shrink_to_fit();
        self.epochs.shrink();
    }

    fn wake(&mut self) {
        if let Some(resting) = self.resting.take() {
            // Most logs only ever have one.
            self.live.reserve_exact(1);
            self.live.push_back(resting.wake(Arc::clone(&self.dir)));
        }
    }

    fn walk(&mut self, from: usize, cx: &mut LogCx<'_>) -> Result<(), RunError> {
        let mut at = from;
        loop {
            let Some(run) = self.run.as_mut() else { return Ok(()) };
            let Some((used, batch)) = run.feed(at)? else { return Ok(()) };
            at += used;
            let Some(meta) = batch else {
                run.drop_skipped();
                return Ok(());
            };
            let judgement = match (run.skipping, run.ahead) {
                (true, _) => Judgement::Skip,
                // Judged when its first part was written.
                (false, true) => Judgement::Accept,
                (false, false) => self.judge(&meta, cx.wall_ms)?,
            };
            at = match judgement {
                Judgement::Skip => self.skip(&meta, at, cx),
                Judgement::Accept => self.accept(meta, at, cx),
                Judgement::Roll => {
                    let at = self.roll(&meta, at, cx);
                    self.accept(meta, at, cx)
                }
            };
        }
    }

    /// Decides on a batch by its header. Before its checksum was seen, a "no" is as
    /// final, and a "yes" only allows to write it behind the log end offset.
    fn judge(&self, meta: &BatchMeta, wall_ms: i64) -> Result<Judgement, RunError> {
        if meta.last_offset < self.accepted {
            return Ok(Judgement::Skip);
        }
        if meta.base_offset < self.accepted && !self.is_empty() {
            let (base_offset, last_offset) = (meta.base_offset, meta.last_offset);
            return Err(RunError::Overlap { base_offset, last_offset, log_end: self.accepted });
        }
        let (base_offset, epoch) = (meta.base_offset, meta.leader_epoch);
        if epoch.known().is_some() {
            let known = self.epoch_limit;
            if known.known().is_some() && epoch > known {
                return Err(RunError::EpochAhead { base_offset, epoch, known });
            }
            if epoch < self.accepted_epoch {
                let latest = self.accepted_epoch;
                return Err(RunError::EpochGoesBack { base_offset, epoch, latest });
            }
        }
        Ok(match self.live.back() {
            Some(live) if live.must_roll(&self.config, meta, wall_ms) => Judgement::Roll,
            _ => Judgement::Accept,
        })
    }

    fn skip(&mut self, meta: &BatchMeta, at: usize, cx: &mut LogCx<'_>) -> usize {
        cx.stats.bytes_discarded += u64::from(meta.size_bytes);
        let Some(run) = self.run.as_mut() else { return at };
        run.skipping = false;
        let from = run.batch_index();
        cx.stats.bytes_copied += run.cut_out(from, at);
        from
    }

    fn accept(&mut self, meta: BatchMeta, at: usize, cx: &mut LogCx<'_>) -> usize {
        if self.live.is_empty() {
            self.push_first_segment(&meta, cx);
        }
        let segment = self.last_segment();
        let (Some(run), Some(live)) = (self.run.as_mut(), self.live.back_mut()) else { return at };
        let end = run.position(at);
        run.batch_at = end;
        run.ahead = false;
        live.accept(&meta, end);
        self.accepted = meta.next_offset();
        self.bytes_accepted += u64::from(meta.size_bytes);
        self.batches_accepted += 1;
        self.accepted_epoch = meta.leader_epoch;
        self.pending.push_back(PendingBatch { segment, end, meta });
        at
    }

    /// Ends the segment before the batch under way, whose bytes move to the front of a
    /// slot of the new one. Returns the new index of what was at `at`.
    fn roll(&mut self, meta: &BatchMeta, at: usize, cx: &mut LogCx<'_>) -> usize {
        let base = roll_base_offset(meta, self.accepted);
        let Some(run) = self.run.as_mut() else { return at };
        let cut = run.batch_index();
        let old = run.split(cut, 0, cx);
        run.batch_at = 0;
        if let Some(live) = self.live.back_mut() {
            if let Some((slot, old_at)) = old {
                live.plan(slot, old_at, cut, run.received_at);
            }
            live.begin_seal();
        }
        self.push_segment(base, cx);
        if let Some(live) = self.live.back_mut() {
            live.wants_snapshot = true;
        }
        at - cut
    }

    /// The first segment of an empty log, named after its first batch if that reaches
    /// below the log start offset.
    fn push_first_segment(&mut self, first: &BatchMeta, cx: &mut LogCx<'_>) {
        let base = self.log_start.min(first.base_offset);
        if base != self.log_end {
            self.husk = Some(self.log_end);
        }
        self.push_segment(base, cx);
    }

    /// The first segment is there and holds something.
    fn remove_husk(&mut self, cx: &mut LogCx<'_>) {
        if let Some(base) = self.husk.take() {
            for kind in [SegmentFileKind::Log, SegmentFileKind::Index, SegmentFileKind::TimeIndex] {
                self.remove_file(base, kind, cx);
            }
        }
    }

    fn remove_file(&mut self, base: Offset, kind: SegmentFileKind, cx: &mut LogCx<'_>) {
        let path = self.own_path(&SegmentFileName::live(base, kind).to_string());
        self.side_ops.push(cx.request(DiskAction::Remove { path }));
    }

    fn push_segment(&mut self, base: Offset, cx: &mut LogCx<'_>) {
        let mut live = LiveSegment::new(Arc::clone(&self.dir), base, &self.config, cx.wall_ms);
        live.open_for(self.run.as_ref().map_or(0, |run| run.total), cx);
        // Most logs only ever have one.
        self.live.reserve_exact(1);
        self.live.push_back(live);
    }

    fn last_segment(&self) -> u64 {
        self.live_first + u64::try_from(self.live.len()).unwrap_or(0).saturating_sub(1)
    }

    /// The slot is full and the run goes on.
    fn slot_full(&mut self, cx: &mut LogCx<'_>) -> Result<(), RunError> {
        let Some(run) = self.run.as_ref() else { return Ok(()) };
        if run.walker.pending_bytes() > 0 && !run.ahead {
            let Some(meta) = run.walker.current().copied() else {
                self.carry_header(cx);
                return Ok(());
            };
            // Judged by its header, then written ahead of its verification.
            match self.judge(&meta, cx.wall_ms)? {
                Judgement::Accept => self.begin_ahead(&meta, cx),
                Judgement::Skip => {
                    if let Some(run) = self.run.as_mut() {
                        run.skipping = true;
                        run.drop_skipped();
                    }
                    return Ok(());
                }
                Judgement::Roll => {
                    let end = self.run.as_deref().map_or(0, Run::filled);
                    self.roll(&meta, end, cx);
                    if !self.run.as_deref().is_some_and(Run::is_full) {
                        return Ok(());
                    }
                    // The slot held nothing but this batch.
                    self.begin_ahead(&meta, cx);
                }
            }
        }
        if let (Some(run), Some(live)) = (self.run.as_mut(), self.live.back_mut())
            && let Some((slot, slot_at, len)) = run.take_full()
        {
            live.plan(slot, slot_at, len, run.received_at);
            live.tail.clear();
        }
        Ok(())
    }

    fn begin_ahead(&mut self, meta: &BatchMeta, cx: &mut LogCx<'_>) {
        if self.live.is_empty() {
            self.push_first_segment(meta, cx);
        }
        if let (Some(run), Some(live)) = (self.run.as_mut(), self.live.back()) {
            run.begin_ahead(live.window.block_bytes());
        }
    }

    /// The slot ends inside a batch header, so nothing is known of the batch: its first
    /// bytes, and the block that they lie in, move to the next slot.
    fn carry_header(&mut self, cx: &mut LogCx<'_>) {
        let (Some(run), Some(live)) = (self.run.as_mut(), self.live.back_mut()) else { return };
        let block = usize::try_from(live.window.block_bytes()).unwrap_or(1);
        let keep = run.batch_index() / block * block;
        let next_at = run.position(keep);
        if let Some((slot, slot_at)) = run.split(keep, next_at, cx) {
            live.plan(slot, slot_at, keep, run.received_at);
            live.tail.clear();
        }
    }

    fn end_run(&mut self, cx: &mut LogCx<'_>) {
        let Some(mut run) = self.run.take() else { return };
        cx.stats.bytes_discarded += run.walker.pending_bytes() + run.left;
        let Some(live) = self.live.back_mut() else {
            run.give_slot(cx);
            return;
        };
        if run.ahead {
            run.give_slot(cx);
            live.reset_to(run.batch_at, Some(run.restart_tail), cx);
            return;
        }
        let block = usize::try_from(live.window.block_bytes()).unwrap_or(1);
        if let Some((slot, slot_at, data_len, fresh)) = run.finish() {
            live.tail.clear();
            live.tail.extend_from_slice(&slot.bytes()[data_len / block * block..data_len]);
            if fresh {
                live.plan(slot, slot_at, data_len, run.received_at);
            } else {
                cx.pool.give(slot);
            }
        }
    }

    /// Moves what has been written below the log end offset, and sends what may go.
    pub fn pump(&mut self, cx: &mut LogCx<'_>) {
        if self.failure.is_some() {
            return;
        }
        self.commit(cx);
        for live in &mut self.live {
            live.pump(cx);
        }
        self.close_step(cx);
        for index in 0..self.live.len() {
            let log_end = self.log_end;
            if let Some(live) = self.live.get_mut(index) {
                live.pump_seal(cx);
                live.flush_if_due(log_end, false, cx);
            }
        }
        self.retire(cx);
        self.save_epochs(cx);
    }

    fn commit(&mut self, cx: &mut LogCx<'_>) {
        while let Some(front) = self.pending.front() {
            let index = usize::try_from(front.segment - self.live_first).unwrap_or(usize::MAX);
            let Some(live) = self.live.get_mut(index) else { return };
            if live.window.complete_to() < front.end {
                return;
            }
            let Some(PendingBatch { end, meta, .. }) = self.pending.pop_front() else { return };
            if std::mem::take(&mut live.wants_snapshot) {
                self.producers.advance_end_offset(live.base);
                let path = live.path(SegmentFileKind::Snapshot);
                let bytes = producer_snapshot::encode(&self.producers.snapshot());
                self.side_ops.push(cx.request(DiskAction::Replace { path, bytes }));
            }
            if self.epochs.on_batch(&meta) {
                // The first batch may begin below the log start offset.
                self.epochs.truncate_from_start(self.log_start);
                self.epochs_dirty_from.get_or_insert(meta.base_offset);
            }
            if let Some(entry) = self.producers.on_batch(&meta).and_then(|txn| txn.aborted())
                && let Some(live) = self.live.get_mut(index)
            {
                live.push_aborted(&entry);
            }
            if let Some(live) = self.live.get_mut(index) {
                live.commit(&meta, end, cx);
            }
            self.log_end = meta.next_offset();
            self.remove_husk(cx);
            cx.stats.bytes_appended += u64::from(meta.size_bytes);
            self.bytes_committed += u64::from(meta.size_bytes);
            cx.stats.batches_appended += 1;
            self.producers.on_high_watermark(self.log_end);
        }
    }

    fn save_epochs(&mut self, cx: &mut LogCx<'_>) {
        if self.epochs_saving.is_none()
            && let Some(from) = self.epochs_dirty_from.take()
        {
            let path = self.own_path(names::LEADER_EPOCH_CHECKPOINT);
            let bytes = self.epochs.encode().into_bytes();
            let op = cx.request(DiskAction::Replace { path, bytes });
            self.epochs_saving = Some((op, from));
        }
    }

    /// Moves sealed segments out of the way and the recovery point on.
    fn retire(&mut self, cx: &mut LogCx<'_>) {
        while let Some(front) = self.live.front() {
            self.recovery_point = self.recovery_point.max(front.synced_offset.min(self.log_end));
            if !front.is_sealed() {
                break;
            }
            let next = self.live.get(1).map_or(self.log_end, |next| next.base);
            self.recovery_point = self.recovery_point.max(next.min(self.log_end));
            self.sealed.push(SealedSegment { base: front.base, size_bytes: front.committed_end });
            self.live.pop_front();
            self.live_first += 1;
        }
        self.delete_below_start(cx);
    }

    /// The source's log start offset moved to `to`: this log's follows, never past its end.
    /// Segments wholly below it are deleted.
    pub fn advance_log_start(&mut self, to: Offset, cx: &mut LogCx<'_>) {
        let to = to.min(self.log_end);
        if to > self.log_start && self.failure.is_none() {
            self.log_start = to;
            self.producers.on_log_start(to);
            if self.epochs.truncate_from_start(to) {
                self.epochs_dirty_from.get_or_insert(self.log_end);
            }
            self.delete_below_start(cx);
            self.save_epochs(cx);
        }
    }

    /// Removes one segment at a time, from the front: a crash leaves no gap. Its `.log` goes
    /// first, for without the other files a log that stays would say less than it knew; and
    /// only once the next one's snapshot is there, which is all that remembers the producers.
    fn delete_below_start(&mut self, cx: &mut LogCx<'_>) {
        if !self.side_ops.is_empty() || self.failure.is_some() {
            return;
        }
        if let Some(base) = self.removing.take() {
            for kind in SegmentFileKind::ALL {
                if kind != SegmentFileKind::Log {
                    self.remove_file(base, kind, cx);
                }
            }
            return;
        }
        let next = match (self.sealed.get(1), self.live.front()) {
            (Some(next), _) => Some(next.base),
            (None, Some(live)) => (!live.wants_snapshot).then_some(live.base),
            (None, None) => self.resting.as_ref().map(|resting| resting.base()),
        };
        if next.is_some_and(|next| next <= self.log_start) && !self.sealed.is_empty() {
            let base = self.sealed.remove(0).base;
            self.remove_file(base, SegmentFileKind::Log, cx);
            self.removing = Some(base);
        }
    }

    /// Finishes everything under way, then leaves the log as a clean stop of a broker
    /// would: cut to its data, synced, indexes and producer snapshot complete.
    pub fn begin_close(&mut self, cx: &mut LogCx<'_>) {
        self.abort_run(cx);
        self.wake();
        self.closing = true;
        self.pump(cx);
    }

    fn close_step(&mut self, cx: &mut LogCx<'_>) {
        if !self.closing || !self.pending.is_empty() {
            return;
        }
        if self.live.is_empty() && self.sealed.is_empty() {
            // An empty file keeps the offset of a log that never held anything.
            self.push_segment(self.log_end, cx);
        }
        let log_end = self.log_end;
        let Some(last) = self.live.back_mut() else { return };
        if last.begin_seal() {
            let path = self
                .own_path(&SegmentFileName::live(log_end, SegmentFileKind::Snapshot).to_string());
            let bytes = producer_snapshot::encode(&self.producers.snapshot());
            self.side_ops.push(cx.request(DiskAction::Replace { path, bytes }));
        }
    }

    /// Gives up: releases files and buffers without finishing anything, after a failure
    /// or on the way to another use. Wait for [`Self::is_quiet`], then recover.
    pub fn abandon(&mut self, cx: &mut LogCx<'_>) {
        if let Some(mut run) = self.run.take() {
            run.give_slot(cx);
        }
        self.failure.get_or_insert(LogFailure { action: "append", error: DiskError::NoSpace });
        self.pending.clear();
        for live in &mut self.live {
            live.abandon(cx);
        }
    }

    /// Flushes by time. Call at [`Self::deadline`].
    pub fn tick(&mut self, cx: &mut LogCx<'_>) {
        self.pump(cx);
    }

    /// When [`Self::tick`] has something to do.
    pub fn deadline(&self, flush_after: Duration) -> Tick {
        let flush = |live: &LiveSegment| live.flush_deadline(flush_after);
        self.live.iter().map(flush).min().unwrap_or(Tick::NEVER)
    }

    /// Takes one step towards closing an idle file: sync, cut the reserved tail, close.
    /// `true` once no file is open. Call again after completions.
    pub fn evict(&mut self, cx: &mut LogCx<'_>) -> bool {
        if self.run.is_some() || self.failure.is_some() {
            return false;
        }
        let log_end = self.log_end;
        for live in &mut self.live {
            if live.is_quiet() && live.is_synced() {
                live.evict(cx);
            } else {
                live.flush_if_due(log_end, true, cx);
            }
        }
        self.open_since().is_none()
    }

    /// An operation that this log asked for completed. `false` if it did not.
    pub fn on_outcome(&mut self, outcome: DiskOutcome, cx: &mut LogCx<'_>) -> bool {
        let id = outcome.id;
        if let Some(index) = self.side_ops.iter().position(|&op| op == id) {
            self.side_ops.swap_remove(index);
            self.on_side_result(outcome.result.err(), "write of a snapshot", cx);
            return true;
        }
        if self.epochs_saving.is_some_and(|(op, _)| op == id) {
            self.epochs_saving = None;
            self.on_side_result(outcome.result.err(), "write of the epoch checkpoint", cx);
            return true;
        }
        let Some(live) = self.live.iter_mut().find(|live| live.owns(id)) else {
            if let Some(slot) = outcome.slot {
                cx.pool.give(slot);
            }
            return false;
        };
        match live.on_outcome(outcome, cx) {
            Ok(()) => self.pump(cx),
            Err(LogFailure { action, error }) => self.fail(action, error, cx),
        }
        self.rest();
        true
    }

    fn on_side_result(
        &mut self,
        error: Option<DiskError>,
        action: &'static str,
        cx: &mut LogCx<'_>,
    ) {
        match error {
            None => self.pump(cx),
            Some(error) => self.fail(action, error, cx),
        }
    }

    fn fail(&mut self, action: &'static str, error: DiskError, cx: &mut LogCx<'_>) {
        self.failure.get_or_insert(LogFailure { action, error });
        self.abandon(cx);
    }

    fn own_path(&self, name: &str) -> LogPath {
        LogPath { dir: Arc::clone(&self.dir), name: name.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::cx::{AppendLimits, AppendStats, Ids};
    use crate::log::disk::{DiskAction, DiskOp};
    use crate::log::index::SegmentIndexes;
    use crate::log::slot::{SlotPool, map_apart};
    use crate::types::TimestampMs;

    fn log(size_bytes: u64) -> PartitionLog {
        let config = LogConfig::default();
        let active = RecoveredSegment {
            base: Offset::ZERO,
            size_bytes,
            indexes: SegmentIndexes::new(Offset::ZERO, &config),
            side_bytes: [0; 3],
            first_timestamp: None,
            created: TimestampMs(1),
        };
        PartitionLog::new(RecoveredLog {
            dir: Arc::from("t-0"),
            config,
            log_start: Offset::ZERO,
            log_end: Offset(i64::from(size_bytes > 0)),
            recovery_point: Offset::ZERO,
            sealed: Vec::new(),
            active: (size_bytes > 0).then_some(active),
            epochs: EpochCache::default(),
            producers: ProducerState::new(Offset::ZERO),
        })
    }

    /// What recovery found is at rest until a run comes; what that opened comes to rest again.
    #[test]
    fn a_log_whose_file_is_closed_is_at_rest() {
        let limits = AppendLimits::default();
        let (mut pool, mut ids) = (SlotPool::new(1 << 20, map_apart), Ids::default());
        let (mut stats, mut preallocate_left, mut ops) = (AppendStats::default(), 0, Vec::new());
        let mut cx = LogCx {
            now: Tick::ZERO,
            wall_ms: 1,
            pool: &mut pool,
            limits: &limits,
            preallocate_left: &mut preallocate_left,
            files_left: 1,
            ids: &mut ids,
            ops: &mut ops,
            stats: &mut stats,
        };
        let mut log = log(100);
        assert!(log.resting.is_some() && log.live.is_empty());
        assert_eq!((log.size_bytes(), log.is_empty(), log.is_quiet()), (100, false, true));
        log.begin_run(1_000, LeaderEpoch::NONE, &mut cx);
        assert!(log.resting.is_none() && log.open_since().is_some());
        log.abort_run(&mut cx);
        while let Some(DiskOp { id, .. }) = cx.ops.pop() {
            let result = Ok(crate::log::disk::DiskDone::Done);
            assert!(log.on_outcome(DiskOutcome { id, slot: None, result }, &mut cx));
            log.evict(&mut cx);
        }
        assert!(log.resting.is_some() && log.open_since().is_none());
        assert_eq!((log.live.capacity(), log.size_bytes()), (0, 100));
        // A clean stop writes what a segment at rest kept back.
        log.begin_close(&mut cx);
        assert!(log.resting.is_none() && !cx.ops.is_empty());
    }

    #[test]
    fn a_run_waits_while_no_more_files_may_be_opened() {
        let limits = AppendLimits::default();
        let (mut pool, mut ids) = (SlotPool::new(1 << 20, map_apart), Ids::default());
        let (mut stats, mut preallocate_left) = (AppendStats::default(), 0);
        for size_bytes in [0, 100] {
            let mut log = log(size_bytes);
            let mut ops = Vec::new();
            let mut cx = LogCx {
                now: Tick::ZERO,
                wall_ms: 1,
                pool: &mut pool,
                limits: &limits,
                preallocate_left: &mut preallocate_left,
                files_left: 0,
                ids: &mut ids,
                ops: &mut ops,
                stats: &mut stats,
            };
            log.begin_run(1_000, LeaderEpoch::NONE, &mut cx);
            assert!(log.read_buffer(&mut cx).is_none());
            assert!(cx.ops.is_empty() && log.open_since().is_none());
            cx.files_left = 1;
            assert!(log.read_buffer(&mut cx).is_some());
            let is_open = |op: &DiskOp| matches!(op.action, DiskAction::Open { .. });
            // The first segment is named by its first batch, so it is opened with that.
            assert_eq!(cx.ops.iter().any(is_open), size_bytes > 0);
            log.abandon(&mut cx);
        }
    }
}

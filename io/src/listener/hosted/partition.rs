//! One served partition: where it stands, reading it, adding to it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::names::{LEADER_EPOCH_CHECKPOINT, SegmentFileKind};
use heliostat_core::log::producer_state::ProducerState;
use heliostat_core::log::read_plan::ReadRequest;
use heliostat_core::log::txn_index::AbortedTxn;
use heliostat_core::records::{BatchHeader, BatchMeta, BatchWalker, WalkLimits};
use heliostat_core::serve::ServedFacts;
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition};

use super::super::reading::{Found, RecordsRun, Segments, TimedOffset};
use super::bell::Bell;
use super::error::HostedError;
use super::load;
use super::segment::Segment;
use super::writer::{Writer, path_of, remove_file, write_file, write_snapshot};

/// Who leads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The leader, [`BrokerId::NONE`] for none.
    pub leader: BrokerId,
    /// Its epoch.
    pub epoch: LeaderEpoch,
}

/// Where appended batches went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// First offset of the first batch.
    pub base_offset: Offset,
    /// Log end offset after the last.
    pub log_end: Offset,
}

/// What readers see.
#[derive(Debug)]
pub(super) struct State {
    pub(super) leadership: Leadership,
    /// Whether it is a mirror's.
    pub(super) mirrored: bool,
    pub(super) log_start: Offset,
    pub(super) log_end: Offset,
    /// The high watermark stays here; without it, it is the log end.
    pub(super) held_at: Option<Offset>,
    pub(super) producers: ProducerState,
    pub(super) epochs: EpochCache,
    /// Oldest first, at least one; the last is active.
    pub(super) segments: Vec<Arc<Segment>>,
}

impl State {
    fn high_watermark(&self) -> Offset {
        self.held_at.unwrap_or(self.log_end).min(self.log_end)
    }
}

/// A partition as it was at one moment.
#[derive(Debug)]
pub struct Look {
    /// Where it stands.
    pub facts: ServedFacts,
    /// Latest epoch in the log, [`LeaderEpoch::NONE`] for none; `None` unless it is a mirror.
    pub mirror_epoch: Option<LeaderEpoch>,
    segments: Segments<Arc<Segment>>,
}

impl Look {
    /// Bytes that answer `request`.
    ///
    /// # Errors
    ///
    /// The disk, or bytes that are no batches.
    pub fn read(&self, request: &ReadRequest) -> Result<Option<RecordsRun>, HostedError> {
        Ok(match self.segments.run(request)? {
            Found::Run(run) => Some(run),
            Found::Nothing | Found::Beyond => None,
        })
    }

    /// Aborted transactions among the records of `run` from `from` on.
    ///
    /// # Errors
    ///
    /// The disk.
    pub fn aborted(&self, run: &RecordsRun, from: Offset) -> io::Result<Vec<AbortedTxn>> {
        Ok(self.segments.aborted(from, run.end_bound)?.0)
    }
}

/// A partition of a served log dir. Shared between threads.
#[derive(Debug)]
pub struct Partition {
    id: TopicPartition,
    topic_id: TopicId,
    dir: PathBuf,
    bell: Arc<Bell>,
    state: RwLock<State>,
    writer: Mutex<Writer>,
}

impl Partition {
    pub(super) fn new(
        id: TopicPartition,
        topic_id: TopicId,
        bell: Arc<Bell>,
        state: State,
        writer: Writer,
    ) -> Self {
        let dir = writer.dir.clone();
        Self { id, topic_id, dir, bell, state: RwLock::new(state), writer: Mutex::new(writer) }
    }

    /// Topic and index.
    pub fn id(&self) -> &TopicPartition {
        &self.id
    }

    /// Identity of the topic.
    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who leads it.
    pub fn leadership(&self) -> Leadership {
        self.state().leadership
    }

    /// Where it stands, as `node` sees it.
    pub fn facts(&self, node: BrokerId) -> ServedFacts {
        self.facts_of(&self.state(), node)
    }

    fn facts_of(&self, state: &State, node: BrokerId) -> ServedFacts {
        let high_watermark = state.high_watermark();
        ServedFacts {
            topic_id: self.topic_id,
            leader_epoch: state.leadership.epoch,
            is_leader: state.leadership.leader == node,
            log_start: state.log_start,
            high_watermark,
            last_stable: state.producers.last_stable_offset(high_watermark),
            log_end: state.log_end,
        }
    }

    /// The largest epoch not above `epoch` and its end; `None` if that cannot be told.
    pub fn epoch_end(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let state = self.state();
        let (found, end) = state.epochs.end_offset_for(epoch, state.log_end);
        found.known().map(|found| (found, end))
    }

    /// Epoch of the record at `offset`.
    pub fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        self.state().epochs.epoch_for_offset(offset).unwrap_or(LeaderEpoch::NONE)
    }

    /// Where it stands and what it holds from `from` on, both at one moment.
    pub fn look(&self, node: BrokerId, from: Offset) -> Look {
        let state = self.state();
        let facts = self.facts_of(&state, node);
        // A reader at the end, which most are, costs no list of segments.
        let segments = if from < state.log_end { segments_from(&state, from) } else { &[] };
        let latest = || state.epochs.latest().map_or(LeaderEpoch::NONE, |latest| latest.epoch);
        let mirror_epoch = state.mirrored.then(latest);
        Look { facts, mirror_epoch, segments: Segments::new(segments.to_vec()) }
    }

    /// The first record at or after `timestamp`.
    ///
    /// # Errors
    ///
    /// The disk, or bytes that are no batches.
    pub fn offset_for_time(
        &self,
        timestamp: TimestampMs,
    ) -> Result<Option<TimedOffset>, HostedError> {
        let (segments, log_start) = self.all_segments();
        segments.offset_for_time(timestamp, log_start)
    }

    /// The first record with the largest timestamp.
    ///
    /// # Errors
    ///
    /// The disk, or bytes that are no batches.
    pub fn max_timestamp(&self) -> Result<Option<TimedOffset>, HostedError> {
        let (segments, log_start) = self.all_segments();
        segments.max_timestamp(log_start)
    }

    fn all_segments(&self) -> (Segments<Arc<Segment>>, Offset) {
        let state = self.state();
        (Segments::new(segments_from(&state, state.log_start).to_vec()), state.log_start)
    }

    /// Appends whole v2 batches as the leader does: offsets follow the log end, the
    /// leader epoch is the current one. Neither is covered by the CRC.
    ///
    /// # Errors
    ///
    /// Bytes that are no whole v2 batches; the disk.
    pub fn append_as_leader(&self, batches: &mut [u8]) -> Result<Appended, HostedError> {
        let mut writer = self.writer();
        let (mut next, epoch) = {
            let state = self.state();
            (state.log_end, state.leadership.epoch)
        };
        let mut rest = &mut *batches;
        while !rest.is_empty() {
            let (header, _) = BatchHeader::view(rest).ok_or(HostedError::CutOff)?;
            header.check()?;
            let size = usize::try_from(header.size_bytes()).unwrap_or(usize::MAX);
            let records = i64::from(header.last_offset_delta()).saturating_add(1);
            let (batch, behind) = rest.split_at_mut_checked(size).ok_or(HostedError::CutOff)?;
            stamp(batch, 0, &next.0.to_be_bytes());
            stamp(batch, 12, &epoch.0.to_be_bytes());
            next = next.plus(records);
            rest = behind;
        }
        self.append(&mut writer, batches)
    }

    /// Appends whole batches of any format as they are: gaps are legal, going back
    /// is not. Their CRCs are not checked.
    ///
    /// # Errors
    ///
    /// Bytes that are no whole batches, offsets that go back; the disk.
    pub fn append_verbatim(&self, batches: &[u8]) -> Result<Appended, HostedError> {
        let mut writer = self.writer();
        self.append(&mut writer, batches)
    }

    fn append(&self, writer: &mut Writer, bytes: &[u8]) -> Result<Appended, HostedError> {
        let metas = walk(bytes)?;
        let log_end = self.state().log_end;
        let mut expected = log_end;
        for meta in &metas {
            if meta.last_offset < expected || (meta.magic >= 2 && meta.base_offset < expected) {
                let base_offset = meta.base_offset;
                return Err(HostedError::OffsetGoesBack { log_end: expected, base_offset });
            }
            expected = meta.next_offset();
        }
        let mut rest = bytes;
        let mut written: &[BatchMeta] = &[];
        let mut from = 0;
        let mut end = log_end;
        for (index, meta) in metas.iter().enumerate() {
            if let Some(base) = writer.roll_before(meta, end) {
                self.publish(writer, written, None);
                from = index;
                self.roll_to(writer, base)?;
            }
            let size = usize::try_from(meta.size_bytes).unwrap_or(usize::MAX);
            let (batch, behind) = rest.split_at_checked(size).ok_or(HostedError::CutOff)?;
            if let Err(error) = writer.write(meta, batch) {
                self.publish(writer, written, None);
                return Err(error);
            }
            written = metas.get(from..=index).unwrap_or_default();
            rest = behind;
            end = meta.next_offset();
        }
        if self.publish(writer, written, None) {
            self.write_epochs()?;
        }
        self.bell.ring();
        let base_offset = metas.first().map_or(log_end, |meta| meta.base_offset);
        Ok(Appended { base_offset, log_end: end })
    }

    /// Shows `batches` to readers. Whether the epochs changed.
    fn publish(
        &self,
        writer: &mut Writer,
        batches: &[BatchMeta],
        rolled: Option<Arc<Segment>>,
    ) -> bool {
        let mut state = self.state_mut();
        let mut epochs_changed = false;
        let mut aborted = Vec::new();
        for batch in batches {
            epochs_changed |= state.epochs.on_batch(batch);
            aborted.extend(state.producers.on_batch(batch).and_then(|txn| txn.aborted()));
            state.log_end = batch.next_offset();
        }
        writer.publish(aborted);
        let high_watermark = state.high_watermark();
        state.producers.on_high_watermark(high_watermark);
        state.segments.extend(rolled);
        epochs_changed
    }

    fn write_epochs(&self) -> Result<(), HostedError> {
        let text = self.state().epochs.encode();
        write_file(&self.dir.join(LEADER_EPOCH_CHECKPOINT), text.as_bytes())
    }

    /// Begins a new segment at the log end, unless the active one is empty.
    ///
    /// # Errors
    ///
    /// The disk.
    pub fn roll(&self) -> Result<(), HostedError> {
        let mut writer = self.writer();
        if writer.position > 0 {
            let log_end = self.state().log_end;
            self.roll_to(&mut writer, log_end)?;
        }
        Ok(())
    }

    /// Begins a segment at `base`, with the snapshot that belongs before it.
    fn roll_to(&self, writer: &mut Writer, base: Offset) -> Result<(), HostedError> {
        let producers = self.state().producers.clone();
        write_snapshot(&self.dir, &producers, base)?;
        let segment = writer.roll(base)?;
        self.publish(writer, &[], Some(segment));
        Ok(())
    }

    /// Makes everything durable, side files included.
    ///
    /// # Errors
    ///
    /// The disk.
    pub fn flush(&self) -> Result<(), HostedError> {
        let mut writer = self.writer();
        writer.close_active()?;
        let (producers, log_end) = {
            let state = self.state();
            (state.producers.clone(), state.log_end)
        };
        write_snapshot(&self.dir, &producers, log_end)?;
        self.write_epochs()
    }

    /// Holds the high watermark at `at` (`None`: it follows the log end again).
    pub fn hold_high_watermark(&self, at: Option<Offset>) {
        let mut state = self.state_mut();
        state.held_at = at;
        let high_watermark = state.high_watermark();
        state.producers.on_high_watermark(high_watermark);
        drop(state);
        self.bell.ring();
    }

    /// Says whether it is a mirror: its batches keep the epochs that they came with, and so
    /// does the list of epochs, whoever is elected.
    pub fn set_mirrored(&self, mirrored: bool) {
        self.state_mut().mirrored = mirrored;
    }

    /// A new leader. A newer epoch begins at the log end, as at an election, unless it is a
    /// mirror.
    ///
    /// # Errors
    ///
    /// The disk, at the epoch checkpoint.
    pub fn elect(&self, leadership: Leadership) -> Result<(), HostedError> {
        let _writer = self.writer();
        let changed = {
            let mut state = self.state_mut();
            state.leadership = leadership;
            let log_end = state.log_end;
            !state.mirrored && state.epochs.assign(leadership.epoch, log_end)
        };
        if changed {
            self.write_epochs()?;
        }
        self.bell.ring();
        Ok(())
    }

    /// Moves the log start up to `to`, which may lie within a batch. Segments wholly
    /// below it are deleted.
    ///
    /// # Errors
    ///
    /// `to` outside of the log; the disk.
    pub fn delete_records(&self, to: Offset) -> Result<(), HostedError> {
        let _writer = self.writer();
        let dropped = {
            let mut state = self.state_mut();
            let (from, end) = (state.log_start, state.high_watermark());
            if to < from || to > end {
                return Err(HostedError::OutOfRange { offset: to, from, to: end });
            }
            state.log_start = to;
            state.epochs.truncate_from_start(to);
            state.producers.on_log_start(to);
            let keep = state.segments.partition_point(|segment| segment.base() <= to);
            state.segments.drain(..keep.saturating_sub(1)).collect::<Vec<_>>()
        };
        self.write_epochs()?;
        for segment in dropped {
            self.remove_segment(segment.base())?;
        }
        self.bell.ring();
        Ok(())
    }

    /// Cuts the log so that it ends at or below `to`, at a whole batch, and returns
    /// the new end. What a new leader without the tail looks like.
    ///
    /// # Errors
    ///
    /// `to` outside of the log; the disk.
    pub fn truncate(&self, to: Offset) -> Result<Offset, HostedError> {
        let mut writer = self.writer();
        let mut state = self.state_mut();
        let (from, end) = (state.log_start, state.log_end);
        if to < from || to > end {
            return Err(HostedError::OutOfRange { offset: to, from, to: end });
        }
        let keep = state.segments.partition_point(|segment| segment.base() <= to).max(1);
        let keep = keep.min(state.segments.len());
        for dropped in state.segments.split_off(keep) {
            self.remove_segment(dropped.base())?;
        }
        let Some(last) = state.segments.last().cloned() else { return Ok(end) };
        let view = Segments::new(vec![Arc::clone(&last)]);
        if let Some(cut) = view.locate_in_first(to)? {
            let path = path_of(&self.dir, last.base(), SegmentFileKind::Log);
            last.file().set_len(cut.position).map_err(HostedError::file("truncate", &path))?;
        }
        // Everything that hangs on the batches is read back from what is left.
        let bases: Vec<_> = state.segments.iter().map(|segment| segment.base()).collect();
        let loaded = load::scan(&self.dir, writer.config, &bases)?;
        *writer = loaded.writer;
        state.segments = loaded.segments;
        state.log_end = loaded.log_end.unwrap_or(last.base()).max(from);
        state.producers = loaded.producers;
        state.producers.on_log_start(from);
        let new_end = state.log_end;
        let high_watermark = state.high_watermark();
        state.producers.on_high_watermark(high_watermark);
        state.epochs.truncate_from_end(new_end);
        drop(state);
        load::remove_snapshots_above(&self.dir, new_end)?;
        self.write_epochs()?;
        self.bell.ring();
        Ok(new_end)
    }

    fn remove_segment(&self, base: Offset) -> Result<(), HostedError> {
        SegmentFileKind::ALL
            .iter()
            .try_for_each(|&kind| remove_file(&path_of(&self.dir, base, kind)))
    }
}

/// The segments that may hold `offset` or later ones.
fn segments_from(state: &State, offset: Offset) -> &[Arc<Segment>] {
    let after = state.segments.partition_point(|segment| segment.base() <= offset);
    state.segments.get(after.saturating_sub(1)..).unwrap_or_default()
}

/// The facts of all batches in `bytes`.
fn walk(bytes: &[u8]) -> Result<Vec<BatchMeta>, HostedError> {
    let mut walker = BatchWalker::new(WalkLimits { batch_bytes_max: u32::MAX, check_crcs: false });
    let mut metas = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (used, meta) = walker.feed(rest)?;
        metas.push(meta.ok_or(HostedError::CutOff)?);
        rest = rest.get(used..).unwrap_or_default();
    }
    Ok(metas)
}

fn stamp(batch: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(field) = batch.get_mut(at..at.saturating_add(bytes.len())) {
        field.copy_from_slice(bytes);
    }
}

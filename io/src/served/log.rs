//! One log of a host, as its readers see it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use heliostat_core::log::partition::PartitionLog;
use heliostat_core::log::read_plan::SegmentExtent;
use heliostat_core::log::shown::{LogReaders, ShownLog};
use heliostat_core::serve::ServedFacts;
use heliostat_core::types::{LeaderEpoch, Offset, TopicId, TopicPartition};

use super::wakes::{Asked, Wakes};

/// Segments that one look takes along: a compacted log may have some without anything in them.
const SEGMENTS_AT_ONCE: usize = 16;

/// Nobody shows the log at the moment: it is being cut, or has not been opened yet. Ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hidden;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct ServedLog {
    id: u64,
    at: TopicPartition,
    topic_id: TopicId,
    leader_epoch: AtomicI32,
    /// Listener threads on which somebody waits.
    asked: Asked,
    wakes: Arc<Wakes>,
    /// `None` while it is hidden.
    shown: Mutex<Option<Box<ShownLog>>>,
    /// Which set of files is meant: another one before files are cut or replaced.
    files: AtomicU64,
    without_aborts: Mutex<WithoutAborts>,
}

/// Sealed segments that are known to have no aborted transactions.
#[derive(Debug, Default)]
struct WithoutAborts {
    /// Which set of files they are of.
    files: u64,
    bases: BTreeSet<Offset>,
}

/// That the files of a log are those that a reader has looked at.
#[derive(Clone, Debug)]
pub(crate) struct StillShown {
    pub(crate) log: Arc<ServedLog>,
    pub(crate) files: u64,
}

impl StillShown {
    /// Whether none of them had been cut or replaced by now.
    pub(crate) fn is_true(&self) -> bool {
        self.log.files() == self.files
    }
}

/// A log at one moment, with the segments that a reader wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogLook {
    /// Where it stands.
    pub(crate) facts: ServedFacts,
    /// From the one that has the wanted offset on, by base offset.
    pub(crate) segments: Vec<SegmentExtent>,
    /// How many of them, from the first on, change no more.
    pub(crate) sealed: usize,
    /// Which set of files they are of.
    pub(crate) files: u64,
}

impl ServedLog {
    pub(super) fn new(
        id: u64,
        at: TopicPartition,
        topic_id: TopicId,
        leader_epoch: LeaderEpoch,
        wakes: Arc<Wakes>,
    ) -> Self {
        Self {
            id,
            at,
            topic_id,
            leader_epoch: AtomicI32::new(leader_epoch.0),
            asked: Asked::default(),
            wakes,
            shown: Mutex::default(),
            files: AtomicU64::new(0),
            without_aborts: Mutex::default(),
        }
    }

    /// Its number; no other log of this process ever has it.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Topic and partition.
    pub(crate) fn at(&self) -> &TopicPartition {
        &self.at
    }

    /// Epoch of its leader, which is this host.
    pub(crate) fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.leader_epoch.load(Ordering::Acquire))
    }

    /// It is led in another epoch from now on; readers with an older one are fenced.
    pub(super) fn set_leader_epoch(&self, epoch: LeaderEpoch) {
        if self.leader_epoch.swap(epoch.0, Ordering::AcqRel) != epoch.0 {
            self.wake();
        }
    }

    /// The next change wakes listener thread `thread`. Call it before the look that may not
    /// find enough: what changes behind that look is not missed.
    pub(crate) fn ask(&self, thread: usize) {
        self.asked.ask(thread);
    }

    /// Which set of files is meant now. If it still is what a look said after files were read,
    /// none of them had been cut or replaced by then.
    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::SeqCst)
    }

    /// Whether a sealed segment of a set of files is known to have no aborted transactions.
    pub(crate) fn is_without_aborts(&self, files: u64, base: Offset) -> bool {
        let known = self.without_aborts();
        known.files == files && known.bases.contains(&base)
    }

    /// A sealed segment of a set of files has none.
    pub(crate) fn has_no_aborts(&self, files: u64, base: Offset, log_start: Offset) {
        let mut known = self.without_aborts();
        if known.files != files {
            *known = WithoutAborts { files, ..WithoutAborts::default() };
        }
        // The one in which the log begins may be below its start.
        while known.bases.iter().nth(1).is_some_and(|second| *second <= log_start) {
            known.bases.pop_first();
        }
        known.bases.insert(base);
    }

    fn without_aborts(&self) -> MutexGuard<'_, WithoutAborts> {
        self.without_aborts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A log that nobody writes to stands like this.
    pub(crate) fn show_at_rest(&self, log: ShownLog) {
        let mut shown = self.lock();
        if shown.as_ref().is_some_and(|before| !is_continued(before, &log)) {
            self.files.fetch_add(1, Ordering::SeqCst);
        }
        *shown = Some(Box::new(log));
        drop(shown);
        self.wake();
    }

    /// As [`LogReaders::show`], for whoever may wait for readers.
    pub(crate) fn show_returned(&self, log: &PartitionLog) {
        self.lock().get_or_insert_default().follow(log);
        self.wake();
    }

    /// Nothing of it is to be read until it is shown again, perhaps from other files. Call it
    /// before they are touched.
    pub(crate) fn hide(&self) {
        let mut shown = self.lock();
        if shown.take().is_some() {
            self.files.fetch_add(1, Ordering::SeqCst);
            drop(shown);
            self.wake();
        }
    }

    /// Where it stands.
    pub(crate) fn facts(&self) -> Result<ServedFacts, Hidden> {
        let shown = self.lock();
        shown.as_deref().map(|log| self.facts_of(log)).ok_or(Hidden)
    }

    /// Where it stands, and what it holds from `from` on; no segments if that is its end, or
    /// beyond.
    pub(crate) fn look(&self, from: Offset) -> Result<LogLook, Hidden> {
        let shown = self.lock();
        let log = shown.as_deref().ok_or(Hidden)?;
        let segments = if from < log.log_end {
            log.segments_from(from, SEGMENTS_AT_ONCE)
        } else {
            Default::default()
        };
        Ok(LogLook {
            facts: self.facts_of(log),
            segments: segments.to_vec(),
            sealed: segments.partition_point(|segment| log.is_sealed(*segment)),
            files: self.files(),
        })
    }

    /// The largest epoch not above `epoch` and its end; `None` if that cannot be told.
    pub(crate) fn epoch_end(
        &self,
        epoch: LeaderEpoch,
    ) -> Result<Option<(LeaderEpoch, Offset)>, Hidden> {
        let shown = self.lock();
        let log = shown.as_deref().ok_or(Hidden)?;
        let latest = log.epochs.latest().map(|entry| entry.epoch);
        let led = self.leader_epoch();
        if epoch.known().is_some() && Some(epoch) > latest && epoch <= led {
            // It is led in `led` from its end on, of which nothing was written yet.
            let found = if epoch == led { epoch } else { latest.unwrap_or(epoch) };
            return Ok(Some((found, log.log_end)));
        }
        let (found, end) = log.epochs.end_offset_for(epoch, log.log_end);
        Ok(found.known().map(|found| (found, end)))
    }

    /// Epoch of the record at `offset`.
    pub(crate) fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        let shown = self.lock();
        let epoch = shown.as_deref().and_then(|log| log.epochs.epoch_for_offset(offset));
        epoch.unwrap_or(LeaderEpoch::NONE)
    }

    fn facts_of(&self, log: &ShownLog) -> ServedFacts {
        ServedFacts {
            topic_id: self.topic_id,
            leader_epoch: self.leader_epoch(),
            is_leader: true,
            log_start: log.log_start,
            // One replica: what is in the log is as far as it will get.
            high_watermark: log.log_end,
            last_stable: log.last_stable,
            log_end: log.log_end,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<ShownLog>>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.wakes.wake(&self.asked, self.id);
    }
}

impl LogReaders for ServedLog {
    fn show(&self, log: &PartitionLog) -> bool {
        let mut shown = match self.shown.try_lock() {
            Ok(shown) => shown,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        shown.get_or_insert_default().follow(log);
        drop(shown);
        self.wake();
        true
    }
}

/// Whether the files of `before` are still those of `after`: some may be gone from the front, and
/// only the last one may have grown.
fn is_continued(before: &ShownLog, after: &ShownLog) -> bool {
    let Some(first) = after.segments.first() else { return before.segments.is_empty() };
    let kept = before.segments.partition_point(|segment| segment.base < first.base);
    let kept = before.segments.get(kept..).unwrap_or_default();
    let last = kept.len().saturating_sub(1);
    kept.iter().enumerate().zip(&after.segments).all(|((index, old), new)| {
        old.base == new.base && (old.len == new.len || (index == last && old.len < new.len))
    }) && kept.len() <= after.segments.len()
        && after.log_end >= before.log_end
}

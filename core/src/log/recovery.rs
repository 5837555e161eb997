//! Opening a log: what a crash left is made whole, what was asked for is cut.
//!
//! ```text
//!             trusted            |     scanned      |  cut
//!   |== segment ==|== segment ==|== segment ==|== se|gm…
//!                     ^ recovery point, inside    ^ first batch that is not whole
//! ```
//!
//! * Below the segment that holds the recovery point, files are trusted; an index
//!   that is missing or cannot be right is made anew from its segment.
//! * From there on each batch is verified, and indexes, epochs and producer state are
//!   made from the batches.
//! * The log ends before the first batch that is not whole, valid and next. Below
//!   the recovery point that is damage and an error, and nothing is cut.
//! * Behind the recovery point a segment counts only if it begins where the one
//!   before it ends: a gap of offsets is legal, but so would a lost write look.
//!
//! After a clean stop all is trusted but the end of the last segment. If that is not as
//! a clean stop leaves it, nothing vouches for what lies behind the recovery point.
//!
//! Everything that was changed is durable on return. A crash on the way leaves a log
//! that opens to the same end. After a truncation the caller writes the recovery
//! point before it appends: an older, higher one would claim what is appended next.

mod layout;
mod rebuild;
mod report;
mod side_files;
mod state;
mod swap;
mod walk;

use std::ops::ControlFlow;
use std::sync::Arc;

use self::layout::Layout;
use self::rebuild::{Rebuilt, ScannedEpochs, rebuild};
pub use self::report::{Cut, CutReason, Damage, LogOpenError, OpenOptions, OpenReport};
use self::walk::{WalkStop, walk};
use super::checkpoint;
use super::epoch_cache::EpochCache;
use super::names::{self, SegmentFileKind as Kind, SegmentFileName};
use super::partition::{RecoveredLog, SealedSegment};
use super::producer_state::ProducerState;
use super::segment::RecoveredSegment;
use super::store::{ColdStore, StoreError};
use crate::records::BatchMeta;
use crate::types::Offset;

/// Largest side file that is read: far more than any index or snapshot has.
const SIDE_FILE_BYTES_MAX: u64 = 1 << 30;

/// Opens the log in partition directory `dir`, which is made if needed.
///
/// Blocks for as long as it takes to read what is not known to be whole. The clean
/// stop's marker has to be gone before, or a crash in here would go unnoticed.
///
/// # Errors
///
/// [`LogOpenError`]. No batch was cut then; leftovers may have been removed and
/// indexes rebuilt. It may be called again.
pub fn open(
    store: &mut dyn ColdStore,
    dir: &str,
    options: &OpenOptions,
) -> Result<(RecoveredLog, OpenReport), LogOpenError> {
    store.create_dir(dir)?;
    let layout = Layout::read(store, &Arc::from(dir))?;
    let mut opening = Opening::new(store, options, layout);
    opening.check_topic()?;
    opening.remove_waste()?;
    opening.finish_swaps()?;
    let log = opening.run()?;
    Ok((log, opening.report))
}

/// Removes every batch of the log, which will begin at `start`: the source no longer
/// has what would follow its end. Durable on return; a crash on the way leaves a
/// shorter log. The caller writes `start` into the log start checkpoint.
///
/// # Errors
///
/// [`LogOpenError::Store`] from the system. It may be called again.
pub fn reset(
    store: &mut dyn ColdStore,
    dir: &str,
    start: Offset,
    options: &OpenOptions,
) -> Result<(RecoveredLog, OpenReport), LogOpenError> {
    store.create_dir(dir)?;
    let layout = Layout::read(store, &Arc::from(dir))?;
    let mut opening = Opening::new(store, options, layout);
    opening.check_topic()?;
    opening.remove_waste()?;
    opening.finish_swaps()?;
    let log = opening.start_empty(start)?;
    Ok((log, opening.report))
}

struct Opening<'a> {
    store: &'a mut dyn ColdStore,
    options: &'a OpenOptions,
    /// Whether the marker of a clean stop is believed.
    clean: bool,
    layout: Layout,
    report: OpenReport,
}

/// The last segment as appends go on in it, and what was learned on the way to it.
struct Tail {
    active: RecoveredSegment,
    log_end: Offset,
    epochs: EpochCache,
    producers: ProducerState,
}

/// What follows a segment that was scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The next one.
    Segment,
    /// The end of the log, and why something behind it goes.
    End(Option<CutReason>),
}

impl<'a> Opening<'a> {
    fn new(store: &'a mut dyn ColdStore, options: &'a OpenOptions, layout: Layout) -> Self {
        Self { store, options, clean: options.clean, layout, report: OpenReport::default() }
    }

    fn check_topic(&mut self) -> Result<(), LogOpenError> {
        let Some(expected) = self.options.topic_id.known() else { return Ok(()) };
        let path = self.layout.named(names::PARTITION_METADATA);
        let Some(bytes) = self.store.read(&path, SIDE_FILE_BYTES_MAX)? else {
            let bytes = checkpoint::encode_partition_metadata(expected);
            return Ok(self.store.replace(&path, bytes.as_bytes())?);
        };
        let found = checkpoint::decode_partition_metadata(&bytes)
            .map_err(|source| LogOpenError::Metadata { path, source })?;
        if found == expected {
            return Ok(());
        }
        Err(LogOpenError::OtherTopic { dir: self.layout.dir.to_string(), found, expected })
    }

    fn remove_waste(&mut self) -> Result<(), StoreError> {
        for name in std::mem::take(&mut self.layout.waste) {
            self.remove(name)?;
        }
        Ok(())
    }

    fn remove(&mut self, name: String) -> Result<(), StoreError> {
        self.store.remove(&self.layout.named(name.as_str()))?;
        self.report.removed.push(name);
        Ok(())
    }

    fn run(&mut self) -> Result<RecoveredLog, LogOpenError> {
        let before_all = |log: &Self, offset: Offset| {
            log.layout.segments.first().is_none_or(|first| offset <= first.base)
        };
        if let Some(to) = self.options.truncate_to.filter(|to| before_all(self, *to)) {
            if !self.layout.segments.is_empty() {
                self.report.cut = Some(self.cut_behind(to, 0, 0, CutReason::Truncation)?);
            }
            return self.start_empty(to);
        }
        let first_base = self.layout.segments.first().map(|first| first.base);
        let start = self.options.log_start.unwrap_or(Offset::ZERO);
        let Some(first_base) = first_base else { return self.start_empty(start) };
        let Tail { active, log_end, mut epochs, mut producers } = self.tail()?;
        if self.options.recovery_point > log_end {
            self.report.recovery_point_above_end = Some(self.options.recovery_point);
        }
        let mut log_start = first_base.max(start);
        if log_end < log_start {
            if self.options.truncate_to.is_none() {
                // As Kafka: what is below the start is gone at the source too.
                self.report.ended_below_start = (self.size_bytes() > 0).then_some(log_end);
                return self.start_empty(log_start);
            }
            log_start = log_end;
        }
        if self.layout.segments.len() > 1 && self.size_bytes() == 0 {
            // The first segment of an empty log was made and not written: the batch that
            // named it comes again, and its name with it.
            return self.start_empty(log_end);
        }
        self.remove_snapshots(log_end)?;
        epochs.truncate_from_end(log_end);
        epochs.truncate_from_start(log_start);
        self.save_epochs(&epochs)?;
        producers.on_log_start(log_start);
        producers.advance_end_offset(log_end);
        producers.on_high_watermark(log_end);
        let segments = &self.layout.segments;
        let sealed: Vec<_> = segments
            .iter()
            .take(segments.len().saturating_sub(1))
            .map(|segment| SealedSegment { base: segment.base, size_bytes: segment.log_bytes })
            .collect();
        // An empty file says where an empty log starts; the first batch names its own.
        let is_husk = sealed.is_empty() && active.size_bytes == 0;
        Ok(RecoveredLog {
            dir: Arc::clone(&self.layout.dir),
            config: self.options.config,
            log_start,
            log_end,
            recovery_point: log_end,
            sealed,
            active: (!is_husk).then_some(active),
            epochs,
            producers,
        })
    }

    fn size_bytes(&self) -> u64 {
        self.layout.segments.iter().map(|segment| segment.log_bytes).sum()
    }

    /// A log without batches, whatever the directory held.
    fn start_empty(&mut self, start: Offset) -> Result<RecoveredLog, LogOpenError> {
        self.remove_segments_from(0)?;
        self.remove_snapshots(Offset::NONE)?;
        self.save_epochs(&EpochCache::default())?;
        // The empty file keeps the start: a first segment that is lost in a crash, or was
        // never made, must not let the one behind it pass for the first.
        self.store.replace(&self.layout.path(start, Kind::Log), &[])?;
        Ok(RecoveredLog {
            dir: Arc::clone(&self.layout.dir),
            config: self.options.config,
            log_start: start,
            log_end: start,
            recovery_point: start,
            sealed: Vec::new(),
            active: None,
            epochs: EpochCache::default(),
            producers: ProducerState::new(start),
        })
    }

    /// Checks what is trusted, scans what is not. There is a segment.
    fn tail(&mut self) -> Result<Tail, LogOpenError> {
        let last = self.layout.segments.len().saturating_sub(1);
        let untrusted = self.first_untrusted();
        let cut_at = self.options.truncate_to.and_then(|to| self.layout.floor(to.plus(-1)));
        let mut first = if self.clean { None } else { Some(untrusted) };
        if let Some(cut_at) = cut_at {
            first = Some(first.map_or(cut_at, |first| first.min(cut_at)));
        }
        for index in 0..first.unwrap_or(last) {
            self.check_trusted(index)?;
        }
        if first.is_none()
            && let Some(active) = self.resume_active(last)?
        {
            let (active, log_end) = active;
            let epochs = self.load_epochs(last + 1)?;
            let producers = self.producers_at(log_end)?;
            return Ok(Tail { active, log_end, epochs, producers });
        }
        // A last segment that is not as a clean stop leaves it refutes the marker.
        self.clean &= first.is_some();
        self.scan(first.unwrap_or(untrusted))
    }

    /// The segment of the last durable record: its own indexes are written later.
    fn first_untrusted(&self) -> usize {
        let mut index = self.layout.floor(self.options.recovery_point.plus(-1)).unwrap_or(0);
        // Whether an empty one begins where the one before it ends, only that one can tell.
        while index > 0 && self.layout.segments.get(index).is_some_and(|it| it.log_bytes == 0) {
            index -= 1;
        }
        index
    }

    /// Verifies everything from segment `first` on and makes its side files anew.
    fn scan(&mut self, first: usize) -> Result<Tail, LogOpenError> {
        let first_base = self.layout.segments.get(first).map_or(Offset::ZERO, |it| it.base);
        let mut epochs = ScannedEpochs::new(
            self.load_epochs(first)?,
            first_base,
            self.options.log_start.unwrap_or(Offset::ZERO),
        );
        let mut producers = self.producers_at(first_base)?;
        let mut index = first;
        loop {
            let Some(segment) = self.layout.segments.get(index).copied() else {
                // Not reached: each turn ends with a segment or a return.
                unreachable!("a log with files has a last segment");
            };
            if index > 0 {
                self.save_snapshot(segment.base, &mut producers)?;
            }
            let path = self.layout.path(segment.base, Kind::Log);
            let limit = self.options.truncate_to;
            let config = &self.options.config;
            let rebuilt = rebuild(
                self.store,
                &path,
                segment.base,
                config,
                limit,
                &mut producers,
                Some(&mut epochs),
            )?;
            self.report.bytes_scanned += rebuilt.walked.bytes;
            let end = rebuilt.next_offset;
            if let Some(damage) = rebuilt.damage() {
                self.check_above_recovery_point(segment.base, &rebuilt, damage)?;
            }
            let next = self.next(index, &rebuilt)?;
            if let Next::End(Some(reason)) = next {
                let cut = self.cut_behind(end, index, rebuilt.walked.end, reason)?;
                self.report.cut = Some(cut);
                self.remove_segments_from(index + 1)?;
            }
            self.set_length(index, rebuilt.walked.end)?;
            self.store.sync(&path)?;
            let active = self.write_side_files(index, rebuilt, next == Next::Segment)?;
            if next != Next::Segment {
                return Ok(Tail { active, log_end: end, epochs: epochs.cache, producers });
            }
            index += 1;
        }
    }

    fn check_above_recovery_point(
        &self,
        base: Offset,
        rebuilt: &Rebuilt,
        damage: Damage,
    ) -> Result<(), LogOpenError> {
        let recovery_point = self.options.recovery_point;
        // Up to the log's start it claims nothing: the first batch may begin before.
        let claims_nothing = self.options.log_start.is_some_and(|start| recovery_point <= start);
        if rebuilt.next_offset >= recovery_point || claims_nothing {
            return Ok(());
        }
        let path = self.layout.path(base, Kind::Log);
        let (position, offset) = (rebuilt.walked.end, rebuilt.next_offset);
        Err(LogOpenError::Damaged { path, position, offset, recovery_point, damage })
    }

    /// Whether the segment behind `index` is part of the log.
    fn next(&mut self, index: usize, rebuilt: &Rebuilt) -> Result<Next, LogOpenError> {
        let (end, stop) = (rebuilt.next_offset, rebuilt.walked.stop);
        let recovery_point = self.options.recovery_point;
        while let Some(next) = self.layout.segments.get(index + 1).copied() {
            let next_base = next.base;
            if stop == WalkStop::Caller
                || self.options.truncate_to.is_some_and(|to| next_base >= to)
            {
                return Ok(Next::End(Some(CutReason::Truncation)));
            }
            if next_base == end || (next_base > end && self.trusts_gap_to(next_base)) {
                return Ok(Next::Segment);
            }
            if next_base > end {
                let gap = CutReason::Gap { next_base };
                return Ok(Next::End(Some(rebuilt.damage().map_or(gap, CutReason::Torn))));
            }
            // The empty file of a log whose first batch reached below its start.
            if next.log_bytes == 0 {
                self.remove_segment(index + 1)?;
                continue;
            }
            let damage = Damage::Overlap { end, next_base };
            if next_base < recovery_point {
                let path = self.layout.path(next_base, Kind::Log);
                let (position, offset) = (0, end);
                return Err(LogOpenError::Damaged {
                    path,
                    position,
                    offset,
                    recovery_point,
                    damage,
                });
            }
            return Ok(Next::End(Some(CutReason::Torn(damage))));
        }
        Ok(Next::End(match stop {
            WalkStop::FileEnd => None,
            WalkStop::Caller => Some(CutReason::Truncation),
            WalkStop::Damage(Damage::Zeros) => Some(CutReason::Preallocated),
            WalkStop::Damage(damage) => Some(CutReason::Torn(damage)),
        }))
    }

    /// Whether nothing can have been lost in front of a segment that begins there.
    fn trusts_gap_to(&self, next_base: Offset) -> bool {
        self.clean || next_base <= self.options.recovery_point
    }

    /// What lies behind position `from` of segment `index`, before it goes.
    fn cut_behind(
        &mut self,
        end: Offset,
        index: usize,
        from: u64,
        reason: CutReason,
    ) -> Result<Cut, StoreError> {
        let mut cut = Cut { from: end, to: None, batches: 0, bytes: 0, reason };
        let mut from = from;
        for segment in self.layout.segments.iter().skip(index) {
            cut.bytes += segment.log_bytes.saturating_sub(from);
            let path = self.layout.path(segment.base, Kind::Log);
            let walked = walk(self.store, &path, from, false, &mut |meta: &BatchMeta, _| {
                cut.batches += 1;
                cut.to = cut.to.max(Some(meta.next_offset()));
                ControlFlow::Continue(())
            })?;
            self.report.bytes_scanned += walked.bytes;
            from = 0;
        }
        Ok(cut)
    }

    /// Removes segments from the last one back, so that a crash leaves no gap.
    fn remove_segments_from(&mut self, index: usize) -> Result<(), LogOpenError> {
        while self.layout.segments.len() > index {
            self.remove_segment(self.layout.segments.len() - 1)?;
        }
        Ok(())
    }

    fn remove_segment(&mut self, index: usize) -> Result<(), LogOpenError> {
        let segment = self.layout.segments.remove(index);
        for (kind, is_there) in [
            (Kind::Log, true),
            (Kind::Index, segment.index_bytes.is_some()),
            (Kind::TimeIndex, segment.time_index_bytes.is_some()),
            (Kind::TxnIndex, segment.txn_index_bytes.is_some()),
        ] {
            if is_there {
                self.remove(SegmentFileName::live(segment.base, kind).to_string())?;
            }
        }
        Ok(())
    }

    fn set_length(&mut self, index: usize, end: u64) -> Result<(), LogOpenError> {
        let Some(segment) = self.layout.segments.get(index).copied() else { return Ok(()) };
        if segment.log_bytes != end {
            self.store.set_len(&self.layout.path(segment.base, Kind::Log), end)?;
        }
        if let Some(segment) = self.layout.segments.get_mut(index) {
            segment.log_bytes = end;
        }
        Ok(())
    }
}

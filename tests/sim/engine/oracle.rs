//! What must hold of a copy after each event, by what the source served.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::names::{SegmentFileKind, SegmentFileName};
use heliostat_core::types::{LeaderEpoch, Offset};

use crate::cluster::{Batch, Origin};
use crate::disk::SimDisk;

pub(crate) type Checked = Result<(), String>;

/// Fails unless `holds`.
pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// A batch of the copy and where its files have it.
#[derive(Debug)]
struct Entry {
    batch: Rc<Batch>,
    segment: i64,
    position: usize,
}

/// One copy as it has to be.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    dir: String,
    entries: Vec<Entry>,
    /// Log end offset that was checked last.
    pub(crate) end: i64,
    epochs: EpochCache,
    /// Index of the first batch whose epoch counts.
    epochs_from: usize,
    /// The copy's log start; what lies below is nobody's concern.
    start: i64,
    /// Largest log start that the copy had.
    floor: i64,
    /// Batches that a broker has sent, by the offset that they follow.
    served: HashMap<i64, Vec<Rc<Batch>>>,
    /// Largest log start that a broker had.
    pub(crate) start_max: i64,
    /// Everything below was claimed to be durable.
    pub(crate) durable: i64,
}

impl Copied {
    pub(crate) fn new(dir: &str) -> Self {
        Self { dir: dir.to_owned(), ..Self::default() }
    }

    pub(crate) fn serve(&mut self, before: i64, batch: &Rc<Batch>) {
        let known = self.served.entry(before).or_default();
        if !known.iter().any(|it| Rc::ptr_eq(it, batch)) {
            known.push(Rc::clone(batch));
        }
    }

    fn file<'a>(&self, disk: &'a SimDisk, segment: i64) -> Option<&'a [u8]> {
        let name = SegmentFileName::live(Offset(segment), SegmentFileKind::Log);
        disk.contents(&format!("{}/{name}", self.dir)).map(Vec::as_slice)
    }

    /// The log end offset is `to`: what came below it was served, in this place.
    pub(crate) fn grow(
        &mut self,
        disk: &SimDisk,
        origins: &BTreeMap<u64, Origin>,
        log_start: i64,
        to: i64,
    ) -> Checked {
        self.start = log_start;
        self.floor = self.floor.max(log_start);
        while self.end < to {
            let end = self.end;
            let empty = Vec::new();
            let candidates = self.served.get(&end).unwrap_or(&empty).clone();
            let mut here = Vec::new();
            let mut found = None;
            for batch in &candidates {
                here.clear();
                if let Some(last) = self.entries.last() {
                    here.push((last.segment, last.position + last.batch.bytes.len()));
                }
                here.extend([(end, 0), (batch.base, 0), (log_start.min(batch.base), 0)]);
                found = here.iter().copied().find(|(segment, position)| {
                    let bytes = self.file(disk, *segment).unwrap_or_default();
                    bytes.get(*position..).is_some_and(|rest| rest.starts_with(&batch.bytes))
                });
                if let Some((segment, position)) = found {
                    self.follows(batch, origins)?;
                    self.epochs.assign(LeaderEpoch(batch.epoch), Offset(batch.base));
                    self.end = batch.last + 1;
                    self.entries.push(Entry { batch: Rc::clone(batch), segment, position });
                    break;
                }
            }
            ensure(found.is_some(), || {
                let served: Vec<_> =
                    candidates.iter().map(|it| (it.base, it.last, it.epoch)).collect();
                format!(
                    "{}: the log ends at {to}, but what follows {end} is nothing that was served \
                     there: {served:?}",
                    self.dir
                )
            })?;
        }
        ensure(self.end == to, || format!("{}: ends at {to} within a batch", self.dir))
    }

    /// Whether `batch` continues the history that the copy has.
    fn follows(&self, batch: &Batch, origins: &BTreeMap<u64, Origin>) -> Checked {
        let before = self.entries.last().map(|entry| &entry.batch);
        let Some(before) = before.filter(|it| it.last >= self.start) else { return Ok(()) };
        let mut at = batch.origin;
        while let Some(origin) = origins.get(&at) {
            if origin.base <= before.base {
                break;
            }
            at = origin.parent;
        }
        ensure(at == before.origin, || {
            format!(
                "{}: batch {}..={} of epoch {} follows {}..={} of epoch {}, of another history",
                self.dir,
                batch.base,
                batch.last,
                batch.epoch,
                before.base,
                before.last,
                before.epoch
            )
        })
    }

    /// The log was cut to end at `to`.
    pub(crate) fn shrink(&mut self, to: i64) {
        while self.entries.last().is_some_and(|last| last.batch.last >= to) {
            self.entries.pop();
        }
        self.end = to;
        self.durable = self.durable.min(to);
        self.epochs.clear();
        for Entry { batch, .. } in self.entries.iter().skip(self.epochs_from) {
            self.epochs.assign(LeaderEpoch(batch.epoch), Offset(batch.base));
        }
    }

    /// A log without records that is opened again may know the epoch of what was before,
    /// or, as in Kafka, none.
    pub(crate) fn opened(&mut self, epochs: &EpochCache, log_start: i64, log_end: i64) -> Checked {
        if log_start != log_end {
            return Ok(());
        }
        let before = self.entries.last().map(|entry| entry.batch.epoch);
        let known = epochs.entries().iter().map(|entry| entry.epoch.0);
        ensure(known.clone().all(|epoch| Some(epoch) == before), || {
            format!("{}: an empty log knows {epochs:?}, before it was {before:?}", self.dir)
        })?;
        self.epochs = epochs.clone();
        self.epochs_from = self.entries.len();
        Ok(())
    }

    /// The log begins anew.
    pub(crate) fn reset(&mut self, start: i64) {
        self.entries.clear();
        self.epochs.clear();
        self.epochs_from = 0;
        self.end = start;
        self.floor = start;
        self.durable = start;
    }

    /// End of the last batch that lies wholly below `offset`.
    pub(crate) fn batch_end(&self, offset: i64) -> i64 {
        let below = self.entries.partition_point(|entry| entry.batch.last < offset);
        self.entries[..below].last().map_or(i64::MIN, |entry| entry.batch.last + 1)
    }

    pub(crate) fn check_epochs(&self, got: &EpochCache, log_start: i64) -> Checked {
        if log_start == self.end {
            return Ok(());
        }
        // The first batch may reach below the log's start, and its epoch with it; after a
        // crash the start may be an older one, and the epochs those of the newer.
        let floor = self.floor.max(log_start);
        // A gap in front of the first batch belongs to no epoch.
        let first = self.entries.iter().find(|entry| entry.batch.last >= floor);
        let floor = Offset(first.map_or(floor, |entry| entry.batch.base.max(floor)));
        let (mut got, mut want) = (got.clone(), self.epochs.clone());
        got.truncate_from_start(floor);
        want.truncate_from_start(floor);
        ensure(got == want, || format!("{}: epochs {got:?}\n  want {want:?}", self.dir))
    }

    /// Every byte of every batch that readers see.
    pub(crate) fn check_all(&self, disk: &SimDisk, log_start: i64) -> Checked {
        for Entry { batch, segment, position } in &self.entries {
            if batch.last < log_start {
                continue;
            }
            let bytes = self.file(disk, *segment).unwrap_or_default();
            let same = bytes.get(*position..).is_some_and(|rest| rest.starts_with(&batch.bytes));
            ensure(same, || {
                format!("{}: batch {} at {position} of {segment} is damaged", self.dir, batch.base)
            })?;
        }
        Ok(())
    }

    /// Whether all of it belongs to the history that ends with `tip`.
    pub(crate) fn check_history(&self, origins: &BTreeMap<u64, Origin>, tip: u64) -> bool {
        let mut at = tip;
        for Entry { batch, .. } in self.entries.iter().rev() {
            if batch.last < self.start {
                break;
            }
            while let Some(origin) = origins.get(&at) {
                if origin.base <= batch.base {
                    break;
                }
                at = origin.parent;
            }
            if at != batch.origin {
                return false;
            }
        }
        true
    }
}

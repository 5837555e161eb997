//! What readers are shown of a copy, and the books that are kept of it: nothing is shown that the
//! files do not hold, nothing goes back, and what was durable is there after a crash.

use std::sync::{Mutex, MutexGuard};

use heliostat_core::log::partition::PartitionLog;
use heliostat_core::log::read_plan::SegmentExtent;
use heliostat_core::log::shown::{LogReaders, ShownLog};
use heliostat_core::records::{BatchWalker, WalkLimits};
use heliostat_core::types::Offset;

use crate::host::Sabotage;
use crate::source::Batch;
use crate::store::SimStore;

#[derive(Debug, Default)]
struct Shows {
    /// `None`: it is hidden.
    log: Option<ShownLog>,
    /// Somebody is looking just now.
    is_busy: bool,
    calls: usize,
    broken: Vec<String>,
}

/// The readers of one copy.
#[derive(Debug)]
pub(crate) struct Reader {
    shows: Mutex<Shows>,
    sabotage: Sabotage,
}

impl Reader {
    pub(crate) fn new(sabotage: Sabotage) -> Self {
        Self { shows: Mutex::default(), sabotage }
    }

    fn lock(&self) -> MutexGuard<'_, Shows> {
        self.shows.lock().expect("not poisoned")
    }

    pub(crate) fn hide(&self) {
        self.lock().log = None;
    }

    pub(crate) fn set_busy(&self, is_busy: bool) {
        self.lock().is_busy = is_busy;
    }

    pub(crate) fn shown(&self) -> Option<ShownLog> {
        self.lock().log.clone()
    }

    pub(crate) fn take_broken(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().broken)
    }
}

impl LogReaders for Reader {
    fn show(&self, log: &PartitionLog) -> bool {
        let mut shows = self.lock();
        if shows.is_busy {
            return false;
        }
        shows.calls += 1;
        let calls = shows.calls;
        let mut now = shows.log.clone().unwrap_or_default();
        now.follow(log);
        match self.sabotage {
            Sabotage::ShowEarly => now.log_end = log.fetch_offset(),
            Sabotage::ShowBack if calls.is_multiple_of(5) => now.log_end = now.log_start,
            _ => {}
        }
        if let Some(before) = &shows.log
            && (now.log_end < before.log_end
                || now.log_start < before.log_start
                || now.last_stable < before.last_stable)
        {
            let text = format!("{} is shown back from {before:?} to {now:?}", log.dir());
            shows.broken.push(text);
        }
        shows.log = Some(now);
        true
    }
}

/// The batches of the files, as far as they are shown.
pub(crate) fn read_shown(
    store: &SimStore,
    dir: &str,
    segments: &[SegmentExtent],
) -> Result<Vec<Batch>, String> {
    let mut all = Vec::new();
    for extent in segments {
        let path = format!("{dir}/{:020}.log", extent.base.0);
        let len = usize::try_from(extent.len).unwrap_or(usize::MAX);
        let bytes = store.disk.contents(&path).map_or(&[][..], Vec::as_slice);
        let Some(mut left) = bytes.get(..len) else {
            return Err(format!("{len} bytes of {path} are shown, it has {}", bytes.len()));
        };
        while !left.is_empty() {
            let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
            let (used, meta) = match BatchWalker::new(limits).feed(left) {
                Ok((used, Some(meta))) => (used, meta),
                Ok((_, None)) => return Err(format!("a part of a batch of {path} is shown")),
                Err(error) => return Err(format!("bytes of {path} are shown that are: {error}")),
            };
            let (bytes, rest) = left.split_at(used);
            left = rest;
            all.push(Batch {
                base: meta.base_offset,
                end: meta.next_offset(),
                epoch: meta.leader_epoch,
                bytes: bytes.into(),
            });
        }
    }
    Ok(all)
}

/// What is known of one copy's log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    /// What readers were shown, or what was found when it was opened.
    pub(crate) batches: Vec<Batch>,
    pub(crate) segments: Vec<SegmentExtent>,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    /// Everything below was said to be durable.
    pub(crate) durable: Offset,
}

impl Book {
    /// What readers are shown now. The files have to hold it, behind what they were shown before.
    pub(crate) fn see(
        &mut self,
        shown: &ShownLog,
        store: &SimStore,
        dir: &str,
    ) -> Result<usize, String> {
        if shown.log_end < self.end {
            return Err(format!("{dir} was shown to {}, now to {}", self.end, shown.log_end));
        }
        if shown.last_stable > shown.log_end || shown.log_start > shown.log_end {
            return Err(format!("{dir} is shown as {shown:?}"));
        }
        if shown.log_end == self.end && shown.segments == self.segments {
            return Ok(self.batches.len());
        }
        let batches = read_shown(store, dir, &shown.segments)?;
        let ends = batches.last().map_or(shown.log_start, |batch| batch.end);
        if ends != shown.log_end {
            let end = shown.log_end;
            return Err(format!("{dir} is shown to {end}, its files hold batches to {ends}"));
        }
        let known = self.batches.len();
        let is_same = batches.len() >= known
            && self.batches.iter().zip(&batches).all(|(old, new)| old.bytes == new.bytes);
        if !is_same {
            return Err(format!("{dir} is shown another history than before"));
        }
        self.batches = batches;
        self.segments.clone_from(&shown.segments);
        (self.start, self.end) = (shown.log_start, shown.log_end);
        Ok(known)
    }

    /// What was found in its place: all below `until` that was durable, and of what readers were
    /// shown nothing else than that.
    pub(crate) fn compare(
        &self,
        found: &[Batch],
        start: Offset,
        until: Offset,
    ) -> Result<(), String> {
        let until = until.min(self.durable);
        for batch in self.batches.iter().filter(|batch| batch.base >= start) {
            let there = found.iter().find(|it| it.base == batch.base);
            match there {
                Some(there) if there.bytes == batch.bytes => {}
                Some(_) => {
                    return Err(format!("at {} is another batch than was shown", batch.base));
                }
                None if batch.end <= until => {
                    let (base, durable) = (batch.base, self.durable);
                    return Err(format!("the batch at {base} was lost, durable was {durable}"));
                }
                None => {}
            }
        }
        Ok(())
    }
}

//! Every batch that anybody has written, and what came before it. A log is known by the offset and
//! epoch of its last batch alone, so nobody writes two of the same; and whoever has a batch has all
//! that was before it.
//!
//! Two clusters that both take writes keep clear of nobody's epochs, so each may write a batch of
//! the same offset and epoch. Their logs meet in an alignment only, which goes by what was mirrored.

use std::collections::BTreeMap;
use std::rc::Rc;

use heliostat_core::types::TopicId;

use crate::source::Batch;

/// Offset, epoch, and the checksum that tells batches of different writers apart.
pub(crate) type Id = (i64, i32, u32);

/// Topic and partition.
type Place = (TopicId, i32);

/// A batch's bytes, and the one before it.
type Written = (Rc<[u8]>, Option<Id>);

#[derive(Debug, Default)]
pub(crate) struct Registry {
    batches: BTreeMap<(Place, Id), Written>,
    /// By cluster, place, offset and epoch.
    own: BTreeMap<(&'static str, Place, i64, i32), Id>,
    pub(crate) broken: Vec<String>,
    pub(crate) trace: Vec<String>,
    /// So that no two batches are the same by chance.
    pub(crate) marks: u64,
}

pub(crate) fn id(batch: &Batch) -> Id {
    let crc = batch.bytes.get(17..21).and_then(|bytes| bytes.try_into().ok());
    (batch.base.0, batch.epoch.0, crc.map_or(0, u32::from_be_bytes))
}

impl Registry {
    /// For whoever looks for the cause of a failure.
    pub(crate) fn say(&mut self, what: String) {
        self.trace.push(what);
        if self.trace.len() > 80 {
            self.trace.remove(0);
        }
    }

    pub(crate) fn mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }

    /// Whether somebody wrote this batch.
    pub(crate) fn knows(&self, at: Place, batch: &Batch) -> bool {
        let known = self.batches.get(&(at, id(batch)));
        known.is_some_and(|(bytes, _)| *bytes == batch.bytes)
    }

    /// A cluster has written a batch, behind `before`.
    pub(crate) fn wrote(&mut self, by: &'static str, at: Place, batch: &Batch, before: Option<Id>) {
        let (base, epoch) = (batch.base.0, batch.epoch.0);
        if self.own.insert((by, at, base, epoch), id(batch)).is_some_and(|it| it != id(batch)) {
            self.broken.push(format!("two batches {:?} of {by} in {at:?}", (base, epoch)));
        }
        self.note(at, batch, before);
    }

    /// A batch is in a log, behind `before`; `None` if the log begins with it.
    pub(crate) fn note(&mut self, at: Place, batch: &Batch, before: Option<Id>) {
        let id = id(batch);
        let (bytes, known) =
            self.batches.entry((at, id)).or_insert_with(|| (Rc::clone(&batch.bytes), before));
        if *bytes != batch.bytes {
            self.broken.push(format!("two batches {id:?} of {at:?}"));
        }
        match (&known, before) {
            (Some(known), Some(before)) if *known != before => {
                let text = format!("{id:?} of {at:?} behind {known:?}, {before:?}");
                self.broken.push(format!("two histories in one log: {text}"));
            }
            (None, Some(_)) => *known = before,
            _ => {}
        }
    }
}

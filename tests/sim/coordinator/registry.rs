//! Every batch that anybody has written, and what came before it. A partition's log is known by
//! the offset and epoch of its last batch alone, so each pair must mean one history everywhere.

use std::collections::BTreeMap;
use std::rc::Rc;

use heliostat_core::types::TopicId;

use crate::source::Batch;

/// Offset and epoch.
pub(crate) type Id = (i64, i32);

/// A batch's bytes, and the one before it.
type Written = (Rc<[u8]>, Option<Id>);

#[derive(Debug, Default)]
pub(crate) struct Registry {
    batches: BTreeMap<(TopicId, i32, Id), Written>,
    pub(crate) broken: Vec<String>,
    pub(crate) trace: Vec<String>,
    /// So that no two batches are the same by chance.
    pub(crate) marks: u64,
}

pub(crate) fn id(batch: &Batch) -> Id {
    (batch.base.0, batch.epoch.0)
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
    pub(crate) fn knows(&self, at: (TopicId, i32), batch: &Batch) -> bool {
        let known = self.batches.get(&(at.0, at.1, id(batch)));
        known.is_some_and(|(bytes, _)| *bytes == batch.bytes)
    }

    /// A batch is in a log, behind `before`; `None` if the log begins with it.
    pub(crate) fn note(&mut self, at: (TopicId, i32), batch: &Batch, before: Option<Id>) {
        let key = (at.0, at.1, id(batch));
        match self.batches.get_mut(&key) {
            None => {
                self.batches.insert(key, (Rc::clone(&batch.bytes), before));
            }
            Some((bytes, known)) => {
                if *bytes != batch.bytes {
                    self.broken.push(format!("two batches {:?} of {at:?}", id(batch)));
                }
                match (&known, before) {
                    (Some(known), Some(before)) if *known != before => {
                        let text = format!("{:?} of {at:?} behind {known:?}, {before:?}", key.2);
                        self.broken.push(format!("two histories in one log: {text}"));
                    }
                    (None, Some(_)) => *known = before,
                    _ => {}
                }
            }
        }
    }
}

//! Open transactions of a partition: what the last stable offset hangs on.

use std::collections::BTreeMap;

use heliostat_core::records::{BatchMeta, ControlType};
use heliostat_core::serve::AbortedTxn;
use heliostat_core::types::{Offset, ProducerId};

/// First offset of each producer's open transaction.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenTxns {
    by_producer: BTreeMap<i64, Offset>,
}

impl OpenTxns {
    /// Takes note of a batch in log order; the transaction that it aborts, if any.
    pub(super) fn on_batch(&mut self, batch: &BatchMeta) -> Option<AbortedTxn> {
        let producer = batch.producer_id.0;
        match batch.control {
            Some(ControlType::Abort) => {
                let first_offset = self.by_producer.remove(&producer)?;
                Some(AbortedTxn {
                    producer_id: ProducerId(producer),
                    first_offset,
                    last_offset: batch.last_offset,
                    last_stable: self.first_unstable().unwrap_or(batch.next_offset()),
                })
            }
            Some(ControlType::Commit) => {
                self.by_producer.remove(&producer);
                None
            }
            Some(ControlType::MirrorPidReset) => {
                self.by_producer.clear();
                None
            }
            Some(ControlType::Other(_)) | None => {
                if batch.is_transactional() && !batch.is_control() && producer >= 0 {
                    self.by_producer.entry(producer).or_insert(batch.base_offset);
                }
                None
            }
        }
    }

    /// First offset of the oldest open transaction.
    pub(super) fn first_unstable(&self) -> Option<Offset> {
        self.by_producer.values().min().copied()
    }
}

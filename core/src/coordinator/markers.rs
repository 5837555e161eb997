//! What a stop writes into a partition before clients may: an ABORT for each transaction that is
//! open in it, then one reset of its producers (KIP-1279, STOPPING).
//!
//! ```text
//!   … mirrored batches, epochs <= last mirrored | ABORT … ABORT  RESET | clients' batches
//!                                                 epochs above the last mirrored one
//! ```
//!
//! A crash may come between any two of them, so the plan is made from what the log holds: an
//! ABORT that is there has closed its transaction, and a reset that is there was written behind
//! all of them. What is missing is appended, and nothing twice.

use crate::log::epoch_cache::EpochCache;
use crate::log::producer_state::ProducerState;
use crate::records::{BatchMeta, BuildError, ControlType, EndTxnMarker, MirrorPidReset};
use crate::types::{LeaderEpoch, Offset, TimestampMs};

/// Why no markers can be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarkerError {
    /// A marker of a mirrored batch's epoch could not be told from the source's.
    #[error(
        "leader epoch {leader_epoch} of the markers is not above {last_mirrored}, that of the last \
         mirrored batch: raise it first"
    )]
    EpochNotRaised {
        /// Of the markers.
        leader_epoch: LeaderEpoch,
        /// Of the last batch that came from the source.
        last_mirrored: LeaderEpoch,
    },
    /// No batch can be made.
    #[error("a marker cannot be written")]
    Build(#[from] BuildError),
}

/// The markers of one partition's stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopMarkers<'a> {
    /// Epoch of the last batch that came from the source; [`LeaderEpoch::NONE`] if there is no
    /// batch with an epoch. What is above was written here.
    pub last_mirrored: LeaderEpoch,
    /// The partition's raised leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// Cluster whose producers are forgotten.
    pub source_cluster_id: &'a str,
    /// When they are written.
    pub timestamp: TimestampMs,
}

impl StopMarkers<'_> {
    /// Where to begin to show a log's batches to [`Self::is_reset`]: what was written here begins
    /// there. `log_end` if nothing was.
    #[must_use]
    pub fn written_from(&self, epochs: &EpochCache, log_end: Offset) -> Offset {
        let entries = epochs.entries();
        let first = entries.partition_point(|entry| entry.epoch <= self.last_mirrored);
        entries.get(first).map_or(log_end, |entry| entry.start_offset)
    }

    /// Whether `batch` is the reset of this stop, and not one that came from the source, where a
    /// mirror was stopped before.
    #[must_use]
    pub fn is_reset(&self, batch: &BatchMeta) -> bool {
        batch.control == Some(ControlType::MirrorPidReset)
            && batch.leader_epoch > self.last_mirrored
    }

    /// The batches to append at `log_end`, in order: an ABORT for each open transaction, by
    /// producer ID, then the reset. None if the log `has_reset` of this stop, for what follows
    /// that is the clients' own.
    ///
    /// # Errors
    /// [`MarkerError`]; nothing is to be appended then.
    pub fn missing(
        &self,
        log_end: Offset,
        producers: &ProducerState,
        has_reset: bool,
    ) -> Result<Vec<Vec<u8>>, MarkerError> {
        if has_reset {
            return Ok(Vec::new());
        }
        let (leader_epoch, last_mirrored) = (self.leader_epoch, self.last_mirrored);
        if leader_epoch.known().is_none() || leader_epoch <= last_mirrored {
            return Err(MarkerError::EpochNotRaised { leader_epoch, last_mirrored });
        }
        let mut offset = log_end;
        let mut batches = Vec::new();
        let open = producers.producers().filter(|(_, entry)| entry.txn_first_offset().is_some());
        for (producer_id, entry) in open {
            let marker = EndTxnMarker {
                offset,
                leader_epoch,
                producer_id,
                producer_epoch: entry.epoch(),
                // 0 where none is known: a negative one is no marker's.
                coordinator_epoch: entry.coordinator_epoch().max(0),
                committed: false,
                timestamp: self.timestamp,
            };
            batches.push(marker.build()?);
            offset = offset.plus(1);
        }
        let reset = MirrorPidReset {
            offset,
            leader_epoch,
            source_cluster_id: self.source_cluster_id,
            timestamp: self.timestamp,
        };
        batches.push(reset.build()?);
        Ok(batches)
    }
}

#[cfg(test)]
mod tests;

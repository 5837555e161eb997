//! Why appends stopped: what was refused of a run, and what failed on disk.

use super::disk::DiskError;
use crate::records::RecordError;
use crate::types::{LeaderEpoch, Offset};

/// Why the rest of a run was refused. What was accepted before it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Not a valid batch.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A batch of an epoch that the source's metadata does not know yet: append after
    /// the metadata was refreshed.
    #[error("batch at offset {base_offset} has leader epoch {epoch}, known is {known}")]
    EpochAhead {
        /// First offset of the batch.
        base_offset: Offset,
        /// Its epoch.
        epoch: LeaderEpoch,
        /// The newest epoch known.
        known: LeaderEpoch,
    },
    /// A batch of an older epoch than the last one: another history.
    #[error("batch at offset {base_offset} has leader epoch {epoch} after epoch {latest}")]
    EpochGoesBack {
        /// First offset of the batch.
        base_offset: Offset,
        /// Its epoch.
        epoch: LeaderEpoch,
        /// Epoch of the batch before it.
        latest: LeaderEpoch,
    },
    /// A batch that starts below the end of the log and ends behind it.
    #[error("batch {base_offset}..={last_offset} overlaps the log, which ends at {log_end}")]
    Overlap {
        /// First offset of the batch.
        base_offset: Offset,
        /// Its last offset.
        last_offset: Offset,
        /// Where the next batch has to start.
        log_end: Offset,
    },
}

/// Why a log takes no more appends until it has been opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{action} failed")]
pub struct LogFailure {
    /// What was tried.
    pub action: &'static str,
    /// How the disk answered.
    #[source]
    pub error: DiskError,
}

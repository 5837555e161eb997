//! Why `__mirror_state` was not read or not written.

use std::sync::Arc;

use crate::coordinator::record::RecordError;
use crate::log::cold_log::{ColdAppendError, ColdReadError, ColdRewriteError};
use crate::log::recovery::LogOpenError;
use crate::log::store::StoreError;
use crate::records::{BuildError, DecodeError};
use crate::types::Offset;

/// Why the log, or a partition of it, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateLogError {
    /// The log dir cannot be listed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// More partitions than a topic of this kind can have.
    #[error("__mirror_state-{partition}: want a partition below 65535; move the directory away")]
    PartitionIndex {
        /// From the directory's name.
        partition: i32,
    },
    /// A partition was not opened.
    #[error("{dir} cannot be opened")]
    Open {
        /// The partition's directory.
        dir: Arc<str>,
        /// Why.
        #[source]
        source: LogOpenError,
    },
    /// A partition cannot be read.
    #[error(transparent)]
    Read(#[from] ColdReadError),
    /// A batch whose records cannot be taken apart.
    #[error("{dir}: a batch cannot be decoded")]
    Batch {
        /// The partition's directory.
        dir: Arc<str>,
        /// Which one, and why.
        #[source]
        source: DecodeError,
    },
    /// A record that cannot be understood though its type and version are known.
    #[error(
        "{dir}, offset {offset}: the record cannot be decoded; see it with dump-log \
         --mirror-state-decoder"
    )]
    Record {
        /// The partition's directory.
        dir: Arc<str>,
        /// Of the record.
        offset: Offset,
        /// What is wrong with it.
        #[source]
        source: RecordError,
    },
    /// In a compacted topic every record has one.
    #[error("{dir}, offset {offset}: the record has no key")]
    NoKey {
        /// The partition's directory.
        dir: Arc<str>,
        /// Of the record.
        offset: Offset,
    },
    /// A partition was not compacted.
    #[error(transparent)]
    Rewrite(#[from] ColdRewriteError),
}

/// Why a partition took not all of its records.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateWriteError {
    /// It could not be opened for them.
    #[error(transparent)]
    Open(#[from] StateLogError),
    /// The log refused, or the system.
    #[error(transparent)]
    Append(#[from] ColdAppendError),
    /// No batch can be made of them.
    #[error("__mirror_state: no batch can be made")]
    Build(#[from] BuildError),
}

/// Why not all records are durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateAppendError {
    /// A record that no log can hold. Nothing was written.
    #[error("record {index} cannot be stored")]
    Refused {
        /// Its place among the records.
        index: usize,
        /// Why.
        #[source]
        source: RecordError,
    },
    /// Some are not known to be durable: each of them may be found later, or not. All others are.
    #[error("{} records are not known to be durable", not_durable.len())]
    NotDurable {
        /// Their places among the records, in order.
        not_durable: Vec<usize>,
        /// What happened first.
        #[source]
        source: Box<StateWriteError>,
    },
}

//! What goes wrong with served logs.

use std::io;
use std::path::{Path, PathBuf};

use heliostat_core::log::FormatError;
use heliostat_core::log::config::LogConfigError;
use heliostat_core::log::read_plan::ReadPlanError;
use heliostat_core::records::RecordError;
use heliostat_core::types::Offset;

/// Why a served log cannot be opened, read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostedError {
    /// The system refused a file.
    #[error("{action} of {} failed; check log.dirs, ownership and free space", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of the log dir does not hold what it must.
    #[error("{} cannot be used", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: FormatError,
    },
    /// Bytes to append are no batches.
    #[error("these bytes are no record batches")]
    Batches(#[from] RecordError),
    /// Bytes to append end within a batch.
    #[error("the last batch to append is cut off")]
    CutOff,
    /// A batch would go below the log end.
    #[error("offset goes back: log ends at {log_end}, batch starts at {base_offset}")]
    OffsetGoesBack {
        /// Where the next record must go.
        log_end: Offset,
        /// Where the batch wants to go.
        base_offset: Offset,
    },
    /// An offset outside of the log.
    #[error("offset {offset} is not between {from} and {to}")]
    OutOfRange {
        /// Asked for.
        offset: Offset,
        /// Smallest, inclusive.
        from: Offset,
        /// Largest, inclusive.
        to: Offset,
    },
    /// A segment cannot be read.
    #[error("the log cannot be read")]
    Read(#[from] ReadPlanError<io::Error>),
    /// A setting is out of range.
    #[error("wrong setting")]
    Config(#[from] LogConfigError),
    /// There is a topic of this name already.
    #[error("topic {0} exists already")]
    TopicExists(String),
    /// A name that Kafka refuses.
    #[error("{0:?} is no topic name: use letters, digits, '.', '_' and '-', at most 249")]
    TopicName(String),
}

impl HostedError {
    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { action, path, source }
    }

    pub(super) fn format(path: &Path) -> impl FnOnce(FormatError) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Format { path, source }
    }
}

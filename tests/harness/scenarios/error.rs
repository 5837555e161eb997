//! Why a scenario did not end as it must.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heliostat_io::control::JobError;

use crate::kafka::KafkaError;

/// Shorthand of this module.
pub type Result<T, E = ScenarioError> = std::result::Result<T, E>;

/// Why a scenario did not end as it must.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// Kafka, or the harness around it.
    #[error("Kafka: {0}")]
    Kafka(#[from] KafkaError),
    /// The copy did not start, or ended early.
    #[error("copy: {0}")]
    Job(#[from] JobError),
    /// The copy did not reach a state in time, or ended before.
    #[error("not within {waited:?}: {what}\n{seen}")]
    NotReached {
        /// The state.
        what: String,
        /// How long was waited.
        waited: Duration,
        /// What was there instead.
        seen: String,
    },
    /// Something is not as it must be.
    #[error("{0}")]
    Wrong(String),
    /// A file refused.
    #[error("{path:?}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

impl ScenarioError {
    /// An error of a file, for `map_err`.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { path, source }
    }
}

/// Fails with `what` unless `holds`.
pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(ScenarioError::Wrong(what())) }
}

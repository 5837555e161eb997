//! What ends a measurement.

use std::path::PathBuf;

use heliostat_io::path_emulator::PathError;
use heliostat_tests::kafka::{KafkaError, Skipped};
use heliostat_tests::scenarios::ScenarioError;
use thiserror::Error;

/// A measurement that did not come about.
#[derive(Debug, Error)]
pub(crate) enum BenchError {
    /// A file or directory.
    #[error("{path}: {source}")]
    File {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// One side did not end as it should.
    #[error("{role}: {why}")]
    Role {
        /// Which.
        role: String,
        /// How it ended.
        why: String,
    },
    /// A copy that is not complete is not measured.
    #[error("not everything was copied: {0}")]
    Incomplete(String),
    /// An emulated path.
    #[error("no path can be emulated here: {0}")]
    Path(#[from] PathError),
    /// No Kafka on this machine.
    #[error("a real Kafka is needed: {0}")]
    NoKafka(#[from] Skipped),
    /// The source, the other side's destination, or the harness around them.
    #[error("Kafka: {0}")]
    Kafka(#[from] KafkaError),
    /// The job under test.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

impl BenchError {
    /// For `map_err`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// For `map_err`.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { path, source }
    }
}

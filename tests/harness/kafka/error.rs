//! What can go wrong between a test and a real Kafka.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Shorthand of this module.
pub type Result<T, E = KafkaError> = std::result::Result<T, E>;

/// Why the harness could not do what the test asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KafkaError {
    /// A file or directory of the harness refused.
    #[error("{what} {path:?}")]
    File {
        /// What was tried, as a verb: "write", "read", "create".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A process could not be started or signalled.
    #[error("process {name}")]
    Process {
        /// Name in the harness, such as `broker-1`.
        name: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A process ended although it was needed.
    #[error("{name} ended with {status}; the end of its log:\n{log_tail}")]
    Exited {
        /// Name in the harness, such as `broker-1`.
        name: String,
        /// Exit status as the system words it.
        status: String,
        /// Last lines of its log.
        log_tail: String,
    },
    /// A condition did not become true in time.
    #[error("waited {waited:?} for {what}")]
    Timeout {
        /// The condition.
        what: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The test asked for something that the node's state does not allow.
    #[error("node {node} is {state}, {action} needs it otherwise")]
    NodeState {
        /// Node ID.
        node: i32,
        /// Its state.
        state: &'static str,
        /// What was asked.
        action: &'static str,
    },
    /// The cluster has no such node.
    #[error("no node {0} in this cluster")]
    NoNode(i32),
    /// A combination of options that this version of Kafka cannot run.
    #[error("Kafka {version} cannot run {what}")]
    Unsupported {
        /// Version as in the artifact.
        version: &'static str,
        /// What was asked.
        what: &'static str,
    },
    /// Kafka's client or broker refused an operation.
    #[error("{op}: {class}: {message}")]
    Refused {
        /// Operation of the driver.
        op: String,
        /// Java's exception class without its package.
        class: String,
        /// Java's message.
        message: String,
    },
    /// Some records of a produce were not acknowledged.
    #[error("{failed} records were not acknowledged; the first: {first}")]
    NotAcknowledged {
        /// How many.
        failed: u64,
        /// Java's words for the first.
        first: String,
    },
    /// The driver sent a line that is no reply.
    #[error("driver reply: {0}")]
    DriverReply(String),
    /// A connection to a broker failed.
    #[error("broker at {address}: {what}")]
    Wire {
        /// Host and port.
        address: String,
        /// Step that failed.
        what: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A message could not be encoded or decoded.
    #[error("{api}: {message}")]
    Codec {
        /// API name.
        api: &'static str,
        /// The codec's words.
        message: String,
    },
    /// A broker answered with an error code.
    #[error("{api} answered error {code}")]
    ErrorCode {
        /// API name.
        api: &'static str,
        /// Kafka's error code.
        code: i16,
    },
    /// A file of a broker does not look as Kafka writes it.
    #[error("{path:?} is not as Kafka writes it: {what}")]
    BrokerFile {
        /// The file.
        path: PathBuf,
        /// What is odd.
        what: &'static str,
    },
    /// No free loopback port was found.
    #[error("no free loopback port in {from}..{to}")]
    NoPort {
        /// First port that was tried, inclusive.
        from: u16,
        /// End of the range, exclusive.
        to: u16,
    },
}

impl KafkaError {
    /// A file error of `path`, for `map_err`.
    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}

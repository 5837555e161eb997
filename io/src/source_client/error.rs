//! What went wrong between us and a broker: who, what, and what the operator can do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use heliostat_core::protocol::{Api, DecodeError, EncodeError, ErrorCode, VersionError};

use super::host_port::HostPort;

/// A failed request to one broker, or to all of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// One broker failed.
    #[error("{peer}: {cause}")]
    Broker {
        /// The broker.
        peer: HostPort,
        /// What went wrong.
        cause: Cause,
    },
    /// Every broker that is known failed, the bootstrap servers included.
    #[error("no broker of the source answers: {}", Joined(attempts))]
    NoBroker {
        /// The failure of each.
        attempts: Vec<SourceError>,
    },
    /// Metadata names no leader, so that there is nobody to ask.
    #[error("the partition has no leader at the moment")]
    NoLeader,
}

struct Joined<'a>(&'a [SourceError]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let between = if index > 0 { "; " } else { "" };
            write!(f, "{between}{error}")?;
        }
        Ok(())
    }
}

/// What went wrong with a broker. Each sentence holds its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The name has no address.
    #[error("unknown host ({reason}); check the name, and the DNS of this host")]
    Resolve {
        /// What the resolver says.
        reason: Arc<str>,
    },
    /// Nobody listens.
    #[error("connection refused: nothing listens there; check the port, and that the broker runs")]
    Refused,
    /// The system could not connect.
    #[error("cannot connect: {reason}; check routes and firewalls between here and the broker")]
    Connect {
        /// What the system says.
        reason: Arc<str>,
    },
    /// No connection in time.
    #[error(
        "no connection within {} ms; check routes and firewalls, or raise \
         socket.connection.setup.timeout.ms", after.as_millis()
    )]
    ConnectTimeout {
        /// How long was waited.
        after: Duration,
    },
    /// The peer closed the connection before it had answered anything.
    #[error(
        "closed the connection without an answer; if the port is an SSL or SASL listener, name a \
         PLAINTEXT one"
    )]
    ClosedAtOnce,
    /// The peer closed the connection.
    #[error(
        "closed the connection during {api}, {received} bytes into the response; if the listener \
         wants SASL, name a PLAINTEXT one, else see the broker's log"
    )]
    Closed {
        /// What was asked.
        api: Api,
        /// Bytes of the response that had come.
        received: u64,
    },
    /// The connection broke.
    #[error("connection lost during {api}: {reason}")]
    Lost {
        /// What was asked.
        api: Api,
        /// What the system says.
        reason: Arc<str>,
    },
    /// No answer in time.
    #[error(
        "no answer to {api} within {} ms; the broker hangs or is overloaded, or raise \
         request.timeout.ms", after.as_millis()
    )]
    Silent {
        /// What was asked.
        api: Api,
        /// How long was waited.
        after: Duration,
    },
    /// An answer that stopped in its middle.
    #[error(
        "stopped in the middle of the response to {api} ({received} of {announced} bytes within \
         {} ms); the broker hangs or the network drops packets", after.as_millis()
    )]
    Stalled {
        /// What was asked.
        api: Api,
        /// Bytes that came, the size included.
        received: u64,
        /// Bytes that should have come; 4 until the size is there.
        announced: u64,
        /// How long was waited.
        after: Duration,
    },
    /// The port speaks HTTP.
    #[error("speaks HTTP, not Kafka; name the port of a Kafka listener (usually 9092)")]
    Http,
    /// The port speaks TLS.
    #[error("speaks TLS; name a PLAINTEXT listener of the broker")]
    Tls,
    /// An answer that breaks the protocol.
    #[error("broke the Kafka protocol in its answer to {api}: {error}; is this a Kafka broker?")]
    Decode {
        /// What was asked.
        api: Api,
        /// The field and what is wrong with it.
        error: DecodeError,
    },
    /// An answer to another request.
    #[error("answered request {got} where {want} was asked; the connection is out of step")]
    Correlation {
        /// What came.
        got: i32,
        /// What was asked.
        want: i32,
    },
    /// The broker is too old, or too new.
    #[error("{error}; sources of Kafka 2.1 and newer are supported")]
    Version {
        /// What does not fit.
        error: VersionError,
    },
    /// A request that cannot be written.
    #[error("{error}")]
    Encode {
        /// Why not.
        error: EncodeError,
    },
    /// The broker answers with an error.
    #[error("answers {api} with {error}{}", Remedy(*error))]
    Answer {
        /// What was asked.
        api: Api,
        /// Its error.
        error: ErrorCode,
    },
}

struct Remedy(ErrorCode);

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            ErrorCode::CLUSTER_AUTHORIZATION_FAILED | ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                "; grant this client's principal Describe and Read"
            }
            _ => "",
        })
    }
}

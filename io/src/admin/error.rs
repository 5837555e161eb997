//! What went wrong between an admin client and its servers.

use std::fmt;
use std::time::Duration;

use heliostat_core::protocol::{Api, ErrorCode};

use crate::source_client::{HostPort, SourceError};

/// A server's no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Code and name of the error.
    pub code: ErrorCode,
    /// What the server says about it.
    pub message: Option<String>,
}

impl Refusal {
    /// `None` if there is no error.
    pub(super) fn new(code: i16, message: Option<&str>) -> Option<Self> {
        let code = ErrorCode(code);
        (!code.is_none()).then(|| Self { code, message: message.map(str::to_owned) })
    }

    /// Whether it passes by itself, so that the same question has an answer a moment later.
    pub(super) fn is_passing(&self) -> bool {
        // The coordinator loads, is not there, is elsewhere; the controller is elsewhere.
        matches!(self.code.0, 14..=16 | 41)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "{}: {message}", self.code),
            None => write!(f, "{}", self.code),
        }
    }
}

/// A question without its answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// No server could be asked. Nothing was changed.
    #[error("no server answers {api}: {}", Joined(attempts))]
    Unanswered {
        /// What was asked.
        api: Api,
        /// The failure of each.
        attempts: Vec<SourceError>,
    },
    /// The server does not have the API. Nothing was changed.
    #[error("{peer} does not offer {api}; name a Heliostat host, or a Kafka that has KIP-1279")]
    Unsupported {
        /// What was asked.
        api: Api,
        /// The server.
        peer: HostPort,
    },
    /// A change was sent, and no answer came.
    #[error("{error}; whether {api} took effect is unknown: look before it is asked again")]
    Uncertain {
        /// What was asked.
        api: Api,
        /// Why there is no answer.
        #[source]
        error: SourceError,
    },
    /// It took longer than `default.api.timeout.ms`, with all attempts.
    #[error(
        "no answer to {api} within {} ms{}", after.as_millis(),
        last.as_ref().map(|last| format!(": {last}")).unwrap_or_default()
    )]
    Timeout {
        /// What was asked.
        api: Api,
        /// The limit.
        after: Duration,
        /// What the server said to the last attempt.
        last: Option<Refusal>,
    },
    /// The server refuses. Nothing was changed.
    #[error("{refusal}")]
    Refused {
        /// What was asked.
        api: Api,
        /// Its reason.
        refusal: Refusal,
    },
    /// The answer does not hold what was asked for.
    #[error("the answer to {api} says nothing of {missing}; is this a Kafka server?")]
    Incomplete {
        /// What was asked.
        api: Api,
        /// What it was asked for.
        missing: String,
    },
}

impl AdminError {
    /// The server's code, if it refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal.code),
            _ => None,
        }
    }
}

struct Joined<'a>(&'a [SourceError]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none is named");
        }
        for (index, error) in self.0.iter().enumerate() {
            let between = if index > 0 { "; " } else { "" };
            write!(f, "{between}{error}")?;
        }
        Ok(())
    }
}

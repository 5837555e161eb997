//! Why a host does not start, or ended.

use std::error::Error;
use std::sync::Arc;

use heliostat_core::coordinator::state_log::StateLogError;
use heliostat_core::metadata::controller::Refusal;
use heliostat_core::metadata::log::MetadataLogError;

use crate::control::LogDirError;
use crate::control::metrics_http::MetricsError;
use crate::listener::ListenerError;

/// Why a host does not start, or ended early. Its next start goes on where it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The log dir cannot be used.
    #[error(transparent)]
    LogDir(#[from] LogDirError),
    /// The metadata log cannot be used.
    #[error(transparent)]
    Metadata(#[from] MetadataLogError),
    /// The state log cannot be used.
    #[error(transparent)]
    States(#[from] StateLogError),
    /// The metadata does not fit the properties.
    #[error("metadata: {0}")]
    Refused(#[from] Refusal),
    /// The listener does not start.
    #[error(transparent)]
    Listener(#[from] ListenerError),
    /// A name in the properties has no address.
    #[error("{key}: {address} has no address ({reason}); name an address of this machine")]
    Address {
        /// The key of the properties.
        key: &'static str,
        /// What stands there.
        address: String,
        /// What the system says.
        reason: String,
    },
    /// The HTTP endpoint does not start.
    #[error("metrics.listener: {0}")]
    Http(#[source] MetricsError),
}

/// An error with its causes, each said once.
pub(super) fn with_causes(error: &dyn Error) -> Arc<str> {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    Arc::from(text)
}

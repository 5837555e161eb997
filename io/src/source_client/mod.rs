//! Client of the source's control path: brokers, topics, leaders, first and last offsets,
//! ends of epochs, configs. Record batches are fetched by the shards.
//!
//! Runs on the control thread's runtime. A broker has one connection, and one request at
//! a time is under way on it; different brokers are asked side by side.

mod client;
pub(crate) mod connection;
mod error;
mod fetch;
mod host_port;
mod transport;

pub use client::{Answers, ClientConfig, SourceClient, Unanswered};
pub use error::{Cause, SourceError};
pub use fetch::{FetchClient, Fetched};
pub use host_port::{HostPort, HostPortError};
pub use transport::{SocketOptions, Transport};

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

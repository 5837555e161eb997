//! Sockets of a shard. What is sent and received passes through a byte stream here, so
//! that TLS and SASL slip in between without the engine knowing.

mod link;
mod signal;
mod socket;

pub use link::{Link, Next};
pub use signal::Signal;
pub use socket::{ConnectError, SocketOptions, connect};

//! Sockets of a shard. What is sent and received passes through a byte stream here, so
//! that TLS and SASL slip in between without the engine knowing.

mod link;
mod low_water;
mod signal;
mod socket;

pub use link::{Link, Next};
pub use low_water::{LowWater, set_low_water};
pub use signal::Signal;
pub use socket::{ConnectError, SocketOptions, connect};

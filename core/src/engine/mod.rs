//! One shard of the engine as a state machine: connections, fetches, logs, throttle.
//! The driver in `heliostat-io` and the simulation feed it events and carry out its
//! actions.

pub mod config;
mod connection;
pub mod message;
mod pace;
mod partition;
mod path;
pub mod shard;
pub mod spent;
mod stripes;
#[cfg(test)]
mod tests;
pub mod throttle;
mod timers;

pub use connection::ConnectionId;
pub use shard::{Action, Shard, ShardStats, StripeStats};

//! A source that answers from memory: as many partitions as are wanted, each batch made when it
//! is asked for.
//!
//! It stands in for Kafka where Kafka itself, or a disk, would bind: every partition holds the
//! same batch again and again, at its own offsets. It serves one client well, and is no broker.

mod asked;
mod fetch;
mod log;
mod raw;
mod server;

pub(crate) use log::{Offered, SyntheticLog};
pub(crate) use server::{Served, serve};

//! Inputs that no client would write: record batches with every header field free, message sets
//! of the old formats, payloads in unusual compressed forms, and two ways to get them into a
//! partition.
//!
//! [`Wire::produce`](super::wire::Wire::produce) sends what a broker's validation lets through:
//! any producer ID, epoch and sequence of a producer it has not met, any codec payload that Java
//! can decode. What it refuses goes straight into the segment of a broker that was stopped
//! cleanly: [`surgery`].

pub mod batch;
pub mod codec;
pub mod legacy;
pub mod surgery;

pub use batch::{ForgedBatch, ForgedRecord};
pub use legacy::LegacyMessage;
pub use surgery::{Indexes, append_to_log, rewrite_log};

//! Logs that the listener serves: partitions of one log dir in Kafka's layout,
//! and handles to add to them and to change what a leader changes.
//!
//! A [`Partition`] is shared by all listener threads. Readers take a short lock to
//! learn where the log stands and then read files that only grow; writers are
//! serialised by a lock of their own, so that a slow disk holds up no reader.

mod bell;
mod catalog;
mod error;
mod load;
mod partition;
mod segment;
mod writer;

pub use super::reading::{RecordsRun, TimedOffset};
pub use bell::Bell;
pub use catalog::{Catalog, CatalogConfig, Topic, TopicSpec};
pub use error::HostedError;
pub use partition::{Appended, Leadership, Look, Partition};
pub use segment::Segment;

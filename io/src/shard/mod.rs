//! Shards: threads that own partitions and share nothing.

pub mod executor;
pub mod mailbox;
pub mod run;
pub mod snapshot;

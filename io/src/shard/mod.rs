//! Shards: threads that own partitions and share nothing.

pub mod executor;

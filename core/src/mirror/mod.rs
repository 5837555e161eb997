//! Decisions of a mirror about its topics and partitions. The control thread asks and obeys.

pub mod backoff;

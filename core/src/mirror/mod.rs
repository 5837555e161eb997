//! Decisions of a mirror about its topics and partitions. The control thread asks and obeys.

pub mod lag;
pub mod leader_epoch;
pub mod own_ids;
pub mod placement;
pub mod returned;
pub mod throttle_split;
pub mod topics;

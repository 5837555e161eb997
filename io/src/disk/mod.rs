//! The disk: segment files through the ring, everything else by plain calls.
//!
//! [`Disk`] carries out the operations that the log emits on the data path, on the
//! shard's ring, without blocking it. The cold store is for recovery and other cold work
//! on the control thread.

mod chain;
mod driver;

pub use driver::{Disk, DiskConfig, DiskOpenError};

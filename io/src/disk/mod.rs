//! The disk: segment files through the ring, everything else by plain calls.
//!
//! [`Disk`] carries out the operations that the log emits on the data path, on the
//! shard's ring, without blocking it. [`FileStore`] is for recovery and other cold work
//! on the control thread. [`LogDirLock`] keeps other processes out of a log dir.

mod align;
mod chain;
mod cold_store;
mod driver;
mod free_space;
mod group_sync;
mod lock;
pub(crate) mod map;

pub use align::{DirectIo, DirectRefusal, probe_direct_io};
pub use cold_store::FileStore;
pub use driver::{Disk, DiskConfig, DiskOpenError};
pub use free_space::{DiskSpace, disk_space};
pub use lock::{LOCK_FILE, LockError, LogDirLock};

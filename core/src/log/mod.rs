//! Rules of the segment log: names, indexes, epochs, producer state, roll, recovery. Decisions only.

pub mod disk;
pub mod slot;
pub mod store;

pub mod checkpoint;
pub mod config;
pub mod epoch_cache;
pub mod format_error;
pub mod gaps;
pub mod index;
pub mod meta_properties;
pub mod names;
pub mod producer_snapshot;
pub mod producer_state;
pub mod properties;
pub mod read_plan;
pub mod roll;
#[cfg(test)]
mod test_batch;
pub mod txn_index;
pub mod utc;

pub use format_error::{FileKind, FormatError};

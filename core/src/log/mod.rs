//! Rules of the segment log: names, indexes, epochs, producer state, roll, recovery. Decisions only.

pub mod checkpoint;
pub mod cold_log;
pub mod config;
pub mod cx;
pub mod disk;
pub mod epoch_cache;
pub mod failure;
pub mod format_error;
pub mod gaps;
pub mod index;
#[cfg(test)]
mod kafka_files;
pub mod meta_properties;
pub mod names;
pub mod partition;
pub mod producer_snapshot;
pub mod producer_state;
pub mod properties;
pub mod read_plan;
pub mod recovery;
pub mod roll;
mod run;
pub mod segment;
pub mod shown;
pub mod slot;
pub mod store;
#[cfg(test)]
mod test_batch;
#[cfg(test)]
pub(crate) mod test_store;
pub mod txn_index;
pub mod utc;
pub mod window;

pub use format_error::{FileKind, FormatError};

//! The files of a partition as text, line for line as Kafka's `DumpLogSegments` prints
//! them, and what is wrong with them.
//!
//! Bytes come in through [`FileBytes`], lines go out to a writer, complaints are collected
//! in [`Findings`] and printed behind everything, as Kafka does. What Kafka takes for
//! corruption though it is none is named instead: the zero tail of a preallocated file, and
//! a last batch that is being written.

mod checkpoints;
mod decoded;
mod findings;
mod index;
mod log;
mod small_files;

use std::borrow::Cow;
use std::io::{self, Write};

pub use checkpoints::dump_checkpoint;
pub use findings::Findings;
pub use index::{dump_offset_index, dump_time_index};
pub use log::dump_log;
pub use small_files::{dump_snapshot, dump_txn_index};

use crate::log::names::SegmentFileName;
use crate::types::Offset;

/// A file to read from.
pub trait FileBytes {
    /// Length of the file when it was opened, in bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `len` bytes from `from` on; fewer where the file ends.
    ///
    /// # Errors
    ///
    /// From the system.
    fn read(&self, from: u64, len: usize) -> io::Result<Cow<'_, [u8]>>;

    /// Everything.
    ///
    /// # Errors
    ///
    /// From the system.
    fn read_all(&self) -> io::Result<Cow<'_, [u8]>> {
        let len = usize::try_from(self.len());
        self.read(0, len.map_err(|_| io::ErrorKind::OutOfMemory)?)
    }
}

impl FileBytes for &[u8] {
    fn len(&self) -> u64 {
        as_u64(<[u8]>::len(self))
    }

    fn read(&self, from: u64, len: usize) -> io::Result<Cow<'_, [u8]>> {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let rest = self.get(from..).unwrap_or_default();
        Ok(Cow::Borrowed(rest.get(..len).unwrap_or(rest)))
    }
}

/// How the keys and values of records are understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordDecoder {
    /// As UTF-8 text.
    #[default]
    Text,
    /// As records of `__mirror_state`.
    MirrorState,
    /// As records of `__cluster_metadata`.
    ClusterMetadata,
}

/// What is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpOptions {
    /// A line for each record.
    pub deep_iteration: bool,
    /// Keys and values; implies a line for each record.
    pub print_data: bool,
    /// How these are understood.
    pub decoder: RecordDecoder,
    /// Leave out what is not key or value.
    pub skip_record_metadata: bool,
    /// Only check indexes in the way that decides whether a broker builds them again.
    pub index_sanity_only: bool,
    /// Check indexes against the log without printing their entries.
    pub verify_index_only: bool,
    /// Somebody is writing to the log dir: an unfinished end is no damage.
    pub is_live: bool,
}

/// The file that is dumped.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Absolute; complaints show it.
    pub path: &'a str,
    /// As the operator named it; lines show it.
    pub shown: &'a str,
    /// Last part of the path.
    pub name: &'a str,
    /// From the name.
    pub base_offset: Offset,
}

impl<'a> Named<'a> {
    /// `None` if the name is not that of a segment's file.
    pub fn new(path: &'a str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let base_offset = SegmentFileName::parse(name)?.base_offset;
        Some(Self { path, shown: path, name, base_offset })
    }
}

/// Where lines go.
pub type Out<'a> = &'a mut dyn Write;

/// Java's `OptionalLong`.
fn optional(value: Option<i64>) -> String {
    value.map_or_else(|| "OptionalLong.empty".to_owned(), |value| format!("OptionalLong[{value}]"))
}

fn as_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

//! What a verification finds.

use std::sync::Arc;

use heliostat_core::log::gaps::GapRecord;
use heliostat_core::types::{Offset, TopicPartition};

/// Result of the whole verification.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In order of topic and partition.
    pub partitions: Vec<PartitionReport>,
}

impl Report {
    /// Whether every partition is equal, or, if not `strict`, superseded at the source.
    pub fn agrees(&self, strict: bool) -> bool {
        self.partitions.iter().all(|partition| match partition.outcome {
            Outcome::Equal => true,
            Outcome::Superseded => !strict,
            Outcome::Different(_) => false,
        })
    }
}

/// Result for one partition of the copy.
#[derive(Clone, Debug)]
pub struct PartitionReport {
    /// Which.
    pub partition: TopicPartition,
    /// How copy and source compare.
    pub outcome: Outcome,
    /// First offset of the copy, inclusive; −1 if it was not read.
    pub copy_start: Offset,
    /// End of the copy, exclusive; −1 if it was not read.
    pub copy_end: Offset,
    /// First offset of the source, inclusive; −1 if it could not be asked.
    pub source_start: Offset,
    /// High watermark of the source, exclusive; −1 if it could not be asked.
    pub source_end: Offset,
    /// Batches of the copy that were compared.
    pub batches: u64,
    /// Bytes of the copy that were compared.
    pub bytes: u64,
    /// Offset ranges that the source rewrote, dropped or trimmed since; adjoining ones are one.
    pub superseded: Vec<SupersededRange>,
    /// What is not as it should be, though the bytes agree.
    pub warnings: Vec<String>,
    /// What the copy is known to lack, and what was cut from it.
    pub gaps: Vec<GapRecord>,
}

impl PartitionReport {
    /// Records that the source has beyond the copy's end.
    pub fn behind(&self) -> u64 {
        self.source_end.records_since(self.copy_end)
    }
}

/// How copy and source compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Byte for byte the same, up to the end of the copy.
    Equal,
    /// The same but for what the source cleaned or trimmed since; every record that it
    /// still has is in the copy.
    Superseded,
    /// Something else.
    Different(Box<Difference>),
}

/// The first difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Where: of a record, or of its batch.
    pub offset: Option<Offset>,
    /// What differs.
    pub field: String,
    /// The copy's value.
    pub copy: String,
    /// The source's value.
    pub source: String,
    /// File and position in the copy, if it is a matter of bytes.
    pub place: Option<String>,
    /// What it means, or what to do.
    pub meaning: String,
}

/// Why a range of the copy is no longer at the source as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Below the source's log start now.
    Trimmed,
    /// The cleaner rewrote or dropped batches.
    Cleaned,
}

/// A range of offsets, and how many records of the copy the source no longer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupersededRange {
    /// Why.
    pub why: Why,
    /// First offset, inclusive.
    pub from: Offset,
    /// Last offset, exclusive.
    pub to: Offset,
    /// Records that are in the copy only.
    pub records: u64,
}

/// How far the verification is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Partitions that are done.
    pub partitions_done: usize,
    /// All partitions.
    pub partitions: usize,
    /// Bytes of the copy that are done.
    pub bytes_done: u64,
    /// Bytes of the copy as the directory has them, preallocated tails included.
    pub bytes: u64,
    /// A partition that is under way.
    pub current: Option<Arc<str>>,
}

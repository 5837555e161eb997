//! What opening a log needs, what it did, and why it refused.

use crate::log::config::LogConfig;
use crate::log::disk::LogPath;
use crate::log::format_error::FormatError;
use crate::log::store::StoreError;
use crate::records::RecordError;
use crate::types::{Offset, TopicId};

/// How a log is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Roll and index settings.
    pub config: LogConfig,
    /// Whose log it is. [`TopicId::NONE`]: the source has no IDs, nothing is checked.
    pub topic_id: TopicId,
    /// The process that wrote the log stopped cleanly.
    pub clean: bool,
    /// Everything below was durable; [`Offset::ZERO`] if nothing is known.
    pub recovery_point: Offset,
    /// First offset that readers see, from its checkpoint; `None`: where the files begin.
    pub log_start: Option<Offset>,
    /// Cut the log to end here, exclusive; of a batch that reaches past it nothing stays.
    pub truncate_to: Option<Offset>,
    /// Wall-clock time, milliseconds since the Unix epoch.
    pub now_ms: i64,
}

/// What was done to open a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Bytes of segment files that were read.
    pub bytes_scanned: u64,
    /// Files that were written anew from the batches.
    pub rebuilt: Vec<String>,
    /// Files that were removed: leftovers, and what lay behind a cut.
    pub removed: Vec<String>,
    /// What the log lost at its end.
    pub cut: Option<Cut>,
    /// The checkpoint's recovery point lay behind the end of the log, by this much data
    /// that is no longer here: cut on purpose before, or removed by somebody.
    pub recovery_point_above_end: Option<Offset>,
    /// The log ended below its start, so all of it was removed; it ended here.
    pub ended_below_start: Option<Offset>,
}

/// A piece of the log that was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The new end of the log.
    pub from: Offset,
    /// The old end, exclusive, as far as whole batches reached; `None` if nothing
    /// whole was cut off.
    pub to: Option<Offset>,
    /// Whole batches that went.
    pub batches: u64,
    /// Bytes that went, preallocated space included.
    pub bytes: u64,
    /// Why.
    pub reason: CutReason,
}

/// Why a log was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// It was asked for.
    Truncation,
    /// Reserved space that was never written to. Nothing is lost.
    Preallocated,
    /// The last writes were not complete when the process or the machine died.
    Torn(Damage),
    /// The segment behind does not continue this one, and nothing says that it should.
    Gap {
        /// Where it begins.
        next_base: Offset,
    },
}

/// What is wrong where a batch should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// Not a valid batch.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The file ends inside a batch.
    #[error("the file ends inside a batch, {bytes} bytes behind its start")]
    CutOff {
        /// Bytes of it that are there.
        bytes: u64,
    },
    /// Nothing but zeros up to the end of the file.
    #[error("zeros up to the end of the file")]
    Zeros,
    /// A valid batch that does not belong here.
    #[error("a batch {base_offset}..={last_offset} where offset {expected} or later has to follow")]
    OutOfPlace {
        /// First offset of the batch.
        base_offset: Offset,
        /// Its last offset.
        last_offset: Offset,
        /// What had to come.
        expected: Offset,
    },
    /// The segment reaches past the start of the next one.
    #[error("the segment ends at offset {end}, the next one begins at {next_base} already")]
    Overlap {
        /// End of the segment, exclusive.
        end: Offset,
        /// Base offset of the next one.
        next_base: Offset,
    },
}

/// Why a log was not opened. Nothing was cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogOpenError {
    /// The system refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory holds another topic of the same name.
    #[error(
        "{dir} holds topic ID {found}, the source's is {expected}: the topic was recreated; move \
         the directory away to copy the new topic"
    )]
    OtherTopic {
        /// The partition's directory.
        dir: String,
        /// As `partition.metadata` says.
        found: TopicId,
        /// As the source says.
        expected: TopicId,
    },
    /// `partition.metadata` cannot be read.
    #[error("{path} cannot be read: remove it if the directory is this topic's")]
    Metadata {
        /// The file.
        path: LogPath,
        /// What is wrong with it.
        #[source]
        source: FormatError,
    },
    /// What was durable is damaged: a disk fault, or a hand in the files.
    #[error(
        "{path} is damaged at position {position}, offset {offset}, below the recovery point \
         {recovery_point}: check the disk, then restore the file{}",
        if is_a_copy(path) { " or move the partition's directory away to copy it again" } else { "" }
    )]
    Damaged {
        /// The file.
        path: LogPath,
        /// Where in it, in bytes.
        position: u64,
        /// Offset that had to follow there.
        offset: Offset,
        /// Everything below was durable.
        recovery_point: Offset,
        /// What is wrong.
        #[source]
        damage: Damage,
    },
    /// A cleaner was stopped between two renames: this file replaces others that are gone
    /// already, and it is damaged.
    #[error(
        "{path} replaces segments that are gone and is damaged at position {position}: check the \
         disk, then restore the file or move the partition's directory away to copy it again"
    )]
    UnfinishedSwap {
        /// The file.
        path: LogPath,
        /// Where in it, in bytes.
        position: u64,
    },
}

/// Whether a file of a log can be had from a source again: not those that are a host's own.
fn is_a_copy(path: &LogPath) -> bool {
    !["__cluster_metadata-", "__mirror_state-"].iter().any(|own| path.dir.starts_with(own))
}

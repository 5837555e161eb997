//! What is wrong with the contents of a file that Kafka's log keeps on disk.

use std::fmt;

/// The kinds of file that this layer reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// `<base>.index`
    OffsetIndex,
    /// `<base>.timeindex`
    TimeIndex,
    /// `<base>.txnindex`
    TxnIndex,
    /// `<offset>.snapshot`
    ProducerSnapshot,
    /// `leader-epoch-checkpoint`
    LeaderEpochCheckpoint,
    /// `recovery-point-offset-checkpoint`
    RecoveryPointCheckpoint,
    /// `log-start-offset-checkpoint`
    LogStartCheckpoint,
    /// `replication-offset-checkpoint`
    ReplicationCheckpoint,
    /// `partition.metadata`
    PartitionMetadata,
    /// `meta.properties`
    MetaProperties,
    /// `mirror-gaps`
    MirrorGaps,
    /// `mirror-topics`
    MirrorTopics,
    /// A configuration file of the operator's.
    Configuration,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OffsetIndex => "offset index",
            Self::TimeIndex => "time index",
            Self::TxnIndex => "transaction index",
            Self::ProducerSnapshot => "producer snapshot",
            Self::LeaderEpochCheckpoint => super::names::LEADER_EPOCH_CHECKPOINT,
            Self::RecoveryPointCheckpoint => super::names::RECOVERY_POINT_CHECKPOINT,
            Self::LogStartCheckpoint => super::names::LOG_START_CHECKPOINT,
            Self::ReplicationCheckpoint => super::names::REPLICATION_CHECKPOINT,
            Self::PartitionMetadata => super::names::PARTITION_METADATA,
            Self::MetaProperties => super::names::META_PROPERTIES,
            Self::MirrorGaps => super::names::MIRROR_GAPS,
            Self::MirrorTopics => super::names::MIRROR_TOPICS,
            Self::Configuration => "configuration",
        })
    }
}

/// Why the contents of a file cannot be used, or a value cannot be written.
/// The caller adds the path and what the operator can do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A line of a text file is not what it must be.
    #[error("{file}, line {line}: want {expected}, got {got:?}")]
    Line {
        /// Which file.
        file: FileKind,
        /// From 1.
        line: u64,
        /// What the line must hold.
        expected: &'static str,
        /// Start of what it holds.
        got: Box<str>,
    },
    /// A text file ends before it is complete.
    #[error("{file}: ends before line {line}, want {expected}")]
    Ended {
        /// Which file.
        file: FileKind,
        /// The line that is not there, from 1.
        line: u64,
        /// What it must hold.
        expected: &'static str,
    },
    /// A checkpoint holds more or fewer entries than its second line says.
    #[error("{file}, line 2: announces {declared} entries, {found} follow")]
    Count {
        /// Which file.
        file: FileKind,
        /// What line 2 says.
        declared: u64,
        /// What is there.
        found: u64,
    },
    /// A text file is not UTF-8.
    #[error("{file}: byte {at} is not UTF-8 text")]
    Text {
        /// Which file.
        file: FileKind,
        /// Position of the first bad byte, from 0.
        at: u64,
    },
    /// A value of a properties file is none.
    #[error("{file}: want {expected}, got {got:?}")]
    Value {
        /// Which file.
        file: FileKind,
        /// What it must be.
        expected: &'static str,
        /// Start of the value.
        got: Box<str>,
    },
    /// A needed key is not in a properties file.
    #[error("{file}: key {key} is missing")]
    MissingKey {
        /// Which file.
        file: FileKind,
        /// The key.
        key: &'static str,
    },
    /// A binary file has a length that no whole number of entries has.
    #[error("{file}: {bytes} bytes, want a head of {head_bytes} and entries of {entry_bytes}")]
    Length {
        /// Which file.
        file: FileKind,
        /// Length of the file.
        bytes: u64,
        /// Length of what comes before the entries.
        head_bytes: u64,
        /// Length of an entry.
        entry_bytes: u64,
    },
    /// An entry of a binary file is impossible, alone or after the one before it.
    #[error("{file}, entry {entry}: want {expected}, got {got}")]
    Entry {
        /// Which file.
        file: FileKind,
        /// From 0.
        entry: u64,
        /// What must hold.
        expected: &'static str,
        /// The value that breaks it.
        got: i64,
    },
    /// The file was written in a format that nobody here knows.
    #[error("{file}: format version {got}, known is {known}")]
    Version {
        /// Which file.
        file: FileKind,
        /// What it says.
        got: i64,
        /// The one version that is read.
        known: i64,
    },
    /// The checksum in the file is not that of its bytes.
    #[error("{file}: checksum {stored:#010x} stored, {computed:#010x} computed")]
    Checksum {
        /// Which file.
        file: FileKind,
        /// As read.
        stored: u32,
        /// Over the bytes.
        computed: u32,
    },
    /// A value would break the file's syntax, so nothing was written.
    #[error("{file}: cannot hold {got:?}, want {expected}")]
    Unwritable {
        /// Which file.
        file: FileKind,
        /// What the value must be.
        expected: &'static str,
        /// Start of the value.
        got: Box<str>,
    },
}

/// The start of `text`, short enough for a message.
pub(crate) fn excerpt(text: &str) -> Box<str> {
    const CHARS_MAX: usize = 80;
    text.chars().take(CHARS_MAX).collect()
}

/// `bytes` as text.
pub(crate) fn text(file: FileKind, bytes: &[u8]) -> Result<&str, FormatError> {
    std::str::from_utf8(bytes)
        .map_err(|error| FormatError::Text { file, at: count(error.valid_up_to()) })
}

/// A length or index of memory as a number of the error messages.
pub(crate) fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

//! What the log needs to know of one batch, in any message format.

use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Codec of a batch's records, bits 0 to 2 of its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Records as they are.
    None,
    /// RFC 1952, possibly of several members.
    Gzip,
    /// Raw or in the xerial frame.
    Snappy,
    /// LZ4 frame format; magic 0 computed its header checksum over the wrong bytes.
    Lz4,
    /// Zstandard, possibly of several frames, often without a content size.
    Zstd,
    /// A code that no released Kafka writes; copied all the same.
    Unknown(u8),
}

/// What the marker of a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlType {
    /// The producer's open transaction is aborted.
    Abort,
    /// The producer's open transaction is committed.
    Commit,
    /// KIP-1279's type 7: everyone who sees it drops all producer state of the partition.
    MirrorPidReset,
    /// Other control records (quorum records, later types), with their code: they
    /// end no transaction.
    Other(i16),
}

impl ControlType {
    /// What the type field of a control record's key means.
    pub fn from_code(code: i16) -> Self {
        match code {
            0 => Self::Abort,
            1 => Self::Commit,
            7 => Self::MirrorPidReset,
            other => Self::Other(other),
        }
    }

    /// The type field for a control record's key.
    pub fn code(self) -> i16 {
        match self {
            Self::Abort => 0,
            Self::Commit => 1,
            Self::MirrorPidReset => 7,
            Self::Other(code) => code,
        }
    }
}

/// The facts of one whole batch (v2), or of one stored message (v0, v1; a
/// compressed wrapper counts as one).
///
/// From the batch walker it means that the bytes were all
/// there and that their checksum holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMeta {
    /// First offset. For v0 and v1 the stored offset, which for a compressed
    /// wrapper is that of its last message: what lies below it is not known
    /// without decompression.
    pub base_offset: Offset,
    /// Last offset that the batch covers, inclusive. After compaction no record need be there.
    pub last_offset: Offset,
    /// Whole batch in bytes, the leading offset and length fields included.
    pub size_bytes: u32,
    /// Message format: 0, 1 or 2.
    pub magic: u8,
    /// As the source's leader wrote it; [`LeaderEpoch::NONE`] for v0 and v1.
    pub leader_epoch: LeaderEpoch,
    /// Stored checksum: CRC-32C for v2, CRC-32 for v0 and v1.
    pub crc: u32,
    /// The raw attributes.
    pub attributes: i16,
    /// Largest timestamp in the batch; −1 for none. v1: of the message; v0: −1.
    pub max_timestamp: TimestampMs,
    /// Base timestamp, or the delete horizon if attribute bit 6 is set. Never for indexing.
    pub base_timestamp: TimestampMs,
    /// −1 for none and for v0, v1.
    pub producer_id: ProducerId,
    /// −1 for none.
    pub producer_epoch: ProducerEpoch,
    /// Sequence of the first record; −1 for none.
    pub base_sequence: i32,
    /// Records that are there, 0 for an empty batch; v0 and v1: 1.
    pub records_count: i32,
    /// Marker of a control batch; `None` for data, and for a control batch without records.
    pub control: Option<ControlType>,
    /// Coordinator epoch of a transaction marker; −1 otherwise.
    pub coordinator_epoch: i32,
}

impl BatchMeta {
    /// Where fetching goes on after this batch.
    pub fn next_offset(&self) -> Offset {
        self.last_offset.plus(1)
    }

    /// Codec of the records.
    pub fn compression(&self) -> Compression {
        match self.attributes & 0x07 {
            0 => Compression::None,
            1 => Compression::Gzip,
            2 => Compression::Snappy,
            3 => Compression::Lz4,
            4 => Compression::Zstd,
            code => Compression::Unknown(u8::try_from(code).unwrap_or(u8::MAX)),
        }
    }

    /// Whether timestamps are the log append time (bit 3).
    pub fn is_log_append_time(&self) -> bool {
        self.magic > 0 && self.attributes & 0x08 != 0
    }

    /// Whether the batch is part of a transaction (bit 4).
    pub fn is_transactional(&self) -> bool {
        self.magic >= 2 && self.attributes & 0x10 != 0
    }

    /// Whether the batch carries a marker and not data (bit 5).
    pub fn is_control(&self) -> bool {
        self.magic >= 2 && self.attributes & 0x20 != 0
    }

    /// Whether the base timestamp is a delete horizon (bit 6, KIP-534).
    pub fn has_delete_horizon(&self) -> bool {
        self.magic >= 2 && self.attributes & 0x40 != 0
    }

    /// Sequence of the last record, with Kafka's wrap: 2147483647 is followed by 0.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        let delta = self.last_offset.0.saturating_sub(self.base_offset.0);
        let sum = i64::from(self.base_sequence).saturating_add(delta);
        i32::try_from(sum % (i64::from(i32::MAX) + 1)).unwrap_or(-1)
    }
}

//! The fixed part of a v2 record batch as a view over received bytes.

use zerocopy::big_endian::{I16, I32, I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::error::RecordError;
use super::meta::BatchMeta;
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Bytes before the records of a v2 batch.
pub const HEADER_V2_BYTES: usize = 61;
/// Bytes of the leading offset and length fields, in every format; `length`
/// counts from the byte after them.
pub const LOG_OVERHEAD_BYTES: u32 = 12;
/// Where the CRC-32C of a v2 batch begins to count: behind its own field.
pub const CRC_V2_FROM: usize = 21;
/// Smallest length field of a v2 batch.
pub(super) const LENGTH_V2_MIN: i32 = 61 - 12;
/// The current message format.
pub(super) const MAGIC_V2: u8 = 2;

/// The fixed 61 bytes of a v2 record batch, laid over the bytes as they came.
///
/// Any 61 bytes are a valid value; [`check`](Self::check) says whether they are a
/// usable header. Kafka's names; all integers are big-endian.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BatchHeader {
    pub(super) base_offset: I64,
    pub(super) length: I32,
    pub(super) partition_leader_epoch: I32,
    pub(super) magic: u8,
    pub(super) crc: U32,
    pub(super) attributes: I16,
    pub(super) last_offset_delta: I32,
    pub(super) base_timestamp_ms: I64,
    pub(super) max_timestamp_ms: I64,
    pub(super) producer_id: I64,
    pub(super) producer_epoch: I16,
    pub(super) base_sequence: I32,
    pub(super) records_count: I32,
}

const _: () = assert!(size_of::<BatchHeader>() == HEADER_V2_BYTES);

impl BatchHeader {
    /// Lays the view over the first 61 of `bytes` and returns what follows them
    /// too. `None` if there are fewer. Copies and checks nothing.
    pub fn view(bytes: &[u8]) -> Option<(&Self, &[u8])> {
        Self::ref_from_prefix(bytes).ok()
    }

    /// First offset of the batch.
    pub fn base_offset(&self) -> Offset {
        Offset(self.base_offset.get())
    }

    /// Bytes after the length field, as stored.
    pub fn length(&self) -> i32 {
        self.length.get()
    }

    /// Whole batch in bytes, leading offset and length fields included; 12 for a
    /// negative length, which [`check`](Self::check) refuses.
    pub fn size_bytes(&self) -> u32 {
        size_bytes(self.length.get())
    }

    /// Epoch of the leader that appended the batch. Not covered by the CRC.
    pub fn partition_leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.partition_leader_epoch.get())
    }

    /// Message format as stored.
    pub fn magic(&self) -> u8 {
        self.magic
    }

    /// CRC-32C as stored, over everything from the attributes on.
    pub fn crc(&self) -> u32 {
        self.crc.get()
    }

    /// The raw attributes.
    pub fn attributes(&self) -> i16 {
        self.attributes.get()
    }

    /// Distance of the last offset from the first, as stored.
    pub fn last_offset_delta(&self) -> i32 {
        self.last_offset_delta.get()
    }

    /// What timestamp deltas count from; the delete horizon if bit 6 is set.
    pub fn base_timestamp(&self) -> TimestampMs {
        TimestampMs(self.base_timestamp_ms.get())
    }

    /// Largest timestamp of the records, or the log append time if bit 3 is set.
    pub fn max_timestamp(&self) -> TimestampMs {
        TimestampMs(self.max_timestamp_ms.get())
    }

    /// Producer of an idempotent batch, −1 otherwise.
    pub fn producer_id(&self) -> ProducerId {
        ProducerId(self.producer_id.get())
    }

    /// Epoch of the producer, −1 for none.
    pub fn producer_epoch(&self) -> ProducerEpoch {
        ProducerEpoch(self.producer_epoch.get())
    }

    /// Sequence of the first record, −1 for none.
    pub fn base_sequence(&self) -> i32 {
        self.base_sequence.get()
    }

    /// Records in the batch as stored; 0 in a batch that the cleaner emptied.
    pub fn records_count(&self) -> i32 {
        self.records_count.get()
    }

    /// Checks what can be told without the records: magic, length, offsets, count.
    ///
    /// # Errors
    ///
    /// The first rule that is broken. The CRC and a limit of the size are the caller's.
    pub fn check(&self) -> Result<(), RecordError> {
        let base_offset = self.base_offset();
        if self.magic != MAGIC_V2 {
            return Err(RecordError::UnknownMagic { base_offset, magic: self.magic });
        }
        let length = self.length();
        if length < LENGTH_V2_MIN {
            return Err(RecordError::LengthTooSmall {
                base_offset,
                length,
                length_min: LENGTH_V2_MIN,
            });
        }
        let last_offset_delta = self.last_offset_delta();
        check_offsets(base_offset, last_offset_delta)?;
        let records_count = self.records_count();
        if records_count < 0 || i64::from(records_count) > i64::from(last_offset_delta) + 1 {
            return Err(RecordError::RecordsCount {
                base_offset,
                records_count,
                last_offset_delta,
            });
        }
        Ok(())
    }

    /// The facts of the batch, without those of a control batch's marker, which
    /// stands in its record.
    pub fn to_meta(&self) -> BatchMeta {
        let base_offset = self.base_offset();
        BatchMeta {
            base_offset,
            last_offset: base_offset.plus(i64::from(self.last_offset_delta())),
            size_bytes: self.size_bytes(),
            magic: self.magic,
            leader_epoch: self.partition_leader_epoch(),
            crc: self.crc(),
            attributes: self.attributes(),
            max_timestamp: self.max_timestamp(),
            base_timestamp: self.base_timestamp(),
            producer_id: self.producer_id(),
            producer_epoch: self.producer_epoch(),
            base_sequence: self.base_sequence(),
            records_count: self.records_count(),
            control: None,
            coordinator_epoch: -1,
        }
    }
}

/// Whole size of a batch from its length field; a negative length counts as 0.
pub(super) fn size_bytes(length: i32) -> u32 {
    // At most 2^31 + 11, so nothing is ever cut off here.
    u32::try_from(length).unwrap_or(0).saturating_add(LOG_OVERHEAD_BYTES)
}

/// Offsets must not be negative, and the offset behind the batch must exist.
pub(super) fn check_offsets(
    base_offset: Offset,
    last_offset_delta: i32,
) -> Result<(), RecordError> {
    if base_offset.0 < 0 {
        return Err(RecordError::NegativeBaseOffset { base_offset });
    }
    if last_offset_delta < 0 {
        return Err(RecordError::NegativeLastOffsetDelta { base_offset, last_offset_delta });
    }
    match base_offset.0.checked_add(i64::from(last_offset_delta)) {
        Some(last) if last < i64::MAX => Ok(()),
        Some(_) | None => Err(RecordError::OffsetOverflow { base_offset, last_offset_delta }),
    }
}

//! Why bytes are not a run of record batches.

use super::control::ControlError;
use crate::types::Offset;

/// Why a batch is refused. Offsets are as the batch itself claims them, so with
/// corruption they are a hint and no fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Twelve zero bytes where a batch should start: the tail of a preallocated
    /// segment, and so the end of what was written. A source never sends it.
    #[error("zeros instead of a batch: the preallocated tail of a segment")]
    ZeroTail,
    /// The length field leaves no room for a header.
    #[error("batch at offset {base_offset}: length {length} is below the smallest, {length_min}")]
    LengthTooSmall {
        /// Offset at the batch's start.
        base_offset: Offset,
        /// As stored: bytes after the length field itself.
        length: i32,
        /// Smallest legal value for the batch's format (of all formats, if not known yet).
        length_min: i32,
    },
    /// The batch is larger than the caller takes.
    #[error(
        "batch at offset {base_offset}: {size_bytes} bytes are above the limit {size_bytes_max}"
    )]
    BatchTooLarge {
        /// Offset at the batch's start.
        base_offset: Offset,
        /// Whole batch, leading offset and length fields included.
        size_bytes: u32,
        /// The limit that it exceeds, inclusive.
        size_bytes_max: u32,
    },
    /// Neither v0, v1 nor v2.
    #[error("batch at offset {base_offset}: magic {magic} is unknown, the newest known is 2")]
    UnknownMagic {
        /// Offset at the batch's start.
        base_offset: Offset,
        /// As stored.
        magic: u8,
    },
    /// A batch in a log has an offset from 0 on.
    #[error("batch has the negative offset {base_offset}")]
    NegativeBaseOffset {
        /// As stored.
        base_offset: Offset,
    },
    /// The last offset lies before the first.
    #[error("batch at offset {base_offset}: negative last offset delta {last_offset_delta}")]
    NegativeLastOffsetDelta {
        /// First offset.
        base_offset: Offset,
        /// As stored.
        last_offset_delta: i32,
    },
    /// No offset is left for what follows the batch.
    #[error("batch at offset {base_offset} + {last_offset_delta} reaches past the largest offset")]
    OffsetOverflow {
        /// First offset.
        base_offset: Offset,
        /// As stored; 0 for v0 and v1.
        last_offset_delta: i32,
    },
    /// Negative, or more records than the batch has offsets.
    #[error(
        "batch at offset {base_offset}: {records_count} records do not fit a last offset delta of \
         {last_offset_delta}"
    )]
    RecordsCount {
        /// First offset.
        base_offset: Offset,
        /// As stored.
        records_count: i32,
        /// As stored.
        last_offset_delta: i32,
    },
    /// The stored checksum is not that of the bytes.
    #[error("batch at offset {base_offset}: stored CRC {stored:#010x}, computed {computed:#010x}")]
    CrcMismatch {
        /// First offset.
        base_offset: Offset,
        /// As stored: CRC-32C for v2, CRC-32 for v0 and v1.
        stored: u32,
        /// Of the bytes that came.
        computed: u32,
    },
    /// The checksum holds, but the marker of a control batch cannot be read.
    #[error("control batch at offset {base_offset}")]
    Control {
        /// First offset.
        base_offset: Offset,
        /// What is wrong with the marker.
        #[source]
        source: ControlError,
    },
}

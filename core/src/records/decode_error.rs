//! Why the records of a whole, verified batch cannot be read.

use super::compression::CompressionError;
use super::varint::VarintError;
use crate::types::Offset;

/// A batch whose records cannot be read, though its checksum may hold.
#[derive(Debug, thiserror::Error)]
#[error("records of the batch at offset {base_offset}")]
pub struct DecodeError {
    /// First offset of the batch; for v0 and v1 the stored offset.
    pub base_offset: Offset,
    /// What is wrong.
    #[source]
    pub reason: DecodeReason,
}

/// What is wrong with the records of a batch. Indexes count records from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeReason {
    /// The bytes are not those that the facts are about.
    #[error("the batch has {want} bytes, {have} were given")]
    Size {
        /// As the batch says.
        want: u32,
        /// As given.
        have: usize,
    },
    /// The body does not decompress.
    #[error("cannot be decompressed")]
    Compression(#[source] CompressionError),
    /// A record breaks off, or a number in it is no number.
    #[error("record {index} cannot be read")]
    Record {
        /// Which record.
        index: u32,
        /// What is wrong in it.
        #[source]
        source: VarintError,
    },
    /// The fields of a record end before the record does.
    #[error("record {index} has {bytes} bytes behind its last field")]
    RecordSize {
        /// Which record.
        index: u32,
        /// How many.
        bytes: usize,
    },
    /// A record lies outside of its batch.
    #[error("record {index} has offset {offset}, outside of its batch")]
    RecordOffset {
        /// Which record.
        index: u32,
        /// The offset it claims; for an overflow, as far as `i64` goes.
        offset: Offset,
    },
    /// The body ends before the last record.
    #[error("{found} records instead of {records_count}")]
    Shortfall {
        /// As the batch says.
        records_count: i32,
        /// As found.
        found: u32,
    },
    /// The body goes on behind the last record.
    #[error("{bytes} bytes behind the last of {records_count} records")]
    TrailingBytes {
        /// As the batch says; for a v0 or v1 message 1.
        records_count: i32,
        /// How many.
        bytes: usize,
    },
    /// A message in a wrapper is neither v0 nor v1.
    #[error("message {index} has magic {magic}, want 0 or 1")]
    InnerMagic {
        /// Which message.
        index: u32,
        /// As stored.
        magic: u8,
    },
    /// The checksum of a v0 or v1 message does not hold.
    #[error("message {index}: stored CRC {stored:#010x}, computed {computed:#010x}")]
    InnerCrc {
        /// Which message.
        index: u32,
        /// As stored.
        stored: u32,
        /// Of its bytes.
        computed: u32,
    },
    /// A compressed message within a compressed message, which Kafka refuses.
    #[error("message {index} is compressed within a compressed message")]
    NestedTwice {
        /// Which message.
        index: u32,
    },
    /// A compressed message without messages in it.
    #[error("compressed message is empty")]
    EmptyWrapper,
    /// A v1 wrapper's offset is that of its last message, and so not below the relative one.
    #[error("wrapper offset is below the relative offset {last_inner} of its last message")]
    WrapperOffset {
        /// Relative offset of the last message.
        last_inner: Offset,
    },
}

//! Record batches as they travel and as they are stored: views, checks, decoding.

mod batch_header;
mod builder;
mod compression;
mod control;
mod decode_error;
mod error;
mod legacy;
mod legacy_builder;
mod legacy_header;
mod lz4;
mod meta;
mod record;
pub(crate) mod varint;
mod walk;

pub use batch_header::{BatchHeader, CRC_V2_FROM, HEADER_V2_BYTES, LOG_OVERHEAD_BYTES};
pub use builder::{BatchBuilder, BuildError, NewRecord, reseal};
pub use compression::{CompressionError, compress, decompress};
pub use control::{
    CONTROL_RECORD_BYTES_MAX, ControlError, EndTxnMarker, Marker, MirrorPidReset, control_key,
    read_marker,
};
pub use decode_error::{DecodeError, DecodeReason};
pub use error::RecordError;
pub use legacy_builder::{LegacyBuilder, LegacyFormat, LegacyMessage};
pub use meta::{BatchMeta, Compression, ControlType};
pub use record::{DecodedBatch, Headers, RecordHeader, RecordView, Records};
pub use varint::VarintError;
pub use walk::{BatchWalker, WalkLimits};

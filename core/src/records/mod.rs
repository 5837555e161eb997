//! Record batches as they travel and as they are stored: views, checks, decoding.

mod batch_header;
mod compression;
mod control;
mod error;
mod legacy_header;
mod lz4;
mod meta;
mod varint;
mod walk;

pub use batch_header::{BatchHeader, CRC_V2_FROM, HEADER_V2_BYTES, LOG_OVERHEAD_BYTES};
pub use compression::{CompressionError, compress, decompress};
pub use control::{CONTROL_RECORD_BYTES_MAX, ControlError, Marker, read_marker};
pub use error::RecordError;
pub use meta::{BatchMeta, Compression, ControlType};
pub use varint::VarintError;
pub use walk::{BatchWalker, WalkLimits};

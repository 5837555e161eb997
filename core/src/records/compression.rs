//! Record bodies of batches and legacy wrappers: decoding with a cap, encoding.
//!
//! Only dump-log, verify and the demo come here; the mirror itself never
//! decompresses. Everything that a broker may hold is read: several gzip members,
//! several LZ4 and Zstandard frames, snappy with and without the xerial frame.
//! What is cut off inside a unit of its format is an error. A cut between two
//! members, frames or chunks cannot be told here: there the batch's count of
//! records does it.

use std::io::{self, Read, Write};

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::lz4;
use super::meta::Compression;
use super::varint::Cursor;

/// First bytes of snappy-java's stream; raw snappy cannot begin like this.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Chunk size that snappy-java uses by default.
const XERIAL_CHUNK_BYTES: usize = 32 * 1024;
/// Largest window, as the Java client's decoder has it: 128 MiB, reserved but
/// touched only as far as content comes.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// The library's own default, which Kafka uses too.
const ZSTD_LEVEL: i32 = 3;
/// No snappy element gives more bytes than this for one of input.
const SNAPPY_RATIO_MAX: usize = 22;

/// Why a body could not be decoded or encoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// The content is larger than the caller takes.
    #[error("{codec:?} content is larger than the limit of {bytes_max} bytes")]
    TooLarge {
        /// Codec of the batch.
        codec: Compression,
        /// The limit, inclusive.
        bytes_max: usize,
    },
    /// Not what the codec says, or cut off.
    #[error("not readable as {codec:?}")]
    Corrupt {
        /// Codec of the batch.
        codec: Compression,
        /// What the decoder says.
        #[source]
        source: io::Error,
    },
    /// A code that no released Kafka writes.
    #[error("codec {code} is unknown, the newest known is 4 (zstd)")]
    UnknownCodec {
        /// Bits 0 to 2 of the attributes.
        code: u8,
    },
    /// The encoder failed.
    #[error("cannot encode as {codec:?}")]
    Encode {
        /// Codec asked for.
        codec: Compression,
        /// What the encoder says.
        #[source]
        source: io::Error,
    },
}

/// Decodes `input` to at most `cap` bytes (inclusive). Memory follows the
/// content that really comes, never a length field beyond `cap`.
///
/// `magic` is that of the batch or wrapper: with 0, the header checksum of LZ4
/// frames is ignored, as Kafka does.
///
/// # Errors
///
/// [`CompressionError`]; never fewer bytes in silence where the format lets it be told.
pub fn decompress(
    codec: Compression,
    magic: u8,
    input: &[u8],
    cap: usize,
) -> Result<Vec<u8>, CompressionError> {
    let mut out = Vec::new();
    let done = match codec {
        Compression::None => read_capped(&mut &*input, cap, &mut out),
        Compression::Gzip => read_capped(&mut MultiGzDecoder::new(input), cap, &mut out),
        Compression::Snappy => snappy(input, cap, &mut out),
        Compression::Lz4 => lz4::decompress(magic, input, cap, &mut out),
        Compression::Zstd => zstd(input, cap, &mut out),
        Compression::Unknown(code) => return Err(CompressionError::UnknownCodec { code }),
    };
    match done {
        Ok(()) => Ok(out),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(CompressionError::TooLarge { codec, bytes_max: cap })
        }
        Err(source) => Err(CompressionError::Corrupt { codec, source }),
    }
}

/// Encodes `input` as the Java client does: one gzip member, the xerial frame
/// with chunks of 32 KiB, one LZ4 frame of independent blocks (with `magic` 0:
/// with Kafka's broken header checksum), one Zstandard frame without content size.
///
/// # Errors
///
/// [`CompressionError::UnknownCodec`], or a failing encoder.
pub fn compress(codec: Compression, magic: u8, input: &[u8]) -> Result<Vec<u8>, CompressionError> {
    let done = match codec {
        Compression::None => Ok(input.to_vec()),
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(input).and_then(|()| encoder.finish())
        }
        Compression::Snappy => xerial(input),
        Compression::Lz4 => lz4::compress(magic, input),
        Compression::Zstd => zstd::stream::encode_all(input, ZSTD_LEVEL),
        Compression::Unknown(code) => return Err(CompressionError::UnknownCodec { code }),
    };
    done.map_err(|source| CompressionError::Encode { codec, source })
}

/// Appends what `reader` gives to `out`, which may reach `cap` bytes.
/// [`io::ErrorKind::FileTooLarge`] says that there is more.
pub(super) fn read_capped(reader: &mut impl Read, cap: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let room = cap.saturating_sub(out.len());
    // One byte more than allowed tells "exactly full" from "too much".
    let ask = u64::try_from(room).unwrap_or(u64::MAX).saturating_add(1);
    reader.by_ref().take(ask).read_to_end(out)?;
    if out.len() > cap { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
}

fn zstd(input: &[u8], cap: usize, out: &mut Vec<u8>) -> io::Result<()> {
    if input.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    read_capped(&mut decoder, cap, out)
}

/// Both forms of snappy, told apart by the first eight bytes.
fn snappy(input: &[u8], cap: usize, out: &mut Vec<u8>) -> io::Result<()> {
    if !input.starts_with(&XERIAL_MAGIC) {
        return snappy_block(input, cap, out);
    }
    let cut = |_| io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut cursor = Cursor::new(input);
    while !cursor.is_empty() {
        // The header may come again: streams may be concatenated. Versions are not checked,
        // as snappy-java has only ever had one.
        if cursor.rest().starts_with(&XERIAL_MAGIC) {
            cursor.slice(16).map_err(cut)?;
            continue;
        }
        let length = cursor.i32().map_err(cut)?;
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidData)?;
        snappy_block(cursor.slice(length).map_err(cut)?, cap, out)?;
    }
    Ok(())
}

fn snappy_block(block: &[u8], cap: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let length = snap::raw::decompress_len(block).map_err(io::Error::other)?;
    if length > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let start = out.len();
    let end = start.saturating_add(length);
    if end > cap {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    out.resize(end, 0);
    let room = out.get_mut(start..).unwrap_or_default();
    let filled = snap::raw::Decoder::new().decompress(block, room).map_err(io::Error::other)?;
    if filled == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn xerial(input: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = XERIAL_MAGIC.to_vec();
    // Version of the writer, and the oldest that can read it.
    out.extend_from_slice(&1_i32.to_be_bytes());
    out.extend_from_slice(&1_i32.to_be_bytes());
    for chunk in input.chunks(XERIAL_CHUNK_BYTES) {
        let packed = snap::raw::Encoder::new().compress_vec(chunk).map_err(io::Error::other)?;
        let length = i32::try_from(packed.len()).map_err(io::Error::other)?;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&packed);
    }
    Ok(out)
}

#[cfg(test)]
mod tests;

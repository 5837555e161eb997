//! Kafka's LZ4 frames: the parts that a general frame decoder does not answer for.
//!
//! The decoder of `lz4_flex` takes the end of its input at a block boundary for
//! the end of the frame. So each frame is measured first, and a frame without
//! its end mark is an error and not fewer records.
//!
//! ```text
//!   magic 4 | FLG | BD | [content size 8] | [dictionary 4] | HC | blocks ... | 0 | [checksum 4]
//! ```

use std::io::{self, Read};

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::compression::read_capped;
use super::varint::{Cursor, VarintError};

const FRAME_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const FLG_DICTIONARY: u8 = 0x01;
const FLG_CONTENT_CHECKSUM: u8 = 0x04;
const FLG_CONTENT_SIZE: u8 = 0x08;
const FLG_BLOCK_CHECKSUMS: u8 = 0x10;
/// Longest frame header: all optional fields present.
const HEADER_BYTES_MAX: usize = 19;
/// High bit of a block's size: its content is stored as is.
const BLOCK_STORED: u32 = 0x8000_0000;

/// Decodes all frames of `input`, at most `cap` bytes of output.
///
/// `magic` 0 ignores the header checksum: Kafka computed it over the wrong bytes
/// there and its readers skip it.
pub(super) fn decompress(magic: u8, input: &[u8], cap: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let mut rest = input;
    loop {
        let frame = Frame::measure(rest).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let frame = frame.ok_or(io::ErrorKind::InvalidData)?;
        let (own, behind) = rest.split_at(frame.size_bytes.min(rest.len()));
        let (header, blocks) = own.split_at(frame.header_bytes.min(own.len()));
        let mut patched = [0; HEADER_BYTES_MAX];
        let header = if magic == 0 { right_checksum(header, &mut patched) } else { header };
        let mut decoder = FrameDecoder::new(header.chain(blocks));
        // An empty block looks like an end, too: only the last byte is the end.
        let mut left = usize::MAX;
        while left > 0 {
            read_capped(&mut decoder, cap, out)?;
            let (header, blocks) = decoder.get_ref().get_ref();
            let now = header.len().saturating_add(blocks.len());
            if now >= left {
                return Err(io::ErrorKind::InvalidData.into());
            }
            left = now;
        }
        if behind.is_empty() {
            return Ok(());
        }
        rest = behind;
    }
}

/// Encodes as the Java client does: one frame of independent blocks of 64 KiB,
/// no checksums but the header's, which is the broken one for `magic` 0.
pub(super) fn compress(magic: u8, input: &[u8]) -> io::Result<Vec<u8>> {
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    io::Write::write_all(&mut encoder, input)?;
    let mut frame = encoder.finish().map_err(io::Error::other)?;
    if magic == 0 {
        // Without optional fields the checksum is byte 6; the magic went into it.
        let broken = frame.get(..6).map_or(0, header_checksum);
        if let Some(checksum) = frame.get_mut(6) {
            *checksum = broken;
        }
    }
    Ok(frame)
}

/// Extent of the frame at the front of some bytes.
struct Frame {
    header_bytes: usize,
    size_bytes: usize,
}

impl Frame {
    /// `Ok(None)` if there is no LZ4 frame; an error if the bytes end within it.
    fn measure(input: &[u8]) -> Result<Option<Self>, VarintError> {
        let mut cursor = Cursor::new(input);
        if cursor.array()? != FRAME_MAGIC {
            return Ok(None);
        }
        let [flags, _] = cursor.array()?;
        let has = |flag: u8| flags & flag != 0;
        let optional =
            if has(FLG_CONTENT_SIZE) { 8 } else { 0 } + if has(FLG_DICTIONARY) { 4 } else { 0 } + 1;
        cursor.slice(optional)?;
        let header_bytes = input.len().saturating_sub(cursor.rest().len());
        loop {
            let size = u32::from_le_bytes(cursor.array()?);
            if size == 0 {
                break;
            }
            let stored = usize::try_from(size & !BLOCK_STORED).map_err(|_| VarintError::TooLong)?;
            cursor.slice(stored)?;
            if has(FLG_BLOCK_CHECKSUMS) {
                cursor.slice(4)?;
            }
        }
        if has(FLG_CONTENT_CHECKSUM) {
            cursor.slice(4)?;
        }
        let size_bytes = input.len().saturating_sub(cursor.rest().len());
        Ok(Some(Self { header_bytes, size_bytes }))
    }
}

/// A copy of `header` with the checksum that its descriptor should have.
fn right_checksum<'a>(header: &[u8], copy: &'a mut [u8; HEADER_BYTES_MAX]) -> &'a [u8] {
    let (copy, _) = copy.split_at_mut(header.len().min(HEADER_BYTES_MAX));
    for (to, from) in copy.iter_mut().zip(header) {
        *to = *from;
    }
    if let Some((checksum, descriptor)) = copy.split_last_mut() {
        *checksum = descriptor.get(FRAME_MAGIC.len()..).map_or(0, header_checksum);
    }
    copy
}

/// Second byte of the XXH32 (seed 0) of `bytes`, of which there are fewer than
/// 16: the algorithm's main loop is never entered.
fn header_checksum(bytes: &[u8]) -> u8 {
    const PRIME_1: u32 = 0x9e37_79b1;
    const PRIME_2: u32 = 0x85eb_ca77;
    const PRIME_3: u32 = 0xc2b2_ae3d;
    const PRIME_4: u32 = 0x27d4_eb2f;
    const PRIME_5: u32 = 0x1656_67b1;
    assert!(bytes.len() < 16, "a frame descriptor is short");
    let mut hash = PRIME_5.wrapping_add(u32::try_from(bytes.len()).unwrap_or(0));
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let lane = u32::from_le_bytes(*word).wrapping_mul(PRIME_3);
        hash = hash.wrapping_add(lane).rotate_left(17).wrapping_mul(PRIME_4);
    }
    for byte in tail {
        let lane = u32::from(*byte).wrapping_mul(PRIME_5);
        hash = hash.wrapping_add(lane).rotate_left(11).wrapping_mul(PRIME_1);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(PRIME_2);
    hash = (hash ^ (hash >> 13)).wrapping_mul(PRIME_3);
    hash ^= hash >> 16;
    let [_, second, _, _] = hash.to_le_bytes();
    second
}

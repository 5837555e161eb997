//! Compressed forms that are legal and unusual. Codec numbers are those of the attributes.

use std::io::{self, Write as _};

/// Codec bits of gzip.
pub const GZIP: i16 = 1;
/// Codec bits of snappy.
pub const SNAPPY: i16 = 2;
/// Codec bits of lz4.
pub const LZ4: i16 = 3;
/// Codec bits of zstd.
pub const ZSTD: i16 = 4;

/// First bytes of snappy in Java's frame.
const XERIAL: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];

/// gzip with one member for each of `parts` equal parts.
///
/// # Errors
///
/// The codec's.
pub fn gzip_members(data: &[u8], parts: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    for part in split(data, parts) {
        let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
        encoder.write_all(part)?;
        out = encoder.finish()?;
    }
    Ok(out)
}

/// zstd with one frame for each of `parts` equal parts; no frame says its content size.
///
/// # Errors
///
/// The codec's.
pub fn zstd_frames(data: &[u8], parts: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    for part in split(data, parts) {
        let mut encoder = zstd::stream::write::Encoder::new(out, 3)?;
        encoder.include_contentsize(false)?;
        encoder.write_all(part)?;
        out = encoder.finish()?;
    }
    Ok(out)
}

/// snappy as one raw block, as clients other than Java write it.
///
/// # Errors
///
/// The codec's.
pub fn snappy_raw(data: &[u8]) -> io::Result<Vec<u8>> {
    snap::raw::Encoder::new().compress_vec(data).map_err(io::Error::other)
}

/// snappy in Java's frame, in chunks of `chunk_bytes`.
///
/// # Errors
///
/// The codec's.
pub fn snappy_xerial(data: &[u8], chunk_bytes: usize) -> io::Result<Vec<u8>> {
    let mut out = XERIAL.to_vec();
    for chunk in data.chunks(chunk_bytes.max(1)) {
        let block = snappy_raw(chunk)?;
        out.extend(u32::try_from(block.len()).map_err(io::Error::other)?.to_be_bytes());
        out.extend(block);
    }
    Ok(out)
}

/// What an lz4 frame has beyond Kafka's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lz4Form {
    /// Blocks that refer to earlier ones.
    pub linked: bool,
    /// A checksum of the content at the end.
    pub content_checksum: bool,
    /// That checksum, with a bit turned over.
    pub wrong_checksum: bool,
}

/// lz4 with one frame for each of `parts` equal parts, in blocks of 64 KiB.
///
/// # Errors
///
/// The codec's.
pub fn lz4_frames(data: &[u8], parts: usize, form: Lz4Form) -> io::Result<Vec<u8>> {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

    let mut out = Vec::new();
    for part in split(data, parts) {
        let info = FrameInfo::new()
            .block_size(BlockSize::Max64KB)
            .block_mode(if form.linked { BlockMode::Linked } else { BlockMode::Independent })
            .content_checksum(form.content_checksum || form.wrong_checksum);
        let mut encoder = FrameEncoder::with_frame_info(info, out);
        encoder.write_all(part)?;
        out = encoder.finish().map_err(io::Error::other)?;
        // The content checksum is the frame's last four bytes.
        if let (true, Some(last)) = (form.wrong_checksum, out.last_mut()) {
            *last ^= 1;
        }
    }
    Ok(out)
}

fn split(data: &[u8], parts: usize) -> impl Iterator<Item = &[u8]> {
    data.chunks(data.len().div_ceil(parts.max(1)).max(1))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn data() -> Vec<u8> {
        (0..200_000_u64).map(|i| u8::try_from(i * i % 251).unwrap()).collect()
    }

    #[test]
    fn a_reader_of_all_members_gets_all_and_a_reader_of_one_gets_a_part() {
        let packed = gzip_members(&data(), 3).unwrap();
        let (mut all, mut one) = (Vec::new(), Vec::new());

        flate2::read::MultiGzDecoder::new(&packed[..]).read_to_end(&mut all).unwrap();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut one).unwrap();

        assert_eq!(all, data());
        assert!(one.len() < all.len());
    }

    #[test]
    fn zstd_frames_are_read_one_after_another() {
        let packed = zstd_frames(&data(), 2).unwrap();

        assert_eq!(zstd::stream::decode_all(&packed[..]).unwrap(), data());
    }

    #[test]
    fn a_wrong_content_checksum_is_seen_by_a_decoder_that_looks() {
        let unpack = |form| {
            let packed = lz4_frames(&data(), 1, form).unwrap();
            let mut all = Vec::new();
            lz4_flex::frame::FrameDecoder::new(&packed[..]).read_to_end(&mut all).map(|_| all)
        };
        let good = Lz4Form { linked: true, content_checksum: true, wrong_checksum: false };

        assert_eq!(unpack(good).unwrap(), data());
        assert!(unpack(Lz4Form { wrong_checksum: true, ..good }).is_err());
    }

    #[test]
    fn xerial_chunks_are_raw_blocks_behind_their_length() {
        let packed = snappy_xerial(&data(), 32 * 1024).unwrap();
        let mut rest = &packed[16..];
        let mut all = Vec::new();
        while let Some((length, tail)) = rest.split_first_chunk::<4>() {
            let (block, tail) = tail.split_at(u32::from_be_bytes(*length).try_into().unwrap());
            all.extend(snap::raw::Decoder::new().decompress_vec(block).unwrap());
            rest = tail;
        }

        assert_eq!(all, data());
    }
}

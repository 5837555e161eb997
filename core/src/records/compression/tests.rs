use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use proptest::prelude::*;

use super::*;

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];
const CAP: usize = 1 << 20;

/// Content that packs, but not to nothing; more than one chunk and block.
fn text(bytes: usize) -> Vec<u8> {
    let mut state = 1_u32;
    (0..bytes)
        .map(|at| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if at % 3 == 0 { state.to_le_bytes()[3] } else { b'k' }
        })
        .collect()
}

#[track_caller]
fn check(codec: Compression, magic: u8, packed: &[u8], want: &[u8]) {
    let got = decompress(codec, magic, packed, CAP).unwrap();
    assert!(got == want, "{codec:?}: {} bytes instead of {}", got.len(), want.len());
}

#[track_caller]
fn check_corrupt(codec: Compression, packed: &[u8]) {
    let got = decompress(codec, 2, packed, CAP);
    assert!(matches!(got, Err(CompressionError::Corrupt { .. })), "{codec:?}: {got:?}");
}

fn lz4_frame(info: FrameInfo, input: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(input).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_codec_round_trips() {
    for codec in CODECS {
        for bytes in [1, 100, 32 * 1024, 200_001] {
            for magic in 0..=2 {
                let input = text(bytes);
                check(codec, magic, &compress(codec, magic, &input).unwrap(), &input);
            }
        }
    }
}

#[test]
fn the_cap_is_inclusive_and_holds() {
    for codec in CODECS {
        let packed = compress(codec, 2, &text(100_000)).unwrap();
        assert_eq!(decompress(codec, 2, &packed, 100_000).unwrap().len(), 100_000);
        for cap in [0, 1, 99_999] {
            let got = decompress(codec, 2, &packed, cap);
            let refused = matches!(got, Err(CompressionError::TooLarge { bytes_max, .. })
                if bytes_max == cap);
            assert!(refused, "{codec:?} with {cap}: {got:?}");
        }
    }
}

#[test]
fn several_members_and_frames_are_all_read() {
    let (first, second) = (text(70_000), text(3_000));
    let both = [first.clone(), second.clone()].concat();
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd, Compression::Snappy] {
        let packed = [&first, &second].map(|part| compress(codec, 2, part).unwrap()).concat();
        check(codec, 2, &packed, &both);
    }
    let broken = [&first, &second].map(|part| compress(Compression::Lz4, 0, part).unwrap());
    check(Compression::Lz4, 0, &broken.concat(), &both);
}

#[test]
fn what_is_cut_off_is_an_error() {
    let input = text(150_000);
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let packed = compress(codec, 2, &input).unwrap();
        for cut in
            (0..64).chain((64..packed.len()).step_by(997)).chain(packed.len() - 9..packed.len())
        {
            check_corrupt(codec, &packed[..cut]);
        }
    }
    // LZ4 blocks are behind their sizes: the cut is made exactly between two of them.
    let packed = compress(Compression::Lz4, 2, &input).unwrap();
    let block = usize::try_from(u32::from_le_bytes(packed[7..11].try_into().unwrap())).unwrap();
    check_corrupt(Compression::Lz4, &packed[..11 + (block & 0x7fff_ffff)]);
    let packed = compress(Compression::Snappy, 2, &input).unwrap();
    check_corrupt(Compression::Snappy, &packed[..packed.len() - 1]);
    check_corrupt(Compression::Snappy, &packed[..18]);
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd, Compression::Snappy] {
        check_corrupt(codec, &[]);
    }
}

#[test]
fn garbage_behind_the_content_is_an_error() {
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd, Compression::Snappy] {
        let mut packed = compress(codec, 2, &text(500)).unwrap();
        packed.extend_from_slice(b"\0\0\x7fgarbage");
        check_corrupt(codec, &packed);
    }
}

#[test]
fn snappy_is_read_raw_too() {
    let input = text(100_000);
    let raw = snap::raw::Encoder::new().compress_vec(&input).unwrap();
    check(Compression::Snappy, 2, &raw, &input);
    // Claims 4 GiB in ten bytes.
    let bomb = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0, 0];
    let got = decompress(Compression::Snappy, 2, &bomb, usize::MAX);
    assert!(matches!(got, Err(CompressionError::Corrupt { .. })), "{got:?}");
}

#[test]
fn lz4_frames_may_have_every_option() {
    let input = text(300_000);
    for block_mode in [BlockMode::Linked, BlockMode::Independent] {
        for checksums in [false, true] {
            let info = FrameInfo::new()
                .block_mode(block_mode)
                .block_size(BlockSize::Max64KB)
                .block_checksums(checksums)
                .content_checksum(checksums)
                .content_size(checksums.then_some(300_000));
            let frame = lz4_frame(info, &input);
            check(Compression::Lz4, 2, &frame, &input);
            // A right header checksum is no trouble where Kafka ignores it.
            check(Compression::Lz4, 0, &frame, &input);
        }
    }
}

#[test]
fn a_wrong_lz4_content_checksum_is_seen() {
    let mut frame = lz4_frame(FrameInfo::new().content_checksum(true), &text(1000));
    *frame.last_mut().unwrap() ^= 1;
    check_corrupt(Compression::Lz4, &frame);
}

#[test]
fn an_empty_lz4_block_does_not_end_the_frame() {
    let mut frame = compress(Compression::Lz4, 2, b"abc").unwrap();
    frame.splice(7..7, 0x8000_0000_u32.to_le_bytes());
    check(Compression::Lz4, 2, &frame, b"abc");
}

#[test]
fn the_broken_lz4_header_checksum_is_for_magic_0_only() {
    let broken = compress(Compression::Lz4, 0, b"abc").unwrap();
    // Of Java's writer: version 1, independent blocks of 64 KiB, no checksums.
    assert_eq!(broken[..7], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x1a]);
    assert_eq!(
        compress(Compression::Lz4, 1, b"abc").unwrap()[..7],
        [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]
    );
    check(Compression::Lz4, 0, &broken, b"abc");
    check_corrupt(Compression::Lz4, &broken);
}

#[test]
fn unknown_codecs_are_named() {
    for done in
        [decompress(Compression::Unknown(6), 2, b"", 9), compress(Compression::Unknown(6), 2, b"")]
    {
        assert!(matches!(done, Err(CompressionError::UnknownCodec { code: 6 })), "{done:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        codec in 0_usize..5,
        magic in 0_u8..3,
        real_start in 0_usize..60,
    ) {
        let mut input = compress(CODECS[codec], magic, &text(200)).unwrap();
        input.truncate(real_start);
        input.extend_from_slice(&bytes);
        if let Ok(out) = decompress(CODECS[codec], magic, &input, 10_000) {
            prop_assert!(out.len() <= 10_000);
        }
    }

    #[test]
    fn a_flipped_byte_gives_no_panic(at: prop::sample::Index, flip in 1_u8.., codec in 1_usize..5) {
        let mut packed = compress(CODECS[codec], 2, &text(5_000)).unwrap();
        let at = at.index(packed.len());
        packed[at] ^= flip;
        if let Ok(out) = decompress(CODECS[codec], 2, &packed, 6_000) {
            prop_assert!(out.len() <= 6_000);
        }
    }
}

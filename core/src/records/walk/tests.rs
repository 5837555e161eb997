use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::records::{Compression, ControlType};
use crate::types::{LeaderEpoch, ProducerEpoch, ProducerId, TimestampMs};

const LIMITS: WalkLimits = WalkLimits { batch_bytes_max: 1 << 20, check_crcs: true };

/// A v2 batch of `records_count` records whose bytes are `body`, with a right CRC.
fn batch(base_offset: i64, count: i32, body: &[u8], change: fn(&mut BatchHeader)) -> Vec<u8> {
    let length = LENGTH_V2_MIN + i32::try_from(body.len()).unwrap();
    let mut header = BatchHeader {
        base_offset: base_offset.into(),
        length: length.into(),
        partition_leader_epoch: 3.into(),
        magic: 2,
        crc: 0.into(),
        attributes: 0.into(),
        last_offset_delta: (count - 1).into(),
        base_timestamp_ms: 1_000.into(),
        max_timestamp_ms: 1_001.into(),
        producer_id: 77.into(),
        producer_epoch: 1.into(),
        base_sequence: 5.into(),
        records_count: count.into(),
    };
    change(&mut header);
    let mut bytes = [header.as_bytes(), body].concat();
    let crc = crc32c::crc32c(&bytes[CRC_V2_FROM..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// A v0 or v1 message with a null key.
fn message(offset: i64, magic: u8, attributes: u8, value: &[u8]) -> Vec<u8> {
    let mut checked = vec![magic, attributes];
    if magic == 1 {
        checked.extend_from_slice(&1_234_i64.to_be_bytes());
    }
    checked.extend_from_slice(&(-1_i32).to_be_bytes());
    checked.extend_from_slice(&i32::try_from(value.len()).unwrap().to_be_bytes());
    checked.extend_from_slice(value);
    let length = i32::try_from(checked.len() + 4).unwrap();
    let mut bytes = offset.to_be_bytes().to_vec();
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&checked).to_be_bytes());
    bytes.extend_from_slice(&checked);
    bytes
}

/// The record of a control batch, lengths one byte each.
fn control_record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let zigzag = |length: usize| u8::try_from(2 * length).unwrap();
    let mut body = vec![0, 0, 0, zigzag(key.len())];
    body.extend_from_slice(key);
    body.push(zigzag(value.len()));
    body.extend_from_slice(value);
    body.push(0);
    let mut record = vec![zigzag(body.len())];
    record.extend_from_slice(&body);
    record
}

fn marker(code: u8, coordinator_epoch: u8) -> Vec<u8> {
    control_record(&[0, 0, 0, code], &[0, 0, 0, 0, 0, coordinator_epoch])
}

fn mixed_run() -> Vec<u8> {
    [
        message(5, 0, 0, b"old"),
        message(9, 1, 3, b"a wrapper, codec of its own"),
        batch(10, 4, &[7; 500], |_| {}),
        batch(20, 1, &marker(1, 9), |header| header.attributes = 0x30.into()),
        batch(30, 8, &[], |header| header.records_count = 0.into()),
        batch(38, 1, &[1], |_| {}),
    ]
    .concat()
}

/// Feeds `run` in pieces, each as long as `pieces` says, in turn.
fn walk(run: &[u8], pieces: &[usize]) -> Result<Vec<BatchMeta>, RecordError> {
    let mut walker = BatchWalker::new(LIMITS);
    let mut metas = Vec::new();
    let mut rest = run;
    for length in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (mut piece, behind) = rest.split_at((*length).min(rest.len()));
        rest = behind;
        while !piece.is_empty() {
            let before = walker.pending_bytes();
            let (used, meta) = walker.feed(piece)?;
            assert!(used > 0, "each call moves on");
            assert!(meta.is_some() || used == piece.len(), "without a batch all is consumed");
            if let Some(meta) = meta {
                assert_eq!(before + u64::try_from(used).unwrap(), u64::from(meta.size_bytes));
                assert_eq!((walker.pending_bytes(), walker.remaining_bytes()), (0, None));
                metas.push(meta);
            }
            piece = &piece[used..];
        }
    }
    assert_eq!(walker.pending_bytes(), 0, "the run ends with a batch");
    Ok(metas)
}

#[track_caller]
fn check(bytes: &[u8], want: RecordError) {
    assert_eq!(walk(bytes, &[usize::MAX]), Err(want), "at once");
    assert_eq!(walk(bytes, &[1]), Err(want), "byte by byte");
}

#[test]
fn formats_alternate_and_each_gives_its_facts() {
    let metas = walk(&mixed_run(), &[usize::MAX]).unwrap();
    let seen: Vec<_> = metas.iter().map(|m| (m.magic, m.base_offset.0, m.last_offset.0)).collect();
    assert_eq!(seen, [(0, 5, 5), (1, 9, 9), (2, 10, 13), (2, 20, 20), (2, 30, 37), (2, 38, 38)]);

    assert_eq!(metas[0].max_timestamp, TimestampMs::NONE);
    assert_eq!(metas[0].leader_epoch, LeaderEpoch::NONE);
    assert_eq!(metas[1].max_timestamp, TimestampMs(1_234));
    assert_eq!(metas[1].compression(), Compression::Lz4);
    assert_eq!(metas[1].producer_id, ProducerId::NONE);

    let data = metas[2];
    assert_eq!((data.leader_epoch, data.records_count), (LeaderEpoch(3), 4));
    assert_eq!((data.base_timestamp, data.max_timestamp), (TimestampMs(1_000), TimestampMs(1_001)));
    assert_eq!((data.producer_id, data.producer_epoch), (ProducerId(77), ProducerEpoch(1)));
    assert_eq!((data.base_sequence, data.control), (5, None));

    assert_eq!(metas[3].control, Some(ControlType::Commit));
    assert_eq!(metas[3].coordinator_epoch, 9);
    assert_eq!(metas[4].next_offset(), Offset(38), "an emptied batch keeps its range");
}

#[test]
fn a_batch_under_way_shows_its_facts_and_can_be_dropped() {
    let mut walker = BatchWalker::new(LIMITS);
    let bytes = batch(10, 4, &[7; 500], |_| {});
    assert_eq!(walker.feed(&bytes[..11]), Ok((11, None)));
    assert_eq!((walker.pending_bytes(), walker.remaining_bytes()), (11, None));
    assert_eq!(walker.feed(&bytes[11..60]), Ok((49, None)));
    assert_eq!((walker.remaining_bytes(), walker.current()), (Some(501), None));
    assert_eq!(walker.feed(&bytes[60..100]), Ok((40, None)));
    assert_eq!(walker.current().map(|meta| meta.base_offset), Some(Offset(10)));
    walker.reset();
    assert_eq!((walker.pending_bytes(), walker.current()), (0, None));
    assert_eq!(walker.feed(&bytes).map(|(used, meta)| (used, meta.is_some())), Ok((561, true)));
}

#[test]
fn an_error_stays_until_reset() {
    let mut bytes = batch(10, 4, &[7; 50], |_| {});
    bytes[16] = 9;
    let mut walker = BatchWalker::new(LIMITS);
    let error = walker.feed(&bytes).unwrap_err();
    assert_eq!(error, RecordError::UnknownMagic { base_offset: Offset(10), magic: 9 });
    assert_eq!(walker.feed(&mixed_run()), Err(error));
    walker.reset();
    assert!(walker.feed(&mixed_run()).is_ok());
}

#[test]
fn twelve_zeros_are_a_preallocated_tail() {
    check(&[0; 12], RecordError::ZeroTail);
    check(&[mixed_run(), vec![0; 4096]].concat(), RecordError::ZeroTail);
    let mut almost = [0; 12];
    almost[7] = 1;
    let base_offset = Offset(1);
    check(&almost, RecordError::LengthTooSmall { base_offset, length: 0, length_min: 14 });
}

#[test]
fn lengths_are_checked_before_anything_is_read_for_them() {
    let with_length = |magic: u8, length: i32| {
        let mut bytes = batch(10, 1, &[0; 9], |_| {});
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[16] = magic;
        bytes
    };
    let small = |length, length_min| RecordError::LengthTooSmall {
        base_offset: Offset(10),
        length,
        length_min,
    };
    check(&with_length(2, -1), small(-1, 14));
    check(&with_length(2, i32::MIN), small(i32::MIN, 14));
    check(&with_length(0, 13), small(13, 14));
    check(&with_length(1, 21), small(21, 22));
    check(&with_length(2, 48), small(48, 49));
    let too_large = |size_bytes| RecordError::BatchTooLarge {
        base_offset: Offset(10),
        size_bytes,
        size_bytes_max: 1 << 20,
    };
    check(&with_length(2, i32::MAX), too_large(2_147_483_659));
    check(&with_length(2, (1 << 20) - 11), too_large((1 << 20) + 1));
    let limit = batch(10, 1, &vec![0; (1 << 20) - 61], |_| {});
    assert_eq!(walk(&limit, &[4096]).unwrap()[0].size_bytes, 1 << 20, "the limit is inclusive");
}

#[test]
fn offsets_must_exist() {
    let base_offset = Offset(-1);
    check(&batch(-1, 1, &[], |_| {}), RecordError::NegativeBaseOffset { base_offset });
    check(&message(-1, 1, 0, b""), RecordError::NegativeBaseOffset { base_offset });
    let base_offset = Offset(i64::MAX);
    let overflow = |delta| RecordError::OffsetOverflow { base_offset, last_offset_delta: delta };
    check(&batch(i64::MAX, 2, &[], |_| {}), overflow(0));
    check(&message(i64::MAX, 0, 0, b""), overflow(0));
    check(
        &batch(i64::MAX - 1, 2, &[], |_| {}),
        RecordError::OffsetOverflow { base_offset: Offset(i64::MAX - 1), last_offset_delta: 1 },
    );
    assert!(walk(&batch(i64::MAX - 2, 2, &[], |_| {}), &[7]).is_ok());
    check(
        &batch(4, 1, &[], |header| header.last_offset_delta = (-1).into()),
        RecordError::NegativeLastOffsetDelta { base_offset: Offset(4), last_offset_delta: -1 },
    );
}

#[test]
fn records_must_fit_the_offsets() {
    let wrong = |records_count, last_offset_delta| RecordError::RecordsCount {
        base_offset: Offset(4),
        records_count,
        last_offset_delta,
    };
    check(&batch(4, 3, &[], |header| header.last_offset_delta = 1.into()), wrong(3, 1));
    check(&batch(4, 3, &[], |header| header.records_count = (-1).into()), wrong(-1, 2));
    // A compacted batch has fewer records than offsets.
    let gaps = batch(4, 3, &[], |header| header.last_offset_delta = i32::MAX.into());
    assert_eq!(walk(&gaps, &[5]).unwrap()[0].last_offset, Offset(4 + i64::from(i32::MAX)));
}

#[test]
fn each_covered_byte_is_covered() {
    for good in [batch(10, 4, &[7; 50], |_| {}), message(9, 1, 0, b"abc"), message(9, 0, 0, b"x")] {
        let from = if good[16] == 2 { CRC_V2_FROM } else { CRC_LEGACY_FROM + 1 };
        for at in from..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x04;
            assert!(walk(&bad, &[13]).is_err(), "byte {at} of {}", good.len());
        }
    }
    let mut bad = batch(10, 4, &[7; 50], |_| {});
    let stored = BatchHeader::view(&bad).unwrap().0.crc();
    bad[100] ^= 1;
    let computed = crc32c::crc32c(&bad[21..]);
    check(&bad, RecordError::CrcMismatch { base_offset: Offset(10), stored, computed });

    let unchecked = WalkLimits { check_crcs: false, ..LIMITS };
    assert!(matches!(BatchWalker::new(unchecked).feed(&bad), Ok((111, Some(_)))));
}

#[test]
fn the_leader_epoch_is_not_covered() {
    let mut bytes = batch(10, 4, &[7; 50], |_| {});
    bytes[12..16].copy_from_slice(&8_i32.to_be_bytes());
    assert_eq!(walk(&bytes, &[64]).unwrap()[0].leader_epoch, LeaderEpoch(8));
}

#[test]
fn markers_are_read_and_nonsense_is_refused() {
    let control = |body: &[u8]| batch(4, 1, body, |header| header.attributes = 0x20.into());
    let read = |body: &[u8]| {
        walk(&control(body), &[3])
            .map(|metas| (metas[0].control.unwrap(), metas[0].coordinator_epoch))
    };
    assert_eq!(read(&marker(0, 5)), Ok((ControlType::Abort, 5)));
    assert_eq!(read(&marker(1, 6)), Ok((ControlType::Commit, 6)));
    assert_eq!(read(&control_record(&[0, 0, 0, 7], &[])), Ok((ControlType::MirrorPidReset, -1)));
    assert_eq!(read(&control_record(&[0, 1, 0, 2], &[1])), Ok((ControlType::Other(2), -1)));
    assert_eq!(read(&control_record(&[0, 0, 1, 0], &[])), Ok((ControlType::Other(256), -1)));

    let refused = |body: &[u8], want| {
        let base_offset = Offset(4);
        check(&control(body), RecordError::Control { base_offset, source: want });
    };
    refused(&control_record(&[0, 0, 0], &[]), ControlError::Key { key_bytes: 3 });
    refused(&control_record(&[0xff, 0xff, 0, 0], &[]), ControlError::Version { version: -1 });
    refused(&control_record(&[0, 0, 0, 1], &[0, 0, 1]), ControlError::Value { value_bytes: 3 });
    refused(&[], ControlError::Record(crate::records::VarintError::Short));
    check(
        &batch(4, 1, &marker(0, 5), |header| header.attributes = 0x24.into()),
        RecordError::Control {
            base_offset: Offset(4),
            source: ControlError::Compressed { codec: 4 },
        },
    );

    let emptied = batch(4, 1, &[], |header| {
        header.attributes = 0x30.into();
        header.records_count = 0.into();
    });
    assert_eq!(walk(&emptied, &[9]).unwrap()[0].control, None);
}

#[test]
fn a_long_control_record_is_read_from_its_start() {
    // Key of type 6, then a value of 1,000 bytes, far beyond what is kept.
    let mut body = vec![0x80, 0x10, 0, 0, 0, 8, 0, 0, 0, 6, 0xd0, 0x0f];
    body.resize(body.len() + 1000, 0xaa);
    let bytes = batch(4, 1, &body, |header| header.attributes = 0x20.into());
    assert_eq!(walk(&bytes, &[100]).unwrap()[0].control, Some(ControlType::Other(6)));
}

proptest! {
    #[test]
    fn pieces_change_nothing(pieces in prop::collection::vec(1_usize..300, 1..40)) {
        let whole = walk(&mixed_run(), &[usize::MAX]).unwrap();
        prop_assert_eq!(walk(&mixed_run(), &pieces).unwrap(), whole);
    }

    /// Whatever comes, there is an answer, and bytes are counted right.
    #[test]
    fn any_bytes_are_survived(
        mut bytes in prop::collection::vec(prop_oneof![4 => Just(0_u8), 1 => any::<u8>()], 0..400),
        magic in 0_u8..4,
        length in 0_u8..120,
        piece in 1_usize..90,
        check_crcs: bool,
    ) {
        // Steered into the header's branches; pure noise dies at the length field.
        for (at, value) in [(0, 0), (8, 0), (9, 0), (10, 0), (11, length), (16, magic)] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let mut walker = BatchWalker::new(WalkLimits { batch_bytes_max: 200, check_crcs });
        for mut piece in bytes.chunks(piece) {
            while !piece.is_empty() {
                let Ok((used, meta)) = walker.feed(piece) else {
                    walker.reset();
                    break;
                };
                prop_assert!(used > 0 && used <= piece.len());
                prop_assert!(meta.is_none_or(|meta| meta.size_bytes <= 200));
                piece = &piece[used..];
            }
        }
    }

    #[test]
    fn a_flipped_bit_never_gives_the_same_batches(at in 0_usize..1000, bit in 0_u8..8) {
        let mut run = mixed_run();
        let at = at % run.len();
        run[at] ^= 1 << bit;
        let whole = walk_unfinished(&run, usize::MAX);
        prop_assert_eq!(&whole, &walk_unfinished(&run, 1));
        prop_assert_ne!(whole, walk(&mixed_run(), &[usize::MAX]));
    }
}

/// As `walk`, for runs that may end in the middle of a batch; `piece` bytes at a time.
fn walk_unfinished(mut run: &[u8], piece: usize) -> Result<Vec<BatchMeta>, RecordError> {
    let mut walker = BatchWalker::new(LIMITS);
    let mut metas = Vec::new();
    while !run.is_empty() {
        let (used, meta) = walker.feed(&run[..piece.min(run.len())])?;
        metas.extend(meta);
        run = &run[used..];
    }
    Ok(metas)
}

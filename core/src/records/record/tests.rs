use proptest::prelude::*;

use super::*;
use crate::records::{
    BatchBuilder, BatchWalker, CompressionError, ControlType, LegacyBuilder, LegacyFormat,
    LegacyMessage, NewRecord, WalkLimits, reseal,
};
use crate::types::{LeaderEpoch, ProducerEpoch, ProducerId};

const CAP: usize = 1 << 20;
const LIMITS: WalkLimits = WalkLimits { batch_bytes_max: 1 << 20, check_crcs: true };

/// Splits a run into its batches, each verified.
fn split(mut run: &[u8]) -> Vec<(BatchMeta, &[u8])> {
    let mut walker = BatchWalker::new(LIMITS);
    let mut batches = Vec::new();
    while !run.is_empty() {
        let (used, meta) = walker.feed(run).unwrap();
        let (own, rest) = run.split_at(used);
        batches.push((meta.expect("the run ends with a batch"), own));
        run = rest;
    }
    batches
}

/// The records of a single batch, or what is wrong with it.
fn read(bytes: &[u8]) -> Result<Vec<(i64, i64)>, DecodeReason> {
    let (meta, own) = split(bytes)[0];
    let decoded = DecodedBatch::decode(&meta, own, CAP).map_err(|error| error.reason)?;
    let mut records = decoded.records();
    let mut seen = Vec::new();
    while let Some(record) = records.next() {
        match record {
            Ok(record) => seen.push((record.offset.0, record.timestamp.0)),
            Err(error) => {
                assert_eq!(error.base_offset, meta.base_offset);
                assert!(records.next().is_none(), "an error is the end");
                return Err(error.reason);
            }
        }
    }
    Ok(seen)
}

macro_rules! check_refused {
    ($bytes:expr, $want:pat) => {
        let got = read($bytes);
        assert!(matches!(got, Err($want)), "got {got:?}, want {}", stringify!($want));
    };
}

/// Bytes that Kafka's own `MemoryRecordsBuilder` wrote (kafka-clients 2.8.2): for
/// each format and each codec it has, three records at offsets of 100, 200, …;
/// at last a COMMIT and an ABORT marker.
const OF_KAFKA: &[u8] = include_bytes!("../fixtures/kafka-clients-2.8.2.bin");

#[test]
fn what_kafka_wrote_is_read_in_every_format_and_codec() {
    use Compression::{Gzip, Lz4, None, Snappy, Zstd};

    let batches = split(OF_KAFKA);
    let mut records = Vec::new();
    let mut codecs = Vec::new();
    for (meta, bytes) in &batches {
        codecs.push((meta.magic, meta.compression()));
        let decoded = DecodedBatch::decode(meta, bytes, CAP).unwrap();
        if meta.is_control() {
            continue;
        }
        for record in decoded.records().map(Result::unwrap) {
            let names: Vec<_> =
                record.headers.map(|h| (h.key.to_vec(), h.value.is_some())).collect();
            let key = record.key.map(<[u8]>::to_vec);
            records.push((record.offset.0, record.timestamp.0, key, record.value.map(<[u8]>::len)));
            let with_headers = meta.magic == 2 && record.offset.0 % 100 == 0;
            let want = [(b"h1".to_vec(), true), (b"h2".to_vec(), false)];
            assert_eq!(names, if with_headers { &want[..] } else { &[] });
        }
    }
    codecs.dedup();
    let of = |magic, codecs: &[Compression]| codecs.iter().map(|c| (magic, *c)).collect::<Vec<_>>();
    let want = [
        of(0, &[None, Gzip, Snappy, Lz4]),
        of(1, &[None, Gzip, Snappy, Lz4]),
        of(2, &[None, Gzip, Snappy, Lz4, Zstd, None]),
    ];
    assert_eq!(codecs, want.concat());

    assert_eq!(records.len(), 13 * 3);
    for (group, codec) in records.chunks(3).zip([None, Gzip, Snappy, Lz4].iter().cycle()) {
        let base = group[0].0;
        let time = |at: i64| if base < 500 { -1 } else { at };
        let large = if *codec == None && base < 1300 { 50 } else { 70_000 };
        assert_eq!(
            group,
            [
                (base, time(1_700_000_000_000), Some(b"key".to_vec()), Some(5)),
                (base + 1, time(1_700_000_000_005), Option::None, Some(large)),
                (base + 2, time(1_699_999_999_999), Some(b"tomb".to_vec()), Option::None),
            ]
        );
        assert_eq!(base % 100, 0);
    }
}

#[test]
fn what_kafka_wrote_as_markers_is_read() {
    let batches = split(OF_KAFKA);
    let [(commit, _), (abort, _)] = batches[batches.len() - 2..] else { unreachable!() };
    assert_eq!((commit.control, commit.coordinator_epoch), (Some(ControlType::Commit), 99));
    assert_eq!((abort.control, abort.coordinator_epoch), (Some(ControlType::Abort), 98));
    assert_eq!((commit.producer_id, commit.leader_epoch), (ProducerId(4242), LeaderEpoch(7)));
    assert_eq!(commit.producer_epoch, ProducerEpoch(i16::MAX));
}

const PLAIN: NewRecord<'static> =
    NewRecord { timestamp: TimestampMs(10), key: None, value: Some(b"value"), headers: &[] };

/// A batch at offset 40 of `count` plain records.
fn batch(count: usize) -> BatchBuilder {
    let mut batch = BatchBuilder::new(Offset(40));
    for _ in 0..count {
        batch.push(&PLAIN).unwrap();
    }
    batch
}

#[test]
fn a_shortfall_is_an_error_and_so_is_a_surplus() {
    let three = batch(3);
    let record_bytes = three.records_bytes().len() / 3;
    let two = &three.records_bytes()[..2 * record_bytes];
    check_refused!(
        &three.build_with_body(two).unwrap(),
        DecodeReason::Shortfall { records_count: 3, found: 2 }
    );
    let four = batch(4);
    check_refused!(
        &three.build_with_body(four.records_bytes()).unwrap(),
        DecodeReason::TrailingBytes { records_count: 3, .. }
    );
    check_refused!(
        &three.build_with_body(&two[..two.len() - 1]).unwrap(),
        DecodeReason::Record { index: 1, source: VarintError::Short }
    );
}

/// A body of two gzip members that divide in the middle of a record.
#[test]
fn members_are_joined_before_records_are_read() {
    let three = batch(3).compression(Compression::Gzip);
    let (first, second) = three.records_bytes().split_at(20);
    let pack = |part: &[u8]| crate::records::compress(Compression::Gzip, 2, part).unwrap();
    let both = three.build_with_body(&[pack(first), pack(second)].concat()).unwrap();
    assert_eq!(read(&both).unwrap().len(), 3);
    check_refused!(
        &three.build_with_body(&pack(first)).unwrap(),
        DecodeReason::Record { index: 1, .. }
    );
}

#[test]
fn records_keep_to_their_bounds() {
    let one = batch(1);
    let with = |body: &[u8]| one.build_with_body(body).unwrap();
    // length, attributes, timestamp delta, offset delta, key, value, headers
    assert_eq!(read(&with(&[12, 0, 0, 0, 1, 1, 0])).unwrap(), [(40, 10)]);
    check_refused!(&with(&[12, 0, 0, 2, 1, 1, 0]), DecodeReason::RecordOffset { index: 0, .. });
    check_refused!(&with(&[12, 0, 0, 1, 1, 1, 0]), DecodeReason::RecordOffset { index: 0, .. });
    check_refused!(
        &with(&[14, 0, 0, 0, 1, 1, 0, 9]),
        DecodeReason::RecordSize { index: 0, bytes: 1 }
    );
    check_refused!(
        &with(&[12, 0, 0, 0, 3, 1, 0]),
        DecodeReason::Record { source: VarintError::NegativeLength(-2), .. }
    );
    check_refused!(
        &with(&[12, 0, 0, 0, 1, 1, 1]),
        DecodeReason::Record { source: VarintError::NegativeLength(-1), .. }
    );
    // A header without a name, and two billion headers in no bytes.
    check_refused!(
        &with(&[16, 0, 0, 0, 1, 1, 2, 1, 1]),
        DecodeReason::Record { source: VarintError::NegativeLength(-1), .. }
    );
    check_refused!(
        &with(&[20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f]),
        DecodeReason::Record { source: VarintError::Short, .. }
    );
}

#[test]
fn the_cap_holds_and_sizes_must_agree() {
    let bytes = batch(100).compression(Compression::Zstd).build().unwrap();
    let (meta, own) = split(&bytes)[0];
    let tight = DecodedBatch::decode(&meta, own, 50).unwrap_err();
    assert!(matches!(
        tight.reason,
        DecodeReason::Compression(CompressionError::TooLarge { bytes_max: 50, .. })
    ));
    let short = DecodedBatch::decode(&meta, &own[1..], CAP).unwrap_err();
    assert!(matches!(short.reason, DecodeReason::Size { .. }));
}

fn messages(first: i64, count: i64) -> Vec<LegacyMessage<'static>> {
    let message = |at| LegacyMessage {
        offset: Offset(first + at),
        timestamp: TimestampMs(100 - at),
        key: None,
        value: Some(b"v"),
    };
    (0..count).map(message).collect()
}

/// The bytes of a wrapper, changed by `forge`, with its own checksum right again.
fn wrapper(
    format: LegacyFormat,
    messages: &[LegacyMessage<'_>],
    forge: fn(&mut Vec<u8>),
) -> Vec<u8> {
    let mut builder = LegacyBuilder::new(format);
    builder.wrapper(Compression::Gzip, messages).unwrap();
    let mut bytes = builder.into_bytes();
    forge(&mut bytes);
    let crc = crc32fast::hash(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_be_bytes());
    bytes
}

#[test]
fn offsets_in_wrappers_are_made_absolute() {
    let v1 = |first, forge| wrapper(LegacyFormat::V1, &messages(first, 3), forge);
    assert_eq!(read(&v1(50, |_| {})).unwrap(), [(50, 100), (51, 99), (52, 98)]);
    let v0 = wrapper(LegacyFormat::V0, &messages(50, 3), |_| {});
    assert_eq!(read(&v0).unwrap(), [(50, -1), (51, -1), (52, -1)]);
    // Gaps of compaction, then the log's append time.
    let gaps = [messages(50, 1), messages(57, 2)].concat();
    let mut builder = LegacyBuilder::new(LegacyFormat::V1).log_append_time(TimestampMs(7));
    builder.wrapper(Compression::Lz4, &gaps).unwrap();
    assert_eq!(read(builder.bytes()).unwrap(), [(50, 7), (57, 7), (58, 7)]);

    let at_zero = v1(50, |bytes| bytes[7] = 0);
    assert_eq!(read(&at_zero).unwrap(), [(0, 100), (1, 99), (2, 98)], "of a lax producer");
    check_refused!(
        &v1(50, |bytes| bytes[7] = 1),
        DecodeReason::WrapperOffset { last_inner: Offset(2) }
    );
}

#[test]
fn a_wrapper_holds_plain_messages_only() {
    let mut inner = LegacyBuilder::new(LegacyFormat::V1);
    inner.wrapper(Compression::Gzip, &messages(50, 2)).unwrap();
    let nest = |set: &[u8]| {
        let packed = crate::records::compress(Compression::Gzip, 1, set).unwrap();
        let mut outer = LegacyBuilder::new(LegacyFormat::V1);
        let message = LegacyMessage { value: Some(&packed), ..messages(51, 1)[0] };
        outer.message(&message).unwrap();
        let mut bytes = outer.into_bytes();
        bytes[17] = 1;
        let crc = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_be_bytes());
        bytes
    };
    check_refused!(&nest(inner.bytes()), DecodeReason::NestedTwice { index: 0 });
    check_refused!(&nest(&[]), DecodeReason::EmptyWrapper);
    check_refused!(&nest(&[0; 11]), DecodeReason::Record { index: 0, .. });
    check_refused!(
        &nest(&batch(1).build().unwrap()),
        DecodeReason::InnerMagic { index: 0, magic: 2 }
    );
    let mut one = LegacyBuilder::new(LegacyFormat::V1);
    one.message(&messages(0, 1)[0]).unwrap();
    let mut bad = one.into_bytes();
    *bad.last_mut().unwrap() ^= 1;
    check_refused!(&nest(&bad), DecodeReason::InnerCrc { index: 0, .. });
    check_refused!(
        &wrapper(LegacyFormat::V1, &messages(5, 2), |bytes| {
            bytes.truncate(34);
            bytes[11] = 22;
            bytes[30..].copy_from_slice(&(-1_i32).to_be_bytes());
        }),
        DecodeReason::EmptyWrapper
    );
}

#[test]
fn errors_name_the_offset_and_the_cause() {
    let bytes = batch(2).build_with_body(&[]).unwrap();
    let (meta, own) = split(&bytes)[0];
    let decoded = DecodedBatch::decode(&meta, own, CAP).unwrap();
    let error = decoded.records().next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "records of the batch at offset 40");
    assert_eq!(error.reason.to_string(), "0 records instead of 2");
}

proptest! {
    /// A body of noise behind a right checksum: an answer, and no more records than said.
    #[test]
    fn any_body_is_survived(
        body in prop::collection::vec(prop_oneof![2 => 0_u8..20, 1 => any::<u8>()], 0..200),
        count in 0_usize..6,
        attributes in 0_u8..8,
    ) {
        let mut bytes = batch(count).build_with_body(&body).unwrap();
        bytes[22] = attributes;
        reseal(&mut bytes);
        if let Ok(records) = read(&bytes) {
            prop_assert_eq!(records.len(), count);
        }
    }

    #[test]
    fn any_message_is_survived(
        value in prop::collection::vec(any::<u8>(), 0..100),
        attributes: u8,
        magic in 0_u8..2,
        offset in 0..i64::MAX,
    ) {
        let mut builder = LegacyBuilder::new(LegacyFormat::V1);
        let message = LegacyMessage { value: Some(&value), ..messages(offset, 1)[0] };
        builder.message(&message).unwrap();
        let mut bytes = builder.into_bytes();
        (bytes[16], bytes[17]) = (magic, attributes);
        let crc = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_be_bytes());
        let _ = read(&bytes);
    }

    /// The same for the messages inside a wrapper.
    #[test]
    fn any_inner_set_is_survived(
        set in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..100),
        length in 0_u8..60,
        offset in 0..i64::MAX,
    ) {
        let mut set = set;
        if set.len() > 17 {
            set[8..12].copy_from_slice(&[0, 0, 0, length]);
            let end = set.len().min(12 + usize::from(length));
            let crc = crc32fast::hash(set.get(16..end).unwrap_or_default());
            set[12..16].copy_from_slice(&crc.to_be_bytes());
        }
        let packed = crate::records::compress(Compression::Snappy, 1, &set).unwrap();
        let mut builder = LegacyBuilder::new(LegacyFormat::V1);
        let message = LegacyMessage { value: Some(&packed), ..messages(offset, 1)[0] };
        builder.message(&message).unwrap();
        let mut bytes = builder.into_bytes();
        bytes[17] = 2;
        let crc = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_be_bytes());
        let _ = read(&bytes);
    }
}

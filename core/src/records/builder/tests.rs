use bytes::Bytes;
use kafka_protocol::records::RecordBatchDecoder;
use proptest::prelude::*;

use super::*;
use crate::records::{
    BatchMeta, BatchWalker, ControlType, DecodedBatch, EndTxnMarker, RecordHeader, RecordView,
    WalkLimits, decompress,
};

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];
const CAP: usize = 1 << 22;

/// The one batch that `bytes` are, verified.
fn walk_one(bytes: &[u8]) -> BatchMeta {
    let limits = WalkLimits { batch_bytes_max: 1 << 22, check_crcs: true };
    let (used, meta) = BatchWalker::new(limits).feed(bytes).unwrap();
    assert_eq!(used, bytes.len());
    meta.unwrap()
}

/// A record that owns its bytes, with its offset delta.
#[derive(Clone, Debug)]
struct Owned {
    gap: i32,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

fn owned() -> impl Strategy<Value = Owned> {
    let bytes = || prop::option::of(prop::collection::vec(any::<u8>(), 0..80));
    // Distinct names: the oracle keeps headers in a map.
    let headers = prop::collection::btree_map("[a-z]{0,6}", bytes(), 0..4);
    (0..5_i32, prop_oneof![0..100_i64, any::<i64>()], bytes(), bytes(), headers).prop_map(
        |(gap, timestamp, key, value, headers)| Owned {
            gap,
            timestamp,
            key,
            value,
            headers: headers.into_iter().collect(),
        },
    )
}

fn push_all(batch: &mut BatchBuilder, records: &[Owned]) -> Vec<i32> {
    let mut delta = -1;
    let mut deltas = Vec::new();
    for record in records {
        delta += 1 + record.gap;
        deltas.push(delta);
        let headers: Vec<_> =
            record.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        batch
            .push_at(
                delta,
                &NewRecord {
                    timestamp: TimestampMs(record.timestamp),
                    key: record.key.as_deref(),
                    value: record.value.as_deref(),
                    headers: &headers,
                },
            )
            .unwrap();
    }
    deltas
}

#[track_caller]
fn check_same(view: &RecordView<'_>, want: &Owned) {
    assert_eq!(view.timestamp, TimestampMs(want.timestamp));
    assert_eq!((view.key, view.value), (want.key.as_deref(), want.value.as_deref()));
    let headers: Vec<_> = want
        .headers
        .iter()
        .map(|(name, value)| RecordHeader { key: name.as_bytes(), value: value.as_deref() })
        .collect();
    assert_eq!(view.headers.clone().collect::<Vec<_>>(), headers);
}

proptest! {
    #[test]
    fn what_is_built_is_walked_and_read_back(
        records in prop::collection::vec(owned(), 0..30),
        codec in 0_usize..5,
        base in 0..1_i64 << 40,
        sequence in prop_oneof![Just(-1), 0..100, i32::MAX - 5..=i32::MAX],
    ) {
        let mut batch = BatchBuilder::new(Offset(base))
            .leader_epoch(LeaderEpoch(4))
            .producer(ProducerId(9), ProducerEpoch(2), sequence)
            .compression(CODECS[codec]);
        let deltas = push_all(&mut batch, &records);
        let bytes = batch.build().unwrap();
        let meta = walk_one(&bytes);
        prop_assert_eq!(meta.compression(), CODECS[codec]);
        prop_assert_eq!(meta.records_count, i32::try_from(records.len()).unwrap());
        prop_assert_eq!(meta.last_offset, Offset(base + i64::from(deltas.last().map_or(0, |d| *d))));

        let decoded = DecodedBatch::decode(&meta, &bytes, CAP).unwrap();
        let views: Vec<_> = decoded.records().map(Result::unwrap).collect();
        prop_assert_eq!(views.len(), records.len());
        for ((view, want), delta) in views.iter().zip(&records).zip(&deltas) {
            check_same(view, want);
            prop_assert_eq!(view.offset, Offset(base + i64::from(*delta)));
        }
        prop_assert!(views.last().is_none_or(|view| view.sequence == meta.last_sequence()));
    }

    /// Another implementation reads the same records out of the same bytes.
    #[test]
    fn the_oracle_reads_the_same(
        records in prop::collection::vec(owned(), 1..30),
        codec in 0_usize..5,
    ) {
        // The oracle adds deltas without a wrap.
        let records: Vec<_> = records
            .into_iter()
            .map(|record| Owned { timestamp: record.timestamp >> 2, ..record })
            .collect();
        let mut batch = BatchBuilder::new(Offset(1000))
            .leader_epoch(LeaderEpoch(4))
            .producer(ProducerId(9), ProducerEpoch(2), 50)
            .transactional()
            .compression(CODECS[codec]);
        push_all(&mut batch, &records);
        let bytes = batch.build().unwrap();
        let unpack = |packed: &mut Bytes, _| {
            Ok(Bytes::from(decompress(CODECS[codec], 2, packed, CAP)?))
        };
        let oracle = RecordBatchDecoder::decode_with_custom_compression(
            &mut Bytes::from(bytes.clone()),
            Some(unpack),
        )
        .unwrap();
        let meta = walk_one(&bytes);
        let decoded = DecodedBatch::decode(&meta, &bytes, CAP).unwrap();
        let ours: Vec<_> = decoded.records().map(Result::unwrap).collect();
        prop_assert_eq!(ours.len(), oracle.records.len());
        for (ours, theirs) in ours.iter().zip(&oracle.records) {
            prop_assert_eq!(ours.offset.0, theirs.offset);
            prop_assert_eq!(ours.timestamp.0, theirs.timestamp);
            prop_assert_eq!(ours.sequence, theirs.sequence);
            prop_assert_eq!(ours.key, theirs.key.as_deref());
            prop_assert_eq!(ours.value, theirs.value.as_deref());
            let headers: Vec<_> = theirs
                .headers
                .iter()
                .map(|(key, value)| RecordHeader { key: key.as_bytes(), value: value.as_deref() })
                .collect();
            prop_assert_eq!(ours.headers.clone().collect::<Vec<_>>(), headers);
            prop_assert_eq!(theirs.partition_leader_epoch, meta.leader_epoch.0);
            prop_assert_eq!(theirs.producer_id, meta.producer_id.0);
            prop_assert!(theirs.transactional && meta.is_transactional());
        }
    }
}

const PLAIN: NewRecord<'static> =
    NewRecord { timestamp: TimestampMs(10), key: None, value: Some(b"v"), headers: &[] };

#[test]
fn an_empty_batch_keeps_its_range_and_codec() {
    let bytes = BatchBuilder::new(Offset(40))
        .compression(Compression::Zstd)
        .last_offset_delta(9)
        .build()
        .unwrap();
    let meta = walk_one(&bytes);
    assert_eq!((meta.size_bytes, meta.records_count), (61, 0));
    assert_eq!((meta.last_offset, meta.compression()), (Offset(49), Compression::Zstd));
    assert_eq!(meta.base_timestamp, TimestampMs::NONE);
    assert_eq!(DecodedBatch::decode(&meta, &bytes, 0).unwrap().records().count(), 0);
}

#[test]
fn offsets_rise_and_end_where_they_are_told() {
    let mut batch = BatchBuilder::new(Offset(40)).last_offset_delta(7);
    batch.push_at(3, &PLAIN).unwrap();
    assert!(matches!(
        batch.push_at(3, &PLAIN),
        Err(BuildError::OffsetDelta { delta: 3, delta_min: 4, .. })
    ));
    batch.push(&PLAIN).unwrap();
    let bytes = batch.build().unwrap();
    let meta = walk_one(&bytes);
    assert_eq!((meta.last_offset, meta.records_count), (Offset(47), 2));
    let decoded = DecodedBatch::decode(&meta, &bytes, CAP).unwrap();
    let offsets: Vec<_> = decoded.records().map(|record| record.unwrap().offset.0).collect();
    assert_eq!(offsets, [43, 44]);

    batch.push_at(8, &PLAIN).unwrap();
    assert!(matches!(batch.build(), Err(BuildError::OffsetDelta { delta: 8, delta_max: 7, .. })));
    let mut last = BatchBuilder::new(Offset(0));
    last.push_at(i32::MAX, &PLAIN).unwrap();
    assert!(last.push(&PLAIN).is_err(), "no delta is left");
    assert!(matches!(
        BatchBuilder::new(Offset(-1)).build(),
        Err(BuildError::Offsets(RecordError::NegativeBaseOffset { .. }))
    ));
}

/// Builds one batch of two records at 10 and 2^33, far over 24.8 days apart.
fn timestamps(change: impl Fn(BatchBuilder) -> BatchBuilder) -> (BatchMeta, Vec<i64>) {
    let mut batch = change(BatchBuilder::new(Offset(0)));
    batch.push(&PLAIN).unwrap();
    batch.push(&NewRecord { timestamp: TimestampMs(1 << 33), ..PLAIN }).unwrap();
    let bytes = batch.build().unwrap();
    let meta = walk_one(&bytes);
    let decoded = DecodedBatch::decode(&meta, &bytes, CAP).unwrap();
    let read = decoded.records().map(|record| record.unwrap().timestamp.0).collect();
    (meta, read)
}

#[test]
fn timestamps_survive_every_base() {
    let (meta, read) = timestamps(|batch| batch);
    assert_eq!((meta.base_timestamp.0, meta.max_timestamp.0), (10, 1 << 33));
    assert_eq!(read, [10, 1 << 33]);

    let (meta, read) = timestamps(|batch| batch.delete_horizon(TimestampMs(1 << 40)));
    assert!(meta.has_delete_horizon());
    assert_eq!((meta.base_timestamp.0, meta.max_timestamp.0), (1 << 40, 1 << 33));
    assert_eq!(read, [10, 1 << 33], "the horizon shifts no record");

    let (meta, read) = timestamps(|batch| batch.log_append_time(TimestampMs(77)));
    assert!(meta.is_log_append_time());
    assert_eq!((meta.max_timestamp.0, read), (77, vec![77, 77]));
}

#[test]
fn sequences_wrap_behind_the_largest() {
    let mut batch =
        BatchBuilder::new(Offset(5)).producer(ProducerId(1), ProducerEpoch(0), i32::MAX - 1);
    for _ in 0..3 {
        batch.push(&PLAIN).unwrap();
    }
    let bytes = batch.build().unwrap();
    let meta = walk_one(&bytes);
    let decoded = DecodedBatch::decode(&meta, &bytes, CAP).unwrap();
    let sequences: Vec<_> = decoded.records().map(|record| record.unwrap().sequence).collect();
    assert_eq!(sequences, [i32::MAX - 1, i32::MAX, 0]);
    assert_eq!(meta.last_sequence(), 0);
}

#[test]
fn markers_are_built_for_the_last_producer_epoch_too() {
    let marker = EndTxnMarker {
        offset: Offset(8),
        leader_epoch: LeaderEpoch(6),
        producer_id: ProducerId(900_001),
        producer_epoch: ProducerEpoch(i16::MAX),
        coordinator_epoch: 12,
        committed: false,
        timestamp: TimestampMs(99),
    };
    let meta = walk_one(&marker.build().unwrap());
    assert!(meta.is_control() && meta.is_transactional());
    assert_eq!((meta.control, meta.coordinator_epoch), (Some(ControlType::Abort), 12));
    assert_eq!((meta.producer_epoch, meta.base_sequence), (ProducerEpoch(i16::MAX), -1));
    let meta = walk_one(&EndTxnMarker { committed: true, ..marker }.build().unwrap());
    assert_eq!(meta.control, Some(ControlType::Commit));
}

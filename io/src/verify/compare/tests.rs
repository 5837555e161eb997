use heliostat_core::records::{
    BatchBuilder, BatchWalker, Compression, NewRecord, WalkLimits, reseal,
};
use heliostat_core::types::{LeaderEpoch, Offset, TimestampMs};

use super::*;

struct Made {
    meta: BatchMeta,
    bytes: Vec<u8>,
}

impl Made {
    fn of(bytes: Vec<u8>) -> Self {
        let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
        let (_, meta) = BatchWalker::new(limits).feed(&bytes).unwrap();
        Self { meta: meta.unwrap(), bytes }
    }

    fn batch(&self) -> Batch<'_> {
        Batch { meta: &self.meta, bytes: &self.bytes }
    }
}

/// A batch of offsets `base` to `base + 3`, of which `keep` are there.
fn batch(base: i64, keep: &[i32]) -> Made {
    batch_with(base, keep, b"value", |batch| batch)
}

fn batch_with(
    base: i64,
    keep: &[i32],
    value: &[u8],
    more: impl Fn(BatchBuilder) -> BatchBuilder,
) -> Made {
    let batch = BatchBuilder::new(Offset(base)).leader_epoch(LeaderEpoch(3));
    let mut batch = more(batch.compression(Compression::Lz4).last_offset_delta(3));
    for delta in keep {
        let record = NewRecord {
            timestamp: TimestampMs(1_000 + i64::from(*delta)),
            key: Some(b"k"),
            value: Some(value),
            headers: &[],
        };
        batch.push_at(*delta, &record).unwrap();
    }
    Made::of(batch.build().unwrap())
}

fn compared(copy: &[&Made], source: &[&Made], may_be_cleaned: bool) -> Verdict {
    let copy: Vec<_> = copy.iter().map(|made| made.batch()).collect();
    let source: Vec<_> = source.iter().map(|made| made.batch()).collect();
    compare(&copy, &source, may_be_cleaned, &|offset| offset.0 >= 100)
}

fn found(verdict: Verdict) -> Difference {
    match verdict {
        Verdict::Different(found) => found,
        Verdict::Cleaned { .. } => panic!("{verdict:?}"),
    }
}

#[test]
fn fewer_records_at_the_source_are_the_cleaners_work() {
    let (whole, cleaned) = (batch(8, &[0, 1, 2, 3]), batch(8, &[1, 3]));
    assert_eq!(compared(&[&whole], &[&cleaned], true), Verdict::Cleaned { records: 2 });
    assert_eq!(compared(&[&whole], &[], true), Verdict::Cleaned { records: 4 });
    let empty = batch(8, &[]);
    assert_eq!(compared(&[&whole], &[&empty], true), Verdict::Cleaned { records: 4 });
    // Two batches that became one.
    let (left, right) = (batch(8, &[0, 1]), batch(12, &[0]));
    assert_eq!(
        compared(&[&left, &right], &[&batch(8, &[1])], true),
        Verdict::Cleaned { records: 2 }
    );
}

#[test]
fn a_batch_that_the_cleaner_emptied_has_no_codec() {
    let uncompressed =
        |keep: &[i32]| batch_with(8, keep, b"value", |batch| batch.compression(Compression::None));
    let whole = batch(8, &[0, 1]);
    let emptied = compared(&[&whole], &[&uncompressed(&[])], true);
    assert_eq!(emptied, Verdict::Cleaned { records: 2 });
    let found = found(compared(&[&whole], &[&uncompressed(&[1])], true));
    assert_eq!(found.field, "attributes of the batch");
}

#[test]
fn a_topic_without_a_cleaner_loses_nothing() {
    let found = found(compared(&[&batch(8, &[0, 1, 2])], &[&batch(8, &[0, 2])], false));
    assert_eq!((found.offset, found.field.as_str()), (Some(Offset(9)), "record"));
}

#[test]
fn a_record_that_only_the_source_has_is_a_difference_unless_the_gap_is_known() {
    let found = found(compared(&[&batch(8, &[0, 1])], &[&batch(8, &[0, 1, 2])], true));
    assert_eq!((found.offset, found.copy.as_str()), (Some(Offset(10)), "none"));
    assert_eq!(compared(&[], &[&batch(100, &[0, 1])], true), Verdict::Cleaned { records: 0 });
}

#[test]
fn other_values_are_named_with_both() {
    let (copy, source) = (batch(8, &[0, 1]), batch_with(8, &[0, 1], b"vAlue", |batch| batch));
    let found = found(compared(&[&copy], &[&source], true));
    assert_eq!(found.offset, Some(Offset(8)));
    assert_eq!(found.field, "value");
    assert_eq!(found.copy, "0x616c7565 at byte 1");
    assert_eq!(found.source, "0x416c7565 at byte 1");
}

#[test]
fn what_no_cleaner_changes_is_a_difference() {
    let (copy, cleaned) = (batch(8, &[0, 1]), |epoch| {
        batch_with(8, &[1], b"value", |batch| batch.leader_epoch(LeaderEpoch(epoch)))
    });
    assert_eq!(compared(&[&copy], &[&cleaned(3)], true), Verdict::Cleaned { records: 1 });
    let found = found(compared(&[&copy], &[&cleaned(4)], true));
    assert_eq!(found.field, "partitionLeaderEpoch of the batch");
    assert_eq!((found.copy.as_str(), found.source.as_str()), ("3", "4"));
}

#[test]
fn a_delete_horizon_alone_is_the_cleaners_work_and_other_bytes_are_not() {
    let copy = batch(8, &[0, 1]);
    let marked = batch_with(8, &[0, 1], b"value", |batch| batch.delete_horizon(TimestampMs(500)));
    assert_eq!(compared(&[&copy], &[&marked], true), Verdict::Cleaned { records: 0 });

    // The same records, otherwise encoded.
    let mut other = copy.bytes.clone();
    other[42] ^= 1;
    reseal(&mut other);
    let found = found(compared(&[&copy], &[&Made::of(other)], true));
    assert_eq!(found.field, "crc of the batch");
}

#[test]
fn bytes_are_named_by_their_field() {
    let copy = batch(8, &[0, 1]);
    let flipped = |at: usize| {
        let mut bytes = copy.bytes.clone();
        bytes[at] ^= 0x80;
        byte_difference(Offset(8), &bytes, &copy.bytes)
    };
    assert_eq!(flipped(13).field, "partitionLeaderEpoch of the batch");
    assert_eq!((flipped(13).copy.as_str(), flipped(13).source.as_str()), ("8388611", "3"));
    assert_eq!(flipped(43).field, "producerId of the batch");
    assert!(flipped(43).copy.starts_with("922"), "{:?}", flipped(43));
    assert!(flipped(17).copy.starts_with("0x"));
    assert_eq!(flipped(61).field, "records, byte 61 of the batch");
    let shorter = byte_difference(Offset(8), &copy.bytes[..62], &copy.bytes);
    assert_eq!(shorter.copy, "nothing");
}

#[test]
fn a_batch_that_cannot_be_decoded_is_named() {
    let mut bytes = batch(8, &[0, 1]).bytes;
    let last = bytes.len() - 5;
    bytes[last] ^= 0xff;
    bytes[last - 1] ^= 0xff;
    reseal(&mut bytes);
    let made = Made::of(bytes);
    assert!(unreadable(made.batch()).is_some());
    assert_eq!(unreadable(batch(8, &[0, 1]).batch()), None);
}

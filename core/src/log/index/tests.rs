use proptest::prelude::*;

use super::*;
use crate::log::config::LogConfigValues;
use crate::log::test_batch::batch;

const BASE: Offset = Offset(1_000);

fn config(index_bytes: i64, interval: i64) -> LogConfig {
    LogConfig::new(LogConfigValues {
        segment_index_bytes: index_bytes,
        index_interval_bytes: interval,
        ..LogConfigValues::default()
    })
    .unwrap()
}

fn offset_entry(offset: i64, position: u32) -> OffsetEntry {
    OffsetEntry { offset: Offset(offset), position }
}

fn time_entry(timestamp: i64, offset: i64) -> TimeEntry {
    TimeEntry { timestamp: TimestampMs(timestamp), offset: Offset(offset) }
}

/// Interval 250, batches of 100 bytes: an entry needs more than 250 bytes since
/// the last one, so the fourth batch (300 bytes before it) makes one, and then
/// every third (that batch's own 100 bytes count again).
#[test]
fn entries_come_after_more_than_the_interval() {
    let mut it = SegmentIndexes::new(BASE, &config(1_000, 250));
    let mut made = Vec::new();
    for index in 0..8_u32 {
        let base = 1_000 + i64::from(index) * 10;
        let meta = batch(base, base + 9).time(i64::from(index)).meta();
        if let Some((entry, time)) = it.on_batch(&meta, index * 100) {
            made.push((entry, time));
        }
    }
    assert_eq!(
        made,
        [
            (offset_entry(1_039, 300), Some(time_entry(3, 1_039))),
            (offset_entry(1_069, 600), Some(time_entry(6, 1_069))),
        ]
    );
    assert_eq!(it.final_time_entry(), Some(time_entry(7, 1_079)));
    assert_eq!(it.final_time_entry(), None);
}

#[test]
fn exactly_the_interval_is_not_more() {
    let mut it = SegmentIndexes::new(BASE, &config(1_000, 100));
    assert_eq!(it.on_batch(&batch(1_000, 1_000).meta(), 0), None);
    assert_eq!(it.on_batch(&batch(1_001, 1_001).meta(), 100), None);
    assert!(it.on_batch(&batch(1_002, 1_002).meta(), 200).is_some());
}

#[test]
fn time_entries_name_the_batch_with_the_largest_timestamp() {
    let mut it = SegmentIndexes::new(BASE, &config(1_000, 50));
    let mut on = |base: i64, time: i64| {
        let position = u32::try_from(base - 1_000).unwrap() * 100;
        it.on_batch(&batch(base, base).time(time).meta(), position).and_then(|(_, time)| time)
    };
    assert_eq!(on(1_000, 70), None, "no offset entry, so no time entry");
    assert_eq!(on(1_001, 60), Some(time_entry(70, 1_000)), "the older batch is the youngest");
    assert_eq!(on(1_002, 70), None, "not above the last entry");
    assert_eq!(on(1_003, -1), None);
    assert_eq!(on(1_004, 90), Some(time_entry(90, 1_004)));
    assert_eq!(it.final_time_entry(), None);
}

#[test]
fn batches_without_timestamps_leave_the_time_index_empty() {
    let mut it = SegmentIndexes::new(BASE, &config(1_000, 0));
    for base in 1_000..1_010 {
        let entries = it.on_batch(&batch(base, base).magic(0).time(-1).meta(), 0);
        assert!(entries.is_none_or(|(_, time)| time.is_none()));
    }
    assert_eq!(it.final_time_entry(), None);
    assert_eq!(it.max_timestamp(), time_entry(-1, 1_000));
}

/// 40 bytes: five offset entries, three time entries of which one is kept for the roll.
#[test]
fn fullness_keeps_a_place_for_the_final_time_entry() {
    let mut it = SegmentIndexes::new(BASE, &config(40, 0));
    let mut made = 0;
    for index in 0..20_u32 {
        let base = 1_000 + i64::from(index);
        let entries = it.on_batch(&batch(base, base).time(base).meta(), index * 100);
        made += u32::from(entries.is_some());
        assert_eq!(it.is_time_index_full(), made >= 2, "{index}");
        assert_eq!(it.is_offset_index_full(), made >= 5, "{index}");
    }
    assert_eq!(made, 5);
    assert_eq!(it.final_time_entry(), Some(time_entry(1_019, 1_019)));
}

#[test]
fn bytes_are_kafkas() {
    let entry = offset_entry(1_000 + 0x0102, 0x0a0b_0c0d);
    assert_eq!(entry.encode(BASE), [0, 0, 1, 2, 0x0a, 0x0b, 0x0c, 0x0d]);
    let entry = time_entry(0x0102_0304_0506, 1_007);
    assert_eq!(entry.encode(BASE), [0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0, 7]);
    assert_eq!(relative_offset(BASE, Offset(1_000 + i64::from(i32::MAX))), Some(2_147_483_647));
    assert_eq!(relative_offset(BASE, Offset(1_001 + i64::from(i32::MAX))), None);
    assert_eq!(relative_offset(BASE, Offset(999)), None);
}

fn offset_file(entries: &[(i64, u32)]) -> Vec<u8> {
    entries.iter().flat_map(|&(offset, at)| offset_entry(offset, at).encode(BASE)).collect()
}

fn time_file(entries: &[(i64, i64)]) -> Vec<u8> {
    entries.iter().flat_map(|&(time, offset)| time_entry(time, offset).encode(BASE)).collect()
}

#[test]
fn look_ups_find_the_largest_entry_at_or_below() {
    let bytes = offset_file(&[(1_010, 100), (1_020, 300), (1_030, 500)]);
    let it = OffsetIndexFile::parse(BASE, &bytes).unwrap();
    assert_eq!(it.lookup(Offset(1_009)), offset_entry(1_000, 0));
    assert_eq!(it.lookup(Offset(1_010)), offset_entry(1_010, 100));
    assert_eq!(it.lookup(Offset(1_029)), offset_entry(1_020, 300));
    assert_eq!(it.lookup(Offset(9_999)), offset_entry(1_030, 500));
    let bytes = time_file(&[(50, 1_010), (60, 1_030)]);
    let it = TimeIndexFile::parse(BASE, &bytes).unwrap();
    assert_eq!(it.lookup(TimestampMs(49)), time_entry(-1, 1_000));
    assert_eq!(it.lookup(TimestampMs(59)), time_entry(50, 1_010));
    assert_eq!(it.lookup(TimestampMs(60)), time_entry(60, 1_030));
}

#[test]
fn truncation_drops_entries_at_and_behind_the_end() {
    let bytes = offset_file(&[(1_010, 100), (1_020, 300), (1_030, 500)]);
    let it = OffsetIndexFile::parse(BASE, &bytes).unwrap();
    assert_eq!(it.bytes_below(Offset(1_010)), 0);
    assert_eq!(it.bytes_below(Offset(1_020)), 8);
    assert_eq!(it.bytes_below(Offset(1_021)), 16);
    assert_eq!(it.bytes_below(Offset(5_000)), 24);
    let bytes = time_file(&[(50, 1_010), (60, 1_030)]);
    let it = TimeIndexFile::parse(BASE, &bytes).unwrap();
    assert_eq!(it.bytes_below(Offset(1_030)), 12);
}

#[test]
fn a_preallocated_tail_is_no_entry() {
    let mut bytes = offset_file(&[(1_010, 100)]);
    bytes.resize(800, 0);
    let it = OffsetIndexFile::parse(BASE, &bytes).unwrap();
    assert_eq!((it.len(), it.padding_bytes()), (1, 792));
    let it = OffsetIndexFile::parse(BASE, &[0; 8]).unwrap();
    assert_eq!((it.len(), it.padding_bytes()), (0, 8));
    // Timestamp 0 at the segment's base is a legal only entry.
    let it = TimeIndexFile::parse(BASE, &[0; 12]).unwrap();
    assert_eq!((it.last(), it.padding_bytes()), (Some(time_entry(0, 1_000)), 0));
    let it = TimeIndexFile::parse(BASE, &[0; 24]).unwrap();
    assert_eq!((it.len(), it.padding_bytes()), (0, 24));
    let mut bytes = time_file(&[(0, 1_000), (5, 1_001)]);
    bytes.resize(48, 0);
    let it = TimeIndexFile::parse(BASE, &bytes).unwrap();
    assert_eq!((it.len(), it.padding_bytes()), (2, 24));
}

#[test]
fn damage_is_named() {
    let check = |bytes: &[u8], message: &str| {
        assert_eq!(OffsetIndexFile::parse(BASE, bytes).unwrap_err().to_string(), message);
    };
    check(&[0; 9], "offset index: 9 bytes, want a head of 0 and entries of 8");
    check(
        &offset_file(&[(1_010, 100), (1_010, 200)]),
        "offset index, entry 1: want an offset above that of the entry before, got 1010",
    );
    check(
        &offset_file(&[(1_010, 100), (1_020, 100)]),
        "offset index, entry 1: want a position above that of the entry before, got 100",
    );
    check(&[0xff; 8], "offset index, entry 0: want a relative offset that is not negative, got -1");
    let bytes = time_file(&[(60, 1_010), (60, 1_020)]);
    assert_eq!(
        TimeIndexFile::parse(BASE, &bytes).unwrap_err().to_string(),
        "time index, entry 1: want a timestamp above that of the entry before, got 60"
    );
}

#[test]
fn a_resumed_segment_goes_on_where_its_files_end() {
    let config = config(1_000, 50);
    let offsets = offset_file(&[(1_010, 100)]);
    let times = time_file(&[(70, 1_010)]);
    let mut it = SegmentIndexes::resume(
        BASE,
        &config,
        &OffsetIndexFile::parse(BASE, &offsets).unwrap(),
        &TimeIndexFile::parse(BASE, &times).unwrap(),
    );
    assert_eq!(it.final_time_entry(), None);
    it.on_timestamp(&batch(1_011, 1_015).time(80).meta());
    assert_eq!(it.on_batch(&batch(1_016, 1_016).time(60).meta(), 300), None);
    assert_eq!(
        it.on_batch(&batch(1_017, 1_017).time(60).meta(), 400),
        Some((offset_entry(1_017, 400), Some(time_entry(80, 1_015))))
    );
}

proptest! {
    /// Whatever batches come, the files that result are legal, and a look-up never
    /// starts behind the batch that holds the target.
    #[test]
    fn files_that_appends_make_are_legal(
        batches in prop::collection::vec((1..5_i64, 0..3_i64, 60..300_u32, -1..50_i64), 1..60),
        interval in 0..600_i64,
    ) {
        let mut it = SegmentIndexes::new(BASE, &config(10_000, interval));
        let (mut offsets, mut times) = (Vec::new(), Vec::new());
        let (mut next, mut position) = (BASE.0, 0);
        let mut log = Vec::new();
        for (records, gap, size, time) in batches {
            let base = next + gap;
            let meta = batch(base, base + records - 1).size(size).time(time).meta();
            if let Some((entry, time)) = it.on_batch(&meta, position) {
                offsets.extend(entry.encode(BASE));
                times.extend(time.into_iter().flat_map(|entry| entry.encode(BASE)));
            }
            log.push((meta, position));
            next = base + records;
            position += size;
        }
        times.extend(it.final_time_entry().into_iter().flat_map(|entry| entry.encode(BASE)));
        let offsets = OffsetIndexFile::parse(BASE, &offsets).unwrap();
        let times = TimeIndexFile::parse(BASE, &times).unwrap();
        let youngest = log.iter().map(|(meta, _)| meta.max_timestamp).max();
        prop_assert_eq!(youngest, Some(it.max_timestamp().timestamp));
        prop_assert_eq!(times.last().map(|last| last.timestamp), youngest.filter(|t| t.0 >= 0));
        for (meta, at) in &log {
            prop_assert!(offsets.lookup(meta.base_offset).position <= *at);
            let entry = times.lookup(meta.max_timestamp);
            // The floor, with timestamp -1, promises nothing.
            let promised = |last: Offset| entry.timestamp.0 >= 0 && last <= entry.offset;
            let earlier = log.iter().filter(|(other, _)| promised(other.last_offset));
            for (other, _) in earlier {
                prop_assert!(other.max_timestamp <= entry.timestamp);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, base: i64, target: i64) {
        if let Ok(it) = OffsetIndexFile::parse(Offset(base), &bytes) {
            let _ = (it.lookup(Offset(target)), it.bytes_below(Offset(target)), it.last());
            prop_assert_eq!(it.iter().count(), it.len());
        }
        if let Ok(it) = TimeIndexFile::parse(Offset(base), &bytes) {
            let _ = (it.lookup(TimestampMs(target)), it.bytes_below(Offset(target)), it.last());
            prop_assert_eq!(it.iter().count(), it.len());
        }
    }
}

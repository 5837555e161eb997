//! What is printed for files made here; that Kafka prints the same is tested with Kafka.

use super::*;
use crate::records::{BatchBuilder, Compression, EndTxnMarker, MirrorPidReset, NewRecord};
use crate::types::{LeaderEpoch, ProducerEpoch, ProducerId, TimestampMs};

const LOG: &str = "/x/t-0/00000000000000000010.log";
const INDEX: &str = "/x/t-0/00000000000000000010.index";
const TIME_INDEX: &str = "/x/t-0/00000000000000000010.timeindex";

fn batch(base: i64, codec: Compression, values: &[&[u8]]) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Offset(base)).leader_epoch(LeaderEpoch(3)).compression(codec);
    for (index, value) in values.iter().enumerate() {
        let timestamp = TimestampMs(1_000 + base + i64::try_from(index).unwrap());
        batch
            .push(&NewRecord {
                timestamp,
                key: (index > 0).then_some(b"k".as_slice()),
                value: Some(value),
                headers: &[],
            })
            .unwrap();
    }
    batch.build().unwrap()
}

fn marker(offset: i64) -> Vec<u8> {
    let marker = EndTxnMarker {
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(3),
        producer_id: ProducerId(7),
        producer_epoch: ProducerEpoch(1),
        coordinator_epoch: 5,
        committed: false,
        timestamp: TimestampMs(2_000),
    };
    marker.build().unwrap()
}

fn segment() -> Vec<u8> {
    let mut log = batch(10, Compression::None, &[b"a", b"bb"]);
    log.extend(batch(12, Compression::Zstd, &[b"c"]));
    log.extend(marker(13));
    log
}

struct Dumped {
    lines: Vec<String>,
    complaints: Vec<String>,
    is_clean: bool,
}

fn dumped(run: impl FnOnce(Out<'_>, &mut Findings)) -> Dumped {
    let (mut out, mut findings, mut complaints) = (Vec::new(), Findings::default(), Vec::new());
    run(&mut out, &mut findings);
    findings.print(&mut complaints).unwrap();
    let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
    Dumped { lines: lines(&out), complaints: lines(&complaints), is_clean: findings.is_clean() }
}

fn dumped_log(log: &[u8], options: DumpOptions) -> Dumped {
    dumped(|out, findings| {
        dump_log(Named::new(LOG).unwrap(), &log, &options, out, findings).unwrap();
    })
}

const DEEP: DumpOptions = DumpOptions {
    deep_iteration: true,
    print_data: true,
    decoder: RecordDecoder::Text,
    skip_record_metadata: false,
    index_sanity_only: false,
    verify_index_only: false,
    is_live: false,
};

#[test]
fn batches_and_records_have_kafkas_shape() {
    let dump = dumped_log(&segment(), DEEP);

    assert!(dump.is_clean, "{:?}", dump.complaints);
    assert_eq!(dump.lines[0], "Log starting offset: 10");
    let crc = u32::from_be_bytes(segment()[17..21].try_into().unwrap());
    assert_eq!(
        dump.lines[1],
        format!(
            "baseOffset: 10 lastOffset: 11 count: 2 baseSequence: -1 lastSequence: -1 producerId: \
             -1 producerEpoch: -1 partitionLeaderEpoch: 3 isTransactional: false isControl: false \
             deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1011 size: 79 magic: 2 \
             compresscodec: none crc: {crc} isvalid: true"
        )
    );
    assert_eq!(
        dump.lines[2],
        "| offset: 10 CreateTime: 1010 keySize: -1 valueSize: 1 sequence: -1 headerKeys: [] \
         payload: a"
    );
    assert_eq!(
        dump.lines[3],
        "| offset: 11 CreateTime: 1011 keySize: 1 valueSize: 2 sequence: -1 headerKeys: [] key: \
         k payload: bb"
    );
    assert!(dump.lines[4].contains(" compresscodec: zstd "), "{}", dump.lines[4]);
    assert!(dump.lines[6].contains("isTransactional: true isControl: true"));
    assert_eq!(
        dump.lines[7],
        "| offset: 13 CreateTime: 2000 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] \
         endTxnMarker: ABORT coordinatorEpoch: 5"
    );
}

/// A released Kafka does not know the type and says so; the number tells.
#[test]
fn a_pid_reset_is_a_control_record_of_an_unknown_type() {
    let reset = MirrorPidReset {
        offset: Offset(10),
        leader_epoch: LeaderEpoch(4),
        source_cluster_id: "src",
        timestamp: TimestampMs(3_000),
    };
    let dump = dumped_log(&reset.build().unwrap(), DEEP);
    assert!(dump.is_clean, "{:?}", dump.complaints);
    assert!(dump.lines[1].contains("producerId: -1 producerEpoch: -1 partitionLeaderEpoch: 4"));
    assert!(dump.lines[1].contains("isTransactional: false isControl: true"));
    assert_eq!(
        dump.lines[2],
        "| offset: 10 CreateTime: 3000 keySize: 4 valueSize: 7 sequence: -1 headerKeys: [] \
         controlType: UNKNOWN(7)"
    );
}

/// A quorum's control record of type `code`, as a leader writes it.
fn control(code: i16, value: &[u8]) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Offset(10)).leader_epoch(LeaderEpoch(4)).control();
    let key = [[0, 0], code.to_be_bytes()].concat();
    let (key, value) = (Some(key.as_slice()), Some(value));
    batch.push(&NewRecord { timestamp: TimestampMs(3_000), key, value, headers: &[] }).unwrap();
    batch.build().unwrap()
}

#[test]
fn control_records_of_a_quorum_are_shown() {
    let shown = |code, value: &[u8]| {
        let dump = dumped_log(&control(code, value), DEEP);
        assert!(dump.is_clean, "{:?}", dump.complaints);
        dump.lines[2].split_once("headerKeys: [] ").unwrap().1.to_owned()
    };
    assert_eq!(
        shown(2, b"\0\0\0\0\0\x07\x02\0\0\0\x07\0\x02\0\0\0\x07\0\0"),
        r#"LeaderChange: {"version":0,"leaderId":7,"voters":[{"voterId":7}],"#.to_owned()
            + r#""grantingVoters":[{"voterId":7}]}"#
    );
    assert_eq!(
        shown(3, b"\0\0\0\0\0\0\0\0\x01\x02\0"),
        r#"SnapshotHeader {"version":0,"lastContainedLogTimestamp":258}"#
    );
    assert_eq!(shown(4, b"\0\0\0"), r#"SnapshotFooter {"version":0}"#);
    // What is not known here is told by its number.
    assert_eq!(shown(2, b"\0\x01\0\0"), "controlType: LEADER_CHANGE(2)");
    assert_eq!(shown(5, b"\0\0\0\x01\0"), "controlType: KRAFT_VERSION(5)");
}

#[test]
fn a_flipped_byte_is_an_invalid_batch() {
    let mut log = segment();
    log[78] ^= 1;
    let dump = dumped_log(&log, DumpOptions::default());
    assert!(!dump.is_clean);
    assert!(dump.lines[1].ends_with("isvalid: false"), "{}", dump.lines[1]);
    assert!(dump.lines[2].ends_with("isvalid: true"), "{}", dump.lines[2]);
}

#[test]
fn a_preallocated_tail_is_no_damage() {
    let mut log = segment();
    log.extend([0; 5_000]);
    let dump = dumped_log(&log, DumpOptions::default());
    assert!(dump.is_clean);
    let last = dump.lines.last().unwrap();
    assert_eq!(last, "Found 5000 preallocated bytes at the end of 00000000000000000010.log");
}

#[test]
fn a_torn_tail_is_damage_unless_somebody_is_writing() {
    let mut log = segment();
    log.truncate(log.len() - 3);
    let left = marker(13).len() - 3;
    let dump = dumped_log(&log, DumpOptions::default());
    assert!(!dump.is_clean);
    let want = format!("Found {left} invalid bytes at the end of 00000000000000000010.log");
    assert_eq!(dump.lines.last(), Some(&want));

    // The last batch in a preallocated file, half of it on disk.
    log.truncate(log.len() - 20);
    log.extend([0; 4_096]);
    for is_live in [false, true] {
        let dump = dumped_log(&log, DumpOptions { is_live, ..DumpOptions::default() });
        assert_eq!(dump.is_clean, is_live);
        let is_named = dump.lines.last().is_some_and(|line| line.contains("is being written"));
        assert_eq!(is_named, is_live, "{:?}", dump.lines);
    }
}

#[test]
fn jumps_are_told_and_are_no_damage() {
    let mut log = batch(10, Compression::Lz4, &[b"a"]);
    log.extend(batch(15, Compression::Gzip, &[b"b"]));
    let dump = dumped_log(&log, DEEP);
    assert!(dump.is_clean);
    assert_eq!(
        dump.complaints,
        [format!("Non-consecutive offsets in {LOG}"), "  10 is followed by 15".to_owned()]
    );
}

fn dumped_index(index: &[u8], options: DumpOptions) -> Dumped {
    let log = segment();
    dumped(|out, findings| {
        let at = Named::new(INDEX).unwrap();
        dump_offset_index(at, &index, &log.as_slice(), &options, out, findings).unwrap();
    })
}

#[test]
fn offset_entries_are_checked_against_the_log() {
    let entry =
        |relative: i32, position: i32| [relative.to_be_bytes(), position.to_be_bytes()].concat();
    let good = dumped_index(&entry(2, 79), DumpOptions::default());
    assert!(good.is_clean);
    assert_eq!(good.lines, ["offset: 12 position: 79"]);

    let padded = [entry(2, 79), vec![0; 800]].concat();
    assert_eq!(dumped_index(&padded, DumpOptions::default()).lines, good.lines);
    let sane = dumped_index(&padded, DumpOptions { index_sanity_only: true, ..DEEP });
    assert_eq!(sane.lines, [format!("{INDEX} passed sanity check.")]);

    let wrong = dumped_index(&entry(1, 79), DumpOptions { verify_index_only: true, ..DEEP });
    assert!(!wrong.is_clean && wrong.lines.is_empty());
    let want = [format!("Mismatches in :{INDEX}"), "  Index offset: 11, log offset: 12".to_owned()];
    assert_eq!(wrong.complaints, want);

    assert!(!dumped_index(&entry(1, 4_000), DumpOptions::default()).is_clean);
    assert!(!dumped_index(&entry(1, -4), DumpOptions::default()).is_clean);
    assert_eq!(
        dumped_index(&[0; 800], DumpOptions::default()).lines,
        [format!("{INDEX} is empty.")]
    );
}

fn dumped_time_index(entries: &[(i64, i32)]) -> Dumped {
    let log = segment();
    let bytes: Vec<u8> = entries
        .iter()
        .flat_map(|(time, relative)| {
            [time.to_be_bytes().as_slice(), relative.to_be_bytes().as_slice()].concat()
        })
        .collect();
    dumped(|out, findings| {
        let at = Named::new(TIME_INDEX).unwrap();
        let index: &[u8] = &[];
        let options = DumpOptions::default();
        dump_time_index(at, &bytes.as_slice(), &index, &log.as_slice(), &options, out, findings)
            .unwrap();
    })
}

#[test]
fn time_entries_are_checked_against_the_log() {
    let good = dumped_time_index(&[(1_011, 1), (1_012, 2), (2_000, 3)]);
    assert!(good.is_clean, "{:?}", good.complaints);
    assert_eq!(good.lines[0], "timestamp: 1011 offset: 11");

    let wrong = dumped_time_index(&[(1_013, 1), (1_012, 2), (2_000, 9)]);
    assert_eq!(
        wrong.complaints,
        [
            format!("Found timestamp mismatch in :{TIME_INDEX}").as_str(),
            "  Index timestamp: 1013, log timestamp: 1011",
            format!("Found out of order timestamp in :{TIME_INDEX}").as_str(),
            "  Index timestamp: 1012, Previously indexed timestamp: 1013",
            format!("The following indexed offsets are not found in :{TIME_INDEX}").as_str(),
            "Indexed offset: 19, found log offset: -1",
        ]
    );
}

#[test]
fn checkpoints_have_a_shape_of_their_own() {
    let dump = |path: &str, text: &str| {
        dumped(|out, findings| {
            assert!(dump_checkpoint(path, &text.as_bytes(), out, findings).unwrap());
        })
    };
    let epochs = dump("/x/t-0/leader-epoch-checkpoint", "0\n2\n0 0\n3 17\n");
    assert_eq!(epochs.lines, ["epoch: 0 startOffset: 0", "epoch: 3 startOffset: 17"]);
    let offsets = dump("/x/recovery-point-offset-checkpoint", "0\n1\nt 0 9\n");
    assert_eq!(offsets.lines, ["topic: t partition: 0 offset: 9"]);
    assert!(!dump("/x/recovery-point-offset-checkpoint", "0\n7\nt 0 9\n").is_clean);
}

proptest::proptest! {
    /// Whatever the bytes are, there are lines or complaints, and an end.
    #[test]
    fn arbitrary_files_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400), keep in 0_usize..240) {
        let mut log = segment();
        log.truncate(keep);
        log.extend(&bytes);
        dumped_log(&log, DEEP);
        dumped_log(&bytes, DumpOptions { is_live: true, ..DEEP });
        for options in [DEEP, DumpOptions { index_sanity_only: true, ..DEEP }] {
            dumped_index(&bytes, options);
        }
        let at = Named::new("00000000000000000010.snapshot").unwrap();
        dumped(|out, findings| dump_snapshot(at, &bytes.as_slice(), out, findings).unwrap());
        dumped(|out, findings| dump_txn_index(at, &bytes.as_slice(), out, findings).unwrap());
        let entries: Vec<(i64, i32)> = bytes.chunks_exact(5).map(|c| (c[0].into(), i32::from(c[4]) - 9)).collect();
        dumped_time_index(&entries);
    }
}

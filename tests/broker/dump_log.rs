//! Our dump of log files beside that of Kafka's own tool, line by line.
#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use heliostat_core::dump::{
    DumpOptions, Findings, Named, RecordDecoder, dump_log, dump_offset_index, dump_snapshot,
    dump_time_index, dump_txn_index,
};
use heliostat_core::log::index::{OffsetEntry, TimeEntry};
use heliostat_core::log::producer_snapshot::{self, SnapshotEntry};
use heliostat_core::log::txn_index::AbortedTxn;
use heliostat_core::metadata::control::{LeaderChangeMessage, Voter};
use heliostat_core::metadata::record::{
    BrokerEndpoint, ConfigRecord, FeatureLevelRecord, MetadataRecord, NoOpRecord, PartitionRecord,
    RegisterBrokerRecord, TopicRecord,
};
use heliostat_core::protocol::mirror::encode;
use heliostat_core::records::{
    BatchBuilder, Compression, ControlType, EndTxnMarker, LegacyBuilder, LegacyFormat,
    LegacyMessage, MirrorPidReset, NewRecord, control_key,
};
use heliostat_core::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicId};
use heliostat_tests::kafka::client::Transactions;
use heliostat_tests::kafka::properties::fast_housekeeping;
use heliostat_tests::kafka::{
    Artifacts, Cluster, Compression as KafkaCompression, Driver, DumpOutput, KafkaVersion, Result,
    Workload, files, or_skip, recipes,
};

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

/// What our dump prints: standard output, standard error.
fn ours(paths: &[PathBuf], options: DumpOptions) -> (String, String) {
    let (mut out, mut findings) = (Vec::new(), Findings::default());
    for path in paths {
        let text = path.display().to_string();
        out.extend(format!("Dumping {text}\n").bytes());
        let at = Named::new(&text).expect("a segment's file");
        let beside = |extension: &str| fs::read(path.with_extension(extension)).unwrap_or_default();
        let (file, log, index) =
            (fs::read(path).expect("readable"), beside("log"), beside("index"));
        let (file, log, index) = (file.as_slice(), log.as_slice(), index.as_slice());
        let extension = path.extension().and_then(|extension| extension.to_str());
        let (out, findings) = (&mut out, &mut findings);
        match extension {
            Some("log") => dump_log(at, &file, &options, out, findings),
            Some("index") => dump_offset_index(at, &file, &log, &options, out, findings),
            Some("timeindex") => dump_time_index(at, &file, &index, &log, &options, out, findings),
            Some("txnindex") => dump_txn_index(at, &file, out, findings),
            _ => dump_snapshot(at, &file, out, findings),
        }
        .expect("memory");
    }
    let mut complaints = Vec::new();
    findings.print(&mut complaints).expect("memory");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(out), text(complaints))
}

/// Complaints without what says nothing: 4.4 takes -1 for the record before the first, and
/// prints its files in no order.
fn told(stderr: &str) -> BTreeSet<&str> {
    let is_noise = |line: &&str| {
        line.starts_with("  -1 is followed by") || line.starts_with("Non-consecutive offsets in")
    };
    stderr.lines().filter(|line| !is_noise(line)).collect()
}

fn compare(kafka: &Artifacts, paths: &[PathBuf], flags: &[&str]) -> Result<DumpOutput> {
    let decoder = if flags.contains(&"--cluster-metadata-decoder") {
        RecordDecoder::ClusterMetadata
    } else {
        RecordDecoder::Text
    };
    let options = DumpOptions {
        deep_iteration: flags.contains(&"--deep-iteration"),
        print_data: flags.contains(&"--print-data-log") || decoder != RecordDecoder::Text,
        decoder,
        skip_record_metadata: flags.contains(&"--skip-record-metadata"),
        index_sanity_only: flags.contains(&"--index-sanity-check"),
        verify_index_only: flags.contains(&"--verify-index-only"),
        is_live: false,
    };
    let theirs = heliostat_tests::kafka::dump_log(kafka, paths, flags)?;
    let (out, complaints) = ours(paths, options);
    for (number, (ours, theirs)) in out.lines().zip(theirs.stdout.lines()).enumerate() {
        assert_eq!(ours, theirs, "line {number} with {flags:?}");
    }
    assert_eq!(out.lines().count(), theirs.stdout.lines().count(), "{}", theirs.stderr);
    assert_eq!(told(&complaints), told(&theirs.stderr), "with {flags:?}");
    Ok(theirs)
}

fn v2(base: i64, codec: Compression, more: impl Fn(BatchBuilder) -> BatchBuilder) -> Vec<u8> {
    let mut batch = more(BatchBuilder::new(Offset(base)).compression(codec));
    let headers = [("trace", Some(b"1".as_slice())), ("empty", None)];
    for (delta, key, value) in [
        (0, Some(b"key".as_slice()), Some(b"one".as_slice())),
        (1, None, Some(b"")),
        (2, None, None),
    ] {
        let timestamp = TimestampMs(1_700_000_000_000 + base + i64::from(delta));
        let headers = if delta == 0 { headers.as_slice() } else { &[] };
        let record = NewRecord { timestamp, key, value, headers };
        batch.push_at(delta, &record).expect("in order");
    }
    batch.build().expect("valid")
}

fn v1_and_v0() -> Vec<u8> {
    let mut log = Vec::new();
    let mut offset = 0;
    for format in [LegacyFormat::V0, LegacyFormat::V1] {
        for log_append in [false, true] {
            if log_append && format == LegacyFormat::V0 {
                continue;
            }
            let mut set = LegacyBuilder::new(format);
            if log_append {
                set = set.log_append_time(TimestampMs(1_600_000_009_999));
            }
            for codec in
                [None, Some(Compression::Gzip), Some(Compression::Snappy), Some(Compression::Lz4)]
            {
                let message = |offset: i64| LegacyMessage {
                    offset: Offset(offset),
                    timestamp: TimestampMs(1_600_000_000_000 + offset),
                    key: (offset % 2 == 0).then_some(b"old".as_slice()),
                    value: Some(b"message"),
                };
                match codec {
                    None => {
                        set.message(&message(offset)).expect("valid");
                        offset += 1;
                    }
                    Some(codec) => {
                        let three = [message(offset), message(offset + 1), message(offset + 2)];
                        set.wrapper(codec, &three).expect("valid");
                        offset += 3;
                    }
                }
            }
            log.extend(set.into_bytes());
        }
    }
    log
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).expect("writable");
    path
}

/// All formats, codecs and flags that a log can have.
fn write_formats(dir: &Path) -> Vec<PathBuf> {
    let old = write(dir, "00000000000000000000.log", &v1_and_v0());
    let mut log = Vec::new();
    let mut base = 100;
    for codec in CODECS {
        log.extend(v2(base, codec, |batch| batch.leader_epoch(LeaderEpoch(7))));
        base += 3;
    }
    log.extend(v2(base, Compression::None, |batch| {
        batch.producer(ProducerId(9), ProducerEpoch(1), i32::MAX - 1).transactional()
    }));
    for (offset, committed) in [(base + 3, true), (base + 4, false)] {
        let marker = EndTxnMarker {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(8),
            producer_id: ProducerId(9),
            producer_epoch: ProducerEpoch(i16::MAX),
            coordinator_epoch: 4,
            committed,
            timestamp: TimestampMs(1_700_000_001_000),
        };
        log.extend(marker.build().expect("valid"));
    }
    base += 5;
    log.extend(v2(base, Compression::Lz4, |batch| {
        batch.log_append_time(TimestampMs(1_700_000_002_000))
    }));
    log.extend(v2(base + 3, Compression::None, |batch| {
        batch.delete_horizon(TimestampMs(1_699_999_999_000))
    }));
    log.extend(BatchBuilder::new(Offset(base + 6)).last_offset_delta(4).build().expect("valid"));
    let new = write(dir, "00000000000000000100.log", &log);
    let aborted = |first| AbortedTxn {
        producer_id: ProducerId(9),
        first_offset: Offset(first),
        last_offset: Offset(first + 9),
        last_stable_offset: Offset(first + 10),
    };
    let txns = [aborted(100).encode(), aborted(110).encode()].concat();
    let snapshot = |last_offset, open| SnapshotEntry {
        producer_id: ProducerId(9),
        producer_epoch: ProducerEpoch(1),
        last_sequence: if last_offset < 0 { -1 } else { 1 },
        last_offset: Offset(last_offset),
        offset_delta: if last_offset < 0 { 0 } else { 3 },
        last_timestamp: TimestampMs(1_700_000_001_000),
        coordinator_epoch: 4,
        current_txn_first_offset: Offset(open),
    };
    let snapshot = producer_snapshot::encode(&[snapshot(117, -1)]);
    let other = producer_snapshot::encode(&[SnapshotEntry {
        producer_id: ProducerId(10),
        producer_epoch: ProducerEpoch(0),
        last_sequence: -1,
        last_offset: Offset(-1),
        offset_delta: 0,
        last_timestamp: TimestampMs(5),
        coordinator_epoch: -1,
        current_txn_first_offset: Offset(115),
    }]);
    vec![
        old,
        new,
        write(dir, "00000000000000000100.txnindex", &txns),
        write(dir, "00000000000000000100.snapshot", &snapshot),
        write(dir, "00000000000000000120.snapshot", &other),
    ]
}

/// A log with a flipped byte, and indexes that are wrong in every way.
fn write_damaged(dir: &Path) -> Vec<PathBuf> {
    let (first, second) =
        (v2(0, Compression::None, |batch| batch), v2(3, Compression::Zstd, |batch| batch));
    let position = u32::try_from(first.len()).expect("small");
    let mut log = [first, second].concat();
    log[70] ^= 1;
    log.extend([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 200, 1, 2, 3, 4, 2, 9, 9]);
    let base = Offset::ZERO;
    let entry = |offset, position| OffsetEntry { offset: Offset(offset), position }.encode(base);
    let index = [entry(4, 0), entry(5, position)].concat();
    let time = |timestamp, offset| {
        TimeEntry { timestamp: TimestampMs(timestamp), offset: Offset(offset) }.encode(base)
    };
    let times =
        [time(1_700_000_000_009, 2), time(1_700_000_000_005, 5), time(1_700_000_000_006, 4)];
    vec![
        write(dir, "00000000000000000000.log", &log),
        write(dir, "00000000000000000000.index", &index),
        write(dir, "00000000000000000000.timeindex", &times.concat()),
        write(dir, "00000000000000000000.txnindex", &[]),
    ]
}

#[test]
fn made_files_are_dumped_as_kafka_does() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let dir = tempfile::tempdir().expect("scratch");
    let formats = write_formats(dir.path());
    let dump = compare(&kafka, &formats, &["--deep-iteration", "--print-data-log"])?;
    assert!(dump.stdout.lines().count() > 80, "{}", dump.stdout);
    compare(&kafka, &formats, &["--print-data-log", "--skip-record-metadata"])?;

    let dir = tempfile::tempdir().expect("scratch");
    let damaged = write_damaged(dir.path());
    let dump = compare(&kafka, &damaged, &[])?;
    assert!(!dump.complaints(true).is_empty());
    compare(&kafka, &damaged, &["--verify-index-only"])?;
    Ok(())
}

/// Records of the cluster's metadata behind a leader's change, as a host writes them.
fn metadata_log() -> Vec<u8> {
    let voters = vec![Voter { voter_id: 7 }];
    let change =
        LeaderChangeMessage { version: 0, leader_id: 7, granting_voters: voters.clone(), voters };
    let epoch = LeaderEpoch(3);
    let mut leader = BatchBuilder::new(Offset(0)).leader_epoch(epoch).control();
    let timestamp = TimestampMs(1_700_000_000_000);
    let (key, value) = (control_key(ControlType::Other(2)), encode(&change));
    let (key, value) = (Some(key.as_slice()), Some(value.as_slice()));
    leader.push(&NewRecord { timestamp, key, value, headers: &[] }).expect("fits");
    let topic_id = TopicId(uuid::Uuid::from_u128(0x0123_4567_89ab_cdef));
    let records: [MetadataRecord; 6] = [
        FeatureLevelRecord { name: "metadata.version".into(), feature_level: 25 }.into(),
        RegisterBrokerRecord {
            broker_id: 7,
            end_points: vec![BrokerEndpoint {
                name: "PLAINTEXT".into(),
                host: "h\"\u{e9}\n".into(),
                port: 39_092,
                security_protocol: 0,
            }],
            log_dirs: vec![topic_id.0],
            ..RegisterBrokerRecord::default()
        }
        .into(),
        TopicRecord { name: "orders".into(), topic_id }.into(),
        PartitionRecord {
            partition_id: 0,
            topic_id,
            replicas: vec![7],
            isr: vec![7],
            leader: 7,
            leader_epoch: 42,
            partition_epoch: 1,
            directories: vec![uuid::Uuid::nil()],
            ..PartitionRecord::default()
        }
        .into(),
        ConfigRecord {
            resource_type: 64,
            resource_name: "west".into(),
            name: "bootstrap.servers".into(),
            value: None,
        }
        .into(),
        NoOpRecord {}.into(),
    ];
    let mut batch = BatchBuilder::new(Offset(1)).leader_epoch(epoch);
    for record in records {
        let value = record.encode();
        let value = Some(value.as_slice());
        batch.push(&NewRecord { timestamp, key: None, value, headers: &[] }).expect("fits");
    }
    [leader.build().expect("valid"), batch.build().expect("valid")].concat()
}

/// The metadata decoder, and the marker with which a mirror ends.
#[test]
fn own_records_are_dumped_as_kafka_does() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let dir = tempfile::tempdir().expect("scratch");
    let path = write(dir.path(), "00000000000000000000.log", &metadata_log());
    let dump = compare(&kafka, &[path], &["--cluster-metadata-decoder"])?;
    assert!(dump.stdout.contains("\"PARTITION_RECORD\""), "{}", dump.stdout);
    assert!(!dump.stdout.contains("Error at"), "{}", dump.stdout);
    let reset = MirrorPidReset {
        offset: Offset(4),
        leader_epoch: LeaderEpoch(8),
        source_cluster_id: "source",
        timestamp: TimestampMs(1_700_000_001_000),
    };
    let path = write(dir.path(), "00000000000000000004.log", &reset.build().expect("valid"));
    let dump = compare(&kafka, &[path], &["--deep-iteration", "--print-data-log"])?;
    assert!(dump.stdout.contains(" controlType: UNKNOWN(7)"), "{}", dump.stdout);
    Ok(())
}

#[test]
fn a_brokers_files_are_dumped_as_kafka_does() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let mut cluster = Cluster::builder(&kafka).properties(&fast_housekeeping()).start()?;
    let client = Driver::start(&kafka)?.client(cluster.bootstrap());
    let small = [("segment.bytes", "1048576"), ("index.interval.bytes", "1024")];
    client.create_topic("codecs", 6, 1, &small)?;
    for (partition, compression) in (0..).zip(KafkaCompression::ALL) {
        let workload = Workload {
            partition: Some(partition),
            compression,
            compressible: 0.7,
            keys: 10,
            headers: 2,
            ..Workload::new("codecs", 5_000)
        };
        client.produce(&workload)?;
    }
    let transactions = Transactions { abort_every: 2, ..Transactions::committed("tx", 10) };
    client.produce(&Workload {
        partition: Some(5),
        transactions: Some(transactions),
        ..Workload::new("codecs", 400)
    })?;
    client.create_topic("compact", 1, 1, &recipes::COMPACT_NOW)?;
    client.produce(&Workload { keys: 5, ..Workload::new("compact", 500) })?;
    recipes::compact(&cluster.node(1)?.data_dir(), &client, "compact", 0)?;

    cluster.stop_all()?;
    let mut paths = Vec::new();
    let dirs = (0..6).map(|partition| ("codecs", partition)).chain([("compact", 0)]);
    for (topic, partition) in dirs {
        let dir = cluster.node(1)?.partition_dir(topic, partition);
        paths.extend(files::files_with(
            &dir,
            &["log", "index", "timeindex", "txnindex", "snapshot"],
        )?);
    }
    let dump = compare(&kafka, &paths, &["--deep-iteration"])?;
    assert_eq!(dump.complaints(true), []);
    compare(&kafka, &paths, &["--index-sanity-check"])?;
    Ok(())
}

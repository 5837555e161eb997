//! What a stop leaves in the logs, and what Kafka's own tool says of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use heliostat_core::log::cold_log::ColdLog;
use heliostat_core::log::config::LogConfig;
use heliostat_core::log::recovery::OpenOptions;
use heliostat_core::records::{BatchHeader, HEADER_V2_BYTES, read_marker};
use heliostat_core::types::{LeaderEpoch, Offset, TopicId};
use heliostat_io::admin::MirrorPartition;
use heliostat_io::disk::FileStore;
use heliostat_tests::host::{Running, all_in, alone, show};
use heliostat_tests::kafka::client::Transactions;
use heliostat_tests::kafka::{
    Artifacts, Cluster, Driver, Isolation, KafkaClient, KafkaVersion, Result, Workload, dump_log,
    files, or_skip,
};

const TOPIC: &str = "t";
const PARTITIONS: i32 = 3;
/// Records of each partition before the mirror.
const BEFORE: u64 = 200;
const ABORT: i16 = 0;
const RESET: i16 = 7;

#[test]
fn a_stop_under_load_leaves_markers_and_nothing_else() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    fail_over(&kafka)
}

/// Such a source is fetched by topic name, and knows neither topic IDs nor mirrors.
#[test]
fn a_stop_ends_the_transactions_of_an_old_source() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V2_8) else { return Ok(()) };
    fail_over(&kafka)
}

fn fail_over(kafka: &Artifacts) -> Result<()> {
    let _alone = alone();
    let mut cluster = Cluster::builder(kafka).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    client.create_topic(TOPIC, PARTITIONS, 1, &[])?;
    each_partition(|p| client.produce(&Workload { partition: Some(p), ..load(BEFORE) }).map(drop))?;
    // What follows has another leader epoch.
    cluster.node_mut(1)?.stop()?;
    cluster.node_mut(1)?.start()?;
    transactions(&client)?;
    let mut producers = Vec::new();
    each_partition(|p| {
        let workload = Workload { partition: Some(p), ..load(0) };
        producers.push(client.start_producer(&format!("load-{p}"), &workload, 300)?);
        Ok(())
    })?;

    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path(), &[]);
    let mut admin = host.admin();
    admin.mirror(cluster.bootstrap(), &[TOPIC]);
    admin.until("the load to be mirrored", |all| {
        let load_has_come = |it: &MirrorPartition| {
            it.destination_offset.is_some_and(|end| end.0 > i64::try_from(BEFORE).unwrap() + 100)
        };
        all_in("MIRRORING")(all) && all[TOPIC].iter().all(load_has_come)
    });
    admin.stop(&[TOPIC]);
    let stopped = admin.until("the stop", all_in("STOPPED"));
    // The source goes on, and nobody is interested any more.
    for it in &stopped[TOPIC] {
        let end = it.last_mirror_offset.unwrap().0 + 1;
        client.wait_end(TOPIC, it.index, Isolation::ReadUncommitted, end)?;
    }
    for producer in producers {
        assert_eq!(producer.stop()?.failed, 0);
    }
    assert!(host.stop().clean);
    cluster.stop_all()?;
    let mut copies = Vec::new();
    for it in &stopped[TOPIC] {
        let theirs = cluster.node(1)?.partition_dir(TOPIC, it.index);
        let ours = dir.path().join(format!("{TOPIC}-{}", it.index));
        let wanted: &[i16] = if it.index == 0 { &[ABORT, ABORT, RESET] } else { &[RESET] };
        check_bytes(&theirs, &ours, it, wanted);
        check_state(dir.path(), it, wanted.len());
        copies.push(ours);
    }
    check_kafkas_opinion(kafka, &copies)
}

fn load(count: u64) -> Workload {
    Workload::new(TOPIC, count)
}

fn each_partition(mut act: impl FnMut(i32) -> Result<()>) -> Result<()> {
    (0..PARTITIONS).try_for_each(&mut act)
}

/// Two that stay open in partition 0, and some that end in partition 1.
fn transactions(client: &KafkaClient) -> Result<()> {
    for id in ["open-a", "open-b"] {
        let open = Transactions {
            leave_open: true,
            timeout: Duration::from_mins(15),
            ..Transactions::committed(id, 0)
        };
        client.produce(&Workload { partition: Some(0), transactions: Some(open), ..load(7) })?;
    }
    let ended = Transactions { abort_every: 2, ..Transactions::committed("ended", 5) };
    client.produce(&Workload { partition: Some(1), transactions: Some(ended), ..load(20) })?;
    Ok(())
}

/// Up to where mirroring ended the bytes are the source's, which has more; behind are the markers
/// that are `wanted`, each with a leader epoch that no mirrored batch has.
fn check_bytes(source: &Path, copy: &Path, stopped: &MirrorPartition, wanted: &[i16]) {
    let (theirs, ours) = (files::log_bytes(source).unwrap(), files::log_bytes(copy).unwrap());
    let end = stopped.last_mirror_offset.unwrap();
    let (mut common, mut mirrored, mut written) = (0, LeaderEpoch::NONE, Vec::new());
    let mut rest = &ours[..];
    while let Some((header, _)) = BatchHeader::view(rest) {
        let (batch, behind) = rest.split_at(usize::try_from(header.size_bytes()).unwrap());
        let epoch = header.partition_leader_epoch();
        if header.base_offset() < end {
            common += batch.len();
            mirrored = mirrored.max(epoch);
        } else {
            let marker = read_marker(&batch[HEADER_V2_BYTES..]).unwrap();
            written.push((marker.control, epoch, header.base_offset().0 - end.0));
        }
        rest = behind;
    }
    assert_eq!(rest, b"");
    assert!(theirs.starts_with(&ours[..common]), "partition {}", stopped.index);
    assert!(theirs.len() > common, "the load went on");
    let codes: Vec<i16> = written.iter().map(|(control, ..)| control.code()).collect();
    assert_eq!(codes, wanted);
    assert!(written.iter().all(|(_, epoch, _)| *epoch > mirrored), "{mirrored}: {written:?}");
    assert!(written.iter().zip(0..).all(|((.., offset), at)| *offset == at), "{written:?}");
    assert_eq!(stopped.last_mirror_epoch, mirrored);
    show(&format!("partition {}", stopped.index), (common, end.0, mirrored.0, written));
}

/// Nothing is open, and no producer is known, to who trusts the files and to who reads them all.
fn check_state(dir: &Path, stopped: &MirrorPartition, markers: usize) {
    for clean in [true, false] {
        let options = OpenOptions {
            config: LogConfig::default(),
            topic_id: TopicId::NONE,
            clean,
            recovery_point: Offset::ZERO,
            log_start: None,
            truncate_to: None,
            now_ms: 0,
        };
        let mut store = FileStore::new(dir);
        let name = format!("{TOPIC}-{}", stopped.index);
        let (log, _) = ColdLog::open(&mut store, &name, &options).unwrap();
        let end = stopped.last_mirror_offset.unwrap().plus(i64::try_from(markers).unwrap());
        assert_eq!(log.log_end(), end, "{markers} records more than were mirrored");
        assert_eq!(log.last_stable_offset(), end, "clean: {clean}");
        assert_eq!(log.producers().open_txns().len(), 0, "clean: {clean}");
        assert_eq!(log.producers().producer_count(), 0, "clean: {clean}");
    }
}

/// Kafka's tool reads all of it. Of a reset it knows that it is a control batch, of a type that
/// it does not know.
fn check_kafkas_opinion(kafka: &Artifacts, copies: &[PathBuf]) -> Result<()> {
    let mut all = Vec::new();
    for copy in copies {
        let kinds = ["log", "index", "timeindex", "snapshot", "txnindex"];
        all.extend(files::files_with(copy, &kinds)?);
    }
    let output = dump_log(kafka, &all, &["--deep-iteration"])?;
    assert!(output.success, "{}", output.stderr);
    assert_eq!(output.complaints(false), [], "{}", output.stderr);
    let lines = |text: &str| -> Vec<&str> {
        output.stdout.lines().filter(|line| line.contains(text)).collect()
    };
    let of_the_source = 2;
    assert_eq!(lines("endTxnMarker: ABORT").len(), 2 + of_the_source);
    let resets = lines("controlType");
    assert_eq!(resets.len(), copies.len(), "{resets:?}");
    assert!(resets.iter().all(|line| line.ends_with("controlType: UNKNOWN(7)")), "{resets:?}");
    show("files that Kafka's tool reads", all.len());
    Ok(())
}

use proptest::prelude::*;

use super::*;
use crate::log::test_store::{TestStore, Torn};
use crate::metadata::image::{ResourceType, config_record};
use crate::metadata::record::{
    BeginTransactionRecord, EndTransactionRecord, NoOpRecord, PartitionRecord,
    RegisterBrokerRecord, RemoveTopicRecord, TopicRecord,
};
use crate::records::{BatchBuilder, BatchMeta, BatchWalker, DecodedBatch, NewRecord, WalkLimits};

const NODE: BrokerId = BrokerId(1);
const NOW: TimestampMs = TimestampMs(1_700_000_000_000);
const LOG: &str = "00000000000000000000.log";

/// Batches and segments that a few records fill.
const SMALL: MetadataLogLimits = MetadataLogLimits {
    segment_bytes: 1_500,
    batch_bytes_max: 600,
    snapshot_bytes: 4_000,
    snapshot_records: 1_000,
};

fn options(limits: MetadataLogLimits) -> MetadataLogOptions {
    MetadataLogOptions { node: NODE, now: NOW, recovery_point: Offset::ZERO, limits }
}

fn open(store: &mut TestStore) -> (MetadataLog, MetadataOpenReport) {
    MetadataLog::open(store, &options(SMALL)).unwrap()
}

fn refused(store: &mut TestStore) -> String {
    MetadataLog::open(store, &options(SMALL)).unwrap_err().to_string()
}

fn id(number: u128) -> TopicId {
    TopicId(Uuid::from_u128(number))
}

fn partition(number: u128, index: i32, epoch: i32) -> MetadataRecord {
    let record = PartitionRecord {
        partition_id: index,
        topic_id: id(number),
        replicas: vec![1],
        isr: vec![1],
        leader: 1,
        leader_epoch: epoch,
        partition_epoch: epoch,
        directories: vec![Uuid::nil()],
        ..PartitionRecord::default()
    };
    record.into()
}

/// A topic of `partitions` partitions, with its first config.
fn topic(number: u128, partitions: i32) -> Vec<MetadataRecord> {
    let name = format!("topic-{number}");
    let config = config_record(ResourceType::TOPIC, &name, "retention.ms", Some("7"));
    let mut records = vec![TopicRecord { name, topic_id: id(number) }.into()];
    records.extend((0..partitions).map(|index| partition(number, index, 0)));
    records.push(config.into());
    records
}

fn after(decisions: &[Vec<MetadataRecord>]) -> MetadataImage {
    let mut image = MetadataImage::default();
    for record in decisions.iter().flatten() {
        image.apply(record).unwrap();
    }
    image
}

/// Every batch of a file.
fn batches(bytes: &[u8]) -> Vec<(BatchMeta, Vec<u8>)> {
    let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
    let (mut walker, mut rest, mut all) = (BatchWalker::new(limits), bytes, Vec::new());
    while !rest.is_empty() {
        let (used, meta) = walker.feed(rest).unwrap();
        all.push((meta.unwrap(), rest[..used].to_vec()));
        rest = &rest[used..];
    }
    all
}

fn names_of_records(bytes: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    for (meta, batch) in batches(bytes) {
        if meta.is_control() {
            names.push(format!("{}: {:?}", meta.leader_epoch, meta.control.unwrap()));
            continue;
        }
        for record in DecodedBatch::decode(&meta, &batch, 1 << 20).unwrap().records() {
            let record = MetadataRecord::decode(record.unwrap().value.unwrap()).unwrap();
            names.push(format!("{}: {}", meta.leader_epoch, record.name()));
        }
    }
    names
}

#[test]
fn what_was_appended_is_there_after_a_start() {
    let mut store = TestStore::default();
    let (mut log, report) = open(&mut store);
    assert_eq!((report.snapshot, report.replayed, report.aborted), (None, 0, 0));
    assert_eq!((log.epoch(), log.log_end()), (LeaderEpoch(1), Offset(1)));
    let decisions = [topic(1, 2), topic(2, 1)];
    for records in &decisions {
        log.append(&mut store, records, NOW).unwrap();
    }
    log.append(&mut store, &[], NOW).unwrap();
    assert_eq!(*log.image(), after(&decisions));
    assert_eq!(log.log_end(), Offset(8));

    let (again, report) = open(&mut store);
    assert_eq!(again.image(), log.image());
    assert_eq!((again.epoch(), again.log_end()), (LeaderEpoch(2), Offset(9)));
    assert_eq!(report.replayed, 7);
    insta::assert_snapshot!(names_of_records(store.get(METADATA_DIR, LOG).unwrap()).join("\n"), @r"
    1: Other(2)
    1: TopicRecord
    1: PartitionRecord
    1: PartitionRecord
    1: ConfigRecord
    1: TopicRecord
    1: PartitionRecord
    1: ConfigRecord
    2: Other(2)
    ");
    assert_eq!(
        store.get(METADATA_DIR, "partition.metadata").map(|it| String::from_utf8_lossy(it)),
        Some("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ".into())
    );
}

#[test]
fn records_that_do_not_follow_are_not_written() {
    let mut store = TestStore::default();
    let (mut log, _) = open(&mut store);
    let (before, end) = (store.clone(), log.log_end());
    let mut records = topic(1, 1);
    records.push(partition(1, 5, 0));
    let error = log.append(&mut store, &records, NOW).unwrap_err();
    assert!(matches!(error, MetadataLogError::Unfit(ImageError::Hole { .. })), "{error}");
    assert_eq!((log.image(), log.log_end()), (&MetadataImage::default(), end));
    assert_eq!(store, before);
    log.append(&mut store, &topic(1, 1), NOW).unwrap();
}

#[test]
fn a_large_decision_is_a_transaction() {
    let mut store = TestStore::default();
    let (mut log, _) = open(&mut store);
    log.append(&mut store, &topic(1, 20), NOW).unwrap();
    let all: Vec<u8> = store
        .names(METADATA_DIR)
        .iter()
        .filter(|name| Kind(name).is_log())
        .flat_map(|name| store.get(METADATA_DIR, name).unwrap().clone())
        .collect();
    assert!(batches(&all).len() > 3);
    let names = names_of_records(&all);
    assert_eq!(names[1], "1: BeginTransactionRecord");
    assert_eq!(names[names.len() - 1], "1: EndTransactionRecord");
    assert_eq!(names.len(), 1 + 1 + 22 + 1);
    let (again, report) = open(&mut store);
    assert_eq!(*again.image(), after(&[topic(1, 20)]));
    assert_eq!(report.replayed, 24);
}

struct Kind<'a>(&'a str);

impl Kind<'_> {
    fn is_log(&self) -> bool {
        std::path::Path::new(self.0).extension().is_some_and(|it| it == "log")
    }
}

/// Registers, makes topics, changes and removes them, with snapshots between.
fn script() -> Vec<Vec<MetadataRecord>> {
    let register = RegisterBrokerRecord { broker_id: 1, broker_epoch: 1, ..Default::default() };
    vec![
        vec![register.into(), NoOpRecord {}.into()],
        topic(1, 3),
        topic(2, 14),
        vec![partition(1, 0, 5), partition(1, 1, 5)],
        vec![RemoveTopicRecord { topic_id: id(2) }.into()],
        topic(3, 20),
        topic(4, 2),
        vec![partition(1, 0, 6)],
        topic(5, 30),
    ]
}

/// Runs the script until it fails; how many decisions were acknowledged.
fn run(store: &mut TestStore) -> usize {
    let Ok((mut log, _)) = MetadataLog::open(store, &options(SMALL)) else { return 0 };
    for (done, records) in script().iter().enumerate() {
        if log.append(store, records, NOW).is_err() {
            return done;
        }
        if log.maintain(store).is_err() {
            return done + 1;
        }
    }
    script().len()
}

#[test]
fn a_snapshot_takes_the_place_of_what_it_sums_up() {
    let mut store = TestStore::default();
    assert_eq!(run(&mut store), script().len());
    let names = store.names(METADATA_DIR);
    assert!(!names.contains(&LOG), "old segments are gone: {names:?}");
    let snapshots: Vec<_> = names.iter().filter_map(|name| SnapshotName::parse(name)).collect();
    assert_eq!(snapshots.len(), 1, "{names:?}");
    let name = snapshots[0];
    let kinds = names_of_records(store.get(METADATA_DIR, &name.to_string()).unwrap());
    assert_eq!((&*kinds[0], &**kinds.last().unwrap()), ("1: Other(3)", "1: Other(4)"));

    let (log, report) = open(&mut store);
    assert_eq!(*log.image(), after(&script()));
    assert_eq!(report.snapshot, Some(name));
    assert!(report.damaged.is_empty());
}

#[test]
fn an_image_from_a_snapshot_is_that_of_the_records() {
    let mut store = TestStore::default();
    let (mut log, _) = open(&mut store);
    for records in script() {
        log.append(&mut store, &records, NOW).unwrap();
    }
    let (from_records, _) = open(&mut store.clone());
    let name = log.take_snapshot(&mut store).unwrap();
    assert_eq!(name.end_offset, log.log_end());
    assert!(!log.is_snapshot_due());
    let (from_snapshot, report) = open(&mut store);
    assert_eq!(report.replayed, 0);
    assert_eq!(from_snapshot.image(), from_records.image());
    assert_eq!(from_snapshot.image(), log.image());
}

/// Whichever call the host dies in, and whatever it leaves: the next start has all decisions
/// that were acknowledged, perhaps the next one, and none in part; then it goes on.
#[test]
fn no_crash_loses_or_halves_a_decision() {
    let mut whole = TestStore::default();
    run(&mut whole);
    let images: Vec<_> = (0..=script().len()).map(|n| after(&script()[..n])).collect();
    let mut aborted = 0;
    for calls in 0..whole.calls {
        for torn in Torn::ALL {
            let mut store = TestStore::default();
            store.crash_after(calls, torn);
            let done = run(&mut store);
            store.restart();
            let (mut log, report) = open(&mut store);
            aborted += report.aborted;
            let at = [done, done + 1].into_iter().find(|n| images.get(*n) == Some(log.image()));
            let at = at.unwrap_or_else(|| panic!("{calls} {torn:?}: {done} were done"));
            for records in &script()[at..] {
                log.append(&mut store, records, NOW).unwrap();
                log.maintain(&mut store).unwrap();
            }
            assert_eq!(*log.image(), after(&script()), "{calls} {torn:?}");
            let (again, _) = open(&mut store);
            assert_eq!(again.image(), log.image(), "{calls} {torn:?}");
        }
    }
    assert!(aborted > 0, "some crash must have cut off a transaction");
}

/// A log with one more batch, of these values.
fn with_values(values: &[Option<&[u8]>]) -> TestStore {
    let mut store = TestStore::default();
    let (log, _) = open(&mut store);
    let mut batch = BatchBuilder::new(log.log_end()).leader_epoch(log.epoch());
    for value in values {
        let record = NewRecord { timestamp: NOW, key: None, value: *value, headers: &[] };
        batch.push(&record).unwrap();
    }
    let bytes = batch.build().unwrap();
    store.get_mut(METADATA_DIR, LOG).unwrap().extend(bytes);
    store
}

#[test]
fn a_transaction_without_an_end_is_aborted() {
    let begin = MetadataRecord::from(BeginTransactionRecord { name: None }).encode();
    let values: Vec<_> = topic(1, 1).iter().map(MetadataRecord::encode).collect();
    let values = [&begin].into_iter().chain(&values).map(|it| Some(&**it));
    let mut store = with_values(&values.collect::<Vec<_>>());

    let (mut log, report) = open(&mut store);
    assert_eq!(report.aborted, 3);
    assert_eq!(*log.image(), MetadataImage::default());
    let names = names_of_records(store.get(METADATA_DIR, LOG).unwrap());
    assert_eq!(names[names.len() - 2..], ["2: Other(2)", "2: AbortTransactionRecord"]);
    log.append(&mut store, &topic(1, 1), NOW).unwrap();
    let (again, report) = open(&mut store);
    assert_eq!((again.image(), report.aborted), (log.image(), 0));
}

#[test]
fn a_record_that_is_not_known_stops_the_start() {
    let noop = MetadataRecord::from(NoOpRecord {}).encode();
    let mut store = with_values(&[Some(&noop), Some(b"\x01\x1d\0\0")]);
    let before = store.clone();
    insta::assert_snapshot!(
        refused(&mut store),
        @"metadata log, offset 2: a record of type 29, version 0, which this release does not know; start the release that wrote it"
    );
    assert_eq!(
        store.get(METADATA_DIR, LOG),
        before.get(METADATA_DIR, LOG),
        "nothing is cut, no epoch begun"
    );
    insta::assert_snapshot!(
        refused(&mut with_values(&[Some(b"\x01\x03\x02\0")])),
        @"metadata log, offset 1: a PartitionRecord (type 3) of version 2, this release knows version 1; start the release that wrote it"
    );
    insta::assert_snapshot!(
        refused(&mut with_values(&[None])),
        @"metadata log, offset 1: a record: value is null"
    );
    let end = MetadataRecord::from(EndTransactionRecord {}).encode();
    insta::assert_snapshot!(
        refused(&mut with_values(&[Some(&end)])),
        @"metadata log, offset 1: EndTransactionRecord out of place"
    );
    let stray = partition(9, 0, 0).encode();
    insta::assert_snapshot!(
        refused(&mut with_values(&[Some(&stray)])),
        @"metadata log, offset 1: topic ID AAAAAAAAAAAAAAAAAAAACQ is unknown; the log is not this cluster's, or was changed by hand"
    );
}

#[test]
fn a_damaged_snapshot_is_told_of() {
    let mut store = TestStore::default();
    let (mut log, _) = open(&mut store);
    log.append(&mut store, &topic(1, 2), NOW).unwrap();
    // With its log still there, a damaged snapshot costs nothing.
    let damaged = SnapshotName { end_offset: Offset(99), epoch: LeaderEpoch(1) };
    store.replace(&damaged.path(), b"not batches").unwrap();
    let (again, report) = open(&mut store);
    assert_eq!((again.image(), &report.damaged[..]), (log.image(), &[damaged][..]));
    assert_eq!(report.snapshot, None);

    let mut store = TestStore::default();
    run(&mut store);
    let names = store.names(METADATA_DIR);
    let name = names.iter().find_map(|name| SnapshotName::parse(name)).unwrap();
    let whole = store.clone();
    for damage in 0..3 {
        let mut store = whole.clone();
        let bytes = store.get_mut(METADATA_DIR, &name.to_string()).unwrap();
        match damage {
            0 => bytes[100] ^= 1,
            1 => bytes.truncate(bytes.len() - 10),
            _ => {
                let footer = batches(bytes).last().unwrap().1.len();
                bytes.truncate(bytes.len() - footer);
            }
        }
        let text = refused(&mut store);
        assert!(text.contains("there is no valid snapshot"), "{damage}: {text}");
    }
}

#[test]
fn a_log_that_ends_below_its_snapshot_begins_behind_it() {
    let mut store = TestStore::default();
    let (mut log, _) = open(&mut store);
    for records in script() {
        log.append(&mut store, &records, NOW).unwrap();
    }
    let name = log.take_snapshot(&mut store).unwrap();
    let names: Vec<_> = store.names(METADATA_DIR).into_iter().map(str::to_owned).collect();
    for file in names.into_iter().filter(|it| SnapshotName::parse(it).is_none()) {
        store.remove(&crate::log::disk::LogPath { dir: METADATA_DIR.into(), name: file }).unwrap();
    }
    let (mut again, _) = open(&mut store);
    assert_eq!(again.image(), log.image());
    assert_eq!((again.epoch(), again.log_end()), (LeaderEpoch(2), name.end_offset.plus(1)));
    again.append(&mut store, &topic(9, 1), NOW).unwrap();
    let (third, _) = open(&mut store);
    assert_eq!(third.image(), again.image());
}

#[test]
fn names_of_snapshots_are_kafkas() {
    let name = SnapshotName { end_offset: Offset(42), epoch: LeaderEpoch(7) };
    assert_eq!(name.to_string(), "00000000000000000042-0000000007.checkpoint");
    assert_eq!(SnapshotName::parse(&name.to_string()), Some(name));
    for not in [
        "00000000000000000042.log",
        "00000000000000000042-7.checkpoint",
        "0000000000000000004x-0000000007.checkpoint",
        "00000000000000000042-9999999999.checkpoint",
        "00000000000000000042-0000000007.checkpoint.part",
    ] {
        assert_eq!(SnapshotName::parse(not), None, "{not}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A snapshot's bytes, changed at any place, are that snapshot, or none.
    #[test]
    fn damage_to_a_snapshot_never_panics(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut store = TestStore::default();
        let (mut log, _) = open(&mut store);
        log.append(&mut store, &topic(1, 3), NOW).unwrap();
        let name = log.take_snapshot(&mut store).unwrap().to_string();
        let bytes = store.get_mut(METADATA_DIR, &name).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok((again, report)) = MetadataLog::open(&mut store, &options(SMALL)) {
            // The log was short enough to be there still, whatever has become of the snapshot.
            prop_assert_eq!(again.image(), log.image());
            prop_assert!(report.damaged.len() <= 1);
        }
    }
}

/// As many partitions as the product promises: two batches of records, one snapshot.
#[test]
fn a_hundred_thousand_partitions_fit() {
    const PARTITIONS: i32 = 100_000;
    let limits = MetadataLogLimits::default();
    let mut store = TestStore::default();
    let (mut log, _) = MetadataLog::open(&mut store, &options(limits)).unwrap();
    log.append(&mut store, &topic(1, PARTITIONS), NOW).unwrap();
    assert!(log.is_snapshot_due());
    let name = log.maintain(&mut store).unwrap().unwrap();
    assert_eq!(log.maintain(&mut store).unwrap(), None);
    let bytes = store.get(METADATA_DIR, &name.to_string()).unwrap().len();
    assert!(bytes < 10 << 20, "{bytes}");
    let (again, report) = MetadataLog::open(&mut store, &options(limits)).unwrap();
    assert_eq!(again.image().partition_count(), usize::try_from(PARTITIONS).unwrap());
    assert_eq!((again.image(), report.replayed), (log.image(), 0));
}

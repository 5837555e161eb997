//! Generated topics: deterministic, valid, and all that the demo promises.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use heliostat_core::records::{BatchMeta, BatchWalker, Compression, DecodedBatch, WalkLimits};
use heliostat_io::generate::{DemoSpec, generate};
use heliostat_io::listener::hosted::{Catalog, Partition};

use crate::client::{Ask, NODE, Served, ask, catalog_config, fetch, only, records};

const SPEC: DemoSpec = DemoSpec { seed: 7, bytes: 60 << 20, partitions: 2 };

/// Bytes of all segments, in order.
fn log_bytes(dir: &Path) -> Vec<u8> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .expect("there")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    names.sort();
    names.iter().flat_map(|path| fs::read(path).expect("readable")).collect()
}

/// Every batch with its bytes; CRCs are checked.
fn batches(bytes: &[u8]) -> Vec<(BatchMeta, &[u8])> {
    let mut walker = BatchWalker::new(WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true });
    let mut all = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (used, meta) = walker.feed(rest).expect("valid");
        let (batch, behind) = rest.split_at(used);
        all.push((meta.expect("whole"), batch));
        rest = behind;
    }
    all
}

fn partition_bytes(catalog: &Catalog, topic: &str, index: i32) -> Vec<u8> {
    log_bytes(catalog.partition(topic, index).expect("generated").dir())
}

#[test]
fn topics_are_valid_and_hold_what_they_promise() {
    let served = Served::new();
    let mut told = 0;
    let topics = generate(&served.catalog, &SPEC, &mut |bytes| told += bytes).expect("generated");
    assert_eq!(topics.len(), 7);
    assert!((SPEC.bytes..SPEC.bytes * 13 / 10).contains(&told), "{told} bytes");
    for (name, codec) in [
        ("demo.none", Compression::None),
        ("demo.gzip", Compression::Gzip),
        ("demo.snappy", Compression::Snappy),
        ("demo.lz4", Compression::Lz4),
        ("demo.zstd", Compression::Zstd),
    ] {
        let bytes = partition_bytes(&served.catalog, name, 0);
        let all = batches(&bytes);
        assert!(all.iter().all(|(meta, _)| meta.compression() == codec), "{name}");
        let epochs: BTreeSet<_> = all.iter().map(|(meta, _)| meta.leader_epoch.0).collect();
        assert_eq!(epochs.into_iter().collect::<Vec<_>>(), [0, 2, 3], "{name}");
        let (meta, batch) = all.first().expect("some");
        let decoded = DecodedBatch::decode(meta, batch, 16 << 20).expect("decodes");
        let mut keys = 0;
        let mut headers = 0;
        for record in decoded.records() {
            let record = record.expect("valid");
            keys += usize::from(record.key.is_some());
            headers += record.headers.count();
        }
        assert!(keys > 0 && headers > 0, "{name}");
    }
    let bytes = partition_bytes(&served.catalog, "demo.none", 0);
    assert!(log_segments(&served.catalog, "demo.none") > 1);
    assert!(batches(&bytes).iter().all(|(meta, _)| meta.producer_id.is_some()));

    let partition = served.catalog.partition("demo.transactions", 1).expect("generated");
    let facts = partition.facts(NODE);
    assert_eq!(facts.last_stable, facts.high_watermark);
    let bytes = log_bytes(partition.dir());
    let control: Vec<_> = batches(&bytes).iter().filter_map(|(meta, _)| meta.control).collect();
    for kind in
        [heliostat_core::records::ControlType::Abort, heliostat_core::records::ControlType::Commit]
    {
        assert!(control.contains(&kind), "{kind:?}");
    }

    let bytes = partition_bytes(&served.catalog, "demo.compacted", 0);
    let all = batches(&bytes);
    assert!(all.iter().any(|(meta, _)| meta.records_count == 0));
    assert!(all.iter().any(|(meta, _)| meta.has_delete_horizon()));
    let gap = |pair: &[(BatchMeta, &[u8])]| pair[0].0.next_offset() < pair[1].0.base_offset;
    assert!(all.windows(2).any(gap));
}

fn log_segments(catalog: &Catalog, topic: &str) -> usize {
    let partition = catalog.partition(topic, 0).expect("generated");
    let names = fs::read_dir(partition.dir()).expect("there");
    let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "log");
    names.filter(|entry| is_log(&entry.as_ref().expect("entry").path())).count()
}

#[test]
fn equal_seeds_make_equal_logs() {
    let spec = DemoSpec { bytes: 4 << 20, ..SPEC };
    let make = |spec: &DemoSpec| {
        let dir = tempfile::tempdir().expect("scratch directory");
        let catalog = Catalog::open(dir.path(), catalog_config()).expect("empty log dir");
        let topics = generate(&catalog, spec, &mut |_| {}).expect("generated");
        let partitions = topics.iter().flat_map(|topic| topic.partitions.clone());
        partitions
            .map(|partition| (partition.topic_id(), log_bytes(partition.dir())))
            .collect::<Vec<_>>()
    };
    let first = make(&spec);
    assert!(make(&spec) == first);
    assert!(make(&DemoSpec { seed: 8, ..spec }) != first);
}

/// Follows one partition from its start to its end.
fn consume(served: &Served, partition: &Partition) -> Vec<u8> {
    let mut client = served.client();
    let name = partition.id().topic.to_string();
    let end = partition.facts(NODE).log_end.0;
    let (mut got, mut offset) = (Vec::new(), 0);
    while offset < end {
        let whole = Ask { max_bytes: 3_000_000, ..ask(partition.id().partition, offset) };
        let response = client.call(12, &fetch(12, &name, &[whole]));
        let bytes = records(only(&response));
        // The last batch may be cut off and comes again.
        let mut walker =
            BatchWalker::new(WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true });
        let mut rest = bytes;
        while let (used, Some(meta)) = walker.feed(rest).expect("valid") {
            got.extend_from_slice(&rest[..used]);
            rest = &rest[used..];
            offset = meta.next_offset().0;
        }
    }
    got
}

#[test]
fn every_topic_is_served_whole() {
    let served = Served::new();
    let spec = DemoSpec { bytes: 20 << 20, ..SPEC };
    for topic in generate(&served.catalog, &spec, &mut |_| {}).expect("generated") {
        for partition in &topic.partitions {
            let got = consume(&served, partition);
            assert!(got == log_bytes(partition.dir()), "{}", partition.id());
        }
    }
}

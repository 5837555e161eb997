//! Very many partitions: how much is written does not grow faster than they do. What grows with
//! each of them alone is counted here; times are `bench`'s (`compare host-scale`).

use std::fs;
use std::path::Path;

use heliostat_core::log::gaps::GapFile;
use heliostat_core::records::{BatchMeta, BatchWalker, WalkLimits};
use heliostat_io::admin::{StartOptions, StopOptions};

use super::world::{Running, Source, all_in, in_step, log_bytes, produce, properties, run, until};

const LIMITS: WalkLimits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
const TOPICS: [&str; 2] = ["a", "b"];
const PARTITIONS: usize = 500;
const ALL: usize = TOPICS.len() * PARTITIONS;
/// Partitions of `__mirror_state`.
const STATE_LOGS: usize = 4;
/// A decision of the controller, and a look at what jobs say, may come about in a few parts;
/// each is a batch, and a sync, in each log.
const PARTS: usize = 12;

/// What logs hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    batches: usize,
    records: usize,
}

impl Written {
    fn of(bytes: &[u8]) -> Self {
        let (mut it, mut walker) = (Self::default(), BatchWalker::new(LIMITS));
        let mut rest = bytes;
        while !rest.is_empty() {
            let (taken, batch): (usize, Option<BatchMeta>) = walker.feed(rest).unwrap();
            rest = &rest[taken..];
            if let Some(batch) = batch {
                it.batches += 1;
                it.records += usize::try_from(batch.records_count).unwrap();
            }
        }
        it
    }

    fn since(self, before: Self) -> Self {
        Self { batches: self.batches - before.batches, records: self.records - before.records }
    }
}

/// The metadata log, and all of the state log.
fn written(dir: &Path) -> (Written, Written) {
    let mut states = Written::default();
    for index in 0..STATE_LOGS {
        let one = Written::of(&log_bytes(&dir.join(format!("__mirror_state-{index}"))));
        states.batches += one.batches;
        states.records += one.records;
    }
    (Written::of(&log_bytes(&dir.join("__cluster_metadata-0"))), states)
}

fn start(dir: &Path) -> Running {
    let logs = STATE_LOGS.to_string();
    // Snapshots and compaction would remove what is counted.
    let more = [("mirror.state.topic.num.partitions", logs.as_str())];
    Running::start_with(properties(dir, &more))
}

#[track_caller]
fn assert_few(what: &str, (metadata, states): (Written, Written), records: (usize, usize)) {
    assert!(metadata.batches <= PARTS, "{what}: metadata {metadata:?}");
    assert!(states.batches <= PARTS * STATE_LOGS, "{what}: states {states:?}");
    // Brokers, topics and configs are a few records beside.
    assert!(metadata.records <= records.0 + 20, "{what}: metadata {metadata:?}");
    assert_eq!(states.records, records.1, "{what}: states {states:?}");
}

#[test]
fn what_is_written_for_each_partition_is_written_for_many_at_once() {
    let source = Source::start();
    for topic in TOPICS {
        produce(&source.topic(topic, i32::try_from(PARTITIONS).unwrap()).partitions[0], 1);
    }
    let dir = tempfile::tempdir().unwrap();
    let topics = TOPICS.map(str::to_owned);
    let count = |all: &std::collections::BTreeMap<String, Vec<_>>| {
        all.values().map(Vec::len).sum::<usize>()
    };
    let follows = |all: &_| count(all) == ALL && all_in("MIRRORING")(all) && in_step(all);

    let host = start(dir.path());
    let mut client = host.client();
    run(async {
        let configs = vec![("bootstrap.servers".to_owned(), source.address())];
        client.create_cluster_mirror("m", configs).await.unwrap();
        client.start_mirror_topics("m", &topics, StartOptions::default()).await.unwrap();
        until(&mut client, "m", follows).await;
    });
    assert!(host.stop().clean);
    let created = written(dir.path());
    // Each is made, and gets an epoch above the source's; LOG_TRUNCATION and MIRRORING.
    assert_few("create", created, (2 * ALL, 2 * ALL));

    let host = start(dir.path());
    let mut client = host.client();
    run(async { until(&mut client, "m", follows).await });
    let after = written(dir.path());
    let since = (after.0.since(created.0), after.1.since(created.1));
    // They are where they were.
    assert_few("restart", since, (0, 0));

    run(async {
        client.stop_mirror_topics("m", &topics, StopOptions::default()).await.unwrap();
        until(&mut client, "m", |all| count(all) == ALL && all_in("STOPPED")(all)).await;
    });
    assert!(host.stop().clean);
    let stopped = written(dir.path());
    let since = (stopped.0.since(after.0), stopped.1.since(after.1));
    // STOPPING, the position, STOPPED; their epochs are above the source's already. Threads report
    // logs as they go.
    assert_eq!(since.1.records, 3 * ALL, "{since:?}");
    assert!(since.1.batches < ALL / 2, "not one for each partition: {since:?}");
    assert!(since.0.records <= 20 && since.0.batches <= PARTS, "{since:?}");

    let host = start(dir.path());
    let mut client = host.client();
    run(async {
        client.start_mirror_topics("m", &topics, StartOptions::default()).await.unwrap();
        until(&mut client, "m", follows).await;
    });
    assert!(host.stop().clean);
    let again = written(dir.path()).1.since(stopped.1);
    // LOG_TRUNCATION and MIRRORING, and the positions' tombstones.
    assert_eq!(again.records, 3 * ALL, "{again:?}");
    assert!(again.batches < ALL / 2, "not one for each partition: {again:?}");
    // What the stop had written was cut, and that is on record once.
    let gaps = fs::read(dir.path().join("mirror-gaps")).unwrap();
    assert_eq!(GapFile::decode(&gaps).unwrap().records.len(), ALL);
}

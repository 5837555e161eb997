//! A source with tiered storage: what is only there is mirrored, and its trouble is waited for.

use std::path::Path;

use heliostat_io::admin::MirrorPartition;
use heliostat_tests::host::{DEADLINE, Running, alone, is_in_step, show};
use heliostat_tests::kafka::properties::fast_housekeeping;
use heliostat_tests::kafka::tiered::TieredStore;
use heliostat_tests::kafka::{
    Cluster, Driver, KafkaClient, KafkaVersion, Result, Workload, files, found_or_skip, or_skip,
    wait,
};

/// The smallest segment that a topic may have.
const SEGMENT: &str = "1048576";

/// The head of a partition is in a remote store alone, and that cannot be read. The partition
/// waits in MIRRORING, says since when and why, uses up no attempt and holds up nobody; once the
/// store is back it has everything, byte for byte.
#[test]
fn a_tiered_source_and_its_store_that_fails() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    let scratch = tempfile::tempdir().unwrap();
    let Some(kafka) = found_or_skip(kafka.tiered()) else { return Ok(()) };
    let store = TieredStore::new(&scratch.path().join("store"));
    let cluster = Cluster::builder(&kafka)
        .properties(&fast_housekeeping())
        .properties(&store.properties())
        .start()?;
    let client = Driver::start(&kafka)?.client(cluster.bootstrap());
    let tiered = [
        ("remote.storage.enable", "true"),
        ("segment.bytes", SEGMENT),
        ("local.retention.bytes", "1"),
    ];
    client.create_topic("tiered", 1, 1, &tiered)?;
    client.create_topic("plain", 1, 1, &[])?;
    client.produce(&Workload { value_bytes: 10_000, ..Workload::new("tiered", 400) })?;
    client.produce(&Workload::new("plain", 100))?;
    let broker = cluster.node(1)?.partition_dir("tiered", 0);
    wait::until("the head to be in the store alone", DEADLINE, || {
        let first = files::segments(&broker)?.first().cloned();
        let gone = first.is_some_and(|it| !it.ends_with("00000000000000000000.log"));
        Ok((gone && store.segments("tiered", 0)?.len() >= 2).then_some(()))
    })?;

    store.take_away()?;
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path(), &[]);
    let mut admin = host.admin();
    admin.mirror(cluster.bootstrap(), &["tiered", "plain"]);
    // At first it may be that nobody has asked for its leader yet.
    let told = |it: &MirrorPartition| {
        it.error_message.as_deref().is_some_and(|why| why.contains("UNKNOWN_SERVER_ERROR (-1)"))
    };
    let all =
        admin.until("the reason", |all| told(&all["tiered"][0]) && is_in_step(&all["plain"][0]));
    let it = &all["tiered"][0];
    show("while the store is away", (&it.state, &it.error_message, it.retry_attempt));
    assert_eq!((it.state.as_str(), it.retry_attempt), ("MIRRORING", 0), "{it:?}");
    let reason = it.error_message.as_deref().unwrap();
    assert!(it.failing_since.is_some(), "{it:?}");
    assert!(reason.contains("tiered storage"), "what to look at: {reason}");
    // Others go on meanwhile, and it stays as it was.
    more(&client, "plain")?;
    let all = admin.until("the other topic to go on", |all| {
        let plain = &all["plain"][0];
        plain.destination_offset.is_some_and(|end| end.0 == 200) && is_in_step(plain)
    });
    let it = &all["tiered"][0];
    assert_eq!((it.state.as_str(), it.retry_attempt), ("MIRRORING", 0), "{it:?}");
    assert!(it.failing_since.is_some(), "{it:?}");

    store.bring_back()?;
    admin.until_in_step();
    assert!(host.stop().clean);
    check_bytes(&store, &broker, &dir.path().join("tiered-0"))
}

fn more(client: &KafkaClient, topic: &str) -> Result<()> {
    client.produce(&Workload { seed: 1, ..Workload::new(topic, 100) }).map(drop)
}

/// The copy begins with what only the store has.
fn check_bytes(store: &TieredStore, broker: &Path, copy: &Path) -> Result<()> {
    let theirs = store.whole_log(broker, "tiered", 0)?;
    let ours = files::log_bytes(copy)?;
    let local = files::log_bytes(broker)?.len();
    show("bytes mirrored, and of them with the broker", (ours.len(), local));
    assert!(local < theirs.len());
    assert_eq!(ours.len(), theirs.len());
    assert!(ours == theirs, "another byte");
    Ok(())
}

//! The harness against real Kafka: what the other suites take for granted.

use std::time::Duration;

use heliostat_tests::kafka::forge::{self, ForgedBatch, Indexes, LegacyMessage, codec};
use heliostat_tests::kafka::properties::{fast_housekeeping, large_messages};
use heliostat_tests::kafka::{
    Artifacts, Cluster, Compression, Driver, Isolation, KafkaClient, KafkaVersion, NodeState,
    OffsetAt, Result, Wire, Workload, client::Transactions, dump_log, files, or_skip, recipes,
};

/// Every codec and a transaction go in, come out, satisfy Kafka's dump tool, and are still there
/// after a clean restart.
#[test]
fn one_broker_keeps_what_each_codec_wrote() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let mut cluster = Cluster::builder(&kafka).start()?;
    let client = Driver::start(&kafka)?.client(cluster.bootstrap());
    client.create_topic("codecs", 6, 1, &[])?;

    for (partition, compression) in (0..).zip(Compression::ALL) {
        let workload = Workload {
            partition: Some(partition),
            compression,
            value_bytes: 500,
            compressible: 0.7,
            keys: 10,
            headers: 2,
            ..Workload::new("codecs", 400)
        };
        let produced = client.produce(&workload)?;
        assert_eq!(produced.acked, 400);
        assert_eq!(produced.offsets[&partition], (0, 399));
    }
    let transactions = Transactions { abort_every: 2, ..Transactions::committed("tx", 10) };
    client.produce(&Workload {
        partition: Some(5),
        transactions: Some(transactions),
        ..Workload::new("codecs", 40)
    })?;

    // Four transactions of ten, each followed by its marker.
    client.wait_end("codecs", 5, Isolation::ReadCommitted, 44)?;
    let read = |partition| client.consume("codecs", partition, Isolation::ReadUncommitted);
    let before = (0..6).map(read).collect::<Result<Vec<_>>>()?;
    let counts: Vec<_> = before.iter().map(|c| (c.count, c.end_offset)).collect();
    assert_eq!(counts, [(400, 400), (400, 400), (400, 400), (400, 400), (400, 400), (40, 44)]);
    assert_eq!(client.consume("codecs", 5, Isolation::ReadCommitted)?.count, 20);

    let left_open = Transactions { leave_open: true, ..Transactions::committed("open", 0) };
    client.produce(&Workload {
        partition: Some(5),
        transactions: Some(left_open),
        ..Workload::new("codecs", 5)
    })?;
    let latest = |isolation| client.offset("codecs", 5, OffsetAt::Latest, isolation);
    assert_eq!(latest(Isolation::ReadUncommitted)?.offset, 49);
    assert_eq!(latest(Isolation::ReadCommitted)?.offset, 44, "the open transaction holds it");
    client.end_transaction("open", true)?;
    assert_eq!(client.wait_end("codecs", 5, Isolation::ReadCommitted, 50)?, 50);
    let before = (0..6).map(read).collect::<Result<Vec<_>>>()?;

    let paused = cluster.node_mut(1)?;
    paused.pause()?;
    let asked = Wire::connect_within(&paused.address(), Duration::from_millis(300));
    assert!(asked.is_err(), "a paused broker answers nobody");
    paused.resume()?;
    assert!(cluster.metadata(&["codecs"])?.brokers.contains_key(&1));

    cluster.stop_all()?;
    let mut logs = Vec::new();
    for partition in 0..6 {
        logs.extend(files::segments(&cluster.node(1)?.partition_dir("codecs", partition))?);
    }
    let dump = dump_log(&kafka, &logs, &["--deep-iteration"])?;
    assert!(dump.success, "{dump:?}");
    assert_eq!(dump.complaints(false), []);
    assert!(dump.batch_lines().count() >= 6 + 8, "{}", dump.stdout);

    cluster.start_all()?;
    assert_eq!((0..6).map(read).collect::<Result<Vec<_>>>()?, before);
    Ok(())
}

/// Compaction, trimming, large batches and forged batches, on one broker.
#[test]
fn one_broker_compacts_trims_and_takes_forged_batches() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let mut cluster = Cluster::builder(&kafka)
        .properties(&fast_housekeeping())
        .properties(&large_messages(64 * 1024 * 1024))
        .start()?;
    let client = Driver::start(&kafka)?.client(cluster.bootstrap());

    client.create_topic("compact", 1, 1, &recipes::COMPACT_NOW)?;
    client.produce(&Workload { keys: 5, ..Workload::new("compact", 500) })?;
    let cleaned = recipes::compact(&cluster.node(1)?.data_dir(), &client, "compact", 0)?;
    assert!(cleaned >= 500, "{cleaned}");
    let left = client.consume("compact", 0, Isolation::ReadUncommitted)?;
    assert!(left.count < 100 && left.end_offset > 500, "{left:?}");

    client.create_topic("trimmed", 1, 1, &[])?;
    client.produce(&Workload::new("trimmed", 100))?;
    assert_eq!(client.delete_records("trimmed", 0, 42)?, 42);
    let start = client.offset("trimmed", 0, OffsetAt::Earliest, Isolation::ReadUncommitted)?;
    assert_eq!(start.offset, 42);

    client.create_topic("large", 1, 1, &[])?;
    let produced = client.produce(&Workload {
        value_bytes: 1_000_000,
        batch_bytes: 26_000_000,
        linger_ms: 5_000,
        ..Workload::new("large", 24)
    })?;
    assert_eq!(produced.acked, 24);
    let log = files::log_bytes(&cluster.node(1)?.partition_dir("large", 0))?;
    let first = u32::from_be_bytes(log[8..12].try_into().unwrap_or_default());
    assert!(first >= 24_000_000, "the first batch has {first} bytes");

    forged(&mut cluster, &kafka, &client)
}

/// A sequence that wraps and a codec form that Java accepts go through the broker; an epoch at
/// its limit with an open transaction goes into its file.
fn forged(cluster: &mut Cluster, kafka: &Artifacts, client: &KafkaClient) -> Result<()> {
    // The forge's timestamps are years old.
    client.create_topic("forged", 1, 1, &[("retention.ms", "-1")])?;
    client.wait_partition("forged", 0, "a leader", |p| p.leader == Some(1))?;
    let mut wire = cluster.wire(1)?;
    let wrap = ForgedBatch::of(&[b"a", b"b", b"c"]).producer(900_001, 0, i32::MAX - 1);
    assert_eq!(wire.produce("forged", 0, wrap.encode().into())?, 0);
    let next = ForgedBatch::of(&[b"d"]).producer(900_001, 0, 1);
    assert_eq!(wire.produce("forged", 0, next.encode().into())?, 3);
    let members = ForgedBatch::of(&[b"e", b"f"])
        .compressed(codec::GZIP, |bytes| codec::gzip_members(bytes, 2).unwrap_or_default());
    assert_eq!(wire.produce("forged", 0, members.encode().into())?, 4);
    let mut corrupt = ForgedBatch::of(&[b"g"]);
    corrupt.crc = Some(1);
    assert!(wire.produce("forged", 0, corrupt.encode().into()).is_err());

    cluster.stop_all()?;
    let mut open = ForgedBatch::of(&[b"h"]).producer(900_002, i16::MAX, 0);
    open.base_offset = 6;
    open.attributes = forge::batch::TRANSACTIONAL;
    let dir = cluster.node(1)?.partition_dir("forged", 0);
    forge::append_to_log(&dir, &open.encode(), Indexes::Rebuild)?;
    cluster.start_all()?;

    let all = client.consume("forged", 0, Isolation::ReadUncommitted)?;
    assert_eq!((all.count, all.end_offset), (7, 7));
    let stable = client.offset("forged", 0, OffsetAt::Latest, Isolation::ReadCommitted)?;
    assert_eq!(stable.offset, 6, "the forged transaction holds the last stable offset");
    let dump = dump_log(kafka, &files::segments(&dir)?, &["--deep-iteration"])?;
    assert_eq!(dump.complaints(false), []);
    assert!(dump.stdout.contains("producerEpoch: 32767"), "{}", dump.stdout);
    corrupted(cluster, kafka, client)
}

/// A batch that is corrupt in the middle of the log stays when the indexes stay, and is cut with
/// all behind it when they are rebuilt.
fn corrupted(cluster: &mut Cluster, kafka: &Artifacts, client: &KafkaClient) -> Result<()> {
    let dir = cluster.node(1)?.partition_dir("forged", 0);
    let end = || client.offset("forged", 0, OffsetAt::Latest, Isolation::ReadUncommitted);
    cluster.stop_all()?;
    let second = usize::try_from(forge::batch::size_bytes(&files::log_bytes(&dir)?)).unwrap_or(0);
    forge::rewrite_log(&dir, Indexes::Keep, |mut log| {
        log[second + 64] ^= 1; // in the records of the second batch
        log
    })?;
    cluster.start_all()?;
    assert_eq!(end()?.offset, 7);
    assert!(client.consume("forged", 0, Isolation::ReadUncommitted).is_err());
    let dump = dump_log(kafka, &files::segments(&dir)?, &[])?;
    assert_eq!(dump.complaints(false).len(), 1, "{}", dump.stdout);

    cluster.stop_all()?;
    forge::rewrite_log(&dir, Indexes::Rebuild, |log| log)?;
    cluster.start_all()?;
    assert_eq!(end()?.offset, 3, "the first batch is left");
    Ok(())
}

/// A killed leader is replaced; a moved one moves; an unclean election loses what only the dead
/// leader had.
#[test]
fn three_brokers_change_leaders_cleanly_and_uncleanly() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let mut cluster = Cluster::builder(&kafka).brokers(3).start()?;
    let client = Driver::start(&kafka)?.client(cluster.bootstrap());

    client.create_topic_on("clean", &[&[1, 2, 3]], &[])?;
    let first = client.wait_partition("clean", 0, "leader 1", |p| p.leader == Some(1))?;
    client.produce(&Workload::new("clean", 100))?;
    let background = client.start_producer("bg", &Workload::new("clean", 0), 200)?;
    cluster.node_mut(1)?.kill()?;
    let second = client
        .wait_partition("clean", 0, "another leader", |p| p.leader.is_some_and(|id| id != 1))?;
    assert!(second.leader_epoch > first.leader_epoch, "{first:?} {second:?}");
    cluster.start_all()?;
    recipes::move_leader(&client, "clean", 0, 3)?;
    let produced = background.stop()?;
    assert!(produced.acked > 0, "{produced:?}");
    let consumed = client.consume("clean", 0, Isolation::ReadUncommitted)?;
    assert_eq!(consumed.count, 100 + produced.acked, "{produced:?}");

    let configs = [("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
    client.create_topic_on("unclean", &[&[2, 3]], &configs)?;
    client.produce(&Workload::new("unclean", 50))?;
    let lost = recipes::lose_tail(&mut cluster, &client, "unclean", &Workload::new("unclean", 20))?;
    assert_eq!((lost.old_leader, lost.new_leader), (2, 3));
    assert_eq!((lost.parted_at, lost.lost_end), (50, 70));
    assert!(lost.new_epoch > lost.old_epoch, "{lost:?}");
    assert_eq!(client.consume("unclean", 0, Isolation::ReadUncommitted)?.end_offset, 50);

    // Nobody is left to let the last one leave: it ends all the same.
    cluster.node_mut(1)?.kill()?;
    cluster.node_mut(2)?.kill()?;
    cluster.stop_all()?;
    assert!(cluster.nodes().iter().all(|node| node.state() == NodeState::Stopped));
    Ok(())
}

/// Old brokers run, with today's clients, and write their old formats.
#[test]
fn old_versions_write_their_formats() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let driver = Driver::start(&kafka)?;
    for (version, zookeeper, format, magic) in [
        (KafkaVersion::V3_9, false, None, 2),
        (KafkaVersion::V3_9, true, Some("0.10.2"), 1),
        (KafkaVersion::V2_8, true, Some("0.9.0"), 0),
        (KafkaVersion::V2_1, true, None, 2),
    ] {
        let Some(kafka) = or_skip(version) else { continue };
        let mut builder = Cluster::builder(&kafka);
        if zookeeper {
            builder = builder.zookeeper();
        }
        if let Some(format) = format {
            builder = builder
                .property("inter.broker.protocol.version", "2.1")
                .property("log.message.format.version", format);
        }
        let mut cluster = builder.start()?;
        let client = driver.client(cluster.bootstrap());
        client.create_topic("old", 1, 1, &[])?;
        let workload = Workload {
            compression: Compression::Lz4,
            idempotent: magic == 2,
            ..Workload::new("old", 100)
        };
        assert_eq!(client.produce(&workload)?.acked, 100, "{version:?}");
        let read = client.consume("old", 0, Isolation::ReadUncommitted)?;
        assert_eq!((read.count, read.end_offset), (100, 100), "{version:?}");
        cluster.stop_all()?;
        let dir = cluster.node(1)?.partition_dir("old", 0);
        assert_eq!(files::log_bytes(&dir)?.get(16), Some(&magic), "{version:?}");
        if version == KafkaVersion::V2_8 {
            let message = LegacyMessage::plain(1, 100, b"forged");
            forge::append_to_log(&dir, &message.encode(), Indexes::Rebuild)?;
            cluster.start_all()?;
            let read = client.consume("old", 0, Isolation::ReadUncommitted)?;
            assert_eq!((read.count, read.end_offset), (101, 101));
        }
    }
    Ok(())
}

//! Kafka to host A to host B: Kafka's own client reads the same from all three, and what it is
//! told of offsets is the same.

use heliostat_tests::host::{Running, all_in, alone, show};
use heliostat_tests::kafka::client::{OffsetAt, Transactions};
use heliostat_tests::kafka::{
    Cluster, Compression, Consumed, Driver, Isolation, KafkaClient, KafkaVersion, Result, Workload,
    files, or_skip,
};

const TOPIC: &str = "t";
const PARTITIONS: i32 = 3;

#[test]
fn kafkas_client_reads_the_same_from_each_of_a_chain() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    let mut cluster = Cluster::builder(&kafka).start()?;
    let driver = Driver::start(&kafka)?;
    let source = driver.client(cluster.bootstrap());
    // Segments of the least size, so that there are several.
    source.create_topic(TOPIC, PARTITIONS, 1, &[("segment.bytes", "1048576")])?;
    let kinds = [Compression::None, Compression::Lz4, Compression::Zstd];
    for (partition, compression) in (0..).zip(kinds) {
        let workload = Workload { partition: Some(partition), compression, ..load(4_000) };
        source.produce(&workload)?;
    }
    // The second epoch, and transactions of which each other is aborted.
    cluster.node_mut(1)?.stop()?;
    cluster.node_mut(1)?.start()?;
    let ended = Transactions { abort_every: 2, ..Transactions::committed("ended", 50) };
    source.produce(&Workload { partition: Some(1), transactions: Some(ended), ..load(500) })?;
    let open = Transactions { leave_open: true, ..Transactions::committed("open", 0) };
    source.produce(&Workload { partition: Some(2), transactions: Some(open), ..load(10) })?;
    source.produce(&Workload { partition: Some(2), ..load(20) })?;

    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [a, b] = dirs.each_ref().map(|dir| Running::start(dir.path(), &[]));
    let (mut at_a, mut at_b) = (a.admin(), b.admin());
    at_a.mirror(cluster.bootstrap(), &[TOPIC]);
    at_b.mirror(a.bootstrap(), &[TOPIC]);
    at_a.until_in_step();
    // While it is mirrored, and while more comes.
    let producer =
        source.start_producer("load", &Workload { partition: Some(0), ..load(0) }, 300)?;
    let clients = [a.bootstrap(), b.bootstrap()].map(|at| driver.client(at));
    let end = source.wait_end(TOPIC, 0, Isolation::ReadUncommitted, 4_500)?;
    for client in &clients {
        client.wait_end(TOPIC, 0, Isolation::ReadUncommitted, end)?;
        let range = |from: &KafkaClient| {
            from.consume_range(TOPIC, 0, Isolation::ReadUncommitted, None, Some(end))
        };
        assert_eq!(range(client)?, range(&source)?);
    }
    assert_eq!(producer.stop()?.failed, 0);
    at_a.until_in_step();
    at_b.until_in_step();
    for partition in 0..PARTITIONS {
        let want = seen(&source, partition)?;
        show(&format!("partition {partition}"), &want[0]);
        for client in &clients {
            assert_eq!(seen(client, partition)?, want, "partition {partition}");
            assert_eq!(offsets(client, partition)?, offsets(&source, partition)?);
        }
    }
    // After the stop: what was open is aborted, so readers of what is committed get to the end.
    at_a.stop(&[TOPIC]);
    at_a.until("the stop", all_in("STOPPED"));
    at_b.until_in_step();
    for partition in 0..PARTITIONS {
        let [from_a, from_b] = clients.each_ref().map(|client| seen(client, partition));
        let from_a = from_a?;
        assert_eq!(from_a, from_b?);
        let committed = &from_a[1];
        let before = source.consume(TOPIC, partition, Isolation::ReadUncommitted)?;
        assert!(committed.end_offset > before.end_offset, "the markers are behind");
    }
    assert!(b.stop().clean && a.stop().clean);
    cluster.stop_all()?;
    for partition in 0..PARTITIONS {
        let theirs = files::log_bytes(&cluster.node(1)?.partition_dir(TOPIC, partition))?;
        let log = |dir: &tempfile::TempDir| {
            files::log_bytes(&dir.path().join(format!("{TOPIC}-{partition}")))
        };
        let (of_a, of_b) = (log(&dirs[0])?, log(&dirs[1])?);
        assert!(of_a.starts_with(&theirs), "partition {partition}");
        assert!(of_a == of_b, "partition {partition}");
    }
    Ok(())
}

fn load(count: u64) -> Workload {
    Workload::new(TOPIC, count)
}

fn seen(client: &KafkaClient, partition: i32) -> Result<[Consumed; 2]> {
    let read = |isolation| client.consume(TOPIC, partition, isolation);
    Ok([read(Isolation::ReadUncommitted)?, read(Isolation::ReadCommitted)?])
}

/// Offsets, timestamps and epochs by every kind of question. The epoch of the end is that of the
/// leader, which is each one's own.
fn offsets(client: &KafkaClient, partition: i32) -> Result<Vec<(i64, i64, i32)>> {
    let ask = |at, isolation| client.offset(TOPIC, partition, at, isolation);
    let all = Isolation::ReadUncommitted;
    let earliest = ask(OffsetAt::Earliest, all)?;
    let mut found = vec![(earliest.offset, -1, -1)];
    for isolation in [all, Isolation::ReadCommitted] {
        found.push((ask(OffsetAt::Latest, isolation)?.offset, -1, -1));
    }
    let youngest = ask(OffsetAt::MaxTimestamp, all)?;
    let first = client.offset(TOPIC, partition, OffsetAt::Timestamp(0), all)?;
    let span = youngest.timestamp_ms - first.timestamp_ms;
    let times = (0..=8).map(|step| first.timestamp_ms + span * step / 8);
    let asked = times.map(|time| ask(OffsetAt::Timestamp(time), all));
    let beyond = ask(OffsetAt::Timestamp(youngest.timestamp_ms + 1), all)?;
    let timed = asked.collect::<Result<Vec<_>>>()?;
    for it in [youngest, first, beyond].into_iter().chain(timed) {
        found.push((it.offset, it.timestamp_ms, it.leader_epoch));
    }
    Ok(found)
}

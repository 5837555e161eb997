//! Batches larger than the memory of a shard, and many partitions.

use std::time::Instant;

use super::compare::{Census, same_log};
use super::copy::{Copy, find};
use super::error::{Result, ensure};
use super::figures::Figures;
use crate::kafka::properties::large_messages;
use crate::kafka::{Artifacts, Cluster, Driver, Workload, files};

/// One batch of 24 MB and one of 100 MB through a shard with 16 MiB for data.
///
/// # Errors
///
/// [`ScenarioError`](super::ScenarioError) with the first difference.
pub fn large_batches(kafka: &Artifacts) -> Result<Figures> {
    let mut cluster = Cluster::builder(kafka)
        .properties(&large_messages(120_000_000))
        .property("log.segment.bytes", 1 << 30)
        .start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    client.create_topic("large", 1, 1, &[])?;
    for (count, batch_bytes) in [(24, 26_000_000), (100, 105_000_000), (1, 16_384)] {
        client.produce(&Workload {
            value_bytes: 1_000_000,
            batch_bytes,
            linger_ms: 20_000,
            ..Workload::new("large", count)
        })?;
    }
    let copy =
        Copy::new(&cluster.bootstrap(), "large")?.with("mirror.shard.memory.bytes", 16 << 20);
    let report = copy.once()?;
    let end = find(&report.status, "large-0").map(|p| p.log_end.0);
    ensure(end == Some(125), || format!("{:?}", report.status.partitions))?;
    cluster.stop_all()?;
    let source = cluster.node(1)?.partition_dir("large", 0);
    let census = same_log(&source, &copy.partition_dir("large-0"))?;
    let largest = largest_batch(&files::log_bytes(&source)?);
    ensure(largest >= 100_000_000, || format!("the largest batch has {largest} bytes only"))?;
    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());
    figures.add("largest batch, bytes", largest);
    figures.extend(census.figures());
    Ok(figures)
}

fn largest_batch(log: &[u8]) -> usize {
    let (mut rest, mut largest) = (log, 0);
    while let Some(size) = rest.get(8..12).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes) {
        let size = usize::try_from(size).unwrap_or(0).saturating_add(12);
        largest = largest.max(size);
        rest = rest.get(size..).unwrap_or_default();
    }
    largest
}

/// One topic of 1,000 partitions.
///
/// # Errors
///
/// [`ScenarioError`](super::ScenarioError) with the first difference.
pub fn many_partitions(kafka: &Artifacts) -> Result<Figures> {
    let mut cluster = Cluster::builder(kafka).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    client.create_topic("many", 1_000, 1, &[])?;
    client.wait_partition("many", 999, "a leader", |p| p.leader == Some(1))?;
    // An idempotent producer loses its way when a slow broker lets requests of 1,000 partitions
    // time out.
    client.produce(&Workload {
        keys: 20_000,
        idempotent: false,
        linger_ms: 1_000,
        ..Workload::new("many", 30_000)
    })?;
    let copy = Copy::new(&cluster.bootstrap(), "many")?.shards(2);
    let began = Instant::now();
    let report = copy.once()?;
    let copied = began.elapsed();
    let totals = &report.status.totals;
    ensure((totals.partitions, totals.failed, totals.left_records) == (1_000, 0, 0), || {
        format!("{totals:?}")
    })?;
    cluster.stop_all()?;
    let mut census = Census::default();
    for partition in 0..1_000 {
        let source = cluster.node(1)?.partition_dir("many", partition);
        census.add(&same_log(&source, &copy.partition_dir(&format!("many-{partition}")))?);
    }
    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());
    figures.add("milliseconds of the copy", copied.as_millis());
    figures.extend(census.figures());
    Ok(figures)
}

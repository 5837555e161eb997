//! A cluster is copied while producers of every kind write to it, and the copy is the source.

use std::path::Path;
use std::time::Instant;

use super::compare::{Census, leaders, no_new_complaints, same_epochs, same_log};
use super::copy::{Copy, Ends};
use super::error::{Result, ensure};
use super::figures::Figures;
use super::load;
use super::verified::verified;
use crate::kafka::{Artifacts, Cluster, Compression, Driver, KafkaClient, Workload};

/// Topics of the scenario: name, partitions, wanted replicas.
const TOPICS: [(&str, i32, i16); 3] = [("codecs", 10, 2), ("steady", 8, 1), ("tx", 6, 3)];

/// How much is written.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Brokers.
    pub brokers: usize,
    /// Records of each codec that are there before the copy starts.
    pub records_before: u64,
    /// Rounds of transactions during the copy; all other producers write meanwhile.
    pub rounds: u64,
    /// Records per second of each of the other producers.
    pub records_per_s: u32,
    /// `segment.bytes` of the source.
    pub segment_bytes: u32,
    /// `segment.bytes` of the copy. Kafka's tool reads a segment from each entry of its time
    /// index on to its end, so large ones with small batches cost it hours.
    pub copy_segment_bytes: u32,
    /// `index.interval.bytes` of both.
    pub index_interval_bytes: u32,
}

impl Size {
    /// For the fast tests.
    pub const SMALL: Self = Self {
        brokers: 3,
        records_before: 1_000,
        rounds: 2,
        records_per_s: 100,
        segment_bytes: 1 << 20,
        copy_segment_bytes: 1 << 30,
        index_interval_bytes: 4_096,
    };
    /// For the campaign. More load than two cores carry makes each transaction take seconds, and
    /// the rounds without end.
    pub const LARGE: Self = Self {
        brokers: 3,
        records_before: 100_000,
        rounds: 10,
        records_per_s: 300,
        segment_bytes: 4 << 20,
        copy_segment_bytes: 3 << 20,
        index_interval_bytes: 64 << 10,
    };
}

/// Copies 24 partitions of a cluster of `kafka` while they are written, and compares everything
/// with the leaders' own files after a clean stop of both; then Kafka's tool reads the copy.
///
/// # Errors
///
/// [`ScenarioError`](super::ScenarioError) with the first difference.
pub fn identical(kafka: &Artifacts, size: Size) -> Result<Figures> {
    let began = Instant::now();
    let mut cluster = Cluster::builder(kafka)
        .brokers(size.brokers)
        .property("log.cleaner.enable", false)
        .property("log.retention.ms", -1)
        .property("log.segment.bytes", size.segment_bytes)
        .property("log.index.interval.bytes", size.index_interval_bytes)
        .start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    let brokers = i16::try_from(size.brokers).unwrap_or(1);
    for (topic, partitions, replicas) in TOPICS {
        client.create_topic(topic, partitions, replicas.min(brokers), &[])?;
    }
    for compression in Compression::ALL {
        client.produce(&Workload {
            value_bytes: 1_000,
            compressible: 0.5,
            compression,
            ..Workload::new("codecs", size.records_before)
        })?;
    }

    let copy = Copy::new(&cluster.bootstrap(), "codecs,steady,tx")?
        .shards(2)
        .with("segment.bytes", size.copy_segment_bytes)
        .with("index.interval.bytes", size.index_interval_bytes);
    let mirror = copy.follow()?;
    let (ends, mut figures) = write(&client, size)?;
    mirror.wait_for_ends(&ends)?;
    mirror.stop()?;
    ensure(copy.gaps().is_empty(), || format!("gaps on record: {}", copy.gaps()))?;
    ensure(verified(&copy)?.agrees(true), || "verify does not say equal".to_owned())?;

    let leaders = leaders(&client, &TOPICS.map(|(topic, ..)| topic))?;
    cluster.stop_all()?;
    let mut census = Census::default();
    let mut sources = Vec::new();
    for (name, leader) in &leaders {
        let source = cluster.node(*leader)?.data_dir().join(name);
        let dir = copy.partition_dir(name);
        census.add(&same_log(&source, &dir)?);
        let end = ends.get(name).copied().unwrap_or(i64::MAX);
        same_epochs(&source, &dir, end)?;
        sources.push(source);
    }
    // The comparison is worth something only if everything was there.
    ensure(leaders.len() == 24, || format!("{} partitions", leaders.len()))?;
    ensure(census.by_codec.len() == 5, || format!("codecs {:?}", census.by_codec))?;
    ensure(census.control > 0 && census.transactional > 0, || "no transactions".to_owned())?;
    ensure(census.idempotent < census.batches, || "only idempotent producers".to_owned())?;

    let copies: Vec<_> = leaders.keys().map(|name| copy.partition_dir(name)).collect();
    let copies: Vec<&Path> = copies.iter().map(AsRef::as_ref).collect();
    let sources: Vec<&Path> = sources.iter().map(AsRef::as_ref).collect();
    let files = no_new_complaints(kafka, &copies, &sources)?;
    figures.add("Kafka", kafka.version().number());
    figures.add("brokers", size.brokers);
    figures.add("partitions", leaders.len());
    figures.extend(census.figures());
    figures.add("files read by DumpLogSegments", files);
    figures.add("seconds", began.elapsed().as_secs());
    Ok(figures)
}

/// Writes with every kind of producer; returns where the partitions end.
fn write(client: &KafkaClient, size: Size) -> Result<(Ends, Figures)> {
    let mut producers = load::each_codec(client, "codecs", size.records_per_s)?;
    producers.extend(load::each_codec(client, "steady", size.records_per_s)?);
    let mut transactional = 0;
    for round in 0..size.rounds {
        transactional += load::transactions(client, "tx", round)?;
    }
    let (acked, failed) = load::stop(producers)?;
    ensure(failed == 0, || format!("{failed} records failed"))?;
    let mut ends = Ends::new();
    for (topic, partitions, _) in TOPICS {
        ends.extend(load::final_ends(client, topic, partitions)?);
    }
    let mut figures = Figures::default();
    figures.add("records written during the copy", acked + transactional);
    Ok((ends, figures))
}

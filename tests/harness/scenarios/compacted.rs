//! A compacted topic: the source's cleaner works during the copy and after it.

use std::path::Path;

use heliostat_io::verify::Outcome;

use super::compare::{no_complaints, same_log};
use super::copy::{COPY_TIMEOUT, Copy, Ends};
use super::error::{Result, ensure};
use super::figures::Figures;
use super::verified::verified;
use crate::kafka::properties::fast_housekeeping;
use crate::kafka::{
    Artifacts, Cluster, Compression, Driver, Isolation, KafkaClient, OffsetAt, Workload, files,
    recipes, wait,
};

const NAME: &str = "compact-0";

/// One copy follows while the cleaner works, and is superseded afterwards but nowhere different;
/// another one is made of the cleaned log, with its gaps and empty batches, and is equal.
///
/// # Errors
///
/// [`ScenarioError`](super::ScenarioError) with what is wrong.
pub fn compacted(kafka: &Artifacts) -> Result<Figures> {
    let mut cluster = Cluster::builder(kafka).properties(&fast_housekeeping()).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    let data = cluster.node(1)?.data_dir();
    client.create_topic("compact", 1, 1, &recipes::COMPACT_NOW)?;
    let early = Copy::new(&cluster.bootstrap(), "compact")?;
    let mirror = early.follow()?;
    let mut seed = 0;
    for compression in Compression::ALL {
        for tombstones in [false, true] {
            seed += 1;
            client.produce(&Workload {
                seed,
                compression,
                tombstones,
                // Tombstones for some of the keys only.
                keys: if tombstones { 7 } else { 20 },
                ..Workload::new("compact", 400)
            })?;
        }
        recipes::compact(&data, &client, "compact", 0)?;
    }
    mirror.wait_for_ends(&ends(&client)?)?;
    mirror.stop()?;
    verified(&early)?;
    let cleaned = recipes::compact(&data, &client, "compact", 0)?;
    let report = verified(&early)?;
    let superseded: u64 =
        report.partitions.iter().flat_map(|p| &p.superseded).map(|range| range.records).sum();
    ensure(report.partitions.iter().all(|p| p.outcome == Outcome::Superseded), || {
        format!("{:?}", report.partitions)
    })?;

    cleaner_ends(&client, &data.join(NAME))?;
    let late = Copy::new(&cluster.bootstrap(), "compact")?;
    late.once()?;
    let report = verified(&late)?;
    ensure(report.agrees(true), || format!("a cleaned log's copy: {:?}", report.partitions))?;
    cluster.stop_all()?;
    let census = same_log(&data.join(NAME), &late.partition_dir(NAME))?;
    // No epochs are compared: an epoch begins at the first batch that the cleaner has left, for a
    // copy as for Kafka's own followers.
    let dirs = [early.partition_dir(NAME), late.partition_dir(NAME)];
    let dirs: Vec<&Path> = dirs.iter().map(AsRef::as_ref).collect();
    no_complaints(kafka, &dirs, true)?;
    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());
    figures.add("clean below offset", cleaned);
    figures.add("records superseded in the early copy", superseded);
    figures.extend(census.figures());
    Ok(figures)
}

/// Takes the topic from the cleaner and waits for the end of what it is at.
fn cleaner_ends(client: &KafkaClient, dir: &Path) -> Result<()> {
    let configs = [("cleanup.policy", "delete"), ("retention.ms", "-1"), ("segment.ms", "3600000")];
    client.alter_topic_configs("compact", &configs)?;
    let mut looks = Vec::new();
    wait::until("the cleaner to rest", COPY_TIMEOUT, || {
        // A segment may be swapped during a look.
        looks.push(files::log_bytes(dir).unwrap_or_default());
        // Two seconds: ten times its pause.
        let last = looks.iter().rev().take(40);
        Ok((looks.len() >= 40 && last.clone().all(|look| Some(look) == looks.last())).then_some(()))
    })?;
    Ok(())
}

fn ends(client: &KafkaClient) -> Result<Ends> {
    let end = client.offset("compact", 0, OffsetAt::Latest, Isolation::ReadUncommitted)?;
    Ok(Ends::from([(NAME.to_owned(), end.offset)]))
}

//! Old message formats in one partition.

use std::collections::BTreeMap;

use super::compare::{same_epochs, same_log};
use super::copy::{Copy, Ends};
use super::error::{Result, ensure};
use super::figures::Figures;
use crate::kafka::{Artifacts, Cluster, Compression, Driver, Isolation, OffsetAt, Workload};

/// A topic whose `message.format.version` goes from 0.9.0 over 0.10.2 to 2.1 has messages of
/// formats 0, 1 and 2 in one partition, with every codec that a format knows. Needs a version
/// that still writes them: 2.8 or 2.1.
///
/// # Errors
///
/// [`ScenarioError`](super::ScenarioError) with the first difference.
pub fn mixed_formats(kafka: &Artifacts) -> Result<Figures> {
    let mut cluster = Cluster::builder(kafka).property("log.retention.ms", -1).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    client.create_topic("formats", 1, 1, &[("message.format.version", "0.9.0")])?;
    let copy = Copy::new(&cluster.bootstrap(), "formats")?;
    let mirror = copy.follow()?;
    for format in ["0.9.0", "0.10.2", "2.1"] {
        client.alter_topic_configs("formats", &[("message.format.version", format)])?;
        for compression in Compression::ALL {
            if compression == Compression::Zstd && format != "2.1" {
                continue;
            }
            client.produce(&Workload {
                compression,
                compressible: 0.5,
                idempotent: false,
                headers: u32::from(format == "2.1"),
                ..Workload::new("formats", 500)
            })?;
        }
    }
    let end = client.offset("formats", 0, OffsetAt::Latest, Isolation::ReadUncommitted)?.offset;
    mirror.wait_for_ends(&Ends::from([("formats-0".to_owned(), end)]))?;
    mirror.stop()?;
    cluster.stop_all()?;
    let source = cluster.node(1)?.partition_dir("formats", 0);
    let census = same_log(&source, &copy.partition_dir("formats-0"))?;
    same_epochs(&source, &copy.partition_dir("formats-0"), end)?;
    let formats: BTreeMap<i8, u64> = census.by_magic.clone();
    ensure(formats.len() == 3, || format!("formats {formats:?}"))?;
    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());
    figures.extend(census.figures());
    Ok(figures)
}

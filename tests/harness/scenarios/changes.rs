//! A source that trims, grows and recreates its topics.

use super::compare::{same_epochs, same_log};
use super::copy::{Copy, Ends, find};
use super::error::{Result, ensure};
use super::figures::Figures;
use crate::kafka::{Artifacts, Cluster, Driver, KafkaClient, Workload, files, wait};

const RETENTION: (&str, &str) = ("retention.ms", "-1");

/// Log start inside a batch, a range that is gone before it was copied, more partitions, and
/// another topic of the same name.
///
/// # Errors
///
/// [`ScenarioError`](super::ScenarioError) with what is wrong.
pub fn topics_change(kafka: &Artifacts) -> Result<Figures> {
    let cluster = Cluster::builder(kafka).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    let data = cluster.node(1)?.data_dir();
    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());
    trimmed(&cluster, &client, &mut figures)?;
    grown(&cluster, &client, &data)?;
    recreated(&cluster, &client, &mut figures)?;
    Ok(figures)
}

/// Batches of some hundred records.
fn in_large_batches(topic: &str, count: u64) -> Workload {
    Workload { batch_bytes: 40_000, linger_ms: 500, ..Workload::new(topic, count) }
}

fn trimmed(cluster: &Cluster, client: &KafkaClient, figures: &mut Figures) -> Result<()> {
    client.create_topic("trim", 1, 1, &[RETENTION])?;
    client.produce(&in_large_batches("trim", 1_000))?;
    client.delete_records("trim", 0, 42)?;
    let copy = Copy::new(&cluster.bootstrap(), "trim")?;
    let report = copy.once()?;
    let part = find(&report.status, "trim-0").map(|p| (p.log_start.0, p.log_end.0));
    ensure(part == Some((42, 1_000)), || format!("start and end {part:?}"))?;
    let source = cluster.node(1)?.partition_dir("trim", 0);
    let (theirs, before) =
        (files::log_bytes(&source)?, files::log_bytes(&copy.partition_dir("trim-0"))?);
    let base = before.get(..8).and_then(|b| b.try_into().ok()).map_or(-1, i64::from_be_bytes);
    ensure((0..42).contains(&base), || format!("the first batch begins at {base}"))?;
    ensure(theirs.ends_with(&before), || "bytes behind the trim differ".to_owned())?;

    client.produce(&in_large_batches("trim", 1_000))?;
    client.delete_records("trim", 0, 1_500)?;
    let stop = copy.with("mirror.gap.policy", "stop");
    let report = stop.once()?;
    let why = find(&report.status, "trim-0").and_then(|p| p.trouble.clone());
    let why = why.map(|(why, _)| why.to_string()).unwrap_or_default();
    ensure(why.contains("1500"), || format!("no reason for the stop: {why:?}"))?;
    ensure(files::log_bytes(&stop.partition_dir("trim-0"))? == before, || "cut".to_owned())?;
    let copy = stop.with("mirror.gap.policy", "continue");
    let report = copy.once()?;
    let part = find(&report.status, "trim-0").map(|p| (p.log_start.0, p.log_end.0));
    ensure(part == Some((1_500, 2_000)), || format!("start and end {part:?}"))?;
    ensure(copy.gaps().contains("\t1000\t1500\t"), || format!("record: {}", copy.gaps()))?;
    let after = files::log_bytes(&copy.partition_dir("trim-0"))?;
    ensure(files::log_bytes(&source)?.ends_with(&after), || "bytes differ".to_owned())?;
    figures.add("log start inside a batch", format!("42, first batch at {base}"));
    figures.add("retention overtook", why);
    figures.add("record", copy.gaps().trim());
    Ok(())
}

fn grown(cluster: &Cluster, client: &KafkaClient, data: &std::path::Path) -> Result<()> {
    client.create_topic("grown", 1, 1, &[])?;
    client.produce(&Workload::new("grown", 100))?;
    let copy = Copy::new(&cluster.bootstrap(), "grown")?;
    let mirror = copy.follow()?;
    mirror.wait_for_ends(&Ends::from([("grown-0".to_owned(), 100)]))?;
    client.create_partitions("grown", 3)?;
    client.wait_partition("grown", 2, "a leader", |p| p.leader == Some(1))?;
    client.produce(&Workload { partition: Some(2), ..Workload::new("grown", 300) })?;
    mirror.wait_for_ends(&Ends::from([("grown-2".to_owned(), 300)]))?;
    mirror.stop()?;
    for (name, end) in [("grown-0", 100), ("grown-2", 300)] {
        same_log(&data.join(name), &copy.partition_dir(name))?;
        same_epochs(&data.join(name), &copy.partition_dir(name), end)?;
    }
    Ok(())
}

fn recreated(cluster: &Cluster, client: &KafkaClient, figures: &mut Figures) -> Result<()> {
    client.create_topic("again", 1, 1, &[])?;
    client.produce(&Workload::new("again", 100))?;
    let copy = Copy::new(&cluster.bootstrap(), "again")?;
    let mirror = copy.follow()?;
    mirror.wait_for_ends(&Ends::from([("again-0".to_owned(), 100)]))?;
    client.delete_topic("again")?;
    wait::until("the topic to go", super::copy::COPY_TIMEOUT, || {
        Ok(client.describe("again")?.is_none().then_some(()))
    })?;
    client.create_topic("again", 1, 1, &[])?;
    client.wait_partition("again", 0, "a leader", |p| p.leader == Some(1))?;
    // More than before: no offset gives it away.
    client.produce(&Workload { seed: 9, ..Workload::new("again", 500) })?;
    let why = mirror.wait_for_failure("again-0")?;
    mirror.stop()?;
    let log = files::log_bytes(&copy.partition_dir("again-0"))?;
    let theirs = files::log_bytes(&cluster.node(1)?.partition_dir("again", 0))?;
    ensure(!log.is_empty() && !theirs.starts_with(&log), || "two histories are mixed".to_owned())?;
    figures.add("topic recreated", why);
    Ok(())
}

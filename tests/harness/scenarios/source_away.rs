//! The whole source is away for a while: it hangs, it is gone, it is not there at the start.

use std::time::{Duration, Instant};

use heliostat_io::control::Status;

use super::chance::pause_until;
use super::compare::{Census, leaders, same_epochs, same_log};
use super::copy::{Copy, Ends, Mirror, summary};
use super::error::{Result, ensure};
use super::figures::Figures;
use super::load;
use super::verified::verified;
use crate::kafka::{Artifacts, Cluster, Driver, Isolation, KafkaClient, OffsetAt};

const TOPIC: &str = "away";
const PARTITIONS: i32 = 3;
/// When the copy gives an answer up.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait between two attempts of the copy.
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// For how long the source is away.
#[derive(Clone, Copy, Debug)]
pub struct Away {
    /// Brokers; all of them are away.
    pub brokers: usize,
    /// Time of each of the three absences.
    pub each: Duration,
    /// Records per second of each producer.
    pub records_per_s: u32,
}

impl Away {
    /// For the fast tests.
    pub const SHORT: Self = Self { brokers: 1, each: Duration::from_secs(4), records_per_s: 100 };
    /// For the campaign.
    pub const LONG: Self = Self { brokers: 3, each: Duration::from_secs(30), records_per_s: 200 };
}

/// All brokers are halted with SIGSTOP; then all are killed; then they are killed again, and the
/// copy starts while no port of the source is open. It says since when the source fails, gives no
/// partition up, and goes on by itself.
///
/// # Errors
///
/// [`ScenarioError`](super::ScenarioError) with what is wrong.
pub fn source_away(kafka: &Artifacts, away: Away) -> Result<Figures> {
    let began = Instant::now();
    let mut cluster = Cluster::builder(kafka).brokers(away.brokers).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    let replicas = i16::try_from(away.brokers).unwrap_or(1);
    let in_sync = if away.brokers > 1 { "2" } else { "1" };
    client.create_topic(TOPIC, PARTITIONS, replicas, &[("min.insync.replicas", in_sync)])?;
    let copy = Copy::new(&cluster.bootstrap(), TOPIC)?
        .with("request.timeout.ms", REQUEST_TIMEOUT.as_millis())
        .with("reconnect.backoff.max.ms", BACKOFF_MAX.as_millis());
    let mirror = copy.follow()?;
    let producers = load::each_codec(&client, TOPIC, away.records_per_s)?;
    reaches_present(&client, &mirror)?;
    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());
    figures.add("brokers", away.brokers);

    let ids: Vec<i32> = cluster.nodes().iter().map(crate::kafka::Node::id).collect();
    let since = Instant::now();
    ids.iter().try_for_each(|id| cluster.node_mut(*id)?.pause())?;
    let said = is_told(&mirror, since, away.each)?;
    ids.iter().try_for_each(|id| cluster.node_mut(*id)?.resume())?;
    figures.add("halted: said", said);
    figures.add("halted: ms until it went on", goes_on(&client, &mirror)?);

    let since = Instant::now();
    ids.iter().try_for_each(|id| cluster.node_mut(*id)?.kill())?;
    let said = is_told(&mirror, since, away.each)?;
    cluster.start_all()?;
    figures.add("killed: said", said);
    figures.add("killed: ms until it went on", goes_on(&client, &mirror)?);

    let since = Instant::now();
    ids.iter().try_for_each(|id| cluster.node_mut(*id)?.kill())?;
    mirror.stop()?;
    let mirror = copy.follow()?;
    let said = is_told(&mirror, since, away.each)?;
    cluster.start_all()?;
    figures.add("not there at the start: said", said);
    figures.add("not there at the start: ms until it went on", goes_on(&client, &mirror)?);

    let (acked, failed) = load::stop(producers)?;
    let ends = load::final_ends(&client, TOPIC, PARTITIONS)?;
    mirror.wait_for_ends(&ends)?;
    mirror.stop()?;
    ensure(copy.gaps().is_empty(), || format!("on record: {}", copy.gaps()))?;
    ensure(verified(&copy)?.agrees(true), || "verify does not say equal".to_owned())?;
    let leaders = leaders(&client, &[TOPIC])?;
    cluster.stop_all()?;
    let mut census = Census::default();
    for (name, leader) in &leaders {
        let source = cluster.node(*leader)?.data_dir().join(name);
        census.add(&same_log(&source, &copy.partition_dir(name))?);
        let end = ends.get(name).copied().unwrap_or(i64::MAX);
        same_epochs(&source, &copy.partition_dir(name), end)?;
    }
    figures.add("records acknowledged", acked);
    figures.add("records failed", failed);
    figures.extend(census.figures());
    figures.add("seconds", began.elapsed().as_secs());
    Ok(figures)
}

/// Lets the absence last, and returns what the copy says of it at its end.
fn is_told(mirror: &Mirror, since: Instant, each: Duration) -> Result<String> {
    mirror.wait("the source's trouble is told", |status| status.source_trouble.is_some())?;
    let told = since.elapsed();
    pause_until(since + each);
    let status = mirror.status();
    unharmed(&status)?;
    let Some((why, failing)) = &status.source_trouble else {
        return Err(super::ScenarioError::Wrong(format!("forgotten: {}", summary(&status))));
    };
    // It counts from the first failure, and the snapshot is a moment old.
    let least = each.saturating_sub(told).saturating_sub(Duration::from_secs(1));
    ensure(*failing >= least, || format!("failing for {failing:?} only, not {least:?}"))?;
    Ok(format!("failing for {failing:.1?}: {why}"))
}

/// The copy gets as far as the source is now; milliseconds that it took, the source's own included.
fn goes_on(client: &KafkaClient, mirror: &Mirror) -> Result<u128> {
    let began = Instant::now();
    mirror.wait("the source answers again", |status| status.source_trouble.is_none())?;
    reaches_present(client, mirror)?;
    unharmed(&mirror.status())?;
    Ok(began.elapsed().as_millis())
}

/// No partition stops because of the world's fault.
fn unharmed(status: &Status) -> Result<()> {
    ensure(status.totals.failed == 0, || summary(status))
}

fn reaches_present(client: &KafkaClient, mirror: &Mirror) -> Result<()> {
    let mut now = Ends::new();
    for partition in 0..PARTITIONS {
        client.wait_partition(TOPIC, partition, "a leader", |p| p.leader.is_some())?;
        let end = client.offset(TOPIC, partition, OffsetAt::Latest, Isolation::ReadUncommitted)?;
        now.insert(format!("{TOPIC}-{partition}"), end.offset);
    }
    mirror.wait_for_ends(&now)
}

//! The copy's disk fills up while it copies, and later has room again.

use std::time::{Duration, Instant};

use heliostat_io::control::{EventKind, PartitionState, Status};

use super::compare::{Census, same_epochs, same_log};
use super::copy::{Copy, Ends, Mirror};
use super::error::{Result, ensure};
use super::figures::Figures;
use super::load;
use super::mount::TmpFs;
use super::verified::verified;
use crate::kafka::{Artifacts, Cluster, Driver, KafkaClient, Workload};

const TOPIC: &str = "full";
const PARTITIONS: i32 = 3;
const MIB: u64 = 1 << 20;
/// Size of the copy's file system until it grows.
const SMALL: u64 = 48 * MIB;
/// The low-water mark of the round that has one.
const LOW_WATER: u64 = 16 * MIB;
const LOW_WATER_KEY: &str = "log.dir.free.min.bytes";

/// How much there is to copy; more than [`SMALL`].
#[derive(Clone, Copy, Debug)]
pub struct Filling {
    /// Records of 1 KB that are there before the copy starts.
    pub records_before: u64,
    /// Records per second of each producer while it runs.
    pub records_per_s: u32,
}

impl Filling {
    /// For the fast tests.
    pub const SHORT: Self = Self { records_before: 80_000, records_per_s: 50 };
    /// For the campaign.
    pub const LONG: Self = Self { records_before: 300_000, records_per_s: 500 };
}

/// Two copies on file systems that are too small: one stops at the low-water mark, the other has
/// none and is refused its writes. Both go on by themselves once there is room.
///
/// # Errors
///
/// [`ScenarioError`](super::ScenarioError) with what is wrong; without the right to mount, that.
pub fn disk_full(kafka: &Artifacts, filling: Filling) -> Result<Figures> {
    let began = Instant::now();
    // First of all: whoever may not mount need not wait for a broker.
    let disks = [TmpFs::new(SMALL)?, TmpFs::new(SMALL)?];
    let mut cluster = Cluster::builder(kafka).property("log.retention.ms", -1).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    client.create_topic(TOPIC, PARTITIONS, 1, &[])?;
    client.produce(&Workload {
        value_bytes: 1_000,
        batch_bytes: 100_000,
        ..Workload::new(TOPIC, filling.records_before)
    })?;
    let producers = load::each_codec(&client, TOPIC, filling.records_per_s)?;
    let copy = |disk: &TmpFs| -> Result<Copy> {
        let dir = disk.path().join("copy");
        Ok(Copy::at(dir, &cluster.bootstrap(), TOPIC).with("segment.bytes", 4 * MIB))
    };
    let room = filling.records_before * 4_000 + 512 * MIB;
    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());

    // Slow enough that no write meets a full disk between two looks at the free space.
    let careful = copy(&disks[0])?
        .with(LOW_WATER_KEY, LOW_WATER)
        .with("mirror.replication.throttled.rate", 40 * MIB);
    let parked = careful.follow()?;
    let status = parked.wait("nothing is fetched", |status| status.parked)?;
    let said = last_word(&status, LOW_WATER_KEY)?;
    ensure(said.contains("nothing is lost"), || format!("not clear: {said}"))?;
    // What was asked for before still comes.
    passes(&parked, "a second while there is no room")?;
    stays(&parked, "nothing fails or grows while there is no room", |before, now| {
        now.parked && now.totals.failed == 0 && sum(now) == sum(before)
    })?;
    ensure(parked.status().free_bytes > 0, || "filled in spite of the low-water mark".to_owned())?;
    figures.add("low-water mark: said", said);
    figures.add("low-water mark: bytes of the copy", sum(&parked.status()));

    let careless = copy(&disks[1])?.with(LOW_WATER_KEY, 0);
    let refused = careless.follow()?;
    let said = is_refused(&refused)?;
    stays(&refused, "nothing fails while writes are refused", |_, now| now.totals.failed == 0)?;
    figures.add("no low-water mark: said", said);
    figures.add("no low-water mark: bytes of the copy", sum(&refused.status()));
    let (refusals, elapsed) = (refusals(&refused.status()), refused.status().elapsed);
    figures.add("no low-water mark: refusals", format!("{refusals} within {elapsed:.1?}"));

    // A process that ends and begins meanwhile finds no room for its own files either.
    let ended = refused.end()?;
    figures.add("stop on a full disk is clean", ended.clean);
    let refused = careless.follow()?;
    is_refused(&refused)?;
    stays(&refused, "nothing fails after a start on a full disk", |_, now| now.totals.failed == 0)?;

    disks.iter().try_for_each(|disk| disk.resize(room))?;
    parked.wait("it goes on by itself", |status| !status.parked)?;
    let grown = |mirror: &Mirror| -> Result<()> {
        let now = present(&client)?;
        mirror.wait_for_ends(&now)
    };
    grown(&parked)?;
    grown(&refused)?;
    let (acked, failed) = load::stop(producers)?;
    ensure(failed == 0, || format!("{failed} records failed"))?;
    let ends = load::final_ends(&client, TOPIC, PARTITIONS)?;
    let mut census = Census::default();
    for (copy, mirror) in [(&careful, parked), (&careless, refused)] {
        mirror.wait_for_ends(&ends)?;
        mirror.stop()?;
        ensure(copy.gaps().is_empty(), || format!("on record: {}", copy.gaps()))?;
        ensure(verified(copy)?.agrees(true), || "verify does not say equal".to_owned())?;
    }
    cluster.stop_all()?;
    for copy in [&careful, &careless] {
        for (name, end) in &ends {
            let source = cluster.node(1)?.data_dir().join(name);
            census.add(&same_log(&source, &copy.partition_dir(name))?);
            same_epochs(&source, &copy.partition_dir(name), *end)?;
        }
    }
    figures.add("records acknowledged", filling.records_before + acked);
    figures.extend(census.figures());
    figures.add("seconds", began.elapsed().as_secs());
    Ok(figures)
}

/// Waits until a write met a full disk; what was said then.
fn is_refused(mirror: &Mirror) -> Result<String> {
    let status = mirror.wait("a write is refused", |status| {
        status.partitions.iter().any(|part| part.state == PartitionState::NoRoom)
    })?;
    last_word(&status, "no room on the disk of")
}

fn refusals(status: &Status) -> usize {
    status.events.iter().filter(|event| event.kind == EventKind::Space).count()
}

fn sum(status: &Status) -> u64 {
    status.totals.size_bytes
}

/// The last event about room that says `what`.
fn last_word(status: &Status, what: &str) -> Result<String> {
    let mut events = status.events.iter().rev().filter(|event| event.kind == EventKind::Space);
    let found = events.find(|event| event.text.contains(what));
    let all = || format!("no event says {what:?}: {:?}", status.events);
    found.map(|event| event.text.to_string()).ok_or_else(|| super::ScenarioError::Wrong(all()))
}

/// A second of the job's own clock.
fn passes(mirror: &Mirror, what: &str) -> Result<()> {
    let until = mirror.status().elapsed + Duration::from_secs(1);
    mirror.wait(what, |now| now.elapsed > until).map(drop)
}

/// `holds` of the status now and of each of the next ones, for about two seconds.
fn stays(mirror: &Mirror, what: &str, holds: impl Fn(&Status, &Status) -> bool) -> Result<()> {
    let before = mirror.status();
    let until = before.elapsed + Duration::from_secs(2);
    let end = mirror.wait(what, |now| !holds(&before, now) || now.elapsed > until)?;
    ensure(holds(&before, &end), || format!("not so: {what}\n{}", super::copy::summary(&end)))
}

/// Where the source ends now.
fn present(client: &KafkaClient) -> Result<Ends> {
    use crate::kafka::{Isolation, OffsetAt};
    let mut now = Ends::new();
    for partition in 0..PARTITIONS {
        let end = client.offset(TOPIC, partition, OffsetAt::Latest, Isolation::ReadUncommitted)?;
        now.insert(format!("{TOPIC}-{partition}"), end.offset);
    }
    Ok(now)
}

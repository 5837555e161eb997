//! A copy that is killed with SIGKILL over and over, at moments of every kind.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::chance::{Chance, pause_until};
use super::child::ChildMirror;
use super::compare::{Census, leaders, no_complaints, same_epochs, same_log};
use super::copy::{COPY_TIMEOUT, Copy, Ends};
use super::error::{Result, ScenarioError, ensure};
use super::figures::Figures;
use super::load;
use super::verified::verified;
use crate::kafka::{Artifacts, Cluster, Driver, Workload, files};

/// Name and partitions.
const TOPICS: [(&str, i32); 2] = [("killed", 4), ("killed-tx", 2)];
/// Small enough that segments roll all the time.
const SEGMENT_BYTES: u32 = 1 << 20;
/// Longest time from a process's start to a kill while it opens its logs.
const OPENING: Duration = Duration::from_millis(400);
/// Longest time from the first bytes to a kill in the middle of the run.
const RUNNING: Duration = Duration::from_millis(1_500);
/// Longest time from a change of files to the kill that is to strike behind it.
const JUST_AFTER: Duration = Duration::from_millis(4);
/// From the last look at the files to the kill: bytes that came in it were arriving.
const LOOK: Duration = Duration::from_millis(30);

/// When the copy is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    /// While the process starts and recovers what the last kill left.
    Opening,
    /// While it appends, and flushes ten times a second.
    Running,
    /// When a segment has just been begun.
    Roll,
    /// When the recovery points have just been written.
    Checkpoint,
}

/// How often, and under what load.
#[derive(Clone, Copy, Debug)]
pub struct Kills {
    /// Kills.
    pub count: usize,
    /// Records of each codec that are there before the copy starts.
    pub records_before: u64,
    /// Records per second of each producer.
    pub records_per_s: u32,
}

impl Kills {
    /// For the fast tests.
    pub const FEW: Self = Self { count: 8, records_before: 2_000, records_per_s: 600 };
    /// For the campaign.
    pub const MANY: Self = Self { count: 50, records_before: 20_000, records_per_s: 1_000 };
}

/// What the kills met.
#[derive(Debug, Default)]
struct Met {
    by_moment: BTreeMap<Moment, usize>,
    arriving: usize,
    torn: usize,
}

/// Kills the process of a copy at moments that `chance` draws, each time starts it again, and
/// compares it with the leaders' logs in the end.
///
/// # Errors
///
/// [`ScenarioError`] with the first difference.
pub fn killed_again_and_again(
    kafka: &Artifacts,
    kills: Kills,
    chance: &mut Chance,
) -> Result<Figures> {
    let mut figures = Figures::default();
    figures.add("seed", chance.seed());
    let seed = chance.seed();
    let outcome = run(kafka, kills, chance, &mut figures);
    outcome.map_err(|error| ScenarioError::Wrong(format!("seed {seed}: {error}")))?;
    Ok(figures)
}

fn run(kafka: &Artifacts, kills: Kills, chance: &mut Chance, figures: &mut Figures) -> Result<()> {
    let began = Instant::now();
    let mut cluster = Cluster::builder(kafka).property("log.retention.ms", -1).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    for (topic, partitions) in TOPICS {
        client.create_topic(topic, partitions, 1, &[])?;
    }
    let [(topic, _), (transactional, _)] = TOPICS;
    client
        .produce(&Workload { value_bytes: 1_000, ..Workload::new(topic, kills.records_before) })?;
    let copy = Copy::new(&cluster.bootstrap(), "killed.*")?
        .with("segment.bytes", SEGMENT_BYTES)
        .with("flush.ms", 100);
    let producers = load::each_codec(&client, topic, kills.records_per_s)?;
    let mut acked = kills.records_before;
    let mut met = Met::default();
    for kill in 0..kills.count {
        if kill % 4 == 0 {
            let round = u64::try_from(kill).unwrap_or(0);
            acked += load::transactions(&client, transactional, round)?;
        }
        strike(&copy, moment(chance), chance, &mut met)?;
    }
    let (written, failed) = load::stop(producers)?;
    ensure(failed == 0, || format!("{failed} records failed"))?;
    // A torn end is rare, and the other counts say whether the load was there at all.
    ensure(met.arriving * 3 >= kills.count, || format!("too few kills met bytes: {met:?}"))?;
    let mut ends = Ends::new();
    for (topic, partitions) in TOPICS {
        ends.extend(load::final_ends(&client, topic, partitions)?);
    }
    let mirror = copy.follow()?;
    mirror.wait_for_ends(&ends)?;
    mirror.stop()?;
    ensure(copy.gaps().is_empty(), || format!("on record: {}", copy.gaps()))?;
    ensure(verified(&copy)?.agrees(true), || "verify does not say equal".to_owned())?;

    let leaders = leaders(&client, &TOPICS.map(|(topic, _)| topic))?;
    cluster.stop_all()?;
    let mut census = Census::default();
    for (name, leader) in &leaders {
        let source = cluster.node(*leader)?.data_dir().join(name);
        census.add(&same_log(&source, &copy.partition_dir(name))?);
        let end = ends.get(name).copied().unwrap_or(i64::MAX);
        same_epochs(&source, &copy.partition_dir(name), end)?;
    }
    let dirs: Vec<_> = leaders.keys().map(|name| copy.partition_dir(name)).collect();
    let dirs: Vec<&Path> = dirs.iter().map(AsRef::as_ref).collect();
    // The tool takes each segment that does not begin at offset 0 for a hole; the bytes are compared
    // already.
    let read = no_complaints(kafka, &dirs, true)?;
    figures.add("Kafka", kafka.version().number());
    figures.add("kills", kills.count);
    figures.add("kills by moment", format!("{:?}", met.by_moment));
    figures.add("kills while bytes were arriving", met.arriving);
    figures.add("partitions left with a piece of a batch", met.torn);
    figures.add("records acknowledged", acked + written);
    figures.extend(census.figures());
    figures.add("files read by DumpLogSegments", read);
    figures.add("seconds", began.elapsed().as_secs());
    Ok(())
}

fn moment(chance: &mut Chance) -> Moment {
    match chance.below(10) {
        0..2 => Moment::Opening,
        2..6 => Moment::Running,
        6..8 => Moment::Roll,
        _ => Moment::Checkpoint,
    }
}

/// One life of the process, from its start to its kill.
fn strike(copy: &Copy, moment: Moment, chance: &mut Chance, met: &mut Met) -> Result<()> {
    let found = tails(copy)?;
    let child = ChildMirror::follow(copy)?;
    let delay = match moment {
        Moment::Opening => chance.time_below(OPENING),
        Moment::Running => {
            when("bytes arrive", || Ok(tails(copy)? != found))?;
            chance.time_below(RUNNING)
        }
        Moment::Roll => {
            when("bytes arrive", || Ok(tails(copy)? != found))?;
            let before = newest_segments(copy)?;
            when("a segment begins", || Ok(newest_segments(copy)? != before))?;
            chance.time_below(JUST_AFTER)
        }
        Moment::Checkpoint => {
            when("bytes arrive", || Ok(tails(copy)? != found))?;
            let before = checkpoint_written(copy);
            when("a checkpoint is written", || Ok(checkpoint_written(copy) != before))?;
            chance.time_below(JUST_AFTER)
        }
    };
    let at = Instant::now() + delay;
    let look = at.checked_sub(LOOK).unwrap_or(at);
    pause_until(look);
    let before = tails(copy)?;
    pause_until(at);
    child.kill()?;
    let after = tails(copy)?;
    *met.by_moment.entry(moment).or_default() += 1;
    met.arriving += usize::from(before != after);
    met.torn += after.values().filter(|tail| tail.torn).count();
    Ok(())
}

/// Where the files of a partition end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tail {
    segment: String,
    whole_bytes: usize,
    torn: bool,
}

fn partition_names() -> impl Iterator<Item = String> {
    TOPICS.into_iter().flat_map(|(topic, count)| (0..count).map(move |p| format!("{topic}-{p}")))
}

/// Ends of the newest segments, by partition.
fn tails(copy: &Copy) -> Result<BTreeMap<String, Tail>> {
    let mut found = BTreeMap::new();
    for name in partition_names() {
        let dir = copy.partition_dir(&name);
        let Some(path) = segments(&dir)?.pop() else { continue };
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            // A segment without batches may go again.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(ScenarioError::file(&path)(error)),
        };
        let whole_bytes = whole_batches(&bytes);
        // What lies ahead of the batches is preallocated and reads as zeros.
        let torn = bytes.get(whole_bytes..).unwrap_or_default().iter().any(|byte| *byte != 0);
        let segment = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.insert(name, Tail { segment, whole_bytes, torn });
    }
    Ok(found)
}

fn segments(dir: &Path) -> Result<Vec<std::path::PathBuf>> {
    if dir.is_dir() { Ok(files::segments(dir)?) } else { Ok(Vec::new()) }
}

/// Where the whole, valid batches of a segment end.
pub(crate) fn whole_batches(log: &[u8]) -> usize {
    let mut at = 0;
    while let Some(size) = log.get(at + 8..at + 12).and_then(|bytes| bytes.try_into().ok()) {
        let size = usize::try_from(u32::from_be_bytes(size)).unwrap_or(0);
        // The smallest batch of all has more than a header's length behind the field.
        if size < 14 || log.len() - at < size + 12 || !is_written(log, at, size + 12) {
            break;
        }
        at += size + 12;
    }
    at
}

/// Whether the checksum of a batch holds: its rest may still be missing.
fn is_written(log: &[u8], at: usize, size: usize) -> bool {
    let Some(batch) = log.get(at..at + size) else { return false };
    let Some((head, body)) = batch.split_at_checked(21) else { return false };
    let stored = head.get(17..).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    stored == Some(crc32c::crc32c(body))
}

fn newest_segments(copy: &Copy) -> Result<Vec<Option<std::path::PathBuf>>> {
    partition_names().map(|name| Ok(segments(&copy.partition_dir(&name))?.pop())).collect()
}

fn checkpoint_written(copy: &Copy) -> Option<SystemTime> {
    let path = copy.dir().join("recovery-point-offset-checkpoint");
    std::fs::metadata(path).and_then(|meta| meta.modified()).ok()
}

/// Looks at a condition every millisecond: what is to strike close behind it cannot be coarse.
fn when(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !holds()? {
        let waited = began.elapsed();
        if waited >= COPY_TIMEOUT {
            let (what, seen) = (what.to_owned(), String::new());
            return Err(ScenarioError::NotReached { what, waited, seen });
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}

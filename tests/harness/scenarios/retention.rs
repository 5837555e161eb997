//! Time-based retention overtakes a copy: while it is stopped, and while it is too slow.

use std::time::Instant;

use heliostat_core::log::gaps::{GapFile, GapKind, GapRecord};
use heliostat_io::control::Status;

use super::compare::{Census, same_epochs};
use super::copy::{COPY_TIMEOUT, Copy, Ends, find};
use super::error::{Result, ScenarioError, ensure};
use super::figures::Figures;
use super::load;
use super::verified::verified;
use crate::kafka::properties::fast_housekeeping;
use crate::kafka::{
    Artifacts, Cluster, Driver, Isolation, KafkaClient, OffsetAt, Workload, files, wait,
};

const TOPIC: &str = "kept";
const NAMES: [&str; 2] = ["kept-0", "kept-1"];
const POLICY: &str = "mirror.gap.policy";
const FOR_EVER: [(&str, &str); 1] = [("retention.ms", "-1")];
const SHORT: [(&str, &str); 1] = [("retention.ms", "1000")];

/// How much is written.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Records of 1 KB that expire while the copy is stopped.
    pub records: u64,
    /// Records per second of each producer while the copy is slow.
    pub records_per_s: u32,
    /// Gaps of the slow copy, in all partitions together.
    pub gaps: usize,
}

impl Kept {
    /// For the fast tests.
    pub const FEW: Self = Self { records: 6_000, records_per_s: 300, gaps: 1 };
    /// For the campaign.
    pub const MANY: Self = Self { records: 40_000, records_per_s: 1_000, gaps: 6 };
}

/// Retention takes what a stopped copy lacks: by policy it stops with a reason, or records the
/// range and goes on. Then it takes what a throttled copy has not come to yet. What the copy has
/// in the end is the source's, and what it lacks is on record.
///
/// # Errors
///
/// [`ScenarioError`] with what is wrong.
pub fn retention_overtakes(kafka: &Artifacts, kept: Kept) -> Result<Figures> {
    let began = Instant::now();
    let mut cluster = Cluster::builder(kafka).properties(&fast_housekeeping()).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    let configs = [("segment.bytes", "1048576"), ("segment.ms", "500"), FOR_EVER[0]];
    client.create_topic(TOPIC, 2, 1, &configs)?;
    let copy = Copy::new(&cluster.bootstrap(), TOPIC)?.with("segment.bytes", 1 << 20);
    write(&client, 1_000)?;
    let first = ends(&copy.once()?.status);
    ensure(first.values().sum::<i64>() == 1_000, || format!("{first:?}"))?;

    // While it is stopped.
    write(&client, kept.records)?;
    let starts = expire(&client, &first)?;
    write(&client, 1_000)?;
    let before = bytes(&copy)?;
    let copy = copy.with(POLICY, "stop");
    let refused = copy.once()?;
    let mut why = String::new();
    for (name, end) in &first {
        let part = find(&refused.status, name);
        why = part.and_then(|p| p.trouble.clone()).map(|(why, _)| why.to_string()).unwrap_or(why);
        let start = starts.get(name).copied().unwrap_or(-1);
        ensure(why.contains(&end.to_string()) && why.contains(&start.to_string()), || {
            format!("{name} lacks {end} to {start}; the reason: {why:?}")
        })?;
    }
    ensure(bytes(&copy)? == before, || "a copy that stopped was changed".to_owned())?;
    let copy = copy.with(POLICY, "continue");
    copy.once()?;
    let recorded = recorded(&copy)?;
    for (name, from) in &first {
        let to = starts.get(name).copied().unwrap_or(-1);
        let of = |gap: &&GapRecord| gap.partition.to_string() == *name;
        let found: Vec<_> = recorded.iter().filter(of).map(|gap| (gap.from.0, gap.to.0)).collect();
        // The policy that stops has recorded it already; it is there once.
        ensure(found == [(*from, to)], || format!("{name}: {found:?}, not {from} to {to}"))?;
    }
    is_the_sources(&copy, &client, &recorded)?;

    // While it is slow.
    let copy = copy.with("mirror.replication.throttled.rate", 100_000);
    let mirror = copy.follow()?;
    let producers = load::each_codec(&client, TOPIC, kept.records_per_s)?;
    client.alter_topic_configs(TOPIC, &SHORT)?;
    let many = recorded.len() + kept.gaps;
    mirror.wait("retention overtakes", |status| status.totals.gaps >= many)?;
    client.alter_topic_configs(TOPIC, &FOR_EVER)?;
    let (acked, failed) = load::stop(producers)?;
    ensure(failed == 0, || format!("{failed} records failed"))?;
    mirror.unthrottle()?;
    let last = load::final_ends(&client, TOPIC, 2)?;
    mirror.wait_for_ends(&last)?;
    ensure(mirror.status().totals.failed == 0, || "a partition failed".to_owned())?;
    mirror.stop()?;
    let recorded = self::recorded(&copy)?;
    is_the_sources(&copy, &client, &recorded)?;

    cluster.stop_all()?;
    let mut census = Census::default();
    for name in NAMES {
        let source = cluster.node(1)?.data_dir().join(name);
        let (theirs, ours) = (files::log_bytes(&source)?, bytes_of(&copy, name)?);
        ensure(!ours.is_empty() && theirs.ends_with(&ours), || format!("{name}: bytes differ"))?;
        census.add(&Census::of(&ours));
        same_epochs(&source, &copy.partition_dir(name), i64::MAX)?;
    }
    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());
    figures.add("reason of the copy that stopped", why);
    figures.add("gaps on record", recorded.len());
    let ranges = recorded.iter().map(|gap| format!("{} {}..{}", gap.partition, gap.from, gap.to));
    figures.add("ranges", ranges.collect::<Vec<_>>().join(", "));
    figures.add("records written while it was slow", acked);
    figures.extend(census.figures());
    figures.add("seconds", began.elapsed().as_secs());
    Ok(figures)
}

fn write(client: &KafkaClient, count: u64) -> Result<()> {
    client.produce(&Workload { value_bytes: 1_000, ..Workload::new(TOPIC, count) })?;
    Ok(())
}

fn ends(status: &Status) -> Ends {
    NAMES
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), find(status, name)?.log_end.0)))
        .collect()
}

/// Lets retention take everything below and beyond `ends`; the log starts that it leaves.
fn expire(client: &KafkaClient, ends: &Ends) -> Result<Ends> {
    client.alter_topic_configs(TOPIC, &SHORT)?;
    wait::until("retention", COPY_TIMEOUT, || {
        let starts = starts(client)?;
        Ok(ends.iter().all(|(name, end)| starts.get(name) > Some(end)).then_some(()))
    })?;
    client.alter_topic_configs(TOPIC, &FOR_EVER)?;
    // A look that had begun before may still take something.
    let mut before = starts(client)?;
    let quiet = wait::until("retention to rest", COPY_TIMEOUT, || {
        let began = Instant::now();
        wait::until("two looks of retention", COPY_TIMEOUT, || {
            Ok((began.elapsed().as_millis() > 1_200).then_some(()))
        })?;
        let now = starts(client)?;
        let rests = now == before;
        before.clone_from(&now);
        Ok(rests.then_some(now))
    })?;
    Ok(quiet)
}

fn starts(client: &KafkaClient) -> crate::kafka::error::Result<Ends> {
    let mut starts = Ends::new();
    for (partition, name) in (0..).zip(NAMES) {
        let at = OffsetAt::Earliest;
        let found = client.offset(TOPIC, partition, at, Isolation::ReadUncommitted)?;
        starts.insert(name.to_owned(), found.offset);
    }
    Ok(starts)
}

fn bytes_of(copy: &Copy, name: &str) -> Result<Vec<u8>> {
    Ok(files::log_bytes(&copy.partition_dir(name))?)
}

fn bytes(copy: &Copy) -> Result<Vec<Vec<u8>>> {
    NAMES.into_iter().map(|name| bytes_of(copy, name)).collect()
}

fn recorded(copy: &Copy) -> Result<Vec<GapRecord>> {
    let file = GapFile::decode(copy.gaps().as_bytes())
        .map_err(|error| ScenarioError::Wrong(error.to_string()))?;
    Ok(file.records)
}

/// Verification agrees, shows the gaps, and nothing else; gaps are gaps, in order, and end where
/// the copy begins.
fn is_the_sources(copy: &Copy, client: &KafkaClient, recorded: &[GapRecord]) -> Result<()> {
    let report = verified(copy)?;
    ensure(report.agrees(true), || format!("verify does not say equal: {:?}", report.partitions))?;
    let starts = starts(client)?;
    for part in &report.partitions {
        let name = part.partition.to_string();
        let of = |gap: &&GapRecord| gap.partition == part.partition;
        let own: Vec<_> = recorded.iter().filter(of).cloned().collect();
        ensure(part.gaps == own && !own.is_empty(), || {
            format!("{name}: verify shows {:?}, on record {own:?}", part.gaps)
        })?;
        let apart = own.windows(2).all(|pair| matches!(pair, [a, b] if a.to <= b.from));
        let gaps = own.iter().all(|gap| gap.kind == GapKind::Gap && gap.from < gap.to);
        ensure(apart && gaps, || format!("{name}: on record {own:?}"))?;
        let last = own.last().map_or(-1, |gap| gap.to.0);
        let start = starts.get(&name).copied().unwrap_or(-1);
        ensure(part.copy_start.0 >= last && part.copy_start.0 <= start.max(last), || {
            format!("{name}: begins at {}, gap to {last}, source {start}", part.copy_start)
        })?;
    }
    Ok(())
}

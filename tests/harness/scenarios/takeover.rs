//! A broker takes the copy's directories over, in place of its own, and serves the same records.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::child::ChildMirror;
use super::compare::no_complaints;
use super::copy::{Copy, Ends};
use super::error::{Result, ScenarioError, ensure};
use super::figures::Figures;
use super::load;
use crate::kafka::client::Transactions;
use crate::kafka::{
    Artifacts, Cluster, Compression, Consumed, Driver, Isolation, KafkaClient, OffsetAt, Workload,
};

/// Name and partitions.
const TOPICS: [(&str, i32); 2] = [("codecs", 5), ("tx", 2)];
/// A transaction that is open while the directories change.
const OPEN: &str = "left-open";

const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";

/// How copy and broker were before the broker starts with the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// Both stopped cleanly; the broker trusts the files as they are.
    CleanShutdown,
    /// The marker of the clean stop is gone: the broker recovers behind the recovery points.
    NoMarker,
    /// The copy's process was killed twice, the second time after it had everything.
    CopyKilled,
}

/// What consumers see.
#[derive(Debug, PartialEq, Eq)]
struct Served {
    all: BTreeMap<String, Consumed>,
    committed: BTreeMap<String, Consumed>,
    last_stable: BTreeMap<String, i64>,
}

/// A one-broker source of `kafka` is copied, stopped, given the copy's directories, and started,
/// once for each of `how`.
///
/// # Errors
///
/// [`ScenarioError`] with the first difference.
pub fn take_over(kafka: &Artifacts, how: &[Takeover]) -> Result<Figures> {
    let mut cluster = Cluster::builder(kafka)
        .property("log.cleaner.enable", false)
        .property("log.retention.ms", -1)
        .property("log.segment.bytes", 1 << 20)
        .start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    for (topic, partitions) in TOPICS {
        client.create_topic(topic, partitions, 1, &[])?;
    }
    let mut figures = Figures::default();
    for (round, how) in (0..).zip(how) {
        let copy = Copy::new(&cluster.bootstrap(), "codecs,tx")?.with("flush.ms", 200);
        if round == 0 {
            write(&client, round)?;
        }
        let ends = copied(&client, &copy, *how, round)?;
        let before = served(&client)?;
        ensure(before.last_stable != ends, || "no transaction is open".to_owned())?;
        cluster.stop_all()?;
        let data = cluster.node(1)?.data_dir();
        let dirs: Vec<_> = ends.keys().map(|name| data.join(name)).collect();
        for name in ends.keys() {
            replace(&copy.partition_dir(name), &data.join(name))?;
        }
        if *how == Takeover::CleanShutdown {
            let dirs: Vec<&Path> = dirs.iter().map(AsRef::as_ref).collect();
            let files = no_complaints(kafka, &dirs, false)?;
            figures.add("files read by DumpLogSegments", files);
        } else {
            recover(copy.dir(), &data, &ends)?;
        }
        cluster.start_all()?;
        for name in ends.keys() {
            let (topic, partition) = split(name)?;
            client.wait_partition(topic, partition, "a leader", |p| p.leader == Some(1))?;
        }
        let after = served(&client)?;
        ensure(before == after, || format!("{how:?}: before {before:#?}\nafter {after:#?}"))?;
        // The broker knows the open transaction from the copy's files: it can be ended.
        client.end_transaction(OPEN, true)?;
        for (name, end) in &ends {
            let (topic, partition) = split(name)?;
            client.wait_end(topic, partition, Isolation::ReadCommitted, *end)?;
        }
        figures.add(format!("{how:?}"), "the same records and committed records");
    }
    Ok(figures)
}

fn split(name: &str) -> Result<(&str, i32)> {
    name.rsplit_once('-')
        .and_then(|(topic, partition)| Some((topic, partition.parse().ok()?)))
        .ok_or_else(|| ScenarioError::Wrong(format!("{name} is no partition")))
}

/// Every codec, and transactions of both outcomes.
fn write(client: &KafkaClient, round: u64) -> Result<()> {
    for (partition, compression) in (0..).zip(Compression::ALL) {
        client.produce(&Workload {
            partition: Some(partition),
            compression,
            value_bytes: 900,
            compressible: 0.6,
            headers: 2,
            keys: 20,
            ..Workload::new("codecs", 3_000)
        })?;
    }
    load::transactions(client, "tx", round)?;
    Ok(())
}

/// Copies everything, with more being written meanwhile and a transaction left open at the end;
/// returns where the partitions end.
fn copied(client: &KafkaClient, copy: &Copy, how: Takeover, round: u64) -> Result<Ends> {
    if how != Takeover::CopyKilled {
        let mirror = copy.follow()?;
        let ends = write_more(client, round)?;
        mirror.wait_for_ends(&ends)?;
        mirror.stop()?;
        return Ok(ends);
    }
    let mut child = ChildMirror::follow(copy)?;
    // Some of each partition, not all: it is killed at work.
    let some: Ends = TOPICS
        .iter()
        .flat_map(|&(topic, partitions)| (0..partitions).map(move |p| (format!("{topic}-{p}"), 1)))
        .collect();
    let producers = load::each_codec(client, "codecs", 500)?;
    child.wait_for_ends(&some)?;
    child.kill()?;
    let mut child = ChildMirror::follow(copy)?;
    load::stop(producers)?;
    let ends = write_more(client, round)?;
    child.wait_for_ends(&ends)?;
    child.kill()?;
    Ok(ends)
}

fn write_more(client: &KafkaClient, round: u64) -> Result<Ends> {
    let producers = load::each_codec(client, "codecs", 300)?;
    load::transactions(client, "tx", round + 1)?;
    load::stop(producers)?;
    let mut ends = Ends::new();
    for (topic, partitions) in TOPICS {
        ends.extend(load::final_ends(client, topic, partitions)?);
    }
    // Open for as long as a broker allows: a takeover takes its time.
    let open = Transactions {
        leave_open: true,
        timeout: Duration::from_mins(15),
        ..Transactions::committed(OPEN, 0)
    };
    client.produce(&Workload {
        partition: Some(0),
        transactions: Some(open),
        ..Workload::new("tx", 7)
    })?;
    for (name, end) in &mut ends {
        let (topic, partition) = split(name)?;
        let at = client.offset(topic, partition, OffsetAt::Latest, Isolation::ReadUncommitted)?;
        *end = at.offset;
    }
    Ok(ends)
}

fn served(client: &KafkaClient) -> Result<Served> {
    let mut served =
        Served { all: BTreeMap::new(), committed: BTreeMap::new(), last_stable: BTreeMap::new() };
    for (topic, partitions) in TOPICS {
        for partition in 0..partitions {
            let name = format!("{topic}-{partition}");
            let read = |isolation| client.consume(topic, partition, isolation);
            served.all.insert(name.clone(), read(Isolation::ReadUncommitted)?);
            served.committed.insert(name.clone(), read(Isolation::ReadCommitted)?);
            let stable =
                client.offset(topic, partition, OffsetAt::Latest, Isolation::ReadCommitted)?;
            served.last_stable.insert(name, stable.offset);
        }
    }
    Ok(served)
}

/// Puts the files of `from` in the place of `to`.
fn replace(from: &Path, to: &Path) -> Result<()> {
    fs::remove_dir_all(to).map_err(ScenarioError::file(to))?;
    fs::create_dir(to).map_err(ScenarioError::file(to))?;
    for entry in fs::read_dir(from).map_err(ScenarioError::file(from))? {
        let path = entry.map_err(ScenarioError::file(from))?.path();
        let name = path.file_name().unwrap_or_default();
        fs::copy(&path, to.join(name)).map_err(ScenarioError::file(&path))?;
    }
    Ok(())
}

/// Makes the broker recover at its next start, from the copy's recovery points. A copy that was
/// killed early has none: then from the first byte.
fn recover(copy: &Path, data: &Path, partitions: &Ends) -> Result<()> {
    let marker = data.join(".kafka_cleanshutdown");
    fs::remove_file(&marker).map_err(ScenarioError::file(&marker))?;
    let lines = |dir: &Path| -> Result<Vec<String>> {
        let path = dir.join(RECOVERY_POINTS);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&path).map_err(ScenarioError::file(&path))?;
        Ok(text.lines().skip(2).map(str::to_owned).collect())
    };
    let is_copied = |line: &String| {
        let mut words = line.split(' ');
        let name = words.next().zip(words.next()).map(|(topic, index)| format!("{topic}-{index}"));
        name.is_some_and(|name| partitions.contains_key(&name))
    };
    let mut all = lines(data)?;
    all.retain(|line| !is_copied(line));
    all.extend(lines(copy)?);
    let path = data.join(RECOVERY_POINTS);
    let text = format!("0\n{}\n{}\n", all.len(), all.join("\n"));
    fs::write(&path, text).map_err(ScenarioError::file(&path))
}

//! Files of a copy that are wrong after its process was killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use heliostat_io::control::{Event, EventKind};

use super::child::ChildMirror;
use super::compare::{Census, no_complaints, same_epochs, same_log};
use super::copy::{Copy, Ends};
use super::error::{Result, ScenarioError, ensure};
use super::figures::Figures;
use super::kills::whole_batches;
use super::load;
use super::verified::verified;
use crate::kafka::{Artifacts, Cluster, Compression, Driver, KafkaClient, Workload, files};

/// Name and partitions.
const TOPICS: [(&str, i32); 2] = [("hurt", 2), ("hurt-tx", 1)];
/// Small enough that a round fills several segments.
const SEGMENT_BYTES: u64 = 256 << 10;
/// Segments of this size have an index entry.
const INDEXED_BYTES: usize = 32 << 10;

/// Of what the copy says of a recovery: it names each file.
const SAID_CHARS: usize = 120;

/// What is wrong with the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The last batch of each log lacks its last bytes.
    ShortBatch,
    /// Behind the last batch lies the beginning of another one.
    HeaderOnly,
    /// Behind the last batch lies what nobody wrote.
    Garbage,
    /// A byte of each last batch is another.
    FlippedByte,
    /// Offset and time indexes have their length and hold zeros.
    ZeroedIndexes,
    /// There are no indexes.
    MissingIndexes,
    /// There are no producer snapshots.
    MissingSnapshots,
    /// There are no leader epochs.
    MissingEpochs,
    /// There are no checkpoints at the top of the log dir.
    MissingCheckpoints,
    /// Short batches, and nothing but segments.
    NothingButSegments,
}

impl Damage {
    /// For the fast tests.
    pub const FEW: &[Self] = &[Self::ShortBatch, Self::ZeroedIndexes, Self::MissingSnapshots];
    /// For the campaign.
    pub const ALL: &[Self] = &[
        Self::ShortBatch,
        Self::HeaderOnly,
        Self::Garbage,
        Self::FlippedByte,
        Self::ZeroedIndexes,
        Self::MissingIndexes,
        Self::MissingSnapshots,
        Self::MissingEpochs,
        Self::MissingCheckpoints,
        Self::NothingButSegments,
    ];

    fn does(self, copy: &Copy, dir: &Path) -> Result<()> {
        match self {
            Self::ShortBatch => edit_end(dir, |log, end| log.truncate(end - 7)),
            Self::HeaderOnly => edit_end(dir, |log, end| {
                log.truncate(end);
                log.extend_from_within(..100);
            }),
            Self::Garbage => edit_end(dir, |log, end| {
                log.truncate(end);
                log.extend((0..5_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]));
            }),
            Self::FlippedByte => edit_end(dir, |log, end| {
                if let Some(byte) = log.get_mut(end - 3) {
                    *byte ^= 1;
                }
            }),
            Self::ZeroedIndexes => {
                for path in files::files_with(dir, &["index", "timeindex"])? {
                    let len = fs::metadata(&path).map_err(ScenarioError::file(&path))?.len();
                    let zeros = vec![0; usize::try_from(len).unwrap_or(0)];
                    fs::write(&path, zeros).map_err(ScenarioError::file(&path))?;
                }
                Ok(())
            }
            Self::MissingIndexes => remove(dir, &["index", "timeindex", "txnindex"]),
            Self::MissingSnapshots => remove(dir, &["snapshot"]),
            Self::MissingEpochs => remove_file(&dir.join("leader-epoch-checkpoint")),
            Self::MissingCheckpoints => {
                let kinds = ["recovery-point", "log-start", "replication"];
                kinds.iter().try_for_each(|kind| {
                    remove_file(&copy.dir().join(format!("{kind}-offset-checkpoint")))
                })
            }
            Self::NothingButSegments => {
                let parts = [
                    Self::ShortBatch,
                    Self::MissingIndexes,
                    Self::MissingSnapshots,
                    Self::MissingEpochs,
                    Self::MissingCheckpoints,
                ];
                parts.into_iter().try_for_each(|part| part.does(copy, dir))
            }
        }
    }
}

/// A copy of several segments is killed and damaged, once for each of `damages`; each time it is
/// started again, copies what has come meanwhile, and is the leaders' logs, its indexes, epochs
/// and snapshots included.
///
/// # Errors
///
/// [`ScenarioError`] with the first difference.
pub fn damaged_copy(kafka: &Artifacts, damages: &[Damage]) -> Result<Figures> {
    let began = Instant::now();
    let mut cluster = Cluster::builder(kafka)
        .property("log.cleaner.enable", false)
        .property("log.retention.ms", -1)
        .start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    for (topic, partitions) in TOPICS {
        client.create_topic(topic, partitions, 1, &[])?;
    }
    let copy = Copy::new(&cluster.bootstrap(), "hurt.*")?.with("segment.bytes", SEGMENT_BYTES);
    let data = cluster.node(1)?.data_dir();
    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());
    let mut round = 0;
    let mut write = || -> Result<Ends> {
        round += 1;
        write_round(&client, round)
    };
    for damage in damages {
        let mut child = ChildMirror::follow(&copy)?;
        child.wait_for_ends(&write()?)?;
        child.kill()?;
        partition_dirs(&copy).try_for_each(|(_, dir)| damage.does(&copy, &dir))?;
        let ends = write()?;
        let named = |error| ScenarioError::Wrong(format!("after {damage:?}: {error}"));
        let said = converges(kafka, &copy, &ends, &data).map_err(named)?;
        figures.add(format!("{damage:?}: said"), said);
    }
    let last = write()?;
    copy.once()?;
    cluster.stop_all()?;
    let mut census = Census::default();
    for (name, dir) in partition_dirs(&copy) {
        census.add(&same_log(&data.join(&name), &dir)?);
        same_epochs(&data.join(&name), &dir, last.get(&name).copied().unwrap_or(i64::MAX))?;
    }
    ensure(census.control > 0, || "no transactions".to_owned())?;
    figures.extend(census.figures());
    figures.add("seconds", began.elapsed().as_secs());
    Ok(figures)
}

fn partition_dirs(copy: &Copy) -> impl Iterator<Item = (String, PathBuf)> {
    let names = TOPICS
        .into_iter()
        .flat_map(|(topic, count)| (0..count).map(move |partition| format!("{topic}-{partition}")));
    names.map(|name| (name.clone(), copy.partition_dir(&name)))
}

/// Records of every codec and transactions, committed and aborted; where the partitions end then.
fn write_round(client: &KafkaClient, round: u64) -> Result<Ends> {
    for compression in Compression::ALL {
        client.produce(&Workload {
            value_bytes: 700,
            compressible: 0.5,
            first_index: round * 1_000,
            compression,
            ..Workload::new("hurt", 300)
        })?;
    }
    load::transactions(client, "hurt-tx", round)?;
    let mut ends = Ends::new();
    for (topic, partitions) in TOPICS {
        ends.extend(load::final_ends(client, topic, partitions)?);
    }
    Ok(ends)
}

/// The copy gets to `ends` and is right in every file; what it said first of its recovery.
fn converges(kafka: &Artifacts, copy: &Copy, ends: &Ends, source: &Path) -> Result<String> {
    let mirror = copy.follow()?;
    mirror.wait_for_ends(ends)?;
    let report = mirror.stop()?;
    ensure(copy.gaps().is_empty(), || format!("on record: {}", copy.gaps()))?;
    ensure(verified(copy)?.agrees(true), || "verify does not say equal".to_owned())?;
    for (name, dir) in partition_dirs(copy) {
        same_log(&source.join(&name), &dir)?;
        same_epochs(&source.join(&name), &dir, ends.get(&name).copied().unwrap_or(i64::MAX))?;
        all_there(&source.join(&name), &dir)?;
    }
    let dirs: Vec<_> = partition_dirs(copy).map(|(_, dir)| dir).collect();
    let dirs: Vec<&Path> = dirs.iter().map(AsRef::as_ref).collect();
    no_complaints(kafka, &dirs, true)?;
    let said = |event: &Event| {
        let partition = event.partition.as_ref()?;
        let text: String = event.text.chars().take(SAID_CHARS).collect();
        (event.kind == EventKind::Recovered).then(|| format!("{partition}: {text}"))
    };
    Ok(report.status.events.iter().find_map(said).unwrap_or_else(|| "nothing".to_owned()))
}

/// What was missing or wrong has been made again.
fn all_there(source: &Path, dir: &Path) -> Result<()> {
    for segment in files::segments(dir)? {
        let bytes = fs::read(&segment).map_err(ScenarioError::file(&segment))?.len();
        for extension in ["index", "timeindex"] {
            let path = segment.with_extension(extension);
            let entries = fs::metadata(&path).map_err(ScenarioError::file(&path))?.len();
            ensure(entries > 0 || bytes < INDEXED_BYTES, || {
                format!("{} is empty", path.display())
            })?;
        }
    }
    let snapshots = files::files_with(dir, &["snapshot"])?;
    ensure(!snapshots.is_empty(), || format!("{} has no snapshot", dir.display()))?;
    // Segments are cut elsewhere, aborted transactions are the same ones.
    let aborted = |dir: &Path| -> Result<u64> {
        files::files_with(dir, &["txnindex"])?.iter().try_fold(0, |sum, path| {
            Ok(sum + fs::metadata(path).map_err(ScenarioError::file(path))?.len())
        })
    };
    let (theirs, ours) = (aborted(source)?, aborted(dir)?);
    ensure(theirs == ours, || format!("{}: {ours} of {theirs} bytes of txnindex", dir.display()))
}

/// Lets `edit` change the newest segment that has batches; it is told where they end.
fn edit_end(dir: &Path, edit: impl FnOnce(&mut Vec<u8>, usize)) -> Result<()> {
    for path in files::segments(dir)?.iter().rev() {
        let mut log = fs::read(path).map_err(ScenarioError::file(path))?;
        let end = whole_batches(&log);
        if end == 0 {
            continue;
        }
        edit(&mut log, end);
        return fs::write(path, log).map_err(ScenarioError::file(path));
    }
    Err(ScenarioError::Wrong(format!("{} has no batch", dir.display())))
}

fn remove(dir: &Path, extensions: &[&str]) -> Result<()> {
    files::files_with(dir, extensions)?.iter().try_for_each(|path| remove_file(path))
}

/// One that is not there is as good: a process that was killed may not have written it yet.
fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ScenarioError::file(path)(error))
        }
        _ => Ok(()),
    }
}

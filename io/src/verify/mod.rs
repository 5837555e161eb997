//! Compares a copy with its source by fetching the source again, byte for byte.
//!
//! Three results for each partition: equal, superseded (the source cleaned or trimmed since,
//! and every record that it still has is in the copy), different. Nothing is written; a
//! mirror may be running meanwhile.

mod compare;
mod copy;
mod partition;
mod recovery_point;
mod report;
mod source;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use heliostat_core::log::FormatError;
use heliostat_core::log::checkpoint::{decode_offsets, decode_partition_metadata};
use heliostat_core::log::format_error::FileKind;
use heliostat_core::log::gaps::{GapFile, GapRecord};
use heliostat_core::log::meta_properties::MetaProperties;
use heliostat_core::log::names;
use heliostat_core::protocol::{ErrorCode, TopicIdentity};
use heliostat_core::records::RecordError;
use heliostat_core::select::TopicSelector;
use heliostat_core::types::{Offset, TopicId, TopicPartition};
use tokio::task::JoinSet;

pub use report::{Difference, Outcome, PartitionReport, Progress, Report, SupersededRange, Why};

use crate::disk::LogDirLock;
use crate::source_client::{ClientConfig, SourceClient, SourceError};
use partition::{Job, verify_partition};
use recovery_point::RecoveryPoints;
use source::Source;

/// Key of `meta.properties` that says whose copy it is.
const SOURCE_CLUSTER_KEY: &str = "mirror.source.cluster.id";
/// Its value where the source did not say.
const SOURCE_UNKNOWN: &str = "unknown";
/// Partitions that are compared at a time: more than one keeps a long path filled.
const WORKERS: usize = 4;
/// How often progress is reported.
const TICK: Duration = Duration::from_millis(200);
/// A response holds one batch at least, however large.
const RESPONSE_BYTES_MAX: u32 = 1 << 30;

/// What to compare with what.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// How to reach the source.
    pub source: ClientConfig,
    /// The copy's log dir.
    pub dir: PathBuf,
    /// Which topics of the copy; `None` for all.
    pub topics: Option<TopicSelector>,
    /// Whether records are decoded too, to find batches that nobody can read.
    pub check_content: bool,
}

/// Why nothing, or no more, can be said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The source does not answer.
    #[error("{0}")]
    Source(SourceError),
    /// The source refuses a partition.
    #[error("{partition}: the source answers {error}; see that broker's log")]
    Partition {
        /// Which.
        partition: TopicPartition,
        /// Its answer.
        error: ErrorCode,
    },
    /// The source sends what is no batch, again and again.
    #[error("{partition}: the source sends a corrupt batch: {error}; run Kafka's own tools there")]
    SourceBatch {
        /// Which.
        partition: TopicPartition,
        /// What is wrong.
        error: RecordError,
    },
    /// The source has records and sends none.
    #[error("{partition}: the source sends no records below its high watermark; try again later")]
    NoRecords {
        /// Which.
        partition: TopicPartition,
    },
    /// A file or directory of the copy cannot be read.
    #[error("{path}: {source}; it must be a readable log dir")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A file of the copy is not what its name says.
    #[error("{path}: {source}; restore it, or mirror into an empty directory")]
    Format {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: FormatError,
    },
    /// No partition of the copy is selected.
    #[error("{dir} holds no partition{}; name the log dir of a copy, and its topics", if *.is_filtered { " of these topics" } else { "" })]
    Nothing {
        /// The copy's log dir.
        dir: PathBuf,
        /// Whether topics were named.
        is_filtered: bool,
    },
    /// It is the copy of another cluster.
    #[error(
        "{dir} holds a copy of cluster {found}, the source is cluster {asked}; name the right \
         directory, or the right source"
    )]
    OtherCluster {
        /// The copy's log dir.
        dir: PathBuf,
        /// Whose copy it is.
        found: String,
        /// What the source says.
        asked: String,
    },
    /// No thread or runtime.
    #[error("no runtime: {0}; see the limits of this user")]
    Runtime(io::Error),
}

/// Compares, and calls `progress` five times a second.
///
/// # Errors
///
/// [`VerifyError`], naming the remedy. A difference is no error.
pub fn verify(
    options: &VerifyOptions,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report, VerifyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(VerifyError::Runtime)?.block_on(verify_all(options, progress))
}

async fn verify_all(
    options: &VerifyOptions,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report, VerifyError> {
    let mut config = options.source.clone();
    config.response_bytes_max = RESPONSE_BYTES_MAX;
    // Held while files are mapped. Without it a mirror is at work, and they are read.
    let lock = LogDirLock::acquire(&options.dir).ok();
    let mut points = RecoveryPoints::read(options)?;
    let found = partitions_of(options)?;
    if found.is_empty() && points.is_empty() {
        let (dir, is_filtered) = (options.dir.clone(), options.topics.is_some());
        return Err(VerifyError::Nothing { dir, is_filtered });
    }
    let mut report = Report::default();
    let jobs = plan(options, &config, found, lock.is_some(), &mut report).await?;

    let bytes = jobs.iter().flat_map(|job| &job.segments).map(|segment| segment.len).sum();
    let mut seen = Progress { partitions: jobs.len(), bytes, ..Progress::default() };
    let counters = Arc::new(Counters::default());
    let queue = Arc::new(Mutex::new(VecDeque::from(jobs)));
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        workers.spawn(work(Arc::clone(&queue), Arc::clone(&counters), config.clone()));
    }
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            joined = workers.join_next() => match joined {
                None => break,
                Some(Ok(done)) => report.partitions.extend(done?),
                // A worker does not panic, and nobody aborts it.
                Some(Err(error)) => return Err(VerifyError::Runtime(io::Error::other(error))),
            },
            _ = tick.tick() => {
                counters.fill(&mut seen);
                progress(&seen);
            }
        }
    }
    counters.fill(&mut seen);
    progress(&seen);
    if lock.is_none() {
        points = points.and(&RecoveryPoints::read(options)?);
    }
    report.partitions.iter_mut().for_each(|partition| points.hold(partition));
    report.partitions.extend(points.lost(&options.dir));
    report.partitions.sort_by(|a, b| a.partition.cmp(&b.partition));
    Ok(report)
}

#[derive(Default)]
struct Counters {
    bytes: AtomicU64,
    partitions: AtomicUsize,
    current: Mutex<Option<Arc<str>>>,
}

impl Counters {
    fn fill(&self, progress: &mut Progress) {
        progress.bytes_done = self.bytes.load(Ordering::Relaxed);
        progress.partitions_done = self.partitions.load(Ordering::Relaxed);
        progress.current.clone_from(&self.current.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

async fn work(
    queue: Arc<Mutex<VecDeque<Job>>>,
    counters: Arc<Counters>,
    config: ClientConfig,
) -> Result<Vec<PartitionReport>, VerifyError> {
    let mut source = Source::new(&config);
    let mut done = Vec::new();
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(job) = job else { return Ok(done) };
        let name = format!("{}-{}", job.topic.name, job.index);
        *counters.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.into());
        done.push(verify_partition(&job, &mut source, &counters.bytes).await?);
        counters.partitions.fetch_add(1, Ordering::Relaxed);
        // Others have their turn, however fast the disk is.
        tokio::task::yield_now().await;
    }
}

/// A partition directory.
struct Found {
    partition: TopicPartition,
    dir: PathBuf,
    topic_id: TopicId,
}

fn partitions_of(options: &VerifyOptions) -> Result<Vec<Found>, VerifyError> {
    let failed = |source| VerifyError::Read { path: options.dir.clone(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(&options.dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let partition = name.to_str().and_then(TopicPartition::from_dir_name);
        let Some(partition) = partition.filter(|_| entry.path().is_dir()) else { continue };
        if !is_wanted(options, &partition) {
            continue;
        }
        let dir = entry.path();
        let path = dir.join(names::PARTITION_METADATA);
        let topic_id = match read_if_there(&path)? {
            Some(bytes) => decode_partition_metadata(&bytes)
                .map_err(|source| VerifyError::Format { path, source })?,
            None => TopicId::NONE,
        };
        found.push(Found { partition, dir, topic_id });
    }
    found.sort_by(|a, b| a.partition.cmp(&b.partition));
    Ok(found)
}

/// What a directory of the copy holds was selected once already.
fn is_wanted(options: &VerifyOptions, partition: &TopicPartition) -> bool {
    let is_selected = |topics: &TopicSelector| topics.decide(&partition.topic, false).is_selected();
    options.topics.as_ref().is_none_or(is_selected)
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, VerifyError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(VerifyError::Read { path: path.to_path_buf(), source }),
    }
}

fn read_as<T: Default>(
    dir: &Path,
    name: &str,
    decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
) -> Result<T, VerifyError> {
    let path = dir.join(name);
    match read_if_there(&path)? {
        Some(bytes) => decode(&bytes).map_err(|source| VerifyError::Format { path, source }),
        None => Ok(T::default()),
    }
}

/// The cluster whose copy a log dir holds; `None` if it is new, or the source never said.
///
/// # Errors
///
/// [`VerifyError`] if `meta.properties` cannot be read.
pub fn source_cluster(dir: &Path) -> Result<Option<String>, VerifyError> {
    let meta =
        read_as(dir, names::META_PROPERTIES, |bytes| MetaProperties::decode(bytes).map(Some))?;
    let owner = meta.and_then(|meta| meta.other.get(SOURCE_CLUSTER_KEY).cloned());
    Ok(owner.filter(|owner| owner != SOURCE_UNKNOWN))
}

/// What the source says of the topics, and the copy's side files.
async fn plan(
    options: &VerifyOptions,
    config: &ClientConfig,
    found: Vec<Found>,
    is_alone: bool,
    report: &mut Report,
) -> Result<Vec<Job>, VerifyError> {
    let mut client = SourceClient::new(config.clone());
    let mut topics: Vec<_> = found.iter().map(|found| Arc::clone(&found.partition.topic)).collect();
    topics.dedup();
    let metadata = client.metadata(Some(&topics)).await.map_err(VerifyError::Source)?;
    let dir = &options.dir;
    if let (Some(found), Some(asked)) = (source_cluster(dir)?, metadata.cluster_id.clone())
        && found != asked
    {
        return Err(VerifyError::OtherCluster { dir: dir.clone(), found, asked });
    }
    let starts = read_as(dir, names::LOG_START_CHECKPOINT, |bytes| {
        decode_offsets(FileKind::LogStartCheckpoint, bytes)
    })?;
    let gaps = read_as(dir, names::MIRROR_GAPS, GapFile::decode)?.records;
    let own_ids = own_ids(dir);
    let compacted = compacted(&mut client, &topics).await;
    let may_be_torn = !is_alone || !dir.join(names::CLEAN_SHUTDOWN).exists();

    let mut identities = BTreeMap::new();
    for topic in &metadata.topics {
        if topic.error.is_none() {
            identities.insert(Arc::clone(&topic.identity.name), topic.identity.clone());
        }
    }
    let mut jobs = Vec::new();
    for found in found {
        let gaps: Vec<GapRecord> =
            gaps.iter().filter(|gap| gap.partition == found.partition).cloned().collect();
        let identity = identities.get(&found.partition.topic);
        let is_own = own_ids.contains(&found.topic_id.to_string());
        if let Some(difference) = identity_difference(&found, identity, is_own) {
            report.partitions.push(undescribed(&found.partition, difference, gaps));
            continue;
        }
        let Some(topic) = identity.cloned() else { continue };
        jobs.push(Job {
            topic,
            index: found.partition.partition,
            segments: copy::segments(&found.dir)?,
            log_start: starts.get(&found.partition).copied(),
            gaps,
            may_be_cleaned: compacted.get(&found.partition.topic).copied().unwrap_or(true),
            may_map: is_alone,
            may_be_torn,
            check_content: options.check_content,
        });
    }
    Ok(jobs)
}

/// IDs that the mirror made up for topics of a source without IDs.
fn own_ids(dir: &Path) -> String {
    fs::read_to_string(dir.join("mirror-topics")).unwrap_or_default()
}

/// Whether each topic is compacted, as far as the source tells.
async fn compacted(client: &mut SourceClient, topics: &[Arc<str>]) -> BTreeMap<Arc<str>, bool> {
    let Ok(configs) = client.topic_configs(topics, Some(&["cleanup.policy"])).await else {
        return BTreeMap::new();
    };
    let mut found = BTreeMap::new();
    for topic in configs.iter().filter(|topic| topic.error.is_none()) {
        if let Some(policy) = topic.value("cleanup.policy") {
            found.insert(Arc::clone(&topic.topic), policy.contains("compact"));
        }
    }
    found
}

fn identity_difference(
    found: &Found,
    identity: Option<&TopicIdentity>,
    is_own: bool,
) -> Option<Difference> {
    let Some(identity) = identity else {
        return Some(Difference {
            field: "topic".to_owned(),
            copy: "there".to_owned(),
            source: "none".to_owned(),
            meaning: "the source does not have the topic any more, or does not show it".to_owned(),
            ..Difference::default()
        });
    };
    let (copy, source) = (found.topic_id.known()?, identity.id.known()?);
    (copy != source && !is_own).then(|| Difference {
        field: "topic ID".to_owned(),
        copy: copy.to_string(),
        source: source.to_string(),
        meaning: "the topic was deleted and created again at the source".to_owned(),
        ..Difference::default()
    })
}

/// Report of a partition of which copy or source are not there to be read.
fn undescribed(
    partition: &TopicPartition,
    difference: Difference,
    gaps: Vec<GapRecord>,
) -> PartitionReport {
    PartitionReport {
        partition: partition.clone(),
        outcome: Outcome::Different(Box::new(difference)),
        copy_start: Offset::NONE,
        copy_end: Offset::NONE,
        source_start: Offset::NONE,
        source_end: Offset::NONE,
        batches: 0,
        bytes: 0,
        superseded: Vec::new(),
        warnings: Vec::new(),
        gaps,
    }
}

#[cfg(test)]
mod tests;

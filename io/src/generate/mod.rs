//! Topics for the demo and for measuring: a log dir as a broker would have written it, from a
//! seed. Of the demo:
//!
//! | topic | what is in it |
//! |---|---|
//! | `demo.none` … `demo.zstd` | keys, headers, values that compress and that do not; one codec each |
//! | `demo.transactions` | interleaved producers, commits and aborts |
//! | `demo.compacted` | offset gaps, an empty batch, a batch with a delete horizon |
//!
//! Every partition has several leader epochs and, if it is large enough, several
//! segments. Record bodies are made once and batches restamped, so generating runs
//! at the speed of the disk and not of the codecs.

mod batches;
mod compacted;
mod rng;
mod transactions;
mod uniform;

use std::collections::BTreeMap;
use std::sync::Arc;

use heliostat_core::log::config::{LogConfig, LogConfigError, LogConfigValues};
use heliostat_core::records::{BuildError, Compression};
use heliostat_core::types::{LeaderEpoch, TopicId};
use uuid::Uuid;

pub use batches::BatchSource;
pub use uniform::{UniformSpec, generate_uniform};

use crate::listener::hosted::{Catalog, HostedError, Leadership, Partition, Topic, TopicSpec};
use rng::Rng;

/// Record time at which every topic begins, in milliseconds: 14 November 2023.
const BEGIN_MS: i64 = 1_700_000_000_000;
/// A segment is no smaller, however small the demo.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Segments that a partition is divided into if it is large enough.
const SEGMENTS: u64 = 4;
/// Codecs with their part of all bytes in percent; the rest goes to the other topics.
const CODECS: [(&str, Compression, u64); 5] = [
    ("demo.none", Compression::None, 50),
    ("demo.gzip", Compression::Gzip, 8),
    ("demo.snappy", Compression::Snappy, 12),
    ("demo.lz4", Compression::Lz4, 12),
    ("demo.zstd", Compression::Zstd, 8),
];
const TRANSACTIONS_PERCENT: u64 = 6;
const COMPACTED_PERCENT: u64 = 4;

/// What to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemoSpec {
    /// Equal seeds make equal logs.
    pub seed: u64,
    /// Stored bytes of all topics together, about.
    pub bytes: u64,
    /// Partitions of each topic, at least 1.
    pub partitions: i32,
}

/// Why nothing, or not all, was generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The log dir.
    #[error("generated data cannot be stored")]
    Log(#[from] HostedError),
    /// A batch that cannot be.
    #[error("a batch cannot be built")]
    Build(#[from] BuildError),
    /// Sizes beyond what a log can have.
    #[error("demo size out of range")]
    Size(#[from] LogConfigError),
}

/// Makes all topics in `catalog`. `progress` is told of stored bytes as they come,
/// and nothing of the total: that is about [`DemoSpec::bytes`].
///
/// # Errors
///
/// [`GenerateError`]; what was written stays.
pub fn generate(
    catalog: &Catalog,
    spec: &DemoSpec,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Topic>, GenerateError> {
    let mut rng = Rng::new(spec.seed);
    let mut topics = Vec::new();
    for (name, codec, percent) in CODECS {
        let bytes = partition_bytes(spec, percent);
        let topic = create(catalog, spec, name, bytes, &[], &mut rng)?;
        let mut source = BatchSource::new(rng.next(), codec)?;
        for partition in &topic.partitions {
            source.restart(partition.id().partition);
            fill(partition, bytes, progress, |partition| {
                let batch = source.next_batch();
                let len = batch.len();
                partition.append_as_leader(batch)?;
                Ok(len)
            })?;
        }
        topics.push(topic);
    }
    let bytes = partition_bytes(spec, TRANSACTIONS_PERCENT);
    let topic = create(catalog, spec, "demo.transactions", bytes, &[], &mut rng)?;
    for partition in &topic.partitions {
        let mut producers = transactions::Producers::new(rng.next(), partition.id().partition)?;
        fill(partition, bytes, progress, |partition| producers.step(partition))?;
        producers.end_all(partition)?;
    }
    topics.push(topic);
    let bytes = partition_bytes(spec, COMPACTED_PERCENT);
    let policy = [("cleanup.policy", "compact")];
    let topic = create(catalog, spec, "demo.compacted", bytes, &policy, &mut rng)?;
    for partition in &topic.partitions {
        let mut cleaned = compacted::Cleaned::new(rng.next());
        fill(partition, bytes, progress, |partition| cleaned.step(partition))?;
    }
    topics.push(topic);
    Ok(topics)
}

fn partition_bytes(spec: &DemoSpec, percent: u64) -> u64 {
    let partitions = u64::from(spec.partitions.max(1).unsigned_abs());
    (spec.bytes / 100).saturating_mul(percent) / partitions
}

fn create(
    catalog: &Catalog,
    spec: &DemoSpec,
    name: &str,
    bytes: u64,
    configs: &[(&str, &str)],
    rng: &mut Rng,
) -> Result<Topic, GenerateError> {
    let segment = (bytes / SEGMENTS).clamp(SEGMENT_BYTES_MIN, 1 << 30);
    let segment_bytes = i64::try_from(segment).unwrap_or(1 << 30);
    let log = LogConfig::new(LogConfigValues { segment_bytes, ..LogConfigValues::default() })?;
    let own = configs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
    let mut configs: BTreeMap<_, _> = own.collect();
    configs.insert("segment.bytes".to_owned(), segment_bytes.to_string());
    Ok(catalog.create_topic(TopicSpec {
        name: name.to_owned(),
        partitions: spec.partitions.max(1),
        // Version and variant bits make it a UUID like Kafka's own.
        topic_id: TopicId(
            uuid::Builder::from_random_bytes(
                Uuid::from_u64_pair(rng.next(), rng.next()).into_bytes(),
            )
            .into_uuid(),
        ),
        configs,
        log,
    })?)
}

/// Calls `append` until the partition holds `bytes`, with an election at each third.
fn fill(
    partition: &Arc<Partition>,
    bytes: u64,
    progress: &mut dyn FnMut(u64),
    mut append: impl FnMut(&Partition) -> Result<usize, GenerateError>,
) -> Result<(), GenerateError> {
    let leader = partition.leadership().leader;
    let mut stored = 0;
    for (epoch, third) in [(0, 1), (2, 2), (3, 3)] {
        // Epoch 1 never writes: elections without a record happen.
        partition.elect(Leadership { leader, epoch: LeaderEpoch(epoch) })?;
        loop {
            let appended = u64::try_from(append(partition)?).unwrap_or(u64::MAX);
            progress(appended);
            stored += appended;
            if stored >= bytes / 3 * third {
                break;
            }
        }
    }
    Ok(())
}

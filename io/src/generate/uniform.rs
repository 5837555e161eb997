//! One topic of equal batches, for measuring.

use std::collections::BTreeMap;

use heliostat_core::log::config::LogConfig;
use heliostat_core::records::{BatchBuilder, Compression, NewRecord};
use heliostat_core::types::{Offset, TimestampMs, TopicId};
use uuid::Uuid;

use super::rng::Rng;
use super::{BEGIN_MS, GenerateError};
use crate::listener::hosted::{Catalog, Topic, TopicSpec};

/// Different batches, appended in turn: more than a compressor of a disk or a link remembers.
const BATCHES: usize = 16;

/// What to generate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniformSpec {
    /// Name of the topic.
    pub topic: String,
    /// Equal seeds make equal logs.
    pub seed: u64,
    /// Stored bytes of all partitions together, about.
    pub bytes: u64,
    /// At least 1.
    pub partitions: i32,
    /// Size of a batch, about.
    pub batch_bytes: usize,
    /// Size of each value; it does not compress.
    pub value_bytes: usize,
}

/// Makes the topic in `catalog`.
///
/// # Errors
///
/// [`GenerateError`]; what was written stays.
pub fn generate_uniform(catalog: &Catalog, spec: &UniformSpec) -> Result<Topic, GenerateError> {
    let mut rng = Rng::new(spec.seed);
    let id = Uuid::from_u64_pair(rng.next(), rng.next()).into_bytes();
    let topic = catalog.create_topic(TopicSpec {
        name: spec.topic.clone(),
        partitions: spec.partitions.max(1),
        topic_id: TopicId(uuid::Builder::from_random_bytes(id).into_uuid()),
        configs: BTreeMap::new(),
        log: LogConfig::default(),
    })?;
    let mut batches = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        batches.push(batch(&mut rng, spec)?);
    }
    let of_partition = spec.bytes / u64::from(spec.partitions.max(1).unsigned_abs());
    for partition in &topic.partitions {
        let mut stored = 0;
        for batch in (0..BATCHES).cycle() {
            if stored >= of_partition {
                break;
            }
            let Some(batch) = batches.get_mut(batch) else { break };
            partition.append_as_leader(batch)?;
            stored += u64::try_from(batch.len()).unwrap_or(u64::MAX);
        }
    }
    Ok(topic)
}

fn batch(rng: &mut Rng, spec: &UniformSpec) -> Result<Vec<u8>, GenerateError> {
    let mut builder = BatchBuilder::new(Offset::ZERO).compression(Compression::None);
    let mut value = vec![0; spec.value_bytes.max(1)];
    while builder.records_count() == 0 || builder.records_bytes().len() < spec.batch_bytes {
        rng.fill(&mut value);
        let timestamp = TimestampMs(BEGIN_MS);
        builder.push(&NewRecord { timestamp, key: None, value: Some(&value), headers: &[] })?;
    }
    Ok(builder.build()?)
}

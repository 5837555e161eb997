//! What a source has: brokers, versions, topics, about how much. For `check` and `--dry-run`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heliostat_core::protocol::{
    BrokerApis, ConfigsRequest, FetchPartition, FetchPosition, MetadataTopic, OffsetAt,
    OffsetQuery, TopicIdentity,
};
use heliostat_core::records::{BatchWalker, WalkLimits};
use heliostat_core::select::{Selection, TopicSelector};
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TopicPartition};
use heliostat_io::source_client::{ClientConfig, FetchClient, HostPort, SourceClient, SourceError};

use crate::failure::Failure;

/// Partitions that are asked for a sample, to tell the size of records.
const SAMPLES_MAX: usize = 64;
/// Bytes of a sample.
const SAMPLE_BYTES: u32 = 256 << 10;
/// Round trips that are measured; the shortest counts.
const ROUND_TRIPS: usize = 5;

/// A source at one moment.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) cluster_id: Option<String>,
    pub(crate) brokers: BTreeMap<BrokerId, HostPort>,
    pub(crate) apis: BTreeMap<BrokerId, Result<BrokerApis, SourceError>>,
    /// Shortest of a few small requests.
    pub(crate) round_trip: Duration,
    /// In order of their names.
    pub(crate) topics: Vec<SurveyedTopic>,
}

/// A topic of the source.
#[derive(Debug)]
pub(crate) struct SurveyedTopic {
    pub(crate) identity: TopicIdentity,
    pub(crate) selection: Selection,
    pub(crate) partitions: Vec<SurveyedPartition>,
    /// As far as the source tells.
    pub(crate) configs: BTreeMap<String, String>,
}

/// A partition of the source.
#[derive(Debug)]
pub(crate) struct SurveyedPartition {
    pub(crate) index: i32,
    /// Inclusive; `None` if nobody could be asked.
    pub(crate) start: Option<Offset>,
    /// Exclusive; `None` if nobody could be asked.
    pub(crate) end: Option<Offset>,
    /// By a sample of records; `None` without one.
    pub(crate) bytes: Option<u64>,
    /// Why nobody could be asked.
    pub(crate) trouble: Option<String>,
}

impl SurveyedPartition {
    /// Offsets between start and end.
    pub(crate) fn offsets(&self) -> u64 {
        match (self.start, self.end) {
            (Some(start), Some(end)) => end.records_since(start),
            _ => 0,
        }
    }
}

impl SurveyedTopic {
    /// Bytes of all partitions, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.partitions.iter().filter_map(|partition| partition.bytes).sum()
    }

    /// Offsets of all partitions.
    pub(crate) fn offsets(&self) -> u64 {
        self.partitions.iter().map(SurveyedPartition::offsets).sum()
    }

    /// Whether the source compacts it.
    pub(crate) fn is_compacted(&self) -> bool {
        self.configs.get("cleanup.policy").is_some_and(|policy| policy.contains("compact"))
    }

    /// Whether part of it lies in tiered storage.
    pub(crate) fn is_tiered(&self) -> bool {
        self.configs.get("remote.storage.enable").is_some_and(|value| value == "true")
    }
}

/// Asks the source. Topics that no pattern includes are left out.
pub(crate) fn survey(config: &ClientConfig, selector: &TopicSelector) -> Result<Survey, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::from_error("no runtime", error))?;
    let found = runtime.block_on(ask(config, selector));
    found.map_err(|error| Failure::from_error("source", error))
}

async fn ask(config: &ClientConfig, selector: &TopicSelector) -> Result<Survey, SourceError> {
    let mut client = SourceClient::new(config.clone());
    let metadata = client.metadata(None).await?;
    let apis = client.broker_apis().await;
    let mut round_trip = Duration::MAX;
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        client.metadata(Some(&[])).await?;
        round_trip = round_trip.min(start.elapsed());
    }
    let mut topics: Vec<_> = metadata
        .topics
        .iter()
        .filter(|topic| topic.error.is_none())
        .map(|topic| (topic, selector.decide(&topic.identity.name, topic.is_internal)))
        .filter(|(_, selection)| *selection != Selection::NotIncluded)
        .map(|(topic, selection)| surveyed(topic, selection))
        .collect();
    topics.sort_by(|a, b| a.identity.name.cmp(&b.identity.name));
    ask_offsets(&mut client, &mut topics).await;
    ask_configs(&mut client, &mut topics).await;
    sample(&client, config, &mut topics).await;
    let brokers = client.brokers().clone();
    Ok(Survey { cluster_id: metadata.cluster_id, brokers, apis, round_trip, topics })
}

fn surveyed(topic: &MetadataTopic, selection: Selection) -> SurveyedTopic {
    let partition =
        |index| SurveyedPartition { index, start: None, end: None, bytes: None, trouble: None };
    let mut partitions: Vec<_> =
        topic.partitions.iter().map(|found| partition(found.index)).collect();
    partitions.sort_by_key(|partition| partition.index);
    let (identity, configs) = (topic.identity.clone(), BTreeMap::new());
    SurveyedTopic { identity, selection, partitions, configs }
}

async fn ask_offsets(client: &mut SourceClient, topics: &mut [SurveyedTopic]) {
    for at in [OffsetAt::Earliest, OffsetAt::Latest] {
        let mut queries = Vec::new();
        for topic in topics.iter().filter(|topic| topic.selection.is_selected()) {
            for partition in &topic.partitions {
                let name = Arc::clone(&topic.identity.name);
                let partition = TopicPartition::new(name, partition.index);
                let current_leader_epoch = LeaderEpoch::NONE;
                queries.push(OffsetQuery { partition, current_leader_epoch, at });
            }
        }
        let found = client.list_offsets(queries).await;
        let mut by_name = BTreeMap::new();
        for answer in found.answers {
            let result = if answer.error.is_none() {
                Ok(answer.offset)
            } else {
                Err(answer.error.to_string())
            };
            by_name.insert(answer.partition, result);
        }
        for unanswered in found.unanswered {
            by_name.insert(unanswered.partition, Err(unanswered.error.to_string()));
        }
        for topic in topics.iter_mut() {
            for partition in &mut topic.partitions {
                let name = Arc::clone(&topic.identity.name);
                match by_name.remove(&TopicPartition::new(name, partition.index)) {
                    Some(Ok(offset)) if at == OffsetAt::Earliest => partition.start = Some(offset),
                    Some(Ok(offset)) => partition.end = Some(offset),
                    Some(Err(trouble)) => partition.trouble = Some(trouble),
                    None => {}
                }
            }
        }
    }
}

async fn ask_configs(client: &mut SourceClient, topics: &mut [SurveyedTopic]) {
    let names: Vec<_> = topics.iter().map(|topic| Arc::clone(&topic.identity.name)).collect();
    // A right may be missing; what is not known is not shown.
    let keys = Some(ConfigsRequest::PREFLIGHT_KEYS);
    let Ok(found) = client.topic_configs(&names, keys).await else { return };
    for configs in found {
        let topic = topics.iter_mut().find(|topic| topic.identity.name == configs.topic);
        let Some(topic) = topic else { continue };
        for config in configs.configs {
            if let Some(value) = config.value {
                topic.configs.insert(config.name, value);
            }
        }
    }
}

/// Tells bytes from offsets by the first records of some partitions, the largest first.
async fn sample(client: &SourceClient, config: &ClientConfig, topics: &mut [SurveyedTopic]) {
    let mut fetch = FetchClient::new(config);
    for topic in topics.iter_mut().filter(|topic| topic.selection.is_selected()) {
        let identity = topic.identity.clone();
        let mut sampled = (0_u64, 0_u64);
        let mut largest: Vec<_> = topic.partitions.iter().collect();
        largest.sort_by_key(|partition| std::cmp::Reverse(partition.offsets()));
        let samples = largest.into_iter().filter(|partition| partition.offsets() > 0);
        for partition in samples.take(SAMPLES_MAX.div_ceil(16)) {
            let at = TopicPartition::new(Arc::clone(&identity.name), partition.index);
            let (Some(leader), Some(start)) = (client.leader(&at), partition.start) else {
                continue;
            };
            let position = FetchPosition {
                fetch_offset: start,
                current_leader_epoch: LeaderEpoch::NONE,
                last_fetched_epoch: LeaderEpoch::NONE,
                partition_max_bytes: SAMPLE_BYTES,
            };
            let asked =
                FetchPartition { topic: identity.clone(), index: partition.index, position };
            if let Ok(answer) = fetch.fetch(leader, &asked).await {
                let (bytes, offsets) = measure(answer.records());
                sampled = (sampled.0 + bytes, sampled.1 + offsets);
            }
        }
        for partition in &mut topic.partitions {
            let offsets = u128::from(partition.offsets());
            let bytes = (offsets * u128::from(sampled.0)).checked_div(u128::from(sampled.1));
            partition.bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok());
        }
    }
}

/// Bytes and offsets of the whole batches.
fn measure(records: &[u8]) -> (u64, u64) {
    let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: false };
    let mut walker = BatchWalker::new(limits);
    let (mut bytes, mut rest) = (0_u64, records);
    let (mut first, mut next) = (None, Offset::ZERO);
    while let Ok((taken, Some(meta))) = walker.feed(rest) {
        bytes = bytes.saturating_add(meta.size_bytes.into());
        first.get_or_insert(meta.base_offset);
        next = meta.next_offset();
        rest = rest.get(taken..).unwrap_or_default();
    }
    (bytes, first.map_or(0, |first| next.records_since(first)))
}

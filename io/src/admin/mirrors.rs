//! KIP-1279's methods.

use std::collections::BTreeMap;

use heliostat_core::protocol::Api;
use heliostat_core::protocol::admin::AdminRequest;
use heliostat_core::protocol::mirror::{
    ClusterMirrorConfig, CreateClusterMirrorRequest, DeleteClusterMirrorRequest,
    DescribeClusterMirrorsRequest, DescribedClusterMirror, DescribedMirrorPartition,
    ListClusterMirrorsRequest, MirrorTopic, MirrorTopicResult, MirrorTopicsResponse,
    PauseMirrorTopicsRequest, RecoverMirrorTopic, RecoverMirrorTopicsRequest,
    ResumeMirrorTopicsRequest, StartMirrorTopic, StartMirrorTopicsRequest, StopMirrorTopicsRequest,
};
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TimestampMs, TopicId};

use super::client::AdminClient;
use super::error::{AdminError, Refusal};
use crate::source_client::HostPort;

/// Brokers that are asked for a description.
const BROKERS_MAX: usize = 10_000;

/// What [`AdminClient::start_mirror_topics`] takes beside topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartOptions {
    /// Patterns of topics to mirror, now and later. The host matches them at the source.
    pub include_patterns: Vec<String>,
    /// Patterns of topics to leave out; they win.
    pub exclude_patterns: Vec<String>,
    /// Only say what would happen.
    pub validate_only: bool,
}

/// What [`AdminClient::stop_mirror_topics`] takes beside topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopOptions {
    /// Patterns of topics to stop, and to leave out from now on.
    pub patterns: Vec<String>,
    /// Only say what would happen.
    pub validate_only: bool,
}

/// What [`AdminClient::delete_cluster_mirror`] takes beside a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Only say whether it would be done.
    pub validate_only: bool,
}

/// What came of a request about one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicOutcome {
    /// Name of the topic.
    pub topic: String,
    /// Why it was refused; `None` if it was done, or would be.
    pub refusal: Option<Refusal>,
    /// Its partitions; `None` if the server does not say.
    pub partitions: Option<u32>,
    /// Records of the source that a stop now would leave out; `None` if the server does not say.
    pub lag: Option<u64>,
    /// State of its partitions, the least advanced of them; `None` if the server does not say.
    pub state: Option<String>,
}

/// A mirror in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorListing {
    /// Its name.
    pub name: String,
    /// `bootstrap.servers` of the source; `None` for unset.
    pub source_bootstrap: Option<String>,
    /// Cluster ID of the source; `None` for unknown.
    pub source_cluster_id: Option<String>,
    /// Topics that are wanted mirrored.
    pub topic_count: i32,
    /// Topics that are not stopped, if they were asked for.
    pub topic_names: Vec<String>,
}

/// A mirror with its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorDescription {
    /// Its name.
    pub name: String,
    /// `bootstrap.servers` of the source; `None` if the server does not say.
    pub source_bootstrap: Option<String>,
    /// Cluster ID of the source; `None` if the server does not say.
    pub source_cluster_id: Option<String>,
    /// Partitions by topic, in the order of their indexes.
    pub topics: BTreeMap<String, Vec<MirrorPartition>>,
}

/// A partition of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorPartition {
    /// Its index.
    pub index: i32,
    /// High watermark of the source, exclusive; `None` unless it is mirrored.
    pub source_offset: Option<Offset>,
    /// Log end offset of the copy, exclusive; `None` unless it is mirrored.
    pub destination_offset: Option<Offset>,
    /// Records between the two; `None` unless it is mirrored.
    pub lag: Option<i64>,
    /// Name of its state.
    pub state: String,
    /// Epoch of the last mirrored batch, once stopped; -1 for none.
    pub last_mirror_epoch: LeaderEpoch,
    /// Where mirroring ended, exclusive, once stopped; `None` for unknown.
    pub last_mirror_offset: Option<Offset>,
    /// Failures since the last success; -1 if an operator has to act.
    pub retry_attempt: i16,
    /// Why it failed, or why its source cannot be reached.
    pub error_message: Option<String>,
    /// Name of the state that an operator wants; `None` if the server does not say.
    pub desired_state: Option<String>,
    /// Since when it has not got on; `None` if it does.
    pub failing_since: Option<TimestampMs>,
}

impl AdminClient {
    /// Makes a mirror. The host asks the source for its cluster ID, checks the configs and
    /// stores them, before it answers.
    ///
    /// # Errors
    ///
    /// [`AdminError`]; `INVALID_CONFIG` names the key, its value and what is wanted.
    pub async fn create_cluster_mirror(
        &mut self,
        mirror: &str,
        configs: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), AdminError> {
        let config =
            |(name, value): (String, String)| ClusterMirrorConfig { name, value: Some(value) };
        let request = CreateClusterMirrorRequest {
            mirror_name: mirror.to_owned(),
            config: configs.into_iter().map(config).collect(),
        };
        self.change(&request).await.map(drop)
    }

    /// Wants topics mirrored: those of these names, and those that the patterns match.
    ///
    /// # Errors
    ///
    /// [`AdminError`] if nothing was done; refusals of single topics are in the answer.
    pub async fn start_mirror_topics(
        &mut self,
        mirror: &str,
        topics: &[String],
        options: StartOptions,
    ) -> Result<Vec<TopicOutcome>, AdminError> {
        let topic = |name: &String| StartMirrorTopic {
            topic_id: TopicId::NONE,
            topic_name: name.clone(),
            num_partitions: 0,
        };
        let request = StartMirrorTopicsRequest {
            mirror_name: mirror.to_owned(),
            topics: topics.iter().map(topic).collect(),
            include_patterns: options.include_patterns,
            exclude_patterns: options.exclude_patterns,
            validate_only: options.validate_only,
        };
        self.change_topics(&request, topics).await
    }

    /// Wants topics writable here: failover. It is accepted in every state.
    ///
    /// # Errors
    ///
    /// As [`Self::start_mirror_topics`].
    pub async fn stop_mirror_topics(
        &mut self,
        mirror: &str,
        topics: &[String],
        options: StopOptions,
    ) -> Result<Vec<TopicOutcome>, AdminError> {
        let request = StopMirrorTopicsRequest {
            mirror_name: mirror.to_owned(),
            topics: by_name(topics),
            patterns: options.patterns,
            validate_only: options.validate_only,
        };
        self.change_topics(&request, topics).await
    }

    /// Wants topics left as they are, and still not writable.
    ///
    /// # Errors
    ///
    /// As [`Self::start_mirror_topics`].
    pub async fn pause_mirror_topics(
        &mut self,
        mirror: &str,
        topics: &[String],
    ) -> Result<Vec<TopicOutcome>, AdminError> {
        let (mirror_name, by_name) = (mirror.to_owned(), by_name(topics));
        let request = PauseMirrorTopicsRequest { mirror_name, topics: by_name };
        self.change_topics(&request, topics).await
    }

    /// Wants paused topics mirrored again.
    ///
    /// # Errors
    ///
    /// As [`Self::start_mirror_topics`].
    pub async fn resume_mirror_topics(
        &mut self,
        mirror: &str,
        topics: &[String],
    ) -> Result<Vec<TopicOutcome>, AdminError> {
        let (mirror_name, by_name) = (mirror.to_owned(), by_name(topics));
        let request = ResumeMirrorTopicsRequest { mirror_name, topics: by_name };
        self.change_topics(&request, topics).await
    }

    /// Wants failed partitions tried again, with all their attempts.
    ///
    /// # Errors
    ///
    /// As [`Self::start_mirror_topics`].
    pub async fn recover_mirror_topics(
        &mut self,
        mirror: &str,
        topics: &[String],
    ) -> Result<Vec<TopicOutcome>, AdminError> {
        let topic = |name: &String| RecoverMirrorTopic { topic_name: name.clone() };
        let request = RecoverMirrorTopicsRequest {
            mirror_name: mirror.to_owned(),
            topics: topics.iter().map(topic).collect(),
        };
        self.change_topics(&request, topics).await
    }

    /// Removes a mirror whose topics are all stopped. What it copied stays.
    ///
    /// # Errors
    ///
    /// [`AdminError`]; `CLUSTER_MIRROR_NOT_EMPTY` if a topic is not stopped.
    pub async fn delete_cluster_mirror(
        &mut self,
        mirror: &str,
        options: DeleteOptions,
    ) -> Result<(), AdminError> {
        let request = DeleteClusterMirrorRequest {
            mirror_name: mirror.to_owned(),
            validate_only: options.validate_only,
        };
        self.change(&request).await.map(drop)
    }

    /// Every mirror, in the order of their names.
    ///
    /// # Errors
    ///
    /// [`AdminError`].
    pub async fn list_cluster_mirrors(
        &mut self,
        include_topic_names: bool,
    ) -> Result<Vec<MirrorListing>, AdminError> {
        let answer = self.read(&ListClusterMirrorsRequest { include_topic_names }).await?;
        let mut mirrors: Vec<_> = answer
            .mirrors
            .into_iter()
            .map(|it| MirrorListing {
                name: it.mirror_name,
                source_bootstrap: known(it.source_bootstrap),
                source_cluster_id: known(it.source_cluster_id),
                topic_count: it.topic_count,
                topic_names: it.topic_names,
            })
            .collect();
        mirrors.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(mirrors)
    }

    /// Mirrors of these names, or all, in the order of their names. Every broker is asked: each
    /// knows of the partitions that it leads.
    ///
    /// # Errors
    ///
    /// [`AdminError`], also if one of the named mirrors is refused by every broker.
    pub async fn describe_cluster_mirrors(
        &mut self,
        mirrors: &[String],
    ) -> Result<Vec<MirrorDescription>, AdminError> {
        let request = DescribeClusterMirrorsRequest {
            mirror_names: mirrors.to_vec(),
            ..DescribeClusterMirrorsRequest::default()
        };
        let brokers = self.brokers().await?;
        let mut answers = Vec::new();
        if brokers.len() < 2 {
            answers.push(self.read(&request).await?);
        } else {
            for (_, peer) in brokers.iter().take(BROKERS_MAX) {
                answers.push(self.read_of(peer, &request).await?);
            }
        }
        merge(answers.into_iter().flat_map(|answer| answer.mirrors))
    }

    /// Brokers of the cluster.
    pub(crate) async fn brokers(&mut self) -> Result<Vec<(BrokerId, HostPort)>, AdminError> {
        let metadata = self.metadata(Some(&[])).await?;
        let broker = |it: heliostat_core::protocol::MetadataBroker| {
            (it.node, HostPort { host: it.host.as_str().into(), port: it.port })
        };
        Ok(metadata.brokers.into_iter().map(broker).collect())
    }

    /// Every topic that was named has its outcome.
    async fn change_topics<R>(
        &mut self,
        request: &R,
        topics: &[String],
    ) -> Result<Vec<TopicOutcome>, AdminError>
    where
        R: AdminRequest<Response = MirrorTopicsResponse>,
    {
        let answer = self.change(request).await?;
        let mut outcomes: Vec<_> = answer.topics.into_iter().map(outcome).collect();
        outcomes.sort_by(|a, b| a.topic.cmp(&b.topic));
        for topic in topics {
            if outcomes.binary_search_by(|outcome| outcome.topic.cmp(topic)).is_err() {
                return Err(AdminError::Incomplete { api: R::API, missing: topic.clone() });
            }
        }
        Ok(outcomes)
    }
}

fn by_name(topics: &[String]) -> Vec<MirrorTopic> {
    let topic = |name: &String| MirrorTopic { topic_id: TopicId::NONE, topic_name: name.clone() };
    topics.iter().map(topic).collect()
}

/// A text that is empty for unknown.
fn known(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn outcome(result: MirrorTopicResult) -> TopicOutcome {
    TopicOutcome {
        refusal: Refusal::new(result.error_code, result.error_message.as_deref()),
        topic: result.name,
        partitions: u32::try_from(result.num_partitions).ok(),
        lag: u64::try_from(result.lag).ok(),
        state: known(result.state),
    }
}

/// One description of each mirror. What one broker tells counts more than another's refusal.
fn merge(
    parts: impl Iterator<Item = DescribedClusterMirror>,
) -> Result<Vec<MirrorDescription>, AdminError> {
    let mut found = BTreeMap::<String, MirrorDescription>::new();
    let mut refused = BTreeMap::<String, Refusal>::new();
    for part in parts {
        if let Some(refusal) = Refusal::new(part.error_code, part.error_message.as_deref()) {
            refused.insert(part.mirror_name, refusal);
            continue;
        }
        let name = part.mirror_name;
        let fresh = || MirrorDescription {
            name: name.clone(),
            source_bootstrap: None,
            source_cluster_id: None,
            topics: BTreeMap::new(),
        };
        let it = found.entry(name.clone()).or_insert_with(fresh);
        it.source_bootstrap = it.source_bootstrap.take().or(known(part.source_bootstrap));
        it.source_cluster_id = it.source_cluster_id.take().or(known(part.source_cluster_id));
        for topic in part.topics {
            let partitions = it.topics.entry(topic.topic_name).or_default();
            partitions.extend(topic.partitions.into_iter().map(partition));
            partitions.sort_by_key(|partition| partition.index);
            // Two brokers can both have led it a moment ago.
            partitions.dedup_by_key(|partition| partition.index);
        }
    }
    match refused.into_iter().find(|(name, _)| !found.contains_key(name)) {
        Some((_, refusal)) => {
            Err(AdminError::Refused { api: Api::DescribeClusterMirrors, refusal })
        }
        None => Ok(found.into_values().collect()),
    }
}

fn partition(it: DescribedMirrorPartition) -> MirrorPartition {
    let offset = |offset: i64| (offset >= 0).then_some(Offset(offset));
    MirrorPartition {
        index: it.partition_index,
        source_offset: offset(it.source_offset),
        destination_offset: offset(it.destination_offset),
        lag: (it.lag >= 0).then_some(it.lag),
        state: it.state,
        last_mirror_epoch: LeaderEpoch(it.last_mirror_epoch),
        last_mirror_offset: offset(it.last_mirror_offset),
        retry_attempt: it.retry_attempt,
        error_message: it.error_message,
        desired_state: known(it.desired_state),
        failing_since: (it.failing_since_ms >= 0).then_some(TimestampMs(it.failing_since_ms)),
    }
}

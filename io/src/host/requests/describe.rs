//! How mirrors stand: what is stored of each partition, and what its job says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use heliostat_core::config::MIRROR_SOURCE_CLUSTER_ID;
use heliostat_core::coordinator::{DesiredState, LastMirrored, MirrorKey, MirrorState};
use heliostat_core::metadata::image::ResourceType;
use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::{
    DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse, DescribedClusterMirror,
    DescribedMirrorPartition, DescribedMirrorTopic, EpochLookupPartition, EpochLookupResult,
};
use heliostat_core::types::{Offset, TopicPartition};
use tokio::sync::oneshot;

use super::super::run::{Host, News};
use super::Ready;
use super::figures::{Listing, Sums, has_figures, millis, put_figures};
use crate::control::steering::Order;
use crate::control::{PartitionStatus, now_ms};

/// Longest wait for a job to say how its partitions stand.
const JOB_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// What jobs say, by mirror and partition.
pub(in crate::host) type Statuses = BTreeMap<String, BTreeMap<TopicPartition, PartitionStatus>>;

pub(super) fn standing<'a>(
    statuses: &'a Statuses,
    mirror: &str,
    topic: &str,
    partition: i32,
) -> Option<&'a PartitionStatus> {
    statuses.get(mirror)?.get(&TopicPartition::new(topic, partition))
}

/// End of the source, exclusive, as far as it is known.
pub(super) fn source_end(status: &PartitionStatus) -> Offset {
    status.source_high_watermark.max(status.target.unwrap_or(Offset::NONE))
}

impl Host {
    /// Asks the jobs of mirrors how the partitions of `topics` stand, or all if that is empty,
    /// and goes on with what they say.
    pub(super) fn gather(
        &mut self,
        mirrors: Vec<String>,
        topics: &BTreeSet<String>,
        ready: impl FnOnce(Statuses) -> Ready + 'static,
    ) {
        let mut asked = Vec::new();
        for mirror in mirrors {
            if let Some(link) = self.links.get(mirror.as_str()) {
                let (sender, receiver) = oneshot::channel();
                link.order(Order::Describe { topics: topics.clone(), reply: sender });
                asked.push((mirror, receiver));
            }
        }
        let sender = self.news_sender.clone();
        tokio::task::spawn_local(async move {
            let mut statuses = Statuses::new();
            let deadline = tokio::time::Instant::now() + JOB_ANSWERS_WITHIN;
            for (mirror, receiver) in asked {
                // A job that ends says nothing more.
                if let Ok(Ok(all)) = tokio::time::timeout_at(deadline, receiver).await {
                    let all = all.into_iter().map(|it| (it.partition.clone(), it)).collect();
                    statuses.insert(mirror, all);
                }
            }
            let _ = sender.send(News::Ready(Box::new(ready(statuses))));
        });
    }

    /// The mirrors that a request is about: all, if it names none.
    pub(super) fn described(&self, asked: &DescribeClusterMirrorsRequest) -> Vec<String> {
        if asked.mirror_names.is_empty() {
            return self.image().mirrors().map(str::to_owned).collect();
        }
        let all: BTreeSet<&String> = asked.mirror_names.iter().collect();
        all.into_iter().cloned().collect()
    }

    pub(super) fn describe(
        &self,
        asked: &DescribeClusterMirrorsRequest,
        statuses: &Statuses,
    ) -> DescribeClusterMirrorsResponse {
        let mirrors = self.described(asked);
        let mut figures = self.figures(asked, &mirrors);
        let describe = |mirror: &String| {
            let described = self.describe_one(mirror, asked, statuses);
            match figures.remove(mirror) {
                Some(figures) => figures.put_into(described),
                None => described,
            }
        };
        DescribeClusterMirrorsResponse {
            mirrors: mirrors.iter().map(describe).collect(),
            lookup_results: self.look_up_last(asked),
            taken_at_ms: if asked.include_figures { millis(self.origin.elapsed()) } else { -1 },
            ..DescribeClusterMirrorsResponse::default()
        }
    }

    fn describe_one(
        &self,
        mirror: &str,
        asked: &DescribeClusterMirrorsRequest,
        statuses: &Statuses,
    ) -> DescribedClusterMirror {
        let image = self.image();
        let mirror_name = mirror.to_owned();
        if !image.has_mirror(mirror) {
            return DescribedClusterMirror {
                mirror_name,
                error_code: ErrorCode::UNKNOWN_CLUSTER_MIRROR.0,
                error_message: Some(format!("mirror {mirror} is not known")),
                ..DescribedClusterMirror::default()
            };
        }
        let config =
            |key| image.config(ResourceType::MIRROR, mirror, key).unwrap_or_default().to_owned();
        let name: Arc<str> = Arc::from(mirror);
        let listing = Listing::new(asked);
        let topics = image.topics_of(mirror).filter(|(topic, _)| listing.is_asked(&topic.name));
        let topics = topics.map(|(topic, desired)| {
            let mut sums = Sums::default();
            let partitions = (0..topic.partition_count()).map(|partition| {
                let key = MirrorKey { mirror: Arc::clone(&name), topic: topic.id, partition };
                let status = standing(statuses, mirror, &topic.name, partition);
                if asked.include_figures {
                    self.add_partition(&mut sums, &key, status);
                }
                self.describe_partition(&key, desired, status, asked.include_figures)
            });
            DescribedMirrorTopic {
                topic_name: topic.name.to_string(),
                partitions: partitions.collect(),
                figures: sums.finish(),
                ..DescribedMirrorTopic::default()
            }
        });
        let (topics, topics_left_out) = listing.list(topics);
        DescribedClusterMirror {
            mirror_name,
            topics,
            topics_left_out,
            source_bootstrap: config("bootstrap.servers"),
            source_cluster_id: config(MIRROR_SOURCE_CLUSTER_ID),
            ..DescribedClusterMirror::default()
        }
    }

    fn describe_partition(
        &self,
        key: &MirrorKey,
        desired: DesiredState,
        status: Option<&PartitionStatus>,
        with_figures: bool,
    ) -> DescribedMirrorPartition {
        let known = self.mirrors.get(key);
        let state = known.map_or(MirrorState::Unknown, |it| it.state());
        let last = self.mirrors.last_mirrored(key);
        let mut described = DescribedMirrorPartition {
            partition_index: key.partition,
            state: state.name().to_owned(),
            last_mirror_epoch: last.map_or(-1, |last| last.epoch.0),
            last_mirror_offset: last.map_or(-1, |last| last.offset.0),
            desired_state: desired_name(desired).to_owned(),
            ..DescribedMirrorPartition::default()
        };
        if let Some(it) = known {
            described.retry_attempt = it.stored().attempts.stored();
            described.error_message = it.stored().reason.as_deref().map(str::to_owned);
            if let Some((since, why)) = it.unreachable() {
                let since = i64::try_from(self.now().since(since).as_millis()).unwrap_or(i64::MAX);
                described.failing_since_ms = now_ms().saturating_sub(since);
                described.error_message = Some(why.to_string());
            }
        }
        if let Some(status) = status.filter(|_| state == MirrorState::Mirroring) {
            let source = source_end(status);
            described.source_offset = source.0;
            described.destination_offset = status.log_end.0;
            if source.0 >= 0 {
                described.lag = i64::try_from(status.lag_records).unwrap_or(i64::MAX);
            }
            if let Some((why, since)) = &status.trouble {
                let since = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
                described.failing_since_ms = now_ms().saturating_sub(since);
                described.error_message = Some(why.to_string());
            }
        }
        described.given_up = with_figures && known.is_some_and(|it| self.is_given_up(it.stored()));
        if let Some(status) = status.filter(|_| with_figures && has_figures(state)) {
            put_figures(&mut described, status);
        }
        described
    }

    /// How far the mirrors of a cluster got, for whom that cluster mirrors back.
    fn look_up_last(&self, asked: &DescribeClusterMirrorsRequest) -> Vec<EpochLookupResult> {
        let Some(cluster) = &asked.cluster_id else { return Vec::new() };
        let image = self.image();
        let is_of = |mirror: &&str| {
            image.config(ResourceType::MIRROR, mirror, MIRROR_SOURCE_CLUSTER_ID) == Some(cluster)
        };
        let mirrors: Vec<Arc<str>> = image.mirrors().filter(is_of).map(Arc::from).collect();
        let result = |topic, partition| {
            let last = mirrors.iter().filter_map(|mirror| {
                let key = MirrorKey { mirror: Arc::clone(mirror), topic, partition };
                self.mirrors.last_mirrored(&key)
            });
            let LastMirrored { epoch, offset } =
                last.max_by_key(|last| (last.epoch, last.offset)).unwrap_or(LastMirrored {
                    epoch: heliostat_core::types::LeaderEpoch::NONE,
                    offset: Offset::NONE,
                });
            EpochLookupPartition {
                partition_index: partition,
                last_mirror_epoch: epoch.0,
                last_mirror_offset: offset.0,
            }
        };
        let lookups = asked.last_mirror_epoch_lookups.iter();
        lookups
            .map(|it| EpochLookupResult {
                topic_id: it.topic_id,
                partitions: it.partitions.iter().map(|index| result(it.topic_id, *index)).collect(),
            })
            .collect()
    }
}

fn desired_name(desired: DesiredState) -> &'static str {
    match desired {
        DesiredState::Mirroring => "MIRRORING",
        DesiredState::Paused => "PAUSED",
        DesiredState::Stopped => "STOPPED",
    }
}

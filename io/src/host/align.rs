//! Where the common end with a source is: asked of the source, if it is a host of mirrors itself.
//!
//! KIP-1279, failback: a source that mirrors these topics from here must have stopped first, and
//! knows up to where it mirrored. One that still mirrors them would close a loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use heliostat_core::coordinator::partition::{Event, Failure, Run};
use heliostat_core::coordinator::{LastMirrored, MirrorKey, MirrorState};
use heliostat_core::fetcher::{Backoff, BackoffPolicy};
use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::{
    DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse, EpochLookup,
    ListClusterMirrorsRequest, ListClusterMirrorsResponse,
};
use heliostat_core::time::Tick;
use heliostat_core::types::{LeaderEpoch, Offset, TopicId, TopicPartition};
use tokio::time::Instant;

use super::link::Doing;
use super::run::{Host, News, random};
use super::steps::{Begun, other_cluster};
use crate::admin::{AdminClient, AdminError};
use crate::control::steering::Order;

/// What came of asking: for each partition where the common end is, or why it must not go on.
pub(super) type LookedUp =
    Vec<(MirrorKey, TopicPartition, Run, Result<Option<LastMirrored>, Failure>)>;

/// Waits between two tries to reach a source.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

impl Host {
    /// Asks a source about partitions that are to be aligned. A source that cannot be reached is
    /// asked for ever: that is no failure of the partitions.
    pub(super) fn look_up(&mut self, mirror: &Arc<str>, begun: Vec<Begun>) {
        for one in &begun {
            if !self.runs(one, Doing::LooksUp) {
                self.nobody_works(&one.0, one.2);
            }
        }
        let own_cluster = self.log_dir.borrow().cluster_id().unwrap_or_default().to_owned();
        let Some(link) = self.links.get(mirror) else { return };
        let mut client = self.source_admin(mirror, &link.config);
        let source_cluster = link.config.source_cluster_id.clone();
        let (sender, generation) = (self.news_sender.clone(), link.generation);
        let mirror = Arc::clone(mirror);
        tokio::task::spawn_local(async move {
            let policy = BackoffPolicy::new(RETRY_MIN, RETRY_MAX);
            let (mut backoff, origin) = (Backoff::default(), Instant::now());
            let outcome = loop {
                let clusters = (own_cluster.as_str(), source_cluster.as_deref());
                match ask(&mut client, clusters, &begun).await {
                    Ok(outcome) => break outcome,
                    Err(error) => {
                        tracing::info!("mirror {mirror}: {error}; asked again");
                        let now = Tick::ZERO.after(origin.elapsed());
                        let at = backoff.failed(policy, now, random());
                        tokio::select! {
                            () = tokio::time::sleep_until(origin + at.since(Tick::ZERO)) => {}
                            () = sender.closed() => return,
                        }
                    }
                }
            };
            let _ = sender.send(News::LookedUp { mirror, generation, outcome });
        });
    }

    pub(super) fn take_looked_up(&mut self, mirror: &str, outcome: LookedUp) {
        for (key, at, run, common) in outcome {
            let Some(link) = self.links.get_mut(mirror) else { return };
            let current = link.running.get_mut(&at);
            let Some(running) = current.filter(|it| it.run == run && it.doing == Doing::LooksUp)
            else {
                continue;
            };
            match common {
                Ok(found) => {
                    running.doing = Doing::Aligns;
                    // What this host mirrored until its own stop is the source's as well.
                    let last = found.or_else(|| self.mirrors.last_mirrored(&key));
                    link.order(Order::Align { at, last });
                }
                Err(failure) => {
                    link.running.remove(&at);
                    self.report(&key, |run| Event::Failed(run, failure), run);
                }
            }
        }
    }
}

/// Asks once; an error is one of reaching the source.
async fn ask(
    client: &mut AdminClient,
    (own_cluster, source_cluster): (&str, Option<&str>),
    begun: &[Begun],
) -> Result<LookedUp, AdminError> {
    let all = |common: Result<Option<LastMirrored>, Failure>| {
        begun.iter().map(|(key, at, run)| (key.clone(), at.clone(), *run, common.clone())).collect()
    };
    // Nothing may be cut by the word of another cluster.
    let found = client.metadata(Some(&[])).await?.cluster_id;
    if let (Some(known), Some(found)) = (source_cluster, &found)
        && known != found
    {
        return Ok(all(Err(other_cluster(Some(known), found))));
    }
    let listed = match client.read(&ListClusterMirrorsRequest::default()).await {
        Ok(listed) => listed,
        // A Kafka without mirrors, or with mirrors turned off, has none.
        Err(error) if has_no_mirrors(&error) => return Ok(all(Ok(None))),
        Err(error) => return Err(error),
    };
    let of_ours = mirrors_of(&listed, own_cluster);
    if of_ours.is_empty() {
        return Ok(all(Ok(None)));
    }
    let mut lookups = BTreeMap::<TopicId, Vec<i32>>::new();
    for (key, ..) in begun {
        lookups.entry(key.topic).or_default().push(key.partition);
    }
    let request = DescribeClusterMirrorsRequest {
        mirror_names: of_ours,
        cluster_id: Some(own_cluster.to_owned()),
        last_mirror_epoch_lookups: lookups
            .into_iter()
            .map(|(topic_id, partitions)| EpochLookup { topic_id, partitions })
            .collect(),
        ..DescribeClusterMirrorsRequest::default()
    };
    let described = client.read(&request).await?;
    Ok(begun
        .iter()
        .map(|(key, at, run)| (key.clone(), at.clone(), *run, common_end(&described, key, at)))
        .collect())
}

/// Whether the source is one that cannot mirror.
fn has_no_mirrors(error: &AdminError) -> bool {
    match error {
        AdminError::Unsupported { .. } => true,
        AdminError::Refused { refusal, .. } => refusal.code == ErrorCode::UNSUPPORTED_VERSION,
        _ => false,
    }
}

/// Names of the mirrors there whose source is this cluster.
fn mirrors_of(listed: &ListClusterMirrorsResponse, own_cluster: &str) -> Vec<String> {
    let of_ours = listed.mirrors.iter().filter(|it| it.source_cluster_id == own_cluster);
    of_ours.map(|it| it.mirror_name.clone()).collect()
}

/// What the source's mirrors of this cluster say of a partition.
fn common_end(
    described: &DescribeClusterMirrorsResponse,
    key: &MirrorKey,
    at: &TopicPartition,
) -> Result<Option<LastMirrored>, Failure> {
    let mut last: Option<LastMirrored> = None;
    for mirror in &described.mirrors {
        let topics = mirror.topics.iter().filter(|topic| topic.topic_name == *at.topic);
        let partitions = topics.flat_map(|topic| &topic.partitions);
        for partition in partitions.filter(|it| it.partition_index == at.partition) {
            let (name, state) = (&mirror.mirror_name, &partition.state);
            if *state != MirrorState::Stopped.name() {
                let reason = format!(
                    "a mirror loop: mirror {name} at the source mirrors this partition from here, \
                     and is in state {state}; stop the topic there first"
                );
                return Err(Failure { reason: Arc::from(reason), retryable: true });
            }
            let (epoch, offset) = (partition.last_mirror_epoch, partition.last_mirror_offset);
            last = later(last, epoch, offset);
        }
    }
    let looked_up = described.lookup_results.iter().filter(|topic| topic.topic_id == key.topic);
    for found in looked_up.flat_map(|topic| &topic.partitions) {
        if found.partition_index == key.partition {
            last = later(last, found.last_mirror_epoch, found.last_mirror_offset);
        }
    }
    Ok(last)
}

/// Of several mirrors, the one that got furthest.
fn later(known: Option<LastMirrored>, epoch: i32, offset: i64) -> Option<LastMirrored> {
    if epoch < 0 {
        return known;
    }
    let found = LastMirrored { epoch: LeaderEpoch(epoch), offset: Offset(offset.max(-1)) };
    match known {
        Some(known) if (known.epoch, known.offset) >= (found.epoch, found.offset) => Some(known),
        _ => Some(found),
    }
}

//! Figures of a description: sums over partitions, where time went, and which rows are listed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use heliostat_core::coordinator::partition::Stored;
use heliostat_core::coordinator::retry::Attempts;
use heliostat_core::coordinator::{MirrorKey, MirrorState};
use heliostat_core::protocol::mirror::{
    DescribeClusterMirrorsRequest, DescribedClusterMirror, DescribedMirrorPartition,
    DescribedMirrorTopic, MirrorFigures, MirrorShardTime, MirrorStateCount, MirrorTime,
};

use super::super::link::Link;
use super::super::run::Host;
use super::super::snapshot::lacks;
use super::describe::source_end;
use crate::control::{PartitionStatus, Status, now_ms};

pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn count(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Since when, by the wall clock.
fn wall_ms(since: Duration) -> i64 {
    now_ms().saturating_sub(millis(since))
}

/// Whether lag means something: who has stopped may write here, and lacks nothing.
pub(super) fn has_figures(state: MirrorState) -> bool {
    !matches!(state, MirrorState::Stopped | MirrorState::Unknown)
}

/// What only those see who ask for figures; also of partitions that are not mirrored now.
pub(super) fn put_figures(described: &mut DescribedMirrorPartition, status: &PartitionStatus) {
    let source = source_end(status);
    described.bytes_appended = number(status.bytes_appended);
    described.destination_offset = status.log_end.0;
    if source.0 >= 0 {
        described.source_offset = source.0;
        described.lag = number(status.lag_records);
        described.lag_bytes = number(status.lag_bytes);
        described.lag_ms = millis(status.lag);
    }
}

/// How bad it is that a partition does not get on; the last is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// It tries by itself, and has not failed.
    HeldUp,
    /// It has failed, and is tried again by itself.
    Failed,
    /// It waits for an operator.
    GivenUp,
}

/// Sums over partitions that are added one by one.
#[derive(Debug, Default)]
pub(super) struct Sums {
    figures: MirrorFigures,
    states: BTreeMap<MirrorState, i32>,
    worst: Option<Urgency>,
}

impl Sums {
    /// A partition, and whether it waits for an operator.
    fn count(&mut self, stored: &Stored, is_given_up: bool) {
        self.figures.partition_count = self.figures.partition_count.saturating_add(1);
        *self.states.entry(stored.state).or_default() += 1;
        let attempts = stored.attempts.counted().map_or(0, i64::from);
        self.figures.retry_attempts = self.figures.retry_attempts.saturating_add(attempts);
        self.figures.given_up += i32::from(is_given_up);
    }

    /// One that does not get on. The reason of the worst one is kept, and of those the first.
    fn hold_up(
        &mut self,
        urgency: Urgency,
        since_ms: i64,
        reason: impl FnOnce() -> Option<String>,
    ) {
        self.figures.failing = self.figures.failing.saturating_add(1);
        if self.worst.is_none_or(|worst| worst < urgency) {
            self.worst = Some(urgency);
            self.figures.error_message = reason();
            self.figures.failing_since_ms = since_ms;
        }
    }

    /// What is missing of a partition, and what it has appended.
    fn measure(&mut self, status: &PartitionStatus) {
        let add = |sum: &mut i64, more: u64| *sum = (*sum).max(0).saturating_add(number(more));
        let figures = &mut self.figures;
        add(&mut figures.bytes_appended, status.bytes_appended);
        if source_end(status).0 >= 0 {
            add(&mut figures.lag, status.lag_records);
            add(&mut figures.lag_bytes, status.lag_bytes);
            figures.lag_ms = figures.lag_ms.max(millis(status.lag));
        }
    }

    pub(super) fn finish(self) -> MirrorFigures {
        let states = self.states.into_iter().map(|(state, partitions)| MirrorStateCount {
            state: state.name().to_owned(),
            partitions,
        });
        MirrorFigures { states: states.collect(), ..self.figures }
    }

    /// Of a whole mirror: its job's own sums, and what holds up all of it.
    fn finish_of_mirror(self, name: &str, link: Option<&Link>, job: Option<&Status>) -> OfMirror {
        let has_some = self.states.keys().any(|state| has_figures(*state));
        let mut figures = self.finish();
        let mut time = MirrorTime::default();
        if let Some(job) = job {
            figures.bytes_appended = number(job.totals.bytes_appended);
            if has_some {
                figures.lag = number(job.totals.lag_records);
                figures.lag_bytes = number(job.totals.lag_bytes);
                figures.lag_ms = millis(job.totals.lag);
            }
            time = time_of(job);
        }
        let trouble = match (lacks(name, link), job) {
            (Some(why), _) => Some((why, -1)),
            (None, Some(job)) if job.parked => Some((
                format!(
                    "the log dir has {} bytes free, too few by log.dir.free.min.bytes: nothing \
                     is fetched; make room",
                    job.free_bytes
                ),
                -1,
            )),
            (None, job) => job
                .and_then(|job| job.source_trouble.as_ref())
                .map(|(why, since)| (why.to_string(), wall_ms(*since))),
        };
        if let Some((why, since)) = trouble {
            figures.error_message = Some(why);
            figures.failing_since_ms = since;
        }
        OfMirror { topic_count: 0, figures, time }
    }
}

fn time_of(job: &Status) -> MirrorTime {
    let spent = &job.shards.stats.spent;
    let shards = job.shard_times.iter();
    MirrorTime {
        elapsed_ms: millis(job.elapsed),
        source_ms: millis(spent.waiting),
        network_ms: millis(spent.receiving),
        disk_ms: millis(spent.stalled),
        throttle_ms: millis(spent.throttled),
        shards: shards
            .map(|it| MirrorShardTime { elapsed_ms: millis(it.elapsed), cpu_ms: millis(it.cpu) })
            .collect(),
    }
}

/// What a mirror's description has beside its topics.
#[derive(Debug)]
pub(super) struct OfMirror {
    topic_count: i32,
    figures: MirrorFigures,
    time: MirrorTime,
}

impl OfMirror {
    pub(super) fn put_into(self, described: DescribedClusterMirror) -> DescribedClusterMirror {
        let Self { topic_count, figures, time } = self;
        DescribedClusterMirror { topic_count, figures, time, ..described }
    }
}

impl Host {
    /// Figures of mirrors that exist, if they are asked for. One look at each partition.
    pub(super) fn figures(
        &self,
        asked: &DescribeClusterMirrorsRequest,
        mirrors: &[String],
    ) -> BTreeMap<String, OfMirror> {
        let image = self.image();
        if !asked.include_figures {
            return BTreeMap::new();
        }
        let known = mirrors.iter().filter(|mirror| image.has_mirror(mirror));
        let mut all: BTreeMap<&str, Sums> =
            known.map(|mirror| (mirror.as_str(), Sums::default())).collect();
        for (key, _) in self.mirrors.iter() {
            if let Some(sums) = all.get_mut(&*key.mirror) {
                self.add_standing(sums, key, true);
            }
        }
        let mut topics = BTreeMap::<&str, i32>::new();
        for link in image.topics().filter_map(|topic| image.mirror_of(&topic.name)) {
            *topics.entry(link.mirror).or_default() += 1;
        }
        let finish = |(name, mut sums): (&str, Sums)| {
            let link = self.links.get(name);
            let job = link.map(|link| link.handle.status());
            for status in job.iter().flat_map(|job| job.partitions.iter()) {
                self.add_trouble(&mut sums, name, status);
            }
            let topic_count = topics.get(name).copied().unwrap_or_default();
            let figures = sums.finish_of_mirror(name, link, job.as_deref());
            (name.to_owned(), OfMirror { topic_count, ..figures })
        };
        all.into_iter().map(finish).collect()
    }

    /// A partition in the sums of its topic.
    pub(super) fn add_partition(
        &self,
        sums: &mut Sums,
        key: &MirrorKey,
        status: Option<&PartitionStatus>,
    ) {
        self.add_standing(sums, key, false);
        let state = self.mirrors.get(key).map_or(MirrorState::Unknown, |it| it.state());
        if let Some(status) = status {
            self.add_trouble(sums, &key.mirror, status);
            if has_figures(state) {
                sums.measure(status);
            }
        }
    }

    /// Whether it has failed and is not tried again by itself.
    pub(super) fn is_given_up(&self, stored: &Stored) -> bool {
        stored.state == MirrorState::Failed
            && is_over(stored.attempts, self.config.retry.max_attempts)
    }

    /// What the coordinator knows of a partition. With `by_topic` its topic is named too.
    fn add_standing(&self, sums: &mut Sums, key: &MirrorKey, by_topic: bool) {
        let unknown = Stored::default();
        let known = self.mirrors.get(key);
        let stored = known.map_or(&unknown, |it| it.stored());
        let has_failed = stored.state == MirrorState::Failed;
        let is_given_up = self.is_given_up(stored);
        sums.count(stored, is_given_up);
        let said = |why: &str| {
            let topic = if by_topic { self.place(key).map(|at| at.topic) } else { None };
            Some(match topic {
                Some(topic) => format!("{topic}-{}: {why}", key.partition),
                None => format!("partition {}: {why}", key.partition),
            })
        };
        if has_failed {
            let urgency = if is_given_up { Urgency::GivenUp } else { Urgency::Failed };
            let why = stored.reason.as_deref().unwrap_or("it has failed");
            sums.hold_up(urgency, -1, || said(why));
        } else if let Some((since, why)) = known.and_then(|it| it.unreachable()) {
            let since = wall_ms(self.now().since(since));
            sums.hold_up(Urgency::HeldUp, since, || said(why));
        }
    }

    /// What its job says of a partition, if the coordinator has not said as much.
    fn add_trouble(&self, sums: &mut Sums, mirror: &str, status: &PartitionStatus) {
        let Some((why, since)) = &status.trouble else { return };
        let at = &status.partition;
        let Some(topic) = self.image().topic(&at.topic) else { return };
        let key = MirrorKey { mirror: mirror.into(), topic: topic.id, partition: at.partition };
        let is_new = self
            .mirrors
            .get(&key)
            .is_some_and(|it| it.state() == MirrorState::Mirroring && it.unreachable().is_none());
        if is_new {
            let reason = || Some(format!("{}-{}: {why}", at.topic, at.partition));
            sums.hold_up(Urgency::HeldUp, wall_ms(*since), reason);
        }
    }
}

/// Whether a failed partition is not tried again by itself.
fn is_over(attempts: Attempts, max: u16) -> bool {
    attempts.counted().is_none_or(|attempts| attempts >= max)
}

/// Which topics and partitions are listed.
#[derive(Debug)]
pub(super) struct Listing {
    depth: i8,
    names: BTreeSet<String>,
    contains: String,
    rows_max: usize,
}

impl Listing {
    pub(super) fn new(asked: &DescribeClusterMirrorsRequest) -> Self {
        Self {
            depth: asked.depth,
            names: asked.topic_names.iter().cloned().collect(),
            contains: asked.contains.to_lowercase(),
            rows_max: usize::try_from(asked.rows_max).unwrap_or(usize::MAX),
        }
    }

    pub(super) fn is_asked(&self, topic: &str) -> bool {
        self.depth > 0 && (self.names.is_empty() || self.names.contains(topic))
    }

    fn holds_text(&self, topic: &DescribedMirrorTopic) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.contains);
        self.contains.is_empty()
            || has(&topic.topic_name)
            || topic.partitions.iter().any(|partition| {
                has(&partition.state) || partition.error_message.as_deref().is_some_and(has)
            })
    }

    /// Those that are listed, in their order, and the number of those that are left out.
    pub(super) fn list(
        &self,
        topics: impl Iterator<Item = DescribedMirrorTopic>,
    ) -> (Vec<DescribedMirrorTopic>, i32) {
        let mut listed = Vec::new();
        for mut topic in topics.filter(|topic| self.holds_text(topic)) {
            if self.depth == 1 {
                topic.partitions = Vec::new();
            }
            let rank = |it: &DescribedMirrorPartition| {
                let does_not_get_on = it.failing_since_ms >= 0 || it.error_message.is_some();
                Reverse((does_not_get_on, it.lag))
            };
            topic.partitions_left_out = keep(&mut topic.partitions, self.rows_max, rank);
            topic.partitions.sort_by_key(|it| it.partition_index);
            listed.push(topic);
        }
        let rank = |it: &DescribedMirrorTopic| Reverse((it.figures.failing > 0, it.figures.lag));
        let left_out = keep(&mut listed, self.rows_max, rank);
        listed.sort_by(|a, b| a.topic_name.cmp(&b.topic_name));
        (listed, left_out)
    }
}

/// Keeps the first `max` by rank, and says how many go.
fn keep<T, R: Ord>(rows: &mut Vec<T>, max: usize, rank: impl Fn(&T) -> R) -> i32 {
    let left_out = rows.len().saturating_sub(max);
    if left_out > 0 {
        rows.sort_by_key(rank);
        rows.truncate(max);
    }
    count(left_out)
}

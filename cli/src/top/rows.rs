//! What a host answers, as rows.

use std::time::Duration;

use heliostat_core::protocol::mirror::{
    DescribedClusterMirror, DescribedMirrorPartition, DescribedMirrorTopic, MirrorFigures,
};

use super::format::plain;
use super::rates::{Busy, Meters, Sample};

/// A mirror that lacks something for less time keeps up: nothing binds it.
const KEEPS_UP: Duration = Duration::from_secs(2);

/// How much a row wants to be looked at; the first the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// Something has failed and waits for an operator.
    GivenUp,
    /// Something has failed.
    Failed,
    /// Something does not get on.
    HeldUp,
    /// Nothing.
    None,
}

/// A line of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Mirror, topic, or index of a partition.
    pub(super) name: String,
    /// Of a partition, by which it is sorted.
    pub(super) index: i32,
    pub(super) topics: Option<u64>,
    pub(super) partitions: u64,
    pub(super) trouble: Trouble,
    /// Partitions that do not get on.
    pub(super) failing: u64,
    /// Of the least advanced of its partitions.
    pub(super) state: String,
    /// By which states are sorted.
    pub(super) state_rank: usize,
    /// How many are in that state.
    pub(super) in_state: u64,
    /// What an operator wants, of a partition.
    pub(super) wanted: Option<String>,
    pub(super) lag: Option<u64>,
    pub(super) lag_bytes: Option<u64>,
    pub(super) lag_time: Option<Duration>,
    /// Bytes a second.
    pub(super) rate: Option<f64>,
    /// Where the time goes, of a mirror.
    pub(super) busy: Option<Busy>,
    /// Failures since the last success.
    pub(super) retries: u64,
    pub(super) source_offset: Option<i64>,
    pub(super) destination_offset: Option<i64>,
    pub(super) reason: Option<String>,
    /// Milliseconds since the Unix epoch.
    pub(super) since_ms: Option<i64>,
    /// Of a mirror, `bootstrap.servers`.
    pub(super) source: Option<String>,
}

/// States, the one that is to be looked at first before others.
const STATES: [&str; 9] = [
    "FAILED",
    "STOPPING",
    "PAUSING",
    "UNKNOWN",
    "LOG_TRUNCATION",
    "EPOCH_FENCING",
    "MIRRORING",
    "PAUSED",
    "STOPPED",
];

fn state_rank(state: &str) -> usize {
    STATES.iter().position(|known| *known == state).unwrap_or(0)
}

fn known(value: i64) -> Option<u64> {
    u64::try_from(value).ok()
}

fn counted(value: i32) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

impl Row {
    /// Whether it is kept when only those are wanted that do not get on.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.trouble != Trouble::None
    }

    /// Whether it holds a text that is in small letters already.
    pub(super) fn holds_text(&self, text: &str) -> bool {
        let has = |it: &str| it.to_lowercase().contains(text);
        has(&self.name) || has(&self.state) || self.reason.as_deref().is_some_and(has)
    }

    /// Whether it keeps up with its source, so that nothing binds it.
    fn keeps_up(&self) -> bool {
        self.lag_time.is_none_or(|time| time < KEEPS_UP)
    }

    pub(super) fn of_mirror(mirror: &DescribedClusterMirror, meters: &mut Meters) -> Self {
        let figures = &mirror.figures;
        let name = plain(&mirror.mirror_name);
        let mut row = Self::of_figures(name, figures);
        row.topics = known(mirror.topic_count.into());
        row.source = Some(plain(&mirror.source_bootstrap)).filter(|text| !text.is_empty());
        if figures.error_message.is_some() {
            // All of it, if none of its partitions is named.
            row.trouble = row.trouble.min(Trouble::HeldUp);
        }
        if mirror.time.elapsed_ms >= 0 {
            let at_ms = mirror.time.elapsed_ms;
            let time = Some(mirror.time.clone());
            let meter =
                meters.push(&row.name, Sample { at_ms, bytes: figures.bytes_appended, time });
            row.rate = meter.rate();
            row.busy = meter.busy();
            if row.keeps_up()
                && let Some(busy) = &mut row.busy
            {
                busy.binds = None;
            }
        }
        row
    }

    pub(super) fn of_topic(topic: &DescribedMirrorTopic, at_ms: i64, meters: &mut Meters) -> Self {
        let mut row = Self::of_figures(plain(&topic.topic_name), &topic.figures);
        let bytes = topic.figures.bytes_appended;
        if bytes >= 0 {
            row.rate = meters.push(&row.name, Sample { at_ms, bytes, time: None }).rate();
        }
        row
    }

    fn of_figures(name: String, figures: &MirrorFigures) -> Self {
        let least = figures.states.iter().min_by_key(|it| state_rank(&it.state));
        let state = least.map_or("-", |it| it.state.as_str());
        let has_failed = figures.states.iter().any(|it| it.state == "FAILED");
        Self {
            name,
            index: 0,
            topics: None,
            partitions: counted(figures.partition_count),
            trouble: match figures.failing {
                _ if figures.given_up > 0 => Trouble::GivenUp,
                _ if has_failed => Trouble::Failed,
                1.. => Trouble::HeldUp,
                _ => Trouble::None,
            },
            failing: counted(figures.failing),
            state: plain(state),
            state_rank: state_rank(state),
            in_state: least.map_or(0, |it| counted(it.partitions)),
            wanted: None,
            lag: known(figures.lag),
            lag_bytes: known(figures.lag_bytes),
            lag_time: known(figures.lag_ms).map(Duration::from_millis),
            rate: None,
            busy: None,
            retries: known(figures.retry_attempts).unwrap_or(0),
            source_offset: None,
            destination_offset: None,
            reason: figures.error_message.as_deref().map(plain),
            since_ms: Some(figures.failing_since_ms).filter(|since| *since >= 0),
            source: None,
        }
    }

    pub(super) fn of_partition(
        it: &DescribedMirrorPartition,
        at_ms: i64,
        meters: &mut Meters,
    ) -> Self {
        let name = it.partition_index.to_string();
        let has_failed = it.state == "FAILED";
        let bytes = it.bytes_appended;
        let rate = (bytes >= 0)
            .then(|| meters.push(&name, Sample { at_ms, bytes, time: None }).rate())
            .flatten();
        Self {
            index: it.partition_index,
            topics: None,
            partitions: 1,
            trouble: match it.failing_since_ms {
                _ if it.given_up => Trouble::GivenUp,
                _ if has_failed => Trouble::Failed,
                0.. => Trouble::HeldUp,
                _ => Trouble::None,
            },
            failing: u64::from(has_failed || it.failing_since_ms >= 0),
            state: plain(&it.state),
            state_rank: state_rank(&it.state),
            in_state: 1,
            wanted: Some(plain(&it.desired_state)).filter(|text| !text.is_empty()),
            lag: known(it.lag),
            lag_bytes: known(it.lag_bytes),
            lag_time: known(it.lag_ms).map(Duration::from_millis),
            rate,
            busy: None,
            retries: known(it.retry_attempt.into()).unwrap_or(0),
            source_offset: Some(it.source_offset).filter(|offset| *offset >= 0),
            destination_offset: Some(it.destination_offset).filter(|offset| *offset >= 0),
            reason: it.error_message.as_deref().map(plain),
            since_ms: Some(it.failing_since_ms).filter(|since| *since >= 0),
            source: None,
            name,
        }
    }
}

//! What a job shows of itself: a snapshot, published a few times a second.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use heliostat_core::types::{Offset, TopicId, TopicPartition};

use crate::shard::snapshot::{ShardSnapshot, ShardTime};

/// Partitions that a snapshot lists, and as many again of those that do not go on.
pub(super) const PARTITIONS_LISTED_MAX: usize = 2_000;
/// Events that are kept; older ones are in the log.
pub(super) const EVENTS_MAX: usize = 256;

/// Where a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobPhase {
    /// Asks the source for its topics.
    #[default]
    Starting,
    /// Copies; not every partition has reached what the source had at the start.
    Copying,
    /// Every partition has reached what the source had at the start.
    Following,
    /// Closes its logs.
    Stopping,
    /// Done.
    Ended,
}

/// Where a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartitionState {
    /// Is being opened, moved or looked into; goes on by itself.
    Preparing,
    /// A shard copies it.
    Mirroring,
    /// Waits for room on the disk.
    NoRoom,
    /// Stopped; an operator has to act.
    Failed,
    /// Not followed: paused, stopped, or between two steps of its mirror.
    Resting,
}

/// Figures of one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionStatus {
    /// The partition.
    pub partition: TopicPartition,
    /// ID of its topic; all zeros if the source has none.
    pub topic_id: TopicId,
    /// Where it is.
    pub state: PartitionState,
    /// Why it does not go on, and for how long.
    pub trouble: Option<(Arc<str>, Duration)>,
    /// Shard that copies it.
    pub shard: Option<usize>,
    /// Inclusive.
    pub log_start: Offset,
    /// Exclusive.
    pub log_end: Offset,
    /// Durable below.
    pub recovery_point: Offset,
    /// End of what a read_committed reader sees, exclusive.
    pub last_stable: Offset,
    /// The source's, exclusive; −1 for unknown.
    pub source_high_watermark: Offset,
    /// The source's, exclusive; −1 for unknown.
    pub source_last_stable: Offset,
    /// High watermark of the source when the job first saw the partition.
    pub target: Option<Offset>,
    /// Offsets that the source has and the copy lacks.
    pub lag_records: u64,
    /// The same in bytes, by the size of what was copied so far; an estimate.
    pub lag_bytes: u64,
    /// For how long the copy has lacked something.
    pub lag: Duration,
    /// Bytes of the log.
    pub size_bytes: u64,
    /// Bytes appended by this job.
    pub bytes_appended: u64,
    /// Bytes appended a second, smoothed.
    pub bytes_per_second: f64,
    /// When bytes were appended last, from the job's start on; `None` for never.
    pub appended_at: Option<Duration>,
}

impl PartitionStatus {
    /// Offsets that a read_committed reader of the source sees and the copy lacks; `None` while
    /// the source has not said.
    pub fn stable_lag_records(&self) -> Option<u64> {
        let known = self.source_last_stable >= Offset::ZERO;
        known.then(|| self.source_last_stable.records_since(self.log_end))
    }

    /// The same in bytes: its share of [`Self::lag_bytes`], an estimate as that is.
    pub fn stable_lag_bytes(&self) -> Option<u64> {
        let records = self.stable_lag_records()?;
        let all = u128::from(self.lag_records.max(records).max(1));
        let bytes = u128::from(self.lag_bytes) * u128::from(records) / all;
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// Sums over all partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Partitions of the job.
    pub partitions: usize,
    /// Of them, those that have reached the source's high watermark.
    pub caught_up: usize,
    /// Of them, those that are opened, moved or looked into.
    pub preparing: usize,
    /// Of them, those that a shard copies.
    pub mirroring: usize,
    /// Of them, those that wait for room on the disk.
    pub no_room: usize,
    /// Of them, those that wait for an operator.
    pub failed: usize,
    /// Of them, those that are not followed.
    pub resting: usize,
    /// Of them, those whose log holds nothing.
    pub empty: usize,
    /// Offsets that are missing.
    pub lag_records: u64,
    /// The same in bytes; an estimate.
    pub lag_bytes: u64,
    /// Offsets below the source's last stable offsets, as far as they are known, that are missing.
    pub stable_lag_records: u64,
    /// The same in bytes; an estimate.
    pub stable_lag_bytes: u64,
    /// The longest lag.
    pub lag: Duration,
    /// Offsets up to the high watermarks at the start that are still missing.
    pub left_records: u64,
    /// Bytes of all logs.
    pub size_bytes: u64,
    /// Bytes appended by this job.
    pub bytes_appended: u64,
    /// Bytes appended a second, smoothed.
    pub bytes_per_second: f64,
    /// When bytes were appended last, from the job's start on; `None` for never.
    pub appended_at: Option<Duration>,
    /// Gaps on record, those of earlier jobs included.
    pub gaps: usize,
    /// Truncations on record, those of earlier jobs included.
    pub truncations: usize,
}

impl Totals {
    /// Time until every partition has reached what the source had at the start, if it
    /// goes on as now; `None` while that cannot be told.
    pub fn eta(&self) -> Option<Duration> {
        if self.left_records == 0 {
            return Some(Duration::ZERO);
        }
        let seconds = approximate(self.lag_bytes) / self.bytes_per_second;
        Duration::try_from_secs_f64(seconds).ok().filter(|eta| eta.as_secs() < 365 * 86_400)
    }
}

/// A `u64` for display; exact up to 2^53.
pub(super) fn approximate(value: u64) -> f64 {
    let half = |bits: u64| f64::from(u32::try_from(bits & 0xffff_ffff).unwrap_or(0));
    half(value >> 32) * 4_294_967_296.0 + half(value)
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// A partition is copied from now on.
    Added,
    /// What a crash left was cut or made anew.
    Recovered,
    /// The source no longer has a range.
    Gap,
    /// The copy was cut to what the source has.
    Truncated,
    /// A partition stopped.
    Failed,
    /// A batch failed its checks and is fetched again.
    BadBatch,
    /// A partition moved to another shard.
    Moved,
    /// Free space ran low, or there is room again.
    Space,
    /// The source cannot be reached, or can be again.
    Source,
    /// A topic has ended, or got an ID.
    Topic,
    /// Anything else that an operator should know.
    Notice,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Wall-clock time, milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// Kind.
    pub kind: EventKind,
    /// Where, if it concerns one partition.
    pub partition: Option<TopicPartition>,
    /// One sentence.
    pub text: Arc<str>,
}

/// A job at one moment.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Where it is.
    pub phase: JobPhase,
    /// Identity of the source.
    pub source_cluster: Option<Arc<str>>,
    /// Why the source cannot be reached, and for how long.
    pub source_trouble: Option<(Arc<str>, Duration)>,
    /// Questions for the source's metadata that failed.
    pub refresh_failures: u64,
    /// Bytes a second that throttled partitions take together; `None` for no limit.
    pub throttle: Option<u64>,
    /// Free space is low, nothing is fetched.
    pub parked: bool,
    /// Room of the log dir's file system, in bytes.
    pub free_bytes: u64,
    /// Time since the start.
    pub elapsed: Duration,
    /// Sums.
    pub totals: Totals,
    /// Partitions by name: all of a job that has ended, otherwise at most some thousands, and of
    /// very many those that do not go on before others. The sums are of all.
    pub partitions: Arc<[PartitionStatus]>,
    /// Of all, the one that lacks the most offsets; `None` if none lacks any.
    pub worst: Option<Arc<PartitionStatus>>,
    /// Topics that a pattern includes and that are not copied, and why.
    pub refused: Vec<(Arc<str>, &'static str)>,
    /// The last events, oldest first.
    pub events: VecDeque<Event>,
    /// Events since the start, those that are no longer kept included.
    pub events_seen: u64,
    /// The same by kind.
    pub events_by_kind: BTreeMap<EventKind, u64>,
    /// Figures of all shards together.
    pub shards: ShardSnapshot,
    /// Number of shards.
    pub shard_count: usize,
    /// How busy each of them is, in their order.
    pub shard_times: Vec<ShardTime>,
}

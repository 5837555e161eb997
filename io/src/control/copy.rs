//! One partition as the job sees it.

use std::sync::Arc;
use std::time::Duration;

use heliostat_core::coordinator::LastMirrored;
use heliostat_core::engine::message::{Leader, PartitionKey, PartitionProgress, Trouble};
use heliostat_core::fetcher::{Backoff, BackoffPolicy};
use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::gaps::GapRecord;
use heliostat_core::mirror::lag::{LagClock, Rate};
use heliostat_core::mirror::returned::CopyEnds;
use heliostat_core::time::Tick;
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition};

use super::copies::Filed;
use super::log_dir::Ends;
use super::status::{PartitionState, PartitionStatus, approximate};

/// What is to be known before a partition goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// First and last offset of the source, to begin with.
    Begin,
    /// The same, after the source refused an offset.
    Range,
    /// Where the copy's newest epoch ends at the source.
    EpochEnd(LeaderEpoch),
    /// Fresh metadata, to see whether the topic is still the same.
    Identity,
}

/// How a log is to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// As it is.
    Whole,
    /// Cut to end here; `record` says what is lost.
    Truncated { to: Offset, record: Box<GapRecord> },
    /// Begun anew here; `record` says what is lost, if something is.
    Reset { start: Offset, record: Option<Box<GapRecord>> },
}

/// What happens once a shard has given the partition back as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Another shard takes it.
    Move(usize),
    /// The source is asked where the copy's newest epoch ends.
    CheckEpoch,
    /// It stays stopped.
    Fail(Arc<str>),
    /// It is left at rest, for the host.
    Rest,
}

/// Where a partition is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Something has to be asked, at `due`; `asked`: the answer is awaited.
    Asks { want: Want, due: Tick, asked: bool },
    /// Its log is opened at `due`.
    Opens { how: Opening, due: Tick },
    /// Its log is being opened.
    Opening { how: Opening },
    /// Waits for room on the disk, then is opened.
    NoRoom { how: Opening },
    /// A shard has it.
    Active { shard: usize },
    /// A shard has it and was asked to give it back.
    Leaving { shard: usize, then: Then },
    /// An operator has to act.
    Failed { reason: Arc<str> },
    /// The host has not said what to do with it.
    Rests,
}

/// What a partition is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// To follow the source.
    Follow,
    /// To be cut back to what it has in common with the source, then to rest.
    Align,
    /// To rest.
    Rest,
}

impl Phase {
    pub(super) fn shard(&self) -> Option<usize> {
        match self {
            Self::Active { shard } | Self::Leaving { shard, .. } => Some(*shard),
            _ => None,
        }
    }
}

/// What its shard said last, beside what the copy knows in any case.
#[derive(Debug)]
pub(super) struct Reported {
    last_stable: Offset,
    source_high_watermark: Offset,
    source_last_stable: Offset,
    bytes_appended: u64,
    /// What holds it up, and for how long in milliseconds.
    trouble: Option<Box<(Trouble, u64)>>,
}

/// See the module's text. There may be very many: what few of them have is boxed.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) key: PartitionKey,
    pub(super) at: TopicPartition,
    /// Of the source; all zeros if it has none.
    pub(super) topic_id: TopicId,
    pub(super) phase: Phase,
    pub(super) goal: Goal,
    /// Where the common end is, if it is known.
    pub(super) align_to: Option<Box<LastMirrored>>,
    /// The destination's leader epoch, if it has one.
    pub(super) local_epoch: LeaderEpoch,
    /// The first cut that the source asks for needs no permission.
    pub(super) may_cut: bool,
    /// None needs permission.
    pub(super) unclean: bool,
    /// The host knows that it follows.
    pub(super) told: bool,
    /// Of the log, when no shard has it.
    pub(super) ends: CopyEnds,
    pub(super) recovery_point: Offset,
    /// Of the log, while no shard has it; empty otherwise.
    pub(super) epochs: EpochCache,
    pub(super) progress: Option<Reported>,
    /// When that was said.
    progress_at: Tick,
    /// When bytes were appended last, in whole seconds and one more; 0 for never.
    appended_at_s: u32,
    /// High watermark of the source when it was first seen.
    pub(super) target: Option<Offset>,
    /// Returns in a row without growth between them.
    pub(super) attempts: u32,
    pub(super) returned_at: Offset,
    pub(super) backoff: Backoff,
    /// Why it was returned last, until it grows again.
    pub(super) trouble: Option<Arc<str>>,
    /// The source agreed to the copy's newest epoch, where it has to be asked.
    pub(super) epoch_checked: bool,
    /// Replica to fetch from instead of the leader; [`BrokerId::NONE`] for the leader.
    pub(super) elsewhere: BrokerId,
    /// Shard that it should go to.
    pub(super) wanted_shard: Option<u16>,
    pub(super) lag: LagClock,
    pub(super) rate: Rate,
    /// Appended before the shard that has it now.
    pub(super) appended_before: u64,
    pub(super) size_bytes: u64,
    /// Of [`super::copies::Copies`] alone.
    pub(super) filed: Filed,
}

impl Copy {
    pub(super) fn new(key: PartitionKey, at: TopicPartition, topic_id: TopicId) -> Self {
        Self {
            key,
            at,
            topic_id,
            phase: Phase::Asks { want: Want::Begin, due: Tick::ZERO, asked: false },
            goal: Goal::Follow,
            align_to: None,
            local_epoch: LeaderEpoch::NONE,
            may_cut: false,
            unclean: false,
            told: false,
            ends: CopyEnds { log_start: Offset::ZERO, log_end: Offset::ZERO },
            recovery_point: Offset::ZERO,
            epochs: EpochCache::default(),
            progress: None,
            progress_at: Tick::ZERO,
            appended_at_s: 0,
            target: None,
            attempts: 0,
            returned_at: Offset::NONE,
            backoff: Backoff::default(),
            trouble: None,
            epoch_checked: false,
            elsewhere: BrokerId::NONE,
            wanted_shard: None,
            lag: LagClock::default(),
            rate: Rate::default(),
            appended_before: 0,
            size_bytes: 0,
            filed: Filed::default(),
        }
    }

    /// Takes over what its shard says.
    pub(super) fn on_progress(&mut self, now: Tick, progress: PartitionProgress) {
        self.ends = CopyEnds { log_start: progress.log_start, log_end: progress.log_end };
        self.recovery_point = progress.recovery_point;
        self.size_bytes = progress.size_bytes;
        self.rate.observe(now, progress.bytes_appended);
        if progress.source_high_watermark.0 >= 0 {
            self.lag.observe(now, progress.source_high_watermark, progress.log_end);
        }
        if progress.log_end > self.returned_at && self.attempts > 0 {
            self.attempts = 0;
            self.trouble = None;
            self.backoff.succeeded();
        }
        let before = self.progress.as_ref().map_or(0, |before| before.bytes_appended);
        if progress.bytes_appended > before {
            let seconds = now.since(Tick::ZERO).as_secs().saturating_add(1);
            self.appended_at_s = u32::try_from(seconds).unwrap_or(u32::MAX);
        }
        self.progress = Some(Reported {
            last_stable: progress.last_stable,
            source_high_watermark: progress.source_high_watermark,
            source_last_stable: progress.source_last_stable,
            bytes_appended: progress.bytes_appended,
            trouble: progress.trouble.map(Box::new),
        });
        self.progress_at = now;
    }

    /// Counts a return, or another failure, at the copy's present end. The attempt's
    /// number since the copy last grew, from 1, and when to go on.
    pub(super) fn on_failure(
        &mut self,
        policy: BackoffPolicy,
        now: Tick,
        random: u64,
        trouble: Arc<str>,
    ) -> (u32, Tick) {
        if self.ends.log_end > self.returned_at {
            self.attempts = 0;
        }
        self.returned_at = self.ends.log_end;
        self.attempts = self.attempts.saturating_add(1);
        self.trouble = Some(trouble);
        (self.attempts, self.backoff.failed(policy, now, random))
    }

    /// The shard that had it has given it back.
    pub(super) fn left_shard(&mut self) {
        if let Some(progress) = self.progress.take() {
            self.appended_before += progress.bytes_appended;
        }
    }

    pub(super) fn high_watermark(&self) -> Offset {
        self.progress.as_ref().map_or(Offset::NONE, |progress| progress.source_high_watermark)
    }

    /// Whether it has what the source had when it was first seen, or never will.
    pub(super) fn reached_target(&self) -> bool {
        let is_there = self.target.is_some_and(|target| self.ends.log_end >= target);
        matches!(self.phase, Phase::Failed { .. })
            || (is_there && matches!(self.phase, Phase::Active { .. }))
    }

    /// Whether all that it holds is of no use: nothing is known to be the source's.
    pub(super) fn begins_anew(&self) -> bool {
        self.goal == Goal::Align && self.align_to.is_none()
    }

    /// Whether its source answers about it.
    pub(super) fn follows(&self) -> bool {
        matches!(self.phase, Phase::Active { .. })
            && self
                .progress
                .as_ref()
                .is_some_and(|it| it.source_high_watermark.0 >= 0 && it.trouble.is_none())
    }

    /// Records that the source has, or had at the start, and the copy lacks.
    pub(super) fn backlog(&self) -> u64 {
        let behind = self.high_watermark().max(self.target.unwrap_or(Offset::NONE));
        behind.records_since(self.ends.log_end)
    }

    /// For the checkpoints.
    pub(super) fn checkpoint(&self) -> Ends {
        let high_watermark = match self.high_watermark() {
            Offset::NONE => self.recovery_point,
            seen => seen.min(self.recovery_point),
        };
        Ends {
            log_start: self.ends.log_start,
            recovery_point: self.recovery_point,
            high_watermark: high_watermark.max(self.ends.log_start),
        }
    }

    /// Who to fetch from.
    pub(super) fn source(&self, leader: Leader) -> Leader {
        match self.elsewhere {
            BrokerId::NONE => leader,
            elsewhere => Leader { broker: elsewhere, ..leader },
        }
    }

    pub(super) fn status(&self, now: Tick) -> PartitionStatus {
        let CopyEnds { log_start, log_end } = self.ends;
        let of =
            |field: fn(&Reported) -> Offset| self.progress.as_ref().map_or(Offset::NONE, field);
        let lag_records = self.backlog();
        let records = log_end.records_since(log_start).max(1);
        let bytes_per_record = approximate(self.size_bytes) / approximate(records);
        let since = self.backoff.failing_since().map_or(Duration::ZERO, |since| now.since(since));
        let reported = self.progress.as_ref().and_then(|progress| progress.trouble.as_deref());
        let trouble = match (&self.phase, reported) {
            (Phase::Failed { reason }, _) => Some((Arc::clone(reason), since)),
            (_, Some((trouble, for_ms))) => {
                // A shard says nothing while nothing changes.
                let held_up = Duration::from_millis(*for_ms) + now.since(self.progress_at);
                Some((super::job::trouble_text(trouble), held_up))
            }
            _ => self.trouble.as_ref().map(|trouble| (Arc::clone(trouble), since)),
        };
        PartitionStatus {
            partition: self.at.clone(),
            topic_id: self.topic_id,
            state: match self.phase {
                Phase::Active { .. } => PartitionState::Mirroring,
                Phase::NoRoom { .. } => PartitionState::NoRoom,
                Phase::Failed { .. } => PartitionState::Failed,
                Phase::Rests => PartitionState::Resting,
                _ => PartitionState::Preparing,
            },
            trouble,
            shard: self.phase.shard(),
            log_start,
            log_end,
            recovery_point: self.recovery_point,
            last_stable: of(|progress| progress.last_stable),
            source_high_watermark: self.high_watermark(),
            source_last_stable: of(|progress| progress.source_last_stable),
            target: self.target,
            lag_records,
            lag_bytes: estimate(lag_records, bytes_per_record),
            lag: self.lag.lag(now),
            size_bytes: self.size_bytes,
            bytes_appended: self.appended_before
                + self.progress.as_ref().map_or(0, |progress| progress.bytes_appended),
            bytes_per_second: self.rate.per_second(),
            appended_at: (self.appended_at_s > 0)
                .then(|| Duration::from_secs(u64::from(self.appended_at_s - 1))),
        }
    }
}

/// `records` of `bytes_per_record`, rounded down.
pub(super) fn estimate(records: u64, bytes_per_record: f64) -> u64 {
    // Whole thousandths of a byte are near enough.
    let thousandths = Duration::try_from_secs_f64(bytes_per_record.max(0.0))
        .map_or(0, |scaled| scaled.as_millis());
    u64::try_from(u128::from(records) * thousandths / 1_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A partition without a leader is said so once, however long that lasts.
    #[test]
    fn what_holds_a_partition_up_gets_older_without_a_word_of_its_shard() {
        let at = TopicPartition::new("t", 0);
        let mut copy = Copy::new(PartitionKey(1), at, TopicId::NONE);
        copy.phase = Phase::Active { shard: 0 };
        let progress = PartitionProgress {
            key: PartitionKey(1),
            log_start: Offset::ZERO,
            log_end: Offset::ZERO,
            recovery_point: Offset::ZERO,
            last_stable: Offset::ZERO,
            source_high_watermark: Offset::NONE,
            source_last_stable: Offset::NONE,
            bytes_appended: 0,
            size_bytes: 0,
            trouble: Some((Trouble::NoLeader, 500)),
        };
        copy.on_progress(Tick::ZERO.after(Duration::from_secs(1)), progress);
        let status = copy.status(Tick::ZERO.after(Duration::from_secs(601)));
        assert_eq!(status.trouble.unwrap().1, Duration::from_millis(600_500));
    }

    /// Of 100,000 partitions each is here all the time (bar 12 of `bench/README.md`).
    #[test]
    fn a_copy_is_small() {
        assert!(size_of::<Copy>() <= 400, "{}", size_of::<Copy>());
    }

    #[test]
    fn estimates_scale_without_casts() {
        assert_eq!(estimate(1_000, 2.5), 2_500);
        assert_eq!(estimate(0, 2.5), 0);
        assert_eq!(estimate(u64::MAX, 1e12), u64::MAX);
        assert_eq!(estimate(5, f64::NAN), 0);
    }
}

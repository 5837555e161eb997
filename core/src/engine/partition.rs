//! What a shard knows of one mirrored partition.

use std::sync::Arc;

use super::message::{Leader, PartitionKey, PartitionProgress, ReturnReason, Trouble};
use super::pace::Density;
use super::stripes::Stripes;
use crate::fetcher::Backoff;
use crate::log::partition::PartitionLog;
use crate::log::shown::LogReaders;
use crate::protocol::TopicIdentity;
use crate::time::Tick;
use crate::types::{LeaderEpoch, Offset};

/// Of an offset, while nothing of the partition has come: a small record.
const OFFSET_BYTES: u64 = 100;

/// Whether a partition is fetched, and if not, what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// In a connection's session, or about to be.
    Fetching,
    /// No leader is known, or its address is not.
    AwaitingLeader,
    /// After an error, until its back-off is over.
    BackingOff,
    /// On its way back to the control thread. Boxed, as what is below: most of very many
    /// partitions have none.
    Returning(Box<ReturnReason>),
}

/// The connections that share a partition.
#[derive(Debug, Default)]
pub(super) struct Striping {
    pub(super) plan: Stripes,
    /// Their indexes; each has no other partition.
    pub(super) connections: Vec<usize>,
    /// So many of them ask for ranges ahead.
    pub(super) level: usize,
    /// Others that wait for holes.
    pub(super) spares: usize,
}

#[derive(Debug)]
pub(super) struct Partition {
    pub(super) key: PartitionKey,
    pub(super) topic: TopicIdentity,
    pub(super) index: i32,
    pub(super) log: PartitionLog,
    pub(super) leader: Leader,
    pub(super) throttled: bool,
    /// The destination's; none where it has none.
    pub(super) local_epoch: LeaderEpoch,
    pub(super) readers: Option<Arc<dyn LogReaders>>,
    /// When it is shown to them again, if that is to come.
    show_at: Tick,
    pub(super) status: Status,
    /// Index of the connection whose session it is in; `None` while it is striped.
    pub(super) connection: Option<usize>,
    pub(super) striping: Option<Box<Striping>>,
    pub(super) density: Density,
    /// Bytes, batches and offset that `density` knows of.
    observed: (u64, u64, Offset),
    pub(super) backoff: Backoff,
    /// What holds it up, and since when something has.
    pub(super) trouble: Option<Box<(Trouble, Tick)>>,
    pub(super) high_watermark: Offset,
    pub(super) source_last_stable: Offset,
    /// Last time records of it arrived.
    pub(super) active_at: Tick,
    /// It had everything once.
    pub(super) arrived: bool,
    /// In the list of partitions with something to report.
    pub(super) dirty: bool,
    /// A timer for its next flush is set.
    pub(super) flush_timer: bool,
    /// Its idle file is being closed.
    pub(super) evicting: bool,
    /// Its file was open when it was last looked at.
    pub(super) file_open: bool,
    /// In the list of partitions with an open file.
    pub(super) listed_open: bool,
}

impl Partition {
    pub(super) fn new(add: super::message::AddPartition, now: Tick) -> Self {
        let super::message::AddPartition {
            key,
            topic,
            index,
            log,
            leader,
            throttled,
            local_epoch,
            readers,
        } = add;
        let observed = (log.bytes_accepted(), log.batches_accepted(), log.fetch_offset());
        Self {
            key,
            topic,
            index,
            log,
            leader,
            throttled,
            local_epoch,
            readers,
            show_at: Tick::ZERO,
            status: Status::AwaitingLeader,
            connection: None,
            striping: None,
            density: Density::default(),
            observed,
            backoff: Backoff::default(),
            trouble: None,
            high_watermark: Offset::NONE,
            source_last_stable: Offset::NONE,
            active_at: now,
            arrived: false,
            dirty: false,
            flush_timer: false,
            evicting: false,
            file_open: false,
            listed_open: false,
        }
    }

    /// Everything that the source had when it answered last has been received.
    pub(super) fn is_caught_up(&self) -> bool {
        self.high_watermark >= Offset::ZERO && self.log.fetch_offset() >= self.high_watermark
    }

    /// Batches of higher epochs are not taken: the source's metadata does not know them yet, or
    /// the destination's leader epoch would be below a batch's.
    pub(super) fn epoch_limit(&self) -> LeaderEpoch {
        match (self.leader.epoch.known(), self.local_epoch.known()) {
            (Some(source), Some(local)) => source.min(local),
            (Some(epoch), None) | (None, Some(epoch)) => epoch,
            (None, None) => LeaderEpoch::NONE,
        }
    }

    /// Takes note of what was appended since the last time.
    pub(super) fn observe(&mut self) {
        let (bytes, batches, at) = self.observed;
        let log = &self.log;
        self.observed = (log.bytes_accepted(), log.batches_accepted(), log.fetch_offset());
        let bytes = self.observed.0 - bytes;
        let offsets = u64::try_from(self.observed.2.0.saturating_sub(at.0)).unwrap_or(0);
        if bytes > 0 {
            self.density.observe(bytes, offsets, self.observed.1 - batches);
        }
    }

    /// Bytes that the source has beyond the copy, by estimate.
    pub(super) fn bytes_behind(&self) -> u64 {
        let offsets = self.high_watermark.0.saturating_sub(self.log.fetch_offset().0);
        if self.density.is_unknown() {
            return u64::try_from(offsets).unwrap_or(0).saturating_mul(OFFSET_BYTES);
        }
        self.density.bytes(offsets)
    }

    /// Closing an idle file is for partitions that stay.
    pub(super) fn status_allows_eviction(&self) -> bool {
        !matches!(self.status, Status::Returning(_))
    }

    /// Newer of two words about the leader: an older epoch is a stale broker's, and a
    /// missing one does not replace a known one.
    pub(super) fn learn_leader(&mut self, leader: Leader) -> bool {
        let known = self.leader.epoch;
        let newer = leader.epoch > known
            || (leader.epoch == known && leader.broker != self.leader.broker)
            || (leader.epoch == LeaderEpoch::NONE && leader.broker != self.leader.broker);
        if newer {
            let epoch = leader.epoch.max(known);
            self.leader = Leader { broker: leader.broker, epoch };
        }
        newer
    }

    /// `trouble` holds it up now. Another one before it counts into its time: the partition
    /// has not gone on between them.
    pub(super) fn is_held_up(&mut self, trouble: Trouble, now: Tick) {
        let since = self.trouble.take().map_or(now, |before| before.1);
        self.trouble = Some(Box::new((trouble, since)));
    }

    /// Shows readers how far the log has come. `false`: they could not be, and it is to be tried
    /// again at `again_at`, for no earlier time is set.
    pub(super) fn show(&mut self, now: Tick, again_at: Tick) -> bool {
        let shown = self.readers.as_ref().is_none_or(|readers| readers.show(&self.log));
        if shown || self.show_at > now {
            return true;
        }
        self.show_at = again_at;
        false
    }

    pub(super) fn progress(&self, now: Tick) -> PartitionProgress {
        let millis = |since| u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX);
        PartitionProgress {
            key: self.key,
            log_start: self.log.log_start_offset(),
            log_end: self.log.log_end_offset(),
            recovery_point: self.log.recovery_point(),
            last_stable: self.log.last_stable_offset(),
            source_high_watermark: self.high_watermark,
            source_last_stable: self.source_last_stable,
            bytes_appended: self.log.bytes_committed(),
            size_bytes: self.log.size_bytes(),
            trouble: self.trouble.as_ref().map(|held_up| {
                let (trouble, since) = held_up.as_ref();
                (trouble.clone(), millis(*since))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 100,000 partitions each is here all the time (bar 12 of `bench/README.md`). What only
    /// some of them have, or only at times, is boxed.
    #[test]
    fn a_partition_is_small() {
        assert!(size_of::<Partition>() <= 672, "{}", size_of::<Partition>());
    }
}

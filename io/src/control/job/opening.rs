//! Opening logs and giving them to shards; room on the disk; balance; throttle.

use std::sync::Arc;
use std::time::Duration;

use heliostat_core::engine::message::{AddPartition, Command, Leader, PartitionKey};
use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::gaps::{GapKind, GapRecord};
use heliostat_core::log::partition::{PartitionLog, RecoveredLog};
use heliostat_core::log::recovery::{CutReason, LogOpenError, OpenReport};
use heliostat_core::log::shown::{LogReaders, ShownLog};
use heliostat_core::log::store::StoreError;
use heliostat_core::mirror::placement::{Load, Placed, choose};
use heliostat_core::mirror::returned::{ATTEMPTS_MAX, CopyEnds};
use heliostat_core::mirror::throttle_split::split;
use heliostat_core::protocol::TopicIdentity;
use heliostat_core::time::Tick;
use heliostat_core::types::{BrokerId, LeaderEpoch, TopicPartition};
use rustix::io::Errno;

use super::super::copy::{Copy, Opening, Phase, Then};
use super::super::openers::{Opened, Order};
use super::super::status::{EventKind, JobPhase};
use super::reports::asks_epoch;
use super::{Job, LOADS_FOR, Loads, random, reconnect};

/// Free space that has to come back, beyond the limit, before anything goes on.
const ROOM_BYTES: u64 = 64 << 20;

/// Wait of a partition whose topic gets another ID, until no log is being opened.
const ID_RETRY: Duration = Duration::from_millis(10);

/// Losses that are recorded by one write.
const RECORDED_TOGETHER: usize = 256;

/// When the checkpoints may be written for logs that wait for it: it takes a tenth of the time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settling {
    due: Tick,
}

impl Settling {
    const REST: u32 = 9;

    pub(super) fn due(self) -> Tick {
        self.due
    }

    fn wrote(&mut self, begun: Tick, ended: Tick) {
        self.due = ended.after(ended.since(begun) * Self::REST);
    }
}

/// What the opening of a copy will lose.
fn lost(copy: &Copy) -> Option<&GapRecord> {
    let Phase::Opens { how, .. } = &copy.phase else { return None };
    match how {
        Opening::Truncated { record, .. } => Some(record),
        Opening::Reset { record, .. } => record.as_deref(),
        Opening::Whole => None,
    }
}

impl Job {
    pub(super) fn open_what_is_due(&mut self, now: Tick) {
        if self.parked || self.openers.room() == 0 || !self.knows_its_source() {
            return;
        }
        for key in self.copies.due_to_open(now, self.openers.room()) {
            if self.copies.get(key).and_then(lost).is_some_and(|it| self.is_unrecorded(it)) {
                self.record_together(now);
            }
            match self.order(key, now) {
                Ok(Some(order)) => self.openers.place(order),
                Ok(None) => {}
                Err(error) => self.open_failed(key, &error),
            }
        }
    }

    fn is_unrecorded(&self, record: &GapRecord) -> bool {
        !self.log_dir.borrow().has_gap(record)
    }

    /// Records what the next openings will lose: a failover of very many partitions is aligned
    /// one after another, and a sync for each would hold up this thread for minutes. One that is
    /// told to rest before it is opened is recorded as cut and is not; its next alignment is
    /// about the same range.
    fn record_together(&mut self, now: Tick) {
        let due = self.copies.due_to_open(now, RECORDED_TOGETHER);
        let records = due.into_iter().filter_map(|key| self.copies.get(key).and_then(lost));
        let records: Vec<_> = records.cloned().collect();
        // What could not be recorded is recorded, or fails, by itself.
        let _ = self.log_dir.borrow_mut().record_gaps(records);
    }

    /// Records what the opening will lose, and says how it is done. `None`: it has to wait.
    fn order(&mut self, key: PartitionKey, now: Tick) -> Result<Option<Order>, LogOpenError> {
        let Some(copy) = self.copies.get_mut(key) else { return Ok(None) };
        let Phase::Opens { how, due } = &mut copy.phase else { return Ok(None) };
        let (at, topic_id, how) = (copy.at.clone(), copy.topic_id, how.clone());
        if self.log_dir.borrow().changes_id(&at.topic, topic_id) && !self.openers.is_idle() {
            *due = now.after(ID_RETRY);
            return Ok(None);
        }
        copy.phase = Phase::Opening { how: how.clone() };
        let own_id = match self.steered.as_ref().and_then(|it| it.local_id(&at.topic)) {
            Some(id) => id,
            None => self.log_dir.borrow_mut().adopt_id(&at.topic, topic_id)?,
        };
        let (truncate_to, reset_to, record) = match how {
            Opening::Whole => (None, None, None),
            Opening::Truncated { to, record } => (Some(to), None, Some(record)),
            Opening::Reset { start, record } => (None, Some(start), record),
        };
        if let Some(record) = record {
            let (kind, what) = match record.kind {
                GapKind::Gap => (EventKind::Gap, "gap"),
                GapKind::Truncation => (EventKind::Truncated, "truncation"),
            };
            let GapRecord { from, to, reason, .. } = record.as_ref();
            let text = format!("{what} of offsets {from} to {to} (exclusive): {reason}");
            self.log_dir.borrow_mut().record_gaps([*record])?;
            crate::fault::point("truncation.recorded");
            self.event(kind, Some(&at), &text);
        } else if let Some(start) = reset_to {
            let text = format!("copied from the source's start on, offset {start}");
            self.event(EventKind::Added, Some(&at), &text);
        }
        if truncate_to.is_some() || reset_to.is_some() {
            self.hide(&at);
        }
        let config = self.config.mirror.log;
        let options = self.log_dir.borrow_mut().open_options(&at, own_id, config, truncate_to);
        Ok(Some(Order { key, at, options, reset_to }))
    }

    /// Logs have been opened, `first` and perhaps more: those of partitions that are still
    /// wanted go to shards.
    pub(super) fn take_opened(&mut self, first: Opened) {
        let mut next = Some(first);
        while let Some(Opened { key, at, outcome }) = next {
            next = self.openers.try_next();
            match outcome {
                Ok((log, report)) => {
                    if let Some(text) = recovered_text(&report) {
                        self.event(EventKind::Recovered, Some(&at), &text);
                    }
                    let owes = self.log_dir.borrow_mut().opened(&at, &log);
                    if owes {
                        self.unsettled.push((key, log));
                    } else {
                        self.settled(key, Ok(log));
                    }
                }
                Err(error) => {
                    // It may have got half-way: no clean stop vouches for that.
                    self.log_dir.borrow_mut().distrust(&at);
                    self.settled(key, Err(error));
                }
            }
        }
        self.settle();
    }

    /// Writes the checkpoints that opened logs wait for, if it is time: that costs as much for
    /// one log as for all, and very many are opened one after another.
    pub(super) fn settle(&mut self) {
        if self.unsettled.is_empty() || self.now() < self.settling.due() {
            return;
        }
        let begun = self.now();
        let written = self.log_dir.borrow_mut().settle();
        self.settling.wrote(begun, self.now());
        for (key, log) in std::mem::take(&mut self.unsettled) {
            let outcome = match &written {
                Ok(()) => Ok(log),
                Err(error) => Err(error.clone().into()),
            };
            self.settled(key, outcome);
        }
    }

    /// A log is open and accounted for, or it is not.
    fn settled(&mut self, key: PartitionKey, outcome: Result<RecoveredLog, LogOpenError>) {
        let is_wanted = |copy: &Copy| matches!(copy.phase, Phase::Opening { .. });
        if !self.copies.get(key).is_some_and(is_wanted) {
            return;
        }
        match outcome {
            Ok(log) if self.phase != JobPhase::Stopping => self.hand_over(key, log),
            // It is at rest: the next start goes on with it.
            Ok(_) => {}
            Err(error) => self.open_failed(key, &error),
        }
    }

    /// Readers are to see nothing of a log that is being cut, or that is not what it was.
    pub(super) fn hide(&self, at: &TopicPartition) {
        if let Some(readers) = self.log_dir.borrow().served(at) {
            readers.hide();
        }
    }

    /// Readers see a log that rests.
    pub(super) fn show_at_rest(&self, at: &TopicPartition, log: &RecoveredLog) {
        if let Some(readers) = self.log_dir.borrow().served(at) {
            readers.show_at_rest(ShownLog::of_recovered(log));
        }
    }

    /// An open log goes to a shard, unless the source has to be asked about it first.
    fn hand_over(&mut self, key: PartitionKey, log: RecoveredLog) {
        let now = self.now();
        let Some(log) = self.rest_or_align(key, log) else { return };
        self.sum_loads(now);
        let shards = self.shards.len();
        let Some(copy) = self.copies.get_mut(key) else { return };
        copy.ends = CopyEnds { log_start: log.log_start, log_end: log.log_end };
        copy.recovery_point = log.recovery_point;
        let unknown = Leader { broker: BrokerId::NONE, epoch: LeaderEpoch::NONE };
        let leader = self.topics.leader(&copy.at).unwrap_or(unknown);
        if self.silent_on_divergence.contains(&leader.broker) && !copy.epoch_checked {
            copy.epochs.clone_from(&log.epochs);
            copy.phase = asks_epoch(copy, now);
            if matches!(copy.phase, Phase::Asks { .. }) {
                return;
            }
        }
        // The log has them; they come back with it.
        copy.epochs = EpochCache::default();
        let wanted = copy.wanted_shard.take().map(usize::from).filter(|shard| *shard < shards);
        let shard = wanted.unwrap_or_else(|| choose(&self.loads.of_shards));
        if let Some(load) = self.loads.of_shards.get_mut(shard) {
            load.backlog = load.backlog.saturating_add(copy.backlog());
            load.partitions += 1;
        }
        copy.phase = Phase::Active { shard };
        let log = PartitionLog::new(log);
        copy.size_bytes = log.size_bytes();
        let topic = TopicIdentity { name: Arc::clone(&copy.at.topic), id: copy.topic_id };
        let readers = self.log_dir.borrow().served(&copy.at);
        let readers = readers.map(|readers| -> Arc<dyn LogReaders> { readers });
        let add = AddPartition {
            key,
            topic,
            index: copy.at.partition,
            log,
            leader: copy.source(leader),
            throttled: self.config.mirror.throttled.contains(&copy.at),
            local_epoch: copy.local_epoch,
            readers,
        };
        let at = copy.at.clone();
        if wanted.is_some() {
            self.event(EventKind::Moved, Some(&at), &format!("moves to shard {shard}"));
        }
        self.command(shard, Command::Add(Box::new(add)));
    }

    fn open_failed(&mut self, key: PartitionKey, error: &LogOpenError) {
        let (now, policy) = (self.now(), reconnect(&self.config.mirror));
        let text: Arc<str> = Arc::from(with_sources(error));
        let Some(copy) = self.copies.get_mut(key) else { return };
        match error {
            LogOpenError::Store(error) if is_no_room(error) => self.waits_for_room(key),
            LogOpenError::Store(_) => {
                let (attempts, retry) = copy.on_failure(policy, now, random(), Arc::clone(&text));
                match &copy.phase {
                    Phase::Opening { how } if attempts < ATTEMPTS_MAX => {
                        copy.phase = Phase::Opens { how: how.clone(), due: retry };
                    }
                    _ => self.fail(key, text, true),
                }
            }
            _ => self.fail(key, text, false),
        }
    }

    /// The disk refused a write; the partition is opened again once there is room.
    pub(super) fn waits_for_room(&mut self, key: PartitionKey) {
        let Some(copy) = self.copies.get_mut(key) else { return };
        let how = match &copy.phase {
            Phase::Opening { how } => how.clone(),
            _ => Opening::Whole,
        };
        copy.phase = Phase::NoRoom { how };
        let at = copy.at.clone();
        let text = format!(
            "no room on the disk of {}: it is not fetched until there is some; nothing is lost",
            self.config.log_dir.display()
        );
        self.event(EventKind::Space, Some(&at), &text);
    }

    /// Partitions with a shard, as placement wants them.
    fn placed(&self) -> Vec<Placed<PartitionKey>> {
        let placed = self.copies.values().filter_map(|copy| {
            Some(Placed {
                key: copy.key,
                shard: copy.phase.shard()?,
                bytes_per_second: copy.rate.per_second(),
            })
        });
        placed.collect()
    }

    /// Sums up what the shards have to do, unless that was done of late: many logs are opened
    /// in a row.
    fn sum_loads(&mut self, now: Tick) {
        if now < self.loads.stale_from && self.loads.of_shards.len() == self.shards.len() {
            return;
        }
        let mut loads = vec![Load::default(); self.shards.len()];
        for copy in self.copies.values() {
            let Some(load) = copy.phase.shard().and_then(|shard| loads.get_mut(shard)) else {
                continue;
            };
            load.bytes_per_second += copy.rate.per_second();
            load.backlog = load.backlog.saturating_add(copy.backlog());
            load.partitions += 1;
        }
        self.loads = Loads { of_shards: loads, stale_from: now.after(LOADS_FOR) };
    }

    pub(super) fn balance(&mut self) {
        if self.shards.len() < 2 {
            return;
        }
        let mut placed = self.placed();
        // What is on its way somewhere counts where it goes, and is not moved again.
        for one in &mut placed {
            let phase = self.copies.get(one.key).map(|copy| &copy.phase);
            if let Some(Phase::Leaving { then: Then::Move(to), .. }) = phase {
                one.shard = *to;
            }
        }
        if let Some((key, shard)) = self.rebalancer.look(&placed, self.shards.len())
            && matches!(self.copies.get(key).map(|c| &c.phase), Some(Phase::Active { .. }))
        {
            self.leave(key, Then::Move(shard));
        }
    }

    pub(super) fn divide_throttle(&mut self) {
        let rates: Vec<Option<u64>> = match self.config.mirror.throttled_rate {
            None => vec![None; self.shards.len()],
            Some(rate) => {
                let mut is_hungry = vec![false; self.shards.len()];
                for copy in self.copies.values() {
                    let is_behind =
                        copy.high_watermark() > copy.ends.log_end || copy.progress.is_none();
                    if let Some(shard) = copy.phase.shard()
                        && is_behind
                        && self.config.mirror.throttled.contains(&copy.at)
                        && let Some(hungry) = is_hungry.get_mut(shard)
                    {
                        *hungry = true;
                    }
                }
                split(rate, &is_hungry).into_iter().map(Some).collect()
            }
        };
        for (shard, rate) in rates.into_iter().enumerate() {
            let Some(port) = self.shards.get_mut(shard) else { continue };
            if port.throttle != rate {
                port.throttle = rate;
                self.command(shard, Command::SetThrottleRate(rate));
            }
        }
    }

    pub(super) fn look_at_space(&mut self) {
        let space = self.log_dir.borrow().space();
        let Ok(space) = space else { return };
        self.free_bytes = space.free_bytes;
        let min = self.config.mirror.free_min_bytes;
        let enough = min.saturating_add(ROOM_BYTES.min(space.total_bytes / 100));
        let parked = if self.parked { space.free_bytes < enough } else { space.free_bytes < min };
        if parked != self.parked {
            self.parked = parked;
            let text = if parked {
                format!(
                    "free space of {} is {} bytes, below log.dir.free.min.bytes={min}: nothing is \
                     fetched until there is room; nothing is lost",
                    self.config.log_dir.display(),
                    space.free_bytes
                )
            } else {
                "there is room again: fetching goes on".to_owned()
            };
            self.event(EventKind::Space, None, &text);
            for shard in 0..self.shards.len() {
                self.command(shard, Command::SetParked(parked));
            }
        }
        if !self.parked && space.free_bytes >= enough {
            let now = self.now();
            for key in self.copies.waiting_for_room() {
                if let Some(copy) = self.copies.get_mut(key)
                    && let Phase::NoRoom { how } = &copy.phase
                {
                    copy.phase = Phase::Opens { how: how.clone(), due: now };
                }
            }
        }
    }
}

fn is_no_room(error: &StoreError) -> bool {
    [Errno::NOSPC, Errno::DQUOT].iter().any(|errno| errno.raw_os_error() == error.errno)
}

fn with_sources(error: &LogOpenError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What a crash had left, in words.
fn recovered_text(report: &OpenReport) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(cut) = &report.cut {
        let what = match &cut.reason {
            CutReason::Truncation | CutReason::Preallocated => None,
            CutReason::Torn(damage) => Some(damage.to_string()),
            CutReason::Gap { next_base } => Some(format!("the next segment begins at {next_base}")),
        };
        if let Some(what) = what {
            parts.push(format!("cut at offset {} ({} bytes): {what}", cut.from, cut.bytes));
        }
    }
    if !report.rebuilt.is_empty() {
        parts.push(format!("made anew: {}", report.rebuilt.join(", ")));
    }
    if let Some(point) = report.recovery_point_above_end {
        parts.push(format!("the recovery point {point} was behind the end"));
    }
    if let Some(end) = report.ended_below_start {
        parts.push(format!("it ended at {end}, below its start: all of it was removed"));
    }
    (!parts.is_empty()).then(|| format!("recovered; {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checkpoints of very many logs take long, so logs wait for them together.
    #[test]
    fn checkpoints_for_opened_logs_take_a_tenth_of_the_time() {
        let at = |ms| Tick::ZERO.after(Duration::from_millis(ms));
        let mut settling = Settling::default();
        assert_eq!(settling.due(), Tick::ZERO);
        settling.wrote(at(100), at(150));
        assert_eq!(settling.due(), at(600));
    }
}

//! A mirror's job as its host sees it: orders in, outcomes out. What it decides is decided by the
//! same functions as in the product, and what it follows is copied by a shard of its own.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use heliostat_core::config::GapPolicy;
use heliostat_core::coordinator::LastMirrored;
use heliostat_core::coordinator::alignment::{AlignStep, align_step};
use heliostat_core::engine::message::{
    AddPartition, Command, Leader, PartitionKey, PartitionProgress, ReturnReason,
};
use heliostat_core::log::cold_log::ColdLog;
use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::partition::{PartitionLog, RecoveredLog};
use heliostat_core::log::recovery;
use heliostat_core::log::shown::LogReaders;
use heliostat_core::mirror::returned::{
    CopyEnds, NextStep, Policy, Repair, on_diverged, on_epoch_end, on_offsets, on_returned,
};
use heliostat_core::protocol::TopicIdentity;
use heliostat_core::time::Tick;
use heliostat_core::types::{LeaderEpoch, Offset, TopicId, TopicPartition};

use crate::engine::{Engine, SOURCE};
use crate::host::{Disk, Sabotage};
use crate::shown::Reader;
use crate::source::{Batch, Seen};

#[derive(Clone, Debug)]
pub(crate) enum Order {
    Align { at: TopicPartition, last: Option<LastMirrored> },
    Follow { at: TopicPartition, local_epoch: LeaderEpoch, may_cut: bool, unclean: bool },
    SetLocalEpoch { at: TopicPartition, epoch: LeaderEpoch },
    Release { at: TopicPartition },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Aligned,
    Released,
    Follows,
    EpochFenced(LeaderEpoch),
    Failed { reason: Arc<str>, retryable: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Follow,
    Align(Option<LastMirrored>),
    Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Whole,
    Truncated(Offset),
    Reset(Offset),
}

/// What follows once the shard has given it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Rest,
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begins,
    AsksRange,
    AsksEnd(LeaderEpoch),
    /// Whether the topic is still the one that it was.
    AsksIdentity,
    Opens(Opening),
    Active,
    Leaving(Then),
    Rests,
}

/// What a partition needs to do anything.
pub(crate) struct At<'a> {
    pub(crate) disk: &'a mut Disk,
    pub(crate) engine: &'a mut Engine,
    pub(crate) now: Tick,
}

impl At<'_> {
    fn command(&mut self, command: Command) {
        self.engine.command(command, self.now, &mut self.disk.store);
    }
}

/// One partition of a job.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) at: TopicPartition,
    pub(crate) id: TopicId,
    pub(crate) key: PartitionKey,
    goal: Goal,
    phase: Phase,
    local_epoch: LeaderEpoch,
    /// The source's, as it was told last.
    leader_epoch: LeaderEpoch,
    may_cut: bool,
    unclean: bool,
    told: bool,
    is_checked: bool,
    attempts: u32,
    returned_at: Offset,
    ends: CopyEnds,
    epochs: EpochCache,
    /// A shard closed its log, and nobody has opened it since.
    pub(crate) was_closed: bool,
    pub(crate) reader: Arc<Reader>,
    pub(crate) outcomes: VecDeque<Outcome>,
}

/// All batches of a log.
pub(crate) fn read(log: &ColdLog, store: &crate::store::SimStore) -> Vec<Batch> {
    let mut all = Vec::new();
    let read = log.read(store, log.log_start(), &mut |meta, bytes| {
        all.push(Batch {
            base: meta.base_offset,
            end: meta.next_offset(),
            epoch: meta.leader_epoch,
            bytes: bytes.into(),
        });
        ControlFlow::Continue(())
    });
    read.expect("what was verified can be read");
    all
}

const GONE: &str = "the topic is gone at the source, or made anew";

impl Copy {
    pub(crate) fn new(
        at: TopicPartition,
        id: TopicId,
        key: PartitionKey,
        sabotage: Sabotage,
    ) -> Self {
        Self {
            at,
            id,
            key,
            goal: Goal::Rest,
            phase: Phase::Rests,
            local_epoch: LeaderEpoch::NONE,
            leader_epoch: LeaderEpoch::NONE,
            may_cut: false,
            unclean: false,
            told: false,
            is_checked: false,
            attempts: 0,
            returned_at: Offset::ZERO,
            ends: CopyEnds { log_start: Offset::ZERO, log_end: Offset::ZERO },
            epochs: EpochCache::default(),
            was_closed: false,
            reader: Arc::new(Reader::new(sabotage)),
            outcomes: VecDeque::new(),
        }
    }

    /// Whether the shard has its log.
    pub(crate) fn is_on_shard(&self) -> bool {
        matches!(self.phase, Phase::Active | Phase::Leaving(_))
    }

    pub(crate) fn obey(&mut self, order: Order, cx: &mut At<'_>) {
        match order {
            Order::Align { last, .. } => {
                (self.goal, self.is_checked, self.attempts) = (Goal::Align(last), false, 0);
                if self.is_on_shard() {
                    self.leave(Then::Rest, cx);
                } else if cx.disk.store.has_log(&self.at.to_string()) {
                    self.phase = Phase::Opens(Opening::Whole);
                } else {
                    self.rests(Outcome::Aligned);
                }
            }
            Order::Follow { local_epoch, may_cut, unclean, .. } => {
                (self.goal, self.told, self.attempts) = (Goal::Follow, false, 0);
                self.local_epoch = local_epoch;
                (self.may_cut, self.unclean) = (may_cut, unclean);
                if !self.is_on_shard() {
                    self.phase = Phase::Begins;
                }
            }
            Order::SetLocalEpoch { epoch, .. } => {
                self.local_epoch = self.local_epoch.max(epoch);
                if self.is_on_shard() {
                    cx.command(Command::SetLocalEpoch { key: self.key, epoch: self.local_epoch });
                }
            }
            Order::Release { .. } => {
                self.goal = Goal::Rest;
                if !self.is_on_shard() {
                    return self.rests(Outcome::Released);
                }
                if cx.disk.sabotage == Sabotage::ReleaseEarly {
                    return self.outcomes.push_back(Outcome::Released);
                }
                self.leave(Then::Rest, cx);
            }
        }
    }

    /// Asks the shard to give it back.
    fn leave(&mut self, then: Then, cx: &mut At<'_>) {
        match self.phase {
            Phase::Active => {
                self.phase = Phase::Leaving(then);
                cx.command(Command::Remove { key: self.key });
            }
            // Who waits for it to rest hears that, whatever else becomes of it.
            Phase::Leaving(Then::Fail) => self.phase = Phase::Leaving(then),
            _ => {}
        }
    }

    fn rests(&mut self, outcome: Outcome) {
        (self.goal, self.phase) = (Goal::Rest, Phase::Rests);
        self.reader.hide();
        self.outcomes.push_back(outcome);
    }

    fn fail(&mut self, reason: impl Into<Arc<str>>, retryable: bool) {
        self.rests(Outcome::Failed { reason: reason.into(), retryable });
    }

    /// One step, with what the source answers now.
    pub(crate) fn step(&mut self, seen: &Seen, cx: &mut At<'_>) {
        if let (Phase::Opens(how), _) = (self.phase, seen) {
            return self.open(how, cx);
        }
        let view = match (self.phase, seen) {
            (Phase::Rests | Phase::Leaving(_), _) | (_, Seen::Away) => return,
            (Phase::Active, Seen::Gone) => return self.leave(Then::Fail, cx),
            (_, Seen::Gone) => return self.fail(GONE, false),
            (_, Seen::Is(view)) => view,
        };
        let policy = Policy { gap: GapPolicy::Continue, unclean_leader_election: false };
        match self.phase {
            Phase::Begins => {
                let has_log = cx.disk.store.has_log(&self.at.to_string());
                let anew = !has_log || self.goal == Goal::Align(None);
                let how = if anew { Opening::Reset(view.start) } else { Opening::Whole };
                self.phase = Phase::Opens(how);
            }
            Phase::AsksIdentity => self.phase = Phase::Opens(Opening::Whole),
            Phase::AsksRange => {
                let may_cut = self.may_cut || self.unclean;
                let attempts = self.attempts;
                let repair = on_offsets(self.ends, view.start, view.end, policy, may_cut, attempts);
                self.repair(&repair);
            }
            Phase::AsksEnd(epoch) => {
                let may_cut = self.may_cut || self.unclean || matches!(self.goal, Goal::Align(_));
                let answer = view.end_of(epoch);
                let repair = on_epoch_end(epoch, answer, self.ends, &self.epochs, may_cut);
                self.is_checked = repair == Repair::Reopen;
                self.repair(&repair);
            }
            Phase::Active => {
                if cx.engine.wants_metadata {
                    cx.engine.tell_broker(cx.now, &mut cx.disk.store);
                }
                if self.leader_epoch != view.epoch {
                    let leader = Leader { broker: SOURCE, epoch: view.epoch };
                    cx.command(Command::SetLeader { key: self.key, leader });
                }
            }
            Phase::Opens(_) | Phase::Leaving(_) | Phase::Rests => {}
        }
        self.leader_epoch = view.epoch;
    }

    fn repair(&mut self, repair: &Repair) {
        self.phase = match repair {
            Repair::Reopen => Phase::Opens(Opening::Whole),
            Repair::Truncate { to } => Phase::Opens(Opening::Truncated(*to)),
            Repair::Reset { start } => Phase::Opens(Opening::Reset(*start)),
            Repair::Stop(stop) => return self.fail(stop.to_string(), stop.may_pass()),
        };
    }

    fn open(&mut self, how: Opening, cx: &mut At<'_>) {
        let log = match self.recover(how, cx.disk) {
            Ok(log) => log,
            Err(error) => return self.fail(error, true),
        };
        self.ends = CopyEnds { log_start: log.log_start, log_end: log.log_end };
        self.epochs.clone_from(&log.epochs);
        let last = match self.goal {
            Goal::Follow => return self.add(log, cx),
            Goal::Rest => return self.rests(Outcome::Released),
            Goal::Align(last) => last,
        };
        let mut step = align_step(last, self.ends, &self.epochs, self.is_checked);
        if matches!(cx.disk.sabotage, Sabotage::NoCut | Sabotage::Blind) {
            step = AlignStep::Aligned;
        }
        match step {
            AlignStep::Aligned => self.rests(Outcome::Aligned),
            AlignStep::AskEpochEnd(epoch) => self.phase = Phase::AsksEnd(epoch),
            AlignStep::Truncate(to) => {
                cx.disk.count("cut to the last mirrored position");
                self.phase = Phase::Opens(Opening::Truncated(to));
            }
            AlignStep::BeginAnew => {
                cx.disk.count("begun anew");
                (self.goal, self.phase) = (Goal::Align(None), Phase::Begins);
            }
        }
    }

    /// Opens the log, and compares it with what was known of it.
    fn recover(&mut self, how: Opening, disk: &mut Disk) -> Result<RecoveredLog, String> {
        self.reader.hide();
        self.was_closed = false;
        let dir = self.at.to_string();
        let truncate_to = match how {
            Opening::Truncated(to) => Some(to),
            Opening::Whole | Opening::Reset(_) => None,
        };
        disk.may_lose(&self.at, how == Opening::Whole, truncate_to);
        if let (Goal::Align(_), Opening::Truncated(_), Some(newest)) =
            (self.goal, how, self.epochs.latest())
        {
            disk.cuts.push((self.at.clone(), newest.epoch));
        }
        let options = disk.options(&self.at, self.id, truncate_to);
        let opened = match how {
            Opening::Reset(start) => recovery::reset(&mut disk.store, &dir, start, &options),
            _ => recovery::open(&mut disk.store, &dir, &options),
        };
        let log = opened.map_err(|error| error.to_string())?.0;
        disk.note(&self.at, log.log_start, log.log_end);
        let log = ColdLog::new(log);
        disk.found(&self.at, self.id, &log);
        Ok(log.into_recovered().expect("nothing was appended"))
    }

    /// Gives it to the shard.
    fn add(&mut self, log: RecoveredLog, cx: &mut At<'_>) {
        let is_bound = cx.disk.sabotage != Sabotage::AppendAbove;
        let reader = Arc::clone(&self.reader);
        let reader: Arc<dyn LogReaders> = reader;
        let add = AddPartition {
            key: self.key,
            topic: TopicIdentity { name: Arc::clone(&self.at.topic), id: self.id },
            index: self.at.partition,
            log: PartitionLog::new(log),
            leader: Leader { broker: SOURCE, epoch: self.leader_epoch },
            throttled: false,
            local_epoch: if is_bound { self.local_epoch } else { LeaderEpoch::NONE },
            readers: Some(reader),
        };
        self.phase = Phase::Active;
        cx.command(Command::Add(Box::new(add)));
        if cx.engine.wants_metadata {
            cx.engine.tell_broker(cx.now, &mut cx.disk.store);
        }
    }

    pub(crate) fn on_progress(&mut self, progress: &PartitionProgress, disk: &mut Disk) {
        if !self.is_on_shard() {
            return;
        }
        self.ends = CopyEnds { log_start: progress.log_start, log_end: progress.log_end };
        disk.note(&self.at, progress.log_start, progress.recovery_point);
        if progress.log_end > self.returned_at {
            self.attempts = 0;
        }
        let follows = self.phase == Phase::Active
            && progress.source_high_watermark.0 >= 0
            && progress.trouble.is_none();
        if follows && !self.told && self.goal == Goal::Follow {
            (self.told, self.may_cut) = (true, false);
            self.outcomes.push_back(Outcome::Follows);
        }
    }

    /// The shard has given it back.
    pub(crate) fn on_returned(
        &mut self,
        log: &PartitionLog,
        reason: &ReturnReason,
        disk: &mut Disk,
    ) {
        self.ends = CopyEnds { log_start: log.log_start_offset(), log_end: log.log_end_offset() };
        self.epochs.clone_from(log.epochs());
        disk.note(&self.at, log.log_start_offset(), log.recovery_point());
        if matches!(reason, ReturnReason::Disk { .. }) {
            disk.count("log abandoned");
        } else if log.is_closed() {
            self.was_closed = true;
            disk.is_durable(&self.at, log.log_end_offset());
        }
        self.reader.hide();
        match std::mem::replace(&mut self.phase, Phase::Opens(Opening::Whole)) {
            Phase::Leaving(Then::Fail) => return self.fail(GONE, false),
            Phase::Leaving(Then::Rest) => {
                match self.goal {
                    Goal::Rest => self.rests(Outcome::Released),
                    Goal::Align(_) => {}
                    Goal::Follow => self.phase = Phase::Begins,
                }
                return;
            }
            _ => {}
        }
        if self.ends.log_end > self.returned_at {
            self.attempts = 0;
        }
        self.returned_at = self.ends.log_end;
        self.attempts += 1;
        let latest = self.epochs.latest().map_or(LeaderEpoch::NONE, |entry| entry.epoch);
        match on_returned(reason, self.attempts, latest) {
            NextStep::Nothing
            | NextStep::Reopen
            | NextStep::ReopenWhenRoom
            | NextStep::ReopenElsewhere => {}
            NextStep::CheckIdentity => self.phase = Phase::AsksIdentity,
            NextStep::AskOffsets => self.phase = Phase::AsksRange,
            NextStep::AskEpochEnd(epoch) => self.phase = Phase::AsksEnd(epoch),
            NextStep::Align(diverging) => {
                disk.count("diverging epoch");
                let may_cut = self.may_cut || self.unclean;
                let repair = on_diverged(diverging, self.ends, &self.epochs, may_cut);
                self.repair(&repair);
            }
            NextStep::RaiseEpoch(epoch) => {
                disk.count("epoch fenced");
                self.rests(Outcome::EpochFenced(epoch));
            }
            NextStep::Stop(stop) => self.fail(stop.to_string(), stop.may_pass()),
        }
    }
}

//! A mirror's job as its host sees it: orders in, outcomes out. What it decides is decided by the
//! same functions as in the product; what shards do between is one call here.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use heliostat_core::config::GapPolicy;
use heliostat_core::coordinator::LastMirrored;
use heliostat_core::coordinator::alignment::{AlignStep, align_step};
use heliostat_core::log::cold_log::ColdLog;
use heliostat_core::log::recovery;
use heliostat_core::mirror::returned::{
    CopyEnds, Policy, Repair, on_diverged, on_epoch_end, on_offsets,
};
use heliostat_core::types::{LeaderEpoch, Offset, TopicId, TopicPartition};

use crate::host::{Disk, Sabotage};
use crate::registry::id;
use crate::source::{Batch, Fetched, Seen, View};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begins,
    AsksRange,
    AsksEnd(LeaderEpoch),
    Opens(Opening),
    Active,
    Rests,
}

/// One partition of a job.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) at: TopicPartition,
    pub(crate) id: TopicId,
    goal: Goal,
    phase: Phase,
    pub(crate) log: Option<ColdLog>,
    local_epoch: LeaderEpoch,
    may_cut: bool,
    unclean: bool,
    told: bool,
    is_checked: bool,
    attempts: u32,
    ends: CopyEnds,
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

impl Copy {
    pub(crate) fn new(at: TopicPartition, id: TopicId) -> Self {
        Self {
            at,
            id,
            goal: Goal::Rest,
            phase: Phase::Rests,
            log: None,
            local_epoch: LeaderEpoch::NONE,
            may_cut: false,
            unclean: false,
            told: false,
            is_checked: false,
            attempts: 0,
            ends: CopyEnds { log_start: Offset::ZERO, log_end: Offset::ZERO },
            outcomes: VecDeque::new(),
        }
    }

    /// Closes the log, as a shard gives it back.
    fn close(&mut self, disk: &mut Disk) {
        if let Some(log) = self.log.take() {
            self.ends = CopyEnds { log_start: log.log_start(), log_end: log.log_end() };
            disk.store.sync_dir(&self.at.to_string());
            if !log.is_poisoned() {
                disk.note(&self.at, log.log_start(), log.log_end());
            }
        }
    }

    pub(crate) fn obey(&mut self, order: Order, disk: &mut Disk) {
        let has_log = disk.store.has_log(&self.at.to_string());
        match order {
            Order::Align { last, .. } => {
                self.close(disk);
                (self.goal, self.is_checked, self.attempts) = (Goal::Align(last), false, 0);
                if has_log {
                    self.phase = Phase::Opens(Opening::Whole);
                } else {
                    self.rests(Outcome::Aligned);
                }
            }
            Order::Follow { local_epoch, may_cut, unclean, .. } => {
                (self.goal, self.told, self.attempts) = (Goal::Follow, false, 0);
                self.local_epoch = local_epoch;
                (self.may_cut, self.unclean) = (may_cut, unclean);
                if self.phase != Phase::Active {
                    self.phase = Phase::Begins;
                }
            }
            Order::SetLocalEpoch { epoch, .. } => self.local_epoch = self.local_epoch.max(epoch),
            Order::Release { .. } => {
                self.close(disk);
                self.rests(Outcome::Released);
            }
        }
    }

    fn rests(&mut self, outcome: Outcome) {
        (self.goal, self.phase) = (Goal::Rest, Phase::Rests);
        self.outcomes.push_back(outcome);
    }

    fn fail(&mut self, reason: impl Into<Arc<str>>, retryable: bool) {
        self.rests(Outcome::Failed { reason: reason.into(), retryable });
    }

    /// One step, with what the source answers now.
    pub(crate) fn step(&mut self, seen: &Seen, disk: &mut Disk) {
        if self.phase == Phase::Rests {
            return;
        }
        let view = match (self.phase, seen) {
            (Phase::Opens(how), _) => return self.open(how, disk),
            (_, Seen::Away) => return,
            (_, Seen::Gone) => {
                self.close(disk);
                return self.fail("the topic is gone at the source, or made anew", false);
            }
            (_, Seen::Is(view)) => view,
        };
        let policy = Policy { gap: GapPolicy::Continue, unclean_leader_election: false };
        match self.phase {
            Phase::Begins => {
                let has_log = disk.store.has_log(&self.at.to_string());
                let anew = !has_log || self.goal == Goal::Align(None);
                let how = if anew { Opening::Reset(view.start) } else { Opening::Whole };
                self.phase = Phase::Opens(how);
            }
            Phase::AsksRange => {
                let may_cut = self.may_cut || self.unclean;
                self.attempts += 1;
                let attempts = self.attempts;
                let repair = on_offsets(self.ends, view.start, view.end, policy, may_cut, attempts);
                self.repair(&repair);
            }
            Phase::AsksEnd(epoch) => {
                let may_cut = self.may_cut || self.unclean || matches!(self.goal, Goal::Align(_));
                let epochs = self.log.as_ref().map(|log| log.epochs().clone()).unwrap_or_default();
                let answer = view.end_of(epoch);
                let repair = on_epoch_end(epoch, answer, self.ends, &epochs, may_cut);
                self.is_checked = repair == Repair::Reopen;
                self.repair(&repair);
            }
            Phase::Active => self.fetch(view, disk),
            Phase::Opens(_) | Phase::Rests => {}
        }
    }

    fn repair(&mut self, repair: &Repair) {
        self.log = None;
        self.phase = match repair {
            Repair::Reopen => Phase::Opens(Opening::Whole),
            Repair::Truncate { to } => Phase::Opens(Opening::Truncated(*to)),
            Repair::Reset { start } => Phase::Opens(Opening::Reset(*start)),
            Repair::Stop(stop) => return self.fail(stop.to_string(), stop.may_pass()),
        };
    }

    fn open(&mut self, how: Opening, disk: &mut Disk) {
        self.log = None;
        let dir = self.at.to_string();
        let truncate_to = match how {
            Opening::Truncated(to) => Some(to),
            _ => None,
        };
        let options = disk.options(&self.at, self.id, truncate_to);
        let opened = match how {
            Opening::Reset(start) => recovery::reset(&mut disk.store, &dir, start, &options),
            _ => recovery::open(&mut disk.store, &dir, &options),
        };
        let log = match opened {
            Ok((log, _)) => ColdLog::new(log),
            Err(error) => return self.fail(error.to_string(), true),
        };
        disk.note(&self.at, log.log_start(), log.log_end());
        self.ends = CopyEnds { log_start: log.log_start(), log_end: log.log_end() };
        let last = match self.goal {
            Goal::Follow => {
                self.log = Some(log);
                self.phase = Phase::Active;
                return;
            }
            Goal::Rest => return self.rests(Outcome::Released),
            Goal::Align(last) => last,
        };
        let mut step = align_step(last, self.ends, log.epochs(), self.is_checked);
        if disk.sabotage == Sabotage::NoCut {
            step = AlignStep::Aligned;
        }
        match step {
            AlignStep::Aligned => self.rests(Outcome::Aligned),
            AlignStep::AskEpochEnd(epoch) => {
                self.log = Some(log);
                self.phase = Phase::AsksEnd(epoch);
            }
            AlignStep::Truncate(to) => {
                disk.count("cut to the last mirrored position");
                self.phase = Phase::Opens(Opening::Truncated(to));
            }
            AlignStep::BeginAnew => {
                disk.count("begun anew");
                (self.goal, self.phase) = (Goal::Align(None), Phase::Begins);
            }
        }
    }

    fn fetch(&mut self, view: &View, disk: &mut Disk) {
        let Some(log) = self.log.as_mut() else { return };
        let last = log.epochs().latest().map_or(LeaderEpoch::NONE, |entry| entry.epoch);
        let batches = match view.fetch(log.log_end(), last) {
            Fetched::Batches(batches) => batches,
            Fetched::Diverging(diverging) => {
                disk.count("diverging epoch");
                let epochs = log.epochs().clone();
                self.close(disk);
                let may_cut = self.may_cut || self.unclean;
                let repair = on_diverged(diverging, self.ends, &epochs, may_cut);
                return self.repair(&repair);
            }
            Fetched::OutOfRange => {
                self.close(disk);
                self.phase = Phase::AsksRange;
                return;
            }
        };
        let known = read(log, &disk.store);
        let mut before = known.last().map(id);
        for batch in batches {
            if batch.epoch > self.local_epoch && disk.sabotage != Sabotage::AppendAbove {
                disk.count("epoch fenced");
                self.close(disk);
                return self.rests(Outcome::EpochFenced(batch.epoch));
            }
            disk.store.lazy = true;
            let appended = log.append(&mut disk.store, &batch.bytes);
            disk.store.lazy = false;
            if appended.is_err() {
                // As after a failed write of a shard: it is opened again.
                self.log = None;
                self.phase = Phase::Opens(Opening::Whole);
                return;
            }
            let at = (self.id, self.at.partition);
            disk.registry.borrow_mut().note(at, &batch, before);
            before = Some(id(&batch));
            self.attempts = 0;
        }
        if !self.told {
            (self.told, self.may_cut) = (true, false);
            self.outcomes.push_back(Outcome::Follows);
        }
    }
}

//! What the shards say.

use std::sync::Arc;

use heliostat_core::engine::message::{Command, PartitionKey, Report, ReturnReason};
use heliostat_core::log::partition::PartitionLog;
use heliostat_core::mirror::returned::{CopyEnds, NextStep, on_diverged, on_returned};
use heliostat_core::types::{BrokerId, LeaderEpoch};

use super::super::copy::{Copy, Opening, Phase, Then, Want};
use super::super::status::EventKind;
use super::source::DIVERGED;
use super::{Job, JobError, random, reconnect};
use crate::shard::mailbox::Received;

impl Job {
    /// Takes everything that the shard has to say.
    pub(super) fn take_reports(&mut self, shard: usize) {
        let Some(port) = self.shards.get(shard) else { return };
        // Before the look: what comes later rings again.
        port.end.silence();
        loop {
            let Some(port) = self.shards.get_mut(shard) else { return };
            match port.end.next_report() {
                Received::Message(report) => self.take_report(shard, report),
                Received::Empty => break,
                Received::Closed => {
                    if !port.stopped {
                        self.failure.get_or_insert(JobError::ShardLost { shard });
                    }
                    break;
                }
            }
        }
        if let Some(port) = self.shards.get_mut(shard)
            && let Some(snapshot) = port.end.latest_snapshot()
        {
            port.snapshot = snapshot;
        }
    }

    fn take_report(&mut self, shard: usize, report: Report) {
        match report {
            Report::Progress(all) => {
                let now = self.now();
                for progress in all {
                    if let Some(copy) = self.copies.get_mut(progress.key)
                        && copy.phase.shard() == Some(shard)
                    {
                        let key = progress.key;
                        copy.on_progress(now, progress);
                        if !copy.told {
                            self.tell_if_follows(key);
                        }
                    }
                }
            }
            Report::Returned { key, log, reason } => self.take_back(key, &log, &reason),
            Report::WantMetadata => self.refresh_soon(),
            Report::LeaderHint { key, leader } => {
                if let Some(copy) = self.copies.get(key) {
                    self.topics.note_leader(&copy.at, leader);
                }
            }
            Report::BadBatch { key, error } => {
                let at = self.copies.get(key).map(|copy| copy.at.clone());
                let text = format!("a batch was refused and is fetched again: {error}");
                self.event(EventKind::BadBatch, at.as_ref(), &text);
            }
            Report::Stopped => {
                if let Some(port) = self.shards.get_mut(shard) {
                    port.stopped = true;
                }
            }
        }
    }

    fn take_back(&mut self, key: PartitionKey, log: &PartitionLog, reason: &ReturnReason) {
        let now = self.now();
        self.accounted_for += 1;
        let Some(copy) = self.copies.get_mut(key) else { return };
        copy.ends = CopyEnds { log_start: log.log_start_offset(), log_end: log.log_end_offset() };
        copy.recovery_point = log.recovery_point();
        copy.size_bytes = log.size_bytes();
        copy.epochs.clone_from(log.epochs());
        copy.rate.restart(now);
        let mut log_dir = self.log_dir.borrow_mut();
        let readers = log_dir.served(&copy.at);
        if matches!(reason, ReturnReason::Disk { .. }) {
            log_dir.distrust(&copy.at);
            // What is not in the files may have been shown.
            readers.inspect(|readers| readers.hide());
        } else {
            readers.inspect(|readers| readers.show_returned(log));
        }
        drop(log_dir);
        let ends = copy.checkpoint();
        self.log_dir.borrow_mut().note(&copy.at, ends);
        copy.left_shard();
        let nothing = Phase::NoRoom { how: Opening::Whole };
        let before = std::mem::replace(&mut copy.phase, nothing);
        match before {
            Phase::Leaving { then: Then::Fail(reason), .. } => {
                return self.fail(key, reason, false);
            }
            Phase::Leaving { then: Then::Rest, .. } => return self.given_back(key),
            Phase::Leaving { then: Then::Move(shard), .. } if *reason == ReturnReason::Asked => {
                copy.wanted_shard = u16::try_from(shard).ok();
                copy.phase = Phase::Opens { how: Opening::Whole, due: now };
                return;
            }
            Phase::Leaving { then: Then::CheckEpoch, .. } if *reason == ReturnReason::Asked => {
                copy.phase = asks_epoch(copy, now);
                return;
            }
            _ => {}
        }
        self.react(key, reason);
    }

    fn react(&mut self, key: PartitionKey, reason: &ReturnReason) {
        let (now, policy) = (self.now(), reconnect(&self.config.mirror));
        let may_cut = self.may_cut(key);
        let Some(copy) = self.copies.get_mut(key) else { return };
        let trouble: Arc<str> = Arc::from(reason_text(reason));
        let (attempts, due) = copy.on_failure(policy, now, random(), trouble);
        let latest = copy.epochs.latest().map_or(LeaderEpoch::NONE, |entry| entry.epoch);
        copy.elsewhere = BrokerId::NONE;
        let asks = |want, due| Phase::Asks { want, due, asked: false };
        match on_returned(reason, attempts, latest) {
            // The shard is being stopped.
            NextStep::Nothing | NextStep::Reopen => {
                copy.phase = Phase::Opens { how: Opening::Whole, due };
            }
            NextStep::ReopenWhenRoom => self.waits_for_room(key),
            NextStep::ReopenElsewhere => {
                let other = self.topics.other_replica(&copy.at);
                copy.elsewhere = other.unwrap_or(BrokerId::NONE);
                copy.phase = Phase::Opens { how: Opening::Whole, due };
            }
            NextStep::CheckIdentity => copy.phase = asks(Want::Identity, due),
            // The first look costs no wait.
            NextStep::AskOffsets if attempts == 1 => copy.phase = asks(Want::Range, now),
            NextStep::AskOffsets => copy.phase = asks(Want::Range, due),
            NextStep::AskEpochEnd(epoch) => copy.phase = asks(Want::EpochEnd(epoch), due),
            NextStep::Align(diverging) => {
                let repair = on_diverged(diverging, copy.ends, &copy.epochs, may_cut);
                self.repair(key, repair, DIVERGED);
            }
            NextStep::RaiseEpoch(epoch) => self.fenced(key, epoch),
            NextStep::Stop(stop) => self.fail(key, Arc::from(stop.to_string()), stop.may_pass()),
        }
    }

    /// Asks the shard that has the partition to give it back; without one, what follows
    /// happens at once.
    pub(super) fn leave(&mut self, key: PartitionKey, then: Then) {
        let now = self.now();
        let Some(copy) = self.copies.get_mut(key) else { return };
        match (&copy.phase, then) {
            (Phase::Active { shard }, then) => {
                let shard = *shard;
                copy.phase = Phase::Leaving { shard, then };
                self.command(shard, Command::Remove { key });
            }
            // An end beats a move.
            // Who waits for it to rest hears that, whatever else becomes of it.
            (Phase::Leaving { then: Then::Rest, .. }, Then::Fail(_)) => {}
            (Phase::Leaving { shard, .. }, then @ (Then::Fail(_) | Then::Rest)) => {
                copy.phase = Phase::Leaving { shard: *shard, then };
            }
            // What is being opened is looked at once it is open.
            (Phase::Failed { .. } | Phase::Leaving { .. } | Phase::Rests, _) | (_, Then::Rest) => {}
            (_, Then::Fail(reason)) => self.fail(key, reason, false),
            // Its log is opened, and the epoch checked, before a shard gets it.
            (_, Then::CheckEpoch) => copy.epoch_checked = false,
            (_, Then::Move(shard)) => {
                copy.wanted_shard = u16::try_from(shard).ok();
                copy.phase = Phase::Opens { how: Opening::Whole, due: now };
            }
        }
    }
}

/// Asks where the copy's newest epoch ends at the source; a copy without epochs goes on.
pub(super) fn asks_epoch(copy: &mut Copy, now: heliostat_core::time::Tick) -> Phase {
    match copy.epochs.latest() {
        Some(latest) => Phase::Asks { want: Want::EpochEnd(latest.epoch), due: now, asked: false },
        None => {
            copy.epoch_checked = true;
            Phase::Opens { how: Opening::Whole, due: now }
        }
    }
}

fn reason_text(reason: &ReturnReason) -> String {
    match reason {
        ReturnReason::Asked => "given back as asked".to_owned(),
        ReturnReason::Disk { action, error } => format!("{action} failed: {error}"),
        ReturnReason::Diverged(at) => {
            format!("the source's history parts at epoch {}, offset {}", at.epoch, at.end_offset)
        }
        ReturnReason::OutOfRange { fetch_offset } => {
            format!("the source does not have offset {fetch_offset}")
        }
        ReturnReason::UnknownTopic(code) | ReturnReason::Fatal(code) => {
            format!("the source answers {code}")
        }
        ReturnReason::EpochFenced { epoch } => {
            format!("a batch has leader epoch {epoch}, above the destination's")
        }
        ReturnReason::Refused(error) => error.to_string(),
    }
}

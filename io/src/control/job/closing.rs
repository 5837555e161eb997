//! Checkpoints, and the end of a job.

use std::sync::Arc;

use heliostat_core::engine::message::Command;
use tokio::time::Instant;

use super::super::cancel::Cancel;
use super::super::status::{EventKind, JobPhase};
use super::{Ended, Job, JobError, JobReport, rung};

impl Job {
    /// Takes over every partition's offsets and writes the checkpoints.
    pub(super) fn write_checkpoints(&mut self) {
        if self.noted_changes != self.copies.changes() {
            let mut log_dir = self.log_dir.borrow_mut();
            for copy in self.copies.values() {
                if copy.phase.shard().is_some() && copy.progress.is_some() {
                    log_dir.note(&copy.at, copy.checkpoint());
                }
            }
            drop(log_dir);
            self.noted_changes = self.copies.changes();
        }
        let written = self.log_dir.borrow_mut().write_checkpoints();
        if let Err(error) = written {
            // The old ones still stand; a crash only costs a longer recovery.
            self.event(EventKind::Notice, None, &format!("checkpoints: {error}; tried again"));
        }
    }

    /// Ends the job: cleanly if there is time.
    pub(super) async fn close(mut self, ended: Ended) -> Result<JobReport, JobError> {
        self.phase = JobPhase::Stopping;
        self.publish();
        let mut clean = false;
        let mut ended = ended;
        if ended != Ended::Aborted {
            for shard in 0..self.shards.len() {
                self.command(shard, Command::Stop);
            }
            if self.drain().await {
                clean = self.finish();
            } else {
                ended = Ended::Aborted;
            }
        }
        self.phase = JobPhase::Ended;
        self.publish();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        Ok(JobReport { ended, clean, status: Arc::clone(&self.published.borrow()) })
    }

    /// Waits until every shard has given everything back and no log is being opened. `false`:
    /// given up, for nothing has come for too long. Whoever has very many logs closes them one
    /// after another, and needs less time than a recovery of all of them.
    async fn drain(&mut self) -> bool {
        let mut before = self.accounted_for;
        let mut deadline = Instant::now() + self.config.stop_within;
        loop {
            self.flush_outboxes();
            let given = self.accounted_for;
            if given != before {
                (before, deadline) = (given, Instant::now() + self.config.stop_within);
            }
            if self.failure.is_some() || self.cancel.now() == Cancel::Abort {
                return false;
            }
            if self.openers.is_idle() && self.shards.iter().all(|port| port.stopped) {
                return true;
            }
            // A full outbox is tried again soon.
            let retry = Instant::now() + super::PUBLISH_EVERY;
            tokio::select! {
                biased;
                _ = self.cancel.changed() => {}
                shard = rung(&self.bells) => self.take_reports(shard),
                opened = self.openers.next() => self.take_opened(opened),
                () = tokio::time::sleep_until(retry.min(deadline)) => {
                    if Instant::now() >= deadline {
                        let text = "the shards did not stop in time; the next start recovers";
                        self.event(EventKind::Notice, None, text);
                        return false;
                    }
                    self.publish();
                }
            }
        }
    }

    /// Everything is closed: the last checkpoints, then the marker.
    fn finish(&mut self) -> bool {
        if self.steered.is_some() {
            // The host sets the marker, once all its jobs have ended.
            self.write_checkpoints();
            return true;
        }
        let finished = self.log_dir.borrow_mut().finish(self.config.mirror.log);
        match finished {
            Ok(()) => true,
            Err(error) => {
                let text = format!("no clean stop: {error}; the next start recovers");
                self.event(EventKind::Notice, None, &text);
                false
            }
        }
    }
}

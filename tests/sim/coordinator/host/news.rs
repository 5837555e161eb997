//! What jobs and tasks say.

use std::sync::Arc;

use heliostat_core::coordinator::alignment::last_mirrored;
use heliostat_core::coordinator::bump::above;
use heliostat_core::coordinator::partition::{Event, Failure};
use heliostat_core::coordinator::{LastMirrored, StateRecord};
use heliostat_core::types::{LeaderEpoch, TopicPartition};

use super::{Doing, Down, Host, LookedUp, News, Running, Sabotage, Stopping, Task, Up};
use crate::job::{Order, Outcome};

impl Host {
    /// Takes the oldest news. `false`: there is none.
    pub(crate) fn take_news(&mut self) -> Result<bool, Down> {
        let Some(news) = self.up().news.pop_front() else { return Ok(false) };
        let is_current = |up: &Up, mirror: &Arc<str>, generation| {
            up.links.get(mirror).is_some_and(|link| link.generation == generation)
        };
        match news {
            News::Of { mirror, generation, at, outcome } => {
                if is_current(self.up(), &mirror, generation) {
                    self.take_outcome(&mirror, &at, outcome);
                }
            }
            News::LookedUp { mirror, generation, outcome } => {
                if is_current(self.up(), &mirror, generation) {
                    self.take_looked_up(&mirror, outcome);
                }
            }
            News::Inspected(stop, outcome) => self.take_inspected(stop, outcome)?,
            News::Marked(stop, outcome) => match outcome {
                Ok((start, end)) => {
                    self.disk.note(&stop.at, start, end);
                    self.report(&stop.key, Event::Finished(stop.run));
                }
                Err(reason) => self.stop_failed(&stop, reason),
            },
        }
        Ok(true)
    }

    pub(super) fn take_outcome(
        &mut self,
        mirror: &Arc<str>,
        at: &TopicPartition,
        outcome: Outcome,
    ) {
        let Some(link) = self.up().links.get_mut(mirror) else { return };
        let Some(running) = link.running.get_mut(at) else { return };
        let Running { key, run, doing, .. } = running.clone();
        match (doing, outcome) {
            (Doing::Aligns, Outcome::Aligned) => {
                link.running.remove(at);
                self.up().aligned.insert(key.clone());
                self.up().mirrors.outdate(&key);
                if !self.sabotaged(Sabotage::Deaf) {
                    self.report(&key, Event::Finished(run));
                }
            }
            (Doing::Follows, Outcome::Follows) => self.report(&key, Event::Fetched(run)),
            (Doing::Follows, Outcome::EpochFenced(epoch)) => {
                running.fenced_by = epoch;
                self.report(&key, Event::EpochExceeded(run));
            }
            (Doing::Aligns | Doing::Follows, Outcome::Failed { reason, retryable }) => {
                link.running.remove(at);
                self.disk.count(if retryable { "failed" } else { "failed for good" });
                self.report(&key, Event::Failed(run, Failure { reason, retryable }));
            }
            (Doing::Pauses | Doing::Stops, Outcome::Released) => {
                let Some(running) = link.running.remove(at) else { return };
                self.released(&running, at.clone());
            }
            _ => {}
        }
    }

    pub(super) fn take_looked_up(&mut self, mirror: &Arc<str>, outcome: LookedUp) {
        for ((key, at, run), common) in outcome {
            let own = self.up().mirrors.last_mirrored(&key);
            let Some(link) = self.up().links.get_mut(mirror) else { return };
            let current = link.running.get_mut(&at);
            let Some(running) = current.filter(|it| it.run == run && it.doing == Doing::LooksUp)
            else {
                continue;
            };
            match common {
                Ok(found) => {
                    running.doing = Doing::Aligns;
                    self.order(mirror, Order::Align { at, last: found.or(own) });
                }
                Err(failure) => {
                    link.running.remove(&at);
                    self.disk.count("loop refused");
                    self.report(&key, Event::Failed(run, failure));
                }
            }
        }
    }

    pub(super) fn take_inspected(
        &mut self,
        stop: Stopping,
        outcome: Result<LastMirrored, Arc<str>>,
    ) -> Result<(), Down> {
        let found = match outcome {
            Ok(found) => found,
            Err(reason) => {
                self.stop_failed(&stop, reason);
                return Ok(());
            }
        };
        let last = match self.disk.sabotage {
            Sabotage::FreshPosition => LastMirrored { offset: found.offset.plus(1), ..found },
            _ => last_mirrored(stop.last, found),
        };
        // Also of a log that has mirrored nothing: what lies in it is ours.
        let position = Some(last);
        let is_stored = if position == stop.last {
            true
        } else {
            self.store(&[StateRecord::LastMirrored(stop.key.clone(), position)]).is_empty()
        };
        if is_stored {
            self.up().mirrors.set_last_mirrored(stop.key.clone(), position);
        }
        let link = self.up().links.get(&stop.key.mirror);
        let source = link.and_then(|link| link.epochs.get(&stop.at)).copied();
        let source = source.unwrap_or(LeaderEpoch::NONE);
        let used = match last.epoch.known() {
            Some(epoch) => source.max(epoch),
            None => above(source),
        };
        self.raise(vec![(stop.key.topic, stop.at.partition, used)])?;
        if is_stored {
            let leader_epoch = self.local_epoch(&stop.at);
            let task = Task::Mark { stop, last_epoch: last.epoch, leader_epoch };
            self.up().tasks.push_back(task);
        } else {
            self.stop_failed(&stop, Arc::from("its position could not be stored"));
        }
        Ok(())
    }

    pub(super) fn stop_failed(&mut self, stop: &Stopping, reason: Arc<str>) {
        self.disk.count("stop failed");
        let failure = Failure { reason, retryable: true };
        self.report(&stop.key, Event::Failed(stop.run, failure));
    }
}

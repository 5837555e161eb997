//! What jobs say of partitions, and their ends.

use std::sync::Arc;

use heliostat_core::coordinator::partition::{Event, Failure};
use heliostat_core::types::TopicPartition;

use super::link::{Doing, Running};
use super::run::Host;
use crate::control::steering::{Order, Outcome, WatchedTopic};
use crate::control::{JobError, JobReport};

impl Host {
    pub(super) fn take_outcome(&mut self, mirror: &str, at: &TopicPartition, outcome: Outcome) {
        let Some(link) = self.links.get_mut(mirror) else { return };
        let Some(running) = link.running.get_mut(at) else { return };
        let Running { key, run, doing, .. } = running.clone();
        match (doing, outcome) {
            (Doing::Aligns, Outcome::Aligned) => {
                link.running.remove(at);
                self.aligned.insert(key.clone());
                if self.mirrors.last_mirrored(&key).is_some() {
                    self.outdated.push(key.clone());
                }
                crate::fault::point("truncation.aligned");
                self.report(&key, Event::Finished, run);
            }
            (Doing::Follows, Outcome::Follows) => self.report(&key, Event::Fetched, run),
            (Doing::Follows, Outcome::EpochFenced(epoch)) => {
                running.fenced_by = epoch;
                self.report(&key, Event::EpochExceeded, run);
            }
            (Doing::Aligns | Doing::Follows, Outcome::Failed { reason, retryable }) => {
                link.running.remove(at);
                let failure = Failure { reason, retryable };
                self.report(&key, |run| Event::Failed(run, failure), run);
            }
            (Doing::Pauses | Doing::Stops, Outcome::Released) => {
                link.running.remove(at);
                self.released(&key, at, run, doing);
            }
            // Of an action that was abandoned.
            _ => {}
        }
    }

    /// Tells a mirror's job which topics are its own.
    pub(super) fn watch_topics(&mut self, mirror: &str) {
        let topics: Vec<_> = self
            .image()
            .topics_of(mirror)
            .map(|(topic, _)| WatchedTopic { name: Arc::clone(&topic.name), local_id: topic.id })
            .collect();
        if let Some(link) = self.links.get(mirror) {
            link.order(Order::Watch(topics));
        }
    }

    /// A job has ended: as it was told to, for other configs or with its mirror, or because a
    /// shard has failed.
    pub(super) fn job_ended(
        &mut self,
        mirror: &Arc<str>,
        generation: u64,
        outcome: Result<JobReport, JobError>,
    ) {
        if !self.is_current(mirror, generation) {
            return;
        }
        let failed = outcome.as_ref().err().map(ToString::to_string);
        self.collect(mirror, outcome);
        let Some(link) = self.links.remove(mirror) else { return };
        if let Some(reason) = failed {
            // Loudly, and once: what a bug has stopped is not started again by itself.
            tracing::error!("mirror {mirror}: {reason}");
            for (_, Running { key, run, .. }) in link.running {
                let reason = Arc::from(format!("{reason}; restart the host"));
                let failure = Failure { reason, retryable: false };
                self.report(&key, |run| Event::Failed(run, failure), run);
            }
            return;
        }
        if self.image().has_mirror(mirror) {
            self.start_link(mirror);
            self.watch_topics(mirror);
            self.order_again(mirror, link.running);
        }
    }

    /// The new job of a mirror is told what the one before it was at.
    fn order_again(
        &mut self,
        mirror: &str,
        running: std::collections::BTreeMap<TopicPartition, Running>,
    ) {
        let mut look_up = Vec::new();
        for (at, Running { key, run, doing, fenced_by }) in running {
            let begun = (key, at.clone(), run);
            if !self.runs(&begun, doing) {
                self.nobody_works(&begun.0, run);
                continue;
            }
            let Some(link) = self.links.get_mut(mirror) else { continue };
            if let Some(it) = link.running.get_mut(&at) {
                it.fenced_by = fenced_by;
            }
            match doing {
                Doing::LooksUp | Doing::Aligns => look_up.push(begun),
                Doing::Follows => {
                    let (local_epoch, unclean) = (self.local_epoch(&at), self.is_unclean(&at));
                    if let Some(link) = self.links.get(mirror) {
                        link.order(Order::Follow { at, local_epoch, may_cut: false, unclean });
                    }
                }
                Doing::Pauses | Doing::Stops => link.order(Order::Release { at }),
            }
        }
        let mirror: Arc<str> = Arc::from(mirror);
        if !look_up.is_empty() {
            self.look_up(&mirror, look_up);
        }
    }
}

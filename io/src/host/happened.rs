//! What jobs say of partitions, and their ends.

use std::sync::Arc;

use heliostat_core::coordinator::partition::{Event, Failure};
use heliostat_core::metadata::image::TopicImage;
use heliostat_core::types::{TopicId, TopicPartition};

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
                self.mirrors.outdate(&key);
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
            // What has failed on the way is closed as well.
            (Doing::Pauses | Doing::Stops, Outcome::Released | Outcome::Failed { .. }) => {
                link.running.remove(at);
                self.released(&key, at, run, doing);
            }
            // Of an action that was abandoned.
            _ => {}
        }
    }

    /// Tells a mirror's job which topics are its own, and of which cluster.
    pub(super) fn watch_topics(&mut self, mirror: &str) {
        let log_dir = self.log_dir.borrow();
        let watched = |topic: &TopicImage| {
            let made_up = log_dir.made_up_id(&topic.name) == Some(topic.id);
            WatchedTopic {
                name: Arc::clone(&topic.name),
                local_id: topic.id,
                source_id: if made_up { TopicId::NONE } else { topic.id },
            }
        };
        let topics: Vec<_> =
            self.image().topics_of(mirror).map(|(topic, _)| watched(topic)).collect();
        drop(log_dir);
        if let Some(link) = self.links.get(mirror) {
            let cluster = link.config.source_cluster_id.as_deref().map(Arc::from);
            link.order(Order::Watch { cluster, topics });
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
        let failed = match &outcome {
            Ok(report) if report.clean => None,
            Ok(_) => Some("it did not end in time".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if failed.is_some() {
            self.distrust_all(mirror);
        }
        self.collect(mirror, outcome);
        let Some(link) = self.links.remove(mirror) else { return };
        if let Some(reason) = failed {
            // Loudly, and once: what a bug has stopped is not started again by itself.
            self.broken.insert(Arc::clone(mirror));
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

    /// Nobody has closed the logs of a mirror's partitions.
    pub(super) fn distrust_all(&mut self, mirror: &str) {
        self.is_tainted = true;
        let mut log_dir = self.log_dir.borrow_mut();
        for (topic, _) in self.journal.image().topics_of(mirror) {
            for partition in 0..topic.partition_count() {
                log_dir.distrust(&TopicPartition::new(Arc::clone(&topic.name), partition));
            }
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

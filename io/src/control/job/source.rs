//! What the source says: topics, leaders, offsets, ends of epochs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use heliostat_core::engine::message::{BrokerAddress, Command, PartitionKey};
use heliostat_core::log::gaps::{GapKind, GapRecord};
use heliostat_core::mirror::returned::{CopyEnds, Repair, on_epoch_end, on_offsets};
use heliostat_core::mirror::topics::{Change, Refresh};
use heliostat_core::protocol::fetch_stream::DivergingEpoch;
use heliostat_core::protocol::{EpochEndQuery, ErrorCode, Metadata, TopicConfigs, TopicIdentity};
use heliostat_core::time::Tick;
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition};

use super::super::copy::{Copy, Goal, Opening, Phase, Then, Want};
use super::super::log_dir::now_ms;
use super::super::questions::{Answer, Question};
use super::super::status::EventKind;
use super::super::steering::Outcome;
use super::{Job, JobError, QUESTION_PARTITIONS_MAX, REFRESH_GAP, random, reconnect};
use crate::source_client::{Cause, SourceError, Unanswered};

/// First and last offset of one partition at the source, as far as they were answered.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    earliest: Option<Offset>,
    latest: Option<Offset>,
    error: ErrorCode,
}

impl Job {
    /// Asks for everything that is wanted and due, many partitions in one question.
    pub(super) fn ask_what_is_due(&mut self, now: Tick) {
        if !self.knows_its_source() {
            return;
        }
        let (mut ranges, mut ends) = (Vec::new(), Vec::new());
        let mut wants_identity = false;
        // Those that are left are due at once, with questions of their own.
        for key in self.copies.due_to_ask(now, QUESTION_PARTITIONS_MAX) {
            let Some(copy) = self.copies.get_mut(key) else { continue };
            let Phase::Asks { want, asked, .. } = &mut copy.phase else { continue };
            let leader = self.topics.leader(&copy.at);
            let epoch = leader.map_or(LeaderEpoch::NONE, |leader| leader.epoch);
            match want {
                Want::Begin | Want::Range => ranges.push((copy.at.clone(), epoch)),
                Want::EpochEnd(latest) => {
                    ends.push(EpochEndQuery {
                        partition: copy.at.clone(),
                        current_leader_epoch: epoch,
                        leader_epoch: *latest,
                    });
                }
                Want::Identity => wants_identity = true,
            }
            *asked = true;
        }
        let asked = [
            (!ranges.is_empty()).then_some(Question::Offsets(ranges)),
            (!ends.is_empty()).then_some(Question::EpochEnds(ends)),
        ];
        for question in asked.into_iter().flatten() {
            if let Err(question) = self.source.ask(question) {
                self.ask_again(&question);
            }
        }
        if wants_identity {
            self.refresh_soon();
        }
    }

    /// A question found no room: its partitions ask again a moment later.
    fn ask_again(&mut self, question: &Question) {
        let partitions: Vec<TopicPartition> = match question {
            Question::Metadata | Question::Configs(_) => Vec::new(),
            Question::Offsets(asked) => asked.iter().map(|(at, _)| at.clone()).collect(),
            Question::EpochEnds(asked) => asked.iter().map(|q| q.partition.clone()).collect(),
        };
        let later = self.now().after(REFRESH_GAP);
        for at in partitions {
            if let Some(Phase::Asks { due, asked, .. }) = self.phase_of(&at) {
                (*due, *asked) = (later, false);
            }
        }
    }

    fn phase_of(&mut self, at: &TopicPartition) -> Option<&mut Phase> {
        let key = self.by_name.get(at)?;
        Some(&mut self.copies.get_mut(*key)?.phase)
    }

    /// Metadata is wanted before its time.
    pub(super) fn refresh_soon(&mut self) {
        let soon = self.health.refreshed_at.after(REFRESH_GAP).max(self.now());
        self.due.refresh = self.due.refresh.min(soon);
    }

    pub(super) fn take_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Metadata(outcome) => {
                self.health.refreshing = false;
                self.health.refreshed_at = self.now();
                match outcome {
                    Ok(metadata) => self.take_metadata(&metadata),
                    Err(error) => self.source_failed(&error),
                }
            }
            Answer::Offsets { earliest, latest, silent_on_divergence } => {
                self.silent_on_divergence = silent_on_divergence;
                let mut ranges = BTreeMap::<TopicPartition, Range>::new();
                for answer in earliest.answers {
                    let range = ranges.entry(answer.partition).or_default();
                    range.earliest = Some(answer.offset).filter(|offset| offset.0 >= 0);
                    range.error = answer.error;
                }
                for answer in latest.answers {
                    let range = ranges.entry(answer.partition).or_default();
                    range.latest = Some(answer.offset).filter(|offset| offset.0 >= 0);
                    range.error = range.error.max(answer.error);
                }
                for (at, range) in ranges {
                    self.take_range(&at, range);
                }
                self.take_unanswered(earliest.unanswered);
                self.take_unanswered(latest.unanswered);
            }
            Answer::Configs(configs) => self.take_configs(configs.unwrap_or_default()),
            Answer::EpochEnds(ends) => {
                for end in ends.answers {
                    let answer =
                        DivergingEpoch { epoch: end.leader_epoch, end_offset: end.end_offset };
                    self.take_epoch_end(&end.partition, end.error, answer);
                }
                self.take_unanswered(ends.unanswered);
            }
        }
    }

    pub(super) fn source_failed(&mut self, error: &SourceError) {
        let now = self.now();
        self.health.failures += 1;
        self.health.failing_since.get_or_insert(self.health.asked_at);
        if self.health.trouble.is_none() {
            self.event(EventKind::Source, None, &format!("{error}; tried again for ever"));
        }
        self.health.trouble = Some(Arc::from(error.to_string()));
        let retry = self.health.backoff.failed(reconnect(&self.config.mirror), now, random());
        self.due.refresh = self.due.refresh.min(retry).max(now.after(REFRESH_GAP));
        // Nothing was learned about their topics; they ask again with the next refresh.
        for key in self.copies.asking() {
            let Some(copy) = self.copies.get_mut(key) else { continue };
            if let Phase::Asks { want: Want::Identity, due, asked } = &mut copy.phase {
                (*due, *asked) = (retry, false);
            }
        }
    }

    fn take_metadata(&mut self, metadata: &Metadata) {
        if self.health.trouble.take().is_some() {
            self.health.backoff.succeeded();
            self.health.failing_since = None;
            self.event(EventKind::Source, None, "the source answers again");
        }
        if self.steered.is_some() {
            return self.take_steered_metadata(metadata);
        }
        let known = self.log_dir.borrow().source_cluster().map(str::to_owned);
        match (known, &metadata.cluster_id) {
            (Some(known), Some(found)) if known != *found => {
                let found = found.clone();
                self.failure.get_or_insert(JobError::OtherCluster { known, found });
                return;
            }
            (None, Some(found)) => {
                let bound = self.log_dir.borrow_mut().bind(Some(found));
                if let Err(error) = bound {
                    self.failure.get_or_insert(error.into());
                    return;
                }
            }
            _ => {}
        }
        self.take_brokers(metadata);
        let refresh = self.topics.refresh(metadata, &self.config.selector);
        self.take_refresh(refresh);
    }

    pub(super) fn take_brokers(&mut self, metadata: &Metadata) {
        let brokers: Vec<_> = metadata
            .brokers
            .iter()
            .map(|broker| BrokerAddress {
                id: broker.node,
                host: Arc::from(broker.host.as_str()),
                port: broker.port,
            })
            .collect();
        if brokers.is_empty() || brokers == self.brokers {
            return;
        }
        self.brokers = brokers;
        for shard in 0..self.shards.len() {
            self.command(shard, Command::SetBrokers(self.brokers.clone()));
        }
    }

    pub(super) fn take_refresh(&mut self, refresh: Refresh) {
        self.health.refreshes += 1;
        let mut new_topics = BTreeSet::new();
        for change in refresh.changes {
            match change {
                Change::NewPartition { topic, index, leader } => {
                    if index == 0 {
                        new_topics.insert(Arc::clone(&topic.name));
                    }
                    if self.steered.is_none() {
                        self.add_copy(&topic, index);
                    } else {
                        self.source_tells(&topic, index, leader);
                    }
                }
                Change::NewLeader { partition, leader, epoch_rose } => {
                    let Some(key) = self.by_name.get(&partition).copied() else { continue };
                    let Some(copy) = self.copies.get_mut(key) else { continue };
                    copy.epoch_checked &= !epoch_rose;
                    copy.elsewhere = BrokerId::NONE;
                    let shard = copy.phase.shard();
                    if let Some(shard) = shard {
                        self.command(shard, Command::SetLeader { key, leader });
                    }
                    if epoch_rose && self.silent_on_divergence.contains(&leader.broker) {
                        self.leave(key, Then::CheckEpoch);
                    }
                }
                Change::IdAppeared { topic } => self.adopt_id(&topic),
                Change::Ended { topic, how } => {
                    let reason: Arc<str> = Arc::from(how.to_string());
                    self.event(EventKind::Topic, None, &format!("{topic}: {reason}"));
                    let keys = self.keys_of(&topic);
                    for key in keys {
                        self.leave(key, Then::Fail(Arc::clone(&reason)));
                    }
                }
            }
        }
        if !new_topics.is_empty() {
            // Only for a warning: one that finds no room is not worth a wait.
            let _ = self.source.ask(Question::Configs(new_topics.into_iter().collect()));
        }
        if refresh.confirm_soon {
            self.due.refresh = self.due.refresh.min(self.now().after(REFRESH_GAP * 2));
        } else {
            self.identities_confirmed();
        }
    }

    /// Warns of topics whose copy will not be what an operator may expect. A client that may
    /// not see configs gets no warning.
    fn take_configs(&mut self, configs: Vec<TopicConfigs>) {
        for topic in configs {
            let is_on = |key, word: &str| topic.value(key).is_some_and(|v| v.contains(word));
            if is_on("cleanup.policy", "compact") {
                let text = format!(
                    "{}: the topic is compacted at the source; its copy is not compacted here and \
                     only grows",
                    topic.topic
                );
                self.event(EventKind::Topic, None, &text);
            }
            if is_on("remote.storage.enable", "true") {
                let text = format!(
                    "{}: the topic has tiered storage at the source; its copy holds all of it on \
                     this disk",
                    topic.topic
                );
                self.event(EventKind::Topic, None, &text);
            }
        }
    }

    /// Topics that are still the same go on.
    fn identities_confirmed(&mut self) {
        let now = self.now();
        for key in self.copies.asking() {
            let Some(copy) = self.copies.get_mut(key) else { continue };
            if let Phase::Asks { want: Want::Identity, due, asked: true } = copy.phase
                && self.topics.identity(&copy.at.topic).is_some()
            {
                copy.phase = Phase::Opens { how: Opening::Whole, due: due.max(now) };
            }
        }
    }

    fn keys_of(&self, topic: &str) -> Vec<PartitionKey> {
        self.by_name.of_topic(topic).copied().collect()
    }

    fn add_copy(&mut self, topic: &TopicIdentity, index: i32) {
        let at = TopicPartition::new(Arc::clone(&topic.name), index);
        let copies = &mut self.copies;
        self.by_name.entry(&at, || copies.insert(at.clone(), topic.id));
    }

    pub(super) fn adopt_id(&mut self, topic: &TopicIdentity) {
        // A log that is being opened is held against the ID that it was ordered with. Its files
        // get the new one before the next log of the topic is opened.
        let waits =
            self.log_dir.borrow().changes_id(&topic.name, topic.id) && !self.openers.is_idle();
        if !waits && self.steered.is_none() {
            let adopted = self.log_dir.borrow_mut().adopt_id(&topic.name, topic.id);
            if let Err(error) = adopted {
                // The made-up ID stays; the next start adopts it.
                let text = format!("{}: its new topic ID cannot be stored: {error}", topic.name);
                self.event(EventKind::Topic, None, &text);
                return;
            }
        }
        let text = format!("{}: the source gives it the topic ID {} now", topic.name, topic.id);
        self.event(EventKind::Topic, None, &text);
        for key in self.keys_of(&topic.name) {
            let Some(copy) = self.copies.get_mut(key) else { continue };
            copy.topic_id = topic.id;
            if let Some(shard) = copy.phase.shard() {
                let topic = topic.clone();
                self.command(shard, Command::SetTopicIdentity { key, topic });
            }
        }
    }

    fn take_unanswered(&mut self, unanswered: Vec<Unanswered>) {
        for Unanswered { partition, error } in unanswered {
            if is_unsupported(&error) && self.does_without_epoch_end(&partition) {
                continue;
            }
            self.ask_later(&partition, Arc::from(error.to_string()));
        }
    }

    /// A source that cannot tell where epochs end is asked no more: it cuts when it is followed,
    /// as far as it can tell of a divergence.
    fn does_without_epoch_end(&mut self, at: &TopicPartition) -> bool {
        let now = self.now();
        let Some(copy) = self.by_name.get(at).and_then(|key| self.copies.get_mut(*key)) else {
            return false;
        };
        let Phase::Asks { want: Want::EpochEnd(_), asked: true, .. } = copy.phase else {
            return false;
        };
        copy.epoch_checked = true;
        copy.phase = Phase::Opens { how: Opening::Whole, due: now };
        true
    }

    /// A question about the partition failed; it is put again after a wait, for ever.
    fn ask_later(&mut self, at: &TopicPartition, trouble: Arc<str>) {
        let (now, policy) = (self.now(), reconnect(&self.config.mirror));
        let Some(copy) = self.by_name.get(at).and_then(|key| self.copies.get_mut(*key)) else {
            return;
        };
        if let Phase::Asks { due, asked, .. } = &mut copy.phase
            && *asked
        {
            *due = copy.backoff.failed(policy, now, random());
            *asked = false;
            copy.trouble = Some(trouble);
            self.refresh_soon();
        }
    }

    fn take_range(&mut self, at: &TopicPartition, range: Range) {
        let (Some(earliest), Some(latest)) = (range.earliest, range.latest) else {
            return self.ask_later(at, Arc::from(format!("the source answers {}", range.error)));
        };
        let (now, policy) = (self.now(), self.policy());
        let Some(copy) = self.by_name.get(at).and_then(|key| self.copies.get_mut(*key)) else {
            return;
        };
        let Phase::Asks { want, asked: true, .. } = copy.phase else { return };
        match want {
            Want::Begin => {
                copy.target.get_or_insert(latest);
                copy.lag.observe(now, latest, copy.ends.log_end);
                copy.backoff.succeeded();
                copy.trouble = None;
                let has_log = self.log_dir.borrow().has_log(at);
                let how = if !has_log {
                    Opening::Reset { start: earliest, record: None }
                } else if copy.begins_anew() {
                    let CopyEnds { log_start, log_end } = copy.ends;
                    let reason = "nothing of it is known to be the source's";
                    let ends = (log_start, log_end);
                    let kind = GapKind::Truncation;
                    let record = record_of(at, copy.topic_id, kind, ends, reason);
                    Opening::Reset { start: earliest, record: Some(Box::new(record)) }
                } else {
                    Opening::Whole
                };
                copy.phase = Phase::Opens { how, due: now };
            }
            Want::Range => {
                let may_cut = policy.unclean_leader_election || copy.may_cut || copy.unclean;
                let repair =
                    on_offsets(copy.ends, earliest, latest, policy, may_cut, copy.attempts);
                let key = copy.key;
                self.repair(key, repair, "the source no longer has these offsets");
            }
            Want::EpochEnd(_) | Want::Identity => {}
        }
    }

    fn take_epoch_end(&mut self, at: &TopicPartition, error: ErrorCode, answer: DivergingEpoch) {
        if !error.is_none() {
            return self.ask_later(at, Arc::from(format!("the source answers {error}")));
        }
        let allowed = self.policy().unclean_leader_election;
        let Some(copy) = self.by_name.get(at).and_then(|key| self.copies.get_mut(*key)) else {
            return;
        };
        let Phase::Asks { want: Want::EpochEnd(latest), asked: true, .. } = copy.phase else {
            return;
        };
        let may_cut = allowed || copy.may_cut || copy.unclean || copy.goal == Goal::Align;
        let repair = on_epoch_end(latest, answer, copy.ends, &copy.epochs, may_cut);
        // What is left after a cut is asked about again before it is followed.
        copy.epoch_checked = repair == Repair::Reopen;
        let key = copy.key;
        self.repair(key, repair, DIVERGED);
    }

    /// Brings a repair on its way: what is lost is recorded before it is carried out.
    pub(super) fn repair(&mut self, key: PartitionKey, repair: Repair, reason: &str) {
        let now = self.now();
        let Some(copy) = self.copies.get_mut(key) else { return };
        let record = |copy: &Copy, kind, from, to| {
            Box::new(record_of(&copy.at, copy.topic_id, kind, (from, to), reason))
        };
        let CopyEnds { log_start, log_end } = copy.ends;
        let due = copy.backoff.retry_at().max(now);
        let how = match repair {
            Repair::Reopen => Opening::Whole,
            Repair::Truncate { to } => {
                let record = record(copy, GapKind::Truncation, to, log_end);
                Opening::Truncated { to, record }
            }
            Repair::Reset { start } if start > log_end => {
                let record = record(copy, GapKind::Gap, log_end, start);
                Opening::Reset { start, record: Some(record) }
            }
            Repair::Reset { start } => {
                let is_cut = log_start < log_end;
                let record = is_cut.then(|| record(copy, GapKind::Truncation, log_start, log_end));
                Opening::Reset { start, record }
            }
            Repair::Stop(stop) => {
                let reason = Arc::from(stop.to_string());
                return self.fail(key, reason, stop.may_pass());
            }
        };
        copy.phase = Phase::Opens { how, due };
    }

    /// Whether the copy may be cut where the source's history differs.
    pub(super) fn may_cut(&self, key: PartitionKey) -> bool {
        self.policy().unclean_leader_election
            || self.copies.get(key).is_some_and(|it| it.may_cut || it.unclean)
    }

    /// The partition waits for an operator, or for its host to try again.
    pub(super) fn fail(&mut self, key: PartitionKey, reason: Arc<str>, retryable: bool) {
        let Some(copy) = self.copies.get_mut(key) else { return };
        copy.phase = Phase::Failed { reason: Arc::clone(&reason) };
        let at = copy.at.clone();
        self.event(EventKind::Failed, Some(&at), &reason);
        self.tell(&at, Outcome::Failed { reason, retryable });
    }
}

fn is_unsupported(error: &SourceError) -> bool {
    matches!(error, SourceError::Broker { cause: Cause::Version { .. }, .. })
}

/// Why a copy is cut.
pub(super) const DIVERGED: &str =
    "the source's history differs from here on: unclean leader election";

fn record_of(
    at: &TopicPartition,
    topic_id: TopicId,
    kind: GapKind,
    (from, to): (Offset, Offset),
    reason: &str,
) -> GapRecord {
    GapRecord {
        kind,
        partition: at.clone(),
        topic_id,
        from,
        to,
        time: TimestampMs(now_ms()),
        reason: Arc::from(reason),
    }
}

//! The host and its loop: news in, decisions of the coordinator and the controller, then writes,
//! orders and answers out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use heliostat_core::config::ServerConfig;
use heliostat_core::coordinator::partition::{Event, Run};
use heliostat_core::coordinator::state_log::StateAppendError;
use heliostat_core::coordinator::{
    DesiredState, LastMirrored, MirrorKey, MirrorState, Mirrors, StateRecord, ToStore,
};
use heliostat_core::metadata::image::MetadataImage;
use heliostat_core::time::Tick;
use heliostat_core::types::{LeaderEpoch, Offset, TopicPartition};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::HostError;
use super::align::LookedUp;
use super::append::{Append, AppendError};
use super::error::with_causes;
use super::failover::{Inspected, LogWorkers, Marked, Stopping};
use super::http::Endpoint;
use super::journal::Journal;
use super::link::Link;
use super::snapshot::{self, Phase, Publisher, Viewer};
use super::steps::Begun;
use crate::control::steering::Happening;
use crate::control::{CancelHandle, CancelWatch, JobError, JobReport, SharedLogDir, Status};
use crate::listener::Listener;
use crate::listener::control::{ControlCall, ControlCalls, FeatureLevels};
use crate::served::ServedLogs;

/// News that are taken in a row, before clients are heard and states are stored.
const NEWS_AT_ONCE: usize = 10_000;

/// How a host ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostReport {
    /// The next start finds a clean stop. Otherwise it recovers; nothing is lost.
    pub clean: bool,
    /// What went wrong in shards.
    pub shard_errors: Vec<String>,
}

/// Steers a host from any thread.
#[derive(Clone, Debug)]
pub struct HostHandle {
    pub(super) cancel: CancelHandle,
    pub(super) address: SocketAddr,
    pub(super) metrics: Option<SocketAddr>,
    pub(super) news: mpsc::UnboundedSender<News>,
    pub(super) viewer: Viewer,
}

/// A mirror of a host at one moment.
#[derive(Clone, Debug)]
pub struct MirrorStanding {
    /// Partitions by state; states without any are left out.
    pub states: BTreeMap<MirrorState, usize>,
    /// What its job says; `None` while it has none.
    pub job: Option<Arc<Status>>,
}

impl HostHandle {
    /// Appends `batches`, whole ones in format v2, to a partition that nobody mirrors, as its
    /// leader does: their offsets follow the log end, their epoch is the partition's. Returns the
    /// first offset; all of it is durable then.
    ///
    /// One call is under way at a time, and the control thread waits for it: for tools, not for
    /// streams of records.
    ///
    /// # Errors
    /// [`AppendError`]; nothing was appended unless it says so.
    pub async fn append(
        &self,
        at: TopicPartition,
        batches: Vec<u8>,
    ) -> Result<Offset, AppendError> {
        let (reply, answer) = oneshot::channel();
        let asked = News::Append(Box::new(Append { at, batches, reply }));
        self.news.send(asked).map_err(|_| AppendError::Gone)?;
        answer.await.map_err(|_| AppendError::Gone)?
    }

    /// How a mirror stands, once the control thread has taken a look for whoever asks; an older
    /// look if it is silent. `None`: there is no such mirror, or the host is still starting.
    pub async fn mirror(&self, name: &str) -> Option<MirrorStanding> {
        let look = self.viewer.look().await;
        let mirror = look.snapshot.mirrors.iter().find(|mirror| mirror.name == name)?;
        Some(MirrorStanding { states: mirror.states.clone(), job: mirror.job.clone() })
    }

    /// The first call asks for a clean stop, a second one gives that up.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Where the listener is; the real port if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where metrics are, if they are anywhere; the real port if 0 was asked for.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }
}

/// What the host's tasks and threads report.
#[derive(Debug)]
pub(super) enum News {
    /// A mirror's job says so.
    Happened { mirror: Arc<str>, generation: u64, happening: Happening },
    /// A mirror's job has ended.
    JobEnded { mirror: Arc<str>, generation: u64, outcome: Result<JobReport, JobError> },
    /// A source cannot be asked where the common ends are.
    Unreachable { mirror: Arc<str>, generation: u64, begun: Vec<Begun>, reason: Arc<str> },
    /// Sources were asked where the common ends are.
    LookedUp { mirror: Arc<str>, generation: u64, outcome: LookedUp },
    /// Logs of partitions that are being stopped were looked at.
    Inspected(Vec<Inspected>),
    /// They have their markers.
    Marked(Vec<Marked>),
    /// Somebody has records for a partition.
    Append(Box<Append>),
    /// A request has what it waited for.
    Ready(Box<super::requests::Ready>),
}

/// One mirroring host. [`Host::run`] is its whole life.
pub struct Host {
    pub(super) config: ServerConfig,
    pub(super) log_dir: SharedLogDir,
    /// The logs as clients read them.
    pub(super) served: Arc<ServedLogs>,
    pub(super) journal: Journal,
    pub(super) mirrors: Mirrors,
    pub(super) links: BTreeMap<Arc<str>, Link>,
    /// Of the next job.
    pub(super) next_generation: u64,
    /// Partitions whose logs have been given back for a stop.
    pub(super) to_inspect: Vec<Stopping>,
    /// Logs that were looked at, until their positions are stored together.
    pub(super) inspected: Vec<Inspected>,
    /// Logs of partitions that are being stopped, and of which nobody has reported.
    pub(super) at_logs: usize,
    pub(super) log_workers: LogWorkers,
    /// Partitions that were aligned just now: the first cut needs no permission.
    pub(super) aligned: BTreeSet<MirrorKey>,
    /// Mirrors whose job a bug has ended: not started again before the host is.
    pub(super) broken: BTreeSet<Arc<str>>,
    /// Logs were not closed: no marker vouches for them.
    pub(super) is_tainted: bool,
    pub(super) features: Arc<FeatureLevels>,
    pub(super) listener: Listener,
    pub(super) calls: ControlCalls,
    pub(super) news: mpsc::UnboundedReceiver<News>,
    pub(super) news_sender: mpsc::UnboundedSender<News>,
    pub(super) cancel: CancelWatch,
    pub(super) origin: Instant,
    pub(super) shard_errors: Vec<String>,
    pub(super) checkpoint_due: Tick,
    /// Tells how it goes, whenever somebody asks.
    pub(super) publisher: Publisher,
    /// Ends with the host.
    pub(super) endpoint: Option<Endpoint>,
    /// Partitions that have become FAILED, by mirror.
    pub(super) failures: BTreeMap<Arc<str>, u64>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("log_dir", &self.config.log_dir).finish_non_exhaustive()
    }
}

enum Next {
    Cancelled,
    News(News),
    Call(Option<ControlCall>),
    /// Somebody wants to see how it goes, or it is time for something.
    Timer,
}

impl Host {
    /// Mirrors and answers until it is told to stop. Within a `tokio::task::LocalSet`.
    ///
    /// # Errors
    /// [`HostError`] if what was decided cannot be written any more; the next start goes on from
    /// what is durable.
    pub async fn run(mut self) -> Result<HostReport, HostError> {
        let outcome = self.work().await;
        let report = self.close().await;
        outcome.map(|()| report)
    }

    async fn work(&mut self) -> Result<(), HostError> {
        loop {
            self.settle().await?;
            self.show();
            match self.next().await {
                Next::Cancelled => return Ok(()),
                Next::News(first) => {
                    // Very many come at once, and their states are stored together.
                    let mut next = Some(first);
                    for _ in 0..NEWS_AT_ONCE {
                        let Some(news) = next else { break };
                        self.take_news(news).await?;
                        next = self.news.try_recv().ok();
                    }
                    if let Some(last) = next {
                        self.take_news(last).await?;
                    }
                    let inspected = std::mem::take(&mut self.inspected);
                    self.take_inspected(inspected).await?;
                }
                Next::Call(Some(call)) => self.take_call(call).await?,
                // All listeners are gone: nobody can ask any more, and mirroring goes on.
                Next::Call(None) | Next::Timer => {}
            }
            let now = self.now();
            self.mirrors.wake(now, random);
            if now >= self.checkpoint_due {
                self.start_missing_links();
                self.write_checkpoints();
            }
        }
    }

    async fn next(&mut self) -> Next {
        let due = self.mirrors.next_wake().min(self.checkpoint_due).min(self.snapshot_due());
        let deadline = self.origin + due.since(Tick::ZERO);
        tokio::select! {
            biased;
            _ = self.cancel.changed() => Next::Cancelled,
            Some(news) = self.news.recv() => Next::News(news),
            call = self.calls.next() => Next::Call(call),
            () = snapshot::asked(&mut self.publisher) => Next::Timer,
            () = tokio::time::sleep_until(deadline) => Next::Timer,
        }
    }

    async fn take_news(&mut self, news: News) -> Result<(), HostError> {
        match news {
            News::Happened { mirror, generation, happening } => {
                if !self.is_current(&mirror, generation) {
                    return Ok(());
                }
                match happening {
                    Happening::Metadata(metadata) => self.take_metadata(&mirror, metadata).await,
                    Happening::Of(at, outcome) => {
                        self.take_outcome(&mirror, &at, outcome);
                        Ok(())
                    }
                }
            }
            News::JobEnded { mirror, generation, outcome } => {
                self.job_ended(&mirror, generation, outcome);
                Ok(())
            }
            News::Unreachable { mirror, generation, begun, reason } => {
                if self.is_current(&mirror, generation) {
                    for (key, _, run) in begun {
                        let why = Arc::clone(&reason);
                        self.report(&key, |run| Event::SourceUnreachable(run, why), run);
                    }
                }
                Ok(())
            }
            News::LookedUp { mirror, generation, outcome } => {
                if self.is_current(&mirror, generation) {
                    self.take_looked_up(&mirror, outcome);
                }
                Ok(())
            }
            News::Inspected(all) => {
                self.at_logs -= all.len();
                self.inspected.extend(all);
                Ok(())
            }
            News::Marked(all) => {
                self.at_logs -= all.len();
                self.take_marked(all);
                Ok(())
            }
            News::Append(append) => {
                self.take_append(*append).await;
                Ok(())
            }
            News::Ready(ready) => self.take_ready(*ready).await,
        }
    }

    pub(super) fn is_current(&self, mirror: &str, generation: u64) -> bool {
        self.links.get(mirror).is_some_and(|link| link.generation == generation)
    }

    /// Stores what is to be stored and begins what follows, until nothing does.
    pub(super) async fn settle(&mut self) -> Result<(), HostError> {
        loop {
            let to_store = self.mirrors.take_records();
            let had_states = !to_store.is_empty();
            if had_states {
                self.store_states(to_store).await;
            }
            let steps = self.mirrors.take_steps();
            if !had_states && steps.is_empty() {
                break;
            }
            self.carry_out(steps).await?;
        }
        self.inspect_stopping();
        Ok(())
    }

    async fn store_states(&mut self, to_store: ToStore) {
        let records = to_store.records();
        let count = records.len();
        let states: Vec<_> = records
            .iter()
            .filter_map(|record| match record {
                StateRecord::Partition(key, Some(stored)) => {
                    Some((Arc::clone(&key.mirror), stored.state))
                }
                _ => None,
            })
            .collect();
        let passes = |place: &str| {
            for (_, state) in &states {
                crate::fault::point_of(place, state.name());
            }
        };
        passes("state-storing");
        let outcome = self.journal.store(records).await;
        passes("state-stored");
        let lost = match outcome {
            Ok(()) => BTreeSet::new(),
            Err(error) => {
                tracing::warn!("states are stored again: {}", with_causes(&error));
                not_durable(&error, count)
            }
        };
        for (mirror, state) in &states {
            if *state == MirrorState::Failed {
                self.count_failure(mirror);
            }
        }
        let now = self.now();
        self.mirrors.on_stored(to_store, &lost, now, random);
    }

    /// Makes what a stop has left durable, for those of whom nothing is.
    pub(super) async fn store_last_mirrored(
        &mut self,
        all: Vec<(MirrorKey, LastMirrored)>,
    ) -> BTreeSet<MirrorKey> {
        let record = |(key, last): &(MirrorKey, LastMirrored)| {
            StateRecord::LastMirrored(key.clone(), Some(*last))
        };
        let records: Vec<_> = all.iter().map(record).collect();
        let failed = match self.journal.store(records).await {
            Ok(()) => BTreeSet::new(),
            Err(error) => {
                tracing::warn!("last mirrored positions: {}", with_causes(&error));
                not_durable(&error, all.len())
            }
        };
        let mut not_stored = BTreeSet::new();
        for (index, (key, last)) in all.into_iter().enumerate() {
            if failed.contains(&index) {
                not_stored.insert(key);
            } else {
                self.mirrors.set_last_mirrored(key, Some(last));
            }
        }
        not_stored
    }

    /// Tells every partition of a topic what is wanted of it.
    pub(super) fn want(&mut self, topic: &str) {
        let now = self.now();
        let image = self.journal.image();
        let Some(link) = image.mirror_of(topic) else { return };
        let (mirror, desired): (Arc<str>, DesiredState) = (Arc::from(link.mirror), link.desired);
        let Some(known) = image.topic(topic) else { return };
        let (id, epochs): (_, Vec<LeaderEpoch>) =
            (known.id, known.partitions.iter().map(|it| it.leader_epoch).collect());
        for (partition, epoch) in (0..).zip(epochs) {
            let key = MirrorKey { mirror: Arc::clone(&mirror), topic: id, partition };
            self.mirrors.wanted(&key, desired, now, random());
            self.mirrors.set_leader_epoch(&key, epoch);
        }
    }

    /// Ends all jobs, then the log dir.
    async fn close(mut self) -> HostReport {
        self.show_as(Phase::Stopping);
        for link in self.links.values_mut() {
            link.end();
        }
        // No clean stop vouches for a log that somebody still writes to.
        while !self.links.is_empty() || self.at_logs > 0 {
            // The second signal gives up what is not closed yet.
            let is_abort = self.cancel.is_abort();
            if is_abort {
                return HostReport { clean: false, shard_errors: self.shard_errors };
            }
            tokio::select! {
                biased;
                _ = self.cancel.changed() => {
                    for link in self.links.values() {
                        link.handle.cancel();
                    }
                }
                Some(news) = self.news.recv() => self.take_last_news(news),
            }
        }
        self.write_checkpoints();
        let log = self.config.mirror.log;
        if self.is_tainted {
            self.listener.stop();
            return HostReport { clean: false, shard_errors: self.shard_errors };
        }
        let finished = self.log_dir.borrow_mut().finish(log);
        if let Err(error) = &finished {
            tracing::warn!("no clean stop: {}; the next start recovers", with_causes(error));
        }
        let clean = finished.is_ok() && self.shard_errors.is_empty();
        let shard_errors = std::mem::take(&mut self.shard_errors);
        self.listener.stop();
        drop(self.endpoint.take());
        HostReport { clean, shard_errors }
    }

    /// What still counts for a host that ends; the next start goes on with the rest.
    fn take_last_news(&mut self, news: News) {
        match news {
            News::JobEnded { mirror, generation, outcome }
                if self.is_current(&mirror, generation) =>
            {
                if !outcome.as_ref().is_ok_and(|report| report.clean) {
                    self.distrust_all(&mirror);
                }
                self.collect(&mirror, outcome);
                self.links.remove(&mirror);
            }
            News::Inspected(all) => self.at_logs -= all.len(),
            News::Marked(all) => {
                self.at_logs -= all.len();
                self.take_marked(all);
            }
            News::JobEnded { .. }
            | News::Happened { .. }
            | News::LookedUp { .. }
            | News::Unreachable { .. }
            | News::Append(_)
            | News::Ready(_) => {}
        }
    }

    /// Joins the shards of a job that has ended, and keeps what went wrong.
    pub(super) fn collect(&mut self, mirror: &str, outcome: Result<JobReport, JobError>) {
        if let Err(error) = outcome {
            self.shard_errors.push(format!("mirror {mirror}: {error}"));
        }
        if let Some(fleet) = self.links.get_mut(mirror).and_then(|link| link.fleet.take()) {
            let errors = fleet.join().into_iter();
            self.shard_errors.extend(errors.map(|error| format!("mirror {mirror}: {error}")));
        }
    }

    /// Brokers, topics, configs.
    pub(super) fn image(&self) -> &MetadataImage {
        self.journal.image()
    }

    pub(super) fn now(&self) -> Tick {
        Tick::ZERO.after(self.origin.elapsed())
    }

    /// Tells the partition of a run what has become of it; nothing is under way afterwards.
    pub(super) fn report(&mut self, key: &MirrorKey, event: impl FnOnce(Run) -> Event, run: Run) {
        let now = self.now();
        self.mirrors.tell(key, event(run), now, random());
    }

    /// Where a key's partition is, while its topic is there.
    pub(super) fn place(&self, key: &MirrorKey) -> Option<TopicPartition> {
        let topic = self.image().topic_by_id(key.topic)?;
        Some(TopicPartition::new(Arc::clone(&topic.name), key.partition))
    }
}

/// Which of so many records are not known to be durable.
fn not_durable(error: &StateAppendError, count: usize) -> BTreeSet<usize> {
    match error {
        StateAppendError::NotDurable { not_durable, .. } => not_durable.iter().copied().collect(),
        // Nothing was written.
        _ => (0..count).collect(),
    }
}

/// Random enough for back-offs.
pub(super) fn random() -> u64 {
    crate::control::random()
}

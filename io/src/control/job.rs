//! The job's state and its loop: events in, decisions of `heliostat_core::mirror`, then
//! commands, questions and file operations out.

mod closing;
mod opening;
mod publish;
mod reports;
mod source;
mod steered;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use heliostat_core::config::{MirrorConfig, ThrottledPartitions};
use heliostat_core::engine::message::{BrokerAddress, Command, PartitionKey, Trouble};
use heliostat_core::fetcher::{Backoff, BackoffPolicy};
use heliostat_core::log::partition::RecoveredLog;
use heliostat_core::mirror::placement::{Load, Rebalancer};
use heliostat_core::mirror::returned::Policy;
use heliostat_core::mirror::topics::Topics;
use heliostat_core::select::TopicSelector;
use heliostat_core::time::Tick;
use heliostat_core::types::{BrokerId, TopicPartition};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::opening::Settling;
use self::steered::Steered;
use super::by_name::ByName;
use super::cancel::{Cancel, CancelHandle, CancelWatch, cancellation};
use super::copies::Copies;
use super::log_dir::{LogDir, LogDirError, SharedLogDir};
use super::openers::Openers;
use super::questions::{Question, Source};
use super::shards::ShardsError;
use super::status::{Event, EventKind, JobPhase, Status};
use super::steering::Steering;
use crate::shard::mailbox::ControlEnd;
use crate::shard::snapshot::ShardSnapshot;
use crate::source_client::{ClientConfig, HostPort, SocketOptions, SourceClient, SourceError};

/// Time between two sets of checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(5);
/// Time between two published snapshots.
const PUBLISH_EVERY: Duration = Duration::from_millis(250);
/// With many partitions a snapshot costs more, and is worth waiting for.
fn publish_every(partitions: usize) -> Duration {
    const PARTITIONS_PER_STEP: usize = 250;
    const STEPS_MAX: usize = 8;
    let steps = (1 + partitions / PARTITIONS_PER_STEP).min(STEPS_MAX);
    PUBLISH_EVERY * u32::try_from(steps).unwrap_or(1)
}

/// Time between two looks at the free space, and at the balance of the shards.
const SPACE_EVERY: Duration = Duration::from_secs(2);
/// So close to the low-water mark, a disk can be full before the next look.
const SPACE_NEAR_BYTES: u64 = 8 << 30;
const SPACE_NEAR_EVERY: Duration = Duration::from_millis(100);
const BALANCE_EVERY: Duration = Duration::from_secs(10);
/// Time for which sums over all partitions are good enough to place new ones.
const LOADS_FOR: Duration = Duration::from_millis(500);
/// Time between two divisions of the throttle.
const THROTTLE_EVERY: Duration = Duration::from_millis(500);
/// Least time between two refreshes, whoever asks for them.
const REFRESH_GAP: Duration = Duration::from_millis(500);
/// Partitions in one question.
const QUESTION_PARTITIONS_MAX: usize = 2_000;

/// What a job is to do.
#[derive(Clone, Debug)]
pub struct JobConfig {
    /// Where the copy goes.
    pub log_dir: PathBuf,
    /// Settings.
    pub mirror: MirrorConfig,
    /// Where the source is.
    pub bootstrap: Vec<HostPort>,
    /// Which topics.
    pub selector: TopicSelector,
    /// Shards to start.
    pub shards: usize,
    /// Goes on after everything that the source had at the start is copied.
    pub follow: bool,
    /// Longest time for a clean stop.
    pub stop_within: Duration,
}

/// Why a job did not run, or ended early. What was copied is kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The log dir cannot be used.
    #[error(transparent)]
    LogDir(#[from] LogDirError),
    /// The source cannot be reached at the start.
    #[error(transparent)]
    Source(SourceError),
    /// The source has no topic that is to be copied.
    #[error("no topic of the source is to be copied{}", Refusals(refused))]
    NoTopics {
        /// Topics that a pattern includes, and why they are not copied.
        refused: Vec<(Arc<str>, &'static str)>,
    },
    /// The shards did not start.
    #[error(transparent)]
    Shards(#[from] ShardsError),
    /// Another cluster answers at the source's addresses.
    #[error(
        "the source has become cluster {found}, the copy is of cluster {known}; check the \
         bootstrap servers"
    )]
    OtherCluster {
        /// Whose copy it is.
        known: String,
        /// Who answered.
        found: String,
    },
    /// A shard's thread is gone.
    #[error(
        "shard {shard} has ended unexpectedly; see the log above; the copy is as after a crash"
    )]
    ShardLost {
        /// Its index.
        shard: usize,
    },
    /// The system gives no file descriptors to watch the shards.
    #[error("the shards' mailboxes cannot be watched; raise the limit on open files (ulimit -n)")]
    Watch(#[source] std::io::Error),
    /// The system gives no threads to open logs.
    #[error("no threads can be started to open logs; raise the limit on processes (ulimit -u)")]
    Threads(#[source] std::io::Error),
}

struct Refusals<'a>(&'a [(Arc<str>, &'static str)]);

impl std::fmt::Display for Refusals<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN_MAX: usize = 5;
        for (index, (topic, why)) in self.0.iter().take(SHOWN_MAX).enumerate() {
            write!(f, "{} {topic}: {why}", if index == 0 { ";" } else { "," })?;
        }
        if self.0.is_empty() {
            f.write_str("; check the patterns (they are anchored), and this client's rights")?;
        }
        Ok(())
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything that the source had at the start is copied, or has failed.
    CaughtUp,
    /// It was asked to stop.
    Stopped,
    /// It was asked twice, or did not stop in time.
    Aborted,
}

/// Outcome of a job.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// How it ended.
    pub ended: Ended,
    /// The next start finds a clean stop. Otherwise it recovers; nothing is lost.
    pub clean: bool,
    /// The last snapshot.
    pub status: Arc<Status>,
}

/// What may be changed while a job runs.
#[derive(Debug)]
enum Change {
    Throttle { rate: Option<u64>, partitions: ThrottledPartitions },
}

/// Watches and steers a job from any thread.
#[derive(Clone, Debug)]
pub struct JobHandle {
    cancel: CancelHandle,
    changes: mpsc::Sender<Change>,
    status: watch::Receiver<Arc<Status>>,
}

impl JobHandle {
    /// The first call asks for a clean stop, a second one gives that up.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Changes the throttle: bytes a second (`None` for no limit), and what it holds for.
    /// `false`: too many changes wait, or the job has ended.
    pub fn set_throttle(&self, rate: Option<u64>, partitions: ThrottledPartitions) -> bool {
        self.changes.try_send(Change::Throttle { rate, partitions }).is_ok()
    }

    /// The latest snapshot.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status.borrow())
    }

    /// Snapshots as they come.
    pub fn watch(&self) -> watch::Receiver<Arc<Status>> {
        self.status.clone()
    }
}

/// A shard as the job sees it.
struct ShardPort {
    end: ControlEnd,
    /// Commands that found no room yet.
    outbox: VecDeque<Command>,
    /// It has answered [`Command::Stop`].
    stopped: bool,
    /// Rate that it was told; none is what it starts with.
    throttle: Option<u64>,
    snapshot: ShardSnapshot,
}

/// When what is due next.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    refresh: Tick,
    checkpoint: Tick,
    publish: Tick,
    space: Tick,
    balance: Tick,
    throttle: Tick,
}

/// The source as a whole.
struct SourceHealth {
    backoff: Backoff,
    trouble: Option<Arc<str>>,
    /// When the first question was put that failed: a source that hangs has failed since then.
    failing_since: Option<Tick>,
    asked_at: Tick,
    refreshing: bool,
    refreshed_at: Tick,
    refreshes: u64,
    failures: u64,
}

/// What the shards have to do, as it was summed up of late.
#[derive(Debug, Default)]
struct Loads {
    of_shards: Vec<Load>,
    stale_from: Tick,
}

/// What was published, as long as it stands.
#[derive(Debug, Default)]
struct Published {
    /// Of [`Copies::changes`].
    changes: u64,
    /// Nothing in it grows older: no lag, no trouble.
    timeless: bool,
}

/// One job. [`Job::run`] is its whole life.
pub struct Job {
    config: JobConfig,
    log_dir: SharedLogDir,
    /// Of a job that a host steers.
    steered: Option<Steered>,
    openers: Openers,
    /// Logs that are open and wait for the checkpoints.
    unsettled: Vec<(PartitionKey, RecoveredLog)>,
    settling: Settling,
    topics: Topics,
    copies: Copies,
    by_name: ByName<PartitionKey>,
    brokers: Vec<BrokerAddress>,
    silent_on_divergence: BTreeSet<BrokerId>,
    source: Source,
    health: SourceHealth,
    shards: Vec<ShardPort>,
    bells: Vec<AsyncFd<OwnedFd>>,
    rebalancer: Rebalancer,
    loads: Loads,
    parked: bool,
    free_bytes: u64,
    phase: JobPhase,
    due: Due,
    origin: Instant,
    events: VecDeque<Event>,
    events_seen: u64,
    events_by_kind: BTreeMap<EventKind, u64>,
    changes: mpsc::Receiver<Change>,
    cancel: CancelWatch,
    published: watch::Sender<Arc<Status>>,
    publication: Published,
    /// Of [`Copies::changes`], when the checkpoints' offsets were last taken over.
    noted_changes: u64,
    failure: Option<JobError>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("log_dir", &self.config.log_dir).finish_non_exhaustive()
    }
}

/// Settings of the control path's client.
fn client_config(config: &JobConfig) -> ClientConfig {
    let mirror = &config.mirror;
    ClientConfig {
        client_id: mirror.client_id.clone(),
        socket: SocketOptions {
            connect_timeout: mirror.connection_setup_timeout,
            receive_buffer_bytes: mirror.receive_buffer_bytes,
            send_buffer_bytes: mirror.send_buffer_bytes,
        },
        request_timeout: mirror.request_timeout,
        reconnect: reconnect(mirror),
        ..ClientConfig::new(config.bootstrap.clone())
    }
}

fn reconnect(mirror: &MirrorConfig) -> BackoffPolicy {
    let least = Duration::from_millis(1);
    BackoffPolicy::new(mirror.reconnect_backoff.max(least), mirror.reconnect_backoff_max.max(least))
}

impl Job {
    /// Locks the log dir, reads the source's topics for the first time, and starts the
    /// shards by `spawn`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`JobError`]: what is wrong with directory, source, patterns or shards. A job that
    /// follows starts without its source if the directory holds a copy already.
    pub async fn start(
        config: JobConfig,
        spawn: impl FnOnce(&JobConfig) -> Result<Vec<ControlEnd>, ShardsError>,
    ) -> Result<(Self, JobHandle), JobError> {
        let mut log_dir = LogDir::open(&config.log_dir)?;
        let mut client = SourceClient::new(client_config(&config));
        let first = client.metadata(None).await;
        match &first {
            Ok(metadata) => log_dir.bind(metadata.cluster_id.as_deref())?,
            Err(error) if !(config.follow && log_dir.has_copy()) => {
                return Err(JobError::Source(error.clone()));
            }
            Err(_) => {}
        }
        let mut topics = Topics::default();
        let refresh = first.as_ref().ok().map(|first| topics.refresh(first, &config.selector));
        if refresh.as_ref().is_some_and(|refresh| refresh.changes.is_empty()) && !config.follow {
            let refused = refusals(&topics);
            return Err(JobError::NoTopics { refused });
        }
        let log_dir = Rc::new(RefCell::new(log_dir));
        let source = Source::start(client);
        let (mut job, handle) = Self::assemble(config, log_dir, None, topics, source, spawn)?;
        job.begin(first, refresh);
        Ok((job, handle))
    }

    /// A job that does what its host tells it, in a log dir that it may share with others of the
    /// same thread. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`JobError`] if its shards or threads do not start.
    pub fn steered(
        config: JobConfig,
        log_dir: SharedLogDir,
        steering: Steering,
        spawn: impl FnOnce(&JobConfig) -> Result<Vec<ControlEnd>, ShardsError>,
    ) -> Result<(Self, JobHandle), JobError> {
        let source = Source::start(SourceClient::new(client_config(&config)));
        let steered = Some(Steered::new(steering));
        let topics = Topics::default();
        let (mut job, handle) = Self::assemble(config, log_dir, steered, topics, source, spawn)?;
        job.phase = JobPhase::Copying;
        Ok((job, handle))
    }

    fn assemble(
        config: JobConfig,
        log_dir: SharedLogDir,
        steered: Option<Steered>,
        topics: Topics,
        source: Source,
        spawn: impl FnOnce(&JobConfig) -> Result<Vec<ControlEnd>, ShardsError>,
    ) -> Result<(Self, JobHandle), JobError> {
        let ends = spawn(&config)?;
        let bells = ends.iter().map(watch_bell).collect::<std::io::Result<_>>();
        let bells = bells.map_err(JobError::Watch)?;
        let shards = ends.into_iter().map(|end| ShardPort {
            end,
            outbox: VecDeque::new(),
            stopped: false,
            throttle: None,
            snapshot: ShardSnapshot::default(),
        });
        let (canceller, cancel) = cancellation();
        let (change_sender, changes) = mpsc::channel(16);
        let (published, status) = watch::channel(Arc::default());
        let health = SourceHealth {
            backoff: Backoff::default(),
            trouble: None,
            failing_since: None,
            asked_at: Tick::ZERO,
            refreshing: false,
            refreshed_at: Tick::ZERO,
            refreshes: 0,
            failures: 0,
        };
        let threads = usize::try_from(config.mirror.recovery_threads).unwrap_or(1);
        let openers = log_dir.borrow().openers(threads).map_err(JobError::Threads)?;
        let job = Self {
            log_dir,
            steered,
            openers,
            unsettled: Vec::new(),
            settling: Settling::default(),
            topics,
            copies: Copies::default(),
            by_name: ByName::default(),
            brokers: Vec::new(),
            silent_on_divergence: BTreeSet::new(),
            source,
            health,
            shards: shards.collect(),
            bells,
            rebalancer: Rebalancer::default(),
            loads: Loads::default(),
            parked: false,
            free_bytes: 0,
            phase: JobPhase::Starting,
            due: Due::default(),
            origin: Instant::now(),
            events: VecDeque::new(),
            events_seen: 0,
            events_by_kind: BTreeMap::new(),
            changes,
            cancel,
            published,
            publication: Published::default(),
            noted_changes: 0,
            failure: None,
            config,
        };
        Ok((job, JobHandle { cancel: canceller, changes: change_sender, status }))
    }

    fn begin(
        &mut self,
        first: Result<heliostat_core::protocol::Metadata, SourceError>,
        refresh: Option<heliostat_core::mirror::topics::Refresh>,
    ) {
        let warnings = self.log_dir.borrow_mut().take_warnings();
        for warning in warnings {
            self.event(EventKind::Notice, None, &warning);
        }
        let needs_recovery = self.log_dir.borrow().needs_recovery();
        if needs_recovery {
            let text = "the last process did not stop cleanly: logs are recovered as they open";
            self.event(EventKind::Recovered, None, text);
        }
        match first {
            Ok(metadata) => {
                self.take_brokers(&metadata);
                self.take_refresh(refresh.unwrap_or_default());
            }
            Err(error) => self.source_failed(&error),
        }
        self.phase = JobPhase::Copying;
    }

    /// Copies until it is told to stop, or everything is copied that was to be.
    ///
    /// # Errors
    /// [`JobError`] if a shard died or another cluster answers; the copy is as after a
    /// crash then, and the next start recovers it.
    pub async fn run(mut self) -> Result<JobReport, JobError> {
        let ended = loop {
            self.step();
            // While logs are opened there always is a next event: whoever cancels has to run too.
            tokio::task::yield_now().await;
            if self.failure.is_some() || self.cancel.now() == Cancel::Abort {
                break Ended::Aborted;
            }
            if self.cancel.now() == Cancel::Stop {
                break Ended::Stopped;
            }
            if !self.config.follow && self.is_caught_up() {
                break Ended::CaughtUp;
            }
            self.wait().await;
        };
        self.close(ended).await
    }

    /// Waits for the next event and takes it in.
    async fn wait(&mut self) {
        let deadline = self.origin + self.next_deadline().since(Tick::ZERO);
        tokio::select! {
            biased;
            _ = self.cancel.changed() => {}
            shard = rung(&self.bells) => self.take_reports(shard),
            opened = self.openers.next() => self.take_opened(opened),
            answer = self.source.answer() => self.take_answer(answer),
            Some(change) = self.changes.recv() => self.take_change(change),
            order = steered::next_order(&mut self.steered) => self.take_order(order),
            () = tokio::time::sleep_until(deadline) => {}
        }
    }

    fn take_change(&mut self, change: Change) {
        let Change::Throttle { rate, partitions } = change;
        self.config.mirror.throttled_rate = rate;
        self.config.mirror.throttled = partitions;
        let throttled: Vec<_> = self
            .copies
            .values()
            .filter_map(|copy| Some((copy.phase.shard()?, copy.key, copy.at.clone())))
            .collect();
        for (shard, key, at) in throttled {
            let throttled = self.config.mirror.throttled.contains(&at);
            self.command(shard, Command::SetThrottled { key, throttled });
        }
        self.due.throttle = Tick::ZERO;
    }

    /// Everything that is due.
    fn step(&mut self) {
        let now = self.now();
        if now >= self.due.refresh && !self.health.refreshing {
            self.health.refreshing = self.source.ask(Question::Metadata).is_ok();
            self.health.asked_at = now;
            self.due.refresh = now.after(self.config.mirror.metadata_refresh);
        }
        if now >= self.due.space {
            self.look_at_space();
            let least = self.config.mirror.free_min_bytes;
            let near = self.free_bytes < least.saturating_add(SPACE_NEAR_BYTES);
            self.due.space = now.after(if near { SPACE_NEAR_EVERY } else { SPACE_EVERY });
        }
        self.ask_what_is_due(now);
        self.open_what_is_due(now);
        self.settle();
        if now >= self.due.throttle {
            let limited = self.config.mirror.throttled_rate.is_some();
            self.due.throttle = if limited { now.after(THROTTLE_EVERY) } else { Tick::NEVER };
            self.divide_throttle();
        }
        if now >= self.due.balance {
            self.due.balance = now.after(BALANCE_EVERY);
            self.balance();
        }
        if now >= self.due.checkpoint {
            self.due.checkpoint = now.after(CHECKPOINT_EVERY);
            self.write_checkpoints();
        }
        self.flush_outboxes();
        if now >= self.due.publish {
            self.due.publish = now.after(publish_every(self.copies.len()));
            self.publish();
        }
    }

    fn next_deadline(&mut self) -> Tick {
        let Due { refresh, checkpoint, publish, space, balance, throttle } = self.due;
        // One at a time: the next one is due once this one is answered.
        let refresh = if self.health.refreshing { Tick::NEVER } else { refresh };
        let fixed = [refresh, checkpoint, publish, space, balance, throttle];
        // An outbox that is full is tried again at the next publication at the latest, and what
        // no opener takes now with the next answer of one.
        let knows = self.knows_its_source();
        let opens = !self.parked && self.openers.room() > 0 && knows;
        let ask = self.copies.next_ask().filter(|_| knows);
        let open = self.copies.next_open().filter(|_| opens);
        let settle = (!self.unsettled.is_empty()).then(|| self.settling.due());
        let least =
            fixed.into_iter().chain(ask).chain(open).chain(settle).min().unwrap_or(Tick::ZERO);
        least.max(self.now())
    }

    fn now(&self) -> Tick {
        Tick::ZERO.after(self.origin.elapsed())
    }

    fn is_caught_up(&mut self) -> bool {
        self.health.refreshes > 0 && self.copies.all_reached()
    }

    fn policy(&self) -> Policy {
        Policy {
            gap: self.config.mirror.gap_policy,
            unclean_leader_election: self.config.mirror.unclean_leader_election,
        }
    }

    /// A command for a shard, in order behind those that wait.
    fn command(&mut self, shard: usize, command: Command) {
        if let Some(port) = self.shards.get_mut(shard) {
            port.outbox.push_back(command);
        }
    }

    fn flush_outboxes(&mut self) {
        for (index, port) in self.shards.iter_mut().enumerate() {
            while let Some(command) = port.outbox.pop_front() {
                match port.end.try_send(command) {
                    Ok(()) => {}
                    Err(Some(command)) => {
                        port.outbox.push_front(command);
                        break;
                    }
                    Err(None) if port.stopped => break,
                    Err(None) => {
                        self.failure.get_or_insert(JobError::ShardLost { shard: index });
                        break;
                    }
                }
            }
        }
    }

    /// Takes note of something that an operator should see.
    fn event(&mut self, kind: EventKind, partition: Option<&TopicPartition>, text: &str) {
        let place = partition.map(ToString::to_string).unwrap_or_default();
        match kind {
            EventKind::Gap | EventKind::Truncated | EventKind::Failed | EventKind::BadBatch => {
                tracing::warn!(partition = place, "{text}");
            }
            _ => tracing::info!(partition = place, "{text}"),
        }
        if self.events.len() >= super::status::EVENTS_MAX {
            self.events.pop_front();
        }
        self.events_seen += 1;
        *self.events_by_kind.entry(kind).or_default() += 1;
        self.events.push_back(Event {
            time_ms: super::log_dir::now_ms(),
            kind,
            partition: partition.cloned(),
            text: Arc::from(text),
        });
    }
}

#[expect(deprecated, reason = "its successor is unsafe; this fd is owned and never exchanged")]
fn watch_bell(end: &ControlEnd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(end.bell().try_clone_to_owned()?)
}

/// Topics that a pattern includes and that are not copied.
fn refusals(topics: &Topics) -> Vec<(Arc<str>, &'static str)> {
    let refusal = |(topic, selection): (&Arc<str>, &heliostat_core::select::Selection)| {
        Some((Arc::clone(topic), selection.refusal()?))
    };
    topics.refused().iter().filter_map(refusal).collect()
}

/// The first shard that has something to say.
async fn rung(bells: &[AsyncFd<OwnedFd>]) -> usize {
    std::future::poll_fn(|cx| {
        for (index, bell) in bells.iter().enumerate() {
            if let Poll::Ready(Ok(mut guard)) = bell.poll_read_ready(cx) {
                guard.clear_ready();
                return Poll::Ready(index);
            }
        }
        Poll::Pending
    })
    .await
}

/// What holds a partition up, in words.
pub(super) fn trouble_text(trouble: &Trouble) -> Arc<str> {
    match trouble {
        Trouble::Source(code) => match code.hint() {
            Some(hint) => Arc::from(format!("the source answers {code}: {hint}")),
            None => Arc::from(format!("the source answers {code}")),
        },
        Trouble::NoLeader => Arc::from("the partition has no leader at the source"),
        Trouble::Connection(reason) => Arc::clone(reason),
        Trouble::Refused(error) => Arc::from(format!("fetched again: {error}")),
    }
}

/// Random enough for back-offs and seeds.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

#[cfg(test)]
mod tests;

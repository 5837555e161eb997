//! The stop: what was mirrored last is stored, the leader epoch raised, open transactions aborted
//! and producers forgotten, each durable before the next (KIP-1279, STOPPING). It needs nothing
//! of the source. Every step may be repeated: the log and the state log say how far it got.
//!
//! The log itself was closed, and synced, when its shard gave it back.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use heliostat_core::coordinator::alignment::last_mirrored;
use heliostat_core::coordinator::bump::above;
use heliostat_core::coordinator::markers::StopMarkers;
use heliostat_core::coordinator::partition::{Event, Failure, Run};
use heliostat_core::coordinator::{LastMirrored, MirrorKey};
use heliostat_core::log::cold_log::ColdLog;
use heliostat_core::log::recovery::OpenOptions;
use heliostat_core::log::shown::ShownLog;
use heliostat_core::types::{LeaderEpoch, TimestampMs, TopicPartition};
use tokio::sync::Semaphore;

use super::HostError;
use super::error::with_causes;
use super::run::{Host, News};
use crate::control::{Ends, now_ms};
use crate::disk::FileStore;

/// Logs that a thread looks at or writes to before it says so.
const LOGS_PER_REPORT: usize = 16;

/// A partition whose log has been given back for its stop.
#[derive(Clone, Debug)]
pub(super) struct Stopping {
    pub(super) key: MirrorKey,
    pub(super) at: TopicPartition,
    pub(super) run: Run,
    /// Stored by an earlier try of this stop: what the log holds above is not the source's.
    pub(super) last: Option<LastMirrored>,
}

/// A log as it was found: the last epoch and the end.
#[derive(Clone, Debug)]
pub(super) struct Inspected {
    stop: Stopping,
    outcome: Result<LastMirrored, Arc<str>>,
}

/// A log that has its markers, as readers see it from now on.
#[derive(Clone, Debug)]
pub(super) struct Marked {
    stop: Stopping,
    outcome: Result<ShownLog, Arc<str>>,
}

/// How the thread opens a log.
#[derive(Debug)]
struct Task {
    stop: Stopping,
    options: OpenOptions,
}

/// What the markers say.
#[derive(Debug)]
struct MarkTask {
    task: Task,
    last_epoch: LeaderEpoch,
    leader_epoch: LeaderEpoch,
    source_cluster_id: Arc<str>,
}

/// Who looks at logs that are being stopped, and writes their markers.
#[derive(Debug)]
pub(super) struct LogWorkers {
    permits: Arc<Semaphore>,
    store: FileStore,
}

impl LogWorkers {
    /// At most `threads` at a time, over the log dir `root`.
    pub(super) fn new(root: &Path, threads: u32) -> Self {
        let threads = usize::try_from(threads).unwrap_or(1).clamp(1, Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(threads)), store: FileStore::new(root) }
    }
}

impl Host {
    /// Looks at the logs that have been given back.
    pub(super) fn inspect_stopping(&mut self) {
        let all = std::mem::take(&mut self.to_inspect);
        let tasks: Vec<_> = all.into_iter().map(|stop| self.task(stop)).collect();
        self.in_parallel(tasks, |tasks, store| {
            let inspect = |Task { stop, options }: Task| {
                crate::fault::point("stop.inspecting");
                let outcome = inspect(store, &stop, &options);
                Inspected { stop, outcome }
            };
            News::Inspected(tasks.into_iter().map(inspect).collect())
        });
    }

    fn task(&self, stop: Stopping) -> Task {
        let log = self.config.mirror.log;
        let options = self.log_dir.borrow_mut().open_options(&stop.at, stop.key.topic, log, None);
        Task { stop, options }
    }

    /// Divides tasks among threads that may block: few at a time, however many logs are given
    /// back at once, and each for few logs, so that others come in between.
    fn in_parallel<T: Send + 'static>(
        &mut self,
        tasks: Vec<T>,
        work: impl Fn(Vec<T>, &mut FileStore) -> News + Clone + Send + 'static,
    ) {
        self.at_logs += tasks.len();
        let mut tasks = tasks.into_iter().peekable();
        while tasks.peek().is_some() {
            let some: Vec<T> = tasks.by_ref().take(LOGS_PER_REPORT).collect();
            let (work, sender) = (work.clone(), self.news_sender.clone());
            let LogWorkers { permits, store } = &self.log_workers;
            // Clones sync together.
            let (permits, mut store) = (Arc::clone(permits), store.clone());
            // It goes with the host, whose next start repeats what has not begun.
            tokio::task::spawn_local(async move {
                let Ok(permit) = permits.acquire_owned().await else { return };
                tokio::task::spawn_blocking(move || {
                    // A host that has gone hears nothing.
                    let _ = sender.send(work(some, &mut store));
                    drop(permit);
                });
            });
        }
    }

    /// Logs have been looked at: their positions are stored, then their epochs raised, each for
    /// all of them together.
    pub(super) async fn take_inspected(&mut self, all: Vec<Inspected>) -> Result<(), HostError> {
        if all.is_empty() {
            return Ok(());
        }
        crate::fault::point("stop.inspected");
        let mut stops = Vec::new();
        let mut to_store = Vec::new();
        for Inspected { stop, outcome } in all {
            match outcome {
                Ok(found) => {
                    let last = last_mirrored(stop.last, found);
                    // Also of a log that has mirrored nothing: what lies in it is ours.
                    if stop.last != Some(last) {
                        to_store.push((stop.key.clone(), last));
                    }
                    stops.push((stop, last));
                }
                Err(reason) => self.stop_failed(&stop, reason),
            }
        }
        let not_stored = self.store_last_mirrored(to_store).await;
        crate::fault::point("stop.position-stored");
        let mut wanted = Vec::new();
        for (stop, last) in &stops {
            // The source may be ahead of what was mirrored, and its epochs are not ours to use.
            let link = self.links.get(&stop.key.mirror);
            let source = link.map_or(LeaderEpoch::NONE, |link| link.source_epoch(&stop.at));
            let used = match last.epoch.known() {
                Some(epoch) => source.max(epoch),
                // Nothing was mirrored, and nothing may be known of the source.
                None => above(source),
            };
            wanted.push((stop.key.topic, stop.at.partition, used));
        }
        let refused = self.raise(wanted).await?;
        crate::fault::point("stop.epoch-raised");
        let mut tasks = Vec::new();
        for (stop, last) in stops {
            if not_stored.contains(&stop.key) {
                let reason = "its last mirrored position could not be stored; check the disk";
                self.stop_failed(&stop, Arc::from(reason));
            } else if let Some(reason) = refused.get(&(stop.key.topic, stop.at.partition)) {
                self.stop_failed(&stop, Arc::clone(reason));
            } else {
                tasks.push(self.mark_task(stop, last.epoch));
            }
        }
        self.in_parallel(tasks, |tasks, store| {
            let mark = |task: MarkTask| {
                let outcome = mark(store, &task);
                Marked { stop: task.task.stop, outcome }
            };
            News::Marked(tasks.into_iter().map(mark).collect())
        });
        Ok(())
    }

    fn mark_task(&self, stop: Stopping, last_epoch: LeaderEpoch) -> MarkTask {
        let leader_epoch = self.local_epoch(&stop.at);
        let source = self
            .image()
            .config(
                heliostat_core::metadata::image::ResourceType::MIRROR,
                &stop.key.mirror,
                heliostat_core::config::MIRROR_SOURCE_CLUSTER_ID,
            )
            .unwrap_or_default();
        let source_cluster_id = Arc::from(source);
        MarkTask { task: self.task(stop), last_epoch, leader_epoch, source_cluster_id }
    }

    pub(super) fn take_marked(&mut self, all: Vec<Marked>) {
        crate::fault::point("stop.marked");
        let mut failed = BTreeSet::new();
        for Marked { stop, outcome } in all {
            match outcome {
                Ok(log) => {
                    let (log_start, log_end) = (log.log_start, log.log_end);
                    let ends = Ends { log_start, recovery_point: log_end, high_watermark: log_end };
                    self.log_dir.borrow_mut().closed(&stop.at, ends);
                    if let Some(readers) = self.served.log_at(&stop.at) {
                        readers.show_at_rest(log);
                    }
                    self.report(&stop.key, Event::Finished, stop.run);
                }
                Err(reason) => {
                    self.log_dir.borrow_mut().distrust(&stop.at);
                    if failed.insert(stop.key.clone()) {
                        self.stop_failed(&stop, reason);
                    }
                }
            }
        }
    }

    fn stop_failed(&mut self, stop: &Stopping, reason: Arc<str>) {
        let failure = Failure { reason, retryable: true };
        self.report(&stop.key, |run| Event::Failed(run, failure), stop.run);
    }
}

fn inspect(
    store: &mut FileStore,
    stop: &Stopping,
    options: &OpenOptions,
) -> Result<LastMirrored, Arc<str>> {
    let (log, _) =
        ColdLog::open(store, &stop.at.to_string(), options).map_err(|error| with_causes(&error))?;
    let epoch = log.epochs().latest().map_or(LeaderEpoch::NONE, |entry| entry.epoch);
    Ok(LastMirrored { epoch, offset: log.log_end() })
}

fn mark(store: &mut FileStore, task: &MarkTask) -> Result<ShownLog, Arc<str>> {
    let MarkTask { task, last_epoch, leader_epoch, source_cluster_id } = task;
    let dir = task.stop.at.to_string();
    let (mut log, _) =
        ColdLog::open(store, &dir, &task.options).map_err(|error| with_causes(&error))?;
    let markers = StopMarkers {
        last_mirrored: *last_epoch,
        leader_epoch: *leader_epoch,
        source_cluster_id,
        timestamp: TimestampMs(now_ms()),
    };
    let from = markers.written_from(log.epochs(), log.log_end());
    let mut has_reset = false;
    let mut see = |meta: &heliostat_core::records::BatchMeta, _: &[u8]| {
        has_reset |= markers.is_reset(meta);
        if has_reset { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    if from < log.log_end() {
        log.read(store, from, &mut see).map_err(|error| with_causes(&error))?;
    }
    let missing = markers
        .missing(log.log_end(), log.producers(), has_reset)
        .map_err(|error| with_causes(&error))?;
    for batch in missing {
        log.append(store, &batch).map_err(|error| with_causes(&error))?;
        crate::fault::point("stop.marker-written");
    }
    Ok(ShownLog::of_cold(&log))
}

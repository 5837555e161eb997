//! What the host shows of itself: a snapshot that the control thread takes when somebody asks.
//!
//! Whoever asks waits, up to a limit, for one that is taken afterwards; so an answer also says
//! that the control thread goes on. The control thread waits for nobody, and takes at most a few
//! a second, however many ask, and the fewer the longer one takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use heliostat_core::coordinator::MirrorState;
use heliostat_core::coordinator::partition::Stored;
use heliostat_core::log::gaps::GapKind;
use heliostat_core::time::Tick;
use heliostat_core::types::TopicPartition;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::link::Link;
use super::run::Host;
use crate::control::{PartitionStatus, Status};

/// Least time between two snapshots.
const EVERY: Duration = Duration::from_millis(200);
/// The same in times of what one took: they cost a twentieth of the control thread at most.
const TIMES_WHAT_IT_TOOK: u32 = 20;
/// Longest wait for the control thread. It may be waiting for the disk.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// Where the host is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Logs are replayed.
    #[default]
    Starting,
    /// The control thread answers.
    Running,
    /// Jobs and logs are being closed.
    Stopping,
}

/// A host at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) phase: Phase,
    /// When it was taken; `None` of one that says nothing yet.
    pub(super) taken_at: Option<Instant>,
    pub(super) node: i32,
    pub(super) cluster: String,
    /// Time since the start.
    pub(super) elapsed: Duration,
    /// What went wrong in shards.
    pub(super) shard_errors: Vec<String>,
    /// Mirrors without a job, in words.
    pub(super) missing: Vec<String>,
    /// By name.
    pub(super) mirrors: Vec<MirrorSnapshot>,
}

/// A mirror at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct MirrorSnapshot {
    pub(super) name: String,
    pub(super) topics: usize,
    /// Partitions by state.
    pub(super) states: BTreeMap<MirrorState, usize>,
    /// Failures since the last success, of all partitions.
    pub(super) retries: u64,
    /// Failed partitions that are not tried again by themselves.
    pub(super) given_up: usize,
    /// Partitions that have become FAILED, since the start.
    pub(super) failures: u64,
    pub(super) gaps: u64,
    pub(super) truncations: u64,
    /// What its job says.
    pub(super) job: Option<Arc<Status>>,
    /// Those with series of their own: all, or none if they are too many.
    pub(super) partitions: Vec<PartitionSnapshot>,
}

/// A partition at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartitionSnapshot {
    pub(super) at: TopicPartition,
    pub(super) state: MirrorState,
    /// Failures since the last success; −1 if it is not tried again by itself.
    pub(super) attempts: i16,
    pub(super) gaps: u64,
    pub(super) truncations: u64,
}

impl MirrorSnapshot {
    fn add(&mut self, stored: &Stored, max_attempts: u16) {
        *self.states.entry(stored.state).or_default() += 1;
        let attempts = stored.attempts.counted();
        self.retries += attempts.map_or(0, u64::from);
        let is_over = attempts.is_none_or(|attempts| attempts >= max_attempts);
        self.given_up += usize::from(stored.state == MirrorState::Failed && is_over);
    }

    /// What its job says of a partition.
    pub(super) fn status_of(&self, at: &TopicPartition) -> Option<&PartitionStatus> {
        let all = &self.job.as_ref()?.partitions;
        let index = all.binary_search_by(|status| status.partition.cmp(at)).ok()?;
        all.get(index)
    }

    pub(super) fn partition_count(&self) -> usize {
        self.states.values().sum()
    }
}

/// The control thread's end.
#[derive(Debug)]
pub(super) struct Publisher {
    asked: Arc<Notify>,
    latest: watch::Sender<Arc<Snapshot>>,
    is_asked: bool,
    not_before: Tick,
}

/// The end of whoever looks, on any thread.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    asked: Arc<Notify>,
    latest: watch::Receiver<Arc<Snapshot>>,
}

/// A look at the host.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) snapshot: Arc<Snapshot>,
    /// The control thread has not answered in time: it is an old one.
    pub(super) is_late: bool,
}

/// Both ends.
pub(super) fn view() -> (Publisher, Viewer) {
    let asked = Arc::new(Notify::new());
    let (sender, latest) = watch::channel(Arc::default());
    let publisher = Publisher {
        asked: Arc::clone(&asked),
        latest: sender,
        // The first one ends the phase of starting.
        is_asked: true,
        not_before: Tick::ZERO,
    };
    (publisher, Viewer { asked, latest })
}

impl Viewer {
    /// What the control thread says, or has said last.
    pub(super) async fn look(&self) -> Look {
        let mut latest = self.latest.clone();
        let known = Arc::clone(&latest.borrow_and_update());
        if known.phase != Phase::Running {
            // There is nobody to ask.
            return Look { snapshot: known, is_late: false };
        }
        self.asked.notify_one();
        let answered = timeout(ANSWERS_WITHIN, latest.changed()).await;
        let is_late = !matches!(answered, Ok(Ok(())));
        let snapshot = Arc::clone(&latest.borrow());
        Look { snapshot, is_late }
    }
}

impl Publisher {
    /// When the next snapshot is due.
    pub(super) fn due(&self) -> Tick {
        if self.is_asked { self.not_before } else { Tick::NEVER }
    }

    /// Waits until somebody asks. May be cancelled.
    async fn asked(&mut self) {
        self.asked.notified().await;
        self.is_asked = true;
    }

    fn publish(&mut self, snapshot: Snapshot, now: Tick, took: Duration) {
        self.latest.send_replace(Arc::new(snapshot));
        self.is_asked = false;
        self.not_before = now.after(EVERY.max(took.saturating_mul(TIMES_WHAT_IT_TOOK)));
    }
}

/// Waits until somebody asks for a snapshot; for ever, if one is due.
pub(super) async fn asked(publisher: &mut Publisher) {
    if publisher.is_asked {
        return std::future::pending().await;
    }
    publisher.asked().await;
}

impl Host {
    /// When the next snapshot is due.
    pub(super) fn snapshot_due(&self) -> Tick {
        self.publisher.due()
    }

    /// Takes and shows a snapshot, if one is due.
    pub(super) fn show(&mut self) {
        let began = self.now();
        if began < self.snapshot_due() {
            return;
        }
        self.show_as(Phase::Running);
    }

    /// Takes and shows a snapshot.
    pub(super) fn show_as(&mut self, phase: Phase) {
        let began = self.now();
        let snapshot = Snapshot { phase, ..self.look() };
        let now = self.now();
        self.publisher.publish(snapshot, now, now.since(began));
    }

    /// Takes note that a partition has failed.
    pub(super) fn count_failure(&mut self, mirror: &Arc<str>) {
        *self.failures.entry(Arc::clone(mirror)).or_default() += 1;
    }

    fn look(&self) -> Snapshot {
        let image = self.image();
        let mut missing = Vec::new();
        let mut mirrors = BTreeMap::<&str, MirrorSnapshot>::new();
        for name in image.mirrors() {
            let link = self.links.get(name);
            missing.extend(lacks(name, link));
            let mirror = MirrorSnapshot {
                name: name.to_owned(),
                failures: self.failures.get(name).copied().unwrap_or_default(),
                job: link.map(|link| link.handle.status()),
                ..MirrorSnapshot::default()
            };
            mirrors.insert(name, mirror);
        }
        for topic in image.topics() {
            let link = image.mirror_of(&topic.name);
            if let Some(mirror) = link.and_then(|link| mirrors.get_mut(link.mirror)) {
                mirror.topics += 1;
            }
        }
        let log_dir = self.log_dir.borrow();
        let mut cuts = BTreeMap::<&TopicPartition, (u64, u64)>::new();
        for gap in log_dir.gaps() {
            let of_partition = cuts.entry(&gap.partition).or_default();
            let link = image.mirror_of(&gap.partition.topic);
            let mirror = link.and_then(|link| mirrors.get_mut(link.mirror));
            let (gaps, truncations) = match gap.kind {
                GapKind::Gap => (1, 0),
                GapKind::Truncation => (0, 1),
            };
            of_partition.0 += gaps;
            of_partition.1 += truncations;
            if let Some(mirror) = mirror {
                mirror.gaps += gaps;
                mirror.truncations += truncations;
            }
        }
        let limit = usize::try_from(self.config.metrics_partitions_max).unwrap_or(usize::MAX);
        let are_listed = self.mirrors.iter().count() <= limit;
        for (key, partition) in self.mirrors.iter() {
            let Some(mirror) = mirrors.get_mut(&*key.mirror) else { continue };
            mirror.add(partition.stored(), self.config.retry.max_attempts);
            if are_listed && let Some(at) = self.place(key) {
                let (gaps, truncations) = cuts.get(&at).copied().unwrap_or_default();
                let attempts = partition.stored().attempts.stored();
                let state = partition.state();
                let listed = PartitionSnapshot { at, state, attempts, gaps, truncations };
                mirror.partitions.push(listed);
            }
        }
        for mirror in mirrors.values_mut() {
            mirror.partitions.sort_by(|a, b| a.at.cmp(&b.at));
        }
        Snapshot {
            phase: Phase::Running,
            taken_at: Some(Instant::now()),
            node: self.config.node_id.0,
            cluster: log_dir.cluster_id().unwrap_or_default().to_owned(),
            elapsed: self.origin.elapsed(),
            shard_errors: self.shard_errors.clone(),
            missing,
            mirrors: mirrors.into_values().collect(),
        }
    }
}

/// What a mirror's job lacks, in words.
fn lacks(name: &str, link: Option<&Link>) -> Option<String> {
    match link {
        Some(link) if link.ending => Some(format!("mirror {name}: its job is being started again")),
        Some(_) => None,
        None => Some(format!(
            "mirror {name}: its job does not run; see this host's log, and alter the mirror's \
             configs or restart the host"
        )),
    }
}

#[cfg(test)]
mod tests {
    use heliostat_core::coordinator::retry::Attempts;

    use super::*;

    fn running() -> Snapshot {
        Snapshot { phase: Phase::Running, ..Snapshot::default() }
    }

    fn at(ms: u64) -> Tick {
        Tick::ZERO.after(Duration::from_millis(ms))
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_looks_gets_what_is_taken_afterwards() {
        let (mut publisher, viewer) = view();
        let look = viewer.look().await;
        assert_eq!((look.snapshot.phase, look.is_late), (Phase::Starting, false));
        assert_eq!(publisher.due(), Tick::ZERO);
        publisher.publish(running(), at(10), Duration::ZERO);
        assert_eq!(publisher.due(), Tick::NEVER);
        let control = async {
            publisher.asked().await;
            assert_eq!(publisher.due(), at(10).after(EVERY));
            let node = 7;
            publisher.publish(Snapshot { node, ..running() }, at(300), Duration::from_secs(1));
        };
        let (one, two, ()) = tokio::join!(viewer.look(), viewer.look(), control);
        assert_eq!((one.snapshot.node, one.is_late), (7, false));
        assert_eq!((two.snapshot.node, two.is_late), (7, false));
        assert_eq!((publisher.due(), publisher.not_before), (Tick::NEVER, at(20_300)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_control_thread_that_says_nothing_is_told_apart() {
        let (mut publisher, viewer) = view();
        publisher.publish(running(), at(0), Duration::ZERO);
        let began = Instant::now();
        let look = viewer.look().await;
        assert!(look.is_late);
        assert_eq!(began.elapsed(), ANSWERS_WITHIN);
        drop(publisher);
        assert!(viewer.look().await.is_late);
    }

    #[test]
    fn failures_with_and_without_another_try_are_told_apart() {
        let mut mirror = MirrorSnapshot::default();
        let failed =
            |attempts| Stored { state: MirrorState::Failed, attempts, ..Stored::default() };
        for stored in [
            failed(Attempts::new(2)),
            failed(Attempts::new(10)),
            failed(Attempts::NEVER_AGAIN),
            Stored { state: MirrorState::Mirroring, ..Stored::default() },
        ] {
            mirror.add(&stored, 10);
        }
        assert_eq!((mirror.retries, mirror.given_up, mirror.partition_count()), (12, 2, 4));
        assert_eq!(mirror.states[&MirrorState::Failed], 3);
    }
}

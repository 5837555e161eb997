//! A copy of a cluster: its log dir, and the jobs that write it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use heliostat_core::config::{MirrorConfig, ThrottledPartitions};
use heliostat_core::select::TopicSelector;
use heliostat_io::control::{
    Job, JobConfig, JobHandle, JobReport, PartitionState, PartitionStatus, Status, spawn_shards,
};
use heliostat_io::source_client::{HostPort, HostPortError};
use tempfile::TempDir;

use super::error::{Result, ScenarioError, ensure};
use crate::kafka::{KafkaError, wait};

/// Longest wait for a state of a copy. Brokers that come back take most of it.
pub(crate) const COPY_TIMEOUT: Duration = Duration::from_mins(3);

/// Ends of partitions, exclusive, by `topic-partition`.
pub type Ends = BTreeMap<String, i64>;

/// What a job does, for whoever runs it.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// The log dir.
    pub dir: PathBuf,
    /// Brokers of the source.
    pub bootstrap: String,
    /// Patterns of the topics.
    pub topics: String,
    /// Properties.
    pub pairs: Vec<(String, String)>,
    /// Shards.
    pub shards: usize,
}

impl JobPlan {
    /// Starts a job in this process that follows until it is stopped.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Job`].
    pub fn follow(&self) -> Result<Mirror> {
        self.start(true)
    }

    fn start(&self, follow: bool) -> Result<Mirror> {
        let config = self.config(follow)?;
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || run_job(config, &sender));
        match receiver.recv() {
            Ok(handle) => Ok(Mirror { handle, thread }),
            Err(mpsc::RecvError) => match joined(thread) {
                Ok(report) => Err(ScenarioError::Wrong(format!("ended at once: {report:?}"))),
                Err(error) => Err(error),
            },
        }
    }

    /// Addresses of the source.
    pub(crate) fn bootstrap(&self) -> Result<Vec<HostPort>> {
        let parse = |address: &str| {
            address.parse().map_err(|error: HostPortError| ScenarioError::Wrong(error.to_string()))
        };
        self.bootstrap.split(',').map(parse).collect()
    }

    fn config(&self, follow: bool) -> Result<JobConfig> {
        let wrong = |error: &dyn std::fmt::Display| ScenarioError::Wrong(error.to_string());
        let mirror = MirrorConfig::from_pairs(self.pairs.clone()).map_err(|e| wrong(&e))?;
        let selector = TopicSelector::new(&self.topics, "").map_err(|e| wrong(&e))?;
        Ok(JobConfig {
            log_dir: self.dir.clone(),
            mirror,
            bootstrap: self.bootstrap()?,
            selector,
            shards: self.shards,
            follow,
            stop_within: COPY_TIMEOUT,
        })
    }
}

/// A log dir and how it is filled.
#[derive(Debug)]
pub struct Copy {
    plan: JobPlan,
    _dir: Option<TempDir>,
}

impl Copy {
    /// A fresh log dir for `topics` of the brokers at `bootstrap`.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::File`].
    pub fn new(bootstrap: &str, topics: &str) -> Result<Self> {
        let dir =
            TempDir::with_prefix("copy-").map_err(ScenarioError::file(&std::env::temp_dir()))?;
        let copy = Self::at(dir.path(), bootstrap, topics);
        Ok(Self { _dir: Some(dir), ..copy })
    }

    /// The same in a given log dir, which stays.
    pub fn at(dir: impl Into<PathBuf>, bootstrap: &str, topics: &str) -> Self {
        let plan = JobPlan {
            dir: dir.into(),
            bootstrap: bootstrap.into(),
            topics: topics.into(),
            pairs: vec![("mirror.metadata.refresh.interval.ms".to_owned(), "1000".to_owned())],
            shards: 1,
        };
        Self { plan, _dir: None }
    }

    /// Sets a property.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.plan.pairs.push((key.to_owned(), value.to_string()));
        self
    }

    /// Sets the number of shards.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Self {
        self.plan.shards = shards;
        self
    }

    /// The log dir.
    pub fn dir(&self) -> &Path {
        &self.plan.dir
    }

    /// What its jobs do.
    pub fn plan(&self) -> &JobPlan {
        &self.plan
    }

    /// Directory of `topic-partition`.
    pub fn partition_dir(&self, partition: &str) -> PathBuf {
        self.plan.dir.join(partition)
    }

    /// Gaps and truncations on record, one a line; empty without any.
    pub fn gaps(&self) -> String {
        std::fs::read_to_string(self.plan.dir.join("mirror-gaps")).unwrap_or_default()
    }

    /// Starts a job that follows until it is stopped.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Job`].
    pub fn follow(&self) -> Result<Mirror> {
        self.plan.start(true)
    }

    /// Copies what is there.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Job`].
    pub fn once(&self) -> Result<JobReport> {
        self.plan.start(false)?.ended()
    }
}

fn run_job(config: JobConfig, started: &mpsc::Sender<JobHandle>) -> Result<JobReport> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ScenarioError::Wrong(error.to_string()))?;
    runtime.block_on(async move {
        let mut fleet = None;
        let start = Job::start(config, |config| {
            let (threads, ends) =
                spawn_shards(&config.log_dir, &config.mirror, config.shards, None)?;
            fleet = Some(threads);
            Ok(ends)
        });
        let (job, handle) = start.await?;
        // The scenario may have given up.
        let _ = started.send(handle);
        let report = job.run().await;
        let failures = fleet.map(|fleet| fleet.join()).unwrap_or_default();
        ensure(failures.is_empty(), || format!("shards: {failures:?}"))?;
        Ok(report?)
    })
}

fn joined(thread: JoinHandle<Result<JobReport>>) -> Result<JobReport> {
    match thread.join() {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// A running job of this process.
#[derive(Debug)]
pub struct Mirror {
    handle: JobHandle,
    thread: JoinHandle<Result<JobReport>>,
}

impl Mirror {
    /// The latest snapshot.
    pub fn status(&self) -> Arc<Status> {
        self.handle.status()
    }

    /// Ends of its partitions.
    pub fn ends(&self) -> Ends {
        ends_of(&self.handle.status())
    }

    /// Fails when the job has ended.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::NotReached`].
    pub fn check(&self) -> Result<()> {
        ensure(!self.thread.is_finished(), || {
            format!("the job has ended: {}", summary(&self.handle.status()))
        })
    }

    /// Waits until the status is as `wanted`.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::NotReached`] with what is there instead.
    pub fn wait(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Result<Arc<Status>> {
        let reached = wait::until(what, COPY_TIMEOUT, || {
            let status = self.handle.status();
            if wanted(&status) || self.thread.is_finished() {
                return Ok(Some(status));
            }
            Ok(None)
        });
        let status = self.handle.status();
        match reached {
            Ok(status) if wanted(&status) => Ok(status),
            Ok(_) | Err(KafkaError::Timeout { .. }) => Err(ScenarioError::NotReached {
                what: what.to_owned(),
                waited: COPY_TIMEOUT,
                seen: summary(&status),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until all partitions of `ends` are copied up to there.
    ///
    /// # Errors
    ///
    /// Those of [`wait`](Self::wait).
    pub fn wait_for_ends(&self, ends: &Ends) -> Result<()> {
        let reached = |status: &Status| {
            let by_name = ends_of(status);
            ends.iter().all(|(name, end)| by_name.get(name).is_some_and(|copied| copied >= end))
        };
        self.wait(&format!("copied up to {ends:?}"), reached).map(drop)
    }

    /// Waits until `partition` has failed, and returns why.
    ///
    /// # Errors
    ///
    /// Those of [`wait`](Self::wait).
    pub fn wait_for_failure(&self, partition: &str) -> Result<String> {
        let failed = |status: &Status| {
            find(status, partition).is_some_and(|part| part.state == PartitionState::Failed)
        };
        let status = self.wait(&format!("{partition} failed"), failed)?;
        let trouble = find(&status, partition).and_then(|part| part.trouble.clone());
        Ok(trouble.map(|(why, _)| why.to_string()).unwrap_or_default())
    }

    /// Ends its throttle.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Wrong`] when the job has ended.
    pub fn unthrottle(&self) -> Result<()> {
        let taken = self.handle.set_throttle(None, ThrottledPartitions::All);
        ensure(taken, || "no throttle can be changed: the job has ended".to_owned())
    }

    /// Stops it, however clean that is.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Job`].
    pub fn end(self) -> Result<JobReport> {
        self.handle.cancel();
        joined(self.thread)
    }

    /// Stops it, and insists on a clean stop.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Job`], [`ScenarioError::Wrong`] when it was not clean.
    pub fn stop(self) -> Result<JobReport> {
        let report = self.end()?;
        ensure(report.clean, || format!("no clean stop: {}", summary(&report.status)))?;
        Ok(report)
    }

    fn ended(self) -> Result<JobReport> {
        joined(self.thread)
    }
}

fn ends_of(status: &Status) -> Ends {
    let end = |part: &PartitionStatus| (part.partition.to_string(), part.log_end.0);
    status.partitions.iter().map(end).collect()
}

/// One partition of a status.
pub fn find<'a>(status: &'a Status, partition: &str) -> Option<&'a PartitionStatus> {
    status.partitions.iter().find(|part| part.partition.to_string() == partition)
}

/// What a person needs of a status.
pub(crate) fn summary(status: &Status) -> String {
    let mut text =
        format!("phase {:?}, source trouble {:?}\n", status.phase, status.source_trouble);
    for part in status.partitions.iter() {
        let line = format!(
            "{} {:?} {}..{} source {} trouble {:?}\n",
            part.partition,
            part.state,
            part.log_start,
            part.log_end,
            part.source_high_watermark,
            part.trouble
        );
        text.push_str(&line);
    }
    for event in status.events.iter().rev().take(20) {
        let at = event.partition.as_ref().map(ToString::to_string).unwrap_or_default();
        let line = format!("{:?} {at} {}\n", event.kind, event.text);
        text.push_str(&line);
    }
    text
}

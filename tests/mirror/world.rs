//! A source (the embedded one), a log dir, and jobs that mirror the one to the other.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heliostat_core::config::MirrorConfig;
use heliostat_core::log::config::LogConfig;
use heliostat_core::records::{BatchBuilder, NewRecord};
use heliostat_core::select::TopicSelector;
use heliostat_core::types::{BrokerId, Offset, TimestampMs, TopicId};
use heliostat_io::control::{
    Job, JobConfig, JobError, JobHandle, JobReport, PartitionState, PartitionStatus, Status,
    spawn_shards,
};
use heliostat_io::listener::hosted::{Catalog, CatalogConfig, Partition, Topic, TopicSpec};
use heliostat_io::listener::{Listener, ListenerConfig};
use uuid::Uuid;

const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) listener: Listener,
    from: tempfile::TempDir,
    to: tempfile::TempDir,
}

/// A running job.
pub(crate) struct Mirror {
    pub(crate) handle: JobHandle,
    thread: JoinHandle<Result<JobReport, JobError>>,
}

impl World {
    pub(crate) fn new() -> Self {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = CatalogConfig {
            cluster_id: "source".to_owned(),
            node_id: BrokerId(1),
            log: LogConfig::default(),
        };
        let catalog = Arc::new(Catalog::open(from.path(), config).unwrap());
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = ListenerConfig::new(any, BrokerId(1));
        let listener = Listener::start(Arc::clone(&catalog), config).unwrap();
        Self { catalog, listener, from, to }
    }

    pub(crate) fn topic(&self, name: &str, partitions: i32) -> Topic {
        let spec = TopicSpec {
            name: name.to_owned(),
            partitions,
            topic_id: TopicId(Uuid::new_v4()),
            configs: std::collections::BTreeMap::default(),
            log: LogConfig::default(),
        };
        self.catalog.create_topic(spec).unwrap()
    }

    pub(crate) fn copy_dir(&self) -> &Path {
        self.to.path()
    }

    /// Starts a job; `pairs` are properties.
    pub(crate) fn start(
        &self,
        topics: &str,
        follow: bool,
        pairs: &[(&str, &str)],
    ) -> Result<Mirror, JobError> {
        let fast = [("mirror.metadata.refresh.interval.ms", "300")];
        let pairs = fast.iter().chain(pairs).map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let config = JobConfig {
            log_dir: self.to.path().to_path_buf(),
            mirror: MirrorConfig::from_pairs(pairs).unwrap(),
            bootstrap: vec![self.listener.address().to_string().parse().unwrap()],
            selector: TopicSelector::new(topics, "").unwrap(),
            shards: 1,
            follow,
            stop_within: DEADLINE,
        };
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let mut fleet = None;
                let started = Job::start(config, |config| {
                    let (threads, ends) =
                        spawn_shards(&config.log_dir, &config.mirror, config.shards, None)?;
                    fleet = Some(threads);
                    Ok(ends)
                });
                let job = match started.await {
                    Ok((job, handle)) => {
                        sender.send(Some(handle)).unwrap();
                        job
                    }
                    Err(error) => {
                        sender.send(None).unwrap();
                        return Err(error);
                    }
                };
                let report = job.run().await;
                let failures = fleet.map(|fleet| fleet.join()).unwrap_or_default();
                assert!(failures.is_empty(), "{failures:?}");
                report
            })
        });
        match receiver.recv().unwrap() {
            Some(handle) => Ok(Mirror { handle, thread }),
            None => Err(thread.join().unwrap().err().unwrap()),
        }
    }

    /// Copies what is there and stops.
    pub(crate) fn copy(&self, topics: &str, pairs: &[(&str, &str)]) -> JobReport {
        self.start(topics, false, pairs).unwrap().thread.join().unwrap().unwrap()
    }

    /// The copy's segments hold the source's batches from offset `from` on, and nothing else.
    #[track_caller]
    pub(crate) fn assert_equal(&self, partition: &str) {
        let (source, copy) = (self.source_bytes(partition), self.copy_bytes(partition));
        let differs = copy.iter().zip(&source).position(|(a, b)| a != b);
        assert_eq!((copy.len(), differs), (source.len(), None), "{partition}");
    }

    pub(crate) fn source_bytes(&self, partition: &str) -> Vec<u8> {
        log_bytes(&self.from.path().join(partition))
    }

    pub(crate) fn copy_bytes(&self, partition: &str) -> Vec<u8> {
        log_bytes(&self.to.path().join(partition))
    }

    pub(crate) fn gaps(&self) -> String {
        std::fs::read_to_string(self.to.path().join("mirror-gaps")).unwrap_or_default()
    }
}

fn log_bytes(dir: &Path) -> Vec<u8> {
    let mut names: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    names.sort();
    names.iter().flat_map(|path| std::fs::read(path).unwrap()).collect()
}

impl Mirror {
    /// Waits until the status is as `wanted`.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Arc<Status> {
        let since = Instant::now();
        loop {
            let status = self.handle.status();
            if wanted(&status) {
                return status;
            }
            assert!(since.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}\n{status:#?}");
            assert!(!self.thread.is_finished(), "the job ended before: {what}\n{status:#?}");
            std::thread::yield_now();
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Waits until `partition` holds everything below `log_end`.
    #[track_caller]
    pub(crate) fn wait_for_end(&self, partition: &str, log_end: Offset) {
        self.wait(&format!("{partition} at {log_end}"), |status| {
            find(status, partition).is_some_and(|part| part.log_end >= log_end)
        });
    }

    /// Waits until `partition` has failed, and returns why.
    #[track_caller]
    pub(crate) fn wait_for_failure(&self, partition: &str) -> String {
        let status = self.wait(&format!("{partition} failed"), |status| {
            find(status, partition).is_some_and(|part| part.state == PartitionState::Failed)
        });
        let part = find(&status, partition).unwrap();
        part.trouble.as_ref().unwrap().0.to_string()
    }

    pub(crate) fn stop(self) -> JobReport {
        self.handle.cancel();
        self.thread.join().unwrap().unwrap()
    }
}

pub(crate) fn find<'a>(status: &'a Status, partition: &str) -> Option<&'a PartitionStatus> {
    status.partitions.iter().find(|part| part.partition.to_string() == partition)
}

/// Appends `batches` batches of three records, as the partition's leader.
pub(crate) fn produce(partition: &Partition, batches: usize, value: &str) -> Offset {
    let mut end = Offset::ZERO;
    for index in 0..batches {
        let mut builder = BatchBuilder::new(Offset::ZERO);
        let value = format!("{value}-{index}-{}", "x".repeat(200));
        for _ in 0..3 {
            let record = NewRecord {
                timestamp: TimestampMs(1_700_000_000_000),
                key: None,
                value: Some(value.as_bytes()),
                headers: &[],
            };
            builder.push(&record).unwrap();
        }
        let mut batch = builder.build().unwrap();
        end = partition.append_as_leader(&mut batch).unwrap().log_end;
    }
    end
}

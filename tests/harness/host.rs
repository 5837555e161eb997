//! A host in this process, and its admin client.
//!
//! Whatever goes wrong here is a panic, as in a test.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]
#![expect(clippy::missing_panics_doc, reason = "the module says it of all")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::kafka::wait;
use heliostat_core::config::{AdminConfig, ServerConfig};
use heliostat_io::admin::{
    AdminClient, AdminError, ConfigOp, ConfigResource, MirrorPartition, StartOptions, StopOptions,
};
use heliostat_io::host::{Host, HostError, HostHandle, HostReport};
use heliostat_io::source_client::HostPort;
use tokio::runtime::{Builder, Runtime};

/// Only a hang reaches it.
pub const DEADLINE: Duration = Duration::from_mins(2);
/// The mirror that all tests make.
const MIRROR: &str = "m";

/// Partitions by topic.
pub type Topics = BTreeMap<String, Vec<MirrorPartition>>;

/// One cluster at a time: two processors do not carry more.
pub fn alone() -> MutexGuard<'static, ()> {
    static CLUSTER: Mutex<()> = Mutex::new(());
    CLUSTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Figures go to the captured output.
#[expect(clippy::print_stdout, reason = "shown with --nocapture")]
pub fn show(what: &str, figure: impl std::fmt::Debug) {
    println!("{what}: {figure:?}");
}

/// A running host.
#[derive(Debug)]
pub struct Running {
    handle: HostHandle,
    thread: Option<JoinHandle<Result<HostReport, HostError>>>,
}

impl Running {
    /// Starts on `dir`, with `more` than what every such host has.
    pub fn start(dir: &Path, more: &[(&str, &str)]) -> Self {
        let base = [
            ("node.id", "7"),
            ("listeners", "PLAINTEXT://127.0.0.1:0"),
            ("log.dirs", dir.to_str().unwrap()),
            ("mirror.metadata.refresh.interval.ms", "300"),
            ("log.dir.free.min.bytes", "0"),
        ];
        let pairs = base.iter().chain(more).map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let config = ServerConfig::from_pairs(pairs).unwrap();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            tokio::task::LocalSet::new().block_on(&runtime(), async move {
                let (host, handle) = Host::start(config).await?;
                sender.send(handle).unwrap();
                host.run().await
            })
        });
        Self { handle: receiver.recv().unwrap(), thread: Some(thread) }
    }

    /// Where its listener is.
    pub fn bootstrap(&self) -> String {
        self.handle.address().to_string()
    }

    /// Its admin client.
    pub fn admin(&self) -> Admin {
        let address = self.handle.address();
        let at = HostPort { host: Arc::from(address.ip().to_string()), port: address.port() };
        let client = AdminClient::new(vec![at], AdminConfig::parse(b"").unwrap());
        Admin { runtime: runtime(), client }
    }

    /// Stops it, and waits for the end.
    pub fn stop(mut self) -> HostReport {
        self.handle.cancel();
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Of a test that has failed: nothing is waited for.
        self.handle.cancel();
        self.handle.cancel();
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Asks the host, and waits for the answers.
#[derive(Debug)]
pub struct Admin {
    runtime: Runtime,
    client: AdminClient,
}

impl Admin {
    fn ask<T>(
        &mut self,
        question: impl AsyncFnOnce(&mut AdminClient) -> Result<T, AdminError>,
    ) -> T {
        let Self { runtime, client } = self;
        let asked = async { tokio::time::timeout(DEADLINE, question(client)).await };
        runtime.block_on(asked).unwrap().unwrap()
    }

    /// Makes the mirror and starts these topics.
    pub fn mirror(&mut self, bootstrap: String, topics: &[&str]) {
        let configs = vec![("bootstrap.servers".to_owned(), bootstrap)];
        self.ask(async |client| client.create_cluster_mirror(MIRROR, configs).await);
        self.start(topics);
    }

    /// Starts these topics.
    pub fn start(&mut self, topics: &[&str]) {
        let options = StartOptions { include_patterns: owned(topics), ..StartOptions::default() };
        let outcomes =
            self.ask(async |client| client.start_mirror_topics(MIRROR, &[], options).await);
        assert_eq!(outcomes.len(), topics.len());
        assert!(outcomes.iter().all(|it| it.refusal.is_none()), "{outcomes:?}");
    }

    /// Stops these topics.
    pub fn stop(&mut self, topics: &[&str]) {
        let (topics, options) = (owned(topics), StopOptions::default());
        let outcomes =
            self.ask(async |client| client.stop_mirror_topics(MIRROR, &topics, options).await);
        assert!(outcomes.iter().all(|it| it.refusal.is_none()), "{outcomes:?}");
    }

    /// Pauses a topic.
    pub fn pause(&mut self, topic: &str) {
        let topics = owned(&[topic]);
        self.ask(async |client| client.pause_mirror_topics(MIRROR, &topics).await);
    }

    /// Resumes a topic.
    pub fn resume(&mut self, topic: &str) {
        let topics = owned(&[topic]);
        self.ask(async |client| client.resume_mirror_topics(MIRROR, &topics).await);
    }

    /// Has what failed of a topic tried again.
    pub fn recover(&mut self, topic: &str) {
        let topics = owned(&[topic]);
        self.ask(async |client| client.recover_mirror_topics(MIRROR, &topics).await);
    }

    /// Sets a config of a topic here.
    pub fn set(&mut self, topic: &str, key: &str, value: &str) {
        let resource = ConfigResource::Topic(topic.to_owned());
        let ops = [(key.to_owned(), ConfigOp::Set(value.to_owned()))];
        self.ask(async |client| client.incremental_alter_configs(&resource, ops, false).await);
    }

    /// All partitions as they are.
    pub fn topics(&mut self) -> Topics {
        let mirrors =
            self.ask(async |client| client.describe_cluster_mirrors(&[MIRROR.to_owned()]).await);
        mirrors.into_iter().next().unwrap().topics
    }

    /// All partitions, once `holds` is true of them.
    pub fn until(&mut self, what: &str, holds: impl Fn(&Topics) -> bool) -> Topics {
        let mut last = Topics::new();
        let found = wait::until(what, DEADLINE, || {
            last = self.topics();
            Ok(holds(&last).then(|| last.clone()))
        });
        found.unwrap_or_else(|error| {
            let some: Vec<_> =
                last.iter().map(|(topic, all)| (topic, all.len(), all.first())).collect();
            panic!("{error}: {some:#?}")
        })
    }

    /// All partitions, once they have everything that the source has.
    pub fn until_in_step(&mut self) -> Topics {
        self.until("everything to be mirrored", |all| {
            all_in("MIRRORING")(all) && all.values().flatten().all(is_in_step)
        })
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|it| (*it).to_owned()).collect()
}

/// Whether all partitions are in a state.
pub fn all_in(state: &'static str) -> impl Fn(&Topics) -> bool {
    move |topics| {
        let mut all = topics.values().flatten().peekable();
        all.peek().is_some() && all.all(|partition| partition.state == state)
    }
}

/// Whether nothing is missing of a partition.
pub fn is_in_step(it: &MirrorPartition) -> bool {
    it.lag == Some(0) && it.source_offset == it.destination_offset && it.failing_since.is_none()
}

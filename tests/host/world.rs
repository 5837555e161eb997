//! A source, and a host that mirrors it.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use heliostat_core::config::{AdminConfig, ServerConfig};
use heliostat_core::log::config::LogConfig;
use heliostat_core::records::{BatchBuilder, NewRecord};
use heliostat_core::types::{
    BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicId,
};
use heliostat_io::admin::{AdminClient, MirrorPartition, StartOptions};
use heliostat_io::host::{Host, HostError, HostHandle, HostReport};
use heliostat_io::listener::hosted::{Catalog, CatalogConfig, Partition, Topic, TopicSpec};
use heliostat_io::listener::{Listener, ListenerConfig};
use heliostat_io::source_client::HostPort;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

/// Only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(60);

/// A source with topics of its own.
pub(crate) struct Source {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) listener: Listener,
    dir: tempfile::TempDir,
}

impl Source {
    pub(crate) fn start() -> Self {
        Self::named("source")
    }

    pub(crate) fn named(cluster: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = CatalogConfig {
            cluster_id: cluster.to_owned(),
            node_id: BrokerId(1),
            log: LogConfig::default(),
        };
        let catalog = Arc::new(Catalog::open(dir.path(), config).unwrap());
        let config = ListenerConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)), BrokerId(1));
        let listener = Listener::start(Arc::clone(&catalog), config).unwrap();
        Self { catalog, listener, dir }
    }

    pub(crate) fn topic(&self, name: &str, partitions: i32) -> Topic {
        let spec = TopicSpec {
            name: name.to_owned(),
            partitions,
            topic_id: TopicId(Uuid::new_v4()),
            configs: BTreeMap::default(),
            log: LogConfig::default(),
        };
        self.catalog.create_topic(spec).unwrap()
    }

    pub(crate) fn address(&self) -> String {
        self.listener.address().to_string()
    }

    pub(crate) fn bytes(&self, partition: &str) -> Vec<u8> {
        log_bytes(&self.dir.path().join(partition))
    }
}

/// Appends `batches` of one record each.
pub(crate) fn produce(partition: &Partition, batches: usize) {
    for _ in 0..batches {
        append(partition, None);
    }
}

/// Begins a transaction of a producer, and leaves it open.
pub(crate) fn open_transaction(partition: &Partition, producer: i64) {
    append(partition, Some(producer));
}

fn append(partition: &Partition, producer: Option<i64>) {
    let mut batch = BatchBuilder::new(Offset::ZERO).leader_epoch(LeaderEpoch(0));
    if let Some(id) = producer {
        batch = batch.producer(ProducerId(id), ProducerEpoch(0), 0).transactional();
    }
    let record = NewRecord {
        timestamp: TimestampMs(1_700_000_000_000),
        key: None,
        value: Some(b"a value"),
        headers: &[],
    };
    batch.push(&record).unwrap();
    partition.append_as_leader(&mut batch.build().unwrap()).unwrap();
}

/// A running host.
pub(crate) struct Running {
    pub(crate) handle: HostHandle,
    thread: JoinHandle<Result<HostReport, HostError>>,
}

pub(crate) fn properties(dir: &Path, more: &[(&str, &str)]) -> ServerConfig {
    let base = [
        ("node.id", "7"),
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
        ("log.dirs", dir.to_str().unwrap()),
        ("mirror.metadata.refresh.interval.ms", "300"),
        ("mirror.failed.retry.initial.backoff.ms", "50"),
        ("log.dir.free.min.bytes", "0"),
    ];
    let pairs = base.iter().chain(more).map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    ServerConfig::from_pairs(pairs).unwrap()
}

impl Running {
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_with(properties(dir, &[]))
    }

    pub(crate) fn start_with(config: ServerConfig) -> Self {
        Self::try_start(config).unwrap()
    }

    pub(crate) fn try_start(config: ServerConfig) -> Result<Self, HostError> {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            tokio::task::LocalSet::new().block_on(&runtime.unwrap(), async move {
                let (host, handle) = Host::start(config).await?;
                sender.send(handle).unwrap();
                host.run().await
            })
        });
        match receiver.recv() {
            Ok(handle) => Ok(Self { handle, thread }),
            Err(_) => Err(thread.join().unwrap().unwrap_err()),
        }
    }

    /// The whole answer to a request of the HTTP endpoint, as it came.
    pub(crate) async fn http(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.handle.metrics_address().unwrap()).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    /// Status and body of a page.
    pub(crate) async fn page(&self, path: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: host\r\n\r\n");
        let answer = self.http(request.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = format!("Content-Length: {}\r\n", body.len());
        assert!(head.contains(&length), "{head}");
        (status, body.to_owned())
    }

    pub(crate) fn client(&self) -> AdminClient {
        let address = self.handle.address();
        let at = HostPort { host: Arc::from(address.ip().to_string()), port: address.port() };
        AdminClient::new(vec![at], AdminConfig::parse(b"").unwrap())
    }

    pub(crate) fn stop(self) -> HostReport {
        self.handle.cancel();
        self.thread.join().unwrap().unwrap()
    }
}

/// Runs a client's questions, with a limit that only a hang reaches.
pub(crate) fn run<T>(questions: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, questions).await.unwrap() })
}

/// Every partition of a mirror, by topic, once `holds` is true of them.
pub(crate) async fn until(
    client: &mut AdminClient,
    mirror: &str,
    holds: impl Fn(&BTreeMap<String, Vec<MirrorPartition>>) -> bool,
) -> BTreeMap<String, Vec<MirrorPartition>> {
    let since = std::time::Instant::now();
    let mut last = String::new();
    loop {
        assert!(since.elapsed() < DEADLINE / 2, "mirror {mirror} stays so: {last}");
        let all = client.describe_cluster_mirrors(&[mirror.to_owned()]).await.unwrap();
        let topics = all.into_iter().next().unwrap().topics;
        if holds(&topics) {
            return topics;
        }
        last = format!("{topics:#?}");
        tokio::task::yield_now().await;
    }
}

/// Makes mirror `m` and starts what `patterns` match; all of it is in step on return.
pub(crate) async fn mirror_all(client: &mut AdminClient, source: &Source, patterns: &str) {
    let configs = vec![("bootstrap.servers".to_owned(), source.address())];
    client.create_cluster_mirror("m", configs).await.unwrap();
    let include_patterns = patterns.split(',').map(str::to_owned).collect();
    let options = StartOptions { include_patterns, ..StartOptions::default() };
    let started = client.start_mirror_topics("m", &[], options).await.unwrap();
    assert!(started.iter().all(|it| it.refusal.is_none()), "{started:?}");
    until(client, "m", |all| all_in("MIRRORING")(all) && in_step(all)).await;
}

/// Whether all partitions are in a state.
pub(crate) fn all_in(
    state: &'static str,
) -> impl Fn(&BTreeMap<String, Vec<MirrorPartition>>) -> bool {
    move |topics| {
        let mut all = topics.values().flatten().peekable();
        all.peek().is_some() && all.all(|partition| partition.state == state)
    }
}

/// Whether nothing is missing of any partition.
pub(crate) fn in_step(topics: &BTreeMap<String, Vec<MirrorPartition>>) -> bool {
    let mut all = topics.values().flatten().peekable();
    all.peek().is_some()
        && all.all(|it| it.lag == Some(0) && it.source_offset == it.destination_offset)
}

pub(crate) fn log_bytes(dir: &Path) -> Vec<u8> {
    let mut names: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    names.sort();
    names.iter().flat_map(|name| std::fs::read(name).unwrap()).collect()
}

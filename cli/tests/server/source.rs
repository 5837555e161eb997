//! A source in this process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use heliostat_core::log::config::LogConfig;
use heliostat_core::records::{BatchBuilder, NewRecord};
use heliostat_core::types::{
    BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs,
};
use heliostat_io::admin::{AdminClient, AdminError, StartOptions, StopOptions, TopicOutcome};
use heliostat_io::listener::hosted::{
    Catalog, CatalogConfig, Leadership, Partition, Topic, TopicSpec,
};
use heliostat_io::listener::{Listener, ListenerConfig};

use super::child::log_bytes;

pub(crate) struct Source {
    catalog: Arc<Catalog>,
    listener: Listener,
    dir: tempfile::TempDir,
}

impl Source {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = CatalogConfig {
            cluster_id: "source".to_owned(),
            node_id: BrokerId(1),
            log: LogConfig::default(),
        };
        let catalog = Arc::new(Catalog::open(dir.path(), config).unwrap());
        let config = ListenerConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)), BrokerId(1));
        let listener = Listener::start(Arc::clone(&catalog), config).unwrap();
        Self { catalog, listener, dir }
    }

    /// Makes a topic, of a short name in letters.
    pub(crate) fn topic(&self, name: &str, partitions: i32) -> Topic {
        let spec = TopicSpec {
            name: name.to_owned(),
            partitions,
            // Any 16 bytes.
            topic_id: format!("{name:A<21}A").parse().unwrap(),
            configs: BTreeMap::default(),
            log: LogConfig::default(),
        };
        self.catalog.create_topic(spec).unwrap()
    }

    /// Topic `t`: three partitions, two open transactions in the second, an election in the third.
    /// What is old is in a segment of its own, apart from what a stop writes today.
    pub(crate) fn with_topic() -> (Self, Topic) {
        let it = Self::start();
        let topic = it.topic("t", 3);
        produce_old(&topic.partitions[0], 3);
        produce(&topic.partitions[1], 2);
        open_transaction(&topic.partitions[1], 5);
        open_transaction(&topic.partitions[1], 9);
        produce(&topic.partitions[2], 1);
        let leadership = Leadership { leader: BrokerId(1), epoch: LeaderEpoch(4) };
        topic.partitions[2].elect(leadership).unwrap();
        produce(&topic.partitions[2], 1);
        (it, topic)
    }

    pub(crate) fn bytes(&self, partition: &str) -> Vec<u8> {
        log_bytes(&self.dir.path().join(partition))
    }

    /// Makes mirror `m` and starts what `patterns` match.
    pub(crate) async fn mirror(&self, client: &mut AdminClient, patterns: &[&str]) {
        let address = self.listener.address().to_string();
        let configs = vec![("bootstrap.servers".to_owned(), address)];
        client.create_cluster_mirror("m", configs).await.unwrap();
        let include_patterns = patterns.iter().map(|it| (*it).to_owned()).collect();
        let options = StartOptions { include_patterns, ..StartOptions::default() };
        is_heard(client.start_mirror_topics("m", &[], options).await);
    }
}

/// Stops topic `t`: the wish is durable on return.
pub(crate) async fn stop_t(client: &mut AdminClient) {
    let options = StopOptions::default();
    is_heard(client.stop_mirror_topics("m", &["t".to_owned()], options).await);
}

/// Starts it again.
pub(crate) async fn start_t(client: &mut AdminClient) {
    let options = StartOptions::default();
    is_heard(client.start_mirror_topics("m", &["t".to_owned()], options).await);
}

/// A server that dies may do so with the answer in its hands: what it does first tells the wish.
#[track_caller]
fn is_heard(answer: Result<Vec<TopicOutcome>, AdminError>) {
    match answer {
        Ok(topics) => {
            let is_done = topics.iter().all(|topic| topic.refusal.is_none());
            assert!(is_done && !topics.is_empty(), "{topics:?}");
        }
        Err(error) => assert!(matches!(error, AdminError::Uncertain { .. }), "{error}"),
    }
}

/// Appends `batches` of one record each.
pub(crate) fn produce(partition: &Partition, batches: usize) {
    for _ in 0..batches {
        append(partition, None, now_ms());
    }
}

/// The same, of some years ago.
fn produce_old(partition: &Partition, batches: usize) {
    for _ in 0..batches {
        append(partition, None, 1_600_000_000_000);
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// Begins a transaction of a producer, and leaves it open.
fn open_transaction(partition: &Partition, producer: i64) {
    append(partition, Some(producer), now_ms());
}

fn append(partition: &Partition, producer: Option<i64>, timestamp_ms: i64) {
    let mut batch = BatchBuilder::new(Offset::ZERO).leader_epoch(LeaderEpoch(0));
    if let Some(id) = producer {
        batch = batch.producer(ProducerId(id), ProducerEpoch(0), 0).transactional();
    }
    let record = NewRecord {
        timestamp: TimestampMs(timestamp_ms),
        key: None,
        value: Some(b"a value"),
        headers: &[],
    };
    batch.push(&record).unwrap();
    partition.append_as_leader(&mut batch.build().unwrap()).unwrap();
}

//! Failback between two hosts: the worked example of KIP-1279 with its numbers, with and without
//! the last mirror offset, with transactions, and a tail that is lost and replaced.

use std::sync::Arc;

use heliostat_core::protocol::mirror::{
    self, BumpLeaderEpochsRequest, BumpLeaderEpochsResponse, BumpPartition, BumpTopic,
    MirrorRequest as _,
};
use heliostat_core::records::{BatchBuilder, BatchHeader, NewRecord};
use heliostat_core::types::{
    LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicId, TopicPartition,
};
use heliostat_io::admin::{
    AdminClient, ConfigOp, ConfigResource, MirrorPartition, NewTopic, StartOptions, StopOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::proxy::Proxy;
use super::world::{Running, all_in, in_step, log_bytes, properties, run, until};

const TOPIC: &str = "orders";

fn at() -> TopicPartition {
    TopicPartition::new(TOPIC, 0)
}

/// A host with its log dir.
struct Site {
    host: Running,
    dir: tempfile::TempDir,
}

impl Site {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(more: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = Running::start_with(properties(dir.path(), more));
        Self { host, dir }
    }

    fn client(&self) -> AdminClient {
        self.host.client()
    }

    fn address(&self) -> String {
        self.host.handle.address().to_string()
    }

    fn log(&self) -> Vec<u8> {
        log_bytes(&self.dir.path().join("orders-0"))
    }

    /// Stops the host, cleanly.
    fn stop(self) -> tempfile::TempDir {
        assert!(self.host.stop().clean);
        self.dir
    }

    async fn create_topic(&self) -> TopicId {
        let topic = NewTopic { name: TOPIC.to_owned(), partitions: Some(1), ..NewTopic::default() };
        let created = self.client().create_topics(&[topic], false).await.unwrap();
        created[0].id.unwrap()
    }

    /// Writes batches of one record each, and returns the first offset.
    async fn write(&self, records: usize) -> i64 {
        let all = batch(None).repeat(records);
        self.host.handle.append(at(), all).await.unwrap().0
    }

    /// Begins a transaction, and leaves it open.
    async fn begin(&self, producer: i64) {
        self.host.handle.append(at(), batch(Some(producer))).await.unwrap();
    }

    /// Mirrors the topic of the host at `source`.
    async fn mirror(&self, mirror: &str, source: &str) {
        let configs = vec![("bootstrap.servers".to_owned(), source.to_owned())];
        self.client().create_cluster_mirror(mirror, configs).await.unwrap();
        self.start_topic(mirror).await;
    }

    async fn start_topic(&self, mirror: &str) {
        let topics = [TOPIC.to_owned()];
        let started =
            self.client().start_mirror_topics(mirror, &topics, StartOptions::default()).await;
        let started = started.unwrap();
        assert!(started.iter().all(|it| it.refusal.is_none()), "{started:?}");
    }

    /// Waits until the copy ends at `end`, and is in step.
    async fn follows(&self, mirror: &str, end: i64) {
        let ends = |it: &MirrorPartition| it.destination_offset == Some(Offset(end));
        until(&mut self.client(), mirror, |all| {
            all_in("MIRRORING")(all) && in_step(all) && all.values().flatten().all(ends)
        })
        .await;
    }

    /// Stops the topic; epoch and offset at which mirroring ended.
    async fn stop_topic(&self, mirror: &str) -> (i32, i64) {
        let topics = [TOPIC.to_owned()];
        self.client().stop_mirror_topics(mirror, &topics, StopOptions::default()).await.unwrap();
        let stopped = until(&mut self.client(), mirror, all_in("STOPPED")).await;
        let it = &stopped[TOPIC][0];
        (it.last_mirror_epoch.0, it.last_mirror_offset.unwrap().0)
    }

    async fn pause_topic(&self, mirror: &str) {
        self.client().pause_mirror_topics(mirror, &[TOPIC.to_owned()]).await.unwrap();
        until(&mut self.client(), mirror, all_in("PAUSED")).await;
    }

    async fn leader_epoch(&self) -> i32 {
        let metadata = self.client().metadata(Some(&[Arc::from(TOPIC)])).await.unwrap();
        metadata.topics[0].partitions[0].leader_epoch.0
    }

    /// What BumpLeaderEpochs does, as a destination's broker would ask for it.
    async fn bump_above(&self, topic_id: TopicId, epoch: i32) {
        let partitions = vec![BumpPartition { partition_index: 0, min_leader_epoch: epoch }];
        let asked = BumpLeaderEpochsRequest { topics: vec![BumpTopic { topic_id, partitions }] };
        let mut request = Vec::new();
        request.extend(BumpLeaderEpochsRequest::API_KEY.to_be_bytes());
        request.extend([0, 0, 0, 0, 0, 1]); // version 0, correlation ID 1
        request.extend([0xff, 0xff, 0]); // no client ID, no tagged fields
        request.extend(mirror::encode(&asked));
        let mut stream = TcpStream::connect(self.host.handle.address()).await.unwrap();
        stream.write_i32(i32::try_from(request.len()).unwrap()).await.unwrap();
        stream.write_all(&request).await.unwrap();
        let length = stream.read_i32().await.unwrap();
        let mut answer = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut answer).await.unwrap();
        let answer: BumpLeaderEpochsResponse = mirror::decode(&answer[5..]).unwrap();
        assert_eq!((answer.error_code, answer.topics[0].partitions[0].error_code), (0, 0));
    }
}

fn stopped_log(site: Site) -> Vec<u8> {
    let dir = site.stop();
    log_bytes(&dir.path().join("orders-0"))
}

fn batch(producer: Option<i64>) -> Vec<u8> {
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
    batch.build().unwrap()
}

/// Base offset and epoch of each batch, and whether it is a control batch.
fn batches(log: &[u8]) -> Vec<(i64, i32, bool)> {
    let mut rest = log;
    let mut found = Vec::new();
    while let Some((header, _)) = BatchHeader::view(rest) {
        let is_control = header.attributes() & 0x20 != 0;
        found.push((header.base_offset().0, header.partition_leader_epoch().0, is_control));
        rest = &rest[usize::try_from(header.size_bytes()).unwrap()..];
    }
    found
}

/// Section 4.5, step by step: S is the source, D its copy, then S mirrors back from D.
fn worked_example(hides_offsets: bool) -> Vec<u8> {
    let s = Site::start();
    let proxy = Proxy::bind();
    let advertised = format!("PLAINTEXT://{}", proxy.address());
    let d = if hides_offsets {
        Site::start_with(&[("advertised.listeners", &advertised)])
    } else {
        Site::start()
    };
    proxy.serve(d.host.handle.address());
    let d_address = if hides_offsets { proxy.address().to_string() } else { d.address() };
    let log = run(async {
        // 1. Three records of epoch 0; D follows and raises its epoch to 11; three of epoch 1.
        let topic = s.create_topic().await;
        assert_eq!(s.write(3).await, 0);
        d.mirror("forth", &s.address()).await;
        d.follows("forth", 3).await;
        assert_eq!((s.leader_epoch().await, d.leader_epoch().await), (0, 11));
        s.bump_above(topic, 0).await;
        assert_eq!((s.leader_epoch().await, s.write(3).await), (1, 3));
        d.follows("forth", 6).await;
        assert_eq!(d.leader_epoch().await, 11);
        // 2. S is cut off with two more.
        d.pause_topic("forth").await;
        assert_eq!(s.write(2).await, 6);
        // 3. D is stopped: no further bump, the reset at offset 6.
        assert_eq!(d.stop_topic("forth").await, (1, 6));
        assert_eq!(d.leader_epoch().await, 11);
        // 4. One record is written to D.
        assert_eq!(d.write(1).await, 7);
        // 5. to 7. S mirrors back: 6 and 7 are cut, its epoch goes to 22.
        s.mirror("back", &d_address).await;
        s.follows("back", 8).await;
        assert_eq!(s.leader_epoch().await, 22);
        let epochs = [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 11), (7, 11)];
        let want: Vec<_> =
            epochs.iter().map(|(offset, epoch)| (*offset, *epoch, *offset == 6)).collect();
        assert_eq!(batches(&d.log()), want);
        // 8. The way home: S is stopped, D mirrors it again.
        assert_eq!(s.stop_topic("back").await, (11, 8));
        d.start_topic("forth").await;
        d.follows("forth", 9).await;
        d.log()
    });
    assert_eq!(proxy.hidden() > 0, hides_offsets);
    // What is cut, and how, stands in S's record of gaps.
    let gaps = std::fs::read_to_string(s.dir.path().join("mirror-gaps")).unwrap();
    // The version, and the one.
    assert_eq!(gaps.lines().count(), 2, "{gaps}");
    let by_offset = gaps.contains("it was not mirrored before the last stop");
    assert_eq!(by_offset, !hides_offsets, "{gaps}");
    assert_eq!(stopped_log(s), log, "S and D are the same");
    assert_eq!(stopped_log(d), log);
    log
}

#[test]
fn the_worked_example_ends_the_same_with_and_without_the_last_mirror_offset() {
    let with = worked_example(false);
    let without = worked_example(true);
    assert_eq!(batches(&with), batches(&without));
    assert_eq!(batches(&with).last(), Some(&(8, 22, true)), "the reset of S's own stop");
}

/// Transactions that are open at the stop are aborted there, and S takes that over with the
/// rest, instead of what became of them at S.
#[test]
fn open_transactions_end_as_they_did_where_the_topic_was_stopped() {
    let (s, d) = (Site::start(), Site::start());
    run(async {
        s.create_topic().await;
        s.write(2).await;
        s.begin(1001).await;
        s.begin(1002).await;
        d.mirror("forth", &s.address()).await;
        d.follows("forth", 4).await;
        d.pause_topic("forth").await;
        // Never mirrored: one of them goes on.
        s.begin(1003).await;
        s.write(3).await;
        assert_eq!(d.stop_topic("forth").await, (0, 4));
        // Two ABORTs and the reset.
        assert_eq!(d.write(2).await, 7);
        s.mirror("back", &d.address()).await;
        s.follows("back", 9).await;
        let controls: Vec<_> =
            batches(&s.log()).into_iter().filter(|it| it.2).map(|it| it.0).collect();
        assert_eq!(controls, [4, 5, 6]);
        assert_eq!(s.log(), d.log());
    });
    assert_eq!(stopped_log(s), stopped_log(d));
}

/// The disk of a writable host loses what was not flushed, and other records take the place: a
/// copy that had the lost ones is cut back and has the others.
#[test]
fn a_tail_that_is_lost_and_replaced_is_replaced_in_a_copy() {
    let (s, d) = (Site::start(), Site::start());
    run(async {
        s.create_topic().await;
        s.write(5).await;
        d.mirror("forth", &s.address()).await;
        d.follows("forth", 5).await;
        let (key, value) = ("mirror.support.unclean.leader.election", "true");
        let op = (key.to_owned(), ConfigOp::Set(value.to_owned()));
        let topic = ConfigResource::Topic(TOPIC.to_owned());
        d.client().incremental_alter_configs(&topic, [op], false).await.unwrap();
        d.pause_topic("forth").await;
        d.client().resume_mirror_topics("forth", &[TOPIC.to_owned()]).await.unwrap();
        d.follows("forth", 5).await;
    });
    // The last two records, each a batch as long as the others, are lost.
    let listener = format!("PLAINTEXT://{}", s.host.handle.address());
    let dir = s.stop();
    let path = dir.path().join("orders-0/00000000000000000000.log");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 5 * 3]).unwrap();
    for unflushed in [".kafka_cleanshutdown", "recovery-point-offset-checkpoint"] {
        std::fs::remove_file(dir.path().join(unflushed)).unwrap();
    }
    let host = Running::start_with(properties(dir.path(), &[("listeners", &listener)]));
    let s = Site { host, dir };
    run(async {
        assert_eq!(s.leader_epoch().await, 1, "a start raises what is written here");
        assert_eq!(s.write(3).await, 3);
        d.follows("forth", 6).await;
        let epochs: Vec<_> = batches(&d.log()).iter().map(|it| it.1).collect();
        assert_eq!(epochs, [0, 0, 0, 1, 1, 1]);
        assert_eq!(d.log(), s.log());
    });
    assert_eq!(stopped_log(s), stopped_log(d));
}

//! A source and shards that answer by what the test says.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use heliostat_core::engine::message::{
    AddPartition, Command, PartitionKey, PartitionProgress, Report, ReturnReason,
};
use heliostat_core::types::Offset;
use kafka_protocol::messages::describe_configs_response as described;
use kafka_protocol::messages::list_offsets_response as listed;
use kafka_protocol::messages::metadata_response as meta;
use kafka_protocol::messages::offset_for_leader_epoch_response as ended;
use kafka_protocol::messages::{
    DescribeConfigsResponse, ListOffsetsResponse, MetadataResponse, OffsetForLeaderEpochResponse,
    TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::shard::mailbox::{ControlEnd, Received, ShardEnd, mailbox};
use crate::source_client::HostPort;
use crate::source_client::fake::{Peer, modern, versions};

/// A topic of the source. All partitions have the same offsets.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) id: u128,
    pub(super) partitions: i32,
    pub(super) epoch: i32,
    pub(super) earliest: i64,
    pub(super) latest: i64,
    /// `cleanup.policy`
    pub(super) cleanup: &'static str,
    /// Answer to every question for the end of an epoch.
    pub(super) epoch_end: (i32, i64),
}

impl Topic {
    pub(super) fn new(id: u128, partitions: i32, earliest: i64, latest: i64) -> Self {
        Self {
            id,
            partitions,
            epoch: 3,
            earliest,
            latest,
            cleanup: "delete",
            epoch_end: (3, latest),
        }
    }
}

/// What the source says from now on.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) cluster: &'static str,
    pub(super) topics: BTreeMap<&'static str, Topic>,
    /// Fetch version 11 is the newest: no word of divergence in Fetch answers.
    pub(super) is_old: bool,
    /// Every connection ends at its next request.
    pub(super) is_down: bool,
}

/// One broker that serves any number of connections.
pub(super) struct Source {
    pub(super) at: HostPort,
    pub(super) world: Arc<Mutex<World>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Source {
    pub(super) fn start(topics: &[(&'static str, Topic)]) -> Self {
        Self::listen("127.0.0.1", 0, topics)
    }

    /// One at a given address; port 0 for any.
    pub(super) fn listen(host: &str, port: u16, topics: &[(&'static str, Topic)]) -> Self {
        let topics = topics.iter().cloned().collect();
        let world = Arc::new(Mutex::new(World {
            cluster: "source-1",
            topics,
            is_old: false,
            is_down: false,
        }));
        let listener = TcpListener::bind((host, port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let at = HostPort { host: Arc::from(host), port };
        let here = at.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopping) = (Arc::clone(&world), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::Acquire) {
                    return;
                }
                let (here, world) = (here.clone(), Arc::clone(&shared));
                std::thread::spawn(move || serve(stream.unwrap(), &here, &world));
            }
        });
        Self { at, world, stop, thread: Some(thread) }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.world.lock().unwrap());
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the listener.
        drop(TcpStream::connect((&*self.at.host, self.at.port)));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(stream: TcpStream, here: &HostPort, world: &Mutex<World>) {
    let mut peer = Peer::new(stream);
    let was_old = world.lock().unwrap().is_old;
    while let Some(asked) = peer.read() {
        let world = world.lock().unwrap().clone();
        // An upgrade is a restart: connections end.
        if world.is_old != was_old || world.is_down {
            return;
        }
        match asked.api {
            18 if world.is_old => {
                let old = [(1, 4, 11), (2, 1, 5), (3, 0, 9), (18, 0, 4), (23, 2, 3), (32, 1, 2)];
                peer.answer(asked, &versions(&old));
            }
            18 => peer.answer(asked, &modern()),
            3 => peer.answer(asked, &metadata(&world, here)),
            2 => {
                let is_earliest = peer.frame.windows(8).any(|b| b == (-2_i64).to_be_bytes());
                peer.answer(asked, &offsets(&world, is_earliest));
            }
            23 => peer.answer(asked, &epoch_ends(&world)),
            32 => peer.answer(asked, &configs(&world)),
            other => panic!("API {other} is not served"),
        }
    }
}

fn name(topic: &'static str) -> TopicName {
    TopicName(StrBytes::from_static_str(topic))
}

fn metadata(world: &World, here: &HostPort) -> MetadataResponse {
    let broker = meta::MetadataResponseBroker::default()
        .with_node_id(1.into())
        .with_host(StrBytes::from_string(here.host.to_string()))
        .with_port(here.port.into());
    let topics = world.topics.iter().map(|(&topic, facts)| {
        let partition = |index| {
            meta::MetadataResponsePartition::default()
                .with_partition_index(index)
                .with_leader_id(1.into())
                .with_leader_epoch(facts.epoch)
        };
        meta::MetadataResponseTopic::default()
            .with_name(Some(name(topic)))
            .with_topic_id(if world.is_old { Uuid::nil() } else { Uuid::from_u128(facts.id) })
            .with_partitions((0..facts.partitions).map(partition).collect())
    });
    MetadataResponse::default()
        .with_cluster_id(Some(StrBytes::from_static_str(world.cluster)))
        .with_brokers(vec![broker])
        .with_topics(topics.collect())
}

/// Answers for every partition there is: what was not asked for is ignored.
fn offsets(world: &World, is_earliest: bool) -> ListOffsetsResponse {
    let topics = world.topics.iter().map(|(&topic, facts)| {
        let offset = if is_earliest { facts.earliest } else { facts.latest };
        let partition = |index| {
            listed::ListOffsetsPartitionResponse::default()
                .with_partition_index(index)
                .with_offset(offset)
        };
        listed::ListOffsetsTopicResponse::default()
            .with_name(name(topic))
            .with_partitions((0..facts.partitions).map(partition).collect())
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

fn epoch_ends(world: &World) -> OffsetForLeaderEpochResponse {
    let topics = world.topics.iter().map(|(&topic, facts)| {
        let (epoch, end) = facts.epoch_end;
        let partition = |index| {
            ended::EpochEndOffset::default()
                .with_partition(index)
                .with_leader_epoch(epoch)
                .with_end_offset(end)
        };
        ended::OffsetForLeaderTopicResult::default()
            .with_topic(name(topic))
            .with_partitions((0..facts.partitions).map(partition).collect())
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

fn configs(world: &World) -> DescribeConfigsResponse {
    let text = StrBytes::from_static_str;
    let results = world.topics.iter().map(|(&topic, facts)| {
        let policy = described::DescribeConfigsResourceResult::default()
            .with_name(text("cleanup.policy"))
            .with_value(Some(text(facts.cleanup)));
        described::DescribeConfigsResult::default()
            .with_resource_type(2)
            .with_resource_name(text(topic))
            .with_configs(vec![policy])
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

/// A shard's end in the hands of a test.
pub(super) struct FakeShard {
    pub(super) end: ShardEnd,
    held: BTreeMap<PartitionKey, Box<AddPartition>>,
    /// Commands other than Add and Remove, as they came.
    pub(super) others: Vec<Command>,
}

/// What a shard did, for a test to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Added { key: PartitionKey, name: String, log_start: i64, log_end: i64 },
    Removed(PartitionKey),
    Stopped,
}

impl FakeShard {
    pub(super) fn pair() -> (ControlEnd, Self) {
        let (control, end) = mailbox().unwrap();
        (control, Self { end, held: BTreeMap::new(), others: Vec::new() })
    }

    /// Waits for the next thing that matters; everything else goes to `others`.
    pub(super) async fn next(&mut self) -> Seen {
        loop {
            match self.end.next_command() {
                Received::Message(Command::Add(add)) => {
                    let seen = Seen::Added {
                        key: add.key,
                        name: format!("{}-{}", add.topic.name, add.index),
                        log_start: add.log.log_start_offset().0,
                        log_end: add.log.log_end_offset().0,
                    };
                    self.held.insert(add.key, add);
                    return seen;
                }
                Received::Message(Command::Remove { key }) => return Seen::Removed(key),
                Received::Message(Command::Stop) => return Seen::Stopped,
                Received::Message(other) => self.others.push(other),
                Received::Empty => tokio::time::sleep(Duration::from_millis(1)).await,
                Received::Closed => panic!("the job has gone"),
            }
        }
    }

    /// Waits for a command that `is_it` accepts; all others are kept.
    pub(super) async fn other(&mut self, is_it: impl Fn(&Command) -> bool) {
        while !self.others.iter().any(&is_it) {
            match self.end.next_command() {
                Received::Message(other) => self.others.push(other),
                Received::Empty => tokio::time::sleep(Duration::from_millis(1)).await,
                Received::Closed => panic!("the job has gone"),
            }
        }
    }

    pub(super) fn report(&self, report: Report) {
        self.end.try_report(report).unwrap();
    }

    /// Reports that the partition has grown to `log_end`, durably.
    pub(super) fn progress(&self, key: PartitionKey, log_end: i64, high_watermark: i64) {
        let log_start = self.held[&key].log.log_start_offset();
        self.report(Report::Progress(vec![PartitionProgress {
            key,
            log_start,
            log_end: Offset(log_end),
            recovery_point: Offset(log_end),
            last_stable: Offset(log_end),
            source_high_watermark: Offset(high_watermark),
            source_last_stable: Offset(high_watermark),
            bytes_appended: 0,
            size_bytes: 0,
            trouble: None,
        }]));
    }

    pub(super) fn give_back(&mut self, key: PartitionKey, reason: ReturnReason) {
        let log = Box::new(self.held.remove(&key).unwrap().log);
        self.report(Report::Returned { key, log, reason });
    }

    /// Plays a shard that stops cleanly.
    pub(super) fn stop(&mut self) {
        for key in self.held.keys().copied().collect::<Vec<_>>() {
            self.give_back(key, ReturnReason::Asked);
        }
        self.report(Report::Stopped);
    }
}

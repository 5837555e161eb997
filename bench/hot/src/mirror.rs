//! The whole path: a shard that mirrors one partition, from received bytes to completed writes.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use heliostat_core::engine::config::ShardConfig;
use heliostat_core::engine::message::{AddPartition, BrokerAddress, Command, Leader, PartitionKey};
use heliostat_core::engine::{Action, ConnectionId, Shard};
use heliostat_core::log::cx::{AppendLimits, AppendMode};
use heliostat_core::protocol::TopicIdentity;
use heliostat_core::time::Tick;
use heliostat_core::types::{BrokerId, LeaderEpoch, TopicId};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsResponse, ResponseHeader};
use kafka_protocol::protocol::Encodable;

use crate::answer::{VERSION, frame, sized, topic_id};
use crate::append::empty_log;
use crate::batches::{EPOCH, Run, Size};
use crate::disk::done;

/// What one read of a socket gives.
const PIECE_BYTES: usize = 64 << 10;
/// Time between two of them.
const PIECE_EVERY: Duration = Duration::from_micros(50);
/// Answers until files are open, buffers are there and memory is reserved.
const WARM_UP: usize = 4;
const BROKER: BrokerId = BrokerId(1);
const WALL_MS: i64 = 1_700_000_000_000;
/// Where a frame has its correlation ID: behind its size; in a request also behind key and version.
const ANSWER_CORRELATION_AT: usize = 4;
const REQUEST_CORRELATION_AT: usize = 8;

/// A shard that waits for an answer, and the answers that come.
#[derive(Debug)]
pub struct Mirror {
    shard: Shard,
    now: Tick,
    connection: Option<ConnectionId>,
    /// Of the request that waits for its answer.
    correlation: [u8; 4],
    /// Kept when they were given, too: freeing them is nothing of the product's.
    answers: Vec<(Vec<u8>, usize)>,
    given: usize,
    committed: u64,
}

impl Mirror {
    /// Answers of one run of batches of `size` each; `answers` of them are to come.
    ///
    /// # Panics
    /// If the shard does not ask as a shard does.
    pub fn new(size: Size, answers: usize) -> Self {
        let append = AppendLimits {
            mode: AppendMode::Auto { block_bytes: 4096 },
            ..AppendLimits::default()
        };
        let config = ShardConfig { append, ..ShardConfig::default() };
        let mut from = 0;
        let answers: Vec<_> = (0..WARM_UP + answers)
            .map(|_| {
                let Run { bytes, batches, end } = Run::new(size, from);
                from = end;
                (frame([(0, Bytes::from(bytes))]), batches)
            })
            .collect();
        let mut it = Self {
            shard: Shard::new(config, 42, Tick::ZERO, WALL_MS),
            now: Tick::ZERO,
            connection: None,
            correlation: [0; 4],
            answers,
            given: 0,
            committed: 0,
        };
        it.begin();
        for _ in 0..WARM_UP {
            it.answer();
        }
        it
    }

    fn begin(&mut self) {
        let address = BrokerAddress { id: BROKER, host: Arc::from("source"), port: 9092 };
        self.shard.command(Command::SetBrokers(vec![address]));
        self.shard.command(Command::Add(Box::new(AddPartition {
            key: PartitionKey(1),
            topic: TopicIdentity { name: Arc::from("hot"), id: TopicId(topic_id(0)) },
            index: 0,
            log: empty_log(),
            leader: Leader { broker: BROKER, epoch: EPOCH },
            throttled: false,
            local_epoch: LeaderEpoch::NONE,
            readers: None,
        })));
        self.act();
        let apis = [(1, 4, VERSION), (18, 0, 3)].map(|(key, min, max)| {
            ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max)
        });
        let mut body = BytesMut::new();
        ResponseHeader::default().encode(&mut body, 0).expect("a header");
        let answer = ApiVersionsResponse::default().with_api_keys(apis.to_vec());
        answer.encode(&mut body, 3).expect("an answer");
        self.receive(&mut sized(&body));
    }

    /// The next answer arrives; returns the number of its batches, all of which are below the
    /// log end offset then. 0 once no more come.
    ///
    /// # Panics
    /// If they are not.
    pub fn answer(&mut self) -> usize {
        let Some((frame, batches)) = self.answers.get_mut(self.given) else { return 0 };
        let (mut frame, batches, before) = (std::mem::take(frame), *batches, self.committed);
        self.receive(&mut frame);
        if let Some((kept, _)) = self.answers.get_mut(self.given) {
            *kept = frame;
        }
        self.given += 1;
        self.committed = self.shard.stats_mut().append.batches_appended;
        let committed = usize::try_from(self.committed - before).expect("few batches");
        assert_eq!(committed, batches, "the whole answer is appended");
        batches
    }

    /// Gives the shard a frame in pieces, as a socket does, and does what it asks for.
    fn receive(&mut self, frame: &mut [u8]) {
        frame[ANSWER_CORRELATION_AT..][..4].copy_from_slice(&self.correlation);
        let connection = self.connection.expect("a connection");
        let mut rest = &*frame;
        while !rest.is_empty() {
            self.now = self.now.after(PIECE_EVERY);
            self.shard.set_time(self.now, WALL_MS);
            let buffer = self.shard.read_buffer(connection).expect("a disk at once frees buffers");
            let n = rest.len().min(buffer.len()).min(PIECE_BYTES);
            buffer[..n].copy_from_slice(&rest[..n]);
            self.shard.on_received(connection, n);
            rest = &rest[n..];
            if self.shard.next_deadline() <= self.now {
                self.shard.on_deadline();
            }
            self.act();
        }
        self.shard.stats_mut().append.append_latencies.clear();
    }

    fn act(&mut self) {
        while let Some(action) = self.shard.next_action() {
            match action {
                Action::Connect { connection, .. } => {
                    self.connection = Some(connection);
                    self.shard.on_connected(connection);
                }
                Action::Send { bytes, .. } => {
                    let correlation = bytes[REQUEST_CORRELATION_AT..].first_chunk();
                    self.correlation = *correlation.expect("a request has a header");
                }
                Action::Disk(op) => self.shard.on_disk(done(op)),
                Action::Disconnect { .. } | Action::Wake { .. } | Action::Report(_) => {}
            }
        }
    }
}

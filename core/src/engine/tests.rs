//! A shard against a scripted source and a disk in memory that does what it is told at
//! once: the straight path, and the turns that a source forces.

mod ahead;
mod asked;
mod wan;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::{
    FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
};
use kafka_protocol::messages::{
    ApiVersionsResponse, FetchRequest, FetchResponse, RequestHeader, ResponseHeader,
    api_versions_response::ApiVersion,
};
use kafka_protocol::protocol::{Decodable, Encodable};
use uuid::Uuid;

use super::ConnectionId;
use super::config::ShardConfig;
use super::connection::{Connection, HEAD_BYTES, Lane};
use super::message::*;
use super::shard::{Action, Shard};
use super::spent::Bound;
use crate::log::config::LogConfig;
use crate::log::disk::{DiskAction, DiskDone, DiskOp, DiskOutcome, FileId};
use crate::log::epoch_cache::EpochCache;
use crate::log::partition::{PartitionLog, RecoveredLog};
use crate::log::producer_state::ProducerState;
use crate::protocol::TopicIdentity;
use crate::protocol::fetch_stream::{FetchLimits, FetchStream};
use crate::records::{BatchBuilder, NewRecord};
use crate::time::Tick;
use crate::types::{BrokerId, LeaderEpoch, Offset, TimestampMs, TopicId};

/// Files by path; completes everything at once.
#[derive(Default)]
struct Memory {
    files: BTreeMap<String, Vec<u8>>,
    open: HashMap<FileId, String>,
}

impl Memory {
    fn carry_out(&mut self, op: DiskOp) -> DiskOutcome {
        let DiskOp { id, action } = op;
        let mut slot_back = None;
        let mut done = DiskDone::Done;
        match action {
            DiskAction::Open { file, path, .. } => {
                self.files.entry(path.to_string()).or_default();
                self.open.insert(file, path.to_string());
            }
            DiskAction::Close { file } => {
                self.open.remove(&file).expect("open");
            }
            DiskAction::Write { file, position, slot, from, len } => {
                let contents = self.file(file);
                let start = usize::try_from(position).unwrap();
                if contents.len() < start + len {
                    contents.resize(start + len, 0);
                }
                contents[start..start + len].copy_from_slice(&slot.bytes()[from..from + len]);
                slot_back = Some(slot);
                done = DiskDone::Written(len);
            }
            DiskAction::Preallocate { file, from, len } => {
                let end = usize::try_from(from + len).unwrap();
                let contents = self.file(file);
                contents.resize(contents.len().max(end), 0);
            }
            DiskAction::SetLength { file, len } => {
                self.file(file).resize(usize::try_from(len).unwrap(), 0);
            }
            DiskAction::Read { file, position, len } => {
                let start = usize::try_from(position).unwrap();
                done = DiskDone::Read(self.file(file)[start..start + len].to_vec());
            }
            DiskAction::WriteAt { path, position, bytes, .. } => {
                let contents = self.files.entry(path.to_string()).or_default();
                contents.truncate(usize::try_from(position).unwrap());
                contents.extend_from_slice(&bytes);
            }
            DiskAction::Replace { path, bytes } => {
                self.files.insert(path.to_string(), bytes);
            }
            DiskAction::Remove { path } => {
                self.files.remove(&path.to_string());
            }
            DiskAction::Sync { .. } => {}
        }
        DiskOutcome { id, slot: slot_back, result: Ok(done) }
    }

    fn file(&mut self, file: FileId) -> &mut Vec<u8> {
        self.files.get_mut(&self.open[&file]).expect("a file that was opened")
    }
}

const TOPIC: Uuid = Uuid::from_u128(7);

/// One broker with one partition, and the shard that mirrors it.
struct World {
    shard: Shard,
    memory: Memory,
    now: Tick,
    log: Vec<u8>,
    high_watermark: i64,
    /// Most record bytes in an answer; cuts batches as a broker does.
    answer_bytes: usize,
    /// Bytes that the socket gives at once.
    piece: usize,
    offsets: Vec<(i64, usize)>,
    fetches: Vec<FetchRequest>,
    reports: Vec<Report>,
    epoch: i32,
    /// What the shard is told of it.
    leader_epoch: i32,
    /// The destination's; −1 for none.
    local_epoch: i32,
    /// Newest version of Fetch that the source has.
    fetch_version: i16,
    /// What it answers to Fetch, for the partition; 0 for no error.
    error: i16,
    /// Every request that it got.
    frames: Vec<Bytes>,
    /// Requests on their way to the source, each answered in a round of its own.
    sent: Vec<(ConnectionId, Bytes)>,
    gone: Vec<ConnectionId>,
    /// Connections that were made, gone ones included.
    made: Vec<ConnectionId>,
    /// The source is away: when a connection was refused.
    refused: Option<Vec<Tick>>,
    /// The disk answers nothing while it is held.
    held: Option<Vec<DiskOp>>,
}

impl World {
    fn new(config: ShardConfig) -> Self {
        let now = Tick::ZERO;
        let mut world = Self {
            shard: Shard::new(config, 42, now, 1_000),
            memory: Memory::default(),
            now,
            log: Vec::new(),
            high_watermark: 0,
            answer_bytes: 1 << 20,
            piece: 10_007,
            offsets: Vec::new(),
            fetches: Vec::new(),
            reports: Vec::new(),
            epoch: 3,
            leader_epoch: 3,
            local_epoch: -1,
            fetch_version: 16,
            error: 0,
            frames: Vec::new(),
            sent: Vec::new(),
            gone: Vec::new(),
            made: Vec::new(),
            refused: None,
            held: None,
        };
        let address = BrokerAddress { id: BrokerId(1), host: Arc::from("source"), port: 9092 };
        world.shard.command(Command::SetBrokers(vec![address]));
        world
    }

    fn produce(&mut self, batches: usize, value_bytes: usize) {
        for _ in 0..batches {
            let mut builder = BatchBuilder::new(Offset(self.high_watermark))
                .leader_epoch(LeaderEpoch(self.epoch));
            let value: Vec<u8> = (0..=250_u8).cycle().take(value_bytes).collect();
            for _ in 0..3 {
                builder
                    .push(&NewRecord {
                        value: Some(&value),
                        timestamp: TimestampMs(1),
                        key: None,
                        headers: &[],
                    })
                    .unwrap();
            }
            self.offsets.push((self.high_watermark, self.log.len()));
            self.log.extend_from_slice(&builder.build().unwrap());
            self.high_watermark += 3;
        }
    }

    fn add(&mut self) {
        self.add_as(PartitionKey(1));
    }

    fn add_as(&mut self, key: PartitionKey) {
        let log = Self::empty_log("t-0");
        self.add_log(key, 0, log);
    }

    fn empty_log(dir: &str) -> PartitionLog {
        PartitionLog::new(RecoveredLog {
            dir: Arc::from(dir),
            config: LogConfig::default(),
            log_start: Offset::ZERO,
            log_end: Offset::ZERO,
            recovery_point: Offset::ZERO,
            sealed: Vec::new(),
            active: None,
            epochs: EpochCache::default(),
            producers: ProducerState::new(Offset::ZERO),
        })
    }

    fn add_log(&mut self, key: PartitionKey, index: i32, log: PartitionLog) {
        self.shard.command(Command::Add(Box::new(AddPartition {
            key,
            topic: TopicIdentity { name: Arc::from("t"), id: TopicId(TOPIC) },
            index,
            log,
            leader: Leader { broker: BrokerId(1), epoch: LeaderEpoch(self.leader_epoch) },
            throttled: false,
            local_epoch: LeaderEpoch(self.local_epoch),
            readers: None,
        })));
    }

    /// Does what the shard wants done.
    fn act(&mut self) {
        while let Some(action) = self.shard.next_action() {
            self.carry_out(action);
        }
    }

    /// Runs until nothing happens but time, for at most `rounds` actions.
    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.now.0 += 1_000_000;
            self.shard.set_time(self.now, 1_000);
            self.shard.on_deadline();
            while let Some(action) = self.shard.next_action() {
                self.carry_out(action);
            }
            for (connection, bytes) in std::mem::take(&mut self.sent) {
                self.answer(connection, &bytes);
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Connect { connection, .. } => {
                if let Some(refused) = &mut self.refused {
                    refused.push(self.now);
                    return self.shard.on_disconnected(connection, &Arc::from("refused"));
                }
                self.made.push(connection);
                self.shard.on_connected(connection);
            }
            Action::Send { connection, bytes } => self.sent.push((connection, bytes)),
            Action::Disk(op) => {
                if let Some(held) = &mut self.held {
                    held.push(op);
                    return;
                }
                let outcome = self.memory.carry_out(op);
                self.shard.on_disk(outcome);
            }
            Action::Report(report) => self.reports.push(report),
            Action::Disconnect { connection } => self.gone.push(connection),
            Action::Wake { .. } => {}
        }
    }

    fn answer(&mut self, connection: ConnectionId, bytes: &Bytes) {
        let mut asked = None;
        self.frames.push(bytes.clone());
        let frame = response(bytes, self.fetch_version, |fetch| {
            asked = Some(fetch.clone());
            self.fetch(fetch)
        });
        self.fetches.extend(asked);
        self.deliver(connection, &frame);
    }

    /// Gives the shard the bytes in pieces; what it asks of the disk meanwhile is done.
    fn deliver(&mut self, connection: ConnectionId, mut frame: &[u8]) {
        while !frame.is_empty() && !self.gone.contains(&connection) {
            let taken = match self.shard.read_buffer(connection) {
                Some(buffer) => {
                    let n = buffer.len().min(frame.len()).min(self.piece);
                    buffer[..n].copy_from_slice(&frame[..n]);
                    n
                }
                None => 0,
            };
            if taken > 0 {
                self.shard.on_received(connection, taken);
                frame = &frame[taken..];
            }
            let mut any = taken > 0;
            while let Some(action) = self.shard.next_action() {
                any = true;
                self.carry_out(action);
            }
            let gone = self.gone.contains(&connection);
            assert!(
                any || gone,
                "the shard waits for nothing, with {} bytes to deliver",
                frame.len()
            );
        }
    }

    fn fetch(&self, request: &FetchRequest) -> FetchResponse {
        let session_id = if request.session_epoch == 0 { 9 } else { request.session_id };
        let mut response = FetchResponse::default().with_session_id(session_id);
        // A session's partition stays asked for at the last position that was named.
        let asked = std::iter::once(request)
            .chain(self.fetches.iter().rev())
            .find_map(|request| request.topics.first())
            .map(|topic| topic.partitions[0].fetch_offset);
        let Some(from) = asked else { return response };
        let start = self
            .offsets
            .iter()
            .find(|(base, _)| base + 2 >= from)
            .map_or(self.log.len(), |&(_, position)| position);
        let failed = self.error != 0;
        let end = if failed { start } else { self.log.len().min(start + self.answer_bytes) };
        if !failed && start == end && request.session_epoch > 0 {
            return response;
        }
        let partition = PartitionData::default()
            .with_partition_index(0)
            .with_error_code(self.error)
            .with_high_watermark(if failed { -1 } else { self.high_watermark })
            .with_last_stable_offset(if failed { -1 } else { self.high_watermark })
            .with_log_start_offset(if failed { -1 } else { 0 })
            .with_records(Some(Bytes::copy_from_slice(&self.log[start..end])));
        response.responses.push(
            FetchableTopicResponse::default().with_topic_id(TOPIC).with_partitions(vec![partition]),
        );
        response
    }

    /// The copy's segment is the first `len` bytes of the source, and nothing else.
    #[track_caller]
    fn assert_copied(&self, len: usize) {
        let (copy, source) = (self.copied(), &self.log[..len]);
        let differs = copy.iter().zip(source).position(|(a, b)| a != b);
        assert_eq!((copy.len(), differs), (source.len(), None));
    }

    fn copied(&self) -> &[u8] {
        self.memory.files.get("t-0/00000000000000000000.log").map_or(&[], Vec::as_slice)
    }
}

#[test]
fn a_partition_is_copied_byte_for_byte_and_closed_cleanly() {
    for (block, value, answer) in
        [(1, 100, 5_000), (4096, 30_000, 700_000), (4096, 900_000, 1 << 20)]
    {
        let mut config = ShardConfig::default();
        if block > 1 {
            config.append.mode = crate::log::cx::AppendMode::Direct { block_bytes: block };
        }
        let mut world = World::new(config);
        world.answer_bytes = answer.max(value * 3 + 1_000);
        world.produce(20, value);
        world.add();
        world.run(200);
        world.shard.command(Command::Stop);
        world.run(20);

        world.assert_copied(world.log.len());
        assert!(matches!(world.reports.last(), Some(Report::Stopped)));
        let returned = world.reports.iter().find_map(|report| match report {
            Report::Returned { log, reason: ReturnReason::Asked, .. } => Some(log),
            _ => None,
        });
        let log = returned.expect("the partition comes back");
        assert_eq!(log.log_end_offset(), Offset(60));
        assert_eq!(log.recovery_point(), Offset(60));
        assert_eq!(world.shard.buffers_lent_bytes(), 0);
        assert_eq!(world.memory.files["t-0/leader-epoch-checkpoint"], b"0\n1\n3 0\n");
    }
}

/// A job that ends with what the source has waits for this report.
#[test]
fn that_everything_is_there_is_told_at_once_and_later_progress_in_its_time() {
    let mut world = World::new(ShardConfig::default());
    world.add();
    world.produce(9, 100);
    let arrived = |world: &World, offset| {
        world.reports.iter().any(|report| {
            matches!(report, Report::Progress(all) if all.iter().any(|p| p.log_end.0 == offset))
        })
    };
    world.run(40);
    assert!(arrived(&world, 27));
    world.produce(1, 100);
    world.run(40);
    world.assert_copied(world.log.len());
    assert!(!arrived(&world, 30));
    world.run(250);
    assert!(arrived(&world, 30));
}

/// Records of a trickle are worth an answer together; those of a backlog wait for nobody.
#[test]
fn records_gather_only_for_who_has_caught_up() {
    let lingers = |linger_ms| ShardConfig {
        fetch_linger: Duration::from_millis(linger_ms),
        ..ShardConfig::default()
    };
    let trickle = |linger_ms| {
        let mut world = World::new(lingers(linger_ms));
        world.add();
        world.produce(1, 100);
        world.run(20);
        let before = world.fetches.len();
        for _ in 0..100 {
            world.produce(1, 100);
            world.run(1);
        }
        world.run(10);
        world.assert_copied(world.log.len());
        world.fetches.len() - before
    };
    assert!(trickle(0) >= 100, "a question each millisecond");
    let gathered = trickle(5);
    assert!((20..=35).contains(&gathered), "a question each five: {gathered} in 110 ms");

    let mut world = World::new(lingers(1_000));
    world.answer_bytes = 2_000;
    world.add();
    world.produce(100, 100);
    world.run(130);
    world.assert_copied(world.log.len());
}

#[test]
fn following_continues_when_the_source_writes() {
    let mut world = World::new(ShardConfig::default());
    world.add();
    world.run(5);
    world.produce(2, 50);
    world.run(5);
    world.produce(1, 50);
    world.run(5);
    world.assert_copied(world.log.len());
}

#[test]
fn a_corrupt_batch_is_fetched_again_and_then_returned() {
    let mut world = World::new(ShardConfig::default());
    world.produce(3, 100);
    let last = world.log.len() - 1;
    world.log[last] ^= 1;
    world.add();
    world.run(60_000);
    let bad = world.reports.iter().filter(|r| matches!(r, Report::BadBatch { .. })).count();
    assert_eq!(bad, 4);
    let returned = world.reports.iter().find_map(|report| match report {
        Report::Returned { log, reason: ReturnReason::Refused(_), .. } => Some(log),
        _ => None,
    });
    // What was good before it stays.
    assert_eq!(returned.expect("given up").log_end_offset(), Offset(6));
    world.assert_copied(world.offsets[2].1);
}

/// Goal: an idle shard sleeps. Method: a long poll that nobody answers; count how often
/// the shard wants to be woken in ten seconds.
#[test]
fn a_long_poll_under_way_wakes_nobody() {
    let mut world = World::new(ShardConfig::default());
    world.produce(1, 10);
    world.add();
    world.run(10);
    world.sent.clear();
    let start = world.now;
    let mut wakes = 0;
    while world.now.since(start) < Duration::from_secs(10) {
        world.now = world.shard.next_deadline().max(world.now);
        world.shard.set_time(world.now, 1_000);
        world.shard.on_deadline();
        while world.shard.next_action().is_some() {}
        wakes += 1;
    }
    // Four reports and a sweep a second, and the few deadlines of one connection.
    assert!(wakes < 60, "{wakes} wake-ups in ten idle seconds");
}

/// Goal: a peer that accepts and stays silent is given up. Method: never answer.
#[test]
fn a_silent_peer_is_left_in_the_handshake_and_in_a_fetch() {
    for answered in [0, 1] {
        let mut world = World::new(ShardConfig::default());
        world.add();
        for _ in 0..=answered {
            world.now.0 += 1_000_000;
            world.shard.set_time(world.now, 1_000);
            world.shard.on_deadline();
            while let Some(action) = world.shard.next_action() {
                world.carry_out(action);
            }
            if answered == 1 && world.fetches.is_empty() {
                for (connection, bytes) in std::mem::take(&mut world.sent) {
                    world.answer(connection, &bytes);
                }
            }
        }
        assert_eq!(world.gone.len(), 0);
        for _ in 0..200 {
            world.now = world.shard.next_deadline().max(world.now);
            world.shard.set_time(world.now, 1_000);
            world.shard.on_deadline();
            while let Some(action) = world.shard.next_action() {
                if let Action::Disconnect { connection } = action {
                    world.gone.push(connection);
                }
            }
            if !world.gone.is_empty() {
                break;
            }
        }
        assert_eq!(world.gone.len(), 1, "after {answered} answers");
        assert!(world.now <= Tick(35_000_000_000), "{:?}", world.now);
    }
}

/// Goal: a source that is away costs time and nothing else, however long. Method: cut what there
/// is and refuse every connection for twenty minutes; then let it come back.
#[test]
fn a_source_that_is_away_for_twenty_minutes_is_tried_again_within_the_longest_wait() {
    const AWAY: Duration = Duration::from_secs(20 * 60);
    let config = ShardConfig::default();
    let (_, longest) = config.backoff;
    let mut world = World::new(config);
    world.produce(3, 100);
    world.add();
    world.run(20);
    world.assert_copied(world.log.len());
    world.reports.clear();
    world.sent.clear();

    let since = world.now;
    world.refused = Some(Vec::new());
    for connection in std::mem::take(&mut world.made) {
        world.shard.on_disconnected(connection, &Arc::from("the connection was cut"));
    }
    let mut wakes = 0_u32;
    while world.now.since(since) < AWAY {
        world.now = world.shard.next_deadline().max(world.now);
        assert!(world.now < Tick::NEVER, "nobody is going to try again");
        world.shard.set_time(world.now, 1_000);
        world.shard.on_deadline();
        while let Some(action) = world.shard.next_action() {
            world.carry_out(action);
        }
        wakes += 1;
        // Four reports and a sweep a second, and the attempts.
        assert!(wakes < 20 * 60 * 6, "busy while there is nothing to do");
    }
    let refused = world.refused.take().unwrap();
    let waits = refused.windows(2).map(|pair| pair[1].since(pair[0]));
    assert!(waits.clone().all(|wait| wait <= longest), "{:?}", waits.max());
    // A back-off that has grown waits half of the longest wait at least.
    let attempts = u128::try_from(refused.len()).unwrap();
    let slowest = AWAY.as_nanos() / longest.as_nanos();
    assert!((slowest..2 * slowest + 20).contains(&attempts), "{attempts} attempts");
    let returned = world.reports.iter().find(|it| matches!(it, Report::Returned { .. }));
    assert!(returned.is_none(), "{returned:?}");
    let told = world.reports.iter().rev().find_map(|report| match report {
        Report::Progress(all) => all.first()?.trouble.clone(),
        _ => None,
    });
    let (trouble, failing_ms) = told.expect("what holds it up is told");
    assert!(matches!(&trouble, Trouble::Connection(why) if &**why == "refused"), "{trouble:?}");
    let failing = Duration::from_millis(failing_ms);
    assert!(failing + longest >= AWAY && failing <= AWAY + longest, "failing for {failing:?}");

    world.produce(2, 100);
    let back = world.now;
    while world.copied().len() < world.log.len() && world.now.since(back) <= longest {
        world.run(1);
    }
    world.assert_copied(world.log.len());
}

/// Goal: a slow disk at the stop does not keep the shard busy. Method: hold the disk past
/// the flush deadline of a log that is being closed.
#[test]
fn closing_on_a_slow_disk_does_not_spin() {
    let mut world = World::new(ShardConfig::default());
    world.produce(2, 100);
    world.add();
    world.run(4);
    world.held = Some(Vec::new());
    world.shard.command(Command::Stop);
    for _ in 0..10 {
        world.now.0 += 1_000_000_000;
        world.shard.set_time(world.now, 1_000);
        // Must come back.
        world.shard.on_deadline();
        while let Some(action) = world.shard.next_action() {
            world.carry_out(action);
        }
    }
    for op in world.held.take().unwrap() {
        let outcome = world.memory.carry_out(op);
        world.shard.on_disk(outcome);
    }
    world.run(5);
    assert!(matches!(world.reports.last(), Some(Report::Stopped)));
    world.assert_copied(world.log.len());
}

/// Goal: what bounds a copy is told.
/// Method: a partition with more to copy than the throttle lets through.
#[test]
fn a_throttle_that_binds_is_told() {
    let mut world = World::new(ShardConfig::default());
    world.add();
    world.shard.command(Command::SetThrottled { key: PartitionKey(1), throttled: true });
    world.shard.command(Command::SetThrottleRate(Some(100_000)));
    world.produce(300, 1_000);
    // One answer brings it all, and the next question waits for the debt.
    world.run(10_000);
    let stats = world.shard.stats_mut();
    assert_eq!(stats.spent.bound(), Some(Bound::Throttle), "{:?}", stats.spent);
    assert!(stats.spent.throttled > Duration::from_secs(1), "{:?}", stats.spent);
}

/// Goal: a throttle that comes while running holds from then on, and going it frees.
/// Method: count record bytes that a throttled partition asks for in one second.
#[test]
fn a_throttle_may_come_and_go() {
    let mut world = World::new(ShardConfig::default());
    world.answer_bytes = 1 << 30;
    world.add();
    world.shard.command(Command::SetThrottled { key: PartitionKey(1), throttled: true });
    world.produce(2, 1_000);
    world.run(10);
    world.assert_copied(world.log.len());

    world.shard.command(Command::SetThrottleRate(Some(100_000)));
    world.run(1_000);
    let asked = world.fetches.last().unwrap().max_bytes;
    assert!(asked <= 10_000, "{asked} bytes in one request, a tenth of a second is 10,000");

    world.shard.command(Command::SetThrottleRate(None));
    world.run(10);
    world.produce(3, 1_000);
    world.run(10);
    world.assert_copied(world.log.len());
    assert!(world.fetches.last().unwrap().max_bytes > 1 << 20);
}

/// Goal: a higher rate holds at once. Method: rates that give nothing for an hour, and never.
#[test]
fn a_throttle_that_is_raised_is_not_waited_for_at_the_old_rate() {
    for slow in [1, 0] {
        let mut world = World::new(ShardConfig::default());
        world.add();
        world.shard.command(Command::SetThrottled { key: PartitionKey(1), throttled: true });
        world.shard.command(Command::SetThrottleRate(Some(slow)));
        world.produce(2, 1_000);
        world.run(1_000);
        world.assert_copied(0);
        world.shard.command(Command::SetThrottleRate(Some(1_000_000)));
        world.run(1_000);
        world.assert_copied(world.log.len());
    }
}

/// Goal: record bytes go from the socket to where they are written from. Method: runs of
/// about 1 MiB, direct appends; the read-ahead and the tail blocks are all that is copied.
#[test]
fn at_most_two_percent_of_large_runs_are_copied() {
    let mut config = ShardConfig::default();
    config.append.mode = crate::log::cx::AppendMode::Direct { block_bytes: 4096 };
    let mut world = World::new(config);
    world.piece = 1 << 20;
    world.produce(40, 340_000);
    world.answer_bytes = world.offsets[1].1;
    world.add();
    world.run(200);
    let stats = world.shard.stats_mut().append.clone();
    assert_eq!(stats.bytes_appended, u64::try_from(world.log.len()).unwrap());
    assert!(stats.bytes_copied > 0, "nothing was counted");
    let (copied, appended) = (stats.bytes_copied, stats.bytes_appended);
    assert!(copied * 50 <= appended, "{copied} of {appended} bytes were copied");
}

/// Goal: what an answer says of a partition that has gone is not taken for its successor in
/// the same place. Method: another partition is added before the answer's last byte.
#[test]
fn a_leader_that_an_answer_names_is_that_of_the_partition_that_asked() {
    const NOT_LEADER: i16 = 6;
    let mut world = World::new(ShardConfig::default());
    world.add();
    world.run(1);
    let (connection, bytes) = loop {
        world.shard.set_time(world.now, 1_000);
        while let Some(action) = world.shard.next_action() {
            world.carry_out(action);
        }
        let (connection, bytes) = world.sent.remove(0);
        if i16::from_be_bytes([bytes[4], bytes[5]]) == 1 {
            break (connection, bytes);
        }
        world.answer(connection, &bytes);
    };
    let frame = response(&bytes, 16, |_| {
        let leader = LeaderIdAndEpoch::default().with_leader_id(2.into()).with_leader_epoch(9);
        let partition = PartitionData::default()
            .with_error_code(NOT_LEADER)
            .with_high_watermark(-1)
            .with_current_leader(leader);
        let topic = FetchableTopicResponse::default().with_topic_id(TOPIC);
        FetchResponse::default().with_responses(vec![topic.with_partitions(vec![partition])])
    });
    let (head, last) = frame.split_at(frame.len() - 1);
    world.deliver(connection, head);
    world.shard.command(Command::Remove { key: PartitionKey(1) });
    while let Some(action) = world.shard.next_action() {
        world.carry_out(action);
    }
    assert!(world.reports.iter().any(|it| matches!(it, Report::Returned { .. })));
    world.add_as(PartitionKey(2));
    world.deliver(connection, last);
    let hint = |it: &Report| matches!(it, Report::LeaderHint { .. });
    assert!(!world.reports.iter().any(hint), "{:?}", world.reports);
}

/// Otherwise a consumer that moves here with an offset would come with an epoch above the
/// leader's.
#[test]
fn nothing_above_the_destinations_leader_epoch_is_appended() {
    let mut world = World::new(ShardConfig::default());
    (world.leader_epoch, world.local_epoch) = (9, 5);
    world.produce(2, 100);
    world.epoch = 5;
    world.produce(1, 100);
    world.epoch = 6;
    world.produce(2, 100);
    world.add();
    world.run(20);
    let returned = world.reports.drain(..).find_map(|report| match report {
        Report::Returned { log, reason, .. } => Some((log, reason)),
        _ => None,
    });
    let (log, reason) = returned.expect("given back");
    assert_eq!(reason, ReturnReason::EpochFenced { epoch: LeaderEpoch(6) });
    assert_eq!((log.log_end_offset(), log.recovery_point()), (Offset(9), Offset(9)));
}

/// Raised in time, it stands in nobody's way.
#[test]
fn a_destinations_leader_epoch_that_rises_is_heard() {
    let mut world = World::new(ShardConfig::default());
    (world.leader_epoch, world.local_epoch) = (9, 3);
    world.produce(2, 100);
    world.add();
    world.run(20);
    world.shard.command(Command::SetLocalEpoch { key: PartitionKey(1), epoch: LeaderEpoch(6) });
    world.epoch = 6;
    world.produce(2, 100);
    world.run(400);
    let returned = world.reports.iter().any(|it| matches!(it, Report::Returned { .. }));
    let end = world.reports.iter().rev().find_map(|report| match report {
        Report::Progress(all) => all.last().map(|progress| progress.log_end),
        _ => None,
    });
    assert_eq!((returned, end), (false, Some(Offset(12))));
}

/// Goal: a batch that is cut off in its head has none. Behind it comes the rest of the answer,
/// which would be taken for offsets.
#[test]
fn a_head_does_not_reach_beyond_the_records() {
    for (records, has_head) in [(HEAD_BYTES - 1, false), (HEAD_BYTES, true)] {
        let limits = FetchLimits::default();
        let mut connection = Connection::new(0, BrokerId(1), Lane::Tail, limits);
        connection.stream = FetchStream::new(13, limits);
        let partition = PartitionData::default().with_records(Some(vec![0; records].into()));
        let topic = FetchableTopicResponse::default().with_topic_id(TOPIC);
        let topics = vec![topic.with_partitions(vec![partition.clone(), partition])];
        let mut out = BytesMut::new();
        ResponseHeader::default().encode(&mut out, 1).unwrap();
        FetchResponse::default().with_responses(topics).encode(&mut out, 13).unwrap();
        let mut frame = u32::try_from(out.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(&out);
        connection.staging_buffer()[..frame.len()].copy_from_slice(&frame);
        connection.staging_received(frame.len());
        while connection.stream.remaining_records() == 0 {
            connection.decode().unwrap().unwrap();
        }
        assert!(connection.staged().len() > HEAD_BYTES);
        assert_eq!(connection.batch_head().is_some(), has_head);
    }
}

/// A broker's answer to a request, with `fetch` for what it says to Fetch.
fn response(
    bytes: &Bytes,
    fetch_version: i16,
    fetch: impl FnOnce(&FetchRequest) -> FetchResponse,
) -> Vec<u8> {
    let mut request = bytes.slice(4..);
    let key = i16::from_be_bytes([request[0], request[1]]);
    let version = i16::from_be_bytes([request[2], request[3]]);
    let flexible = if key == 18 { 3 } else { 12 };
    let header_version = if version < flexible { 1 } else { 2 };
    let header = RequestHeader::decode(&mut request, header_version).unwrap();
    let mut out = BytesMut::new();
    let response_header = ResponseHeader::default().with_correlation_id(header.correlation_id);
    if key == 18 {
        response_header.encode(&mut out, 0).unwrap();
        let api = |key, max| {
            ApiVersion::default().with_api_key(key).with_min_version(0).with_max_version(max)
        };
        let body =
            ApiVersionsResponse::default().with_api_keys(vec![api(1, fetch_version), api(18, 4)]);
        body.encode(&mut out, version).unwrap();
    } else {
        let asked = FetchRequest::decode(&mut request, version).unwrap();
        response_header.encode(&mut out, i16::from(version >= 12)).unwrap();
        fetch(&asked).encode(&mut out, version).unwrap();
    }
    let mut frame = u32::try_from(out.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(&out);
    frame
}

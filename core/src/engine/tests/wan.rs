//! Stripes over a simulated path: each connection carries at most a window of bytes for
//! each round trip, and a socket holds so much unread.

use std::collections::VecDeque;
use std::time::Duration;

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;

use super::*;
use crate::engine::config::StripeLimits;
use crate::engine::shard::StripeStats;

const RTT: Duration = Duration::from_millis(40);
const WINDOW: usize = 100 << 10;
const SOCKET: usize = 1 << 20;
const OUT_OF_RANGE: i16 = 1;

#[derive(Default)]
struct Socket {
    /// Requests under way, with their time of arrival.
    requests: VecDeque<(Tick, Bytes)>,
    /// What the broker has to send, and when it may send more.
    outbox: VecDeque<u8>,
    may_send: Tick,
    /// Arrived and unread.
    inbox: VecDeque<u8>,
    /// Offset and bytes that the session has.
    asked: (i64, usize),
    /// Fetch offsets of all its requests.
    offsets: Vec<i64>,
}

/// The world of the other tests, with a long path to the source.
struct Wan {
    world: World,
    sockets: BTreeMap<usize, (ConnectionId, Socket)>,
    /// Offsets from here on are out of range, as if this broker lagged.
    refuses_from: i64,
    /// Answers are empty, as those of a broker whose quota is used up.
    is_silent: bool,
    /// Connection, offset and last fetched epoch of every question.
    questions: Vec<(usize, i64, i32)>,
    /// New connections are refused once there are so many.
    connections_max: usize,
    /// Connections that will stand by then.
    opening: Vec<(Tick, ConnectionId)>,
    /// What the broker takes for its answer to `ApiVersions`.
    greeting_takes: Duration,
    /// An answer ends with a segment of so many bytes.
    segment_bytes: usize,
    random: u64,
}

fn limits(connections_max: usize) -> StripeLimits {
    let measure_for = Duration::from_millis(500);
    StripeLimits {
        connections_max,
        partition_max: connections_max,
        measure_for,
        ..StripeLimits::default()
    }
}

impl Wan {
    fn new(stripes: usize) -> Self {
        Self::with(limits(stripes))
    }

    fn with(stripes: StripeLimits) -> Self {
        let mut config = ShardConfig { stripes, ..ShardConfig::default() };
        config.append.mode = crate::log::cx::AppendMode::Direct { block_bytes: 4096 };
        let mut world = World::new(config);
        world.piece = 1 << 20;
        let (sockets, refuses_from) = (BTreeMap::new(), i64::MAX);
        Self {
            world,
            sockets,
            refuses_from,
            is_silent: false,
            questions: Vec::new(),
            connections_max: usize::MAX,
            opening: Vec::new(),
            greeting_takes: Duration::ZERO,
            segment_bytes: usize::MAX,
            random: 0x9e37_79b9,
        }
    }

    fn random(&mut self, below: u64) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from((self.random >> 33) % below).unwrap()
    }

    /// Batches of three records, of `min..max` bytes each.
    fn produce(&mut self, bytes: usize, min: u64, max: u64) {
        let end = self.world.log.len() + bytes;
        while self.world.log.len() < end {
            let value = usize::try_from(min).unwrap() + self.random(max - min);
            self.world.produce(1, value);
        }
    }

    fn stripes(&mut self) -> StripeStats {
        self.world.shard.stats_mut().stripes
    }

    fn copied(&self) -> usize {
        let log = self.world.shard.log(PartitionKey(1));
        usize::try_from(log.map_or(0, PartitionLog::bytes_accepted)).unwrap()
    }

    fn at(&self) -> i64 {
        self.world.shard.log(PartitionKey(1)).map_or(-1, |log| log.fetch_offset().0)
    }

    /// A partition in the middle of being copied by four stripes, with a range unread.
    fn striped() -> Self {
        let mut wan = Self::new(4);
        wan.produce(40 << 20, 3_000, 8_000);
        wan.world.add();
        wan.until(|it| it.stripes().ranges >= 16);
        wan.until(|it| {
            let at = it.at();
            let ahead = |(_, socket): &&(ConnectionId, Socket)| socket.asked.0 > at;
            let unread = it.sockets.values().filter(ahead).any(|(_, it)| it.inbox.len() > 64 << 10);
            unread && it.open().iter().filter(|(asked, _)| *asked > at).count() >= 2
        });
        wan
    }

    /// The connection whose range is being appended.
    fn front(&self) -> ConnectionId {
        let at = self.at();
        let begun = |socket: &Socket| socket.offsets.iter().copied().filter(|&it| it <= at).max();
        self.sockets.values().max_by_key(|(_, socket)| begun(socket)).unwrap().0
    }

    /// Those that are still there of `ids`.
    fn left_of(&self, ids: &[(i64, ConnectionId)]) -> usize {
        let there = |id: &ConnectionId| self.sockets.values().any(|(it, _)| it == id);
        ids.iter().filter(|(_, id)| there(id)).count()
    }

    /// All connections that asked for something, by the offset of their last question.
    fn open(&self) -> Vec<(i64, ConnectionId)> {
        let mut open: Vec<_> =
            self.sockets.values().map(|(id, socket)| (socket.asked.0, *id)).collect();
        open.sort_unstable_by_key(|(offset, id)| (*offset, id.index));
        open
    }

    /// Runs until `done`, for at most ten simulated minutes; how long that took.
    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> Duration {
        let began = self.world.now;
        while !done(self) {
            self.step();
            let took = self.world.now.since(began);
            assert!(took < Duration::from_secs(600), "at {}: {:?}", self.copied(), self.open());
        }
        self.world.now.since(began)
    }

    fn step(&mut self) {
        self.world.now.0 += 1_000_000;
        let now = self.world.now;
        self.world.shard.set_time(now, 1_000);
        self.world.shard.on_deadline();
        let opened = self.opening.extract_if(.., |(at, _)| *at <= now);
        for (_, connection) in opened.collect::<Vec<_>>() {
            self.world.shard.on_connected(connection);
        }
        self.act();
        let indexes: Vec<usize> = self.sockets.keys().copied().collect();
        for index in indexes {
            self.broker(index, now);
            self.read(index);
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.world.shard.next_action() {
            match action {
                Action::Connect { connection, .. }
                    if self.sockets.len() >= self.connections_max =>
                {
                    self.world.shard.on_disconnected(connection, &Arc::from("refused"));
                }
                Action::Connect { connection, .. } => {
                    self.sockets.insert(connection.index, (connection, Socket::default()));
                    self.world.made.push(connection);
                    self.opening.push((self.world.now.after(RTT), connection));
                }
                Action::Send { connection, bytes } => {
                    let is_greeting = bytes.get(5) == Some(&18);
                    let takes = if is_greeting { self.greeting_takes } else { Duration::ZERO };
                    let at = self.world.now.after(RTT / 2 + takes);
                    if let Some((_, socket)) = self.sockets.get_mut(&connection.index) {
                        socket.requests.push_back((at, bytes));
                    }
                }
                Action::Disconnect { connection } => {
                    let old = self.sockets.remove(&connection.index);
                    assert!(old.is_none_or(|(id, _)| id == connection));
                }
                other => self.world.carry_out(other),
            }
        }
    }

    /// Answers what has arrived, and sends a window a round trip.
    fn broker(&mut self, index: usize, now: Tick) {
        let Self { world, sockets, refuses_from, segment_bytes, is_silent, questions, .. } = self;
        let Some((_, socket)) = sockets.get_mut(&index) else { return };
        while socket.requests.front().is_some_and(|(at, _)| *at <= now) {
            let Some((at, bytes)) = socket.requests.pop_front() else { return };
            let (asked, offsets) = (&mut socket.asked, &mut socket.offsets);
            let frame = response(&bytes, world.fetch_version, |fetch| {
                if let Some(topic) = fetch.topics.first() {
                    let partition = &topic.partitions[0];
                    let max = usize::try_from(partition.partition_max_bytes).unwrap();
                    *asked = (partition.fetch_offset, max);
                    offsets.push(partition.fetch_offset);
                    questions.push((index, partition.fetch_offset, partition.last_fetched_epoch));
                }
                if *is_silent {
                    let session_id = if fetch.session_epoch == 0 { 9 } else { fetch.session_id };
                    return FetchResponse::default().with_session_id(session_id);
                }
                answer(world, fetch, *asked, (*refuses_from, *segment_bytes))
            });
            socket.outbox.extend(frame);
            socket.may_send = socket.may_send.max(at.after(RTT / 2));
        }
        if now >= socket.may_send && !socket.outbox.is_empty() {
            let room = SOCKET - socket.inbox.len();
            let n = socket.outbox.len().min(WINDOW).min(room);
            socket.inbox.extend(socket.outbox.drain(..n));
            socket.may_send = now.after(RTT);
        }
    }

    fn read(&mut self, index: usize) {
        while let Some((id, socket)) = self.sockets.get_mut(&index) {
            let id = *id;
            let Some(buffer) = self.world.shard.read_buffer(id) else { return };
            let n = buffer.len().min(socket.inbox.len());
            if n == 0 {
                return;
            }
            for (to, byte) in buffer.iter_mut().zip(socket.inbox.drain(..n)) {
                *to = byte;
            }
            self.world.shard.on_received(id, n);
            self.act();
        }
    }

    fn cut(&mut self, id: ConnectionId) {
        self.sockets.remove(&id.index);
        self.world.shard.on_disconnected(id, &Arc::from("cut"));
        self.act();
    }

    /// To the end, and compares.
    #[track_caller]
    fn finish(&mut self) {
        let returned =
            |it: &Report| matches!(it, Report::Returned { .. } | Report::BadBatch { .. });
        assert!(!self.world.reports.iter().any(returned), "{:?}", self.world.reports);
        let len = self.world.log.len();
        self.until(|it| it.copied() >= len);
        self.world.shard.command(Command::Stop);
        self.until(|it| matches!(it.world.reports.last(), Some(Report::Stopped)));
        self.world.assert_copied(len);
        assert_eq!(self.world.shard.buffers_lent_bytes(), 0);
    }
}

/// Whole batches up to the limit, the first one in any case, and a piece of the next.
fn answer(
    world: &World,
    request: &FetchRequest,
    (from, max_bytes): (i64, usize),
    (refuses_from, segment_bytes): (i64, usize),
) -> FetchResponse {
    let session_id = if request.session_epoch == 0 { 9 } else { request.session_id };
    let mut response = FetchResponse::default().with_session_id(session_id);
    let mut partition = PartitionData::default()
        .with_partition_index(0)
        .with_high_watermark(world.high_watermark)
        .with_last_stable_offset(world.high_watermark)
        .with_log_start_offset(0);
    let first = world.offsets.partition_point(|(base, _)| base + 2 < from);
    if from >= refuses_from || from > world.high_watermark {
        partition.error_code = OUT_OF_RANGE;
        partition.high_watermark = -1;
    } else if let Some(&(_, start)) = world.offsets.get(first) {
        let after = world.offsets.get(first + 1).map_or(world.log.len(), |&(_, at)| at);
        let next = (start / segment_bytes + 1).saturating_mul(segment_bytes);
        let next = world.offsets.partition_point(|&(_, at)| at < next);
        let segment_end = world.offsets.get(next).map_or(world.log.len(), |&(_, at)| at);
        let end = segment_end.min(after.max(start + max_bytes));
        partition.records = Some(Bytes::copy_from_slice(&world.log[start..end]));
    } else if request.session_epoch > 0 {
        return response;
    }
    let topic = FetchableTopicResponse::default().with_topic_id(TOPIC).with_topic(topic_name());
    response.responses.push(topic.with_partitions(vec![partition]));
    response
}

fn topic_name() -> TopicName {
    TopicName(StrBytes::from_static_str("t"))
}

/// Bytes a second from 48 MiB on, when the number of connections has been found.
fn rate(stripes: usize, segment_bytes: usize) -> (f64, StripeStats) {
    let mut wan = Wan::new(stripes);
    wan.segment_bytes = segment_bytes;
    wan.produce(90 << 20, 3_000, 8_000);
    wan.world.add();
    wan.until(|it| it.copied() >= 48 << 20);
    let before = wan.copied();
    let took = wan.until(|it| it.copied() >= 80 << 20);
    let bytes = u32::try_from(wan.copied() - before).unwrap();
    let stats = wan.stripes();
    wan.finish();
    (f64::from(bytes) / took.as_secs_f64(), stats)
}

/// Goal: where the path bounds each connection, four carry three times as much as one. A fifth
/// is for holes.
#[test]
fn four_stripes_are_three_times_as_fast_as_one_connection() {
    let (one, none) = rate(1, usize::MAX);
    let (four, stats) = rate(5, usize::MAX);
    println!("one connection {one:.0} B/s, four stripes {four:.0} B/s: {:.2}", four / one);
    println!("{stats:?}");
    assert_eq!(none, StripeStats::default());
    assert!(four >= 3.0 * one, "{one:.0} B/s became {four:.0} B/s");
}

/// Goal: where a segment of the source ends, a path stays nearly as full as elsewhere. Method:
/// four segments in the part that is timed.
#[test]
fn segments_of_the_source_cost_little() {
    let (whole, _) = rate(5, usize::MAX);
    let (cut, stats) = rate(5, 8 << 20);
    println!("{whole:.0} B/s, with segments {cut:.0} B/s; {stats:?}");
    assert!(cut >= 0.8 * whole, "{whole:.0} B/s became {cut:.0} B/s: {stats:?}");
}

/// Goal: what a broker takes for its greeting is not taken for a queue of the path, which would
/// end the search for more connections. Method: one that takes twice the round trip.
#[test]
fn a_broker_that_is_slow_to_greet_gets_as_many_connections() {
    let mut wan = Wan::new(4);
    wan.greeting_takes = RTT * 2;
    wan.produce(24 << 20, 3_000, 8_000);
    wan.world.add();
    wan.finish();
    assert!(wan.world.made.len() >= 5, "{:?}", wan.world.made);
}

/// Goal: estimates that are wrong in both directions cost time only. Method: batches that
/// grow and shrink; the copy is compared byte for byte.
#[test]
fn holes_are_filled_and_overlaps_passed_over() {
    let mut wan = Wan::new(4);
    for _ in 0..4 {
        wan.produce(8 << 20, 1_000, 2_000);
        wan.produce(8 << 20, 4_000, 8_000);
    }
    wan.world.add();
    let len = wan.world.log.len();
    wan.until(|it| it.copied() >= len);
    let stats = wan.stripes();
    assert!(stats.holes > 3 && stats.overlap_bytes > 100_000, "{stats:?}");
    // Each byte is fetched once, but for the overlaps.
    assert!(stats.overlap_bytes < 24 << 20, "{stats:?}");
    // Only at the copy's end does the last epoch say something.
    let stripes = || wan.questions.iter().filter(|(connection, ..)| *connection > 0);
    let at_end = stripes().filter(|(.., epoch)| *epoch == 3).count();
    assert!(u64::try_from(at_end).unwrap() > stats.holes, "{at_end} of {stats:?}");
    assert!(stripes().any(|(.., epoch)| *epoch == -1));
    wan.finish();
}

/// Goal: nothing that was read ahead from an older leader is appended. Method: a new leader
/// with another history beyond the copy's end, while ranges of the old one lie in sockets.
#[test]
fn a_new_leader_ends_all_stripes() {
    let mut wan = Wan::striped();
    let stripes = wan.open();
    let at = wan.at();
    let (keep, cut) = {
        let index = wan.world.offsets.partition_point(|(base, _)| *base < at);
        (index, wan.world.offsets[index].1)
    };
    wan.world.offsets.truncate(keep);
    wan.world.log.truncate(cut);
    wan.world.high_watermark = at;
    wan.world.epoch = 4;
    wan.produce(20 << 20, 2_000, 9_000);
    let leader = Leader { broker: BrokerId(1), epoch: LeaderEpoch(4) };
    wan.world.shard.command(Command::SetLeader { key: PartitionKey(1), leader });
    wan.act();
    // The connection for partitions that are behind has not been used meanwhile.
    assert_eq!(wan.left_of(&stripes), 1);
    wan.finish();
}

#[test]
fn without_the_front_the_partition_goes_on_alone() {
    let mut wan = Wan::striped();
    let stripes = wan.open();
    let front = wan.front();
    wan.cut(front);
    assert_eq!(wan.left_of(&stripes), 1);
    wan.finish();
}

#[test]
fn without_a_later_stripe_only_its_range_is_lost() {
    let mut wan = Wan::striped();
    let stripes = wan.open();
    let front = wan.front();
    let (_, last) = *stripes.iter().rev().find(|(_, id)| *id != front).unwrap();
    wan.cut(last);
    assert_eq!(wan.left_of(&stripes), stripes.len() - 1);
    let lost = wan.stripes().lost;
    assert!((1..=2).contains(&lost), "{lost}: what it was asked for, and no more");
    // It comes back.
    wan.until(|it| it.sockets.get(&last.index).is_some_and(|(_, it)| !it.offsets.is_empty()));
    wan.finish();
}

/// Goal: a guess that the source does not follow is no fault. Method: a broker that has
/// nothing a little beyond the copy's end, for a while.
#[test]
fn a_later_range_that_is_out_of_range_is_dropped() {
    let mut wan = Wan::striped();
    let lost = wan.stripes().lost;
    wan.until(|it| {
        it.refuses_from = it.at() + 60;
        it.stripes().lost >= lost + 5
    });
    wan.refuses_from = i64::MAX;
    wan.finish();
}

/// Goal: answers without a word of their range cost no range. Method: a source that answers
/// nothing for a while, as under a quota.
#[test]
fn empty_answers_are_asked_again() {
    let mut wan = Wan::striped();
    let fetches = |it: &mut Wan| it.world.shard.stats_mut().fetches;
    let (lost, asked) = (wan.stripes().lost, fetches(&mut wan));
    wan.is_silent = true;
    wan.until(|it| it.stripes().lost > lost && fetches(it) > asked + 8);
    wan.is_silent = false;
    wan.finish();
}

/// Goal: stripes that cannot be connected do not stop a partition. Method: refuse all
/// connections but the first.
#[test]
fn refused_stripes_are_given_up() {
    let mut wan = Wan::new(4);
    wan.connections_max = 1;
    wan.produce(24 << 20, 3_000, 8_000);
    wan.world.add();
    wan.finish();
    assert_eq!(wan.stripes().ranges, 0);
}

/// Before version 9 of Fetch nothing ties two ranges to the same history.
#[test]
fn no_stripes_from_a_source_that_is_not_told_the_epoch() {
    let mut wan = Wan::new(4);
    wan.world.fetch_version = 8;
    wan.produce(24 << 20, 3_000, 8_000);
    wan.world.add();
    wan.finish();
    assert_eq!(wan.stripes(), StripeStats::default());
}

#[test]
fn no_stripes_where_they_are_not_wanted() {
    let short = StripeLimits { rtt_min: RTT * 2, ..limits(4) };
    for (limits, throttled, epoch) in
        [(short, false, 3), (limits(4), true, 3), (limits(4), false, -1), (limits(1), false, 3)]
    {
        let mut wan = Wan::with(limits);
        wan.produce(24 << 20, 3_000, 8_000);
        wan.world.leader_epoch = epoch;
        wan.world.add();
        wan.world.shard.command(Command::SetThrottled { key: PartitionKey(1), throttled });
        wan.world.shard.command(Command::SetThrottleRate(Some(1 << 30)));
        wan.finish();
        assert_eq!(wan.stripes(), StripeStats::default());
    }
}

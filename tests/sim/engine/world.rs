//! One run of the simulation: source, network, host, and the order of events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use heliostat_core::engine::config::{ShardConfig, StripeLimits};
use heliostat_core::engine::message::{Command, Report};
use heliostat_core::engine::{Action, ConnectionId, Shard, StripeStats};
use heliostat_core::log::config::{LogConfig, LogConfigValues};
use heliostat_core::log::cx::{AppendLimits, AppendMode};
use heliostat_core::log::disk::{DiskAction, DiskOp, FileId, OpId};
use heliostat_core::time::Tick;
use uuid::Uuid;

use crate::broker::{Broker, BrokerFaults, host};
use crate::cluster::{Cluster, Sizes};
use crate::control::{Control, Question};
use crate::disk::{FaultPlan, Faults, SimDisk};
use crate::oracle::{Checked, ensure};
use crate::rng::Chance;

/// Bits that tell the shards' names of files and operations apart.
const SHARD_SHIFT: u32 = 48;
/// Events that a failure shows.
const TRACE_MAX: usize = 80;
/// Everything heals within so many events and so much time.
const HEAL_EVENTS_MAX: u64 = 60_000;
const HEAL_TIME_MAX: Duration = Duration::from_secs(400);

/// A connection of one shard of one life of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Link {
    life: u32,
    shard: usize,
    index: usize,
    generation: u32,
}

impl Link {
    fn id(self) -> ConnectionId {
        ConnectionId { index: self.index, generation: self.generation }
    }
}

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) broker: i32,
    inbox: VecDeque<u8>,
    /// When the last request, and the last answer, comes: none overtakes another.
    heard_at: Tick,
    answered_at: Tick,
    /// The shard said that it has no buffer.
    waits: bool,
    pump_set: bool,
    style: Style,
}

/// How bytes come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Tiny,
    Mixed,
    Bulk,
}

#[derive(Debug)]
pub(crate) enum Event {
    Deadline(usize),
    Connected(Link, bool),
    Request(Link, Bytes),
    Arrive(Link, Bytes),
    Pump(Link),
    Cut(Link),
    Disk,
    Source,
    Fault,
    Unpark,
    Control(Question),
}

/// How likely what is, in permille of its occasions.
#[derive(Clone, Copy, Debug, Default)]
struct Network {
    lost: usize,
    cut: usize,
    refused: usize,
    silent: usize,
    slow: usize,
}

pub(crate) struct World {
    pub(crate) now: Tick,
    pub(crate) cluster: Cluster,
    pub(crate) disk: SimDisk,
    pub(crate) control: Control,
    pub(crate) shards: Vec<Shard>,
    pub(crate) config: ShardConfig,
    pub(crate) brokers: BTreeMap<i32, Broker>,
    pub(crate) sockets: BTreeMap<Link, Socket>,
    life: u32,
    queue: BinaryHeap<Reverse<(Tick, u64)>>,
    pub(crate) events: BTreeMap<u64, Event>,
    next_event: u64,
    deadlines: Vec<Tick>,
    pub(crate) chance: Chance,
    network_chance: Chance,
    plan: BrokerFaults,
    network: Network,
    pub(crate) unclean: bool,
    pub(crate) healing: bool,
    seed: u64,
    pub(crate) stopping: bool,
    stopped: usize,
    hash: u64,
    trace: VecDeque<String>,
}

pub(crate) fn ms(n: usize) -> Duration {
    Duration::from_millis(u64::try_from(n).expect("small"))
}

fn sizes(chance: &mut Chance) -> Sizes {
    match chance.below(5) {
        0 => Sizes { small_max: 60, large_permille: 0, large_max: 0 },
        1 => Sizes { small_max: 1_000, large_permille: 4, large_max: 2_300_000 },
        2 => Sizes { small_max: 700, large_permille: 30, large_max: 90_000 },
        _ => Sizes { small_max: 5_000, large_permille: 0, large_max: 0 },
    }
}

fn disk_plan(chance: &mut Chance, block_bytes: u32) -> FaultPlan {
    FaultPlan {
        short_write: chance.pick(&[0, 5, 30]),
        write_error: chance.pick(&[0, 0, 1]),
        no_space: chance.pick(&[0, 0, 2]),
        sync_error: chance.pick(&[0, 0, 2]),
        other_error: chance.pick(&[0, 0, 1]),
        direct_refused: chance.pick(&[0, 0, 10, 100]),
        direct_block_bytes: u64::from(block_bytes),
    }
}

fn shard_config(chance: &mut Chance, mode: AppendMode) -> ShardConfig {
    ShardConfig {
        buffer_bytes: chance.pick(&[1 << 20, 2 << 20, 4 << 20, 32 << 20]),
        append: AppendLimits {
            mode,
            direct_run_bytes_min: 4_000,
            preallocate_bytes_min: 8 << 10,
            preallocate_bytes_max: 256 << 10,
            flush_bytes: 32 << 10,
            flush_after: Duration::from_millis(200),
            ..AppendLimits::default()
        },
        preallocate_bytes: 8 << 20,
        partition_max_bytes: chance.pick(&[3_000, 30_000, 1 << 20]),
        busy_connections: chance.between(1, 3),
        attempts_max: 5,
        open_files_max: chance.pick(&[1, 2, 1024]),
        idle_close_after: Duration::from_secs(3),
        idle_move_after: chance.pick(&[Duration::from_millis(200), Duration::from_secs(5)]),
        connect_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(3),
        backoff: (Duration::from_millis(50), Duration::from_secs(2)),
        ..ShardConfig::default()
    }
}

/// In three of four seeds, as eager as possible.
fn stripe_limits(chance: &mut Chance) -> StripeLimits {
    StripeLimits {
        connections_max: chance.pick(&[1, 3, 6, 6]),
        partition_max: chance.pick(&[1, 2, 6, 6]),
        range_bytes_min: chance.pick(&[500, 2_000, 20_000]),
        rtt_min: Duration::ZERO,
        measure_for: Duration::ZERO,
        gain_percent: chance.pick(&[0, 0, 10]),
        retry_after: ms(50),
    }
}

fn log_config(chance: &mut Chance) -> LogConfig {
    LogConfig::new(LogConfigValues {
        segment_bytes: chance.pick(&[4_000, 20_000, 100_000, 3_000_000]),
        segment_ms: chance.pick(&[400, 1_000_000]),
        segment_index_bytes: chance.pick(&[48, 1 << 20]),
        index_interval_bytes: chance.pick(&[0, 300, 4_096]),
        producer_id_expiration_ms: i64::MAX,
        ..LogConfigValues::default()
    })
    .expect("the settings are legal")
}

fn add_topics(cluster: &mut Cluster, chance: &mut Chance, may_have_ids: bool) {
    for _ in 0..chance.between(1, 3) {
        let has_id = may_have_ids && chance.percent(80);
        let id = u128::try_from(cluster.topics.len() + 1).expect("small");
        let topic = cluster.add_topic(if has_id { Uuid::from_u128(id) } else { Uuid::nil() });
        for _ in 0..chance.between(1, 4) {
            cluster.add_partition(topic);
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed, 0);
        let block_bytes = chance.pick(&[512_u32, 4096]);
        let mode = match chance.below(3) {
            0 => AppendMode::Buffered,
            1 => AppendMode::Direct { block_bytes },
            _ => AppendMode::Auto { block_bytes },
        };
        let sizes = sizes(&mut chance);
        let plan = disk_plan(&mut chance, block_bytes);
        let mut config = shard_config(&mut chance, mode);
        config.stripes = stripe_limits(&mut Chance::new(seed, 5));
        let log_config = log_config(&mut chance);
        let brokers = i32::try_from(chance.between(2, 4)).expect("small");
        let versions: &[i16] = match chance.below(4) {
            0 => &[4, 5, 6, 7, 8],
            1 => &[9, 10, 11],
            _ => &[12, 13, 14, 15, 16, 17, 18],
        };
        let mut cluster = Cluster::new(Chance::new(seed, 1), sizes, brokers);
        add_topics(&mut cluster, &mut chance, versions[0] >= 12);
        let same = chance.percent(50).then(|| chance.pick(versions));
        let brokers: BTreeMap<_, _> = (1..=brokers)
            .map(|id| {
                let version = same.unwrap_or_else(|| chance.pick(versions));
                let stream = 100 + u64::try_from(id).expect("small");
                (id, Broker::new(id, version, Chance::new(seed, stream)))
            })
            .collect();
        let oldest = brokers.values().map(|it| it.fetch_version).min().unwrap_or(0);
        let faulty = BrokerFaults {
            no_session: chance.pick(&[0, 30, 100]),
            throttle: chance.pick(&[0, 0, 5]),
            corrupt: chance.pick(&[0, 0, 20]),
            storage: chance.pick(&[0, 10]),
            not_available: chance.pick(&[0, 50]),
            hints: chance.percent(70),
            broken_answer: chance.pick(&[0, 5]),
            session_epoch: chance.pick(&[0, 10]),
        };
        let network = Network {
            lost: chance.pick(&[0, 5]),
            cut: chance.pick(&[0, 10, 40]),
            refused: chance.pick(&[0, 50]),
            silent: chance.pick(&[0, 20]),
            slow: chance.pick(&[0, 20]),
        };
        let shards = chance.between(1, 2);
        let mut world = Self {
            now: Tick::ZERO,
            cluster,
            disk: SimDisk::new(Chance::new(seed, 2), plan),
            control: Control::new(Chance::new(seed, 3), log_config, oldest),
            shards: Vec::new(),
            config,
            brokers,
            sockets: BTreeMap::new(),
            life: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            deadlines: vec![Tick::NEVER; shards],
            chance,
            network_chance: Chance::new(seed, 4),
            plan: faulty,
            network,
            // Older brokers cannot tell a copy that records were lost.
            unclean: oldest >= 9,
            healing: false,
            seed,
            stopping: false,
            stopped: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            trace: VecDeque::new(),
        };
        world.boot(shards);
        for p in 0..world.cluster.partitions.len() {
            world.cluster.produce(p, 20);
            world.catch_up(p);
        }
        world.schedule(Duration::ZERO, Event::Control(Question::Metadata));
        world.schedule(ms(5), Event::Source);
        world.schedule(ms(300), Event::Fault);
        world
    }

    fn catch_up(&mut self, p: usize) {
        for broker in self.brokers.keys() {
            self.cluster.replicate(p, *broker, 5);
            self.cluster.replicate(p, *broker, 5);
        }
    }

    pub(crate) fn boot(&mut self, shards: usize) {
        self.life += 1;
        self.sockets.clear();
        self.stopping = false;
        self.stopped = 0;
        let seed = self.seed ^ u64::from(self.life);
        self.shards = (0..shards)
            .map(|_| Shard::new(self.config.clone(), seed, self.now, self.wall_ms()))
            .collect();
        self.deadlines = vec![Tick::NEVER; shards];
        for shard in 0..shards {
            self.settle(shard);
        }
    }

    pub(crate) fn wall_ms(&self) -> i64 {
        1_000_000 + i64::try_from(self.now.0 / 1_000_000).expect("small")
    }

    pub(crate) fn schedule(&mut self, after: Duration, event: Event) {
        self.schedule_at(self.now.after(after), event);
    }

    fn schedule_at(&mut self, at: Tick, event: Event) {
        self.next_event += 1;
        self.queue.push(Reverse((at, self.next_event)));
        self.events.insert(self.next_event, event);
    }

    pub(crate) fn ask(&mut self, after: Duration, question: Question) {
        self.schedule(after, Event::Control(question));
    }

    pub(crate) fn count(&mut self, name: &'static str) {
        self.disk.faults.count(name);
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.disk.faults
    }

    pub(crate) fn trace(&self) -> String {
        self.trace.iter().fold(String::new(), |all, line| all + "\n" + line)
    }

    /// Hash of all that happened.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn note(&mut self, what: std::fmt::Arguments<'_>) {
        let mut line =
            format!("{:>9.3} ms {what}", Duration::from_nanos(self.now.0).as_secs_f64() * 1e3);
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        line.truncate(line.floor_char_boundary(260));
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    /// Runs `events` events with faults, then without until all is copied.
    pub(crate) fn run(&mut self, events: u64) -> Checked {
        for _ in 0..events {
            self.step()?;
        }
        self.heal();
        let until = self.now.after(HEAL_TIME_MAX);
        let mut left = HEAL_EVENTS_MAX;
        while !self.is_complete() {
            self.step()?;
            left -= 1;
            ensure(left > 0 && self.now < until, || {
                format!("not complete after {} events: {}", HEAL_EVENTS_MAX - left, self.lag())
            })?;
        }
        self.stop()
    }

    fn step(&mut self) -> Checked {
        let Some(Reverse((at, number))) = self.queue.pop() else {
            return Err("nothing is ever going to happen".to_owned());
        };
        let Some(event) = self.events.remove(&number) else { return Ok(()) };
        self.now = self.now.max(at);
        self.handle(event)?;
        if let Some(what) = self.disk.broken.pop() {
            return Err(what);
        }
        self.check()
    }

    fn handle(&mut self, event: Event) -> Checked {
        match event {
            Event::Deadline(shard) => {
                if self.deadlines.get(shard).is_some_and(|at| *at <= self.now) {
                    self.deadlines[shard] = Tick::NEVER;
                    self.with(shard, Shard::on_deadline)?;
                }
            }
            Event::Connected(link, answers) => return self.connected(link, answers),
            Event::Request(link, frame) => self.request(link, &frame),
            Event::Arrive(link, bytes) => {
                if let Some(socket) = self.sockets.get_mut(&link) {
                    socket.inbox.extend(bytes);
                    self.pump_soon(link, Duration::ZERO);
                }
            }
            Event::Pump(link) => return self.pump(link),
            Event::Cut(link) => return self.cut(link, "connection reset"),
            Event::Disk => return self.complete(),
            Event::Source => self.source(),
            Event::Fault => return self.fault(),
            Event::Unpark => {
                for shard in 0..self.shards.len() {
                    self.command(shard, Command::SetParked(false))?;
                }
            }
            Event::Control(question) => {
                if !matches!(question, Question::Answer(_) | Question::Metadata) {
                    self.note(format_args!("control {question:?}"));
                }
                return self.on_question(question);
            }
        }
        Ok(())
    }

    // The host.

    /// Calls a shard and carries out what it asks for.
    fn with<T>(&mut self, shard: usize, call: impl FnOnce(&mut Shard) -> T) -> Result<T, String> {
        let (now, wall) = (self.now, self.wall_ms());
        let it = self.shards.get_mut(shard).ok_or("no such shard")?;
        it.set_time(now, wall);
        let (before, ahead) = (it.stats_mut().stripes, it.stats_mut().fetches_ahead);
        let out = call(it);
        let stripes = it.stats_mut().stripes;
        if it.stats_mut().fetches_ahead > ahead {
            self.count("asked while an answer came");
        }
        self.count_stripes(before, stripes);
        while let Some(action) = self.shards[shard].next_action() {
            self.carry_out(shard, action)?;
        }
        self.settle(shard);
        Ok(out)
    }

    fn count_stripes(&mut self, before: StripeStats, now: StripeStats) {
        for (name, before, now) in [
            ("stripe asked", before.ranges, now.ranges),
            ("hole between stripes", before.holes, now.holes),
            ("overlap of stripes", before.overlap_bytes, now.overlap_bytes),
            ("range of a stripe lost", before.lost, now.lost),
        ] {
            if now > before {
                self.count(name);
            }
        }
    }

    pub(crate) fn command(&mut self, shard: usize, command: Command) -> Checked {
        self.with(shard, |it| it.command(command))
    }

    fn settle(&mut self, shard: usize) {
        let next = self.shards[shard].next_deadline();
        if next < self.deadlines[shard] {
            self.deadlines[shard] = next;
            self.schedule_at(next.max(self.now), Event::Deadline(shard));
        }
    }

    fn link(&self, shard: usize, id: ConnectionId) -> Link {
        Link { life: self.life, shard, index: id.index, generation: id.generation }
    }

    fn carry_out(&mut self, shard: usize, action: Action) -> Checked {
        match action {
            Action::Connect { connection, host: name, .. } => {
                let link = self.link(shard, connection);
                let broker = self.brokers.keys().copied().find(|id| host(*id) == *name);
                let broker = broker.ok_or_else(|| format!("connects to {name}"))?;
                let style = self.network_chance.pick(&[
                    Style::Tiny,
                    Style::Mixed,
                    Style::Bulk,
                    Style::Bulk,
                ]);
                let (inbox, waits, pump_set) = (VecDeque::new(), false, false);
                let (heard_at, answered_at) = (Tick::ZERO, Tick::ZERO);
                let socket =
                    Socket { broker, inbox, heard_at, answered_at, waits, pump_set, style };
                self.sockets.insert(link, socket);
                let took = self.latency();
                if self.happens(self.network.silent) {
                    self.count("connect without an answer");
                } else {
                    let refused = self.happens(self.network.refused);
                    self.schedule(took, Event::Connected(link, !refused));
                }
            }
            Action::Send { connection, bytes } => {
                let link = self.link(shard, connection);
                let mut at = self.now.after(self.latency());
                if let Some(socket) = self.sockets.get_mut(&link) {
                    at = at.max(socket.heard_at);
                    socket.heard_at = at;
                }
                self.schedule_at(at, Event::Request(link, bytes));
            }
            Action::Disconnect { connection } => {
                self.sockets.remove(&self.link(shard, connection));
            }
            Action::Wake { connection } => {
                let link = self.link(shard, connection);
                if let Some(socket) = self.sockets.get_mut(&link) {
                    socket.waits = false;
                    self.pump_soon(link, Duration::ZERO);
                }
            }
            Action::Disk(op) => {
                self.note(format_args!("disk {op:?}"));
                self.disk.submit(tagged(op, shard));
                let took = Duration::from_micros(
                    u64::try_from(self.chance.pick(&[50, 200, 2_000, 20_000])).expect("small"),
                );
                self.schedule(took, Event::Disk);
            }
            Action::Report(Report::Stopped) => self.stopped += 1,
            Action::Report(report) => {
                if !matches!(report, Report::Progress(_)) {
                    self.note(format_args!("report {report:?}"));
                }
                self.on_report(shard, report)?;
            }
        }
        Ok(())
    }

    fn complete(&mut self) -> Checked {
        let Some(mut outcome) = self.disk.complete_one() else { return Ok(()) };
        let shard = usize::try_from(outcome.id.0 >> SHARD_SHIFT).expect("small");
        outcome.id.0 &= (1 << SHARD_SHIFT) - 1;
        self.note(format_args!("done {outcome:?}"));
        self.with(shard, |it| it.on_disk(outcome))
    }

    // The network.

    fn happens(&mut self, permille: usize) -> bool {
        self.network_chance.below(1_000) < permille
    }

    fn latency(&mut self) -> Duration {
        if self.happens(self.network.slow) {
            self.count("slow packet");
            return ms(self.network_chance.between(300, 2_500));
        }
        Duration::from_micros(
            u64::try_from(self.network_chance.between(100, 9_000)).expect("small"),
        )
    }

    fn connected(&mut self, link: Link, answers: bool) -> Checked {
        let Some(socket) = self.sockets.get(&link) else { return Ok(()) };
        if !answers || !self.cluster.is_up(socket.broker) {
            self.count("connection refused");
            return self.cut(link, "connection refused");
        }
        self.note(format_args!("connected {link:?}"));
        self.with(link.shard, |it| it.on_connected(link.id()))
    }

    fn request(&mut self, link: Link, frame: &Bytes) {
        let Some(socket) = self.sockets.get(&link) else { return };
        let id = socket.broker;
        if !self.cluster.is_up(id) {
            return;
        }
        let Some(broker) = self.brokers.get_mut(&id) else { return };
        let answer = broker.answer(frame, &self.cluster, &self.plan, &mut self.disk.faults);
        self.note(format_args!("broker {id} answers {link:?} with {} bytes", answer.frame.len()));
        for (p, before, batch) in &answer.served {
            self.control.served(*p, *before, batch);
        }
        let took = self.latency();
        let wait = if answer.is_idle { self.config.fetch_wait } else { Duration::ZERO };
        if self.happens(self.network.lost) {
            self.count("answer lost");
            return;
        }
        let mut at = self.now.after(wait + took);
        if let Some(socket) = self.sockets.get_mut(&link) {
            at = at.max(socket.answered_at);
            socket.answered_at = at;
        }
        let mut bytes = answer.frame;
        if self.happens(self.network.cut) && bytes.len() > 8 {
            self.count("cut within an answer");
            let cut = self.network_chance.between(1, bytes.len() - 1);
            bytes.truncate(cut);
            self.schedule_at(at.after(ms(4)), Event::Cut(link));
        }
        self.schedule_at(at, Event::Arrive(link, bytes));
    }

    fn pump_soon(&mut self, link: Link, after: Duration) {
        let Some(socket) = self.sockets.get_mut(&link) else { return };
        if !socket.pump_set && !socket.waits && !socket.inbox.is_empty() {
            socket.pump_set = true;
            self.schedule(after, Event::Pump(link));
        }
    }

    /// Hands one burst of bytes to the shard.
    fn pump(&mut self, link: Link) -> Checked {
        let Some(socket) = self.sockets.get_mut(&link) else { return Ok(()) };
        socket.pump_set = false;
        let (mut burst, piece) = match socket.style {
            Style::Tiny => (400, 7),
            Style::Mixed => (60_000, 1_500),
            Style::Bulk => (1 << 22, 1 << 20),
        };
        if socket.style == Style::Tiny {
            if socket.inbox.len() > 4_000 {
                burst = socket.inbox.len() - 2_000;
            }
            self.count("tiny pieces");
        }
        loop {
            let Some(socket) = self.sockets.get_mut(&link) else { return Ok(()) };
            if burst == 0 || socket.inbox.is_empty() {
                break;
            }
            let tiny = if piece == 7 && burst > 2_000 { burst - 400 } else { piece };
            let most =
                self.network_chance.between(1, tiny.max(piece)).min(burst).min(socket.inbox.len());
            let taken = self.with(link.shard, |it| {
                let buffer = it.read_buffer(link.id())?;
                assert!(!buffer.is_empty(), "a buffer has room");
                Some(most.min(buffer.len()))
            })?;
            let Some(socket) = self.sockets.get_mut(&link) else { return Ok(()) };
            let Some(n) = taken else {
                socket.waits = true;
                self.count("waited for a buffer");
                return Ok(());
            };
            let bytes: Vec<u8> = socket.inbox.drain(..n).collect();
            burst -= n;
            self.with(link.shard, |it| {
                if let Some(buffer) = it.read_buffer(link.id()) {
                    buffer[..n].copy_from_slice(&bytes);
                    it.on_received(link.id(), n);
                }
            })?;
        }
        self.pump_soon(link, Duration::from_micros(300));
        Ok(())
    }

    pub(crate) fn cut(&mut self, link: Link, why: &str) -> Checked {
        if self.sockets.remove(&link).is_none() {
            return Ok(());
        }
        self.note(format_args!("cut {link:?}: {why}"));
        self.with(link.shard, |it| it.on_disconnected(link.id(), &Arc::from(why)))
    }

    // The source.

    fn source(&mut self) {
        let partitions = self.cluster.partitions.len();
        let p = self.chance.below(partitions);
        if !self.healing {
            let batches = self.chance.between(0, 6);
            self.cluster.produce(p, batches);
        }
        for broker in self.brokers.keys() {
            if self.healing || self.chance.percent(70) {
                let batches = self.chance.between(1, 12);
                self.cluster.replicate(p, *broker, batches);
            }
        }
        let pause = self.chance.between(2, 30);
        if !self.healing {
            self.schedule(ms(pause), Event::Source);
        }
    }

    // The end.

    pub(crate) fn stop_shards(&mut self) -> Checked {
        self.stopping = true;
        for shard in 0..self.shards.len() {
            self.command(shard, Command::Stop)?;
        }
        let mut left = 20_000;
        while self.stopped < self.shards.len() {
            self.step()?;
            left -= 1;
            ensure(left > 0, || "the shards never stop".to_owned())?;
        }
        for shard in &self.shards {
            let lent = shard.buffers_lent_bytes();
            ensure(lent == 0, || format!("{lent} bytes of buffers are lent after the stop"))?;
        }
        Ok(())
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    fn heal(&mut self) {
        self.note(format_args!("heals"));
        self.healing = true;
        self.plan = BrokerFaults { hints: self.plan.hints, ..BrokerFaults::default() };
        self.network = Network::default();
        self.disk.plan = FaultPlan {
            direct_block_bytes: self.disk.plan.direct_block_bytes,
            direct_refused: self.disk.plan.direct_refused,
            ..FaultPlan::default()
        };
        self.cluster.heal();
        self.control.heal();
        for shard in 0..self.shards.len() {
            let _ = self.command(shard, Command::SetThrottleRate(None));
        }
        self.schedule(Duration::ZERO, Event::Unpark);
    }

    fn is_complete(&self) -> bool {
        (0..self.cluster.partitions.len()).all(|p| self.control.is_complete(p, &self.cluster))
    }

    fn lag(&self) -> String {
        (0..self.cluster.partitions.len())
            .filter(|p| !self.control.is_complete(*p, &self.cluster))
            .fold(String::new(), |all, p| all + "\n  " + &self.control.describe(p, &self.cluster))
    }

    fn stop(&mut self) -> Checked {
        self.stop_shards()?;
        self.control.check_all(&self.disk)
    }

    fn check(&mut self) -> Checked {
        self.control.check(&self.shards, &self.disk, &self.cluster)
    }
}

/// The operation under names that are the shard's own.
fn tagged(op: DiskOp, shard: usize) -> DiskOp {
    let tag = u64::try_from(shard).expect("small") << SHARD_SHIFT;
    let DiskOp { id, mut action } = op;
    match &mut action {
        DiskAction::Open { file, .. }
        | DiskAction::Close { file }
        | DiskAction::Write { file, .. }
        | DiskAction::Sync { file }
        | DiskAction::Preallocate { file, .. }
        | DiskAction::SetLength { file, .. }
        | DiskAction::Read { file, .. } => *file = FileId(file.0 | tag),
        DiskAction::WriteAt { .. } | DiskAction::Replace { .. } | DiskAction::Remove { .. } => {}
    }
    DiskOp { id: OpId(id.0 | tag), action }
}

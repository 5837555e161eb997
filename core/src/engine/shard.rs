//! One shard: its partitions, its connections, its logs, as one state machine.
//!
//! The driver tells it what happened (a command, a connect, received bytes, a disk
//! completion, a deadline) and carries out the [`Action`]s that come out. It never
//! waits and never blocks, so that the same code runs on sockets and io_uring and in
//! the simulation.
//!
//! ```text
//!   Command ──▶ ┌───────────────────────────────┐ ──▶ Action::Connect, Send, Disconnect
//!   bytes   ──▶ │ connections: session, decoder │ ──▶ Action::Disk
//!   disk    ──▶ │ partitions:  log, status      │ ──▶ Action::Report
//!   time    ──▶ └───────────────────────────────┘ ──▶ Action::Wake
//! ```
//!
//! Received bytes do not pass through: [`Shard::read_buffer`] says where the next
//! bytes of a connection belong, in most cases a slot that goes to the disk as it is.

mod ahead;
mod fetch;
mod network;
mod partitions;
mod spread;
mod striping;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use self::spread::Behind;
use super::config::ShardConfig;
use super::connection::{Connection, ConnectionId};
use super::message::{BrokerAddress, Command, PartitionKey, Report};
use super::pace::Climb;
use super::partition::{Partition, Status};
use super::spent::TimeSpent;
use super::throttle::Throttle;
use super::timers::{Timer, Timers};
use crate::fetcher::BackoffPolicy;
use crate::log::cx::{AppendStats, Ids, LogCx};
use crate::log::disk::{DiskOp, DiskOutcome, OpId};
use crate::log::partition::PartitionLog;
use crate::log::slot::SlotPool;
use crate::time::Tick;
use crate::types::{BrokerId, Offset};

/// Most partitions in one report.
const PROGRESS_MAX: usize = 1024;
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// That a partition has caught up for the first time is told so soon.
const ARRIVAL_WITHIN: Duration = Duration::from_millis(5);
const FLUSH_STEP: Duration = Duration::from_millis(1);
/// Readers look for less than this, unless their thread is kept from running.
const SHOW_AGAIN: Duration = Duration::from_millis(1);

/// What the driver has to do, in order.
#[derive(Debug)]
pub enum Action {
    /// Open a TCP connection; answer with [`Shard::on_connected`] or
    /// [`Shard::on_disconnected`].
    Connect {
        /// Its name from here on.
        connection: ConnectionId,
        /// Host name or address, to be resolved now.
        host: Arc<str>,
        /// TCP port.
        port: u16,
        /// Bytes that its socket should be able to hold unread from the start; 0 for what the
        /// system gives.
        unread_bytes: u32,
    },
    /// Send these bytes.
    Send {
        /// To whom.
        connection: ConnectionId,
        /// One whole request.
        bytes: bytes::Bytes,
    },
    /// Close it, without an answer.
    Disconnect {
        /// Which.
        connection: ConnectionId,
    },
    /// There may be a buffer for it again: ask [`Shard::read_buffer`].
    Wake {
        /// Which.
        connection: ConnectionId,
    },
    /// Do this on the disk; answer with [`Shard::on_disk`].
    Disk(DiskOp),
    /// Tell the control thread.
    Report(Report),
}

/// Counters of a shard since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardStats {
    /// Of the append path.
    pub append: AppendStats,
    /// Record bytes received.
    pub record_bytes_received: u64,
    /// Record bytes dropped before they reached a log.
    pub record_bytes_dropped: u64,
    /// Fetch requests sent.
    pub fetches: u64,
    /// Of these, those that were sent while an answer was being received.
    pub fetches_ahead: u64,
    /// Connections that broke.
    pub disconnects: u64,
    /// Times a connection waited for a buffer.
    pub buffer_waits: u64,
    /// Of striped partitions.
    pub stripes: StripeStats,
    /// Where the time went.
    pub spent: TimeSpent,
    /// Milliseconds that brokers asked for silence.
    pub broker_throttle_ms: u64,
    /// Times from sending a Fetch to the first byte of its answer, of answers with records; the
    /// driver drains it.
    pub fetch_latencies: Vec<Duration>,
}

/// Counters of striped partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StripeStats {
    /// Ranges asked for.
    pub ranges: u64,
    /// Of these, those that filled a hole before another one.
    pub holes: u64,
    /// Ranges that brought nothing: the source had nothing there, or the connection broke.
    pub lost: u64,
    /// Record bytes that came twice; dropped ones hold them too.
    pub overlap_bytes: u64,
}

#[derive(Debug)]
struct Broker {
    address: BrokerAddress,
    /// Indexes of its connections.
    connections: Vec<usize>,
    /// How many it is worth for partitions that are behind.
    climb: Climb,
    /// By all its connections.
    bytes_appended: u64,
    behind: Behind,
    no_stripes_until: Tick,
}

impl Broker {
    fn new(address: BrokerAddress, now: Tick) -> Self {
        Self {
            address,
            connections: Vec::new(),
            climb: Climb::new(now),
            bytes_appended: 0,
            behind: Behind::default(),
            no_stripes_until: Tick::ZERO,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Shard {
    config: ShardConfig,
    policy: BackoffPolicy,
    now: Tick,
    wall_ms: i64,
    partitions: Vec<Option<Box<Partition>>>,
    free: Vec<usize>,
    by_key: HashMap<PartitionKey, usize>,
    brokers: BTreeMap<BrokerId, Broker>,
    connections: Vec<Connection>,
    /// Partitions whose topic has no ID: while there are any, Fetch goes by name.
    without_id: usize,
    pool: SlotPool,
    ids: Ids,
    ops: Vec<DiskOp>,
    preallocate_left: u64,
    owners: HashMap<OpId, usize>,
    throttle: Throttle,
    timers: Timers,
    throttle_timer: bool,
    /// [`Tick::NEVER`] while there is nothing to report: an idle shard is not woken for it.
    report_at: Tick,
    dirty: Vec<usize>,
    open_files: Vec<usize>,
    /// Partitions with an open file; the list above also has those closed of late.
    files_open: usize,
    /// Files opened or closed since the last look at that list.
    files_changed: usize,
    actions: VecDeque<Action>,
    parked: bool,
    stopping: bool,
    stopped: bool,
    metadata_wanted: bool,
    /// A run ended early: its buffer may be what a connection waits for, or the connection
    /// waits for it no more. Or a range ended: the next one's turn may have come.
    buffers_freed: bool,
    random: u64,
    stats: ShardStats,
}

impl Shard {
    /// An empty shard. `seed` spreads back-offs.
    pub fn new(config: ShardConfig, seed: u64, now: Tick, wall_ms: i64) -> Self {
        let (min, max) = config.backoff;
        let mut timers = Timers::default();
        timers.set(now.after(SWEEP_EVERY), Timer::Sweep);
        Self {
            policy: BackoffPolicy::new(min, max),
            now,
            wall_ms,
            partitions: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            brokers: BTreeMap::new(),
            connections: Vec::new(),
            without_id: 0,
            pool: SlotPool::new(config.buffer_bytes, config.map_slots),
            ids: Ids::default(),
            ops: Vec::new(),
            preallocate_left: config.preallocate_bytes,
            owners: HashMap::new(),
            throttle: Throttle::new(None, now),
            timers,
            throttle_timer: false,
            report_at: Tick::NEVER,
            dirty: Vec::new(),
            open_files: Vec::new(),
            files_open: 0,
            files_changed: 0,
            actions: VecDeque::new(),
            parked: false,
            stopping: false,
            stopped: false,
            metadata_wanted: false,
            buffers_freed: false,
            random: seed | 1,
            stats: ShardStats::default(),
            config,
        }
    }

    /// Sets the clock. Call before each batch of events.
    pub fn set_time(&mut self, now: Tick, wall_ms: i64) {
        self.now = self.now.max(now);
        self.wall_ms = wall_ms;
    }

    /// The next thing to do; `None` once all is done.
    pub fn next_action(&mut self) -> Option<Action> {
        while self.actions.is_empty() && std::mem::take(&mut self.buffers_freed) {
            self.wake_stalled();
        }
        // Not only once a second: thousands may be opened in between.
        if self.actions.is_empty()
            && self.files_open > self.config.open_files_max
            && self.files_changed > self.config.open_files_max / 4
        {
            self.close_files();
        }
        self.actions.pop_front()
    }

    /// When [`Self::on_deadline`] has something to do.
    pub fn next_deadline(&self) -> Tick {
        self.timers.next()
    }

    /// Counters; the driver drains the latency lists.
    pub fn stats_mut(&mut self) -> &mut ShardStats {
        &mut self.stats
    }

    /// Bytes of receive buffers that are lent out.
    pub fn buffers_lent_bytes(&self) -> usize {
        self.pool.lent_bytes()
    }

    /// Partitions with an open `.log` file.
    pub fn open_files(&self) -> usize {
        self.files_open
    }

    /// Number of partitions it owns.
    pub fn partition_count(&self) -> usize {
        self.by_key.len()
    }

    /// The log of a partition that it owns.
    pub fn log(&self, key: PartitionKey) -> Option<&PartitionLog> {
        let index = self.index_of(key)?;
        Some(&self.partitions.get(index)?.as_deref()?.log)
    }

    /// Carries out a command of the control thread.
    pub fn command(&mut self, command: Command) {
        match command {
            Command::Add(add) => self.add(*add),
            Command::Remove { key } => {
                if let Some(index) = self.index_of(key) {
                    self.begin_return(index, super::message::ReturnReason::Asked);
                }
            }
            Command::SetLeader { key, leader } => self.set_leader(key, leader),
            Command::SetTopicIdentity { key, topic } => self.set_topic(key, topic),
            Command::SetBrokers(brokers) => self.set_brokers(brokers),
            Command::SetThrottleRate(rate) => {
                let was_limited = self.throttle.is_limited();
                self.throttle.set_rate(rate, self.now);
                // What is set is when the old rate gives something, which may be never.
                self.throttle_timer = false;
                if was_limited != self.throttle.is_limited() {
                    self.sort_throttled();
                }
                self.resume_all();
            }
            Command::SetLocalEpoch { key, epoch } => self.set_local_epoch(key, epoch),
            Command::SetThrottled { key, throttled } => self.set_throttled(key, throttled),
            Command::SetParked(parked) => {
                self.parked = parked;
                self.resume_all();
            }
            Command::Stop => self.stop(),
        }
    }

    /// A disk operation completed.
    pub fn on_disk(&mut self, outcome: DiskOutcome) {
        let owner = self.owners.remove(&outcome.id);
        match owner {
            Some(index) if self.partitions.get(index).is_some_and(Option::is_some) => {
                self.with_log(index, |log, cx| {
                    log.on_outcome(outcome, cx);
                });
            }
            _ => {
                if let Some(slot) = outcome.slot {
                    self.pool.give(slot);
                }
            }
        }
        self.wake_stalled();
    }

    /// Does what is due. Call when [`Self::next_deadline`] has come.
    pub fn on_deadline(&mut self) {
        while let Some(timer) = self.timers.due(self.now) {
            match timer {
                Timer::Retry(key) => self.retry(key),
                Timer::Flush(key) => self.flush(key),
                Timer::Show(key) => {
                    if let Some(index) = self.index_of(key) {
                        self.show(index);
                    }
                }
                Timer::Connection(index) => self.connection_deadline(index),
                Timer::Quiet(index) => self.quiet_ends(index),
                Timer::Throttle => {
                    self.throttle_timer = false;
                    self.resume_all();
                }
                Timer::Sweep => {
                    self.sweep();
                    self.timers.set(self.now.after(SWEEP_EVERY), Timer::Sweep);
                }
                Timer::Report if self.report_at <= self.now => {
                    self.report_at = Tick::NEVER;
                    self.report_progress();
                }
                // An earlier one has taken its place.
                Timer::Report => {}
            }
        }
    }

    fn index_of(&self, key: PartitionKey) -> Option<usize> {
        self.by_key.get(&key).copied()
    }

    fn partition(&mut self, index: usize) -> Option<&mut Partition> {
        self.partitions.get_mut(index)?.as_deref_mut()
    }

    fn next_random(&mut self) -> u64 {
        // xorshift64: enough to keep retries apart.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Calls a partition's log, and deals with what the call changed.
    fn with_log<R>(
        &mut self,
        index: usize,
        call: impl FnOnce(&mut PartitionLog, &mut LogCx<'_>) -> R,
    ) -> Option<R> {
        let partition = self.partitions.get_mut(index)?.as_deref_mut()?;
        let before = partition.log.log_end_offset();
        let seen = partition.readers.as_ref().map(|_| ends(&partition.log));
        let mut cx = LogCx {
            now: self.now,
            wall_ms: self.wall_ms,
            pool: &mut self.pool,
            limits: &self.config.append,
            preallocate_left: &mut self.preallocate_left,
            // To close one takes a sync: as many again may wait for theirs.
            files_left: (self.config.open_files_max * 2).saturating_sub(self.files_open),
            ids: &mut self.ids,
            ops: &mut self.ops,
            stats: &mut self.stats.append,
        };
        let result = call(&mut partition.log, &mut cx);
        let moved = partition.log.log_end_offset() != before;
        if seen.is_some_and(|seen| seen != ends(&partition.log)) {
            self.show(index);
        }
        self.after_log(index, moved);
        Some(result)
    }

    /// Shows a partition to its readers. They may be looking just now; then it is shown again in
    /// a moment.
    fn show(&mut self, index: usize) {
        let (now, again_at) = (self.now, self.now.after(SHOW_AGAIN));
        let Some(partition) = self.partition(index) else { return };
        let key = partition.key;
        if !partition.show(now, again_at) {
            self.timers.set(again_at, Timer::Show(key));
        }
    }

    fn after_log(&mut self, index: usize, moved: bool) {
        for op in self.ops.drain(..) {
            self.owners.insert(op.id, index);
            self.actions.push_back(Action::Disk(op));
        }
        if moved {
            self.mark_dirty(index);
            self.tell_first_arrival(index);
        }
        let flush_after = self.config.append.flush_after;
        let Some(partition) = self.partitions.get_mut(index).and_then(Option::as_deref_mut) else {
            return;
        };
        let flush_at = partition.log.deadline(flush_after);
        if flush_at < Tick::NEVER && !partition.flush_timer {
            partition.flush_timer = true;
            // Later than now, whatever the log says: a timer must not keep the shard busy.
            let flush_at = flush_at.max(self.now.after(FLUSH_STEP));
            self.timers.set(flush_at, Timer::Flush(partition.key));
        }
        let is_open = partition.log.open_since().is_some();
        if std::mem::replace(&mut partition.file_open, is_open) != is_open {
            self.files_changed += 1;
            if is_open {
                self.files_open += 1;
            } else {
                self.files_open -= 1;
            }
        }
        if is_open && !std::mem::replace(&mut partition.listed_open, true) {
            self.open_files.push(index);
        }
        if matches!(partition.status, Status::Returning(_)) {
            self.finish_return(index);
        } else if let Some(failure) = partition.log.failure() {
            let (action, error) = (failure.action, failure.error);
            self.begin_return(index, super::message::ReturnReason::Disk { action, error });
        } else if partition.evicting {
            self.evict(index);
        }
    }

    fn flush(&mut self, key: PartitionKey) {
        if let Some(index) = self.index_of(key) {
            if let Some(partition) = self.partition(index) {
                partition.flush_timer = false;
                self.mark_dirty(index);
            }
            self.with_log(index, |log, cx| log.tick(cx));
        }
    }

    fn mark_dirty(&mut self, index: usize) {
        if let Some(partition) = self.partitions.get_mut(index).and_then(Option::as_deref_mut)
            && !partition.dirty
        {
            partition.dirty = true;
            self.dirty.push(index);
            self.report_within(self.config.report_every);
        }
    }

    /// The partition has everything for the first time: a job may wait for that and no more.
    pub(super) fn tell_first_arrival(&mut self, index: usize) {
        let Some(partition) = self.partition(index) else { return };
        let high_watermark = partition.high_watermark;
        let has_all =
            high_watermark > Offset::ZERO && partition.log.log_end_offset() >= high_watermark;
        if has_all && !std::mem::replace(&mut partition.arrived, true) {
            self.report_within(ARRIVAL_WITHIN);
        }
    }

    fn report_within(&mut self, time: Duration) {
        let at = self.now.after(time);
        if at < self.report_at {
            self.report_at = at;
            self.timers.set(at, Timer::Report);
        }
    }

    fn report_progress(&mut self) {
        let now = self.now;
        let dirty = std::mem::take(&mut self.dirty);
        for chunk in dirty.chunks(PROGRESS_MAX) {
            let progress: Vec<_> = chunk
                .iter()
                .filter_map(|&index| {
                    let partition = self.partitions.get_mut(index)?.as_deref_mut()?;
                    partition.dirty = false;
                    Some(partition.progress(now))
                })
                .collect();
            if !progress.is_empty() {
                self.actions.push_back(Action::Report(Report::Progress(progress)));
            }
        }
    }

    /// Moves idle partitions to long polls, and looks at the open files.
    fn sweep(&mut self) {
        self.close_files();
        self.move_idle();
        self.pool.rest();
        for connection in &mut self.connections {
            if connection.members.is_empty() && connection.answering.is_none() {
                connection.session.rest();
            }
        }
    }

    /// Closes files that are idle, or too many.
    fn close_files(&mut self) {
        self.files_changed = 0;
        let now = self.now;
        let (limit, idle) = (self.config.open_files_max, self.config.idle_close_after);
        let mut open = std::mem::take(&mut self.open_files);
        open.retain(|&index| {
            let Some(partition) = self.partition(index) else { return false };
            let still = partition.log.open_since().is_some();
            partition.listed_open = still;
            still
        });
        let used = |shard: &Self, index: usize| {
            let partition = shard.partitions.get(index).and_then(Option::as_deref);
            partition.and_then(|partition| partition.log.open_since()).unwrap_or(Tick::NEVER)
        };
        open.sort_by_key(|&index| used(self, index));
        let excess = open.len().saturating_sub(limit);
        let victims: Vec<usize> = open
            .iter()
            .enumerate()
            .filter(|&(place, &index)| place < excess || now.since(used(self, index)) >= idle)
            .map(|(_, &index)| index)
            .collect();
        self.open_files = open;
        for index in victims {
            self.evict(index);
        }
    }

    fn evict(&mut self, index: usize) {
        let Some(partition) = self.partition(index) else { return };
        // Cleared first: the log's answer must not lead back here.
        partition.evicting = false;
        let closed = self.with_log(index, |log, cx| log.evict(cx));
        if let Some(partition) = self.partition(index) {
            let pending = closed == Some(false) && partition.log.failure().is_none();
            partition.evicting =
                pending && partition.log.run_left() == 0 && partition.status_allows_eviction();
        }
    }
}

/// What readers of a log see move.
fn ends(log: &PartitionLog) -> (Offset, Offset, Offset) {
    (log.log_start_offset(), log.log_end_offset(), log.shown_last_stable())
}

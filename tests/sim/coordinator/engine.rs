//! The shard of one mirror's job and its connections. What is under way happens when, and in the
//! order that, the world says; nothing here knows the source.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use heliostat_core::engine::config::{ShardConfig, StripeLimits};
use heliostat_core::engine::message::{BrokerAddress, Command, PartitionKey, Report};
use heliostat_core::engine::{Action, ConnectionId, Shard};
use heliostat_core::log::cx::{AppendLimits, AppendMode};
use heliostat_core::log::disk::{DiskAction, DiskOp, DiskOutcome, FileId, OpId};
use heliostat_core::log::partition::PartitionLog;
use heliostat_core::time::Tick;
use heliostat_core::types::BrokerId;

use crate::rng::Chance;
use crate::store::SimStore;

/// The only broker of each source.
pub(crate) const SOURCE: BrokerId = BrokerId(1);
/// Bits that tell the shards' names of files and operations apart.
const TAG_SHIFT: u32 = 40;

/// Place and generation of a connection.
type SocketId = (usize, u32);

#[derive(Debug, Default)]
struct Socket {
    is_connecting: bool,
    /// What the source has not answered.
    requests: VecDeque<Bytes>,
    /// What the shard has not read.
    inbox: VecDeque<u8>,
    /// The shard said that it has no buffer.
    waits: bool,
    /// It breaks once the inbox is read.
    is_cut: bool,
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Connect(SocketId),
    Answer(SocketId),
    Bytes(SocketId),
    Break(SocketId),
    Deadline,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Engine {
    shard: Shard,
    pub(crate) tag: u64,
    sockets: BTreeMap<SocketId, Socket>,
    pub(crate) reports: VecDeque<Report>,
    /// The shard wants to know the leaders anew.
    pub(crate) wants_metadata: bool,
}

fn config(chance: &mut Chance) -> ShardConfig {
    let mode = chance.pick(&[AppendMode::Buffered, AppendMode::Direct { block_bytes: 512 }]);
    ShardConfig {
        buffer_bytes: 1 << 20,
        append: AppendLimits {
            mode,
            preallocate_bytes_min: 2 << 10,
            preallocate_bytes_max: 8 << 10,
            flush_bytes: chance.pick(&[300, 32 << 10]),
            flush_after: Duration::from_millis(200),
            ..AppendLimits::default()
        },
        preallocate_bytes: 1 << 20,
        partition_max_bytes: chance.pick(&[150, 1 << 20]),
        busy_connections: chance.between(1, 2),
        stripes: StripeLimits {
            connections_max: chance.pick(&[1, 3]),
            partition_max: chance.pick(&[1, 3]),
            range_bytes_min: 200,
            rtt_min: Duration::ZERO,
            measure_for: Duration::ZERO,
            gain_percent: 0,
            retry_after: Duration::from_millis(50),
        },
        open_files_max: chance.pick(&[1, 1024]),
        idle_close_after: Duration::from_secs(3),
        idle_move_after: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(3),
        backoff: (Duration::from_millis(50), Duration::from_secs(2)),
        ..ShardConfig::default()
    }
}

impl Engine {
    /// An idle one. `tag` is nobody else's on its disk.
    pub(crate) fn new(tag: u64, chance: &mut Chance, now: Tick) -> Self {
        let shard = Shard::new(config(chance), tag, now, wall_ms(now));
        let (sockets, reports) = (BTreeMap::new(), VecDeque::new());
        Self { shard, tag, sockets, reports, wants_metadata: true }
    }

    pub(crate) fn log(&self, key: PartitionKey) -> Option<&PartitionLog> {
        self.shard.log(key)
    }

    /// Calls the shard, and takes what it asks for.
    fn with(&mut self, now: Tick, store: &mut SimStore, call: impl FnOnce(&mut Shard)) {
        self.shard.set_time(now, wall_ms(now));
        call(&mut self.shard);
        while let Some(action) = self.shard.next_action() {
            match action {
                Action::Connect { connection, .. } => {
                    let socket = Socket { is_connecting: true, ..Socket::default() };
                    self.sockets.insert(place(connection), socket);
                }
                Action::Send { connection, bytes } => {
                    if let Some(socket) = self.sockets.get_mut(&place(connection)) {
                        socket.requests.push_back(bytes);
                    }
                }
                Action::Disconnect { connection } => {
                    self.sockets.remove(&place(connection));
                }
                Action::Wake { connection } => {
                    if let Some(socket) = self.sockets.get_mut(&place(connection)) {
                        socket.waits = false;
                    }
                }
                Action::Disk(op) => store.disk.submit(tagged(op, self.tag)),
                Action::Report(Report::WantMetadata) => self.wants_metadata = true,
                Action::Report(report) => self.reports.push_back(report),
            }
        }
    }

    pub(crate) fn command(&mut self, command: Command, now: Tick, store: &mut SimStore) {
        self.with(now, store, |shard| shard.command(command));
    }

    /// Where the source is.
    pub(crate) fn tell_broker(&mut self, now: Tick, store: &mut SimStore) {
        let (host, port) = (Arc::from("source"), 1);
        let brokers = vec![BrokerAddress { id: SOURCE, host, port }];
        self.wants_metadata = false;
        self.command(Command::SetBrokers(brokers), now, store);
    }

    /// An operation with this engine's tag has ended.
    pub(crate) fn on_disk(&mut self, outcome: DiskOutcome, now: Tick, store: &mut SimStore) {
        self.with(now, store, |shard| shard.on_disk(outcome));
    }

    pub(crate) fn next_deadline(&self) -> Tick {
        self.shard.next_deadline()
    }

    /// What may happen now; without its source little does.
    pub(crate) fn possible(&self, now: Tick, has_source: bool) -> Vec<Next> {
        let mut all = Vec::new();
        for (id, socket) in &self.sockets {
            if socket.is_connecting {
                all.push(Next::Connect(*id));
            } else if !socket.inbox.is_empty() {
                if !socket.waits {
                    all.push(Next::Bytes(*id));
                }
            } else if socket.is_cut || !has_source {
                all.push(Next::Break(*id));
            }
            if has_source && !socket.is_cut && !socket.requests.is_empty() {
                all.push(Next::Answer(*id));
            }
        }
        if self.shard.next_deadline() <= now {
            all.push(Next::Deadline);
        }
        all
    }

    pub(crate) fn connected(&mut self, id: SocketId, now: Tick, store: &mut SimStore) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.is_connecting = false;
            self.with(now, store, |shard| shard.on_connected(connection(id)));
        }
    }

    pub(crate) fn breaks(&mut self, id: SocketId, now: Tick, store: &mut SimStore) {
        if self.sockets.remove(&id).is_some() {
            let why = Arc::from("connection reset");
            self.with(now, store, |shard| shard.on_disconnected(connection(id), &why));
        }
    }

    pub(crate) fn on_deadline(&mut self, now: Tick, store: &mut SimStore) {
        self.with(now, store, Shard::on_deadline);
    }

    /// The oldest request of a connection.
    pub(crate) fn take_request(&mut self, id: SocketId) -> Option<Bytes> {
        self.sockets.get_mut(&id)?.requests.pop_front()
    }

    /// Bytes of an answer are on their way; `is_last`: the connection breaks behind them.
    pub(crate) fn sends(&mut self, id: SocketId, bytes: &[u8], is_last: bool) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.inbox.extend(bytes);
            socket.is_cut |= is_last;
        }
    }

    /// Some of the bytes that have come are read, at most `most`.
    pub(crate) fn reads(&mut self, id: SocketId, most: usize, now: Tick, store: &mut SimStore) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let most = most.min(socket.inbox.len());
        let inbox = std::mem::take(&mut socket.inbox);
        let mut read = None;
        self.with(now, store, |shard| {
            let Some(buffer) = shard.read_buffer(connection(id)) else { return };
            let n = most.min(buffer.len());
            for (to, from) in buffer.iter_mut().zip(inbox.iter().take(n)) {
                *to = *from;
            }
            shard.on_received(connection(id), n);
            read = Some(n);
        });
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.inbox = inbox;
            match read {
                Some(n) => drop(socket.inbox.drain(..n)),
                None => socket.waits = true,
            }
        }
    }
}

pub(crate) fn wall_ms(now: Tick) -> i64 {
    1_000 + i64::try_from(now.0 / 1_000_000).unwrap_or(0)
}

fn place(id: ConnectionId) -> SocketId {
    (id.index, id.generation)
}

fn connection((index, generation): SocketId) -> ConnectionId {
    ConnectionId { index, generation }
}

/// The operation under names that are this shard's alone.
fn tagged(op: DiskOp, tag: u64) -> DiskOp {
    let tag = tag << TAG_SHIFT;
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

/// Whose the operation is, and its own name.
pub(crate) fn untagged(id: OpId) -> (u64, OpId) {
    (id.0 >> TAG_SHIFT, OpId(id.0 & ((1 << TAG_SHIFT) - 1)))
}

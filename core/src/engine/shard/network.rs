//! Brokers and connections: which exist, how they open, break and come back.

use std::sync::Arc;

use super::{Action, Broker, Shard};
use crate::engine::connection::{Connection, ConnectionId, Lane, Phase, RunTarget};
use crate::engine::message::{BrokerAddress, Trouble};
use crate::engine::timers::Timer;
use crate::protocol::{ApiVersions, ErrorCode, RequestId};
use crate::time::Tick;
use crate::types::BrokerId;

/// Of the least size, that the socket of a stripe should hold: two are asked for, and they may be
/// larger.
const RANGES_UNREAD: u32 = 4;

impl Shard {
    pub(super) fn know_broker(&mut self, address: BrokerAddress) {
        let id = address.id;
        match self.brokers.get_mut(&id) {
            Some(broker) if broker.address == address => {}
            Some(broker) => {
                broker.address = address;
                for index in broker.connections.clone() {
                    self.break_connection(index, &Arc::from("the broker's address changed"));
                }
            }
            None => {
                let broker = Broker::new(address, self.now);
                self.brokers.insert(id, broker);
            }
        }
    }

    pub(super) fn forget_broker(&mut self, id: BrokerId) {
        let Some(broker) = self.brokers.remove(&id) else { return };
        for index in broker.connections {
            let members: Vec<usize> = self.connections[index].members.iter().copied().collect();
            for member in members {
                self.delist(member);
                self.resume(member);
            }
            self.close_connection(index);
            self.connections[index].broker = BrokerId::NONE;
        }
    }

    pub(super) fn close_connection(&mut self, index: usize) {
        let limits = self.config.fetch_limits;
        let connection = &mut self.connections[index];
        if connection.phase != Phase::Down {
            self.actions.push_back(Action::Disconnect { connection: connection.id });
        }
        connection.break_off(limits);
    }

    /// The connection of `broker` for a lane; `None` is the throttled one. Busy
    /// partitions go to the busy connection with the fewest of them.
    pub(super) fn connection_for(&mut self, broker: BrokerId, lane: Option<Lane>) -> usize {
        let existing = self.brokers.get(&broker).map_or(&[][..], |broker| &broker.connections);
        let of_lane = |wanted: Lane| {
            existing.iter().copied().find(|&index| self.connections[index].lane == wanted)
        };
        let (lane, found) = match lane {
            None => (Lane::Throttled, of_lane(Lane::Throttled)),
            Some(Lane::Busy(_)) => {
                let choices = (0..self.lanes(broker)).map(|n| {
                    let found = of_lane(Lane::Busy(n));
                    let load = found.map_or(0, |index| self.connections[index].members.len());
                    (load, Lane::Busy(n), found)
                });
                choices
                    .min_by_key(|&(load, ..)| load)
                    .map_or((Lane::Busy(0), None), |(_, lane, found)| (lane, found))
            }
            Some(lane) => (lane, of_lane(lane)),
        };
        if let Some(index) = found {
            return index;
        }
        let limits = self.config.fetch_limits;
        // A connection of a broker that is gone is used again.
        let spare = self.connections.iter().position(|it| it.broker == BrokerId::NONE);
        let index = spare.unwrap_or(self.connections.len());
        match self.connections.get_mut(index) {
            Some(connection) => connection.adopt(broker, lane),
            None => self.connections.push(Connection::new(index, broker, lane, limits)),
        }
        if let Some(broker) = self.brokers.get_mut(&broker) {
            broker.connections.push(index);
        }
        index
    }

    /// Something that held connections up is over.
    pub(super) fn resume_all(&mut self) {
        for index in 0..self.connections.len() {
            self.drive(index);
        }
    }

    /// Brings a connection on: connects, or sends the next request.
    pub(super) fn drive(&mut self, index: usize) {
        let connection = &self.connections[index];
        match connection.phase {
            Phase::Down if connection.backoff.is_due(self.now) => self.connect(index),
            Phase::Down => self.connection_timer(index, connection.backoff.retry_at()),
            Phase::Ready => self.send_fetch(index),
            Phase::Connecting | Phase::Handshake(_) => {}
        }
    }

    fn connect(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(broker) = self.brokers.get(&connection.broker) else { return };
        if connection.members.is_empty() || self.stopping {
            return;
        }
        let unread_bytes = match connection.lane {
            Lane::Stripe(_) => self.config.stripes.range_bytes_min.saturating_mul(RANGES_UNREAD),
            Lane::Busy(_) | Lane::Tail | Lane::Throttled => 0,
        };
        connection.phase = Phase::Connecting;
        connection.connecting_at = self.now;
        connection.deadline = self.now.after(self.config.connect_timeout);
        self.actions.push_back(Action::Connect {
            connection: connection.id,
            host: Arc::clone(&broker.address.host),
            port: broker.address.port,
            unread_bytes,
        });
        let deadline = connection.deadline;
        self.connection_timer(index, deadline);
    }

    pub(super) fn connection_timer(&mut self, index: usize, at: Tick) {
        let connection = &mut self.connections[index];
        // A later one that is set already stays, and finds nothing to do.
        if at < connection.timer_at {
            connection.timer_at = at;
            self.timers.set(at, Timer::Connection(index));
        }
    }

    /// The broker's silence is over, or records have gathered.
    pub(super) fn quiet_ends(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.quiet_timer = false;
        if connection.phase == Phase::Ready && connection.in_flight.is_none() {
            self.drive(index);
        }
    }

    pub(super) fn connection_deadline(&mut self, index: usize) {
        let now = self.now;
        let connection = &mut self.connections[index];
        if connection.timer_at <= now {
            connection.timer_at = Tick::NEVER;
        }
        match connection.phase {
            Phase::Down => {
                if !connection.members.is_empty() {
                    self.drive(index);
                }
            }
            _ if connection.stalled => {
                // The wait is ours, not the broker's.
                connection.deadline = now.after(self.config.request_timeout);
                let at = connection.deadline;
                self.connection_timer(index, at);
            }
            phase if connection.deadline <= now => {
                let what = match phase {
                    Phase::Connecting => "no connection within the time limit",
                    Phase::Handshake(_) => "no answer to ApiVersions within the time limit",
                    Phase::Down | Phase::Ready => "no answer to Fetch within the time limit",
                };
                self.break_connection(index, &Arc::from(what));
            }
            // Nothing was to be asked before.
            Phase::Ready if !connection.is_asked() => self.drive(index),
            _ => {
                let at = connection.deadline;
                self.connection_timer(index, at);
            }
        }
    }

    fn valid(&self, id: ConnectionId) -> Option<usize> {
        let connection = self.connections.get(id.index)?;
        (connection.id == id).then_some(id.index)
    }

    /// The TCP connection stands.
    pub fn on_connected(&mut self, id: ConnectionId) {
        let Some(index) = self.valid(id) else { return };
        let connection = &mut self.connections[index];
        connection.connect_took = self.now.since(connection.connecting_at);
        let version = connection.begin_handshake();
        self.send_api_versions(index, version);
    }

    fn send_api_versions(&mut self, index: usize, version: i16) {
        let timeout = self.config.connect_timeout;
        let connection = &mut self.connections[index];
        connection.phase = Phase::Handshake(version);
        connection.deadline = self.now.after(timeout);
        connection.greeted_at = self.now;
        let correlation_id = connection.next_correlation_id();
        let request = RequestId { correlation_id, client_id: &self.config.client_id };
        match ApiVersions::request(version, request) {
            Ok(bytes) => {
                self.actions.push_back(Action::Send { connection: connection.id, bytes });
            }
            Err(error) => self.break_connection(index, &Arc::from(error.to_string())),
        }
    }

    /// A connection could not be opened, or broke. `reason` is one line for the operator.
    pub fn on_disconnected(&mut self, id: ConnectionId, reason: &Arc<str>) {
        if let Some(index) = self.valid(id) {
            self.break_connection(index, reason);
        }
    }

    /// Ends a connection; its partitions stay with it and wait for the next one.
    pub(super) fn break_connection(&mut self, index: usize, reason: &Arc<str>) {
        let connection = &mut self.connections[index];
        if connection.phase == Phase::Down {
            return;
        }
        self.stats.disconnects += 1;
        let running = match connection.run {
            Some(RunTarget::Append(partition)) => Some(partition),
            Some(RunTarget::Ahead(_) | RunTarget::Discard) | None => None,
        };
        self.close_connection(index);
        if let Some(partition) = running {
            self.with_log(partition, |log, cx| log.abort_run(cx));
            self.buffers_freed = true;
        }
        let random = self.next_random();
        let (now, policy) = (self.now, self.policy);
        let connection = &mut self.connections[index];
        let retry_at = connection.backoff.failed(policy, now, random);
        connection.down_reason = Some(Arc::clone(reason));
        let striped = matches!(connection.lane, Lane::Stripe(_));
        let members: Vec<usize> = connection.members.iter().copied().collect();
        if striped {
            self.on_stripe_broken(index, reason);
        }
        for member in members.into_iter().filter(|_| !striped) {
            if let Some(partition) = self.partition(member) {
                partition.is_held_up(Trouble::Connection(Arc::clone(reason)), now);
            }
            // Its run may have moved the end of the log.
            self.set_position(member);
            self.mark_dirty(member);
        }
        self.connection_timer(index, retry_at);
        self.want_metadata();
    }

    /// Reads the answer to `ApiVersions`; `true` if the connection has become ready.
    pub(super) fn handshake(&mut self, index: usize, version: i16) -> bool {
        let connection = &mut self.connections[index];
        let answer = match connection.handshake_answer(version) {
            Ok(None) => return false,
            Ok(Some(answer)) => answer,
            Err(reason) => {
                self.break_connection(index, &Arc::from(reason));
                return false;
            }
        };
        if answer.error == ErrorCode::UNSUPPORTED_VERSION && version != answer.retry_version() {
            self.send_api_versions(index, answer.retry_version());
            return false;
        }
        if !answer.error.is_none() {
            let reason = format!("the broker answers ApiVersions with {}", answer.error);
            self.break_connection(index, &Arc::from(reason));
            return false;
        }
        let connection = &mut self.connections[index];
        connection.apis = answer.apis;
        let took = self.now.since(connection.greeted_at);
        connection.path.answered_after(took, self.now);
        connection.phase = Phase::Ready;
        connection.deadline = Tick::NEVER;
        // A broker may take its time for the answer, and a name for its address: neither is a
        // queue of the path.
        let round_trip = took.min(connection.connect_took);
        self.on_greeted(index, round_trip);
        true
    }
}

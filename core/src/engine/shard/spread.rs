//! How many connections a broker gets for partitions that are behind, and how these share them.
//!
//! The number rises while that brings throughput ([`Climb`](crate::engine::pace::Climb)). While
//! there are more partitions than connections, each connection has several; once there are
//! enough for all, each partition has its own, which fetch ranges of it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Shard;
use crate::engine::config::ShardConfig;
use crate::engine::connection::Lane;
use crate::engine::partition::Status;
use crate::time::Tick;
use crate::types::BrokerId;

/// How long a count of partitions is good for.
const COUNT_FOR: Duration = Duration::from_secs(1);
/// Ranges for each connection that a partition must have to fetch, or another one is not worth
/// its beginning.
const RANGES_EACH: u64 = 4;

/// A round trip that is longer by this, and by a quarter, has waited in a queue of the path.
const QUEUE_MIN: Duration = Duration::from_millis(5);

/// Partitions of one broker that are behind, and what they have to fetch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Behind {
    partitions: usize,
    bytes: u64,
    counted_at: Option<Tick>,
}

impl Shard {
    /// A partition has received something: is it on the right connections?
    pub(super) fn adapt(&mut self, index: usize, member: usize) {
        let connection = &self.connections[index];
        if connection.path.rtt() >= self.config.stripes.rtt_min {
            let id = connection.broker;
            self.count_behind(id);
            self.place(index, member);
        }
    }

    /// Bytes have come: are more connections wanted, or fewer?
    pub(super) fn measure(&mut self, index: usize) {
        let (now, limits) = (self.now, self.config.stripes);
        let connection = &self.connections[index];
        let (rtt, id) = (connection.path.rtt(), connection.broker);
        if rtt < limits.rtt_min || !matches!(connection.lane, Lane::Busy(_) | Lane::Stripe(_)) {
            return;
        }
        let Some(broker) = self.brokers.get_mut(&id) else { return };
        if !broker.climb.observe(broker.bytes_appended, now, rtt, &limits) {
            return;
        }
        let before = broker.behind.partitions;
        broker.behind.counted_at = None;
        self.count_behind(id);
        let Some(broker) = self.brokers.get_mut(&id) else { return };
        let (least, most) = self.config.connections_for(broker.behind);
        if broker.behind.partitions < before {
            // Less came because less was there.
            broker.climb.pause(now);
        } else {
            broker.climb.decide(now, (least, most), &limits);
        }
    }

    /// A connection has said hello: how long a round trip took shows whether the path is full.
    pub(super) fn on_greeted(&mut self, index: usize, took: Duration) {
        let (now, limits) = (self.now, self.config.stripes);
        let id = self.connections[index].broker;
        let Some(broker) = self.brokers.get_mut(&id) else { return };
        let rtts = broker.connections.iter().map(|&it| self.connections[it].path.rtt());
        let least = rtts.filter(|rtt| !rtt.is_zero()).min().unwrap_or_default();
        if least >= limits.rtt_min && took > least + (least / 4).max(QUEUE_MIN) {
            broker.climb.path_is_full(now, &limits);
        }
    }

    fn count_behind(&mut self, id: BrokerId) {
        let now = self.now;
        let Some(broker) = self.brokers.get(&id) else { return };
        if broker.behind.counted_at.is_some_and(|at| now.since(at) < COUNT_FOR) {
            return;
        }
        let limited = self.throttle.is_limited();
        let mut behind = Behind { counted_at: Some(now), ..Behind::default() };
        for partition in self.partitions.iter().flatten() {
            if partition.leader.broker == id
                && partition.status == Status::Fetching
                && !(limited && partition.throttled)
                && !partition.is_caught_up()
            {
                behind.partitions += 1;
                behind.bytes = behind.bytes.saturating_add(partition.bytes_behind());
            }
        }
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.behind = behind;
        }
    }

    /// Stripes of a partition; 0 for a place on a connection with others.
    fn stripes_for(&mut self, index: usize, member: usize) -> usize {
        let (now, limits) = (self.now, self.config.stripes);
        let id = self.connections[index].broker;
        let Some(broker) = self.brokers.get(&id) else { return 0 };
        let level = broker.climb.level();
        let share = level / broker.behind.partitions.max(1);
        if limits.partition_max < 2 || broker.no_stripes_until > now {
            return 0;
        }
        if share == 0 || !self.may_stripe(index, member) {
            return 0;
        }
        let Some(partition) = self.partition(member) else { return 0 };
        if partition.is_caught_up() {
            return 0;
        }
        let ranges = partition.bytes_behind() / u64::from(limits.range_bytes_min).max(1);
        let by_data = usize::try_from(ranges / RANGES_EACH).unwrap_or(usize::MAX);
        // The last ranges of a copy are not worth another change.
        let striped = partition.striping.is_some();
        let stripes = self.with_rest(id, member, share).min(limits.partition_max);
        if striped { stripes } else { stripes.min(by_data) }
    }

    /// `share` stripes, or one more where the level leaves some over.
    fn with_rest(&self, id: BrokerId, member: usize, share: usize) -> usize {
        let Some(broker) = self.brokers.get(&id) else { return share };
        let (mut used, mut striped) = (0, BTreeSet::new());
        for &index in &broker.connections {
            let connection = &self.connections[index];
            if let (Lane::Stripe(_), Some(&of)) = (connection.lane, connection.members.first()) {
                used += 1;
                striped.insert(of);
            }
        }
        let has = self.partitions.get(member).and_then(Option::as_deref);
        let has = has.and_then(|it| it.striping.as_ref()).map_or(0, |it| it.level);
        let others = broker.behind.partitions.saturating_sub(striped.len());
        let planned = used + others * share;
        let more = usize::from(has <= share);
        if planned + more <= broker.climb.level() { share + 1 } else { share }
    }

    /// Moves a partition to the connections that it should have by now.
    fn place(&mut self, index: usize, member: usize) {
        let stripes = self.stripes_for(index, member);
        let caught_up = self.partition(member).is_some_and(|it| it.is_caught_up());
        match self.connections[index].lane {
            Lane::Busy(_) if stripes > 0 => self.begin_striping(member, stripes),
            Lane::Busy(lane) if self.is_crowded(index, lane) => self.change_lane(member),
            Lane::Stripe(_) if stripes > 0 => self.set_stripes(member, stripes),
            // Caught up, or to be judged when its last range ends.
            Lane::Stripe(_) if !caught_up => self.change_lane(member),
            Lane::Stripe(_) | Lane::Busy(_) | Lane::Tail | Lane::Throttled => {}
        }
    }

    /// Whether another busy connection has two partitions less, or this one is one too many.
    fn is_crowded(&self, index: usize, lane: usize) -> bool {
        let connection = &self.connections[index];
        let lanes = self.lanes(connection.broker);
        if lane >= lanes {
            return true;
        }
        if lanes == self.config.busy_connections.max(1) {
            return false;
        }
        let Some(broker) = self.brokers.get(&connection.broker) else { return false };
        let mut loads = vec![0; lanes];
        for &other in &broker.connections {
            let other = &self.connections[other];
            if let Lane::Busy(n) = other.lane
                && let Some(load) = loads.get_mut(n)
            {
                *load = other.members.len();
            }
        }
        loads.iter().min().is_some_and(|&least| connection.members.len() > least + 1)
    }

    /// Busy connections that a broker has.
    pub(super) fn lanes(&self, broker: BrokerId) -> usize {
        let base = self.config.busy_connections.max(1);
        let Some(broker) = self.brokers.get(&broker) else { return base };
        let level = broker.climb.level();
        let most = self.config.stripes.connections_max.min(broker.behind.partitions);
        // Half as many again as fill the path: what one leaves that recovers from a loss, or waits
        // for its next answer, others take.
        level.saturating_add(level / 2).min(most).max(base)
    }

    /// Stripes do not come about: not again before a while has passed.
    pub(super) fn hold_stripes(&mut self, member: usize, now: Tick) {
        let until = now.after(self.config.stripes.retry_after);
        let Some(partition) = self.partition(member) else { return };
        let id = partition.leader.broker;
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.no_stripes_until = until;
        }
    }
}

impl ShardConfig {
    /// Fewest and most connections to a broker, by what is left to fetch.
    fn connections_for(&self, behind: Behind) -> (usize, usize) {
        let ranges = behind.bytes / u64::from(self.stripes.range_bytes_min).max(1);
        let by_data = usize::try_from(ranges / RANGES_EACH).unwrap_or(usize::MAX);
        let least = self.busy_connections.min(behind.partitions).max(1);
        (least, by_data.min(self.stripes.connections_max).max(least))
    }
}

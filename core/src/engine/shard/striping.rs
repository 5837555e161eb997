//! One partition over several connections of its leader: when that begins and ends, who
//! asks for what, and whose turn it is. [`Stripes`](crate::engine::stripes::Stripes)
//! plans the ranges.
//!
//! Whatever ends the fetching of a partition (another leader, a back-off, its return, the
//! loss of the range that is being appended) closes all its stripes: nothing that was read
//! ahead outlives it.

use std::sync::Arc;
use std::time::Duration;

use super::Shard;
use crate::engine::connection::{HEAD_BYTES, Lane, Phase, RunTarget};
use crate::engine::message::Trouble;
use crate::engine::partition::{Status, Striping};
use crate::engine::stripes::{Outlook, Turn};
use crate::protocol::fetch_stream::{PartitionEnd, PartitionHeader};
use crate::protocol::{FetchPosition, Reaction};
use crate::types::{LeaderEpoch, Offset};

/// Fetch versions below it do not say which leader epoch is meant, so that two ranges may
/// come from two histories.
const FETCH_VERSION_FENCED: i16 = 9;
/// A partition is striped while each connection has so many ranges to fetch.
const RANGES_EACH: u64 = 2;
/// What a range is to what a connection has in flight: 89 % of the path. More would be
/// more than sockets hold unread.
const RANGE_IN_FLIGHTS: u64 = 8;

impl Shard {
    /// A partition has received something: is it worth more connections, or fewer?
    pub(super) fn adapt_stripes(&mut self, index: usize, member: usize, bytes: u64) {
        let (now, limits) = (self.now, self.config.stripes);
        let rtt = self.connections[index].path.rtt();
        let striped = matches!(self.connections[index].lane, Lane::Stripe(_));
        let Some(partition) = self.partition(member) else { return };
        if partition.is_caught_up() {
            partition.climb.pause(now);
            return;
        }
        if limits.connections_max < 2 || !partition.climb.observe(bytes, now, rtt, &limits) {
            return;
        }
        let allowed = self.stripes_allowed(index, member, rtt);
        let Some(partition) = self.partition(member) else { return };
        match partition.climb.decide(now, rtt, allowed, &limits) {
            Some(1) if striped => self.change_lane(member),
            Some(_) if striped => self.attach_stripes(member),
            Some(level) if level > 1 => self.begin_striping(index, member),
            Some(_) | None => {}
        }
    }

    /// Connections that a partition may have, by what is left to fetch, and by who else needs
    /// some. 1 where stripes would be of no use, or unsafe.
    fn stripes_allowed(&mut self, index: usize, member: usize, rtt: Duration) -> usize {
        let limits = self.config.stripes;
        let version = self.connections[index].stream.version();
        let range_bytes = self.range_bytes(index);
        let Some(partition) = self.partition(member) else { return 1 };
        let leader = partition.leader;
        if rtt < limits.rtt_min
            || version < FETCH_VERSION_FENCED
            || leader.epoch.known().is_none()
            || self.connections[index].lane == Lane::Throttled
        {
            return 1;
        }
        let Some(partition) = self.partition(member) else { return 1 };
        let ranges = partition.bytes_behind() / u64::from(range_bytes).max(1);
        let by_data = usize::try_from(ranges / RANGES_EACH).unwrap_or(usize::MAX);
        // Others that are behind have a claim to the same connections.
        let others = self
            .partitions
            .iter()
            .flatten()
            .filter(|other| {
                other.leader.broker == leader.broker
                    && other.status == Status::Fetching
                    && !other.throttled
                    && !other.is_caught_up()
            })
            .take(limits.connections_max);
        let share = limits.connections_max / others.count().max(1);
        by_data.min(share)
    }

    fn range_bytes(&self, index: usize) -> u32 {
        let (min, max) = (self.config.stripes.range_bytes_min, self.config.partition_max_bytes);
        let path = &self.connections[index].path;
        match path.in_flight_bytes() {
            0 => min.min(max),
            _ => path.fetch_bytes(RANGE_IN_FLIGHTS, min, max),
        }
    }

    /// From the busy connection `index` to stripes.
    fn begin_striping(&mut self, index: usize, member: usize) {
        let (now, range_bytes) = (self.now, self.range_bytes(index));
        let Some(partition) = self.partition(member) else { return };
        // Leaving the busy connection starts the measurement anew.
        let climb = partition.climb;
        self.delist(member);
        let retry_after = self.config.stripes.retry_after;
        let Some(partition) = self.partition(member) else { return };
        partition.climb = climb;
        partition.striping = Some(Box::new(Striping { range_bytes, ..Striping::default() }));
        self.attach_stripes(member);
        let Some(partition) = self.partition(member) else { return };
        let attached = partition.striping.as_ref().map_or(0, |it| it.connections.len());
        if attached < 2 {
            self.delist(member);
            if let Some(partition) = self.partition(member) {
                partition.climb.hold(now.after(retry_after));
            }
            self.resume(member);
        }
    }

    /// Gives a partition as many free stripes as it may have, and lets them ask.
    fn attach_stripes(&mut self, member: usize) {
        let Some(partition) = self.partition(member) else { return };
        let (broker, level) = (partition.leader.broker, partition.climb.level());
        for n in 0..self.config.stripes.connections_max {
            let Some(partition) = self.partition(member) else { return };
            let Some(striping) = &partition.striping else { return };
            if striping.connections.len() >= level {
                break;
            }
            let connection = self.connection_for(broker, Some(Lane::Stripe(n)));
            if !self.connections[connection].members.is_empty() {
                continue;
            }
            self.connections[connection].members.insert(member);
            if let Some(striping) = self.partition(member).and_then(|it| it.striping.as_mut()) {
                striping.connections.push(connection);
            }
        }
        self.drive_stripes(member);
    }

    /// Lets all connections of a striped partition go on that have nothing to do.
    pub(super) fn drive_stripes(&mut self, member: usize) {
        let striping = self.partition(member).and_then(|it| it.striping.as_ref());
        let connections = striping.map(|it| it.connections.clone()).unwrap_or_default();
        for connection in connections {
            self.drive(connection);
        }
    }

    /// Takes all stripes from a partition.
    pub(super) fn end_striping(&mut self, member: usize) {
        let now = self.now;
        let Some(partition) = self.partition(member) else { return };
        partition.climb.reset(now);
        let Some(striping) = partition.striping.take() else { return };
        for connection in striping.connections {
            self.detach_stripe(member, connection);
        }
    }

    /// What it still receives is of no use, and reading it would take as long as using it.
    fn detach_stripe(&mut self, member: usize, connection: usize) {
        self.close_connection(connection);
        let Some(partition) = self.partitions.get(member).and_then(Option::as_deref) else {
            return;
        };
        let connection = &mut self.connections[connection];
        connection.session.remove(&partition.topic.name, partition.index);
        connection.members.remove(&member);
    }

    /// Asks for the next range of the partition that the stripe `index` works for.
    pub(super) fn send_range(&mut self, index: usize) {
        let Some(&member) = self.connections[index].members.first() else { return };
        let version = self.connections[index].stream.version();
        let Some(partition) = self.partition(member) else { return };
        let level = partition.climb.level();
        let Some(striping) = &mut partition.striping else { return };
        let place = striping.connections.iter().position(|&it| it == index);
        if place.is_some_and(|place| place >= level.max(2)) {
            striping.connections.retain(|&it| it != index);
            self.detach_stripe(member, index);
            return;
        }
        let outlook = Outlook {
            at: partition.log.fetch_offset(),
            end: partition.high_watermark,
            range_bytes: striping.range_bytes,
            ahead: version >= FETCH_VERSION_FENCED && partition.leader.epoch.known().is_some(),
            density: &partition.density,
        };
        let Some(ask) = striping.plan.ask(index, outlook) else { return };
        // Only where the copy ends can the source tell whether it still has the same history.
        let last_fetched_epoch =
            if ask.exact { partition.log.last_fetched_epoch() } else { LeaderEpoch::NONE };
        let position = FetchPosition {
            fetch_offset: ask.from,
            current_leader_epoch: partition.leader.epoch,
            last_fetched_epoch,
            partition_max_bytes: ask.max_bytes,
        };
        let (topic, partition_index) = (partition.topic.clone(), partition.index);
        self.stats.stripes.ranges += 1;
        self.stats.stripes.holes += u64::from(ask.fills);
        let token = u32::try_from(member).unwrap_or(u32::MAX);
        self.connections[index].session.want(&topic, partition_index, token, position);
        self.send_fetch_request(index, ask.max_bytes);
    }

    /// Deals with records of a range that has not begun: waits for its turn, passes over what
    /// the log has, begins the run. `false` if it has to wait.
    pub(super) fn take_ahead(&mut self, index: usize, member: usize) -> bool {
        let connection = &mut self.connections[index];
        let left = connection.stream.remaining_records();
        if connection.skip > 0 {
            return self.pass_over(index);
        }
        let head = connection.batch_head();
        if head.is_none() && left >= u64::try_from(HEAD_BYTES).unwrap_or(u64::MAX) {
            return false;
        }
        let Some(partition) = self.partition(member) else { return false };
        let at = partition.log.fetch_offset();
        let Some(striping) = &mut partition.striping else { return false };
        let plan = &mut striping.plan;
        if let Some(head) = head {
            plan.arrived(index, head.base);
        }
        match (plan.turn(index, at), head) {
            // A cut-off batch, and nothing before it.
            (_, None) => {
                self.connections[index].run = Some(RunTarget::Discard);
                true
            }
            (Turn::Wait, _) => self.wait_for_turn(index),
            (Turn::Hole, _) => {
                self.drive_stripes(member);
                let Some(partition) = self.partition(member) else { return false };
                let Some(striping) = &mut partition.striping else { return false };
                if striping.plan.front() == Some(index) {
                    // Nobody is free to fill it: this one has to.
                    striping.plan.lost(index, false);
                    self.connections[index].run = Some(RunTarget::Discard);
                    return true;
                }
                self.wait_for_turn(index)
            }
            (Turn::Go, Some(head)) if head.is_v2 && head.last < at => {
                let connection = &mut self.connections[index];
                connection.skip = head.size.min(left);
                true
            }
            (Turn::Go, Some(head)) if head.is_v2 && head.base >= at => {
                self.begin_ahead(index, member, at, left)
            }
            // The next question is for the end of the log, and its answer is judged.
            (Turn::Go | Turn::Odd, _) => {
                self.restart(member);
                false
            }
        }
    }

    fn wait_for_turn(&mut self, index: usize) -> bool {
        let now = self.now;
        let connection = &mut self.connections[index];
        connection.stalled = connection.phase == Phase::Ready;
        connection.path.stalls(true, now);
        false
    }

    fn pass_over(&mut self, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let skip = usize::try_from(connection.skip).unwrap_or(usize::MAX);
        let n = connection.staged().len().min(skip);
        let n_u64 = u64::try_from(n).unwrap_or(0);
        connection.consume(n);
        connection.stream.records_taken(n_u64);
        connection.skip -= n_u64;
        self.stats.record_bytes_received += n_u64;
        self.stats.record_bytes_dropped += n_u64;
        self.stats.stripes.overlap_bytes += n_u64;
        n > 0
    }

    fn begin_ahead(&mut self, index: usize, member: usize, at: Offset, left: u64) -> bool {
        let Some(partition) = self.partition(member) else { return false };
        let limit = partition.leader.epoch;
        let takes_runs = partition.log.takes_runs();
        let connection = &mut self.connections[index];
        let target = if takes_runs { RunTarget::Append(member) } else { RunTarget::Discard };
        connection.run = Some(target);
        if let Some(current) = &mut connection.current {
            current.sent_offset = at;
        }
        if takes_runs {
            self.with_log(member, |log, cx| log.begin_run(left, limit, cx));
        }
        // Who kept free for a hole is not needed for it.
        self.drive_stripes(member);
        true
    }

    /// The answer to a range has been received.
    pub(super) fn on_range_end(
        &mut self,
        index: usize,
        member: usize,
        header: &PartitionHeader,
        end: &PartitionEnd,
    ) {
        let Some(partition) = self.partition(member) else { return };
        let Some(plan) = partition.striping.as_mut().map(|it| &mut it.plan) else { return };
        let Some(range) = plan.range_of(index) else { return };
        let whole = header.error.is_none() && end.diverging_epoch.is_none();
        if !range.is_exact() && (!whole || header.records_bytes == 0) {
            match header.error.reaction() {
                Reaction::LeaderMoved | Reaction::FencedEpoch | Reaction::RefreshMetadata => {
                    self.on_error(index, member, header.error, end.current_leader);
                }
                // A guess was wrong. What comes next in the log is asked for by another one.
                _ => self.lose_range(index, member),
            }
            return;
        }
        if self.judge_end(index, member, header, end) {
            let Some(partition) = self.partition(member) else { return };
            let Some(striping) = &mut partition.striping else { return };
            if header.records_bytes > 0 {
                striping.plan.finished(index);
            } else {
                striping.plan.lost(index, false);
            }
            // The next one's turn may have come.
            self.buffers_freed = true;
            self.on_fetched(index, member, header);
        }
    }

    /// The response ended without a word about its range: nothing new, or no session.
    pub(super) fn on_range_silent(&mut self, index: usize) {
        let Some(&member) = self.connections[index].members.first() else { return };
        let Some(partition) = self.partition(member) else { return };
        let is_caught_up = partition.is_caught_up();
        let Some(striping) = &mut partition.striping else { return };
        match striping.plan.range_of(index) {
            Some(range) if range.is_exact() => {
                striping.plan.lost(index, false);
                if is_caught_up {
                    self.change_lane(member);
                }
            }
            Some(_) => self.lose_range(index, member),
            None => {}
        }
    }

    fn lose_range(&mut self, index: usize, member: usize) {
        self.stats.stripes.lost += 1;
        if let Some(striping) = self.partition(member).and_then(|it| it.striping.as_mut()) {
            striping.plan.lost(index, true);
            self.buffers_freed = true;
        }
    }

    /// A range is done. Too little is left for stripes?
    pub(super) fn after_range(&mut self, member: usize) {
        let Some(partition) = self.partition(member) else { return };
        let (caught_up, behind) = (partition.is_caught_up(), partition.bytes_behind());
        let Some(striping) = &partition.striping else { return };
        if striping.plan.is_empty() && (caught_up || behind < u64::from(striping.range_bytes)) {
            self.change_lane(member);
        }
    }

    /// A stripe's connection broke. Without the range that was being appended, or without any
    /// connection, the partition goes on in the usual way.
    pub(super) fn on_stripe_broken(&mut self, index: usize, reason: &Arc<str>) {
        let Some(&member) = self.connections[index].members.first() else { return };
        let now = self.now;
        let retry_after = self.config.stripes.retry_after;
        let Some(striping) = self.partition(member).and_then(|it| it.striping.as_mut()) else {
            return;
        };
        let is_front = striping.plan.front() == Some(index);
        striping.plan.lost(index, false);
        let connections = striping.connections.clone();
        let all_down = connections.iter().all(|&it| self.connections[it].phase == Phase::Down);
        if is_front || all_down {
            if let Some(partition) = self.partition(member) {
                partition.is_held_up(Trouble::Connection(Arc::clone(reason)), now);
                if all_down {
                    partition.climb.hold(now.after(retry_after));
                }
            }
            self.mark_dirty(member);
            self.restart(member);
        } else {
            self.stats.stripes.lost += 1;
            self.buffers_freed = true;
            self.drive_stripes(member);
        }
    }
}

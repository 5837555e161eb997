//! One partition over several connections of its leader: when that begins and ends, who
//! asks for what, and whose turn it is. [`Stripes`](crate::engine::stripes::Stripes)
//! plans the ranges.
//!
//! Whatever ends the fetching of a partition (another leader, a back-off, its return, the
//! loss of the range that is being appended) closes all its stripes: nothing that was read
//! ahead outlives it.

use std::sync::Arc;

use super::Shard;
use super::fetch::Question;
use crate::engine::connection::{HEAD_BYTES, Lane, Phase, RunTarget};
use crate::engine::message::Trouble;
use crate::engine::partition::Striping;
use crate::engine::stripes::{Outlook, Turn};
use crate::protocol::fetch_stream::{PartitionEnd, PartitionHeader};
use crate::protocol::{FetchPosition, Reaction};
use crate::types::{LeaderEpoch, Offset};

/// Fetch versions below it do not say which leader epoch is meant, so that two ranges may
/// come from two histories.
const FETCH_VERSION_FENCED: i16 = 9;
/// What a range is to what a connection has in flight: the next one is asked for while it comes,
/// so that more would only wait in sockets.
const RANGE_IN_FLIGHTS: u64 = 2;
const RANGE_BATCHES: u32 = 16;

impl Shard {
    /// Whether ranges of a partition may be fetched ahead, from where `index` is connected to.
    pub(super) fn may_stripe(&mut self, index: usize, member: usize) -> bool {
        let connection = &self.connections[index];
        let fenced = connection.stream.version() >= FETCH_VERSION_FENCED;
        let throttled = connection.lane == Lane::Throttled;
        let epoch = self.partition(member).and_then(|it| it.leader.epoch.known());
        fenced && !throttled && epoch.is_some()
    }

    /// From the busy connection to `level` stripes.
    pub(super) fn begin_striping(&mut self, member: usize, level: usize) {
        let now = self.now;
        self.delist(member);
        let Some(partition) = self.partition(member) else { return };
        partition.striping = Some(Box::new(Striping { level, ..Striping::default() }));
        self.attach_stripes(member);
        let Some(partition) = self.partition(member) else { return };
        if partition.striping.as_ref().is_some_and(|it| it.connections.is_empty()) {
            self.delist(member);
            self.hold_stripes(member, now);
            self.resume(member);
        }
    }

    /// Another number of stripes.
    pub(super) fn set_stripes(&mut self, member: usize, level: usize) {
        let most = self.config.stripes.connections_max;
        let Some(striping) = self.partition(member).and_then(|it| it.striping.as_mut()) else {
            return;
        };
        let level = level.min(most.saturating_sub(striping.spares)).max(1);
        if std::mem::replace(&mut striping.level, level) != level {
            self.attach_stripes(member);
        }
    }

    /// Gives a partition as many free stripes as it may have, and lets them ask.
    fn attach_stripes(&mut self, member: usize) {
        let Some(partition) = self.partition(member) else { return };
        let broker = partition.leader.broker;
        for n in 0..self.config.stripes.connections_max {
            let Some(partition) = self.partition(member) else { return };
            let Some(striping) = &partition.striping else { return };
            if striping.connections.len() >= striping.level + striping.spares {
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
        let Some(partition) = self.partition(member) else { return };
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

    /// Whether a stripe can send a question: the answer before it has shown what it is.
    pub(super) fn takes_question(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        let named = connection.answering.is_none_or(|answering| answering.named);
        connection.in_flight.is_none() && named
    }

    /// Asks for the next range of the partition that the stripe `index` works for.
    pub(super) fn send_range(&mut self, index: usize) {
        let Some(&member) = self.connections[index].members.first() else { return };
        let ahead = self.connections[index].answering.is_some();
        let range_bytes = self.range_bytes(index, member);
        let Some(partition) = self.partition(member) else { return };
        let Some(striping) = &mut partition.striping else { return };
        let place = striping.connections.iter().position(|&it| it == index);
        let place = place.unwrap_or(usize::MAX);
        if place >= striping.level + striping.spares && striping.plan.held(index) == 0 {
            striping.connections.retain(|&it| it != index);
            self.detach_stripe(member, index);
            return;
        }
        let outlook = Outlook {
            at: partition.log.fetch_offset(),
            end: partition.high_watermark,
            range_bytes,
            ahead: place < striping.level,
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
        let max_bytes = ask.max_bytes;
        self.send_fetch_request(index, Question { max_bytes, ahead, range: Some(ask.number) });
    }

    /// By what the stripe was found to carry. A batch that is cut off comes again: a range is
    /// many batches, and ends a little within one if all are of a size.
    fn range_bytes(&self, index: usize, member: usize) -> u32 {
        let Some(partition) = self.partitions.get(member).and_then(Option::as_deref) else {
            return self.config.stripes.range_bytes_min;
        };
        let alone = partition.striping.as_ref().is_some_and(|it| it.level == 1);
        // What several fetch waits unread in their sockets; what one fetches does not wait.
        let max = if alone { self.config.fetch_max_bytes } else { self.config.partition_max_bytes };
        let batch = u32::try_from(partition.density.batch_bytes()).unwrap_or(u32::MAX).max(1);
        let least = self.config.stripes.range_bytes_min.max(batch.saturating_mul(RANGE_BATCHES));
        let min = least.min(max);
        let path = &self.connections[index].path;
        let bytes = match path.in_flight_bytes() {
            0 => min,
            _ => path.fetch_bytes(RANGE_IN_FLIGHTS, min, max),
        };
        (bytes - bytes % batch + batch / 4).min(max)
    }

    /// Deals with records of a range that has not begun: waits for its turn, passes over what
    /// the log has, begins the run. `false` if it has to wait.
    pub(super) fn take_ahead(&mut self, index: usize, member: usize) -> bool {
        let connection = &mut self.connections[index];
        let left = connection.stream.remaining_records();
        if connection.skip > 0 {
            return self.pass_over(index);
        }
        let number = connection.answering.and_then(|it| it.range).unwrap_or_default();
        let head = connection.batch_head();
        if head.is_none() && left >= u64::try_from(HEAD_BYTES).unwrap_or(u64::MAX) {
            return false;
        }
        let Some(partition) = self.partition(member) else { return false };
        let at = partition.log.fetch_offset();
        let Some(striping) = &mut partition.striping else { return false };
        let plan = &mut striping.plan;
        if let Some(head) = head {
            plan.arrived(number, head.base);
        }
        match (plan.turn(number, at), head) {
            // A cut-off batch, and nothing before it.
            (_, None) => {
                self.connections[index].run = Some(RunTarget::Discard);
                true
            }
            (Turn::Wait, _) => self.wait_for_turn(index),
            (Turn::Hole, _) => {
                if self.fill_hole(index, member) {
                    return self.wait_for_turn(index);
                }
                self.connections[index].run = Some(RunTarget::Discard);
                true
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

    /// Something is missing before the range at the front, which `index` holds. `false` if nobody
    /// else asks for it: this one has to, and what it holds goes.
    fn fill_hole(&mut self, index: usize, member: usize) -> bool {
        self.drive_stripes(member);
        let Some(striping) = self.partition(member).and_then(|it| it.striping.as_mut()) else {
            return false;
        };
        if striping.plan.front() != Some(index) {
            return true;
        }
        // All have ranges ahead: from the first hole on there is one more that has none.
        striping.spares = 1;
        self.attach_stripes(member);
        let Some(striping) = self.partition(member).and_then(|it| it.striping.as_mut()) else {
            return false;
        };
        let free = |it: &&usize| striping.plan.held(**it) == 0;
        let free: Vec<usize> = striping.connections.iter().filter(free).copied().collect();
        let is_filled = striping.plan.front() != Some(index);
        if is_filled || free.iter().any(|&it| self.connections[it].phase != Phase::Down) {
            return true;
        }
        let Some(striping) = self.partition(member).and_then(|it| it.striping.as_mut()) else {
            return false;
        };
        // Where there may be no further one, one of them is to be free the next time.
        striping.level = striping.level.min(striping.connections.len().saturating_sub(1)).max(1);
        let lost = striping.plan.lost_all(index);
        self.stats.stripes.lost += u64::try_from(lost).unwrap_or(0);
        false
    }

    fn wait_for_turn(&mut self, index: usize) -> bool {
        let now = self.now;
        let connection = &mut self.connections[index];
        connection.stalled = connection.phase == Phase::Ready;
        connection.path.waits_for_turn(now);
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
        let limit = partition.epoch_limit();
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
        let number = self.connections[index].answering.and_then(|it| it.range).unwrap_or_default();
        let Some(partition) = self.partition(member) else { return };
        let Some(plan) = partition.striping.as_mut().map(|it| &mut it.plan) else { return };
        let Some(range) = plan.get(number) else { return };
        let whole = header.error.is_none() && end.diverging_epoch.is_none();
        if !range.is_exact() && (!whole || header.records_bytes == 0) {
            match header.error.reaction() {
                Reaction::LeaderMoved | Reaction::FencedEpoch | Reaction::RefreshMetadata => {
                    self.on_error(index, member, header.error, end.current_leader);
                }
                // A guess was wrong. What comes next in the log is asked for by another one.
                _ => self.lose_range(number, member),
            }
            return;
        }
        if self.judge_end(index, member, header, end) {
            let Some(partition) = self.partition(member) else { return };
            let Some(striping) = &mut partition.striping else { return };
            if header.records_bytes > 0 {
                let at = partition.log.fetch_offset();
                let lost = striping.plan.ended(range, at, &partition.density);
                self.stats.stripes.lost += u64::try_from(lost).unwrap_or(0);
            } else {
                striping.plan.lost(number, false);
            }
            // The next one's turn may have come.
            self.buffers_freed = true;
            self.on_fetched(index, member, header);
        }
    }

    /// The response ended without a word about its range: nothing new, or no session.
    pub(super) fn on_range_silent(&mut self, index: usize, number: u64) {
        let Some(&member) = self.connections[index].members.first() else { return };
        let Some(partition) = self.partition(member) else { return };
        let is_caught_up = partition.is_caught_up();
        let Some(striping) = &mut partition.striping else { return };
        match striping.plan.get(number) {
            Some(range) if range.is_exact() => {
                striping.plan.lost(number, false);
                if is_caught_up {
                    self.change_lane(member);
                }
            }
            Some(_) => self.lose_range(number, member),
            None => {}
        }
    }

    fn lose_range(&mut self, number: u64, member: usize) {
        self.stats.stripes.lost += 1;
        if let Some(striping) = self.partition(member).and_then(|it| it.striping.as_mut()) {
            striping.plan.lost(number, true);
            self.buffers_freed = true;
        }
    }

    /// A range is done. Too little is left for stripes?
    pub(super) fn after_range(&mut self, member: usize) {
        let range_bytes = u64::from(self.config.stripes.range_bytes_min);
        let Some(partition) = self.partition(member) else { return };
        let (caught_up, behind) = (partition.is_caught_up(), partition.bytes_behind());
        let Some(striping) = &partition.striping else { return };
        if striping.plan.is_empty() && (caught_up || behind < range_bytes) {
            self.change_lane(member);
        }
    }

    /// A stripe's connection broke. Without the range that was being appended, or without any
    /// connection, the partition goes on in the usual way.
    pub(super) fn on_stripe_broken(&mut self, index: usize, reason: &Arc<str>) {
        let Some(&member) = self.connections[index].members.first() else { return };
        let now = self.now;
        let Some(striping) = self.partition(member).and_then(|it| it.striping.as_mut()) else {
            return;
        };
        let is_front = striping.plan.front() == Some(index);
        let lost = striping.plan.lost_all(index);
        let connections = striping.connections.clone();
        let all_down = connections.iter().all(|&it| self.connections[it].phase == Phase::Down);
        if is_front || all_down {
            if let Some(partition) = self.partition(member) {
                partition.is_held_up(Trouble::Connection(Arc::clone(reason)), now);
            }
            if all_down {
                self.hold_stripes(member, now);
            }
            self.mark_dirty(member);
            self.restart(member);
        } else {
            self.stats.stripes.lost += u64::try_from(lost).unwrap_or(0);
            self.buffers_freed = true;
            self.drive_stripes(member);
        }
    }
}

//! The next question while an answer is still being received: on a long path a connection
//! would carry nothing for a round trip between the two, and what its sender saved up meanwhile
//! would then come as one burst.
//!
//! A broker reads the next request of a connection once it has handed the answer before to its
//! socket, so the one that waits there is answered without a gap. It has to be there before the
//! last byte of the answer leaves: what the path and its queue hold is behind that byte already
//! when we see it come. What has been received so far has its new position by then. Partitions
//! of the answer whose records are still to come have none: they leave the session for this one
//! question and come back with the next.

use super::Shard;
use super::fetch::Question;
use crate::engine::connection::{Lane, Phase, Standing};
use crate::engine::partition::Partition;
use crate::time::Tick;

/// A shorter rest of an answer leaves no time for it.
const LEFT_BYTES_MIN: u64 = 64 << 10;
/// Time to ask, in units of what the path holds: that itself, as much again in its queue, and
/// what comes while the question is on its way, half a unit; rounded up.
const ASK_IN_FLIGHTS: u64 = 3;
/// Where there are more, only the last one of an answer is left out.
const LEFT_OUT_MAX: usize = 64;

impl Shard {
    /// A partition of an answer begins: asks for what others have next, if it is time.
    pub(super) fn ask_ahead(&mut self, index: usize) {
        if !self.may_ask_ahead(index, self.now) {
            return;
        }
        let connection = &self.connections[index];
        let Some(current) = &connection.current else { return };
        let Some(member) = current.partition.filter(|_| current.standing == Standing::Fresh) else {
            return;
        };
        let is_last = connection.stream.is_last_partition();
        let still_comes = |partition: &Partition, place: usize| {
            if is_last {
                return place == member;
            }
            let asked = connection.session.is_asked(&partition.topic.name, partition.index);
            asked && !connection.ended.contains(&place)
        };
        let partition_max = u64::from(self.partition_bytes(index));
        let (mut left_out, mut askable) = (Vec::new(), 0_u64);
        for &place in &connection.members {
            let Some(partition) = self.partitions.get(place).and_then(Option::as_deref) else {
                continue;
            };
            if still_comes(partition, place) {
                left_out.push(place);
            } else if !partition.is_caught_up() {
                askable = askable.saturating_add(partition.bytes_behind().min(partition_max));
            }
        }
        // A broker that finds nothing would hold the answer back, and those left out with it; and
        // an answer that is much shorter than this one leaves a gap behind it.
        let left = connection.stream.frame_remaining();
        if askable <= LEFT_BYTES_MIN || (!is_last && askable < left.min(self.held_by_path(index))) {
            return;
        }
        for place in left_out {
            let Some(partition) = self.partitions.get(place).and_then(Option::as_deref) else {
                continue;
            };
            let session = &mut self.connections[index].session;
            session.leave_out(&partition.topic.name, partition.index);
        }
        let max_bytes = self.response_bytes(index);
        self.send_fetch_request(index, Question { max_bytes, ahead: true, range: None });
    }

    fn may_ask_ahead(&self, index: usize, now: Tick) -> bool {
        let connection = &self.connections[index];
        let left = connection.stream.frame_remaining();
        let is_last = connection.stream.is_last_partition();
        // When the next partition begins it may be too late.
        let after_this = left.saturating_sub(connection.stream.remaining_records());
        let is_soon =
            connection.members.len() <= LEFT_OUT_MAX && after_this <= self.held_by_path(index);
        connection.phase == Phase::Ready
            && matches!(connection.lane, Lane::Busy(_))
            && connection.in_flight.is_none()
            && !self.parked
            && !self.stopping
            && connection.quiet_until <= now
            && connection.path.rtt() >= self.config.stripes.rtt_min
            && (is_last || is_soon)
            && left >= LEFT_BYTES_MIN
            && self.keeps_version(index)
    }

    /// Bytes that are on their way when there is no gap; without limit if nothing is known.
    fn held_by_path(&self, index: usize) -> u64 {
        match self.connections[index].path.in_flight_bytes() {
            0 => u64::MAX,
            bytes => bytes.saturating_mul(ASK_IN_FLIGHTS),
        }
    }
}

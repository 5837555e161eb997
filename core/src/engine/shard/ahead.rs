//! The next question while an answer is still being received: on a long path a connection
//! would carry nothing for a round trip between the two.
//!
//! A broker reads the next request of a connection once it has handed the answer before to its
//! socket, so the one that waits there is answered without a gap. What has been received so far
//! has its new position by then. The partition whose records are still coming has none: it
//! leaves the session for this one question and comes back with the next.

use super::Shard;
use super::fetch::Question;
use crate::engine::connection::{Lane, Phase, Standing};
use crate::time::Tick;

/// A shorter last part of an answer leaves no time for it.
const LEFT_BYTES_MIN: u64 = 64 << 10;

impl Shard {
    /// The last partition of an answer begins: asks for what the others have next.
    pub(super) fn ask_ahead(&mut self, index: usize) {
        if !self.may_ask_ahead(index, self.now) {
            return;
        }
        let connection = &self.connections[index];
        let Some(current) = &connection.current else { return };
        let Some(member) = current.partition.filter(|_| current.standing == Standing::Fresh) else {
            return;
        };
        // A broker that finds nothing would hold the answer back, and the partition with it.
        let others = connection.members.iter().filter(|&&other| other != member);
        let is_behind = |&other: &usize| {
            let partition = self.partitions.get(other).and_then(Option::as_deref);
            partition.is_some_and(|it| !it.is_caught_up() && it.bytes_behind() > LEFT_BYTES_MIN)
        };
        if !others.copied().any(|other| is_behind(&other)) {
            return;
        }
        let Some(partition) = self.partitions.get(member).and_then(Option::as_deref) else {
            return;
        };
        let (name, partition_index) = (partition.topic.name.clone(), partition.index);
        let max_bytes = self.response_bytes(index);
        self.connections[index].session.remove(&name, partition_index);
        self.send_fetch_request(index, Question { max_bytes, ahead: true, range: None });
    }

    fn may_ask_ahead(&self, index: usize, now: Tick) -> bool {
        let connection = &self.connections[index];
        connection.phase == Phase::Ready
            && matches!(connection.lane, Lane::Busy(_))
            && connection.in_flight.is_none()
            && !self.parked
            && !self.stopping
            && connection.quiet_until <= now
            && connection.path.rtt() >= self.config.stripes.rtt_min
            && connection.stream.is_last_partition()
            && connection.stream.remaining_records() >= LEFT_BYTES_MIN
            && self.keeps_version(index)
    }
}

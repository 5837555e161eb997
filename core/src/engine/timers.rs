//! Deadlines of a shard, earliest first. Entries are not taken back: whoever is woken
//! looks whether there still is something to do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::message::PartitionKey;
use crate::time::Tick;

/// Whose deadline it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A partition's back-off is over.
    Retry(PartitionKey),
    /// A log may have to be flushed.
    Flush(PartitionKey),
    /// A log may have to be shown to its readers.
    Show(PartitionKey),
    /// A connection's deadline, or the end of its back-off.
    Connection(usize),
    /// A connection may ask again.
    Quiet(usize),
    /// Throttled connections may go on.
    Throttle,
    /// Idle files and partitions.
    Sweep,
    /// Progress is due.
    Report,
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Tick, Timer)>>,
}

impl Timers {
    pub(super) fn set(&mut self, at: Tick, timer: Timer) {
        if at < Tick::NEVER {
            self.heap.push(Reverse((at, timer)));
        }
    }

    pub(super) fn next(&self) -> Tick {
        self.heap.peek().map_or(Tick::NEVER, |Reverse((at, _))| *at)
    }

    pub(super) fn due(&mut self, now: Tick) -> Option<Timer> {
        if self.next() > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, timer))| timer)
    }
}

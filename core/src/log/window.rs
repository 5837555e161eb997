//! Writes of one segment file that are planned, in flight or done.
//!
//! The disk completes writes in any order and sometimes only in part. The window
//! keeps two promises on top of it:
//!
//! * two writes that share a block are never in flight together: the later one is
//!   held until the earlier one has completed (io_uring does not order writes);
//! * [`WriteWindow::complete_to`] is the end of the contiguous prefix of completed
//!   data, so nothing that is still under way lies below it.
//!
//! ```text
//!   file:   |====done====|--in flight--|..held..|        → positions
//!                        ^ complete_to          ^ end of data planned
//! ```
//!
//! With block size 1 (buffered appends) no two writes share a block, and the same
//! code serves both.

use std::collections::VecDeque;

use super::disk::OpId;
use super::slot::Slot;
use crate::time::Tick;

/// A write as it goes to the disk.
#[derive(Debug)]
pub struct PlannedWrite {
    /// Where in the file; a multiple of the block size.
    pub position: u64,
    /// The buffer.
    pub slot: Slot,
    /// First byte of the slot to write.
    pub from: usize,
    /// Bytes to write; a multiple of the block size.
    pub len: usize,
    /// End of the data in it; what lies behind, up to the block's end, is padding.
    pub data_end: u64,
    /// When the first byte of it was received.
    pub received_at: Tick,
}

#[derive(Debug)]
enum EntryState {
    /// Waits for its file to open or for a predecessor on a shared block.
    Held(Slot),
    InFlight(OpId),
    Done,
}

#[derive(Debug)]
struct Entry {
    /// Where it was planned to begin; a short write moves only `position`.
    start: u64,
    position: u64,
    from: usize,
    len: usize,
    data_end: u64,
    received_at: Tick,
    state: EntryState,
}

impl Entry {
    fn shares_block_with(&self, position: u64, len: u64) -> bool {
        self.position < position + len && position < self.position + self.len_u64()
    }

    fn len_u64(&self) -> u64 {
        u64::try_from(self.len).unwrap_or(u64::MAX)
    }
}

/// What became of a completed write.
#[derive(Debug)]
pub enum WriteProgress {
    /// All of it is in the file; the slot is free.
    Whole {
        /// The buffer.
        slot: Slot,
        /// When the first byte of it was received.
        received_at: Tick,
    },
    /// The rest is held and comes out of [`WriteWindow::next_ready`] again.
    Short,
}

/// See the module's text.
#[derive(Debug)]
pub struct WriteWindow {
    block_bytes: u64,
    /// In order of planning, which is the order of positions except across a reset.
    entries: VecDeque<Entry>,
    complete_to: u64,
}

impl WriteWindow {
    /// A window over a file whose data ends at `end`, written in blocks of
    /// `block_bytes` (1 for buffered files).
    ///
    /// # Panics
    /// If `block_bytes` is zero.
    pub fn new(end: u64, block_bytes: u64) -> Self {
        assert!(block_bytes > 0, "block size is positive");
        Self { block_bytes, entries: VecDeque::new(), complete_to: end }
    }

    /// End of the contiguous prefix of completed data, in bytes of the file.
    pub fn complete_to(&self) -> u64 {
        self.complete_to
    }

    /// Whether no write is planned or in flight.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Block size that writes are aligned to.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Changes the block size between two runs of writes.
    ///
    /// # Panics
    /// If a write is under way: its blocks would be judged by the wrong size.
    pub fn set_block_bytes(&mut self, block_bytes: u64) {
        assert!(self.entries.is_empty(), "block size changes only while no write is under way");
        assert!(block_bytes > 0, "block size is positive");
        self.block_bytes = block_bytes;
    }

    /// Plans a write; it comes out of [`Self::next_ready`] as soon as it may go.
    ///
    /// # Panics
    /// If it is not aligned, or its data end lies outside of it: a bug of the planner,
    /// which would tear a block.
    pub fn plan(&mut self, write: PlannedWrite) {
        let PlannedWrite { position, slot, from, len, data_end, received_at } = write;
        let len_u64 = u64::try_from(len).unwrap_or(u64::MAX);
        assert!(len > 0, "a write has bytes");
        assert_eq!(position % self.block_bytes, 0, "position is aligned");
        assert_eq!(len_u64 % self.block_bytes, 0, "length is aligned");
        assert!(data_end > position && data_end <= position + len_u64, "data ends inside");
        assert!(from + len <= slot.class().bytes(), "write lies in its slot");
        let state = EntryState::Held(slot);
        self.entries.push_back(Entry {
            start: position,
            position,
            from,
            len,
            data_end,
            received_at,
            state,
        });
    }

    /// The next write that shares no block with an earlier one, marked as in flight
    /// under `id`; `None` if there is none. Gives position, slot, from and length.
    pub fn next_ready(&mut self, id: OpId) -> Option<(u64, Slot, usize, usize)> {
        let ready = (0..self.entries.len()).find(|&index| {
            let entry = &self.entries[index];
            matches!(entry.state, EntryState::Held(_))
                && !self.entries.range(..index).any(|earlier| {
                    !matches!(earlier.state, EntryState::Done)
                        && earlier.shares_block_with(entry.position, entry.len_u64())
                })
        })?;
        let entry = &mut self.entries[ready];
        match std::mem::replace(&mut entry.state, EntryState::InFlight(id)) {
            EntryState::Held(slot) => Some((entry.position, slot, entry.from, entry.len)),
            EntryState::InFlight(_) | EntryState::Done => None,
        }
    }

    /// Whether `id` is a write of this window that is in flight.
    pub fn owns(&self, id: OpId) -> bool {
        self.index_in_flight(id).is_some()
    }

    /// Whether a write waits to be sent.
    pub fn has_held(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.state, EntryState::Held(_)))
    }

    /// Write `id` completed with `written` bytes. `None` if it is not of this window.
    ///
    /// A short write is held again from its last whole block on, because the block
    /// that was cut may be torn.
    ///
    /// # Panics
    /// If the driver reports more bytes than it was given.
    pub fn on_written(&mut self, id: OpId, written: usize, slot: Slot) -> Option<WriteProgress> {
        let block = usize::try_from(self.block_bytes).unwrap_or(1);
        let entry = self.in_flight(id)?;
        assert!(written <= entry.len, "the driver wrote no more than asked");
        let whole = written - written % block;
        let rest_at = entry.position + u64::try_from(whole).unwrap_or(0);
        // A rest without data, padding or given up by a reset, is not worth a write.
        if written < entry.len && rest_at < entry.data_end {
            entry.from += whole;
            entry.len -= whole;
            entry.position = rest_at;
            entry.state = EntryState::Held(slot);
            return Some(WriteProgress::Short);
        }
        entry.state = EntryState::Done;
        let received_at = entry.received_at;
        self.advance();
        Some(WriteProgress::Whole { slot, received_at })
    }

    /// Write `id` failed: it is forgotten, nothing behind it will count before
    /// [`Self::reset_to`] is called. `false` if it is not of this window.
    pub fn on_failed(&mut self, id: OpId) -> bool {
        let Some(index) = self.index_in_flight(id) else { return false };
        // Left in place as a write that never completes until the reset: what lies
        // behind it must not become contiguous.
        let at = self.entries[index].position;
        self.entries.remove(index);
        for entry in self.entries.range_mut(index..) {
            entry.data_end = entry.data_end.min(at);
        }
        self.advance();
        true
    }

    /// Goes back: what was planned at or behind `end` no longer counts. Held writes
    /// there are dropped and their slots returned; writes in flight keep their blocks
    /// occupied until they complete.
    pub fn reset_to(&mut self, end: u64) -> Vec<Slot> {
        let mut freed = Vec::new();
        let mut kept = VecDeque::with_capacity(self.entries.len());
        for mut entry in self.entries.drain(..) {
            entry.data_end = entry.data_end.min(end);
            match entry.state {
                EntryState::Held(slot) if entry.position >= end => {
                    freed.push(slot);
                    // What a short write has brought into the file stays there.
                    if entry.start < end {
                        entry.state = EntryState::Done;
                        kept.push_back(entry);
                    }
                }
                state => {
                    entry.state = state;
                    kept.push_back(entry);
                }
            }
        }
        self.entries = kept;
        self.complete_to = self.complete_to.min(end);
        self.advance();
        freed
    }

    fn index_in_flight(&self, id: OpId) -> Option<usize> {
        self.entries
            .iter()
            .position(|entry| matches!(entry.state, EntryState::InFlight(at) if at == id))
    }

    fn in_flight(&mut self, id: OpId) -> Option<&mut Entry> {
        let index = self.index_in_flight(id)?;
        self.entries.get_mut(index)
    }

    fn advance(&mut self) {
        while let Some(front) = self.entries.front() {
            if !matches!(front.state, EntryState::Done) {
                break;
            }
            // An abandoned write ends before it starts and moves nothing.
            self.complete_to = self.complete_to.max(front.data_end);
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;

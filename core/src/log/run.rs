//! One partition's record bytes of one Fetch response, on their way into slots.
//!
//! Bytes are received where they will be written from: a slot starts with the tail
//! of the block that the log ends in, and the run goes on behind it, so that whole
//! blocks go to the disk as they are.
//!
//! ```text
//!   slot:  |tail|==batch==|==batch==|==unfinished…      |
//!          ^slot_at (block boundary)  ^batch_at  ^filled
//! ```

use super::cx::LogCx;
use super::segment::LiveSegment;
use super::slot::{Slot, SlotClass};
use crate::records::{BatchMeta, BatchWalker, RecordError, WalkLimits};
use crate::time::Tick;

#[derive(Debug)]
pub(super) struct Run {
    /// Record bytes that the source announced.
    pub(super) total: u64,
    /// Of these, bytes that it still sends.
    pub(super) left: u64,
    pub(super) walker: BatchWalker,
    slot: Option<Slot>,
    /// File position of the slot's first byte.
    slot_at: u64,
    /// Bytes of the slot that hold something.
    filled: usize,
    /// Leading bytes of the slot that are in the file already.
    prefix: usize,
    /// Where the next slot goes on; `None`: where the segment ends.
    resume_at: Option<u64>,
    /// File position where the batch under way starts: the end of what was accepted.
    pub(super) batch_at: u64,
    /// When the slot's first byte of this run was received.
    pub(super) received_at: Tick,
    /// Part of the batch under way was written ahead of its verification.
    pub(super) ahead: bool,
    /// What `batch_at`'s block holds before it, kept while `ahead`.
    pub(super) restart_tail: Vec<u8>,
    /// The batch under way is not stored: it lies below the log end offset.
    pub(super) skipping: bool,
}

impl Run {
    pub(super) fn new(bytes: u64, at: u64, cx: &LogCx<'_>) -> Self {
        let limits = WalkLimits {
            batch_bytes_max: cx.limits.batch_bytes_max,
            check_crcs: cx.limits.check_crcs,
        };
        Self {
            total: bytes,
            left: bytes,
            walker: BatchWalker::new(limits),
            slot: None,
            slot_at: at,
            filled: 0,
            prefix: 0,
            resume_at: None,
            batch_at: at,
            received_at: cx.now,
            ahead: false,
            restart_tail: Vec::new(),
            skipping: false,
        }
    }

    /// Makes sure that there is a slot; `None` while the file or the pool is not ready.
    pub(super) fn take_slot(
        &mut self,
        live: Option<&LiveSegment>,
        cx: &mut LogCx<'_>,
    ) -> Option<()> {
        if self.slot.is_some() {
            return Some(());
        }
        let (end, tail) = match (self.resume_at, live) {
            (Some(at), _) => (at, &[][..]),
            (None, None) => (0, &[][..]),
            (None, Some(live)) if live.takes_bytes() => (live.accepted_end, live.tail.as_slice()),
            (None, Some(_)) => return None,
        };
        let wanted = self.left.saturating_add(len_u64(tail.len()));
        let class = if wanted <= len_u64(SlotClass::Small.bytes()) {
            SlotClass::Small
        } else {
            SlotClass::Large
        };
        let mut slot = cx.pool.take(class)?;
        slot.bytes_mut()[..tail.len()].copy_from_slice(tail);
        cx.stats.bytes_copied += len_u64(tail.len());
        self.slot_at = end - len_u64(tail.len());
        self.filled = tail.len();
        self.prefix = tail.len();
        self.slot = Some(slot);
        Some(())
    }

    /// Where the next bytes of the run belong; `None` without a slot.
    pub(super) fn free_bytes(&mut self) -> Option<&mut [u8]> {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let bytes = self.slot.as_mut()?.bytes_mut();
        let end = bytes.len().min(self.filled.saturating_add(left));
        bytes.get_mut(self.filled..end).filter(|free| !free.is_empty())
    }

    /// `n` bytes were received; returns the slot's index of the first of them.
    ///
    /// # Panics
    /// If they are more than were offered.
    pub(super) fn advance(&mut self, n: usize, now: Tick) -> usize {
        let offered = self.free_bytes().map_or(0, |free| free.len());
        assert!(n <= offered, "received no more than was offered");
        if self.filled == self.prefix {
            self.received_at = now;
        }
        let from = self.filled;
        self.filled += n;
        self.left -= len_u64(n);
        from
    }

    pub(super) fn is_full(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| self.filled == slot.bytes().len())
    }

    /// Shows the walker what lies at `at` and behind; `None` if nothing does.
    pub(super) fn feed(
        &mut self,
        at: usize,
    ) -> Result<Option<(usize, Option<BatchMeta>)>, RecordError> {
        let Some(slot) = self.slot.as_ref().filter(|_| at < self.filled) else { return Ok(None) };
        self.walker.feed(&slot.bytes()[at..self.filled]).map(Some)
    }

    /// File position of the slot's byte `index`.
    pub(super) fn position(&self, index: usize) -> u64 {
        self.slot_at + len_u64(index)
    }

    /// Index in the slot where the batch under way starts; 0 if it reaches back before it.
    pub(super) fn batch_index(&self) -> usize {
        usize::try_from(self.batch_at.saturating_sub(self.slot_at)).unwrap_or(usize::MAX)
    }

    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// Removes `slot[from..to]` and moves down what lies behind it; returns how much moved.
    pub(super) fn cut_out(&mut self, from: usize, to: usize) -> u64 {
        let Some(slot) = &mut self.slot else { return 0 };
        slot.bytes_mut().copy_within(to..self.filled, from);
        let moved = self.filled - to;
        self.filled -= to - from;
        len_u64(moved)
    }

    /// Forgets the stored bytes of a batch that is skipped.
    pub(super) fn drop_skipped(&mut self) {
        if self.skipping {
            self.filled = self.batch_index();
        }
    }

    /// Moves `slot[cut..]` to the front of a slot that starts at `new_at`. Returns the
    /// old slot and its position if it holds bytes before `cut` that are not in the file.
    pub(super) fn split(
        &mut self,
        cut: usize,
        new_at: u64,
        cx: &mut LogCx<'_>,
    ) -> Option<(Slot, u64)> {
        let mut old = self.slot.take()?;
        let moved = self.filled - cut;
        cx.stats.bytes_copied += len_u64(moved);
        let old_at = std::mem::replace(&mut self.slot_at, new_at);
        let out = if cut > self.prefix {
            // May exceed the budget by one slot: the bytes are here and have to go somewhere.
            let mut slot = cx.pool.take_over_budget(old.class());
            slot.bytes_mut()[..moved].copy_from_slice(&old.bytes()[cut..self.filled]);
            self.slot = Some(slot);
            Some((old, old_at))
        } else {
            old.bytes_mut().copy_within(cut..self.filled, 0);
            self.slot = Some(old);
            None
        };
        self.filled = moved;
        self.prefix = 0;
        out
    }

    /// The slot, full to its end, with its position; the next one continues behind it.
    pub(super) fn take_full(&mut self) -> Option<(Slot, u64, usize)> {
        let slot = self.slot.take()?;
        let at = self.slot_at;
        self.resume_at = Some(at + len_u64(self.filled));
        self.prefix = 0;
        Some((slot, at, std::mem::take(&mut self.filled)))
    }

    /// The batch under way will be written before it is verified: keeps what its first
    /// block held before it.
    pub(super) fn begin_ahead(&mut self, block_bytes: u64) {
        let block = usize::try_from(block_bytes).unwrap_or(1);
        let start = self.batch_index();
        if let Some(slot) = &self.slot {
            self.restart_tail.clear();
            self.restart_tail.extend_from_slice(&slot.bytes()[start / block * block..start]);
        }
        self.ahead = true;
    }

    /// The slot at the end of the run: its position, bytes up to the end of what was
    /// accepted, and whether some of them are not in the file yet.
    pub(super) fn finish(&mut self) -> Option<(Slot, u64, usize, bool)> {
        let slot = self.slot.take()?;
        let data_len = self.batch_index();
        Some((slot, self.slot_at, data_len, data_len > self.prefix))
    }

    pub(super) fn give_slot(&mut self, cx: &mut LogCx<'_>) {
        if let Some(slot) = self.slot.take() {
            cx.pool.give(slot);
        }
    }
}

fn len_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

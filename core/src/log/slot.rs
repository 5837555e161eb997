//! Aligned buffers that carry record bytes from a socket to a segment file, and
//! the pool that bounds them.
//!
//! A slot is owned by exactly one party at a time: the pool, a run that is being
//! received, or a write in flight. It moves by value, so that nobody can touch
//! bytes that the kernel reads.

use std::fmt;

/// Alignment of every slot in memory: covers the block sizes of today's disks.
pub const SLOT_ALIGN: usize = 4096;

/// How much a slot holds. Two sizes keep small runs from wasting large buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotClass {
    /// 64 KiB: runs that end soon.
    Small,
    /// 1 MiB: the size at which a direct write is cheapest per byte.
    Large,
}

impl SlotClass {
    /// Usable bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Small => 64 << 10,
            Self::Large => 1 << 20,
        }
    }
}

/// A zeroed-once buffer whose first byte lies on a [`SLOT_ALIGN`] boundary.
pub struct Slot {
    memory: Box<[u8]>,
    start: usize,
    class: SlotClass,
}

impl Slot {
    fn new(class: SlotClass) -> Self {
        // Over-allocated by one alignment unit: alignment without unsafe code.
        let memory = vec![0; class.bytes() + SLOT_ALIGN].into_boxed_slice();
        let start = memory.as_ptr().align_offset(SLOT_ALIGN).min(SLOT_ALIGN);
        Self { memory, start, class }
    }

    /// Which of the two sizes it has.
    pub fn class(&self) -> SlotClass {
        self.class
    }

    /// All usable bytes, whatever they hold.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.class.bytes()]
    }

    /// All usable bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.class.bytes()]
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({:?})", self.class)
    }
}

/// The slots of one shard. Allocates on demand up to the budget and then refuses,
/// which is the shard's back-pressure: a connection without a slot stops reading.
#[derive(Debug)]
pub struct SlotPool {
    budget_bytes: usize,
    /// Bytes of all slots that exist, lent or free.
    allocated_bytes: usize,
    small: Vec<Slot>,
    large: Vec<Slot>,
}

impl SlotPool {
    /// A pool that never holds more than `budget_bytes` in slots.
    pub fn new(budget_bytes: usize) -> Self {
        Self { budget_bytes, allocated_bytes: 0, small: Vec::new(), large: Vec::new() }
    }

    /// A slot, or `None` while the budget is lent out. Its bytes are stale.
    pub fn take(&mut self, class: SlotClass) -> Option<Slot> {
        if let Some(slot) = self.free(class).pop() {
            return Some(slot);
        }
        let room = |pool: &Self| pool.allocated_bytes + class.bytes() <= pool.budget_bytes;
        // Free slots of the other size give their memory back before we refuse.
        while !room(self) {
            let other = match class {
                SlotClass::Small => self.large.pop(),
                SlotClass::Large => self.small.pop(),
            }?;
            self.allocated_bytes -= other.class.bytes();
        }
        self.allocated_bytes += class.bytes();
        Some(Slot::new(class))
    }

    /// A slot even if the budget is lent out, for bytes that are already here.
    pub fn take_over_budget(&mut self, class: SlotClass) -> Slot {
        self.take(class).unwrap_or_else(|| {
            self.allocated_bytes += class.bytes();
            Slot::new(class)
        })
    }

    /// Takes a slot back; one beyond the budget is freed.
    pub fn give(&mut self, slot: Slot) {
        if self.allocated_bytes > self.budget_bytes {
            self.allocated_bytes -= slot.class.bytes();
            return;
        }
        self.free(slot.class).push(slot);
    }

    /// The limit, in bytes.
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// Bytes lent out at the moment.
    pub fn lent_bytes(&self) -> usize {
        let free = self.small.len() * SlotClass::Small.bytes()
            + self.large.len() * SlotClass::Large.bytes();
        self.allocated_bytes - free
    }

    fn free(&mut self, class: SlotClass) -> &mut Vec<Slot> {
        match class {
            SlotClass::Small => &mut self.small,
            SlotClass::Large => &mut self.large,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_aligned() {
        for class in [SlotClass::Small, SlotClass::Large] {
            let slot = Slot::new(class);
            assert_eq!(slot.bytes().as_ptr().align_offset(SLOT_ALIGN), 0);
            assert_eq!(slot.bytes().len(), class.bytes());
        }
    }

    #[test]
    fn pool_refuses_past_its_budget_and_recycles() {
        let mut pool = SlotPool::new((1 << 20) + (64 << 10));
        let large = pool.take(SlotClass::Large).expect("fits");
        let small = pool.take(SlotClass::Small).expect("fits");
        assert!(pool.take(SlotClass::Small).is_none());
        assert_eq!(pool.lent_bytes(), pool.budget_bytes());
        pool.give(large);
        // The free large slot is given up for a small one.
        let second = pool.take(SlotClass::Small).expect("room again");
        pool.give(small);
        pool.give(second);
        assert_eq!(pool.lent_bytes(), 0);
    }
}

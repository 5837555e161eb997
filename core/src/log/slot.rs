//! Aligned buffers that carry record bytes from a socket to a segment file, and
//! the pool that bounds them.
//!
//! A slot is owned by exactly one party at a time: the pool, a run that is being
//! received, or a write in flight. It moves by value, so that nobody can touch
//! bytes that the kernel reads.

use std::fmt;

use memmap2::MmapMut;

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
///
/// It has pages of its own: in the heap, what partitions keep would come to lie between slots,
/// and memory that was given back would stay with the process.
pub struct Slot {
    memory: MmapMut,
    class: SlotClass,
}

impl Slot {
    #[expect(clippy::panic, reason = "as an allocation that fails")]
    fn new(class: SlotClass) -> Self {
        match MmapMut::map_anon(class.bytes()) {
            Ok(memory) => Self { memory, class },
            Err(error) => panic!("the system gives no memory for a buffer: {error}"),
        }
    }

    /// Which of the two sizes it has.
    pub fn class(&self) -> SlotClass {
        self.class
    }

    /// All usable bytes, whatever they hold.
    pub fn bytes(&self) -> &[u8] {
        &self.memory
    }

    /// All usable bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
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
    small: Free,
    large: Free,
}

/// Slots of one size that nobody has.
#[derive(Debug, Default)]
struct Free {
    slots: Vec<Slot>,
    /// The fewest there were since the last [`SlotPool::rest`].
    spare: usize,
}

impl Free {
    fn take(&mut self) -> Option<Slot> {
        let slot = self.slots.pop();
        self.spare = self.spare.min(self.slots.len());
        slot
    }
}

impl SlotPool {
    /// A pool that never holds more than `budget_bytes` in slots.
    pub fn new(budget_bytes: usize) -> Self {
        Self { budget_bytes, allocated_bytes: 0, small: Free::default(), large: Free::default() }
    }

    /// A slot, or `None` while the budget is lent out. Its bytes are stale.
    pub fn take(&mut self, class: SlotClass) -> Option<Slot> {
        if let Some(slot) = self.free(class).take() {
            return Some(slot);
        }
        let room = |pool: &Self| pool.allocated_bytes + class.bytes() <= pool.budget_bytes;
        // Free slots of the other size give their memory back before we refuse.
        while !room(self) {
            let other = match class {
                SlotClass::Small => self.large.take(),
                SlotClass::Large => self.small.take(),
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
        self.free(slot.class).slots.push(slot);
    }

    /// Gives back half of the memory that nobody has needed since the last call: what a burst
    /// took is not kept for ever, and a pause does not cost the next one all of it.
    pub fn rest(&mut self) {
        for free in [&mut self.small, &mut self.large] {
            let keep = free.slots.len() - free.spare.div_ceil(2).min(free.slots.len());
            let gone = free.slots.drain(keep..).map(|slot| slot.class.bytes()).sum::<usize>();
            self.allocated_bytes -= gone;
            free.spare = free.slots.len();
        }
    }

    /// The limit, in bytes.
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// Bytes lent out at the moment.
    pub fn lent_bytes(&self) -> usize {
        let free = self.small.slots.len() * SlotClass::Small.bytes()
            + self.large.slots.len() * SlotClass::Large.bytes();
        self.allocated_bytes - free
    }

    fn free(&mut self, class: SlotClass) -> &mut Free {
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
    fn what_nobody_needs_is_given_back_by_halves() {
        let mut pool = SlotPool::new(16 << 20);
        let mut burst: Vec<_> = (0..8).filter_map(|_| pool.take(SlotClass::Large)).collect();
        let kept = burst.pop();
        for slot in burst {
            pool.give(slot);
        }
        let held = |pool: &SlotPool| pool.allocated_bytes >> 20;
        pool.rest();
        assert_eq!(held(&pool), 8, "they were all needed since the last call");
        pool.rest();
        assert_eq!(held(&pool), 4, "half of seven, rounded up");
        for _ in 0..9 {
            pool.rest();
        }
        assert_eq!((held(&pool), pool.lent_bytes() >> 20), (1, 1));
        drop(kept);
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

//! Aligned buffers that carry record bytes from a socket to a segment file, and
//! the pool that bounds them.
//!
//! A slot is owned by exactly one party at a time: the pool, a run that is being
//! received, or a write in flight. It moves by value, so that nobody can touch
//! bytes that the kernel reads.

use std::fmt;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Alignment of every slot in memory: covers the block sizes of today's disks.
pub const SLOT_ALIGN: usize = 4096;

/// From this budget on a large slot may serve a small run. With few of them the one that a small
/// run has is the one that all others wait for.
const LENT_FROM_BYTES: usize = 16 << 20;

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

/// Pages that one slot has to itself.
///
/// Not of the heap: what partitions keep would come to lie between slots, and memory that was
/// given back would stay with the process.
pub trait SlotMemory: Deref<Target = [u8]> + DerefMut + Send {}

impl<M: Deref<Target = [u8]> + DerefMut + Send> SlotMemory for M {}

/// Gets `count` pieces of `bytes` each, aligned to [`SLOT_ALIGN`] and zeroed. They go back to the
/// system when the last of them is dropped, so that they may be parts of one large page.
///
/// # Errors
/// From the system.
pub type MapSlots = fn(count: usize, bytes: usize) -> std::io::Result<Vec<Box<dyn SlotMemory>>>;

/// The plain way: a mapping for each.
///
/// # Errors
/// From the system.
pub fn map_apart(count: usize, bytes: usize) -> std::io::Result<Vec<Box<dyn SlotMemory>>> {
    let one = |_| {
        let memory: Box<dyn SlotMemory> = Box::new(MmapMut::map_anon(bytes)?);
        Ok(memory)
    };
    (0..count).map(one).collect()
}

/// A zeroed-once buffer whose first byte lies on a [`SLOT_ALIGN`] boundary.
pub struct Slot {
    memory: Box<dyn SlotMemory>,
    class: SlotClass,
    /// The pair that it was mapped with, if any: their memory goes back together.
    pair: Option<u32>,
}

impl Slot {
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
///
/// Large slots come in pairs, the two halves of a huge page where the system has one; a pair is
/// given up as a whole, or counts.
#[derive(Debug)]
pub struct SlotPool {
    budget_bytes: usize,
    map: MapSlots,
    /// Bytes of all slots that exist, lent or free.
    allocated_bytes: usize,
    pairs: u32,
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

    /// Drops up to `slots` of them, but no half of a pair. Returns how many.
    fn drop_up_to(&mut self, slots: usize) -> usize {
        let before = self.slots.len();
        self.slots.sort_unstable_by_key(|slot| slot.pair);
        let mut at = 0;
        while let Some(first) = self.slots.get(at) {
            let left = slots - (before - self.slots.len());
            let is_pair = first.pair.is_some();
            let whole = !is_pair || self.slots.get(at + 1).is_some_and(|s| s.pair == first.pair);
            let width = 1 + usize::from(is_pair);
            if left == 0 {
                break;
            }
            if whole && width <= left {
                self.slots.drain(at..at + width);
            } else {
                at += 1;
            }
        }
        self.spare = self.spare.min(self.slots.len());
        before - self.slots.len()
    }
}

impl SlotPool {
    /// A pool that never holds more than `budget_bytes` in slots, of memory that `map` gets.
    pub fn new(budget_bytes: usize, map: MapSlots) -> Self {
        let (small, large) = (Free::default(), Free::default());
        Self { budget_bytes, map, allocated_bytes: 0, pairs: 0, small, large }
    }

    /// A slot of at least this size, or `None` while the budget is lent out. Its bytes are stale.
    pub fn take(&mut self, class: SlotClass) -> Option<Slot> {
        if let Some(slot) = self.free(class).take() {
            return Some(slot);
        }
        while self.room(class) == 0 {
            // Memory that was just given back costs as much as a copy to be had again: a larger
            // slot serves as well, where there are many. Small ones make room.
            let freed = match class {
                SlotClass::Small if self.budget_bytes >= LENT_FROM_BYTES => {
                    return self.large.take();
                }
                SlotClass::Small => self.large.drop_up_to(2) * SlotClass::Large.bytes(),
                SlotClass::Large => self.small.drop_up_to(16) * SlotClass::Small.bytes(),
            };
            if freed == 0 {
                return None;
            }
            self.allocated_bytes -= freed;
        }
        let mut mapped = match class {
            SlotClass::Large if self.room(class) >= 2 => self.map_slots(class, 2),
            _ => self.map_slots(class, 1),
        };
        let slot = mapped.pop();
        self.free(class).slots.extend(mapped);
        slot
    }

    /// A slot even if the budget is lent out, for bytes that are already here.
    pub fn take_over_budget(&mut self, class: SlotClass) -> Slot {
        match self.take(class).or_else(|| self.map_slots(class, 1).pop()) {
            Some(slot) => slot,
            None => unreachable!("a mapping for each was asked for"),
        }
    }

    /// Takes a slot back; one beyond the budget is freed.
    pub fn give(&mut self, slot: Slot) {
        let class = slot.class;
        self.free(class).slots.push(slot);
        if self.allocated_bytes > self.budget_bytes {
            let over = (self.allocated_bytes - self.budget_bytes).div_ceil(class.bytes());
            let gone = self.free(class).drop_up_to(over.next_multiple_of(2));
            self.allocated_bytes -= gone * class.bytes();
        }
    }

    /// Gives back half of the memory that nobody has needed since the last call: what a burst
    /// took is not kept for ever, and a pause does not cost the next one all of it.
    pub fn rest(&mut self) {
        for class in [SlotClass::Small, SlotClass::Large] {
            let free = self.free(class);
            let half = free.spare.div_ceil(2).next_multiple_of(2);
            let gone = free.drop_up_to(half.min(free.spare));
            free.spare = free.slots.len();
            self.allocated_bytes -= gone * class.bytes();
        }
    }

    /// How many more of a size the budget allows.
    fn room(&self, class: SlotClass) -> usize {
        self.budget_bytes.saturating_sub(self.allocated_bytes) / class.bytes()
    }

    #[expect(clippy::panic, reason = "as an allocation that fails")]
    fn map_slots(&mut self, class: SlotClass, count: usize) -> Vec<Slot> {
        let mapped = match (self.map)(count, class.bytes()) {
            Ok(mapped) => mapped,
            Err(error) => panic!("the system gives no memory for a buffer: {error}"),
        };
        let pair = (count > 1).then(|| {
            self.pairs = self.pairs.wrapping_add(1);
            self.pairs
        });
        self.allocated_bytes += count * class.bytes();
        mapped.into_iter().map(|memory| Slot { memory, class, pair }).collect()
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

    fn pool(budget_bytes: usize) -> SlotPool {
        SlotPool::new(budget_bytes, map_apart)
    }

    fn held_mib(pool: &SlotPool) -> usize {
        pool.allocated_bytes >> 20
    }

    #[test]
    fn slots_are_aligned() {
        for class in [SlotClass::Small, SlotClass::Large] {
            let slot = pool(1 << 20).take(class).expect("fits");
            assert_eq!(slot.bytes().as_ptr().align_offset(SLOT_ALIGN), 0);
            assert_eq!(slot.bytes().len(), class.bytes());
        }
    }

    #[test]
    fn what_nobody_needs_is_given_back_by_halves_and_in_pairs() {
        let mut pool = pool(16 << 20);
        let mut burst: Vec<_> = (0..8).filter_map(|_| pool.take(SlotClass::Large)).collect();
        let kept = burst.pop().expect("eight");
        for slot in burst {
            pool.give(slot);
        }
        pool.rest();
        assert_eq!(held_mib(&pool), 8, "they were all needed since the last call");
        pool.rest();
        assert_eq!(held_mib(&pool), 4, "half of seven, rounded up");
        for _ in 0..9 {
            pool.rest();
        }
        assert_eq!((held_mib(&pool), pool.lent_bytes() >> 20), (2, 1), "a pair goes as a whole");
        pool.give(kept);
        for _ in 0..9 {
            pool.rest();
        }
        assert_eq!((held_mib(&pool), pool.lent_bytes()), (0, 0));
    }

    #[test]
    fn pool_refuses_past_its_budget_and_recycles() {
        let mut pool = pool((1 << 20) + (64 << 10));
        let large = pool.take(SlotClass::Large).expect("fits");
        let small = pool.take(SlotClass::Small).expect("fits");
        assert!(pool.take(SlotClass::Small).is_none());
        assert_eq!(pool.lent_bytes(), pool.budget_bytes());
        pool.give(large);
        let second = pool.take(SlotClass::Small).expect("room again");
        assert_eq!(second.class(), SlotClass::Small, "the free large one was given up for it");
        pool.give(small);
        pool.give(second);
        assert_eq!(pool.lent_bytes(), 0);
    }

    #[test]
    fn a_large_budget_lends_a_free_large_slot_for_a_small_run() {
        let mut pool = pool(16 << 20);
        let mut lent: Vec<_> = (0..16).filter_map(|_| pool.take(SlotClass::Large)).collect();
        assert!(pool.take(SlotClass::Small).is_none());
        pool.give(lent.pop().expect("sixteen"));
        let slot = pool.take(SlotClass::Small).expect("one is free");
        assert_eq!((slot.class(), held_mib(&pool)), (SlotClass::Large, 16));
    }

    /// Whatever is taken and given: the budget is kept, what is lent is counted, and a pair that
    /// is lent by half still counts as a whole.
    #[test]
    fn no_order_of_calls_exceeds_the_budget_or_loses_a_slot() {
        for seed in 1..200_u64 {
            let mut random = seed;
            let mut next = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
                (random >> 33) % below
            };
            let budget = usize::try_from(next(8 << 20)).expect("small");
            let mut pool = pool(budget);
            let (mut lent, mut over) = (Vec::new(), 0);
            for _ in 0..400 {
                let class = if next(3) == 0 { SlotClass::Large } else { SlotClass::Small };
                match next(8) {
                    0..3 => lent.extend(pool.take(class)),
                    3 if over == 0 => {
                        let before = pool.allocated_bytes;
                        lent.push(pool.take_over_budget(class));
                        over = usize::from(pool.allocated_bytes > budget.max(before));
                    }
                    4..7 if !lent.is_empty() => {
                        let at = usize::try_from(next(u64::try_from(lent.len()).expect("small")))
                            .expect("small");
                        pool.give(lent.swap_remove(at));
                    }
                    7 => pool.rest(),
                    _ => {}
                }
                let is_lent: usize = lent.iter().map(|slot: &Slot| slot.class.bytes()).sum();
                assert_eq!(pool.lent_bytes(), is_lent, "seed {seed}");
                let bound = budget + over * SlotClass::Large.bytes();
                assert!(pool.allocated_bytes <= bound, "seed {seed}");
            }
            lent.drain(..).for_each(|slot| pool.give(slot));
            assert_eq!(pool.lent_bytes(), 0, "seed {seed}");
            assert!(pool.allocated_bytes <= budget, "seed {seed}");
        }
    }
}

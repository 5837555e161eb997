//! Operations in flight, at addresses that do not change.

use super::op::RingOp;

/// An operation that the kernel may be working on, and its caller's tag.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    pub(super) tag: T,
    pub(super) op: RingOp,
}

/// A fixed number of places for operations in flight. Allocated once: an entry keeps
/// its address from `insert` to `remove`, which is what the kernel's pointers rely on.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Box<[Option<InFlight<T>>]>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub(super) fn new(places: usize) -> Self {
        let entries = (0..places).map(|_| None).collect();
        Self { entries, free: (0..places).rev().collect() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Puts an operation into a free place.
    ///
    /// # Panics
    /// If there is none: callers ask `is_full` first.
    pub(super) fn insert(&mut self, in_flight: InFlight<T>) -> usize {
        assert!(!self.free.is_empty(), "slab has a free place");
        let index = self.free.pop().unwrap_or_default();
        assert!(self.entries[index].is_none(), "a free place holds nothing");
        self.entries[index] = Some(in_flight);
        index
    }

    /// The operation at `index`, where it lies.
    pub(super) fn op_mut(&mut self, index: usize) -> Option<&mut RingOp> {
        self.entries.get_mut(index)?.as_mut().map(|in_flight| &mut in_flight.op)
    }

    /// Takes the operation out; its place is free again.
    pub(super) fn remove(&mut self, index: usize) -> Option<InFlight<T>> {
        let in_flight = self.entries.get_mut(index)?.take()?;
        self.free.push(index);
        Some(in_flight)
    }
}

//! Waiting within one executor: for changes of the logs, and for the stop.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Counts up; tasks of one thread wait for the next count.
#[derive(Debug, Default)]
pub(super) struct Counter {
    count: Cell<u64>,
    next_waiter: Cell<u64>,
    wakers: RefCell<HashMap<u64, Waker>>,
}

impl Counter {
    pub(super) fn now(&self) -> u64 {
        self.count.get()
    }

    /// Counts on and wakes all that wait.
    pub(super) fn bump(&self) {
        self.count.set(self.count.get().wrapping_add(1));
        let wakers = self.wakers.take();
        wakers.into_values().for_each(Waker::wake);
    }

    /// Ends once the count is no longer `seen`.
    pub(super) fn past(&self, seen: u64) -> Past<'_> {
        let id = self.next_waiter.get();
        self.next_waiter.set(id.wrapping_add(1));
        Past { counter: self, seen, id }
    }
}

/// See [`Counter::past`].
#[derive(Debug)]
pub(super) struct Past<'a> {
    counter: &'a Counter,
    seen: u64,
    id: u64,
}

impl Future for Past<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.counter.now() != self.seen {
            return Poll::Ready(());
        }
        let mut wakers = self.counter.wakers.borrow_mut();
        wakers.insert(self.id, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Past<'_> {
    fn drop(&mut self) {
        self.counter.wakers.borrow_mut().remove(&self.id);
    }
}

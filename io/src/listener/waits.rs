//! Who waits on a thread for which logs, so that a change wakes those and nobody else.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::event::Counter;
use crate::served::{Changed, WakeEnd};

/// One for each listener thread.
#[derive(Debug)]
pub(super) struct Waits {
    end: Option<WakeEnd>,
    by_log: RefCell<HashMap<u64, Vec<Rc<Waiter>>>>,
    next: Cell<u64>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    rung: Counter,
}

impl Waits {
    /// `None`: there are no logs that can be waited for one by one.
    pub(super) fn new(end: Option<WakeEnd>) -> Self {
        Self { end, by_log: RefCell::default(), next: Cell::new(0) }
    }

    /// The thread's number among those who are woken.
    pub(super) fn thread(&self) -> usize {
        self.end.as_ref().map_or(0, WakeEnd::index)
    }

    /// Waits for a change of any of these logs, from now on.
    pub(super) fn begin(&self, logs: Vec<u64>) -> Wait<'_> {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        let waiter = Rc::new(Waiter { number, rung: Counter::default() });
        let mut by_log = self.by_log.borrow_mut();
        for log in &logs {
            by_log.entry(*log).or_default().push(Rc::clone(&waiter));
        }
        Wait { waits: self, waiter, logs }
    }

    /// Passes on what changes, for ever.
    pub(super) async fn pass_on(&self) {
        let Some(end) = &self.end else { return std::future::pending().await };
        loop {
            match end.changed().await {
                Changed::Logs(ids) => ids.iter().for_each(|id| self.wake(*id)),
                Changed::Any => {
                    let all: Vec<u64> = self.by_log.borrow().keys().copied().collect();
                    for id in all {
                        self.wake(id);
                    }
                }
            }
        }
    }

    fn wake(&self, log: u64) {
        let woken = self.by_log.borrow_mut().remove(&log).unwrap_or_default();
        for waiter in woken {
            waiter.rung.bump();
        }
    }
}

/// See [`Waits::begin`]. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Wait<'a> {
    waits: &'a Waits,
    waiter: Rc<Waiter>,
    logs: Vec<u64>,
}

impl Wait<'_> {
    /// Ends once one of the logs has changed.
    pub(super) async fn over(&self) {
        self.waiter.rung.past(0).await;
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut by_log = self.waits.by_log.borrow_mut();
        for log in &self.logs {
            if let Some(waiting) = by_log.get_mut(log) {
                waiting.retain(|waiter| waiter.number != self.waiter.number);
                if waiting.is_empty() {
                    by_log.remove(log);
                }
            }
        }
    }
}

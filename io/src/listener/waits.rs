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

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::path::Path;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use heliostat_core::log::shown::ShownLog;
    use heliostat_core::types::{LeaderEpoch, TopicId};
    use uuid::Uuid;

    use super::*;
    use crate::served::{ServedLog, ServedLogs};

    fn is_ready(future: impl Future) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        std::pin::pin!(future).as_mut().poll(&mut context).is_ready()
    }

    fn logs(count: i32) -> (ServedLogs, Vec<Arc<ServedLog>>) {
        let logs = ServedLogs::new(Path::new(""));
        let (name, id) = (Arc::from("t"), TopicId(Uuid::from_u128(1)));
        (0..count).for_each(|partition| logs.set(&name, id, partition, LeaderEpoch(3)));
        let all: Vec<_> = (0..count).map(|partition| logs.log("t", partition).unwrap()).collect();
        for log in &all {
            log.show_at_rest(ShownLog::default());
        }
        (logs, all)
    }

    fn begin<'a>(waits: &'a Waits, of: &[&ServedLog]) -> Wait<'a> {
        let wait = waits.begin(of.iter().map(|log| log.id()).collect());
        for log in of {
            log.ask(waits.thread());
        }
        wait
    }

    /// A wait ends with a change of what it waits for, whatever that is, and with no other.
    #[test]
    fn only_who_waits_for_a_log_is_woken_by_it() {
        let (logs, all) = logs(3);
        let waits = Waits::new(Some(logs.wake_end(0)));
        let (a, b) = (begin(&waits, &[&all[0], &all[2]]), begin(&waits, &[&all[1]]));
        let also_a = begin(&waits, &[&all[0]]);
        let over = |wait: &Wait<'_>| is_ready(wait.over());
        let pass_on = || assert!(!is_ready(waits.pass_on()));
        pass_on();
        assert!(!over(&a) && !over(&b) && !over(&also_a));
        all[1].show_at_rest(ShownLog::default());
        pass_on();
        assert!(!over(&a) && over(&b) && !over(&also_a));
        drop(b);
        all[0].hide();
        pass_on();
        assert!(over(&a) && over(&also_a));
        drop((a, also_a));
        // A newer epoch, and the end of the topic; what nobody waits for rings nobody.
        for end in [0, 1] {
            let wait = begin(&waits, &[&all[2]]);
            if end == 0 {
                logs.set(&Arc::from("t"), TopicId(Uuid::from_u128(1)), 2, LeaderEpoch(4));
            } else {
                logs.remove(TopicId(Uuid::from_u128(1)));
            }
            pass_on();
            assert!(over(&wait));
        }
        assert!(waits.by_log.borrow().is_empty());
    }

    /// More logs change at once than the queue holds.
    #[test]
    fn no_wait_is_forgotten_when_very_many_logs_change() {
        let count = 5_000;
        let (logs, all) = logs(count);
        let waits = Waits::new(Some(logs.wake_end(0)));
        let waiting: Vec<_> = all.iter().map(|log| begin(&waits, &[log])).collect();
        for log in &all {
            log.show_at_rest(ShownLog::default());
        }
        assert!(!is_ready(waits.pass_on()));
        assert!(waiting.iter().all(|wait| is_ready(wait.over())));
    }
}

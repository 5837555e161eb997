//! How the owner of a log wakes the listener threads on which somebody waits for more of it.
//! It never blocks: what does not fit into a thread's queue wakes everybody there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::queue::ArrayQueue;
use tokio::sync::Notify;

/// Listener threads that can be told apart: bits of a word.
const THREADS_MAX: usize = 64;
/// Changed logs that wait for a thread; each is in there once. Beyond it, it looks at all.
const QUEUED_MAX: usize = 4096;

/// One for each listener thread.
#[derive(Debug)]
pub(crate) struct Wakes {
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    changed: ArrayQueue<u64>,
    overflown: AtomicBool,
    bell: Notify,
}

impl Wakes {
    pub(super) fn new() -> Self {
        let thread = || Thread {
            changed: ArrayQueue::new(QUEUED_MAX),
            overflown: AtomicBool::new(false),
            bell: Notify::new(),
        };
        Self { threads: (0..THREADS_MAX).map(|_| thread()).collect() }
    }

    /// Tells the threads of `asked`, one bit each, that log `id` has changed.
    pub(super) fn wake(&self, asked: u64, id: u64) {
        for (index, thread) in self.threads.iter().enumerate() {
            if asked >> index & 1 == 0 {
                continue;
            }
            if thread.changed.push(id).is_err() {
                thread.overflown.store(true, Ordering::Release);
            }
            thread.bell.notify_one();
        }
    }
}

/// What has changed for a listener thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// These logs; some may be named twice.
    Logs(Vec<u64>),
    /// More than could be queued.
    Any,
}

/// A listener thread's end.
#[derive(Clone, Debug)]
pub(crate) struct WakeEnd {
    wakes: Arc<Wakes>,
    index: usize,
}

impl WakeEnd {
    /// The end of listener thread `index`; threads beyond the 64th share their ends.
    pub(super) fn new(wakes: Arc<Wakes>, index: usize) -> Self {
        Self { wakes, index: index % THREADS_MAX }
    }

    /// Its bit.
    pub(crate) fn bit(&self) -> u64 {
        1 << self.index
    }

    /// Waits until something has changed, and says what.
    pub(crate) async fn changed(&self) -> Changed {
        let Some(thread) = self.wakes.threads.get(self.index) else {
            return std::future::pending().await;
        };
        thread.bell.notified().await;
        let overflown = thread.overflown.swap(false, Ordering::AcqRel);
        let mut ids = Vec::new();
        while let Some(id) = thread.changed.pop() {
            ids.push(id);
            if ids.len() >= QUEUED_MAX {
                // Those that come meanwhile have rung again.
                break;
            }
        }
        if overflown { Changed::Any } else { Changed::Logs(ids) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(end: &WakeEnd) -> Option<Changed> {
        let mut wait = std::pin::pin!(end.changed());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match wait.as_mut().poll(&mut context) {
            std::task::Poll::Ready(changed) => Some(changed),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn only_the_threads_that_asked_hear_of_it() {
        let wakes = Arc::new(Wakes::new());
        let ends = [0, 1, 2].map(|index| WakeEnd::new(Arc::clone(&wakes), index));
        wakes.wake(ends[0].bit() | ends[2].bit(), 7);
        wakes.wake(ends[2].bit(), 8);
        let all = ends.each_ref().map(heard);
        let logs = |ids: &[u64]| Some(Changed::Logs(ids.to_vec()));
        assert_eq!(all, [logs(&[7]), None, logs(&[7, 8])]);
        assert_eq!(ends.each_ref().map(heard), [None, None, None]);
    }

    #[test]
    fn what_finds_no_room_wakes_everybody() {
        let wakes = Arc::new(Wakes::new());
        let end = WakeEnd::new(Arc::clone(&wakes), 3);
        for id in 0..=u64::try_from(QUEUED_MAX).unwrap() {
            wakes.wake(end.bit(), id);
        }
        assert_eq!(heard(&end), Some(Changed::Any));
        wakes.wake(end.bit(), 5);
        assert_eq!(heard(&end), Some(Changed::Logs(vec![5])));
    }
}

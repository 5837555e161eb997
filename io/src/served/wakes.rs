//! How the owner of a log wakes the listener threads on which somebody waits for more of it.
//! It never blocks: what does not fit into a thread's queue wakes everybody there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam::queue::ArrayQueue;
use tokio::sync::Notify;

/// Listener threads that can be told apart, at least as many as `num.network.threads` allows:
/// bits of so many words.
const WORDS: usize = 4;
const THREADS_MAX: usize = WORDS * 64;
/// Changed logs that wait for a thread; each is in there once. Beyond it, it looks at all.
const QUEUED_MAX: usize = 4096;

/// Listener threads that want to hear of a log's next change.
#[derive(Debug, Default)]
pub(super) struct Asked([AtomicU64; WORDS]);

impl Asked {
    /// Thread `index` does.
    pub(super) fn ask(&self, index: usize) {
        if let Some(word) = self.0.get(index / 64 % WORDS) {
            word.fetch_or(1 << (index % 64), Ordering::SeqCst);
        }
    }
}

/// One for each listener thread.
#[derive(Debug)]
pub(crate) struct Wakes {
    threads: Vec<OnceLock<Thread>>,
}

#[derive(Debug)]
struct Thread {
    changed: ArrayQueue<u64>,
    overflown: AtomicBool,
    bell: Notify,
}

impl Wakes {
    pub(super) fn new() -> Self {
        Self { threads: (0..THREADS_MAX).map(|_| OnceLock::new()).collect() }
    }

    fn thread(&self, index: usize) -> Option<&Thread> {
        let thread = || Thread {
            changed: ArrayQueue::new(QUEUED_MAX),
            overflown: AtomicBool::new(false),
            bell: Notify::new(),
        };
        self.threads.get(index).map(|it| it.get_or_init(thread))
    }

    /// Tells the threads that asked, once, that log `id` has changed.
    pub(super) fn wake(&self, asked: &Asked, id: u64) {
        for (word, first) in asked.0.iter().zip((0..).step_by(64)) {
            // Mostly nobody waits, and a look costs the owner less than an exchange. Whoever asks
            // looks at the log afterwards, so a question that comes later finds it changed.
            if word.load(Ordering::SeqCst) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                let bit = bits.trailing_zeros();
                bits &= bits - 1;
                let index = usize::try_from(bit).map_or(first, |bit| first + bit);
                let Some(thread) = self.thread(index) else { continue };
                if thread.changed.push(id).is_err() {
                    thread.overflown.store(true, Ordering::Release);
                }
                thread.bell.notify_one();
            }
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
    /// The end of listener thread `index`.
    pub(super) fn new(wakes: Arc<Wakes>, index: usize) -> Self {
        Self { wakes, index: index % THREADS_MAX }
    }

    /// The thread's number.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Waits until something has changed, and says what.
    pub(crate) async fn changed(&self) -> Changed {
        let Some(thread) = self.wakes.thread(self.index) else {
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

    fn wake(wakes: &Wakes, ends: &[&WakeEnd], id: u64) {
        let asked = Asked::default();
        for end in ends {
            asked.ask(end.index());
        }
        wakes.wake(&asked, id);
        // Who asked once is told once.
        wakes.wake(&asked, id + 1_000_000);
    }

    /// As many threads as the configuration allows, each with an end of its own.
    #[test]
    fn only_the_threads_that_asked_hear_of_it() {
        let wakes = Arc::new(Wakes::new());
        let ends = [0, 1, 63, 64, 255].map(|index| WakeEnd::new(Arc::clone(&wakes), index));
        wake(&wakes, &[&ends[0], &ends[2], &ends[4]], 7);
        wake(&wakes, &[&ends[2], &ends[3]], 8);
        let all = ends.each_ref().map(heard);
        let logs = |ids: &[u64]| Some(Changed::Logs(ids.to_vec()));
        assert_eq!(all, [logs(&[7]), None, logs(&[7, 8]), logs(&[8]), logs(&[7])]);
        assert_eq!(ends.each_ref().map(heard), [None, None, None, None, None]);
    }

    #[test]
    fn what_finds_no_room_wakes_everybody() {
        let wakes = Arc::new(Wakes::new());
        let end = WakeEnd::new(Arc::clone(&wakes), 3);
        for id in 0..=u64::try_from(QUEUED_MAX).unwrap() {
            wake(&wakes, &[&end], id);
        }
        assert_eq!(heard(&end), Some(Changed::Any));
        wake(&wakes, &[&end], 5);
        assert_eq!(heard(&end), Some(Changed::Logs(vec![5])));
    }
}

//! Many small syncs as one.
//!
//! Thousands of partitions that each get a batch now and then want thousands of syncs a
//! second, each with a flush of the device. `syncfs` makes everything durable that the file
//! system was given before it, for one flush. It also waits for what others have written
//! there, so it is used only while more syncs wait than the device answers one by one, and
//! only as long as it is the faster way.
//!
//! What `syncfs` reports is that some write-back failed since the last call, once, and not
//! whose. So after an error everybody syncs the own file, which knows the own error, and for
//! good: the file that failed may be one that asks for its sync later.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Syncs at once from which on the blocking callers go together.
const TOGETHER_MIN: usize = 4;
/// Single syncs that are timed before a group is tried.
const MEASURED_MIN: u32 = 8;
/// A group that did not pay is not tried again for so many times as long as it took.
const PAUSE_TIMES: u32 = 16;

/// Whether going together is the faster way.
#[derive(Debug, Default)]
pub(super) struct Worth {
    /// How long a single sync takes of late.
    single: Duration,
    measured: u32,
    paused_until: Option<Instant>,
    given_up: bool,
}

impl Worth {
    /// A single sync, beside others, took so long.
    pub(super) fn single_took(&mut self, took: Duration) {
        self.measured = self.measured.saturating_add(1);
        self.single = if self.measured == 1 { took } else { (self.single * 7 + took) / 8 };
    }

    /// How long a single sync takes of late.
    pub(super) fn single(&self) -> Duration {
        self.single
    }

    /// A group took so long; one by one it would have been `instead`. Who comes while one is
    /// under way waits for it too, hence twice.
    pub(super) fn group_took(&mut self, took: Duration, instead: Duration, now: Instant) {
        if took * 2 > instead {
            self.paused_until = Some(now + took * PAUSE_TIMES);
            self.measured = 0;
        }
    }

    /// A group failed: there will be none any more.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Whether a group may be tried now.
    pub(super) fn allows(&self, now: Instant) -> bool {
        !self.given_up
            && self.measured >= MEASURED_MIN
            && self.paused_until.is_none_or(|until| now >= until)
    }
}

#[derive(Debug, Default)]
struct State {
    /// Syncs under way, of both kinds.
    callers: usize,
    /// Tickets given out and served.
    given: u64,
    served: u64,
    /// Groups that failed.
    failures: u64,
    running: bool,
    worth: Worth,
}

/// For callers that may block: the threads that open logs.
#[derive(Debug)]
pub(super) struct GroupSync {
    /// A file of the file system; its own, for it remembers which errors were told.
    root: File,
    state: Mutex<State>,
    turned: Condvar,
}

impl GroupSync {
    /// Over the file system of `root`.
    pub(super) fn new(root: File) -> Self {
        Self { root, state: Mutex::default(), turned: Condvar::new() }
    }

    /// Makes `file` durable: data, length and, of a directory, names.
    ///
    /// # Errors
    /// From the system, of this file.
    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        let mut state = self.lock();
        state.callers += 1;
        let mut done = false;
        if state.callers >= TOGETHER_MIN && state.worth.allows(Instant::now()) {
            (state, done) = self.sync_together(state);
        }
        let result = if done {
            Ok(())
        } else {
            drop(state);
            let begun = Instant::now();
            let result = file.sync_all();
            state = self.lock();
            if state.callers >= TOGETHER_MIN {
                state.worth.single_took(begun.elapsed());
            }
            result
        };
        state.callers -= 1;
        result
    }

    /// `false` if a group failed meanwhile, perhaps not the caller's.
    fn sync_together<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> (MutexGuard<'a, State>, bool) {
        state.given += 1;
        let (ticket, failures) = (state.given, state.failures);
        while state.served < ticket {
            if state.running {
                state = self.turned.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.running = true;
            let last = state.given;
            drop(state);
            let begun = Instant::now();
            let result = rustix::fs::syncfs(&self.root);
            let took = begun.elapsed();
            state = self.lock();
            state.running = false;
            state.served = last;
            if result.is_err() {
                state.failures += 1;
                state.worth.give_up();
            }
            let single = state.worth.single();
            state.worth.group_took(took, single, Instant::now());
            self.turned.notify_all();
        }
        let done = state.failures == failures;
        (state, done)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For a ring, which must not block: a thread of its own, and an eventfd that the ring reads.
#[derive(Debug)]
pub(super) struct GroupSyncThread {
    calls: SyncSender<()>,
    results: Receiver<Result<(), Errno>>,
    done: Rc<OwnedFd>,
}

impl GroupSyncThread {
    /// Starts it over the file system of `root`; it ends when this is dropped.
    ///
    /// # Errors
    /// From the system, when it gives no thread or descriptor.
    pub(super) fn start(root: File) -> io::Result<Self> {
        Self::with(move || rustix::fs::syncfs(&root))
    }

    pub(super) fn with(sync: impl Fn() -> Result<(), Errno> + Send + 'static) -> io::Result<Self> {
        let done = eventfd(0, EventfdFlags::CLOEXEC)?;
        let bell = done.try_clone()?;
        let (calls, called) = sync_channel(1);
        let (sender, results) = sync_channel(1);
        thread::Builder::new().name("group-sync".to_owned()).spawn(move || {
            for () in called {
                if sender.send(sync()).is_err()
                    || rustix::io::write(&bell, &1_u64.to_ne_bytes()).is_err()
                {
                    return;
                }
            }
        })?;
        Ok(Self { calls, results, done: Rc::new(done) })
    }

    /// Begins a call. What is to be read, eight bytes, is there once it has ended. `None` if
    /// the thread is gone.
    pub(super) fn begin(&self) -> Option<Rc<OwnedFd>> {
        self.calls.try_send(()).ok().map(|()| Rc::clone(&self.done))
    }

    /// How the call ended.
    ///
    /// # Errors
    /// From the system.
    pub(super) fn result(&self) -> Result<(), Errno> {
        self.results.try_recv().unwrap_or(Err(Errno::IO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_group_is_tried_once_singles_are_known_and_given_up_when_it_does_not_pay() {
        let mut worth = Worth::default();
        let now = Instant::now();
        for _ in 0..MEASURED_MIN {
            assert!(!worth.allows(now));
            worth.single_took(10 * MS);
        }
        assert!(worth.allows(now));
        worth.group_took(5 * MS, worth.single(), now);
        assert!(worth.allows(now), "twice five is not more than ten");
        worth.group_took(6 * MS, worth.single(), now);
        for _ in 0..MEASURED_MIN {
            worth.single_took(10 * MS);
        }
        let pause = 6 * PAUSE_TIMES;
        assert!(!worth.allows(now + MS * (pause - 1)));
        assert!(worth.allows(now + MS * pause));
    }

    #[test]
    fn callers_who_come_together_are_served_by_fewer_calls() {
        let dir = tempfile::tempdir().unwrap();
        let group = GroupSync::new(File::open(dir.path()).unwrap());
        let each = u64::from(MEASURED_MIN) * 4;
        thread::scope(|scope| {
            for thread in 0..TOGETHER_MIN * 2 {
                let (group, dir) = (&group, dir.path());
                scope.spawn(move || {
                    for number in 0..each {
                        let file = File::create(dir.join(format!("{thread}-{number}"))).unwrap();
                        group.sync(&file).unwrap();
                    }
                });
            }
        });
        let state = group.lock();
        assert_eq!((state.callers, state.running, state.served), (0, false, state.given));
        assert_eq!(state.failures, 0);
    }
}

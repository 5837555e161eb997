//! The bell: how completions wake the shard.
//!
//! The kernel adds to an eventfd for every completion; one task of the shard's executor
//! reads it and rings. The task lives as long as the ring and is never cancelled between
//! reads: a read that was given up could still swallow the count of a later completion.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use glommio::io::BufferedFile;
use rustix::event::{EventfdFlags, eventfd};

/// How often the bell rings when the eventfd cannot be read: slow, but nothing hangs.
const FALLBACK_INTERVAL: Duration = Duration::from_millis(1);
/// An eventfd is read eight bytes at a time.
const COUNT_BYTES: usize = 8;

/// An eventfd of another thread, to be awaited on this shard's executor. The eventfd
/// blocks when read.
#[derive(Debug)]
pub struct EventfdBell {
    bell: Rc<Bell>,
    /// Ends with this value.
    _task: glommio::Task<()>,
}

impl EventfdBell {
    /// Watches `eventfd` from now on.
    pub fn new(eventfd: OwnedFd) -> Self {
        let bell = Rc::new(Bell::default());
        let task = spawn(Rc::clone(&bell), eventfd);
        Self { bell, _task: task }
    }

    /// Resolves once it was written to since the last call. Call before looking for what
    /// the other thread left.
    pub async fn rung(&self) {
        Rung::new(Rc::clone(&self.bell)).await;
        self.bell.silence();
    }
}

/// Says whether completions may wait to be reaped.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Bell {
    /// There may be something to reap.
    pub(super) fn ring(&self) {
        self.rung.set(true);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// The caller is about to reap everything that is there.
    pub(super) fn silence(&self) {
        self.rung.set(false);
    }
}

/// Resolves once there may be something to reap. Dropping it loses nothing; several
/// may wait. It stays resolved until the next reap.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Rung(Rc<Bell>);

impl Rung {
    pub(super) fn new(bell: Rc<Bell>) -> Self {
        Self(bell)
    }
}

impl Future for Rung {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.rung.get() {
            return Poll::Ready(());
        }
        let mut waiting = self.0.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// An eventfd for the ring. It blocks on purpose: the executor's own ring then waits
/// for it in the kernel instead of getting `EAGAIN`.
pub(super) fn new_eventfd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC)?)
}

/// Starts the task that rings `bell` for `eventfd`; dropping the handle ends it.
pub(super) fn spawn(bell: Rc<Bell>, eventfd: OwnedFd) -> glommio::Task<()> {
    glommio::spawn_local(async move {
        // SAFETY: the descriptor is open and owned by nobody else: `into_raw_fd` gave it
        // up, and `BufferedFile` closes it when dropped.
        let file = unsafe { BufferedFile::from_raw_fd(eventfd.into_raw_fd()) };
        loop {
            match file.read_at(0, COUNT_BYTES).await {
                Ok(_) => bell.ring(),
                Err(error) => {
                    tracing::error!(%error, "completions cannot wake the shard; polling instead");
                    loop {
                        glommio::timer::sleep(FALLBACK_INTERVAL).await;
                        bell.ring();
                    }
                }
            }
        }
    })
}

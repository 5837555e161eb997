//! A flag that tasks of one thread wait for.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Raised by one task, awaited by one other. Raising it twice is raising it once.
#[derive(Debug, Default)]
pub struct Signal {
    raised: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Signal {
    /// Wakes whoever waits, now or later.
    pub fn raise(&self) {
        self.raised.set(true);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// Resolves once it is raised, and lowers it.
    pub fn raised(&self) -> Raised<'_> {
        Raised(self)
    }

    /// As [`Self::raised`], for a hand-written future.
    pub fn poll_raised(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.raised.replace(false) {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waiting = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// See [`Signal::raised`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Raised<'a>(&'a Signal);

impl Future for Raised<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_raised(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    #[test]
    fn a_signal_raised_before_the_wait_is_seen_once() {
        let signal = Signal::default();
        signal.raise();
        signal.raise();
        assert_eq!(block_on(poll_once(signal.raised())), Some(()));
        assert_eq!(block_on(poll_once(signal.raised())), None);
    }
}

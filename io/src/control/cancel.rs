//! Stopping a job: once for a clean stop, twice to give that up.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// How much of a stop was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cancel {
    /// Nothing.
    #[default]
    No,
    /// Finish what is under way, close the logs, write the checkpoints.
    Stop,
    /// Return at once; the copy is as after a crash.
    Abort,
}

/// Asks a job to stop. May be cloned and used from any thread.
#[derive(Clone, Debug)]
pub struct CancelHandle {
    sender: watch::Sender<Cancel>,
}

/// The job's end of a [`CancelHandle`].
#[derive(Clone, Debug)]
pub struct CancelWatch {
    receiver: watch::Receiver<Cancel>,
    /// Keeps the channel alive where nobody holds a handle.
    _sender: watch::Sender<Cancel>,
}

/// A handle and the end that a job listens to.
pub fn cancellation() -> (CancelHandle, CancelWatch) {
    let (sender, receiver) = watch::channel(Cancel::No);
    (CancelHandle { sender: sender.clone() }, CancelWatch { receiver, _sender: sender })
}

impl CancelHandle {
    /// The first call asks for a clean stop, a second one gives that up.
    pub fn cancel(&self) {
        self.sender.send_modify(|cancel| {
            *cancel = if *cancel == Cancel::No { Cancel::Stop } else { Cancel::Abort };
        });
    }
}

impl CancelWatch {
    /// What was asked for so far.
    pub(super) fn now(&self) -> Cancel {
        *self.receiver.borrow()
    }

    /// Whether everything is to be given up.
    pub(crate) fn is_abort(&self) -> bool {
        self.now() == Cancel::Abort
    }

    /// Waits until more is asked for.
    pub(crate) async fn changed(&mut self) -> Cancel {
        // The sender lives in `self`.
        let _ = self.receiver.changed().await;
        self.now()
    }
}

/// SIGINT and SIGTERM, caught from here on.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the signals cannot be caught.
    pub fn catch() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one. May be cancelled.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

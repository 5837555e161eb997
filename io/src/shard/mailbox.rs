//! The bounded queues between the control thread and a shard, the only thing that both
//! hold. Each side wakes the other through an eventfd.
//!
//! Commands wait for room: the control thread may. Reports never block a shard: what
//! finds no room stays with it and is sent later.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crossbeam::channel::{self, Receiver, Sender, TryRecvError, TrySendError};
use crossbeam::queue::ArrayQueue;
use heliostat_core::engine::message::{Command, Report};
use rustix::event::{EventfdFlags, eventfd};

use super::snapshot::ShardSnapshot;

/// Commands and reports that may wait, each way.
pub const MESSAGES_MAX: usize = 1024;

/// The control thread's end.
#[derive(Debug)]
pub struct ControlEnd {
    commands: Sender<Command>,
    reports: Receiver<Report>,
    snapshots: Arc<ArrayQueue<ShardSnapshot>>,
    /// Behind the queues: dropped after them, so that who is woken finds them closed.
    shard_bell: Bell,
    own_bell: OwnedFd,
}

/// The shard's end.
#[derive(Debug)]
pub struct ShardEnd {
    commands: Receiver<Command>,
    reports: Sender<Report>,
    snapshots: Arc<ArrayQueue<ShardSnapshot>>,
    /// Behind the queues, as above.
    control_bell: Bell,
    own_bell: OwnedFd,
}

/// What the other side's end tells of itself.
#[derive(Debug)]
pub enum Received<T> {
    /// A message.
    Message(T),
    /// None at the moment.
    Empty,
    /// The other side is gone, and nothing is left of it.
    Closed,
}

/// Makes the two ends.
///
/// # Errors
/// From the system, when it is out of file descriptors.
pub fn mailbox() -> std::io::Result<(ControlEnd, ShardEnd)> {
    let (command_sender, command_receiver) = channel::bounded(MESSAGES_MAX);
    let (report_sender, report_receiver) = channel::bounded(MESSAGES_MAX);
    let snapshots = Arc::new(ArrayQueue::new(1));
    // The shard's executor waits for its bell in the kernel, so that one blocks.
    let shard_bell = eventfd(0, EventfdFlags::CLOEXEC)?;
    let control_bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let control = ControlEnd {
        commands: command_sender,
        reports: report_receiver,
        snapshots: Arc::clone(&snapshots),
        shard_bell: Bell(shard_bell.try_clone()?),
        own_bell: control_bell.try_clone()?,
    };
    let shard = ShardEnd {
        commands: command_receiver,
        reports: report_sender,
        snapshots,
        control_bell: Bell(control_bell),
        own_bell: shard_bell,
    };
    Ok((control, shard))
}

/// The other side's eventfd; rung once more when it is dropped.
#[derive(Debug)]
struct Bell(OwnedFd);

impl Bell {
    fn ring(&self) {
        // Full is as good as rung: the reader has not come round to it yet.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.ring();
    }
}

fn received<T>(queue: &Receiver<T>) -> Received<T> {
    match queue.try_recv() {
        Ok(message) => Received::Message(message),
        Err(TryRecvError::Empty) => Received::Empty,
        Err(TryRecvError::Disconnected) => Received::Closed,
    }
}

impl ControlEnd {
    /// Sends a command, or gives it back while the queue is full; `Err(None)` once the
    /// shard is gone.
    ///
    /// # Errors
    /// The command, to be sent again after the shard has caught up.
    pub fn try_send(&self, command: Command) -> Result<(), Option<Command>> {
        let sent = self.commands.try_send(command).map_err(|error| match error {
            TrySendError::Full(command) => Some(command),
            TrySendError::Disconnected(_) => None,
        });
        self.shard_bell.ring();
        sent
    }

    /// The next report.
    pub fn next_report(&self) -> Received<Report> {
        received(&self.reports)
    }

    /// The shard's latest figures, if they are new.
    pub fn latest_snapshot(&self) -> Option<ShardSnapshot> {
        self.snapshots.pop()
    }

    /// Readable when reports may be waiting. Silence it before looking for them.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.own_bell.as_fd()
    }

    /// Resets [`Self::bell`].
    pub fn silence(&self) {
        // EAGAIN: it was silent.
        let _ = rustix::io::read(&self.own_bell, &mut [0_u8; 8]);
    }
}

impl ShardEnd {
    /// The next command.
    pub fn next_command(&self) -> Received<Command> {
        received(&self.commands)
    }

    /// Sends a report, or gives it back while there is no room. A control thread that is
    /// gone takes everything: nobody is left to tell.
    ///
    /// # Errors
    /// The report, to be sent again.
    pub fn try_report(&self, report: Report) -> Result<(), Box<Report>> {
        let sent = match self.reports.try_send(report) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(report)) => Err(Box::new(report)),
        };
        self.control_bell.ring();
        sent
    }

    /// Replaces the figures that the control thread has not taken yet.
    pub fn publish(&self, snapshot: ShardSnapshot) {
        self.snapshots.force_push(snapshot);
    }

    /// The eventfd that is readable when commands may be waiting; it blocks when read.
    ///
    /// # Errors
    /// From the system, when it is out of file descriptors.
    pub fn bell(&self) -> std::io::Result<OwnedFd> {
        self.own_bell.try_clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_gives_the_message_back() {
        let (control, shard) = mailbox().unwrap();
        for _ in 0..MESSAGES_MAX {
            control.try_send(Command::SetParked(true)).unwrap();
            shard.try_report(Report::WantMetadata).unwrap();
        }
        assert!(matches!(control.try_send(Command::Stop), Err(Some(Command::Stop))));
        assert!(shard.try_report(Report::Stopped).is_err());
        assert!(matches!(shard.next_command(), Received::Message(Command::SetParked(true))));
        control.try_send(Command::Stop).unwrap();
    }

    #[test]
    fn the_bell_is_rung_once_for_many_and_again_after_silence() {
        let (control, shard) = mailbox().unwrap();
        let rung = || {
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(
                control.bell(),
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
        };
        assert!(!rung());
        shard.try_report(Report::WantMetadata).unwrap();
        shard.try_report(Report::WantMetadata).unwrap();
        assert!(rung());
        control.silence();
        assert!(!rung());
        drop(shard);
        assert!(rung());
        assert!(matches!(control.next_report(), Received::Message(_)));
        assert!(matches!(control.next_report(), Received::Message(_)));
        assert!(matches!(control.next_report(), Received::Closed));
    }
}

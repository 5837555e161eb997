//! The ring itself: push, submit, reap, and a drop that frees nothing too early.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, types};
use rustix::io::Errno;

use super::bell::{self, Bell, Rung};
use super::op::{Completion, RingOp, RingReply};
use super::setup::{RingConfig, RingError, RingFeatures, set_up};
use super::slab::{InFlight, Slab};

/// How long a drop waits for the kernel before it leaks what the kernel may still touch.
const DROP_WAIT_MAX: Duration = Duration::from_secs(30);

/// An io_uring of one thread: made, used and dropped there. `T` comes back with each
/// completion.
pub struct Ring<T> {
    uring: IoUring,
    /// Freed by `drop` once nothing is in flight, otherwise leaked.
    slab: ManuallyDrop<Slab<T>>,
    /// Interrupted operations, to be queued again.
    again: Vec<usize>,
    /// Finished without the kernel's ring.
    ready: VecDeque<Completion<T>>,
    features: RingFeatures,
    eventfd: OwnedFd,
    bell: Rc<Bell>,
    listener: Option<glommio::Task<()>>,
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("in_flight", &self.in_flight())
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

impl<T> Ring<T> {
    /// Sets a ring up for the calling thread.
    ///
    /// # Errors
    /// [`RingError`] with the reason and, where there is one, the remedy.
    pub fn new(config: RingConfig) -> Result<Self, RingError> {
        let (uring, features) = set_up(config)?;
        let eventfd = bell::new_eventfd().map_err(RingError::Setup)?;
        uring.submitter().register_eventfd(eventfd.as_raw_fd()).map_err(RingError::Setup)?;
        // The kernel may have clamped the queue.
        let cq_entries = usize::try_from(uring.params().cq_entries()).unwrap_or(usize::MAX);
        let wanted = usize::try_from(config.in_flight_max).unwrap_or(usize::MAX);
        Ok(Self {
            uring,
            slab: ManuallyDrop::new(Slab::new(wanted.clamp(1, cq_entries))),
            again: Vec::new(),
            ready: VecDeque::new(),
            features,
            eventfd,
            bell: Rc::default(),
            listener: None,
        })
    }

    /// What the kernel granted.
    pub fn features(&self) -> RingFeatures {
        self.features
    }

    /// Operations pushed and not yet reaped, those that never reach the kernel apart.
    pub fn in_flight(&self) -> usize {
        self.slab.in_flight()
    }

    /// Whether [`push`](Self::push) may be called. Submits when the queue is full.
    ///
    /// # Errors
    /// [`RingError::Submit`]; the ring is then of no use.
    pub fn has_room(&mut self) -> Result<bool, RingError> {
        if self.slab.is_full() {
            return Ok(false);
        }
        if self.uring.submission().is_full() {
            self.submit()?;
        }
        Ok(!self.uring.submission().is_full())
    }

    /// Queues an operation; nothing happens before [`submit`](Self::submit).
    ///
    /// # Panics
    /// Without room, or if the operation names bytes outside its buffer: both are bugs
    /// of the caller.
    pub fn push(&mut self, tag: T, op: RingOp) {
        if let (RingOp::Truncate { file, len }, false) = (&op, self.features.ftruncate) {
            let result = repeat(|| rustix::fs::ftruncate(file, *len)).map(|()| RingReply::Done);
            self.ready.push_back(Completion { tag, op, result });
            self.bell.ring();
            return;
        }
        op.assert_in_bounds();
        let index = self.slab.insert(InFlight { tag, op });
        let queued = self.enqueue(index);
        assert!(queued, "push is called with room in the submission queue");
    }

    /// Hands everything queued to the kernel. What it cannot take for want of memory
    /// stays queued, and the bell rings.
    ///
    /// # Errors
    /// [`RingError::Submit`]; the ring is then of no use.
    pub fn submit(&mut self) -> Result<(), RingError> {
        while !self.uring.submission().is_empty() {
            match self.uring.submit() {
                Ok(_) => {}
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR) => {}
                    Some(Errno::AGAIN | Errno::BUSY) => {
                        self.bell.ring();
                        return Ok(());
                    }
                    _ => return Err(RingError::Submit(error)),
                },
            }
        }
        Ok(())
    }

    /// Takes all completions that are there, without waiting.
    ///
    /// # Errors
    /// [`RingError::Submit`]; the ring is then of no use.
    pub fn reap(&mut self, into: &mut Vec<Completion<T>>) -> Result<(), RingError> {
        self.bell.silence();
        into.extend(self.ready.drain(..));
        if self.uring.submission().taskrun() {
            // Completions wait for this thread to enter the kernel.
            match self.uring.submit() {
                Ok(_) => {}
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => self.bell.ring(),
                    _ => return Err(RingError::Submit(error)),
                },
            }
        }
        self.drain(into);
        self.repeat_interrupted()
    }

    /// Blocks the thread until at least one operation in flight has completed. For
    /// tools, tests and shutdown; a shard awaits [`completed`](Self::completed).
    ///
    /// # Errors
    /// [`RingError::Submit`]; the ring is then of no use.
    pub fn wait(&mut self) -> Result<(), RingError> {
        self.repeat_interrupted()?;
        if !self.ready.is_empty() || self.slab.in_flight() == 0 {
            return Ok(());
        }
        loop {
            match self.uring.submit_and_wait(1) {
                Ok(_) => return Ok(()),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
                    _ => return Err(RingError::Submit(error)),
                },
            }
        }
    }

    /// Resolves once there may be something to reap; borrows nothing of the ring.
    /// Reap before awaiting it. The first call starts the listening task, so it is made
    /// on the shard's executor.
    ///
    /// # Errors
    /// [`RingError::Setup`] when out of file descriptors.
    pub fn completed(&mut self) -> Result<Rung, RingError> {
        if self.listener.is_none() {
            let eventfd = self.eventfd.try_clone().map_err(RingError::Setup)?;
            self.listener = Some(bell::spawn(Rc::clone(&self.bell), eventfd));
        }
        if !self.ready.is_empty() || !self.uring.completion().is_empty() {
            self.bell.ring();
        }
        Ok(Rung::new(Rc::clone(&self.bell)))
    }

    /// Makes [`completed`](Self::completed) resolve, for results that are at hand.
    pub fn ring_bell(&self) {
        self.bell.ring();
    }

    /// Puts the entry of a slab place into the submission queue.
    fn enqueue(&mut self, index: usize) -> bool {
        let Some(op) = self.slab.op_mut(index) else { return false };
        let user_data = u64::try_from(index).unwrap_or(u64::MAX);
        let entry = op.entry().user_data(user_data);
        // SAFETY: the entry points into the operation at `index` of the slab, whose
        // places never move, and which is neither touched nor freed until `drain` takes
        // it out for this entry's completion, or `drop` leaks it. The files it names are
        // kept open by the operation.
        unsafe { self.uring.submission().push(&entry) }.is_ok()
    }

    fn drain(&mut self, into: &mut Vec<Completion<T>>) {
        for cqe in self.uring.completion() {
            let index = usize::try_from(cqe.user_data()).unwrap_or(usize::MAX);
            let result = match u32::try_from(cqe.result()) {
                Ok(value) => Ok(value),
                Err(_) => Err(Errno::from_raw_os_error(cqe.result().saturating_neg())),
            };
            let is_close = matches!(self.slab.op_mut(index), Some(RingOp::Close { .. }));
            // Whatever a close says, the descriptor is gone: another file may have its
            // number by now.
            if !is_close && matches!(result, Err(Errno::INTR | Errno::AGAIN)) {
                self.again.push(index);
                continue;
            }
            let in_flight = self.slab.remove(index);
            assert!(in_flight.is_some(), "each completion belongs to one operation in flight");
            if let Some(InFlight { tag, mut op }) = in_flight {
                let result = reply(&mut op, result);
                into.push(Completion { tag, op, result });
            }
        }
    }

    fn repeat_interrupted(&mut self) -> Result<(), RingError> {
        if self.again.is_empty() {
            return Ok(());
        }
        while let Some(&index) = self.again.last() {
            if self.uring.submission().is_full() {
                self.submit()?;
            }
            if !self.enqueue(index) {
                self.bell.ring();
                break;
            }
            self.again.pop();
        }
        self.submit()
    }
}

impl<T> Drop for Ring<T> {
    /// Waits for everything in flight. If the kernel does not give it back in time, or
    /// another thread than the ring's drops it, the operations are leaked: the kernel
    /// may still write to them.
    fn drop(&mut self) {
        let deadline = Instant::now() + DROP_WAIT_MAX;
        let mut finished = Vec::new();
        while self.slab.in_flight() > 0 {
            self.drain(&mut finished);
            // Tags and buffers of what is finished belong to nobody any more.
            finished.clear();
            // What was interrupted is not in the kernel's hands and is given up.
            for index in std::mem::take(&mut self.again) {
                drop(self.slab.remove(index));
            }
            if self.slab.in_flight() == 0 {
                break;
            }
            if let Err(error) = wait_until(&self.uring, deadline) {
                tracing::error!(
                    in_flight = self.slab.in_flight(),
                    %error,
                    "operations do not come back from the kernel; their memory is leaked"
                );
                return;
            }
        }
        // SAFETY: nothing is in flight, so the kernel holds no pointer into the slab, and
        // `slab` is not used again: this is the end of `drop`.
        unsafe { ManuallyDrop::drop(&mut self.slab) };
    }
}

/// Waits for one completion, until `deadline` at most.
fn wait_until(uring: &IoUring, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Errno::TIMEDOUT.into());
    }
    let timeout = types::Timespec::from(left);
    let args = types::SubmitArgs::new().timespec(&timeout);
    match uring.submitter().submit_with_args(1, &args) {
        Ok(_) => Ok(()),
        Err(error) => match Errno::from_io_error(&error) {
            // The deadline decides when to give up.
            Some(Errno::INTR | Errno::AGAIN | Errno::BUSY | Errno::TIME) => Ok(()),
            _ => Err(error),
        },
    }
}

/// Turns the number into what it means for this operation.
fn reply(op: &mut RingOp, result: Result<u32, Errno>) -> Result<RingReply, Errno> {
    match op {
        RingOp::Close { file } => {
            match result {
                // It never ran: dropping the descriptor closes it.
                Err(Errno::CANCELED) => drop(file.take()),
                // The kernel has closed it: the number is no longer ours.
                Ok(_) | Err(_) => drop(file.take().map(IntoRawFd::into_raw_fd)),
            }
            result.map(|_| RingReply::Done)
        }
        RingOp::Open { .. } => {
            let raw = result?.cast_signed();
            // SAFETY: the kernel has just opened it for this operation and told nobody else.
            Ok(RingReply::Opened(unsafe { OwnedFd::from_raw_fd(raw) }))
        }
        RingOp::WriteSlot { .. } | RingOp::WriteBytes { .. } | RingOp::Read { .. } => {
            Ok(RingReply::Bytes(usize::try_from(result?).unwrap_or(usize::MAX)))
        }
        RingOp::Sync { .. }
        | RingOp::Allocate { .. }
        | RingOp::Truncate { .. }
        | RingOp::Rename { .. }
        | RingOp::Unlink { .. }
        | RingOp::MakeDir { .. } => result.map(|_| RingReply::Done),
    }
}

/// A plain call, repeated while signals interrupt it.
fn repeat<R>(mut call: impl FnMut() -> rustix::io::Result<R>) -> rustix::io::Result<R> {
    loop {
        match call() {
            Err(Errno::INTR | Errno::AGAIN) => {}
            result => return result,
        }
    }
}

//! Threads that open logs. Recovery reads segments and syncs files: on the control thread it
//! would hold up everything else, and one after another new partitions wait for the disk.

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crossbeam::channel;
use heliostat_core::engine::message::PartitionKey;
use heliostat_core::log::partition::RecoveredLog;
use heliostat_core::log::recovery::{self, LogOpenError, OpenOptions, OpenReport};
use heliostat_core::types::{Offset, TopicPartition};
use tokio::sync::mpsc;

use crate::disk::{FileStore, LogDirLock};

/// Orders that may wait for each thread, so that none is idle while the control thread is busy.
const ORDERS_PER_THREAD: usize = 2;

/// A log to be opened.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) key: PartitionKey,
    pub(super) at: TopicPartition,
    pub(super) options: OpenOptions,
    /// Remove what the log holds; it begins here from now on.
    pub(super) reset_to: Option<Offset>,
}

/// What became of an [`Order`].
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) key: PartitionKey,
    pub(super) at: TopicPartition,
    pub(super) outcome: Result<(RecoveredLog, OpenReport), LogOpenError>,
}

/// An answer, or the panic of the thread that had the order.
type Answer = thread::Result<Opened>;

/// A fixed number of threads, which end when this is dropped: those at work, with their log, and
/// until then with the lock of the log dir.
#[derive(Debug)]
pub(super) struct Openers {
    lock: Arc<LogDirLock>,
    orders: channel::Sender<(Order, Arc<LogDirLock>)>,
    done: mpsc::Receiver<Answer>,
    under_way: usize,
    limit: usize,
}

impl Openers {
    /// Starts `threads` threads over the log dir `root`.
    ///
    /// # Errors
    /// From the system, when it gives no more threads.
    pub(super) fn start(
        root: &Path,
        lock: Arc<LogDirLock>,
        threads: usize,
    ) -> std::io::Result<Self> {
        let limit = threads.max(1) * ORDERS_PER_THREAD;
        let (orders, queue) = channel::bounded(limit);
        let (sender, done) = mpsc::channel(limit);
        let store = FileStore::new(root);
        for index in 0..threads.max(1) {
            let (queue, sender) = (queue.clone(), sender.clone());
            // Clones sync together.
            let mut store = store.clone();
            thread::Builder::new().name(format!("opener-{index}")).spawn(move || {
                for (order, lock) in queue {
                    // The order must be answered, or its owner would wait for ever.
                    let work = AssertUnwindSafe(|| carry_out(&mut store, order));
                    let answer = panic::catch_unwind(work);
                    drop(lock);
                    if sender.blocking_send(answer).is_err() {
                        return;
                    }
                }
            })?;
        }
        Ok(Self { lock, orders, done, under_way: 0, limit })
    }

    /// Orders that may be placed now.
    pub(super) fn room(&self) -> usize {
        self.limit - self.under_way
    }

    /// Whether every order has been answered.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Places an order.
    ///
    /// # Panics
    /// If there is no [room](Self::room).
    pub(super) fn place(&mut self, order: Order) {
        assert!(self.under_way < self.limit, "no more orders than there is room for");
        self.under_way += 1;
        let placed = self.orders.try_send((order, Arc::clone(&self.lock)));
        assert!(placed.is_ok(), "the threads that open logs are there");
    }

    /// The next answer; waits for ever while there is no order. May be cancelled.
    ///
    /// # Panics
    /// With the panic of a thread: a bug in recovery.
    pub(super) async fn next(&mut self) -> Opened {
        if let Some(answer) = self.done.recv().await {
            return self.answered(answer);
        }
        // The threads end after this does.
        std::future::pending().await
    }

    /// An answer that is there already.
    ///
    /// # Panics
    /// As [`Self::next`].
    pub(super) fn try_next(&mut self) -> Option<Opened> {
        let answer = self.done.try_recv().ok()?;
        Some(self.answered(answer))
    }

    fn answered(&mut self, answer: Answer) -> Opened {
        self.under_way -= 1;
        answer.unwrap_or_else(|bug| panic::resume_unwind(bug))
    }
}

fn carry_out(store: &mut FileStore, order: Order) -> Opened {
    let Order { key, at, options, reset_to } = order;
    let dir = at.to_string();
    let outcome = match reset_to {
        None => {
            let opened = recovery::open(store, &dir, &options);
            if options.truncate_to.is_some() {
                crate::fault::point("truncation.cut");
            }
            opened
        }
        // That an empty log's files are made is no news.
        Some(start) => {
            let opened = recovery::reset(store, &dir, start, &options);
            crate::fault::point("truncation.reset");
            opened.map(|(log, _)| (log, OpenReport::default()))
        }
    };
    Opened { key, at, outcome }
}

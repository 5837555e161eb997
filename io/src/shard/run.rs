//! The loop of a shard: sockets, disk, mailbox and time feed the state machine of
//! [`heliostat_core::engine`], and its actions are carried out.
//!
//! ```text
//!   connection tasks ─┐                       ┌─▶ sockets
//!   disk task ────────┼─▶ Shard (core) ─▶ act ┼─▶ ring
//!   command task ─────┤                       ├─▶ mailbox
//!   timer task ───────┘                       └─▶ connection tasks
//! ```
//!
//! All tasks run on the shard's one thread. The state machine is borrowed for one
//! event at a time and never across an await.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_lite::future;
use heliostat_core::engine::config::ShardConfig;
use heliostat_core::engine::message::Report;
use heliostat_core::engine::{Action, ConnectionId, Shard};
use heliostat_core::log::disk::{DiskOp, DiskOutcome};
use heliostat_core::time::Tick;

use super::mailbox::{Received, ShardEnd};
use super::snapshot::{ShardSnapshot, ShardTime, thread_cpu_time};
use crate::disk::{Disk, DiskConfig, DiskOpenError};
use crate::net::{self, Link, SocketOptions};
use crate::ring::{EventfdBell, RingError};

/// Time between two sets of figures.
const SNAPSHOT_EVERY: Duration = Duration::from_millis(500);
/// Longest sleep of the timer task, so that a clock that jumps does no lasting harm.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// Everything that a shard starts from.
#[derive(Debug)]
pub struct ShardSetup {
    /// Settings of the engine.
    pub config: ShardConfig,
    /// The log dir, which exists.
    pub log_dir: PathBuf,
    /// Settings of its ring.
    pub disk: DiskConfig,
    /// Options of its sockets.
    pub sockets: SocketOptions,
    /// Its end of the mailbox.
    pub mailbox: ShardEnd,
    /// Seed of its back-offs.
    pub seed: u64,
}

/// Why a shard ended before it was told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// Its disk did not open.
    #[error(transparent)]
    Disk(#[from] DiskOpenError),
    /// Its ring broke.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Out of file descriptors, most likely.
    #[error("the shard's mailbox cannot be watched")]
    Mailbox(#[source] std::io::Error),
}

/// What the tasks of a shard share.
struct Driver {
    shard: RefCell<Shard>,
    disk: RefCell<Disk>,
    mailbox: ShardEnd,
    links: RefCell<HashMap<ConnectionId, Rc<Link>>>,
    sockets: SocketOptions,
    /// Reports that found no room.
    unsent: RefCell<VecDeque<Report>>,
    timer: net::Signal,
    /// Deadline that the timer task sleeps for.
    sleeping_until: Cell<Tick>,
    stopped: net::Signal,
    failure: RefCell<Option<RingError>>,
    origin: Instant,
    snapshot: RefCell<ShardSnapshot>,
    snapshot_at: Cell<Tick>,
    outcomes: RefCell<Vec<DiskOutcome>>,
}

/// Runs a shard until it is told to stop and its partitions are closed. Called on the
/// shard's executor.
///
/// # Errors
/// [`ShardError`]: the shard cannot work here. Its partitions are lost to it, their logs
/// are as after a crash.
pub async fn run(setup: ShardSetup) -> Result<(), ShardError> {
    let disk = Disk::open(&setup.log_dir, setup.disk)?;
    let bell = EventfdBell::new(setup.mailbox.bell().map_err(ShardError::Mailbox)?);
    let origin = Instant::now();
    let driver = Rc::new(Driver {
        shard: RefCell::new(Shard::new(setup.config, setup.seed, Tick::ZERO, wall_ms())),
        disk: RefCell::new(disk),
        mailbox: setup.mailbox,
        links: RefCell::default(),
        sockets: setup.sockets,
        unsent: RefCell::default(),
        timer: net::Signal::default(),
        sleeping_until: Cell::new(Tick::NEVER),
        stopped: net::Signal::default(),
        failure: RefCell::default(),
        origin,
        snapshot: RefCell::default(),
        snapshot_at: Cell::new(Tick::ZERO),
        outcomes: RefCell::default(),
    });
    let tasks = [
        glommio::spawn_local(disk_task(Rc::clone(&driver))),
        glommio::spawn_local(timer_task(Rc::clone(&driver))),
        glommio::spawn_local(command_task(Rc::clone(&driver), bell)),
    ];
    driver.stopped.raised().await;
    for task in tasks {
        task.cancel().await;
    }
    for (_, link) in driver.links.take() {
        link.close();
    }
    driver.flush_reports().await;
    driver.publish(true);
    driver.failure.take().map_or(Ok(()), |error| Err(error.into()))
}

fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Driver {
    fn now(&self) -> Tick {
        Tick::ZERO.after(self.origin.elapsed())
    }

    /// Tells the shard of an event, and does what it wants done.
    fn event(self: &Rc<Self>, event: impl FnOnce(&mut Shard)) {
        {
            let mut shard = self.shard.borrow_mut();
            shard.set_time(self.now(), wall_ms());
            event(&mut shard);
        }
        self.act();
    }

    /// Carries out actions until there are none, completions that came meanwhile included.
    fn act(self: &Rc<Self>) {
        let mut ops: Vec<DiskOp> = Vec::new();
        loop {
            loop {
                let action = self.shard.borrow_mut().next_action();
                match action {
                    None => break,
                    Some(Action::Disk(op)) => ops.push(op),
                    Some(other) => self.carry_out(other),
                }
            }
            if let Err(error) = self.disk.borrow_mut().submit(ops.drain(..)) {
                self.fail(error);
                return;
            }
            if !self.take_outcomes() {
                break;
            }
        }
        let deadline = self.shard.borrow().next_deadline();
        if deadline < self.sleeping_until.get() {
            self.timer.raise();
        }
    }

    /// Shows the shard what the disk has completed; `false` if nothing was.
    fn take_outcomes(self: &Rc<Self>) -> bool {
        let mut outcomes = self.outcomes.take();
        if let Err(error) = self.disk.borrow_mut().reap(&mut outcomes) {
            self.fail(error);
            return false;
        }
        let any = !outcomes.is_empty();
        if any {
            let mut shard = self.shard.borrow_mut();
            shard.set_time(self.now(), wall_ms());
            for outcome in outcomes.drain(..) {
                shard.on_disk(outcome);
            }
        }
        self.outcomes.replace(outcomes);
        any
    }

    fn carry_out(self: &Rc<Self>, action: Action) {
        match action {
            Action::Connect { connection, host, port, unread_bytes } => {
                let link = Rc::new(Link::default());
                self.links.borrow_mut().insert(connection, Rc::clone(&link));
                let peer = Peer { host, port, unread_bytes };
                let task = connection_task(Rc::clone(self), connection, link, peer);
                glommio::spawn_local(task).detach();
            }
            Action::Send { connection, bytes } => {
                if let Some(link) = self.links.borrow().get(&connection) {
                    link.send(bytes);
                }
            }
            Action::Disconnect { connection } => {
                tracing::debug!(?connection, "closed by the engine");
                if let Some(link) = self.links.borrow_mut().remove(&connection) {
                    link.close();
                }
            }
            Action::Wake { connection } => {
                if let Some(link) = self.links.borrow().get(&connection) {
                    link.wake();
                }
            }
            Action::Report(report) => self.report(report),
            // Collected by the caller, to be submitted together.
            Action::Disk(_) => {}
        }
    }

    fn report(&self, report: Report) {
        let is_last = matches!(report, Report::Stopped);
        self.unsent.borrow_mut().push_back(report);
        self.send_reports();
        if is_last {
            self.stopped.raise();
        }
    }

    /// `true` once nothing waits.
    fn send_reports(&self) -> bool {
        let mut unsent = self.unsent.borrow_mut();
        while let Some(report) = unsent.pop_front() {
            if let Err(report) = self.mailbox.try_report(report) {
                unsent.push_front(*report);
                return false;
            }
        }
        true
    }

    async fn flush_reports(&self) {
        while !self.send_reports() {
            glommio::timer::sleep(Duration::from_millis(1)).await;
        }
    }

    fn publish(&self, now: bool) {
        let tick = self.now();
        if now || tick >= self.snapshot_at.get() {
            self.snapshot_at.set(tick.after(SNAPSHOT_EVERY));
            let mut snapshot = self.snapshot.borrow_mut();
            let mut shard = self.shard.borrow_mut();
            snapshot.buffers_lent_bytes = shard.buffers_lent_bytes();
            snapshot.partitions = shard.partition_count();
            snapshot.time = ShardTime { elapsed: self.origin.elapsed(), cpu: thread_cpu_time() };
            snapshot.update(shard.stats_mut());
            self.mailbox.publish(snapshot.clone());
        }
    }

    /// The ring is broken: nothing can be written any more.
    fn fail(&self, error: RingError) {
        tracing::error!(%error, "the shard stops: its ring is broken");
        self.failure.borrow_mut().get_or_insert(error);
        self.stopped.raise();
    }
}

async fn disk_task(driver: Rc<Driver>) {
    loop {
        // The completions themselves are taken by `act`.
        driver.event(|_| {});
        let completed = driver.disk.borrow_mut().completed();
        match completed {
            Ok(completed) => completed.await,
            Err(error) => {
                driver.fail(error);
                return;
            }
        }
    }
}

async fn timer_task(driver: Rc<Driver>) {
    loop {
        driver.publish(false);
        driver.send_reports();
        let deadline = driver.shard.borrow().next_deadline();
        driver.sleeping_until.set(deadline);
        let wait = deadline.since(driver.now()).min(SLEEP_MAX);
        if wait.is_zero() {
            // A deadline that comes again at once must not starve the other tasks.
            future::yield_now().await;
        } else {
            let sleep = async {
                glommio::timer::sleep(wait).await;
            };
            future::or(sleep, driver.timer.raised()).await;
        }
        driver.event(Shard::on_deadline);
    }
}

async fn command_task(driver: Rc<Driver>, bell: EventfdBell) {
    loop {
        match driver.mailbox.next_command() {
            Received::Message(command) => driver.event(|shard| shard.command(command)),
            Received::Empty => bell.rung().await,
            Received::Closed => {
                // Without a control thread nobody would see what becomes of the copy.
                driver.event(|shard| {
                    shard.command(heliostat_core::engine::message::Command::Stop);
                });
                return;
            }
        }
    }
}

/// Who is connected to, and how.
struct Peer {
    host: Arc<str>,
    port: u16,
    unread_bytes: u32,
}

async fn connection_task(driver: Rc<Driver>, connection: ConnectionId, link: Rc<Link>, peer: Peer) {
    let Peer { host, port, unread_bytes } = peer;
    let options = SocketOptions { unread_bytes, ..driver.sockets };
    let connecting = net::connect(&host, port, options);
    let opened = future::or(async { Some(connecting.await) }, async {
        link.closed().await;
        None
    });
    let mut stream = match opened.await {
        None => return,
        Some(Ok(stream)) => stream,
        Some(Err(error)) => {
            let reason = Arc::from(error.to_string());
            driver.event(|shard| shard.on_disconnected(connection, &reason));
            return;
        }
    };
    driver.event(|shard| shard.on_connected(connection));
    let reason = loop {
        let next = link.next(&mut stream, || RefCell::borrow_mut(&driver.shard), connection).await;
        match next {
            net::Next::Closed => return,
            net::Next::Received(n) => {
                driver.event(|shard| shard.on_received(connection, n));
                glommio::yield_if_needed().await;
            }
            net::Next::Sent => {}
            net::Next::Broken(error) => break format!("{host}:{port}: {error}"),
        }
    };
    tracing::debug!(?connection, reason, "connection broke");
    let reason = Arc::from(reason);
    driver.event(|shard| shard.on_disconnected(connection, &reason));
}

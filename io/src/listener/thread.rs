//! One thread of a listener: accepts, counts its connections, and ends them at the stop.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_lite::future::or;
use glommio::net::{TcpListener, TcpStream};
use heliostat_core::time::Tick;
use socket2::Socket;

use super::config::ListenerConfig;
use super::control::ControlPort;
use super::event::Counter;
use super::frame::ConnectionError;
use super::hosted::{Bell, Catalog};
use super::service::{CatalogService, Readable, Service};
use super::waits::Waits;
use super::{connection, control, net};
use crate::served::ServedLogs;

/// Wait after a failed accept: descriptors may be free again.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(100);

/// Who answers the requests of a listener.
#[derive(Debug)]
pub(super) enum Backend {
    /// The logs of a catalog.
    Hosted { catalog: Arc<Catalog>, readable: Arc<Readable> },
    /// A host: its control thread, and its logs.
    Control {
        port: ControlPort,
        logs: Arc<ServedLogs>,
        readable: Arc<Readable>,
        /// Rung for the stop alone.
        bell: Bell,
    },
}

impl Backend {
    pub(super) fn bell(&self) -> &Bell {
        match self {
            Self::Hosted { catalog, .. } => catalog.bell(),
            Self::Control { bell, .. } => bell,
        }
    }
}

/// What the threads of a listener share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) backend: Backend,
    pub(super) config: ListenerConfig,
    stopping: AtomicBool,
    origin: Instant,
}

impl Shared {
    pub(super) fn new(backend: Backend, config: ListenerConfig) -> Self {
        Self { backend, config, stopping: AtomicBool::new(false), origin: Instant::now() }
    }

    /// Tells all threads to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.backend.bell().ring();
    }
}

/// What the connections of one thread share.
#[derive(Debug)]
pub(super) struct Thread {
    shared: Arc<Shared>,
    /// Counts the changes of all logs.
    pub(super) changes: Counter,
    /// Who waits for logs of a host.
    pub(super) waits: Waits,
    stop: Counter,
    closed: Counter,
    open: Cell<usize>,
    per_ip: RefCell<HashMap<IpAddr, usize>>,
}

impl Thread {
    pub(super) fn config(&self) -> &ListenerConfig {
        &self.shared.config
    }

    pub(super) fn now(&self) -> Tick {
        Tick::ZERO.after(self.shared.origin.elapsed())
    }
}

/// A connection's place among those of its address.
#[derive(Debug)]
struct Seat {
    thread: Rc<Thread>,
    address: IpAddr,
}

impl Seat {
    fn take(thread: &Rc<Thread>, peer: SocketAddr) -> Option<Self> {
        let address = peer.ip().to_canonical();
        let mut per_ip = thread.per_ip.borrow_mut();
        let taken = per_ip.get(&address).copied().unwrap_or(0);
        if taken >= thread.config().connections_per_ip_max {
            return None;
        }
        per_ip.insert(address, taken.saturating_add(1));
        Some(Self { thread: Rc::clone(thread), address })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut per_ip = self.thread.per_ip.borrow_mut();
        match per_ip.get_mut(&self.address) {
            Some(taken) if *taken > 1 => *taken -= 1,
            _ => {
                per_ip.remove(&self.address);
            }
        }
    }
}

/// Accepts, and passes rings of the bell on to the connections, until the stop.
pub(super) async fn run(shared: Arc<Shared>, socket: Socket, index: usize) {
    let hearer = shared.backend.bell().hearer();
    let end = match &shared.backend {
        Backend::Hosted { .. } => None,
        Backend::Control { logs, .. } => Some(logs.wake_end(index)),
    };
    let thread = Rc::new(Thread {
        shared: Arc::clone(&shared),
        changes: Counter::default(),
        waits: Waits::new(end),
        stop: Counter::default(),
        closed: Counter::default(),
        open: Cell::new(0),
        per_ip: RefCell::default(),
    });
    let port = socket.try_clone();
    spawn(&thread, accept(Rc::clone(&thread), net::on_executor(socket)));
    while !shared.stopping.load(Ordering::Acquire) {
        or(hearer.notified(), thread.waits.pass_on()).await;
        thread.changes.bump();
    }
    // The kernel lets go of a ring's sockets some time after the ring has gone; until then
    // clients would still be taken in, by nobody.
    if let Ok(port) = port {
        // It is closed in any case.
        let _ = port.shutdown(Shutdown::Both);
    }
    thread.stop.bump();
    loop {
        let seen = thread.closed.now();
        if thread.open.get() == 0 {
            return;
        }
        thread.closed.past(seen).await;
    }
}

/// Runs `task` until it ends or the listener stops.
fn spawn(thread: &Rc<Thread>, task: impl Future<Output = ()> + 'static) {
    let thread = Rc::clone(thread);
    thread.open.set(thread.open.get() + 1);
    glommio::spawn_local(async move {
        or(task, thread.stop.past(0)).await;
        thread.open.set(thread.open.get() - 1);
        thread.closed.bump();
    })
    .detach();
}

async fn accept(thread: Rc<Thread>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok(stream) => admit(&thread, stream),
            Err(_) if thread.shared.stopping.load(Ordering::Acquire) => return,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                glommio::timer::sleep(ACCEPT_BACK_OFF).await;
            }
        }
    }
}

/// Serves a connection, or closes it by dropping it.
fn admit(thread: &Rc<Thread>, stream: TcpStream) {
    // The accepting task is one of those that are open.
    if thread.open.get() > thread.config().connections_max {
        tracing::debug!("connection refused: max.connections");
        return;
    }
    // It fails for a peer that is gone already.
    let Ok(peer) = stream.peer_addr() else { return };
    let Some(seat) = Seat::take(thread, peer) else {
        tracing::debug!(%peer, "connection refused: max.connections.per.ip");
        return;
    };
    let own = Rc::clone(thread);
    spawn(thread, async move {
        // Dropped with the task, also by the stop.
        let _seat = seat;
        if let Err(error) = serve(own, stream, peer).await {
            let cause: &dyn std::error::Error = &error;
            tracing::debug!(%peer, error = cause, "connection closed");
        }
    });
}

async fn serve(
    thread: Rc<Thread>,
    stream: TcpStream,
    peer: SocketAddr,
) -> Result<(), ConnectionError> {
    let shared = Arc::clone(&thread.shared);
    match &shared.backend {
        Backend::Hosted { catalog, readable } => {
            let service = Service { thread, readable: Arc::clone(readable) };
            let service = CatalogService { service, catalog: Arc::clone(catalog) };
            connection::serve(&service, stream).await
        }
        Backend::Control { port, readable, .. } => {
            let service = Service { thread, readable: Arc::clone(readable) };
            control::connection::serve(&service, port, stream, peer).await
        }
    }
}

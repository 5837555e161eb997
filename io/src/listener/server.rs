//! Threads, accepting, and the stop.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_lite::future::or;
use glommio::net::{TcpListener, TcpStream};
use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement};
use heliostat_core::serve::{FetchSessionCache, NodeEndpoint};
use heliostat_core::time::Tick;
use socket2::Socket;

use super::config::ListenerConfig;
use super::connection;
use super::event::Counter;
use super::hosted::Catalog;
use super::net;

/// Memory that an executor registers; sockets use none of it.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// Entries of an executor's rings.
const RING_DEPTH: usize = 128;
/// Wait after a failed accept: descriptors may be free again.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(100);

/// Why a listener does not start.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}; is it taken, or not of this host?")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A thread or its ring cannot be made.
    #[error("listener thread cannot start: {0}; check the limits of memlock and io_uring")]
    Executor(String),
}

/// What the threads of a listener share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) catalog: Arc<Catalog>,
    pub(super) config: ListenerConfig,
    sessions: Mutex<FetchSessionCache>,
    stopping: AtomicBool,
    origin: Instant,
}

impl Shared {
    pub(super) fn sessions(&self) -> MutexGuard<'_, FetchSessionCache> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the connections of one thread share.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) shared: Arc<Shared>,
    /// Counts the changes of all logs.
    pub(super) changes: Counter,
    stop: Counter,
    closed: Counter,
    open: Cell<usize>,
}

impl Service {
    pub(super) fn catalog(&self) -> &Catalog {
        &self.shared.catalog
    }

    pub(super) fn config(&self) -> &ListenerConfig {
        &self.shared.config
    }

    pub(super) fn now(&self) -> Tick {
        Tick::ZERO.after(self.shared.origin.elapsed())
    }

    /// Waits until a log changed since `seen`, at most until `deadline`.
    pub(super) async fn changed(&self, seen: u64, deadline: Tick) {
        let left = deadline.since(self.now());
        let timer = async {
            glommio::timer::sleep(left).await;
        };
        or(self.changes.past(seen), timer).await;
    }
}

/// A running listener. Dropping it stops it.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<ExecutorJoinHandle<()>>,
}

impl Listener {
    /// Starts to serve `catalog`, and registers with it as a broker.
    ///
    /// # Errors
    ///
    /// [`ListenerError`] when the address or a thread is not to be had.
    pub fn start(catalog: Arc<Catalog>, mut config: ListenerConfig) -> Result<Self, ListenerError> {
        let threads = config.threads.max(1);
        let mut sockets = Vec::with_capacity(threads);
        for _ in 0..threads {
            let address = config.address;
            let failed = |source| ListenerError::Bind { address, source };
            let socket = net::bind(&config, threads > 1).map_err(failed)?;
            let bound = socket.local_addr().map_err(failed)?;
            // The others bind the port that the first was given.
            config.address = bound.as_socket().unwrap_or(config.address);
            sockets.push(socket);
        }
        let address = config.address;
        let host = config.advertised_host.clone().unwrap_or_else(|| address.ip().to_string());
        catalog.register_node(NodeEndpoint {
            node: config.node_id,
            host: host.into(),
            port: address.port(),
        });
        let sessions = Mutex::new(FetchSessionCache::new(config.sessions));
        let stopping = AtomicBool::new(false);
        let shared =
            Arc::new(Shared { catalog, config, sessions, stopping, origin: Instant::now() });
        let mut listener = Self { address, shared, threads: Vec::new() };
        for (index, socket) in sockets.into_iter().enumerate() {
            let shared = Arc::clone(&listener.shared);
            let thread = LocalExecutorBuilder::new(Placement::Unbound)
                .name(&format!("listener-{index}"))
                .io_memory(IO_MEMORY_BYTES)
                .ring_depth(RING_DEPTH)
                .spawn(move || run(shared, socket))
                .map_err(|error| ListenerError::Executor(error.to_string()))?;
            listener.threads.push(thread);
        }
        Ok(listener)
    }

    /// Where it listens; the real port if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Drops all fetch sessions, as a restarted broker does.
    pub fn forget_sessions(&self) {
        self.shared.sessions().clear();
    }

    /// Fetch sessions at the moment.
    pub fn sessions(&self) -> usize {
        self.shared.sessions().len()
    }

    /// Closes all connections and waits for the threads.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.catalog.bell().ring();
        for thread in self.threads.drain(..) {
            if let Err(error) = thread.join() {
                tracing::warn!(%error, "listener thread ended badly");
            }
        }
        self.shared.catalog.unregister_node(self.shared.config.node_id);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.shut_down();
        }
    }
}

/// One thread: accepts, and passes rings of the bell on to its connections.
async fn run(shared: Arc<Shared>, socket: Socket) {
    let hearer = shared.catalog.bell().hearer();
    let service = Rc::new(Service {
        shared: Arc::clone(&shared),
        changes: Counter::default(),
        stop: Counter::default(),
        closed: Counter::default(),
        open: Cell::new(0),
    });
    let port = socket.try_clone();
    spawn(&service, accept(Rc::clone(&service), net::on_executor(socket)));
    while !shared.stopping.load(Ordering::Acquire) {
        hearer.notified().await;
        service.changes.bump();
    }
    // The kernel lets go of a ring's sockets some time after the ring has gone; until then
    // clients would still be taken in, by nobody.
    if let Ok(port) = port {
        // It is closed in any case.
        let _ = port.shutdown(Shutdown::Both);
    }
    service.stop.bump();
    loop {
        let seen = service.closed.now();
        if service.open.get() == 0 {
            return;
        }
        service.closed.past(seen).await;
    }
}

/// Runs `task` until it ends or the listener stops.
fn spawn(service: &Rc<Service>, task: impl Future<Output = ()> + 'static) {
    let service = Rc::clone(service);
    service.open.set(service.open.get() + 1);
    glommio::spawn_local(async move {
        or(task, service.stop.past(0)).await;
        service.open.set(service.open.get() - 1);
        service.closed.bump();
    })
    .detach();
}

async fn accept(service: Rc<Service>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok(stream) if service.open.get() <= service.config().connections_max => {
                let connection = serve(Rc::clone(&service), stream);
                spawn(&service, connection);
            }
            // One too many: closed by the drop.
            Ok(_) => tracing::debug!("connection refused: max.connections"),
            Err(_) if service.shared.stopping.load(Ordering::Acquire) => return,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                glommio::timer::sleep(ACCEPT_BACK_OFF).await;
            }
        }
    }
}

async fn serve(service: Rc<Service>, stream: TcpStream) {
    if let Err(error) = connection::serve(&service, stream).await {
        let cause: &dyn std::error::Error = &error;
        tracing::debug!(error = cause, "connection closed");
    }
}

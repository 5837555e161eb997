//! Starting a listener's threads, and the stop.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement};
use heliostat_core::serve::NodeEndpoint;

use super::config::ListenerConfig;
use super::control::ControlPort;
use super::hosted::{Bell, Catalog};
use super::live::LiveTopics;
use super::readable::ReadableTopics;
use super::service::Readable;
use super::thread::{Backend, Shared};
use super::{net, thread};
use crate::served::ServedLogs;

/// Memory that an executor registers; sockets use none of it.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// Entries of an executor's rings.
const RING_DEPTH: usize = 128;

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
    pub fn start(catalog: Arc<Catalog>, config: ListenerConfig) -> Result<Self, ListenerError> {
        let topics: Arc<dyn ReadableTopics> = Arc::<Catalog>::clone(&catalog);
        let readable = Arc::new(Readable::new(topics, &config));
        Self::start_with(Backend::Hosted { catalog, readable }, config)
    }

    /// Starts to serve a host: its logs are read here, all other requests go to the other end of
    /// `port`.
    ///
    /// # Errors
    ///
    /// [`ListenerError`] when the address or a thread is not to be had.
    pub(crate) fn start_host(
        config: ListenerConfig,
        port: ControlPort,
        logs: Arc<ServedLogs>,
    ) -> Result<Self, ListenerError> {
        let topics = Arc::new(LiveTopics { logs: Arc::clone(&logs), node: config.node_id });
        let readable = Arc::new(Readable::new(topics, &config));
        let backend = Backend::Control { port, logs, readable, bell: Bell::default() };
        Self::start_with(backend, config)
    }

    /// The same for a host that has no logs: its control API alone.
    ///
    /// # Errors
    ///
    /// [`ListenerError`] when the address or a thread is not to be had.
    pub fn start_control(config: ListenerConfig, port: ControlPort) -> Result<Self, ListenerError> {
        Self::start_host(config, port, Arc::new(ServedLogs::new(Path::new(""))))
    }

    fn start_with(backend: Backend, mut config: ListenerConfig) -> Result<Self, ListenerError> {
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
        if let Backend::Hosted { catalog, .. } = &backend {
            let host = config.advertised_host.clone().unwrap_or_else(|| address.ip().to_string());
            catalog.register_node(NodeEndpoint {
                node: config.node_id,
                host: host.into(),
                port: address.port(),
            });
        }
        let shared = Arc::new(Shared::new(backend, config));
        let mut listener = Self { address, shared, threads: Vec::new() };
        for (index, socket) in sockets.into_iter().enumerate() {
            let shared = Arc::clone(&listener.shared);
            let thread = LocalExecutorBuilder::new(Placement::Unbound)
                .name(&format!("listener-{index}"))
                .io_memory(IO_MEMORY_BYTES)
                .ring_depth(RING_DEPTH)
                .spawn(move || thread::run(shared, socket, index))
                .map_err(|error| ListenerError::Executor(error.to_string()))?;
            listener.threads.push(thread);
        }
        Ok(listener)
    }

    /// Where it listens; the real port if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn readable(&self) -> &Readable {
        match &self.shared.backend {
            Backend::Hosted { readable, .. } | Backend::Control { readable, .. } => readable,
        }
    }

    /// Drops all fetch sessions, as a restarted broker does.
    pub fn forget_sessions(&self) {
        self.readable().sessions().clear();
    }

    /// Fetch sessions at the moment.
    pub fn sessions(&self) -> usize {
        self.readable().sessions().len()
    }

    /// Closes all connections, whatever they wait for, and waits for the threads.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            if let Err(error) = thread.join() {
                tracing::warn!(%error, "listener thread ended badly");
            }
        }
        if let Backend::Hosted { catalog, .. } = &self.shared.backend {
            catalog.unregister_node(self.shared.config.node_id);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.shut_down();
        }
    }
}

//! Uniform topics in an empty log dir, served.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heliostat_core::log::config::LogConfig;
use heliostat_core::types::BrokerId;

use crate::generate::{GenerateError, UniformSpec, generate_uniform};
use crate::listener::hosted::{Catalog, CatalogConfig, HostedError, Topic};
use crate::listener::{Listener, ListenerConfig, ListenerError};

const NODE: BrokerId = BrokerId(1);

/// What it holds and where it listens.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    /// Directory.
    pub dir: PathBuf,
    /// Topics.
    pub topics: Vec<UniformSpec>,
    /// Address; the system chooses the port.
    pub listen: Ipv4Addr,
    /// `socket.send.buffer.bytes`; -1 leaves it to the system.
    pub send_buffer_bytes: i64,
}

impl SourceSpec {
    /// How it listens.
    pub fn listener(&self) -> ListenerConfig {
        let socket_send_buffer_bytes = usize::try_from(self.send_buffer_bytes).ok();
        ListenerConfig { socket_send_buffer_bytes, ..listener_config(self.listen) }
    }
}

/// Why it does not serve.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// Its directory.
    #[error(transparent)]
    Log(#[from] HostedError),
    /// Its records.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Its address.
    #[error(transparent)]
    Listen(#[from] ListenerError),
}

/// A source that serves.
#[derive(Debug)]
pub struct EmbeddedSource {
    /// In the order of the specification.
    pub topics: Vec<Topic>,
    listener: Listener,
}

impl EmbeddedSource {
    /// Generates and serves.
    ///
    /// # Errors
    /// [`EmbeddedError`]; what was written stays.
    pub fn start(spec: &SourceSpec) -> Result<Self, EmbeddedError> {
        let catalog = empty_catalog(&spec.dir)?;
        let mut topics = Vec::new();
        for spec in &spec.topics {
            let topic = generate_uniform(&catalog, spec)?;
            // What is left to be written must not disturb what is measured first.
            for partition in &topic.partitions {
                partition.flush()?;
            }
            topics.push(topic);
        }
        Ok(Self { topics, listener: Listener::start(catalog, spec.listener())? })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Serves no longer.
    pub fn stop(self) {
        self.listener.stop();
    }
}

/// An empty log dir to serve.
///
/// # Errors
/// If it cannot be used.
pub fn empty_catalog(dir: &Path) -> Result<Arc<Catalog>, HostedError> {
    let cluster_id = "heliostat-bench-cluster".to_owned();
    let config = CatalogConfig { cluster_id, node_id: NODE, log: LogConfig::default() };
    Catalog::open(dir, config).map(Arc::new)
}

/// How sources of measurements listen.
pub fn listener_config(address: Ipv4Addr) -> ListenerConfig {
    ListenerConfig::new(SocketAddr::from((address, 0)), NODE)
}

/// Blocks until standard input ends: the end of a child that serves, however it comes.
pub fn wait_for_input_end() {
    let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
}

//! The embedded source.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use heliostat_core::log::config::LogConfig;
use heliostat_core::types::BrokerId;
use heliostat_io::generate::{UniformSpec, generate_uniform};
use heliostat_io::listener::hosted::{Catalog, CatalogConfig};
use heliostat_io::listener::{Listener, ListenerConfig};

use super::tell;
use crate::error::BenchError;
use crate::raw;

/// Equal seeds make equal topics.
const SEED: u64 = 1_279;
const NODE: BrokerId = BrokerId(1);

/// What it holds.
#[derive(Args, Clone, Debug)]
pub(crate) struct SourceArgs {
    /// Directory.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Name of the topic.
    #[arg(long, default_value = "bench")]
    pub(crate) topic: String,
    /// Stored bytes, about.
    #[arg(long)]
    pub(crate) bytes: u64,
    /// Partitions.
    #[arg(long)]
    pub(crate) partitions: i32,
    /// Size of a batch.
    #[arg(long)]
    pub(crate) batch_bytes: usize,
    /// Size of a value.
    #[arg(long, default_value_t = 1_024)]
    pub(crate) value_bytes: usize,
    /// Name of a second topic.
    #[arg(long)]
    pub(crate) beside: Option<String>,
    /// Its stored bytes, about.
    #[arg(long, default_value_t = 0)]
    pub(crate) beside_bytes: u64,
    /// Open the raw port for the first topic too, and tell where it is in a second line.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Address of the listener.
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
    pub(crate) listen: Ipv4Addr,
    /// `socket.send.buffer.bytes`; -1 leaves it to the system.
    #[arg(long, default_value_t = 100 << 10, allow_negative_numbers = true)]
    pub(crate) send_buffer_bytes: i64,
}

pub(super) fn play(args: &SourceArgs) -> Result<(), BenchError> {
    let failed = |why: String| BenchError::Role { role: "the embedded source".to_owned(), why };
    let catalog = open(&args.dir)?;
    let generate = |topic: &str, seed, bytes| {
        let spec = UniformSpec {
            topic: topic.to_owned(),
            seed,
            bytes,
            partitions: args.partitions,
            batch_bytes: args.batch_bytes,
            value_bytes: args.value_bytes,
        };
        let topic = generate_uniform(&catalog, &spec).map_err(|error| failed(error.to_string()))?;
        // What the generator left to be written must not disturb the first run.
        for partition in &topic.partitions {
            partition.flush().map_err(|error| failed(error.to_string()))?;
        }
        Ok::<_, BenchError>(topic)
    };
    let topic = generate(&args.topic, SEED, args.bytes)?;
    if let Some(beside) = &args.beside {
        // The topic ID is made of the seed too.
        generate(beside, SEED + 1, args.beside_bytes)?;
    }
    let socket_send_buffer_bytes = usize::try_from(args.send_buffer_bytes).ok();
    let config = ListenerConfig { socket_send_buffer_bytes, ..listener_config(args.listen) };
    let listener = Listener::start(Arc::clone(&catalog), config.clone());
    let listener = listener.map_err(|error| failed(error.to_string()))?;
    tell(&listener.address().to_string())?;
    if args.raw {
        tell(&raw::serve(&topic, &config)?)?;
    }
    wait_for_end();
    listener.stop();
    Ok(())
}

/// An empty log dir to serve.
pub(super) fn open(dir: &Path) -> Result<Arc<Catalog>, BenchError> {
    let cluster_id = "heliostat-bench-cluster".to_owned();
    let config = CatalogConfig { cluster_id, node_id: NODE, log: LogConfig::default() };
    Catalog::open(dir, config).map(Arc::new).map_err(|error| BenchError::Role {
        role: "the embedded source".to_owned(),
        why: error.to_string(),
    })
}

/// How all sources listen.
pub(super) fn listener_config(address: Ipv4Addr) -> ListenerConfig {
    ListenerConfig::new(SocketAddr::from((address, 0)), NODE)
}

/// The end of the input is the end of the measurement, however it went.
pub(super) fn wait_for_end() {
    let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
}

//! The embedded source.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
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
    /// Open the raw port too, and tell where it is in a second line.
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
    let cluster_id = "heliostat-bench-cluster".to_owned();
    let config = CatalogConfig { cluster_id, node_id: NODE, log: LogConfig::default() };
    let catalog = Catalog::open(&args.dir, config).map_err(|error| failed(error.to_string()))?;
    let catalog = Arc::new(catalog);
    let spec = UniformSpec {
        topic: args.topic.clone(),
        seed: SEED,
        bytes: args.bytes,
        partitions: args.partitions,
        batch_bytes: args.batch_bytes,
        value_bytes: args.value_bytes,
    };
    let topic = generate_uniform(&catalog, &spec).map_err(|error| failed(error.to_string()))?;
    // What the generator left to be written must not disturb the first run.
    for partition in &topic.partitions {
        partition.flush().map_err(|error| failed(error.to_string()))?;
    }
    let address = SocketAddr::from((args.listen, 0));
    let socket_send_buffer_bytes = usize::try_from(args.send_buffer_bytes).ok();
    let config = ListenerConfig { socket_send_buffer_bytes, ..ListenerConfig::new(address, NODE) };
    let listener = Listener::start(Arc::clone(&catalog), config.clone());
    let listener = listener.map_err(|error| failed(error.to_string()))?;
    tell(&listener.address().to_string())?;
    if args.raw {
        tell(&raw::serve(&topic, &config)?)?;
    }
    // The end of the input is the end of the measurement, however it went.
    let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
    listener.stop();
    Ok(())
}

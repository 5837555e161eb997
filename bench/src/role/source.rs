//! The embedded source.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::Args;
use heliostat_io::embedded::{EmbeddedSource, SourceSpec, wait_for_input_end};
use heliostat_io::generate::UniformSpec;

use super::tell;
use crate::error::BenchError;
use crate::raw;

/// Equal seeds make equal topics.
const SEED: u64 = 1_279;

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
    let spec = |topic: &str, seed, bytes| UniformSpec {
        topic: topic.to_owned(),
        seed,
        bytes,
        partitions: args.partitions,
        batch_bytes: args.batch_bytes,
        value_bytes: args.value_bytes,
    };
    // The topic ID is made of the seed too.
    let beside = args.beside.iter().map(|beside| spec(beside, SEED + 1, args.beside_bytes));
    let topics: Vec<_> =
        std::iter::once(spec(&args.topic, SEED, args.bytes)).chain(beside).collect();
    let spec = SourceSpec {
        dir: args.dir.clone(),
        topics,
        listen: args.listen,
        send_buffer_bytes: args.send_buffer_bytes,
    };
    let source = EmbeddedSource::start(&spec).map_err(|error| BenchError::Role {
        role: "the embedded source".to_owned(),
        why: error.to_string(),
    })?;
    tell(&source.address().to_string())?;
    if let Some(topic) = source.topics.first().filter(|_| args.raw) {
        tell(&raw::serve(topic, &spec.listener())?)?;
    }
    wait_for_input_end();
    source.stop();
    Ok(())
}

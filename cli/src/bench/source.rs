//! The source of a benchmark, in a process of its own, so that the mirror's figures are the
//! mirror's alone.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use clap::Args;
use heliostat_core::log::config::LogConfig;
use heliostat_core::types::BrokerId;
use heliostat_io::generate::{UniformSpec, generate_uniform};
use heliostat_io::listener::hosted::{Catalog, CatalogConfig};
use heliostat_io::listener::{Listener, ListenerConfig};
use heliostat_io::path_emulator::enter_namespace;
use heliostat_io::source_client::HostPort;

use crate::failure::Failure;
use crate::output::say;

/// Equal seeds make equal topics.
const SEED: u64 = 1_279;
const NODE: BrokerId = BrokerId(1);
/// Size of each value.
const VALUE_BYTES: usize = 1_024;

/// What the source holds.
#[derive(Args, Clone, Debug)]
pub(crate) struct SourceArgs {
    /// Directory of the source.
    #[arg(long, value_name = "DIR")]
    pub(super) dir: PathBuf,
    /// Stored bytes, about.
    #[arg(long, value_name = "BYTES")]
    pub(super) bytes: u64,
    /// Partitions.
    #[arg(long, value_name = "N")]
    pub(super) partitions: i32,
    /// Size of a batch.
    #[arg(long, value_name = "BYTES")]
    pub(super) batch_bytes: usize,
    /// `socket.send.buffer.bytes`
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub(super) send_buffer: i64,
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Ipv4Addr,
    /// Network namespace to be in.
    #[arg(long, value_name = "FILE")]
    pub(super) netns: Option<PathBuf>,
}

/// Generates, serves, says where on a line of its own, and ends with its standard input.
pub(crate) fn run(args: &SourceArgs) -> Result<bool, Failure> {
    if let Some(netns) = &args.netns {
        enter_namespace(netns).map_err(|error| Failure::from_error("embedded source", error))?;
    }
    let failed = |error| Failure::from_error("embedded source", error);
    let cluster_id = "heliostat-bench-cluster".to_owned();
    let config = CatalogConfig { cluster_id, node_id: NODE, log: LogConfig::default() };
    let catalog = Arc::new(Catalog::open(&args.dir, config).map_err(failed)?);
    let spec = UniformSpec {
        topic: super::TOPIC.to_owned(),
        seed: SEED,
        bytes: args.bytes,
        partitions: args.partitions,
        batch_bytes: args.batch_bytes,
        value_bytes: VALUE_BYTES,
    };
    generate_uniform(&catalog, &spec)
        .map_err(|error| Failure::from_error("embedded source", error))?;
    let address = SocketAddr::from((args.listen, 0));
    let socket_send_buffer_bytes = usize::try_from(args.send_buffer).ok();
    let config = ListenerConfig { socket_send_buffer_bytes, ..ListenerConfig::new(address, NODE) };
    let listener = Listener::start(Arc::clone(&catalog), config);
    let listener = listener.map_err(|error| Failure::from_error("embedded source", error))?;
    say(listener.address().to_string())?;
    // The end of the input is the end of the benchmark, however it went.
    let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
    listener.stop();
    Ok(true)
}

/// The running source.
#[derive(Debug)]
pub(super) struct SourceProcess {
    child: Child,
    /// Held: the child ends when it is closed.
    _input: Option<ChildStdin>,
    pub(super) address: HostPort,
}

impl SourceProcess {
    pub(super) fn start(args: &SourceArgs) -> Result<Self, Failure> {
        let failed = |error| Failure::from_error("the source's process", error);
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command
            .arg("bench-source")
            .arg("--dir")
            .arg(&args.dir)
            .args(["--bytes", &args.bytes.to_string()])
            .args(["--partitions", &args.partitions.to_string()])
            .args(["--batch-bytes", &args.batch_bytes.to_string()])
            .args(["--send-buffer", &args.send_buffer.to_string()])
            .args(["--listen", &args.listen.to_string()]);
        if let Some(netns) = &args.netns {
            command.arg("--netns").arg(netns);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let input = child.stdin.take();
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(failed)?;
        }
        let address: Option<SocketAddr> = line.trim().parse().ok();
        let Some(address) = address else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Failure::new("the source's process does not come up; see its error above"));
        };
        let address = HostPort { host: address.ip().to_string().into(), port: address.port() };
        Ok(Self { child, _input: input, address })
    }
}

impl Drop for SourceProcess {
    fn drop(&mut self) {
        // Nothing in its directory is to be kept.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! The source of a benchmark, in a process of its own, so that the mirror's figures are the
//! mirror's alone.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use clap::Args;
use heliostat_io::embedded::{Child, EmbeddedSource, Heard, SourceSpec, wait_for_input_end};
use heliostat_io::generate::UniformSpec;
use heliostat_io::path_emulator::enter_namespace;
use heliostat_io::source_client::HostPort;

use super::stop::Stop;
use crate::failure::Failure;
use crate::output::say;

/// Equal seeds make equal topics.
const SEED: u64 = 1_279;
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
    let topic = UniformSpec {
        topic: super::TOPIC.to_owned(),
        seed: SEED,
        bytes: args.bytes,
        partitions: args.partitions,
        batch_bytes: args.batch_bytes,
        value_bytes: VALUE_BYTES,
    };
    let source = EmbeddedSource::start(&SourceSpec {
        dir: args.dir.clone(),
        topics: vec![topic],
        listen: args.listen,
        send_buffer_bytes: args.send_buffer,
    });
    let source = source.map_err(|error| Failure::from_error("embedded source", error))?;
    say(source.address().to_string())?;
    wait_for_input_end();
    source.stop();
    Ok(true)
}

/// The running source.
#[derive(Debug)]
pub(super) struct SourceProcess {
    /// Held: it is killed with this, for nothing in its directory is to be kept.
    _child: Child,
    pub(super) address: HostPort,
}

impl SourceProcess {
    /// `None`: Ctrl-C came first.
    pub(super) fn start(args: &SourceArgs, stop: &Stop) -> Result<Option<Self>, Failure> {
        let failed = |error| Failure::from_error("the source's process", error);
        let mut command = Child::this_program().map_err(failed)?;
        command
            .arg("bench-source")
            .arg("--dir")
            .arg(&args.dir)
            .args(["--bytes", &args.bytes.to_string()])
            .args(["--partitions", &args.partitions.to_string()])
            .args(["--batch-bytes", &args.batch_bytes.to_string()])
            .args(["--send-buffer", &args.send_buffer.to_string()])
            .args(["--listen", &args.listen.to_string()])
            // A terminal sends Ctrl-C to a whole group; the source is needed until the mirror
            // has stopped.
            .process_group(0);
        if let Some(netns) = &args.netns {
            command.arg("--netns").arg(netns);
        }
        let mut child = Child::start(&mut command).map_err(failed)?;
        let line = match child.hear(|| stop.is_asked_for()).map_err(failed)? {
            Heard::Line(line) => line,
            Heard::End => String::new(),
            Heard::GivenUp => return Ok(None),
        };
        let address: Option<SocketAddr> = line.trim().parse().ok();
        let Some(address) = address else {
            return Err(Failure::new("the source's process does not come up; see its error above"));
        };
        let address = HostPort { host: address.ip().to_string().into(), port: address.port() };
        Ok(Some(Self { _child: child, address }))
    }
}

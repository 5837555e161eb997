//! A loop that only moves bytes.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};

use super::tell;
use crate::error::BenchError;
use crate::loops::{Direct, Mover, Plain, Splice, drain};
use crate::process::{cpu_seconds, peak_rss};
use crate::raw::Port;
use crate::side::Side;

/// Which loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// read, pwrite.
    Plain,
    /// splice twice.
    Splice,
    /// io_uring, O_DIRECT.
    Direct,
    /// The same, and the CRC-32C of all bytes.
    DirectCrc,
}

impl Kind {
    /// As the command line spells it.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// What it moves.
#[derive(Args, Debug)]
pub(super) struct LoopArgs {
    /// Which loop.
    #[arg(value_enum)]
    kind: Kind,
    /// The raw port.
    #[arg(long)]
    source: SocketAddr,
    /// What has to come.
    #[arg(long)]
    bytes: u64,
    /// Directory of the files; it is made.
    #[arg(long)]
    to: PathBuf,
}

pub(super) fn play(args: &LoopArgs) -> Result<(), BenchError> {
    let dir = args.to.clone();
    moved(&args.to, args.bytes, || {
        let mover: Box<dyn Mover> = match args.kind {
            Kind::Plain => Box::new(Plain::new(dir)),
            Kind::Splice => Box::new(Splice::new(dir)?),
            Kind::Direct => Box::new(Direct::new(dir, false)?),
            Kind::DirectCrc => Box::new(Direct::new(dir, true)?),
        };
        Ok((Port::connect(args.source)?, mover))
    })
}

/// Times a loop from before its connection to everything durable, and tells.
pub(super) fn moved(
    dir: &Path,
    wanted: u64,
    start: impl FnOnce() -> io::Result<(TcpStream, Box<dyn Mover>)>,
) -> Result<(), BenchError> {
    std::fs::create_dir(dir).map_err(BenchError::file(dir))?;
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let (mut stream, mut mover) = start().map_err(BenchError::system("set a loop up"))?;
    let moved = drain(&mut stream, dir, &mut *mover);
    let bytes = moved.map_err(BenchError::system("move bytes"))?;
    let (seconds, cpu_seconds) = (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    if bytes != wanted {
        return Err(BenchError::Incomplete(format!("{bytes} of {wanted} bytes")));
    }
    let rss_bytes = peak_rss(std::process::id()).unwrap_or(0);
    tell(&Side { bytes, seconds, cpu_seconds, rss_bytes })
}

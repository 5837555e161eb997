//! A loop that writes each arrival at once, and how long that takes it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::appends::{Latency, Timed};
use super::tell;
use crate::clock::quantile_us;
use crate::error::BenchError;
use crate::loops::{Arrivals, drain};
use crate::process::{cpu_seconds, peak_rss};
use crate::raw::Port;
use crate::side::Side;

/// What it receives.
#[derive(Args, Debug)]
pub(super) struct ArrivalsArgs {
    /// The raw port.
    #[arg(long)]
    source: SocketAddr,
    /// Directory of the files; it is made.
    #[arg(long)]
    to: PathBuf,
    /// Sync every file so often.
    #[arg(long)]
    sync_ms: Option<u64>,
}

pub(super) fn play(args: &ArrivalsArgs) -> Result<(), BenchError> {
    std::fs::create_dir(&args.to).map_err(BenchError::file(&args.to))?;
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let mut stream = Port::connect(args.source).map_err(BenchError::system("connect"))?;
    let mut mover = Arrivals::new(args.to.clone(), args.sync_ms.map(Duration::from_millis));
    let moved = drain(&mut stream, &args.to, &mut mover);
    let bytes = moved.map_err(BenchError::system("write arrivals"))?;
    let (seconds, cpu_seconds) = (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let rss_bytes = peak_rss(std::process::id()).unwrap_or(0);
    let mut took = mover.into_times();
    let latency = Latency {
        p50_us: quantile_us(&mut took, 50),
        p99_us: quantile_us(&mut took, 99),
        writes: u64::try_from(took.len()).unwrap_or(u64::MAX),
    };
    tell(&Timed { side: Side { bytes, seconds, cpu_seconds, rss_bytes }, latency })
}

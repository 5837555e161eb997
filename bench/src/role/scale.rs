//! The product with very many partitions: what opening them, following them and their standing
//! by cost.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use clap::Args;
use heliostat_io::control::{PartitionState, Status};
use serde::{Deserialize, Serialize};

use super::mirror::MirrorArgs;
use super::tell;
use super::timed::Window;
use crate::error::BenchError;
use crate::process::{peak_rss, rss};
use crate::side::Side;

/// Between two looks at the status.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What it follows, and for how long.
#[derive(Args, Debug)]
pub(super) struct ScaleArgs {
    #[command(flatten)]
    mirror: MirrorArgs,
    /// Partitions that there are.
    #[arg(long)]
    partitions: usize,
    /// Every one must hold something before it counts as ready.
    #[arg(long)]
    filled: bool,
    /// Longest time until all are ready.
    #[arg(long, default_value_t = 3_600)]
    ready_seconds: u64,
    #[command(flatten)]
    window: Window,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Scaled {
    /// From the start until a shard had every partition.
    pub(crate) ready_seconds: f64,
    /// Resident once all were ready and the window was over.
    pub(crate) rss_bytes: u64,
    /// Longest lag at the end of the window.
    pub(crate) lag_seconds: f64,
    /// Of the window.
    pub(crate) side: Side,
}

/// Tells its figures, and stops cleanly with the end of its input.
pub(super) fn play(args: &ScaleArgs) -> Result<(), BenchError> {
    let begun = Instant::now();
    let job = args.mirror.copy().follow()?;
    let ready = |status: &Status| {
        let is_ready = |at: &heliostat_io::control::PartitionStatus| {
            at.state == PartitionState::Mirroring && (!args.filled || at.size_bytes > 0)
        };
        status.partitions.len() == args.partitions && status.partitions.iter().all(is_ready)
    };
    while !ready(&job.status()) {
        job.check()?;
        if begun.elapsed() > Duration::from_secs(args.ready_seconds) {
            let status = job.status();
            let open = status.partitions.iter().filter(|at| at.state == PartitionState::Mirroring);
            let (open, all) = (open.count(), args.partitions);
            let why = format!("{open} of {all} partitions open after {:?}", begun.elapsed());
            return Err(BenchError::Incomplete(why));
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
    let ready_seconds = begun.elapsed().as_secs_f64();
    let (bytes, seconds, cpu_seconds) = args
        .window
        .measure(|| Ok(job.status().shards.stats.append.bytes_appended), || job.check().is_err())?;
    let pid = std::process::id();
    let rss_bytes = peak_rss(pid).unwrap_or(0);
    tell(&Scaled {
        ready_seconds,
        rss_bytes: rss(pid).unwrap_or(0),
        lag_seconds: job.status().totals.lag.as_secs_f64(),
        side: Side { bytes, seconds, cpu_seconds, rss_bytes },
    })?;
    // The end of the input is the end of the measurement, however it went.
    let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
    job.stop()?;
    Ok(())
}

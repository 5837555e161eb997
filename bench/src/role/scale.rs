//! The product with very many partitions: what opening them, following them and their standing
//! by cost.

use std::cell::Cell;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use clap::Args;
use heliostat_io::control::Status;
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
    /// Longest of all partitions at the begin of the window, at its end, and ever between.
    pub(crate) lag_seconds: [f64; 3],
    /// Of the window.
    pub(crate) side: Side,
}

/// Tells its figures, and stops cleanly with the end of its input.
pub(super) fn play(args: &ScaleArgs) -> Result<(), BenchError> {
    let begun = Instant::now();
    let job = args.mirror.copy().follow()?;
    let ready = |status: &Status| {
        let totals = &status.totals;
        totals.mirroring == args.partitions && (!args.filled || totals.empty == 0)
    };
    while !ready(&job.status()) {
        job.check()?;
        if begun.elapsed() > Duration::from_secs(args.ready_seconds) {
            let (open, all) = (job.status().totals.mirroring, args.partitions);
            let why = format!("{open} of {all} partitions open after {:?}", begun.elapsed());
            return Err(BenchError::Incomplete(why));
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
    let ready_seconds = begun.elapsed().as_secs_f64();
    let lag = || job.status().totals.lag.as_secs_f64();
    let (mut lags, longest) = (Vec::new(), Cell::new(0.0_f64));
    let (bytes, seconds, cpu_seconds) = args.window.measure(
        || {
            lags.push(lag());
            longest.set(lag());
            Ok(job.status().shards.stats.append.bytes_appended)
        },
        || {
            longest.set(longest.get().max(lag()));
            job.check().is_err()
        },
    )?;
    let pid = std::process::id();
    let rss_bytes = peak_rss(pid).unwrap_or(0);
    tell(&Scaled {
        ready_seconds,
        rss_bytes: rss(pid).unwrap_or(0),
        lag_seconds: [
            lags.first().copied().unwrap_or(0.0),
            lags.last().copied().unwrap_or(0.0),
            longest.get(),
        ],
        side: Side { bytes, seconds, cpu_seconds, rss_bytes },
    })?;
    // The end of the input is the end of the measurement, however it went.
    let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
    job.stop()?;
    Ok(())
}

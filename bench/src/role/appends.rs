//! The product's own job that follows a source, and how long its appends take.

use std::time::Instant;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::mirror::MirrorArgs;
use super::tell;
use crate::error::BenchError;
use crate::process::{cpu_seconds, peak_rss};
use crate::side::{Side, approximate};

/// What it copies.
#[derive(Args, Debug)]
pub(super) struct AppendsArgs {
    #[command(flatten)]
    mirror: MirrorArgs,
    /// After so many it stops.
    #[arg(long)]
    bytes: u64,
}

/// From bytes received to the end of their write, in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Half of the writes took no longer.
    pub(crate) p50_us: f64,
    /// 99 of 100 took no longer.
    pub(crate) p99_us: f64,
    /// How many there were.
    pub(crate) writes: u64,
}

/// A run whose writes were timed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Timed {
    /// What it moved and cost.
    pub(crate) side: Side,
    /// What its writes took.
    pub(crate) latency: Latency,
}

pub(super) fn play(args: &AppendsArgs) -> Result<(), BenchError> {
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let mirror = args.mirror.copy().follow()?;
    let all = format!("{} bytes appended", args.bytes);
    mirror.wait(&all, |status| status.totals.bytes_appended >= args.bytes)?;
    let report = mirror.stop()?;
    let (seconds, cpu_seconds) = (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let (shards, rss) = (&report.status.shards, peak_rss(std::process::id()));
    let took = &shards.append_latency_us;
    let quantile = |quantile| approximate(took.value_at_quantile(quantile));
    let bytes = shards.stats.append.bytes_appended;
    let latency = Latency { p50_us: quantile(0.5), p99_us: quantile(0.99), writes: took.len() };
    let side = Side { bytes, seconds, cpu_seconds, rss_bytes: rss.unwrap_or(0) };
    tell(&Timed { side, latency })
}

//! The product's own job.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use heliostat_io::control::Ended;
use heliostat_tests::scenarios::Copy;

use super::tell;
use crate::error::BenchError;
use crate::process::{cpu_seconds, peak_rss};
use crate::side::Side;

/// What it copies.
#[derive(Args, Debug)]
pub(super) struct MirrorArgs {
    /// Brokers.
    #[arg(long)]
    source: String,
    /// Patterns of topics.
    #[arg(long)]
    topics: String,
    /// Log dir of the copy.
    #[arg(long)]
    to: PathBuf,
    /// Shards.
    #[arg(long, default_value_t = 1)]
    shards: usize,
    /// Properties, `key=value`.
    #[arg(long = "set")]
    sets: Vec<String>,
}

impl MirrorArgs {
    pub(super) fn copy(&self) -> Copy {
        let copy = Copy::at(&self.to, &self.source, &self.topics).shards(self.shards);
        self.sets.iter().fold(copy, |copy, set| {
            let (key, value) = set.split_once('=').unwrap_or((set, ""));
            copy.with(key, value)
        })
    }
}

pub(super) fn play(args: &MirrorArgs) -> Result<(), BenchError> {
    let copy = args.copy();
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let report = copy.once()?;
    let (seconds, cpu_seconds) = (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    if report.ended != Ended::CaughtUp || !report.clean {
        return Err(BenchError::Incomplete(format!("{:?}", report.ended)));
    }
    tell(&Side {
        bytes: report.status.shards.stats.append.bytes_appended,
        seconds,
        cpu_seconds,
        rss_bytes: peak_rss(std::process::id()).unwrap_or(0),
    })
}

//! MirrorMaker 2 over a window of time, with its destination beside it, where both have another
//! network than the source.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::tell;
use super::timed::Window;
use crate::error::BenchError;
use crate::kafka::{TOPIC, artifacts};
use crate::mm2::{Replication, Tuning};
use crate::side::Side;

/// What it copies, and for how long.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// Bootstrap servers.
    #[arg(long)]
    source: String,
    /// What the topic holds: stored bytes, records, partitions.
    #[arg(long)]
    bytes: u64,
    #[arg(long)]
    records: u64,
    #[arg(long)]
    partitions: u16,
    /// For the destination broker, configuration and logs.
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    tuning: Tuning,
    /// Further properties, `key=value`; they win.
    #[arg(long = "set")]
    sets: Vec<String>,
    /// From its first record on.
    #[command(flatten)]
    window: Window,
}

/// Figures of the window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Carried {
    /// MirrorMaker alone.
    pub(crate) side: Side,
    /// From the start of its JVM to the first record.
    pub(crate) start_seconds: f64,
    /// Bytes of each second.
    pub(crate) each_second: Vec<u64>,
}

pub(super) fn play(args: &Arguments) -> Result<(), BenchError> {
    let artifacts = artifacts()?;
    let jars = artifacts.mirror_maker()?;
    let pair = |set: &String| {
        let (key, value) = set.split_once('=').unwrap_or((set, ""));
        (key.to_owned(), value.to_owned())
    };
    let sets: Vec<_> = args.sets.iter().map(pair).collect();
    let what = (TOPIC, args.tuning, sets.as_slice());
    let mut replication = Replication::start((&artifacts, &jars), &args.dir, &args.source, what)?;
    let start_seconds = replication.begins(args.partitions)?;
    // Records are all of a size.
    let stored = |records: u64| {
        let bytes = u128::from(records) * u128::from(args.bytes) / u128::from(args.records.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    };
    let figures = || {
        let (records, cpu_seconds) = replication.figures(args.partitions)?;
        Ok((stored(records), cpu_seconds))
    };
    let measured = args.window.measure_each(figures, || false)?;
    let side = Side {
        bytes: measured.bytes,
        seconds: measured.seconds,
        cpu_seconds: measured.cpu_seconds,
        rss_bytes: replication.peak_rss(),
    };
    tell(&Carried { side, start_seconds, each_second: measured.each_second })
}

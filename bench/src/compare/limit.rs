//! One shard, one connection, new files, against loops that only move bytes.

use std::path::PathBuf;

use clap::Args;

use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::place::{Place, SINK_CPU, SOURCE_CPU};
use crate::role::{self, Child};
use crate::side::Side;

/// Arguments of `limit`.
#[derive(Args, Debug)]
pub(crate) struct LimitArgs {
    /// Bytes of each run.
    #[arg(long, value_name = "BYTES", default_value_t = 2_000_000_000)]
    bytes: u64,
    /// Partitions, and files of a loop.
    #[arg(long, value_name = "N", default_value_t = 24)]
    partitions: i32,
    /// Size of a batch.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10)]
    batch_bytes: usize,
    /// Runs of each side, in turn.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Where source and copies are; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &LimitArgs) -> Result<Vec<Bar>, BenchError> {
    let place = Place::new(args.dir.as_deref())?;
    let source_args = [
        "source".to_owned(),
        format!("--dir={}", place.named("source").display()),
        format!("--bytes={}", args.bytes),
        format!("--partitions={}", args.partitions),
        format!("--batch-bytes={}", args.batch_bytes),
    ];
    let mut source = Child::start(Some(SOURCE_CPU), &source_args)?;
    let address: String = source.hear()?;
    let mut ours: Vec<Side> = Vec::new();
    for _ in 0..args.rounds {
        let mirror = [
            "mirror".to_owned(),
            format!("--source={address}"),
            "--topics=bench".to_owned(),
            format!("--to={}", place.named("copy").display()),
        ];
        ours.push(role::run(Some(SINK_CPU), &mirror)?);
        place.clear("copy")?;
    }
    source.end()?;
    Ok(vec![Bar::new(
        1,
        "MB/s, one shard, one connection",
        Limit::None,
        (&ours, &[]),
        |ours, _| ours.megabytes_per_second(),
    )])
}

//! One shard, one connection, new files, against loops that only move bytes.
//!
//! All sides receive the same bytes from the same process, write them to as many new files, and
//! stop their clock when everything is durable.

use std::path::PathBuf;

use clap::Args;

use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::place::{Place, SINK_CPU, SOURCE_CPU};
use crate::raw::Port;
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
    /// Connections of ours; the loops have one.
    #[arg(long, value_name = "N", default_value_t = 1)]
    connections: usize,
    /// Where source and copies are; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Sides by their place in `Runs`; the loops by the name of their role.
const LOOPS: [&str; 4] = ["plain", "splice", "direct", "direct-crc"];

pub(super) fn run(args: &LimitArgs) -> Result<Vec<Bar>, BenchError> {
    let place = Place::new(args.dir.as_deref())?;
    let source_args = [
        "source".to_owned(),
        format!("--dir={}", place.named("source").display()),
        format!("--bytes={}", args.bytes),
        format!("--partitions={}", args.partitions),
        format!("--batch-bytes={}", args.batch_bytes),
        "--raw".to_owned(),
    ];
    let mut source = Child::start(Some(SOURCE_CPU), &source_args)?;
    let address: String = source.hear()?;
    let port: Port = source.hear()?;
    let copy = place.named("copy").display().to_string();
    let mut sides = vec![mirror(&address, &copy, args.connections)];
    sides.extend(LOOPS.iter().map(|kind| moving(kind, &port, &copy)));
    let mut runs = vec![Vec::with_capacity(args.rounds); sides.len()];
    for round in 0..args.rounds {
        for turn in 0..sides.len() {
            // Another one begins each round, so that none always follows the same.
            let side = (round + turn) % sides.len();
            let figures: Side = role::run(Some(SINK_CPU), &sides[side])?;
            place.clear("copy")?;
            if figures.bytes != port.bytes {
                let (have, want) = (figures.bytes, port.bytes);
                return Err(BenchError::Incomplete(format!("{have} of {want} bytes")));
            }
            runs[side].push(figures);
        }
    }
    source.end()?;
    Ok(bars(&runs))
}

fn mirror(source: &str, to: &str, connections: usize) -> Vec<String> {
    vec![
        "mirror".to_owned(),
        format!("--source={source}"),
        "--topics=bench".to_owned(),
        format!("--to={to}"),
        "--set=append.direct=true".to_owned(),
        format!("--set=mirror.num.replica.fetchers={connections}"),
        "--set=mirror.partition.stripes.max=1".to_owned(),
    ]
}

fn moving(kind: &str, port: &Port, to: &str) -> Vec<String> {
    vec![
        "loop".to_owned(),
        kind.to_owned(),
        format!("--source={}", port.address),
        format!("--bytes={}", port.bytes),
        format!("--to={to}"),
    ]
}

fn bars(runs: &[Vec<Side>]) -> Vec<Bar> {
    let [ours, plain, splice, direct, direct_crc] = runs else { return Vec::new() };
    let speed =
        |ours: &Side, theirs: &Side| ours.megabytes_per_second() / theirs.megabytes_per_second();
    let cost = |ours: &Side, theirs: &Side| {
        ours.cpu_seconds_per_gigabyte() / theirs.cpu_seconds_per_gigabyte()
    };
    let bar = |number, name: &str, limit, theirs: &[Side], of: &dyn Fn(&Side, &Side) -> f64| {
        Bar::new(number, name, limit, (ours, theirs), of)
    };
    vec![
        bar(1, "MB/s, fdatasync'd: ours / direct", Limit::AtLeast(0.9), direct, &speed),
        bar(1, "MB/s, fdatasync'd: ours / direct+crc", Limit::None, direct_crc, &speed),
        bar(1, "MB/s, fdatasync'd: ours / plain", Limit::None, plain, &speed),
        bar(1, "MB/s, fdatasync'd: ours / splice", Limit::None, splice, &speed),
        bar(2, "CPU s/GB: ours / direct+crc", Limit::AtMost(1.2), direct_crc, &cost),
        bar(2, "CPU s/GB: ours / direct", Limit::AtMost(1.5), direct, &cost),
        bar(2, "CPU s/GB: ours / plain", Limit::None, plain, &cost),
        bar(2, "CPU s/GB: ours / splice", Limit::None, splice, &cost),
    ]
}

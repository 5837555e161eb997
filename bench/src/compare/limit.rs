//! One shard, one connection, new files, against loops that only move bytes.
//!
//! All sides receive the same bytes from the same process, write them to as many new files, and
//! stop their clock when everything is durable.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::place::{Place, SINK_CPU, SOURCE_CPU};
use crate::raw::Port;
use crate::role::{self, Child, Kind};
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
    /// Only these loops; all without.
    #[arg(long, value_enum, value_name = "LOOP")]
    against: Vec<Kind>,
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
        "--raw".to_owned(),
    ];
    let mut source = Child::start(Some(SOURCE_CPU), &source_args)?;
    let address: String = source.hear()?;
    let port: Port = source.hear()?;
    let copy = place.named("copy").display().to_string();
    let loops = if args.against.is_empty() { Kind::value_variants() } else { &args.against };
    let mut sides = vec![mirror(&address, &copy, args.connections)];
    sides.extend(loops.iter().map(|&kind| moving(kind, &port, &copy)));
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
    Ok(bars(loops, &runs))
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

fn moving(kind: Kind, port: &Port, to: &str) -> Vec<String> {
    vec![
        "loop".to_owned(),
        kind.name(),
        format!("--source={}", port.address),
        format!("--bytes={}", port.bytes),
        format!("--to={to}"),
    ]
}

/// `runs` are ours, then those of each of `loops`.
fn bars(loops: &[Kind], runs: &[Vec<Side>]) -> Vec<Bar> {
    let Some((ours, theirs)) = runs.split_first() else { return Vec::new() };
    let speed = |(&kind, theirs): (&Kind, &Vec<Side>)| {
        let limit = if kind == Kind::Direct { Limit::AtLeast(0.9) } else { Limit::None };
        let name = format!("MB/s, all fdatasync'd: ours / {}", kind.name());
        Bar::new(1, name, limit, (ours, theirs), |ours, theirs| {
            ours.megabytes_per_second() / theirs.megabytes_per_second()
        })
    };
    let cost = |(&kind, theirs): (&Kind, &Vec<Side>)| {
        let limit = match kind {
            Kind::DirectCrc => Limit::AtMost(1.2),
            Kind::Direct => Limit::AtMost(1.5),
            Kind::Plain | Kind::Splice => Limit::None,
        };
        let name = format!("CPU s/GB, all fdatasync'd: ours / {}", kind.name());
        Bar::new(2, name, limit, (ours, theirs), |ours, theirs| {
            ours.cpu_seconds_per_gigabyte() / theirs.cpu_seconds_per_gigabyte()
        })
    };
    loops.iter().zip(theirs).map(speed).chain(loops.iter().zip(theirs).map(cost)).collect()
}

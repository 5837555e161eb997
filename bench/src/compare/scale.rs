//! Very many partitions against few, from a source that answers from memory.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};

use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::place::{Place, SINK_CPU, SOURCE_CPU};
use crate::role::{self, Child, Scaled};
use crate::side::{Side, approximate};

/// Arguments of `scale`.
#[derive(Args, Debug)]
pub(crate) struct ScaleArgs {
    /// Many partitions.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    partitions: u32,
    /// Few partitions.
    #[arg(long, value_name = "N", default_value_t = 24)]
    few: u32,
    /// Bytes a second that come to all of them together.
    #[arg(long, value_name = "BYTES", default_value_t = 100_000_000)]
    rate: u32,
    /// Records of 1 KiB in a batch.
    #[arg(long, value_name = "N", default_value_t = 15)]
    records: u32,
    /// Seconds that are measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    seconds: u32,
    /// Longest time until all partitions are open.
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600)]
    ready_seconds: u64,
    /// Rounds at saturation.
    #[arg(long, value_name = "N", default_value_t = 2)]
    rounds: u32,
    /// Only these parts, not all three.
    #[arg(long, value_name = "PART", value_enum)]
    only: Vec<Part>,
    /// Where copies are; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A load with a rate.
    Load,
    /// As much as can be appended.
    Saturation,
    /// Nothing to do, and restarts.
    Idle,
}

/// Seconds after everything is open that do not count.
const SETTLE_SECONDS: u32 = 5;
/// What the lag may grow by in the window: it is published every two seconds.
const LAG_GROWTH_SECONDS: f64 = 2.0;
/// Most that a partition may lag: a linger, a sync, a report and a publication, with room.
const LAG_SECONDS_MAX: f64 = 10.0;

pub(super) fn run(args: &ScaleArgs) -> Result<Vec<Bar>, BenchError> {
    // What is removed between two runs makes the file system slow for the next: it looks for
    // inodes that were not deleted of late. So all copies stay until the end.
    let place = Place::new(args.dir.as_deref())?;
    let wanted = |part: Part| args.only.is_empty() || args.only.contains(&part);
    let mut bars = Vec::new();
    if wanted(Part::Load) {
        bars.extend(load(args, &place)?);
    }
    if wanted(Part::Saturation) {
        bars.extend(saturation(args, &place)?);
    }
    if wanted(Part::Idle) {
        bars.extend(idle(args, &place)?);
    }
    Ok(bars)
}

/// Partitions that batches come to in turn.
fn load(args: &ScaleArgs, place: &Place) -> Result<Vec<Bar>, BenchError> {
    let rate = format!("--rate={}", args.rate);
    let run = |partitions: u32, name: &str| -> Result<Scaled, BenchError> {
        let Source { child: source, address, .. } = source(args, partitions, &rate)?;
        let mut job = follow(args, partitions, &address, place, name, false)?;
        let scaled = job.hear()?;
        job.end()?;
        drop(source);
        Ok(scaled)
    };
    let few = run(args.few, "few")?;
    let many = run(args.partitions, "many")?;
    let sides = (&[many.side][..], &[few.side][..]);
    let rate = args.rate / 1_000_000;
    let of = |what: &str| format!("{what}, {} partitions, {rate} MB/s offered", args.partitions);
    Ok(vec![
        Bar::new(11, of("CPU per GB"), Limit::AtMost(3.0), sides, |many, few| {
            many.cpu_seconds_per_gigabyte() / few.cpu_seconds_per_gigabyte()
        }),
        Bar::new(11, of("copied / offered"), Limit::AtLeast(0.95), sides, |many, _| {
            many.megabytes_per_second() * 1e6 / f64::from(args.rate)
        }),
        Bar::new(11, of("lag: growth, s"), Limit::AtMost(LAG_GROWTH_SECONDS), sides, |_, _| {
            let [begin, end, _] = many.lag_seconds;
            end - begin
        })
        .with("lag_begin_end_longest_s", many.lag_seconds.to_vec()),
        Bar::new(11, of("lag: longest, s"), Limit::AtMost(LAG_SECONDS_MAX), sides, |_, _| {
            many.lag_seconds[2]
        }),
    ])
}

/// Every partition always has one more batch: the product beside a loop that writes the same
/// runs to as many files.
fn saturation(args: &ScaleArgs, place: &Place) -> Result<Vec<Bar>, BenchError> {
    let source = source(args, args.partitions, "--turns")?;
    let (mut ours, mut loops, mut unsynced) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.rounds.max(1) {
        let address = &source.address;
        let mut job = follow(args, args.partitions, address, place, "saturated", false)?;
        let scaled: Scaled = job.hear()?;
        job.end()?;
        ours.push(scaled.side);
        loops.push(many(args, source.raw, place, true)?);
        unsynced.push(many(args, source.raw, place, false)?);
    }
    drop(source.child);
    let of = |what: &str| format!("{what}, {} partitions", args.partitions);
    let ratio = |ours: &Side, theirs: &Side| {
        ours.megabytes_per_second() / theirs.megabytes_per_second().max(1e-9)
    };
    Ok(vec![
        Bar::new(11, of("saturated / loop"), Limit::AtLeast(0.8), (&ours, &loops), ratio),
        Bar::new(
            11,
            of("saturated / loop, nothing synced"),
            Limit::None,
            (&ours, &unsynced),
            ratio,
        ),
    ])
}

/// The loop, over files that stay for its next round.
fn many(
    args: &ScaleArgs,
    source: SocketAddr,
    place: &Place,
    synced: bool,
) -> Result<Side, BenchError> {
    let mut role = vec![
        "many".to_owned(),
        format!("--source={source}"),
        format!("--to={}", place.named("loop").display()),
        format!("--partitions={}", args.partitions),
        format!("--skip={SETTLE_SECONDS}"),
        format!("--seconds={}", SETTLE_SECONDS + args.seconds),
    ];
    if !synced {
        role.push("--unsynced".to_owned());
    }
    role::run(Some(SINK_CPU), &role)
}

/// Partitions that once held a batch, and to which nothing comes; then restarts.
fn idle(args: &ScaleArgs, place: &Place) -> Result<Vec<Bar>, BenchError> {
    let stored = "--stored=1";
    let few = {
        let Source { child: source, address, .. } = source(args, args.few, stored)?;
        let mut job = follow(args, args.few, &address, place, "idle-few", true)?;
        let scaled: Scaled = job.hear()?;
        job.end()?;
        drop(source);
        scaled
    };
    let Source { child: source, address, .. } = source(args, args.partitions, stored)?;
    let again = || follow(args, args.partitions, &address, place, "idle-many", true);
    let mut job = again()?;
    let many: Scaled = job.hear()?;
    let stopping = Instant::now();
    job.end()?;
    let stop_seconds = stopping.elapsed().as_secs_f64();
    let mut job = again()?;
    let clean: Scaled = job.hear()?;
    // Dropped: killed.
    drop(job);
    let mut job = again()?;
    let killed: Scaled = job.hear()?;
    job.end()?;
    drop(source);

    let sides = (&[many.side][..], &[few.side][..]);
    let more = f64::from(args.partitions.saturating_sub(args.few).max(1));
    let each = approximate(many.rss_bytes.saturating_sub(few.rss_bytes)) / more;
    let of = |what: &str| format!("{what}, {} partitions", args.partitions);
    let alone = |scaled: Scaled, name: &str, limit, value: f64| {
        Bar::new(16, of(name), limit, (&[scaled.side], &[]), |_, _| value)
    };
    Ok(vec![
        Bar::new(12, of("resident bytes a partition"), Limit::AtMost(2_048.0), sides, |_, _| each),
        Bar::new(13, of("idle: % of a core"), Limit::AtMost(1.0), sides, |many: &Side, _| {
            100.0 * many.cpu_seconds / many.seconds.max(1e-9)
        }),
        alone(many, "first opening, s", Limit::None, many.ready_seconds),
        alone(many, "clean stop, s", Limit::None, stop_seconds),
        alone(clean, "start after a clean stop, s", Limit::AtMost(30.0), clean.ready_seconds),
        alone(killed, "start after kill -9, s", Limit::None, killed.ready_seconds),
    ])
}

/// A running source, where it listens, and its raw port.
struct Source {
    child: Child,
    address: String,
    raw: SocketAddr,
}

fn source(args: &ScaleArgs, partitions: u32, load: &str) -> Result<Source, BenchError> {
    let role = [
        "synthetic".to_owned(),
        format!("--partitions={partitions}"),
        format!("--records={}", args.records),
        load.to_owned(),
    ];
    let mut child = Child::start(Some(SOURCE_CPU), &role)?;
    let (address, raw) = child.hear()?;
    Ok(Source { child, address, raw })
}

fn follow(
    args: &ScaleArgs,
    partitions: u32,
    address: &str,
    place: &Place,
    name: &str,
    filled: bool,
) -> Result<Child, BenchError> {
    let mut role = vec![
        "scale".to_owned(),
        format!("--source={address}"),
        "--topics=synthetic-.*".to_owned(),
        format!("--to={}", place.named(name).display()),
        format!("--partitions={partitions}"),
        format!("--ready-seconds={}", args.ready_seconds),
        format!("--skip={SETTLE_SECONDS}"),
        format!("--seconds={}", SETTLE_SECONDS + args.seconds),
        // An ordinary refresh, not that of tests.
        "--set=mirror.metadata.refresh.interval.ms=30000".to_owned(),
    ];
    if filled {
        role.push("--filled".to_owned());
    }
    Child::start(Some(SINK_CPU), &role)
}

//! Very many partitions against few, from a source that answers from memory.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::place::{Place, SINK_CPU, SOURCE_CPU};
use crate::role::{Child, Scaled};
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
    /// Where copies are; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Seconds after everything is open that do not count.
const SETTLE_SECONDS: u32 = 5;

pub(super) fn run(args: &ScaleArgs) -> Result<Vec<Bar>, BenchError> {
    // What is removed between two runs makes the file system slow for the next: it looks for
    // inodes that were not deleted of late. So all copies stay until the end.
    let place = Place::new(args.dir.as_deref())?;
    let mut bars = load(args, &place)?;
    bars.extend(idle(args, &place)?);
    Ok(bars)
}

/// Partitions that batches come to in turn.
fn load(args: &ScaleArgs, place: &Place) -> Result<Vec<Bar>, BenchError> {
    let rate = format!("--rate={}", args.rate);
    let run = |partitions: u32, name: &str| -> Result<Scaled, BenchError> {
        let (source, address) = source(args, partitions, &rate)?;
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
        Bar::new(11, of("longest lag, s"), Limit::None, sides, |_, _| many.lag_seconds),
    ])
}

/// Partitions that once held a batch, and to which nothing comes; then restarts.
fn idle(args: &ScaleArgs, place: &Place) -> Result<Vec<Bar>, BenchError> {
    let stored = "--stored=1";
    let few = {
        let (source, address) = source(args, args.few, stored)?;
        let mut job = follow(args, args.few, &address, place, "idle-few", true)?;
        let scaled: Scaled = job.hear()?;
        job.end()?;
        drop(source);
        scaled
    };
    let (source, address) = source(args, args.partitions, stored)?;
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

fn source(args: &ScaleArgs, partitions: u32, load: &str) -> Result<(Child, String), BenchError> {
    let role = [
        "synthetic".to_owned(),
        format!("--partitions={partitions}"),
        format!("--records={}", args.records),
        load.to_owned(),
    ];
    let mut source = Child::start(Some(SOURCE_CPU), &role)?;
    let address = source.hear()?;
    Ok((source, address))
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

//! How exactly a throttle is kept, and what it does to partitions that it does not hold for.

use std::path::PathBuf;

use clap::Args;

use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::place::{Place, SINK_CPU, SOURCE_CPU};
use crate::raw::Port;
use crate::role::{self, Child, Watched};
use crate::side::Side;

/// Topics; the second is throttled where both are copied.
const TOPICS: [&str; 2] = ["free", "held"];

/// Arguments of `throttle`.
#[derive(Args, Debug)]
pub(crate) struct ThrottleArgs {
    /// The throttle, in bytes a second.
    #[arg(long, value_name = "BYTES", default_value_t = 100_000_000)]
    rate: u32,
    /// A throttle that leaves the others the machine.
    #[arg(long, value_name = "BYTES", default_value_t = 10_000_000)]
    low_rate: u32,
    /// Windows.
    #[arg(long, value_name = "N", default_value_t = 3)]
    windows: u32,
    /// Length of a window.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    window_seconds: u32,
    /// Bytes of the unthrottled topic; at least what the windows take.
    #[arg(long, value_name = "BYTES", default_value_t = 3_600_000_000)]
    bytes: u64,
    /// Bytes of the throttled topic, and of the other in runs beside it.
    #[arg(long, value_name = "BYTES", default_value_t = 1_500_000_000)]
    held_bytes: u64,
    /// Partitions of each.
    #[arg(long, value_name = "N", default_value_t = 12)]
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

pub(super) fn run(args: &ThrottleArgs) -> Result<Vec<Bar>, BenchError> {
    let place = Place::new(args.dir.as_deref())?;
    let [free, held] = TOPICS;
    let source_args = [
        "source".to_owned(),
        format!("--dir={}", place.named("source").display()),
        format!("--topic={free}"),
        format!("--bytes={}", args.bytes),
        format!("--beside={held}"),
        format!("--beside-bytes={}", args.held_bytes),
        format!("--partitions={}", args.partitions),
        format!("--batch-bytes={}", args.batch_bytes),
        "--raw".to_owned(),
    ];
    let mut source = Child::start(Some(SOURCE_CPU), &source_args)?;
    let address: String = source.hear()?;
    let port: Port = source.hear()?;
    let watch = |topics: &str, more: &[String]| -> Result<Watched, BenchError> {
        let mut role = vec![
            "watch".to_owned(),
            format!("--source={address}"),
            format!("--topics={topics}"),
            format!("--topic={free}"),
            format!("--to={}", place.named("copy").display()),
        ];
        role.extend_from_slice(more);
        let watched = role::run(Some(SINK_CPU), &role)?;
        place.clear("copy")?;
        Ok(watched)
    };
    let exact = watch(
        free,
        &[
            rate(args.rate),
            format!("--windows={}", args.windows),
            format!("--window-seconds={}", args.window_seconds),
        ],
    )?;
    let both = format!("{free},{held}");
    // No more than the throttled topic holds: that one must not end first.
    let until = format!("--until={}", port.bytes.min(args.held_bytes));
    // The same properties on all sides: alone differs in the topics only.
    let unthrottled = |topics, rate_bytes| {
        let throttled = format!("--set=mirror.replication.throttled.replicas={held}");
        let mut more = vec![until.clone(), rate(rate_bytes), throttled];
        if topics != free {
            more.push(format!("--unfinished={held}"));
            more.push(format!("--unfinished-bytes={}", args.held_bytes));
        }
        watch(topics, &more).map(|watched| watched.side)
    };
    let (mut alone, mut low, mut full) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..args.rounds {
        for turn in 0..3 {
            match (round + turn) % 3 {
                0 => alone.push(unthrottled(free, args.rate)?),
                1 => low.push(unthrottled(&both, args.low_rate)?),
                _ => full.push(unthrottled(&both, args.rate)?),
            }
        }
    }
    source.end()?;
    Ok(bars(args, exact, &alone, &low, &full))
}

fn rate(bytes: u32) -> String {
    format!("--set=mirror.replication.throttled.rate={bytes}")
}

fn bars(
    args: &ThrottleArgs,
    exact: Watched,
    alone: &[Side],
    low: &[Side],
    full: &[Side],
) -> Vec<Bar> {
    let target = f64::from(args.rate);
    let off = |rate: &f64| (rate / target - 1.0).abs();
    let worst = exact.rates.iter().map(off).fold(0.0, f64::max);
    let megabytes = |bytes: u32| bytes / 1_000_000;
    let name = format!(
        "throttle of {} MB/s: worst deviation of {} windows of {} s",
        megabytes(args.rate),
        args.windows,
        args.window_seconds
    );
    let beside = |limit, rate: u32, runs: &[Side]| {
        let name = format!("unthrottled beside {} MB/s throttled / alone", megabytes(rate));
        Bar::new(15, name, limit, (runs, alone), |ours, theirs| {
            ours.megabytes_per_second() / theirs.megabytes_per_second()
        })
    };
    vec![
        Bar::new(15, name, Limit::AtMost(0.02), (&[exact.side], &[]), |_, _| worst)
            .with("window_bytes_per_second", exact.rates),
        beside(Limit::AtLeast(0.95), args.low_rate, low),
        beside(Limit::None, args.rate, full),
    ]
}

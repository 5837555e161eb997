//! From bytes received to bytes written, under a load that does not wait.

use std::path::PathBuf;

use clap::Args;

use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::place::{Place, SINK_CPU, SOURCE_CPU};
use crate::raw::Port;
use crate::role::{self, Child, Latency, Lateness, Timed};
use crate::side::{Side, approximate, median};

/// Arguments of `latency`.
#[derive(Args, Debug)]
pub(crate) struct LatencyArgs {
    /// Bytes a second.
    #[arg(long, value_name = "BYTES", default_value_t = 10_000_000)]
    rate: u32,
    /// Duration of each run.
    #[arg(long, value_name = "SECONDS", default_value_t = 12)]
    seconds: u32,
    /// Partitions, and files of the loop.
    #[arg(long, value_name = "N", default_value_t = 8)]
    partitions: i32,
    /// Size of a batch.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10)]
    batch_bytes: usize,
    /// Runs of each side, in turn.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Where source and copies are; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Who receives the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    /// The product, `append.direct` as it says.
    Ours(&'static str),
    /// The loop.
    Loop,
}

/// When written bytes become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    /// At the end.
    AtEnd,
    /// Beside the writes, a second after they were written at the latest: the product's default.
    WithinASecond,
}

const DAY_MS: u64 = 86_400_000;
const SECOND_MS: u64 = 1_000;

/// Both sides with the same durability; the product as it is by default, and past the page cache.
const RECEIVERS: [(Receiver, Durable); 6] = [
    (Receiver::Ours("auto"), Durable::AtEnd),
    (Receiver::Ours("true"), Durable::AtEnd),
    (Receiver::Loop, Durable::AtEnd),
    (Receiver::Ours("auto"), Durable::WithinASecond),
    (Receiver::Ours("true"), Durable::WithinASecond),
    (Receiver::Loop, Durable::WithinASecond),
];

#[derive(Clone, Copy, Debug)]
struct Run {
    timed: Timed,
    late: Lateness,
}

pub(super) fn run(args: &LatencyArgs) -> Result<Vec<Bar>, BenchError> {
    let place = Place::new(args.dir.as_deref())?;
    let mut runs = [const { Vec::new() }; RECEIVERS.len()];
    for round in 0..args.rounds {
        for turn in 0..RECEIVERS.len() {
            let side = (round + turn) % RECEIVERS.len();
            runs[side].push(receive(args, &place, RECEIVERS[side])?);
            place.clear("source")?;
            place.clear("copy")?;
        }
    }
    let [auto, direct, bare, auto_synced, direct_synced, bare_synced] = &runs;
    let mut bars = Vec::new();
    let sides = [
        ("default, synced at the end", auto, bare),
        ("default, synced every second", auto_synced, bare_synced),
        ("append.direct=true, synced at the end", direct, bare),
        ("append.direct=true, synced every second", direct_synced, bare_synced),
    ];
    for (how, ours, theirs) in sides {
        // What the product would not choose for runs of this size is reported.
        let held = |limit| if how.starts_with("default") { limit } else { Limit::None };
        let name = |quantile: &str| format!("{quantile} received to appended, {how}");
        let p50 = |latency: &Latency| latency.p50_us;
        let p99 = |latency: &Latency| latency.p99_us;
        bars.push(bar(name("p50"), held(Limit::AtMost(1.5)), ours, theirs, p50));
        bars.push(bar(name("p99"), held(Limit::AtMost(2.0)), ours, theirs, p99));
    }
    Ok(bars)
}

fn receive(
    args: &LatencyArgs,
    place: &Place,
    (receiver, durable): (Receiver, Durable),
) -> Result<Run, BenchError> {
    let mut load = vec![
        "paced".to_owned(),
        format!("--dir={}", place.named("source").display()),
        format!("--rate={}", args.rate),
        format!("--seconds={}", args.seconds),
        format!("--partitions={}", args.partitions),
        format!("--batch-bytes={}", args.batch_bytes),
    ];
    if receiver == Receiver::Loop {
        load.push("--raw".to_owned());
    }
    let mut source = Child::start(Some(SOURCE_CPU), &load)?;
    let port: Port = source.hear()?;
    let to = format!("--to={}", place.named("copy").display());
    let from = format!("--source={}", port.address);
    let sink = match receiver {
        Receiver::Loop => {
            let mut sink = vec!["arrivals".to_owned(), from, to];
            if durable == Durable::WithinASecond {
                sink.push(format!("--sync-ms={SECOND_MS}"));
            }
            sink
        }
        Receiver::Ours(direct) => vec![
            "appends".to_owned(),
            "--topics=bench".to_owned(),
            from,
            to,
            format!("--bytes={}", port.bytes),
            format!("--set=append.direct={direct}"),
            format!(
                "--set=flush.ms={}",
                match durable {
                    Durable::AtEnd => DAY_MS,
                    Durable::WithinASecond => SECOND_MS,
                }
            ),
            // By time alone.
            format!("--set=flush.bytes={}", u64::from(args.rate) * 1_000),
        ],
    };
    let timed: Timed = role::run(Some(SINK_CPU), &sink)?;
    let late: Lateness = source.hear()?;
    source.end()?;
    if timed.side.bytes != port.bytes {
        let (have, want) = (timed.side.bytes, port.bytes);
        return Err(BenchError::Incomplete(format!("{have} of {want} bytes")));
    }
    Ok(Run { timed, late })
}

fn bar(name: String, limit: Limit, ours: &[Run], theirs: &[Run], of: fn(&Latency) -> f64) -> Bar {
    let sides = |runs: &[Run]| runs.iter().map(|run| run.timed.side).collect::<Vec<Side>>();
    let took = |runs: &[Run]| runs.iter().map(|run| of(&run.timed.latency)).collect::<Vec<_>>();
    let late = |runs: &[Run]| runs.iter().map(|run| run.late.p99_us).collect::<Vec<_>>();
    let count = |run: &Run| approximate(run.timed.latency.writes);
    let writes = |runs: &[Run]| runs.iter().map(count).collect::<Vec<_>>();
    let (a, b) = (median(took(ours)), median(took(theirs)));
    let name = format!("{name}; {a:.0} us / {b:.0} us");
    Bar::new(7, name, limit, (&sides(ours), &sides(theirs)), |_, _| a / b)
        .with("our_writes", writes(ours))
        .with("their_writes", writes(theirs))
        .with("our_us", took(ours))
        .with("their_us", took(theirs))
        .with("our_load_late_p99_us", late(ours))
        .with("their_load_late_p99_us", late(theirs))
}

//! A mirroring host under a load that does not wait, with and without clients that ask all the
//! time how its mirror stands.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;

use super::host::{Held, Host, Source, asked, client};
use crate::bar::{Bar, Limit};
use crate::clock::{monotonic_ns, quantile_us, wait_until};
use crate::error::BenchError;
use crate::host::load;
use crate::place::{Place, SINK_CPU, SOURCE_CPU, pin};
use crate::role::{MIRROR, Percentiles};
use crate::side::{Side, approximate, median};
use crate::synthetic::{Offered, SyntheticLog};
use crate::tail::Tail;

/// Arguments of `host-describe`.
#[derive(Args, Debug)]
pub(crate) struct HostDescribeArgs {
    /// Partitions of the mirror.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    partitions: u32,
    /// Partitions that the load comes to, in turn.
    #[arg(long, value_name = "N", default_value_t = 8)]
    active: u32,
    /// Bytes a second.
    #[arg(long, value_name = "BYTES", default_value_t = 10_000_000)]
    rate: u32,
    /// `DescribeClusterMirrors` calls a second.
    #[arg(long, value_name = "N", default_value_t = 200)]
    calls: u32,
    /// Connections that make them.
    #[arg(long, value_name = "N", default_value_t = 4)]
    connections: u32,
    /// Duration of a round.
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    seconds: u32,
    /// Rounds with, and as many without, in turn.
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: u32,
    /// Where the host's log dir is; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// A property of the host, `key=value`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

/// Bars of the control thread beside the data path.
const BAR: u8 = 18;
/// Records of 1 KiB in a batch.
const RECORDS: u32 = 15;
/// Longest time until all partitions are followed.
const READY_WITHIN: Duration = Duration::from_mins(2);
/// Before the first round.
const WARM_UP: Duration = Duration::from_secs(5);
/// Between two looks at the copies.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A latency's quantiles.
#[derive(Clone, Copy, Debug, Default)]
struct Quantiles([f64; 3]);

const NAMES: [&str; 3] = ["p50", "p99", "p99.9"];

impl From<Percentiles> for Quantiles {
    fn from(it: Percentiles) -> Self {
        Self([it.p50_us, it.p99_us, it.p999_us])
    }
}

/// One round.
#[derive(Clone, Debug, Default)]
struct Round {
    /// First byte of a write received to write complete.
    appended: Quantiles,
    /// Fetch sent to first byte of its answer.
    fetched: Quantiles,
    /// Batch there at the source to batch in the copy's file.
    copied: Quantiles,
    /// Calls a second that were answered.
    calls: f64,
    /// What they took, in microseconds: half of them, 99 of 100.
    call_us: [f64; 2],
    megabytes_per_second: f64,
    /// Of the control thread.
    control_percent: f64,
}

pub(super) fn run(args: &HostDescribeArgs) -> Result<Vec<Bar>, BenchError> {
    let place = Place::new(args.dir.as_deref())?;
    let dir = place.named("host");
    let held = Held {
        partitions: args.partitions,
        per_topic: args.partitions,
        records: RECORDS,
        active: args.active,
        rate: args.rate,
    };
    // Whoever asks shares a processor with the control thread and the source.
    pin(SOURCE_CPU)?;
    let mut source = Source::start(Some(SOURCE_CPU), held)?;
    let mut host = Host::start(Some(SOURCE_CPU), &dir, &args.sets)?;
    host.create(&source)?;
    host.start_topics(&[])?;
    let wanted = usize::try_from(args.partitions).unwrap_or(usize::MAX);
    host.until("all followed", READY_WITHIN, |it| it.followed == wanted && it.empty == 0)?;
    host.pin_shards(SINK_CPU)?;
    let begun_ns = source.begin()?;
    let now = Instant::now();
    let begun = now - Duration::from_nanos(monotonic_ns(now).saturating_sub(begun_ns));
    let watch = Watch::start(&dir, args.active);
    std::thread::sleep(WARM_UP);
    let (mut rounds, mut windows) = (Vec::new(), Vec::new());
    host.look()?;
    for number in 0..args.rounds * 2 {
        // Which comes first changes, so that a drift of the machine is nobody's.
        let is_asked = (number % 2 == 1) != (number / 2 % 2 == 1);
        let (round, window) = play(args, &mut host, is_asked)?;
        windows.push(window);
        rounds.push((is_asked, round));
    }
    let tails = watch.end()?;
    host.stop()?;
    drop(source);
    let log = SyntheticLog::new(
        args.partitions.into(),
        Offered::Later { stored: 1, active: args.active.into(), rate: args.rate.into() },
        RECORDS,
        1_024,
    );
    let log = log.map_err(|error| BenchError::Incomplete(error.to_string()))?;
    for ((_, round), window) in rounds.iter_mut().zip(windows) {
        round.copied = copied(&log, &tails, begun, window)?;
    }
    Ok(bars(args, &rounds))
}

fn play(
    args: &HostDescribeArgs,
    host: &mut Host,
    is_asked: bool,
) -> Result<(Round, (Instant, Instant)), BenchError> {
    let callers = is_asked.then(|| Callers::start(args, host));
    // What connecting costs belongs to no round.
    std::thread::sleep(Duration::from_secs(1));
    let (before, begun) = (host.look()?, Instant::now());
    std::thread::sleep(Duration::from_secs(args.seconds.into()));
    let (after, ended) = (host.look()?, Instant::now());
    let seconds = (ended - begun).as_secs_f64();
    let control = after.control_cpu_seconds - before.control_cpu_seconds;
    let mut round = Round {
        appended: after.append.into(),
        fetched: after.fetch.into(),
        megabytes_per_second: approximate(after.bytes_appended) / 1e6 / seconds,
        control_percent: 100.0 * control / seconds,
        ..Round::default()
    };
    if let Some(callers) = callers {
        let (calls, mut took, seconds) = callers.end()?;
        round.calls = calls / seconds;
        round.call_us = [quantile_us(&mut took, 50), quantile_us(&mut took, 99)];
    }
    println!(
        "{}: appended {:?} us, fetched {:?} us, {:.1} MB/s, {:.0} calls/s, a call {:?} us, \
         control thread {:.0} % of a core, load {:?}",
        if is_asked { "asked " } else { "silent" },
        round.appended.0,
        round.fetched.0,
        round.megabytes_per_second,
        round.calls,
        round.call_us,
        round.control_percent,
        load(),
    );
    Ok((round, (begun, ended)))
}

/// Threads that ask, each over a connection of its own.
struct Callers {
    stop: Arc<AtomicBool>,
    begun: Instant,
    threads: Vec<JoinHandle<Result<Vec<Duration>, BenchError>>>,
}

impl Callers {
    fn start(args: &HostDescribeArgs, host: &Host) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (begun, address) = (Instant::now(), host.up.address);
        let every = Duration::from_secs(1) * args.connections.max(1) / args.calls.max(1);
        let threads = (0..args.connections.max(1)).map(|index| -> JoinHandle<_> {
            let stop = Arc::clone(&stop);
            let partitions = args.partitions;
            // They take turns.
            let first = begun + every * index / args.connections.max(1);
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.map_err(BenchError::system("start a runtime"))?;
                let mut client = client(address)?;
                let (mut took, mirrors) = (Vec::new(), [MIRROR.to_owned()]);
                let mut due = first;
                while !stop.load(Ordering::Relaxed) {
                    wait_until(due);
                    due += every;
                    let since = Instant::now();
                    let all = runtime.block_on(client.describe_cluster_mirrors(&mirrors));
                    took.push(since.elapsed());
                    let all = all.map_err(asked)?;
                    let count: usize =
                        all.iter().flat_map(|it| it.topics.values()).map(Vec::len).sum();
                    if u32::try_from(count) != Ok(partitions) {
                        let why = format!("{count} of {partitions} partitions are described");
                        return Err(BenchError::Incomplete(why));
                    }
                }
                Ok(took)
            })
        });
        let threads = threads.collect();
        Self { stop, begun, threads }
    }

    /// How many calls were answered, what each took, and in how many seconds.
    fn end(self) -> Result<(f64, Vec<Duration>, f64), BenchError> {
        self.stop.store(true, Ordering::Relaxed);
        let mut took = Vec::new();
        for thread in self.threads {
            let outcome = thread.join();
            let failed = |_| BenchError::Incomplete("a caller has panicked".to_owned());
            took.extend(outcome.map_err(failed)??);
        }
        let calls = approximate(u64::try_from(took.len()).unwrap_or(u64::MAX));
        Ok((calls, took, self.begun.elapsed().as_secs_f64()))
    }
}

/// A thread that looks at the copies all the time.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Tail>, BenchError>>,
}

impl Watch {
    fn start(dir: &Path, active: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let path = |partition| dir.join(format!("synthetic-0-{partition}"));
        let mut tails: Vec<Tail> = (0..active).map(|it| Tail::new(&path(it))).collect();
        let thread = std::thread::spawn(move || {
            let mut due = Instant::now();
            while !seen.load(Ordering::Relaxed) {
                // Behind a look that took longer, the next one is not late but left out.
                due = due.max(Instant::now()) + LOOK_EVERY;
                wait_until(due);
                for tail in &mut tails {
                    tail.look(Instant::now())?;
                }
            }
            Ok(tails)
        });
        Self { stop, thread }
    }

    fn end(self) -> Result<Vec<Tail>, BenchError> {
        self.stop.store(true, Ordering::Relaxed);
        let failed = |_| BenchError::Incomplete("the watcher has panicked".to_owned());
        self.thread.join().map_err(failed)?
    }
}

/// From the time at which a batch was there at the source to that at which the copy's file had
/// it, of those that were due in a window.
fn copied(
    log: &SyntheticLog,
    tails: &[Tail],
    begun: Instant,
    (from, to): (Instant, Instant),
) -> Result<Quantiles, BenchError> {
    let mut took = Vec::new();
    for (partition, tail) in (0..).zip(tails) {
        for (last, at) in tail.arrivals() {
            // The first one was there before.
            let Some(turn) = log.batch_of(*last).checked_sub(1) else { continue };
            let due = log.birth(partition + log.taking_turns() * turn).map(|after| begun + after);
            if let Some(due) = due.filter(|due| (from..to).contains(due)) {
                took.push(at.saturating_duration_since(due));
            }
        }
    }
    if took.is_empty() {
        return Err(BenchError::Incomplete("nothing was copied in a round".to_owned()));
    }
    let beyond = took.len() - took.len() / 1_000;
    let (p50, p99) = (quantile_us(&mut took, 50), quantile_us(&mut took, 99));
    let p999 = took.get(beyond.saturating_sub(1)).map_or(0.0, |took| took.as_secs_f64() * 1e6);
    Ok(Quantiles([p50, p99, p999]))
}

fn bars(args: &HostDescribeArgs, rounds: &[(bool, Round)]) -> Vec<Bar> {
    let of = |asked: bool, figure: &dyn Fn(&Round) -> f64| -> Vec<f64> {
        rounds.iter().filter(|(is, _)| *is == asked).map(|(_, round)| figure(round)).collect()
    };
    let none = (&[Side::default()][..], &[][..]);
    let mut bars = Vec::new();
    type Pick = fn(&Round) -> Quantiles;
    let latencies: [(&str, Pick); 3] = [
        ("received to appended", |it| it.appended),
        ("at the source to in the copy", |it| it.copied),
        ("fetch to first byte", |it| it.fetched),
    ];
    for (latency, pick) in latencies {
        for (at, name) in NAMES.iter().enumerate() {
            let figure = |round: &Round| pick(round).0.get(at).copied().unwrap_or(0.0);
            let (asked, silent) = (of(true, &figure), of(false, &figure));
            let (with, without) = (median(asked.clone()), median(silent.clone()));
            println!(
                "{latency}, {name}: {with:.0} us {} asked, {without:.0} us {} silent",
                spread(&asked),
                spread(&silent),
            );
            let is_held = *name == "p99" && latency != "fetch to first byte";
            let limit = if is_held { Limit::AtMost(1.1) } else { Limit::None };
            let what = format!("{latency}, {name}, asked / silent");
            let bar = Bar::new(BAR, what, limit, none, |_, _| with / without.max(1e-9));
            bars.push(bar.with("asked_us", asked).with("silent_us", silent));
        }
    }
    for (what, asked, figure) in [
        ("calls a second", true, (|it: &Round| it.calls) as fn(&Round) -> f64),
        ("a call, p50, ms", true, |it| it.call_us[0] / 1e3),
        ("a call, p99, ms", true, |it| it.call_us[1] / 1e3),
        ("MB/s, asked", true, |it| it.megabytes_per_second),
        ("MB/s, silent", false, |it| it.megabytes_per_second),
        ("control thread, % of a core, asked", true, |it| it.control_percent),
        ("control thread, % of a core, silent", false, |it| it.control_percent),
    ] {
        let values = of(asked, &figure);
        let what = format!("{what} ({} partitions)", args.partitions);
        bars.push(Bar::new(BAR, what, Limit::None, none, |_, _| median(values)));
    }
    bars
}

/// The least and the most.
fn spread(values: &[f64]) -> String {
    let of = |better: fn(f64, f64) -> f64| values.iter().copied().reduce(better).unwrap_or(0.0);
    format!("({:.0} to {:.0})", of(f64::min), of(f64::max))
}

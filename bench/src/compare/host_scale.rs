//! A mirroring host with very many partitions: create, rest, work, stop, restart, kill, restart.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use heliostat_io::admin::MirrorDescription;

use super::host::{Held, Host, Source};
use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::host::load;
use crate::place::{Place, SINK_CPU, SOURCE_CPU};
use crate::role::Standing;
use crate::side::{Side, approximate, median};

/// Arguments of `host-scale`.
#[derive(Args, Debug)]
pub(crate) struct HostScaleArgs {
    /// Partitions of the mirror.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    partitions: u32,
    /// Partitions of each topic.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    per_topic: u32,
    /// Partitions that data comes to, once all are followed.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    active: u32,
    /// Bytes a second over all of these.
    #[arg(long, value_name = "BYTES", default_value_t = 1_000_000)]
    rate: u32,
    /// Longest time until all are followed.
    #[arg(long, value_name = "SECONDS", default_value_t = 1_800)]
    ready_seconds: u64,
    /// Seconds at rest, and seconds at work, that are measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    seconds: u64,
    /// Host and source on a processor each; otherwise both have all.
    #[arg(long)]
    pinned: bool,
    /// Where the host's log dir is; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// At the end all topics are stopped, as for a failover, and started again.
    #[arg(long)]
    failover: bool,
    /// A property of the host, `key=value`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

/// Bars of the host with very many partitions.
const BAR: u8 = 17;
/// Descriptions and scrapes that a median is taken of.
const ASKED: usize = 3;

/// The lines of the table.
#[derive(Debug)]
struct Lines {
    partitions: u32,
    bars: Vec<Bar>,
}

impl Lines {
    fn add(&mut self, what: &str, limit: Limit, value: f64, side: Side) {
        // Other work on the machine tells more about a time than the time does.
        let load = load();
        let name = format!("{what} (load {})", load.first().copied().unwrap_or_default());
        let bar = Bar::new(BAR, name, limit, (&[side], &[]), |_, _| value);
        println!("{} partitions: {}: {value:.3}", self.partitions, bar.name);
        self.bars.push(bar.with("load", load));
    }

    fn figure(&mut self, what: &str, value: f64) {
        self.add(what, Limit::None, value, Side::default());
    }
}

pub(super) fn run(args: &HostScaleArgs) -> Result<Vec<Bar>, BenchError> {
    let place = Place::new(args.dir.as_deref())?;
    let dir = place.named("host");
    let cpu = |cpu| args.pinned.then_some(cpu);
    let held = Held {
        partitions: args.partitions,
        per_topic: args.per_topic,
        records: 1,
        active: args.active,
        rate: args.rate,
    };
    let mut source = Source::start(cpu(SOURCE_CPU), held)?;
    let mut lines = Lines { partitions: args.partitions, bars: Vec::new() };
    let start = || Host::start(cpu(SINK_CPU), &dir, &args.sets);

    let host = begin(args, start()?, &source, &dir, &mut lines)?;
    let host = work(args, host, &mut source, &mut lines)?;
    lines.figure("clean stop, s", host.stop()?);
    let host = again(args, &start, &mut lines, "a clean stop", Limit::AtMost(30.0))?;
    // Dropped: killed.
    drop(host);
    let mut host = again(args, &start, &mut lines, "kill -9", Limit::None)?;
    if args.failover {
        fail_over(args, &mut host, &mut lines)?;
    }
    lines.figure("clean stop after that, s", host.stop()?);
    drop(source);
    Ok(lines.bars)
}

/// From create until all are followed, and what that leaves.
fn begin(
    args: &HostScaleArgs,
    mut host: Host,
    source: &Source,
    dir: &Path,
    lines: &mut Lines,
) -> Result<Host, BenchError> {
    let wanted = usize::try_from(args.partitions).unwrap_or(usize::MAX);
    let within = Duration::from_secs(args.ready_seconds);
    let created = Instant::now();
    host.create(source)?;
    let started = Instant::now();
    host.start_topics(&[])?;
    lines.figure("start, answered, s", started.elapsed().as_secs_f64());
    let mirroring = host.until("all MIRRORING", within, |it| it.is_in("MIRRORING") == wanted)?;
    lines.figure("create to all MIRRORING, s", (mirroring - created).as_secs_f64());
    lines.figure("start to all MIRRORING, s", (mirroring - started).as_secs_f64());
    let followed = host.until("all followed", within, |it| is_ready(it, wanted))?;
    let (_, peak) = host.memory();
    let side = Side { rss_bytes: peak, ..Side::default() };
    let took = (followed - created).as_secs_f64();
    lines.add("create to all followed and filled, s", Limit::None, took, side);
    lines.figure("the same, CPU s", host.cpu_seconds());
    lines.figure("the same, CPU s of the control thread", host.look()?.control_cpu_seconds);
    lines.figure("peak resident, MiB", approximate(peak >> 20));
    lines.figure("__cluster_metadata-0, MB", megabytes(dir, "__cluster_metadata-")?);
    lines.figure("__mirror_state-*, MB", megabytes(dir, "__mirror_state-")?);
    Ok(host)
}

/// At rest, and with data coming to some.
fn work(
    args: &HostScaleArgs,
    mut host: Host,
    source: &mut Source,
    lines: &mut Lines,
) -> Result<Host, BenchError> {
    // What is still to be done about the last ones: syncs, checkpoints.
    std::thread::sleep(Duration::from_secs(args.seconds));
    let (percent, control, _) = busy(args, &mut host)?;
    lines.figure("at rest: resident, MiB", approximate(host.memory().0 >> 20));
    lines.figure("at rest: % of a core", percent);
    lines.figure("at rest: % of a core, control thread", control);
    ask(&host, lines, "at rest")?;
    source.begin()?;
    std::thread::sleep(Duration::from_secs(5));
    let (percent, control, standing) = busy(args, &mut host)?;
    let rate = approximate(standing.bytes_appended) / 1e6 / approximate(args.seconds);
    lines.figure("at work: MB/s", rate);
    lines.figure("at work: % of a core", percent);
    lines.figure("at work: % of a core, control thread", control);
    lines.figure("at work: received to appended, p99, ms", standing.append.p99_us / 1e3);
    ask(&host, lines, "at work")?;
    Ok(host)
}

/// Processor time of the whole host and of its control thread in percent, and how it stands.
fn busy(args: &HostScaleArgs, host: &mut Host) -> Result<(f64, f64, Standing), BenchError> {
    let (before, cpu, begun) = (host.look()?, host.cpu_seconds(), Instant::now());
    std::thread::sleep(Duration::from_secs(args.seconds));
    let (after, cpu) = (host.look()?, host.cpu_seconds() - cpu);
    let share = |seconds: f64| 100.0 * seconds / begun.elapsed().as_secs_f64();
    let control = after.control_cpu_seconds - before.control_cpu_seconds;
    Ok((share(cpu), share(control), after))
}

fn ask(host: &Host, lines: &mut Lines, when: &str) -> Result<(), BenchError> {
    let (mut described, mut scraped) = (Vec::new(), Vec::new());
    for _ in 0..ASKED {
        let (seconds, description) = host.describe()?;
        described.push(seconds);
        check(&description, lines.partitions)?;
        scraped.push(host.scrape()?.0);
    }
    lines.figure(&format!("{when}: a describe, s"), median(described));
    lines.figure(&format!("{when}: /metrics, s"), median(scraped));
    Ok(())
}

/// All are stopped, and mirrored again.
fn fail_over(args: &HostScaleArgs, host: &mut Host, lines: &mut Lines) -> Result<(), BenchError> {
    let wanted = usize::try_from(args.partitions).unwrap_or(usize::MAX);
    let within = Duration::from_secs(args.ready_seconds);
    let (begun, cpu) = (Instant::now(), host.look()?.control_cpu_seconds);
    let topics: Vec<String> = host.describe()?.1.topics.into_keys().collect();
    host.stop_topics(&topics)?;
    let stopped = host.until("all STOPPED", within, |it| it.is_in("STOPPED") == wanted)?;
    lines.figure("stop of all topics to all STOPPED, s", (stopped - begun).as_secs_f64());
    let after = host.look()?.control_cpu_seconds;
    lines.figure("the same, CPU s of the control thread", after - cpu);
    let begun = Instant::now();
    host.start_topics(&topics)?;
    let followed = host.until("all followed", within, |it| is_ready(it, wanted))?;
    lines.figure("start of all again to all followed, s", (followed - begun).as_secs_f64());
    let control = host.look()?.control_cpu_seconds - after;
    lines.figure("the same, CPU s of the control thread", control);
    Ok(())
}

/// A start over what is there.
fn again(
    args: &HostScaleArgs,
    start: &impl Fn() -> Result<Host, BenchError>,
    lines: &mut Lines,
    after: &str,
    limit: Limit,
) -> Result<Host, BenchError> {
    let wanted = usize::try_from(args.partitions).unwrap_or(usize::MAX);
    let within = Duration::from_secs(args.ready_seconds);
    let begun = Instant::now();
    let mut host = start()?;
    lines.figure(&format!("start after {after}: it listens, s"), begun.elapsed().as_secs_f64());
    let mirroring = host.until("all MIRRORING", within, |it| it.is_in("MIRRORING") == wanted)?;
    let followed = host.until("all followed", within, |it| is_ready(it, wanted))?;
    let (side, cpu) = (Side { rss_bytes: host.memory().1, ..Side::default() }, host.cpu_seconds());
    let (mirroring, followed) =
        ((mirroring - begun).as_secs_f64(), (followed - begun).as_secs_f64());
    lines.figure(&format!("start after {after}: all MIRRORING, s"), mirroring);
    lines.add(&format!("start after {after}: all followed, s"), limit, followed, side);
    lines.figure(&format!("start after {after}: CPU s"), cpu);
    lines.figure(
        &format!("start after {after}: CPU s of the control thread"),
        host.look()?.control_cpu_seconds,
    );
    check(&host.describe()?.1, args.partitions)?;
    Ok(host)
}

/// Each is in MIRRORING, a shard has it, and it holds something.
fn is_ready(standing: &Standing, wanted: usize) -> bool {
    standing.is_in("MIRRORING") == wanted && standing.followed == wanted && standing.empty == 0
}

/// What the host says of each partition, not only of the sum.
fn check(description: &MirrorDescription, partitions: u32) -> Result<(), BenchError> {
    let all = || description.topics.values().flatten();
    let follows = |it: &&heliostat_io::admin::MirrorPartition| {
        it.state == "MIRRORING" && it.destination_offset.is_some() && it.error_message.is_none()
    };
    let count = u32::try_from(all().filter(follows).count()).unwrap_or(u32::MAX);
    if count == partitions {
        return Ok(());
    }
    let other = all().find(|it| !follows(it));
    Err(BenchError::Incomplete(format!("{count} of {partitions} are described so: {other:?}")))
}

/// Size of the files in directories of the log dir whose names begin so.
fn megabytes(dir: &Path, prefix: &str) -> Result<f64, BenchError> {
    let mut bytes = 0;
    let files = |dir: &Path| -> std::io::Result<Vec<std::fs::DirEntry>> {
        std::fs::read_dir(dir)?.collect()
    };
    for entry in files(dir).map_err(BenchError::file(dir))? {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            let path = entry.path();
            for file in files(&path).map_err(BenchError::file(&path))? {
                bytes += file.metadata().map_err(BenchError::file(&path))?.len();
            }
        }
    }
    Ok(approximate(bytes) / 1e6)
}

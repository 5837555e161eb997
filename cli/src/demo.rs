//! `heliostat demo`

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use heliostat_core::config::MirrorConfig;
use heliostat_core::log::config::LogConfig;
use heliostat_core::log::names;
use heliostat_core::select::TopicSelector;
use heliostat_core::types::BrokerId;
use heliostat_io::control::{Ended, JobConfig, Status};
use heliostat_io::disk::disk_space;
use heliostat_io::generate::{DemoSpec, generate};
use heliostat_io::listener::hosted::{Catalog, CatalogConfig};
use heliostat_io::listener::{Listener, ListenerConfig};
use heliostat_io::source_client::{ClientConfig, HostPort};
use heliostat_io::verify::{Outcome, VerifyOptions};

use crate::failure::Failure;
use crate::mirror::{is_success, show_status};
use crate::output::{Meter, approximate, rate, say, size, span};
use crate::process::{cpu_time, cpu_time_of_threads, peak_memory, reset_peak};
use crate::run_job::{Finished, Next, run_job};
use crate::shards::default_shards;
use crate::verify::{describe, summary, verify_with_meter};

/// Equal seeds make equal topics.
const SEED: u64 = 1_279;
/// The source's node ID.
const NODE: BrokerId = BrokerId(1);
/// Longest time for a clean stop.
const STOP_WITHIN: Duration = Duration::from_secs(60);
/// Room beyond source and copy.
const ROOM_BYTES: u64 = 256 << 20;
/// Names of the listener's threads begin so.
const LISTENER_THREADS: &str = "listener";

/// Arguments of `demo`.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Bytes to generate, about.
    #[arg(long, value_name = "BYTES", default_value_t = 512 << 20)]
    bytes: u64,

    /// Partitions of each of the seven topics.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(i32).range(1..=1_000))]
    partitions: i32,

    /// Shards; default: one a core, less one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    shards: Option<u16>,

    /// Where to work; default: a new directory for temporary files. That of an earlier demo
    /// is used again: its source is served, its copy brought up to date and verified.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Leave source and copy where they are.
    #[arg(long)]
    keep: bool,
}

/// The directory of a demo; removed at the end unless it is to stay.
struct Place {
    root: PathBuf,
    keep: bool,
}

impl Place {
    fn new(args: &DemoArgs) -> Result<Self, Failure> {
        let root = args.dir.clone().unwrap_or_else(|| {
            std::env::temp_dir().join(format!("heliostat-demo-{}", std::process::id()))
        });
        let name = root.display().to_string();
        let is_earlier = root.join("source").join(names::META_PROPERTIES).exists();
        let is_used = fs::read_dir(&root).is_ok_and(|mut entries| entries.next().is_some());
        if is_used && !is_earlier {
            let failure = Failure::new(format!("{name} holds something else than a demo"));
            return Err(failure.remedy("name an empty or a new directory with --dir"));
        }
        for dir in ["source", "copy"] {
            fs::create_dir_all(root.join(dir)).map_err(|error| {
                let failure = Failure::from_error(&name, error);
                failure.remedy("name a directory that this user can write with --dir")
            })?;
        }
        let needed = args.bytes.saturating_mul(2).saturating_add(ROOM_BYTES);
        if let Ok(room) = disk_space(&root)
            && room.free_bytes < needed
            && !is_earlier
        {
            let free = size(room.free_bytes);
            let failure = Failure::new(format!("{name}: {free} free, {} needed", size(needed)));
            // Nothing of it is in use yet.
            let _ = fs::remove_dir_all(&root);
            return Err(failure.remedy("name another directory with --dir, or fewer --bytes"));
        }
        Ok(Self { root, keep: args.keep })
    }

    fn source(&self) -> PathBuf {
        self.root.join("source")
    }

    fn copy(&self) -> PathBuf {
        self.root.join("copy")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.keep {
            // Nothing depends on it.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// Figures of the mirror's run.
struct Figures {
    finished: Finished,
    cpu: Duration,
    source_cpu: Duration,
    peak: Option<u64>,
}

/// Generates, mirrors, verifies; `false` if the copy is not identical.
pub(crate) fn run(args: &DemoArgs) -> Result<bool, Failure> {
    let place = Place::new(args)?;
    let catalog = Arc::new(open_source(args, &place.source())?);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = Listener::start(Arc::clone(&catalog), ListenerConfig::new(address, NODE));
    let listener = listener.map_err(|error| Failure::from_error("embedded source", error))?;
    let address = listener.address();
    let host = HostPort { host: address.ip().to_string().into(), port: address.port() };

    let selector =
        TopicSelector::new(".*", "").map_err(|error| Failure::from_error("demo", error))?;
    let figures = mirror(args, &place, host.clone(), selector)?;
    if figures.finished.report.ended != Ended::CaughtUp {
        say("stopped before everything was copied")?;
        return Ok(false);
    }
    let verified = verify_copy(&place.copy(), host);
    listener.stop();
    let (is_equal, lines) = verified?;
    print_summary(&figures, &lines)?;
    if args.keep {
        say(format!("source: {}", place.source().display()))?;
        say(format!("copy:   {}", place.copy().display()))?;
        say(format!(
            "again:  heliostat demo --keep --dir {}; files: heliostat dump-log --files {}",
            place.root.display(),
            place.copy().join("demo.lz4-0").display(),
        ))?;
    }
    Ok(is_equal && is_success(&figures.finished))
}

/// The source's topics, made now or by an earlier demo.
fn open_source(args: &DemoArgs, dir: &Path) -> Result<Catalog, Failure> {
    let failed = |error| Failure::from_error("embedded source", error);
    let is_earlier = dir.join(names::META_PROPERTIES).exists();
    let config = CatalogConfig {
        cluster_id: "heliostat-demo-cluster".to_owned(),
        node_id: NODE,
        log: LogConfig::default(),
    };
    let catalog = Catalog::open(dir, config).map_err(failed)?;
    if is_earlier {
        say(format!("source of an earlier demo in {}", dir.display()))?;
        return Ok(catalog);
    }
    let mut meter = Meter::new("generate");
    let (start, mut done) = (Instant::now(), 0_u64);
    let spec = DemoSpec { seed: SEED, bytes: args.bytes, partitions: args.partitions };
    let topics = generate(&catalog, &spec, &mut |bytes| {
        done = done.saturating_add(bytes);
        let text = format!("{} {}", size(done), rate(done, start.elapsed()));
        meter.show(done, args.bytes, &text);
    });
    meter.done();
    let topics = topics.map_err(|error| Failure::from_error("embedded source", error))?;
    let names: Vec<_> = topics.iter().map(|topic| &*topic.name).collect();
    say(format!(
        "generated {} in {} topics of {} partitions in {}: {}",
        size(done),
        topics.len(),
        args.partitions,
        span(start.elapsed()),
        names.join(", "),
    ))?;
    Ok(catalog)
}

fn mirror(
    args: &DemoArgs,
    place: &Place,
    host: HostPort,
    selector: TopicSelector,
) -> Result<Figures, Failure> {
    let config = JobConfig {
        log_dir: place.copy(),
        mirror: MirrorConfig::default(),
        bootstrap: vec![host],
        selector,
        shards: args.shards.unwrap_or_else(default_shards).into(),
        follow: false,
        stop_within: STOP_WITHIN,
    };
    reset_peak();
    let (cpu, source_cpu) = (cpu_time(), cpu_time_of_threads(LISTENER_THREADS));
    let mut meter = Meter::new("mirror");
    let notes = meter.notes();
    let mut show = |status: &Status| {
        show_status(&mut meter, status);
        Next::GoOn
    };
    let finished = run_job(config, None, &notes, &mut show);
    meter.done();
    let finished = finished?;
    let source_cpu = cpu_time_of_threads(LISTENER_THREADS).saturating_sub(source_cpu);
    let cpu = cpu_time().saturating_sub(cpu).saturating_sub(source_cpu);
    Ok(Figures { finished, cpu, source_cpu, peak: peak_memory() })
}

/// Whether the copy is identical, and what to say of it.
fn verify_copy(dir: &Path, host: HostPort) -> Result<(bool, Vec<String>), Failure> {
    let options = VerifyOptions {
        source: ClientConfig::new(vec![host]),
        dir: dir.to_path_buf(),
        topics: None,
        check_content: true,
    };
    let start = Instant::now();
    let report = verify_with_meter(&options)?;
    let telling =
        report.partitions.iter().filter(|p| p.outcome != Outcome::Equal || !p.warnings.is_empty());
    let mut lines: Vec<String> = telling.map(|p| describe(p).trim_end().to_owned()).collect();
    lines.push(summary(&report, start.elapsed()));
    Ok((report.agrees(true), lines))
}

fn print_summary(figures: &Figures, lines: &[String]) -> Result<(), Failure> {
    let status = &figures.finished.report.status;
    let (stats, time) = (&status.shards.stats, status.elapsed);
    let bytes = stats.append.bytes_appended;
    say(format!(
        "mirrored {} in {} batches in {}: {}",
        size(bytes),
        stats.append.batches_appended,
        span(time),
        rate(bytes, time),
    ))?;
    say(format!(
        "  processor time {:.2} s for the mirror, {:.2} s for the source; peak memory {} of both",
        figures.cpu.as_secs_f64(),
        figures.source_cpu.as_secs_f64(),
        figures.peak.map_or_else(|| "unknown".to_owned(), size),
    ))?;
    let percentiles = |of: &dyn Fn(f64) -> u64| {
        let shown = |at| format!("{:.1}", approximate(of(at)) / 1e3);
        format!("p50 {}, p99 {}, p99.9 {} ms", shown(0.5), shown(0.99), shown(0.999))
    };
    let fetch = |at| status.shards.fetch_latency_us.value_at_quantile(at);
    let append = |at| status.shards.append_latency_us.value_at_quantile(at);
    say(format!("  fetch round trip     {}", percentiles(&fetch)))?;
    say(format!("  receive to appended  {}", percentiles(&append)))?;
    let copied = approximate(stats.append.bytes_copied) / approximate(bytes.max(1));
    say(format!("  copied bytes {:.2} % of appended", copied * 100.0))?;
    if let Some(bound) = stats.spent.bound() {
        say(format!("  bound by the {bound}"))?;
    }
    for error in &figures.finished.shard_errors {
        say(format!("  FAILED shard: {error}"))?;
    }
    for line in lines {
        say(line)?;
    }
    Ok(())
}

//! `heliostat bench`

mod path;
mod report;
pub(crate) mod source;

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use heliostat_core::config::MirrorConfig;
use heliostat_core::select::TopicSelector;
use heliostat_io::control::{Ended, JobConfig, Status};
use heliostat_io::path_emulator::End;

use self::path::{Path, PathArgs};
use self::report::{Round, Variant};
use self::source::{SourceArgs, SourceProcess};
use crate::failure::Failure;
use crate::mirror::show_status;
use crate::output::{Meter, say};
use crate::process::cpu_time;
use crate::run_job::run_job;

/// The topic that is copied.
const TOPIC: &str = "bench";
/// Longest time for a clean stop.
const STOP_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);

/// Arguments of `bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Bytes to copy in each round, about; 1 GiB by default, 128 MiB over a path.
    #[arg(long, value_name = "BYTES")]
    bytes: Option<u64>,

    /// Partitions of the topic.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(i32).range(1..=100_000))]
    partitions: i32,

    /// Size of a batch; its records have values of 1 KiB that do not compress.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10, value_parser = clap::value_parser!(u32).range(1..=64 << 20))]
    batch_bytes: u32,

    /// Bytes of a partition in one answer, `mirror.fetch.max.bytes`: several are several variants.
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_value = "8388608")]
    fetch_bytes: Vec<u32>,

    /// How the copy is written: several are several variants.
    #[arg(long, value_name = "MODE,…", value_delimiter = ',', default_value = "auto")]
    append: Vec<Append>,

    /// Shards.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    shards: u16,

    /// Times that each variant is measured; 5 by default, 1 over a path.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: Option<u16>,

    /// Where source and copy are; default: a new directory for temporary files.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    path: PathArgs,

    /// `socket.send.buffer.bytes` of the source; -1 leaves it to the system. Kafka's default
    /// bounds what a connection carries over a long path.
    #[arg(long, value_name = "BYTES", default_value_t = 100 << 10, allow_negative_numbers = true)]
    source_send_buffer: i64,

    /// Print JSON: every round with its raw figures.
    #[arg(long)]
    json: bool,
}

impl BenchArgs {
    /// A lossy path carries a few MB/s, so that the defaults of a loopback would take an hour.
    fn bytes(&self) -> u64 {
        self.bytes.unwrap_or(if self.path.is_asked_for() { 128 << 20 } else { 1 << 30 })
    }

    fn rounds(&self) -> u16 {
        self.rounds.unwrap_or(if self.path.is_asked_for() { 1 } else { 5 })
    }
}

/// `append.direct`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Append {
    /// By the size of what arrives.
    Auto,
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Buffered,
}

impl Append {
    /// Value of `append.direct`.
    fn value(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Direct => "true",
            Self::Buffered => "false",
        }
    }
}

/// A directory that goes with the benchmark.
struct Place(PathBuf);

impl Place {
    fn new(named: Option<&std::path::Path>) -> Result<Self, Failure> {
        let base = named.map_or_else(std::env::temp_dir, std::path::Path::to_path_buf);
        let root = base.join(format!("heliostat-bench-{}", std::process::id()));
        fs::create_dir_all(root.join("source")).map_err(|error| {
            let failure = Failure::from_error(root.display().to_string(), error);
            failure.remedy("name a directory that this user can write with --dir")
        })?;
        Ok(Self(root))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Nothing depends on it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Measures and prints; `false` if a round did not copy everything.
pub(crate) fn run(args: &BenchArgs) -> Result<bool, Failure> {
    let place = Place::new(args.dir.as_deref())?;
    // Before all threads: they are to be at the near end too.
    let path = args.path.start()?;
    let far = path.as_ref().map(|path| &path.emulator);
    let source = SourceProcess::start(&SourceArgs {
        dir: place.0.join("source"),
        bytes: args.bytes(),
        partitions: args.partitions,
        batch_bytes: usize::try_from(args.batch_bytes).unwrap_or(usize::MAX),
        send_buffer: args.source_send_buffer,
        listen: far.map_or(Ipv4Addr::LOCALHOST, |far| far.address(End::Far)),
        netns: far.map(|far| far.namespace(End::Far)),
    })?;
    let mut rounds = Vec::new();
    for number in 0..args.rounds() {
        // In turn, so that what changes on the machine meanwhile meets all alike.
        for &append in &args.append {
            for &fetch_bytes in &args.fetch_bytes {
                let variant = Variant { append, fetch_bytes };
                let Some(round) = measure(args, &place, (&source, path.as_ref()), variant, number)?
                else {
                    say("stopped before everything was copied")?;
                    return Ok(false);
                };
                rounds.push(round);
            }
        }
    }
    if args.json {
        report::json(args, &rounds, path.as_ref())?;
    } else {
        report::table(args, &rounds)?;
        path.iter().try_for_each(Path::say)?;
    }
    Ok(true)
}

/// Copies everything once; `None` if it was stopped.
fn measure(
    args: &BenchArgs,
    place: &Place,
    (source, path): (&SourceProcess, Option<&Path>),
    variant: Variant,
    number: u16,
) -> Result<Option<Round>, Failure> {
    let copy = place.0.join("copy");
    let pairs = [
        ("append.direct", variant.append.value().to_owned()),
        ("mirror.fetch.max.bytes", variant.fetch_bytes.to_string()),
    ];
    let mirror = MirrorConfig::from_pairs(pairs.map(|(key, value)| (key.to_owned(), value)))
        .map_err(|error| Failure::from_error("bench", error))?;
    let config = JobConfig {
        log_dir: copy.clone(),
        mirror,
        bootstrap: vec![source.address.clone()],
        selector: TopicSelector::new(TOPIC, "")
            .map_err(|error| Failure::from_error("bench", error))?,
        shards: args.shards.into(),
        follow: false,
        stop_within: STOP_WITHIN,
    };
    let mut meter = Meter::new("bench");
    let notes = meter.no_notes();
    let mut show = |status: &Status| show_status(&mut meter, status);
    let own_cpu = || cpu_time().saturating_sub(Path::cpu(path));
    let (begun, cpu) = (Instant::now(), own_cpu());
    let finished = run_job(config, None, &notes, &mut show);
    let (took, cpu) = (begun.elapsed(), own_cpu().saturating_sub(cpu));
    meter.done();
    let report = finished?.report;
    // Its pages must not be written back during the next round.
    fs::remove_dir_all(&copy)
        .map_err(|error| Failure::from_error(copy.display().to_string(), error))?;
    Ok((report.ended == Ended::CaughtUp && report.clean)
        .then(|| Round::new(variant, number, took, cpu, &report.status)))
}

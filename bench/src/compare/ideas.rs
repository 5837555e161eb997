//! What each idea for the append path is worth, alone, where nothing is in its way: the direct
//! loop with its checksum, and the same with one thing done otherwise.

use std::path::PathBuf;

use clap::Args;

use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::place::{Place, SINK_CPU, SOURCE_CPU};
use crate::raw::Port;
use crate::role::{self, Child};
use crate::side::Side;

/// Arguments of `ideas`.
#[derive(Args, Debug)]
pub(crate) struct IdeasArgs {
    /// Bytes that every side moves, about.
    #[arg(long, value_name = "BYTES", default_value_t = 2_000_000_000)]
    bytes: u64,
    /// Files.
    #[arg(long, value_name = "N", default_value_t = 24)]
    partitions: u32,
    /// Runs of each side, in turn.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Where source and files are; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What is done otherwise, and the arguments of the role that say so. The first is the loop as
/// it is.
const IDEAS: [(&str, &[&str]); 11] = [
    ("as it is", &[]),
    ("registered buffers", &["--registered"]),
    ("writes of 256 KiB", &["--write-bytes=262144"]),
    ("writes of 4 MiB", &["--write-bytes=4194304"]),
    ("huge pages", &["--huge"]),
    ("completions taken eight at a time", &["--batched"]),
    ("woken at 1 MiB (SO_RCVLOWAT)", &["--low-water=1048576"]),
    ("received by the ring, a buffer at a time", &["--ring-receive"]),
    ("crc-fast", &["--checksum=crc-fast"]),
    ("no checksum", &["--checksum=none"]),
    ("registered, huge, ring receive", &["--registered", "--huge", "--ring-receive"]),
];

pub(super) fn run(args: &IdeasArgs) -> Result<Vec<Bar>, BenchError> {
    let place = Place::new(args.dir.as_deref())?;
    let source = [
        "source".to_owned(),
        format!("--dir={}", place.named("source").display()),
        format!("--bytes={}", args.bytes),
        format!("--partitions={}", args.partitions),
        "--batch-bytes=65536".to_owned(),
        "--raw".to_owned(),
    ];
    let mut source = Child::start(Some(SOURCE_CPU), &source)?;
    let _: String = source.hear()?;
    let port: Port = source.hear()?;
    let mut runs = [const { Vec::new() }; IDEAS.len()];
    for round in 0..args.rounds {
        for turn in 0..IDEAS.len() {
            let idea = (round + turn) % IDEAS.len();
            let mut role = vec![
                "idea".to_owned(),
                format!("--source={}", port.address),
                format!("--bytes={}", port.bytes),
                format!("--to={}", place.named("copy").display()),
            ];
            role.extend(IDEAS[idea].1.iter().map(|&argument| argument.to_owned()));
            runs[idea].push(role::run::<Side>(Some(SINK_CPU), &role)?);
            place.clear("copy")?;
        }
    }
    source.end()?;
    let [base, ideas @ ..] = &runs;
    let named = || IDEAS.iter().skip(1).zip(ideas);
    let cost = named().map(|((idea, _), runs)| {
        Bar::new(3, format!("CPU s/GB, {idea}"), Limit::None, (runs, base), |with, without| {
            with.cpu_seconds_per_gigabyte() / without.cpu_seconds_per_gigabyte()
        })
    });
    let speed = named().map(|((idea, _), runs)| {
        Bar::new(3, format!("MB/s, {idea}"), Limit::None, (runs, base), |with, without| {
            with.megabytes_per_second() / without.megabytes_per_second()
        })
    });
    Ok(cost.chain(speed).collect())
}

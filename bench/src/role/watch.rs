//! The product's own job that follows a source, watched from outside: what counts is what its
//! segment files hold.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::{SeekFrom, seek};
use serde::{Deserialize, Serialize};

use super::mirror::MirrorArgs;
use super::tell;
use crate::clock::wait_until;
use crate::error::BenchError;
use crate::process::{cpu_seconds, peak_rss};
use crate::side::{Side, approximate};

/// Between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Before the first window: connections and files are being opened, a bucket fills.
const WARM_UP: Duration = Duration::from_secs(3);
/// Longest wait for `--until`.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What it copies, and what is watched.
#[derive(Args, Debug)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    mirror: MirrorArgs,
    /// The topic that is watched.
    #[arg(long)]
    topic: String,
    /// End when the topic's files hold so much.
    #[arg(long, default_value_t = 0)]
    until: u64,
    /// Another topic, whose copy must not be complete by then.
    #[arg(long)]
    unfinished: Option<String>,
    /// What it holds at the source.
    #[arg(long, default_value_t = 0)]
    unfinished_bytes: u64,
    /// End after so many windows instead.
    #[arg(long, default_value_t = 0)]
    windows: u32,
    /// Length of a window.
    #[arg(long, default_value_t = 10)]
    window_seconds: u32,
}

/// What was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Watched {
    /// Bytes of the watched topic; cost of the whole job.
    pub(crate) side: Side,
    /// Of each window, in bytes a second.
    pub(crate) rates: Vec<f64>,
}

pub(super) fn play(args: &WatchArgs) -> Result<(), BenchError> {
    let copy = args.mirror.copy();
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let mirror = copy.follow()?;
    let dir = copy.dir();
    let rates = windows(args, dir, begun)?;
    while written(dir, &args.topic)? < args.until {
        mirror.check()?;
        if begun.elapsed() > TIMEOUT {
            let what = format!("{} bytes of {} within {TIMEOUT:?}", args.until, args.topic);
            return Err(BenchError::Incomplete(what));
        }
        wait_until(Instant::now() + LOOK_EVERY);
    }
    let (seconds, cpu_seconds) = (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let bytes = written(dir, &args.topic)?;
    let rss_bytes = peak_rss(std::process::id()).unwrap_or(0);
    if let Some(topic) = &args.unfinished
        && written(dir, topic)? >= args.unfinished_bytes
    {
        let why = format!("{topic} was copied before {}; give it more bytes", args.topic);
        return Err(BenchError::Incomplete(why));
    }
    mirror.end()?;
    tell(&Watched { side: Side { bytes, seconds, cpu_seconds, rss_bytes }, rates })
}

fn windows(args: &WatchArgs, dir: &Path, begun: Instant) -> Result<Vec<f64>, BenchError> {
    let mut rates = Vec::new();
    let mut last: Option<(Instant, u64)> = None;
    for number in 0..=args.windows {
        if args.windows == 0 {
            break;
        }
        wait_until(begun + WARM_UP + Duration::from_secs(args.window_seconds.into()) * number);
        let (now, bytes) = (Instant::now(), written(dir, &args.topic)?);
        if let Some((then, before)) = last.replace((now, bytes)) {
            let grown = approximate(bytes.saturating_sub(before));
            rates.push(grown / now.duration_since(then).as_secs_f64());
        }
    }
    Ok(rates)
}

/// What the segment files of `topic` hold. Of a preallocated file only what was written counts:
/// the rest is a hole to whoever seeks one.
fn written(dir: &Path, topic: &str) -> Result<u64, BenchError> {
    let mut bytes = 0;
    for partition in entries(dir)? {
        let name = partition.file_name().unwrap_or_default().to_string_lossy();
        let of_topic = name.rsplit_once('-').is_some_and(|(name, _)| name == topic);
        if !of_topic {
            continue;
        }
        for path in entries(&partition)? {
            if path.extension().is_some_and(|extension| extension == "log") {
                bytes += data(&path).map_err(BenchError::file(&path))?;
            }
        }
    }
    Ok(bytes)
}

fn data(path: &Path) -> io::Result<u64> {
    match seek(File::open(path)?, SeekFrom::Hole(0)) {
        // Of an empty file there is nothing to seek in.
        Err(rustix::io::Errno::NXIO) => Ok(0),
        outcome => Ok(outcome?),
    }
}

/// Nothing of a directory that does not exist yet.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let mut paths = Vec::new();
    let found = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(paths),
        outcome => outcome.map_err(BenchError::file(dir))?,
    };
    for entry in found {
        paths.push(entry.map_err(BenchError::file(dir))?.path());
    }
    Ok(paths)
}

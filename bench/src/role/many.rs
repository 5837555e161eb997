//! A loop that appends to very many files, for a time.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::Args;
use heliostat_io::preflight::raise_open_files;

use super::tell;
use super::timed::Window;
use crate::error::BenchError;
use crate::loops::Many;
use crate::process::peak_rss;
use crate::raw::Port;
use crate::side::Side;

/// What it moves, and for how long.
#[derive(Args, Debug)]
pub(super) struct ManyArgs {
    /// The raw port.
    #[arg(long)]
    source: SocketAddr,
    /// Directory of the files; they are made if they are not there.
    #[arg(long)]
    to: PathBuf,
    /// Files.
    #[arg(long)]
    partitions: u32,
    /// Files that are open at a time; as many as the product's.
    #[arg(long, default_value_t = 4_096)]
    open_max: usize,
    /// Sync nothing.
    #[arg(long)]
    unsynced: bool,
    #[command(flatten)]
    window: Window,
}

pub(super) fn play(args: &ManyArgs) -> Result<(), BenchError> {
    raise_open_files();
    Many::prepare(&args.to, args.partitions).map_err(BenchError::system("make many files"))?;
    let mut stream = Port::connect(args.source).map_err(BenchError::system("connect"))?;
    let mut many = Many::new(args.to.clone(), args.open_max, !args.unsynced);
    let (bytes, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, ended) = (Arc::clone(&bytes), Arc::clone(&over));
    // It ends with the process: the source sends for ever.
    std::thread::spawn(move || {
        let count = |len| _ = counted.fetch_add(len, Ordering::Relaxed);
        if let Err(error) = many.drain(&mut stream, count) {
            eprintln!("the loop over many files: {error}");
        }
        ended.store(true, Ordering::Relaxed);
    });
    let (bytes, seconds, cpu_seconds) = args
        .window
        .measure(|| Ok(bytes.load(Ordering::Relaxed)), || over.load(Ordering::Relaxed))?;
    let rss_bytes = peak_rss(std::process::id()).unwrap_or(0);
    tell(&Side { bytes, seconds, cpu_seconds, rss_bytes })
}

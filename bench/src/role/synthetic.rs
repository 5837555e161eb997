//! The synthetic source.

use std::io::{self, BufRead};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use clap::Args;

use super::tell;
use crate::clock::monotonic_ns;
use crate::error::BenchError;
use crate::synthetic::{Offered, Served, SyntheticLog, serve};

/// What it holds.
#[derive(Args, Clone, Debug)]
pub(crate) struct SyntheticArgs {
    /// Partitions.
    #[arg(long)]
    partitions: u64,
    /// Partitions of a topic.
    #[arg(long, default_value_t = 1_000)]
    per_topic: u64,
    /// Records of a batch.
    #[arg(long, default_value_t = 15)]
    records: u32,
    /// Size of a value.
    #[arg(long, default_value_t = 1_024)]
    value_bytes: usize,
    /// Batches that each partition holds from the start; or
    #[arg(long, default_value_t = 1)]
    stored: u64,
    /// bytes a second that come to all partitions once they are asked for; or
    #[arg(long)]
    rate: Option<f64>,
    /// one more than was fetched, for ever, once they are asked for.
    #[arg(long, conflicts_with = "rate")]
    turns: bool,
    /// With a rate: it begins with a line of input, and goes to the first so many partitions.
    #[arg(long, requires = "rate")]
    active: Option<u64>,
}

pub(super) fn play(args: &SyntheticArgs) -> Result<(), BenchError> {
    let offered = match args.rate {
        Some(rate) if args.active.is_some() => {
            let active = args.active.unwrap_or_default().max(1);
            Offered::Later { stored: args.stored, active, rate }
        }
        Some(rate) => Offered::Rate(rate),
        None if args.turns => Offered::Turns,
        None => Offered::Stored(args.stored),
    };
    let log = SyntheticLog::new(args.partitions, offered, args.records, args.value_bytes);
    let role = || "the synthetic source".to_owned();
    let log = log.map_err(|error| BenchError::Role { role: role(), why: error.to_string() })?;
    let told = Arc::new(OnceLock::new());
    let begins = Arc::clone(&told);
    std::thread::spawn(move || {
        for _ in io::stdin().lock().lines().map_while(Result::ok) {
            let begun = begins.get_or_init(Instant::now);
            // Nobody listens any more if this fails.
            let _ = tell(&monotonic_ns(*begun));
        }
        // The end of the input is the end of the measurement, however it went.
        std::process::exit(0);
    });
    let listening = |address: std::net::SocketAddr, raw: std::net::SocketAddr| {
        // Nobody listens any more if this fails.
        let _ = tell(&(address.to_string(), raw));
    };
    let served = Served { log, per_topic: args.per_topic, told };
    serve(served, listening).map_err(BenchError::system("serve"))
}

//! Hosts that mirror, over disks that fail and processes that die: the real logs, controller,
//! coordinator and alignment, and for each mirror a real shard, whose operations go to the disk of
//! its host and whose requests are answered from what the source shows its readers. What tasks and
//! threads do between is reduced to calls.
//!
//! `SIM_SEED=n` (decimal or 0x…) runs one seed, `SIM_SEEDS=n` so many from 0 on.

#![expect(clippy::expect_used, clippy::panic, reason = "the simulation fails like a test")]
#![expect(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "names of logs are spelled in one way"
)]

mod broker;
#[path = "../disk.rs"]
#[expect(dead_code, reason = "shared with the simulation of the log, which breaks more")]
mod disk;
mod engine;
mod example;
mod host;
mod job;
mod network;
mod operator;
mod oracle;
mod registry;
#[path = "../rng.rs"]
mod rng;
mod sabotage;
mod shown;
mod source;
mod store;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::host::Sabotage;
use crate::world::World;

const SEEDS: u64 = 1_000;
const STEPS: usize = 700;

/// What has to happen in one seed of five hundred at least, or a pass says little.
const FAULTS: [&str; 21] = [
    "answer lost",
    "batch refused",
    "begun anew",
    "call failed",
    "clean stop",
    "client wrote",
    "completed out of order",
    "crash",
    "cut to the last mirrored position",
    "died inside a call",
    "died with operations in flight",
    "disk full",
    "diverging epoch",
    "epoch fenced",
    "log abandoned",
    "short write",
    "shown more",
    "stopped",
    "sync failed",
    "unsynced change lost",
    "write failed",
];

/// Runs one seed; what went wrong, and how often each fault fired.
fn run_seed(seed: u64, sabotage: Sabotage) -> (Result<(), String>, BTreeMap<&'static str, u64>) {
    let mut world = World::new(seed, sabotage);
    let outcome = world.run(STEPS);
    let outcome = outcome
        .map_err(|what| format!("{what}\nbefore that: {:#?}", world.registry.borrow().trace));
    let mut counts = BTreeMap::new();
    for host in &world.hosts {
        let store = &host.disk.store;
        let of_host = host.disk.counts.iter().chain(&store.counts);
        for (name, count) in of_host.chain(&store.disk.faults.counts) {
            *counts.entry(*name).or_default() += *count;
        }
    }
    (outcome, counts)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[test]
fn hosts_keep_their_promises() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(SEEDS),
    };
    let total = seeds.end - seeds.start;
    let mut seeds_with: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in seeds {
        let replay =
            format!("SIM_SEED={seed} cargo test -p heliostat-tests --test coordinator_sim");
        let ran = catch_unwind(AssertUnwindSafe(|| run_seed(seed, Sabotage::None)));
        assert!(ran.is_ok(), "seed {seed} panicked\nreplay: {replay}");
        let Ok((result, counts)) = ran else { continue };
        if let Err(what) = result {
            failed.push(format!("seed {seed}: {what}\nreplay: {replay}"));
        }
        for name in counts.keys() {
            *seeds_with.entry(name).or_default() += 1;
        }
    }
    for (name, seeds) in &seeds_with {
        println!("{seeds:>6} {name}");
    }
    assert!(failed.is_empty(), "{} of {total} seeds failed\n{}", failed.len(), failed[0]);
    if total > 500 {
        for name in FAULTS {
            let seeds = seeds_with.get(name).copied().unwrap_or(0);
            assert!(seeds * 500 >= total, "{name} fired in {seeds} of {total} seeds only");
        }
    }
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    let run = |seed| {
        let mut world = World::new(seed, Sabotage::None);
        let outcome = world.run(STEPS);
        let registry = world.registry.borrow();
        let disks = world.hosts.iter().map(|host| host.disk.store.disk.faults.counts.clone());
        (outcome, registry.trace.clone(), registry.marks, disks.collect::<Vec<_>>())
    };
    for seed in 0..4 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

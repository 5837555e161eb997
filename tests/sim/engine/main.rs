//! The whole engine over a simulated network, disk and clock: the product's decoder,
//! fetcher, planner, log and recovery against a source cluster that misbehaves.
//!
//! `SIM_SEED=n` (decimal or 0x…) runs one seed, `SIM_SEEDS=n` so many from 0 on.

#![expect(clippy::expect_used, reason = "the simulation fails like a test")]

mod broker;
mod cluster;
#[path = "../cold.rs"]
mod cold;
mod control;
#[path = "../disk.rs"]
#[expect(dead_code, reason = "shared with the simulation of the log, which breaks more")]
mod disk;
mod faults;
mod oracle;
#[path = "../rng.rs"]
mod rng;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::World;

const SEEDS: u64 = 1_000;
const EVENTS: u64 = 2_000;
/// What has to happen in at least one of twenty seeds; other lines of the print are what
/// the engine, or its operator, did about it.
const FAULTS: &[&str] = &[
    "a deposed leader answers",
    "answer ends with a segment",
    "answer lost",
    "answer to another request",
    "asked while an answer came",
    "batch larger than a slot",
    "broker down",
    "broker vanished",
    "clean election",
    "clean stop and start",
    "cleaner",
    "completed out of order",
    "connect without an answer",
    "connection cut",
    "connection refused",
    "corrupt batch on the wire",
    "cut within an answer",
    "diverging epoch",
    "epoch bumped",
    "fenced epoch",
    "hole between stripes",
    "last batch cut off",
    "log starts inside a batch",
    "metadata without a broker",
    "metadata without leader and epoch",
    "moved to another shard",
    "no room for a session",
    "no space",
    "not the leader",
    "not the leader, with a hint",
    "offset not available",
    "offset out of range",
    "other operation failed",
    "overlap of stripes",
    "parked",
    "partition added",
    "power lost",
    "power lost, nothing kept",
    "process killed",
    "range of a stripe lost",
    "records deleted",
    "retention",
    "session epoch error",
    "session evicted",
    "short write",
    "slow packet",
    "stale metadata",
    "stale views",
    "storage error of a broker",
    "stripe asked",
    "sync failed",
    "throttle changed",
    "throttled answer",
    "tiny pieces",
    "topic removed",
    "unclean election",
    "unclean election, records lost",
    "unknown epoch",
    "unsynced change lost",
    "waited for a buffer",
    "write failed",
];
/// Seeds that once failed.
const KNOWN: &str = include_str!("../../seeds.txt");

/// What one seed came to.
struct Outcome {
    counts: BTreeMap<&'static str, u64>,
    hash: u64,
}

fn run_seed(seed: u64) -> Result<Outcome, String> {
    let mut world = World::new(seed);
    let result = catch_unwind(AssertUnwindSafe(|| world.run(EVENTS)));
    let trace = |what: String, world: &World| {
        format!(
            "{what}\nbefore that:{}\nseed {seed:#x}; replay: SIM_SEED={seed:#x} cargo test -p \
             heliostat-tests --test engine_sim",
            world.trace()
        )
    };
    match result {
        Ok(Ok(())) => Ok(Outcome { counts: world.faults().counts.clone(), hash: world.hash() }),
        Ok(Err(what)) => Err(trace(what, &world)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
            Err(trace(format!("panic: {}", text.unwrap_or_default()), &world))
        }
    }
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn number(name: &str) -> Option<u64> {
    parse(&std::env::var(name).ok()?)
}

fn known_seeds() -> Vec<u64> {
    let line = |line: &str| line.split('#').next().and_then(parse);
    KNOWN.lines().filter_map(line).collect()
}

/// Runs all `seeds` on all cores; the first failures, and in how many seeds each fault fired.
fn run_all(seeds: &[u64]) -> (Vec<String>, BTreeMap<&'static str, u64>) {
    let next = AtomicU64::new(0);
    let found = Mutex::new((Vec::new(), BTreeMap::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).expect("small");
                    let Some(seed) = seeds.get(at) else { return };
                    let outcome = run_seed(*seed);
                    let mut found = found.lock().expect("not poisoned");
                    match outcome {
                        Ok(outcome) => {
                            for name in outcome.counts.keys() {
                                *found.1.entry(*name).or_default() += 1;
                            }
                        }
                        Err(what) => found.0.push(what),
                    }
                    if found.0.len() >= 3 {
                        return;
                    }
                }
            });
        }
    });
    found.into_inner().expect("not poisoned")
}

#[test]
fn copies_converge_whatever_the_source_the_network_and_the_disk_do() {
    let seeds: Vec<u64> = match number("SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("SIM_SEEDS").unwrap_or(SEEDS)).collect(),
    };
    let (failures, fired) = run_all(&seeds);
    assert!(failures.is_empty(), "{} failures; the first:\n{}", failures.len(), failures[0]);
    let total = u64::try_from(seeds.len()).expect("small");
    println!("{total} seeds of {EVENTS} events; seeds in which each fault fired:");
    for (name, seeds) in &fired {
        println!("{seeds:>6} {name}");
    }
    if total >= 100 {
        for name in FAULTS {
            let seeds = fired.get(name).copied().unwrap_or(0);
            assert!(seeds * 20 >= total, "{name} fired in {seeds} of {total} seeds only");
        }
    }
}

#[test]
fn seeds_that_once_failed_pass() {
    let (failures, _) = run_all(&known_seeds());
    assert!(failures.is_empty(), "{} failures; the first:\n{}", failures.len(), failures[0]);
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in 0..8 {
        let hashes = [seed, seed].map(|seed| run_seed(seed).map(|outcome| outcome.hash));
        assert!(hashes[0].is_ok() && hashes[0] == hashes[1], "seed {seed}: {hashes:?}");
    }
}

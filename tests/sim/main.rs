//! The segment log over a simulated disk: append path and recovery together.
//!
//! `SIM_SEED=n` runs one seed, `SIM_SEEDS=n` so many from 0 on.

#![expect(clippy::expect_used, reason = "a bug of the simulation itself may end the test")]

mod cold;
#[expect(dead_code, reason = "shared with the simulation of hosts, which looks at more")]
mod disk;
mod oracle;
mod recovery_cases;
mod rng;
mod sabotage;
mod source;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::oracle::Violation;
use crate::world::{Sabotage, World};

const SEEDS: u64 = 250;
const STEPS: u64 = 600;

/// What has to happen in one seed of twenty at least, or a pass says little.
const FAULTS: [&str; 21] = [
    "O_DIRECT refused",
    "batches repeated",
    "byte flipped",
    "clean stop",
    "completed out of order",
    "connection lost",
    "crash in recovery",
    "index written without sync",
    "last batch cut off",
    "log failed",
    "no space",
    "other operation failed",
    "power lost",
    "power lost, nothing kept",
    "process killed",
    "run refused",
    "short write",
    "sync failed",
    "truncation",
    "unsynced change lost",
    "unsynced name",
];

/// Runs one seed; what went wrong, and how often each fault fired.
fn run_seed(seed: u64, sabotage: Sabotage) -> (Result<(), Violation>, BTreeMap<&'static str, u64>) {
    let mut world = match World::new(seed, sabotage) {
        Ok(world) => world,
        Err(violation) => return (Err(violation), BTreeMap::new()),
    };
    let trace = |violation: Violation, world: &World| Violation {
        what: format!("{}\nbefore that:{}", violation.what, world.trace()),
        ..violation
    };
    let result = world.run(STEPS).map_err(|violation| trace(violation, &world));
    (result, world.faults().counts.clone())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn the_log_keeps_its_promises_on_a_bad_disk() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(SEEDS),
    };
    let total = seeds.end - seeds.start;
    let mut seeds_with: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in seeds {
        let replay = format!("SIM_SEED={seed} cargo test -p heliostat-tests --test log_sim");
        let ran = catch_unwind(AssertUnwindSafe(|| run_seed(seed, Sabotage::None)));
        assert!(ran.is_ok(), "seed {seed} panicked\nreplay: {replay}");
        let Ok((result, counts)) = ran else { continue };
        if let Err(Violation { promise, what }) = result {
            panic!("seed {seed} broke {promise:?}: {what}\nreplay: {replay}");
        }
        for name in counts.keys() {
            *seeds_with.entry(name).or_default() += 1;
        }
    }
    println!("{total} seeds; seeds in which each fault fired:");
    for (name, seeds) in &seeds_with {
        println!("{seeds:>6} {name}");
    }
    if total > 20 {
        for name in FAULTS {
            let seeds = seeds_with.get(name).copied().unwrap_or(0);
            assert!(seeds * 20 >= total, "{name} fired in {seeds} of {total} seeds only");
        }
    }
}

//! Seeded moments: the same seed draws the same ones; and the wait for one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// Repeats the moments of an earlier run.
const VARIABLE: &str = "CAMPAIGN_SEED";

/// A stream of chance that knows its seed.
#[derive(Debug)]
pub struct Chance {
    seed: u64,
    rng: ChaCha8Rng,
}

impl Chance {
    /// The seed of the environment variable `CAMPAIGN_SEED`, or else one that no run had before.
    pub fn from_environment() -> Self {
        let given = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
        let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self::new(given.unwrap_or_else(|| u64::try_from(fresh()).unwrap_or(0)))
    }

    /// A given seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// What it was seeded with.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// From 0 to `end`, exclusive; 0 if that is empty.
    pub fn below(&mut self, end: u64) -> u64 {
        self.rng.next_u64() % end.max(1)
    }

    /// A time below `end`, in steps of a microsecond.
    pub fn time_below(&mut self, end: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(end.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// Waits for a moment of the clock: what strikes by the clock has no condition to wait for.
pub(crate) fn pause_until(at: Instant) {
    loop {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

//! Seeded chance. Each concern draws from its own stream, so that one more draw in
//! one place does not shift the others.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// One stream of chance.
#[derive(Debug)]
pub(crate) struct Chance(ChaCha8Rng);

impl Chance {
    /// Stream `stream` of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    /// From 0 to `end`, exclusive; 0 if that is empty.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let draw = self.0.next_u64();
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(draw % end).unwrap_or(0)
    }

    /// From `low` to `high`, both inclusive.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `of`, which is not empty.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

//! Token bucket for bytes that arrive in lumps: a response may take more than there
//! is, and the next one waits for the debt.

use std::time::Duration;

use crate::time::Tick;

/// The bucket holds what flows in so long, so that no window is far above the rate.
const BURST: Duration = Duration::from_millis(100);
/// A request is worth sending for so much of the rate.
const CHUNK: Duration = Duration::from_millis(50);
/// Below this a request costs more than it brings.
const CHUNK_BYTES_MIN: i64 = 4096;
const NANOS: u128 = 1_000_000_000;

/// Bytes per second, smooth within a tenth of a second.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    rate: Option<u64>,
    /// Bytes that may flow now; negative after a large response.
    tokens: i64,
    /// What the integer division of the last refill left over, in billionths of a byte.
    remainder: u128,
    filled_at: Tick,
}

impl Throttle {
    /// `rate` in bytes per second; `None` for no limit.
    pub fn new(rate: Option<u64>, now: Tick) -> Self {
        Self { rate, tokens: 0, remainder: 0, filled_at: now }
    }

    /// Changes the rate; a debt stays.
    pub fn set_rate(&mut self, rate: Option<u64>, now: Tick) {
        self.refill(now);
        self.rate = rate;
        self.tokens = self.tokens.min(self.capacity());
    }

    /// Whether there is a rate at all.
    pub fn is_limited(&self) -> bool {
        self.rate.is_some()
    }

    /// Bytes to ask for now, at most `wanted`; `None` while it has to wait.
    pub fn grant(&mut self, wanted: u32, now: Tick) -> Option<u32> {
        if self.rate.is_none() {
            return Some(wanted);
        }
        self.refill(now);
        (self.tokens >= self.chunk())
            .then(|| u32::try_from(self.tokens).unwrap_or(u32::MAX).min(wanted))
    }

    /// `bytes` have been received.
    pub fn spend(&mut self, bytes: u64, now: Tick) {
        if self.rate.is_some() {
            self.refill(now);
            self.tokens = self.tokens.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// When [`Self::grant`] will give something, if nothing is spent before.
    pub fn ready_at(&self, now: Tick) -> Tick {
        let Some(rate) = self.rate else { return now };
        if rate == 0 {
            return Tick::NEVER;
        }
        let missing = self.chunk().saturating_sub(self.tokens).max(0).unsigned_abs();
        let missing = (u128::from(missing) * NANOS).saturating_sub(self.remainder);
        let nanos = missing.div_ceil(u128::from(rate));
        self.filled_at.after(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    fn refill(&mut self, now: Tick) {
        let elapsed = now.since(self.filled_at).as_nanos();
        self.filled_at = self.filled_at.max(now);
        let Some(rate) = self.rate else { return };
        let billionths = elapsed * u128::from(rate) + self.remainder;
        self.remainder = billionths % NANOS;
        let bytes = i64::try_from(billionths / NANOS).unwrap_or(i64::MAX);
        self.tokens = self.tokens.saturating_add(bytes).min(self.capacity());
    }

    fn share(&self, part: Duration) -> i64 {
        let rate = u128::from(self.rate.unwrap_or(0));
        i64::try_from(rate * part.as_nanos() / NANOS).unwrap_or(i64::MAX)
    }

    fn capacity(&self) -> i64 {
        self.share(BURST).max(CHUNK_BYTES_MIN)
    }

    fn chunk(&self) -> i64 {
        self.share(CHUNK).max(CHUNK_BYTES_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Tick {
        Tick(ms * 1_000_000)
    }

    /// Takes what it gets each millisecond and overshoots by `extra` bytes each time.
    fn flow(rate: u64, extra: u64, millis: u64) -> u64 {
        let mut throttle = Throttle::new(Some(rate), ms(0));
        let mut total = 0;
        for now in 0..millis {
            if let Some(bytes) = throttle.grant(u32::MAX, ms(now)) {
                let got = u64::from(bytes) + extra;
                throttle.spend(got, ms(now));
                total += got;
            }
        }
        total
    }

    #[test]
    fn ten_seconds_are_within_two_percent() {
        for (rate, extra) in [(10_000_000, 0), (10_000_000, 900_000), (333_333, 1_000)] {
            let total = flow(rate, extra, 10_000);
            let want = rate * 10;
            // The last lump may reach past the end of the window.
            assert!(total.abs_diff(want) <= want / 50 + extra, "{rate} B/s gave {total} in 10 s");
        }
    }

    #[test]
    fn a_pause_does_not_gather_more_than_the_burst() {
        let mut throttle = Throttle::new(Some(1_000_000), ms(0));
        assert_eq!(throttle.grant(u32::MAX, ms(60_000)), Some(100_000));
    }

    #[test]
    fn debt_is_waited_for() {
        let mut throttle = Throttle::new(Some(1_000_000), ms(0));
        throttle.spend(950_000, ms(0));
        assert_eq!(throttle.ready_at(ms(0)), ms(1_000));
        assert_eq!(throttle.grant(u32::MAX, ms(999)), None);
        assert_eq!(throttle.grant(u32::MAX, ms(1_000)), Some(50_000));
    }

    #[test]
    fn no_rate_is_no_limit() {
        let mut throttle = Throttle::new(None, ms(0));
        throttle.spend(1 << 40, ms(0));
        assert_eq!(throttle.grant(7, ms(0)), Some(7));
    }
}

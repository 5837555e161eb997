//! Rates over a window of time: what comes before it, while connections find their speed, does
//! not count.

use std::time::{Duration, Instant};

use clap::Args;

use crate::error::BenchError;
use crate::process::cpu_seconds;

/// When to begin and end counting.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Window {
    /// From the start to the end.
    #[arg(long)]
    seconds: u32,
    /// Of these, the first ones that do not count.
    #[arg(long, default_value_t = 0)]
    skip: u32,
}

impl Window {
    /// Bytes, seconds and processor seconds of the window; fails once `over` is true before its
    /// end. `bytes` counts from the start.
    pub(super) fn measure(
        self,
        mut bytes: impl FnMut() -> Result<u64, BenchError>,
        over: impl Fn() -> bool,
    ) -> Result<(u64, f64, f64), BenchError> {
        let begun = Instant::now();
        let at = |seconds: u32| begun + Duration::from_secs(seconds.into());
        wait(at(self.skip), &over)?;
        let (first, cpu, since) = (bytes()?, cpu_seconds(), Instant::now());
        wait(at(self.seconds), &over)?;
        let (last, took) = (bytes()?, since.elapsed().as_secs_f64());
        Ok((last.saturating_sub(first), took, cpu_seconds() - cpu))
    }
}

/// Between two looks at whether it is over.
const LOOK: Duration = Duration::from_millis(100);

fn wait(until: Instant, over: impl Fn() -> bool) -> Result<(), BenchError> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        if over() {
            return Err(BenchError::Incomplete("it ended before the measurement".to_owned()));
        }
        std::thread::park_timeout(left.min(LOOK));
    }
}

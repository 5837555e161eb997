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

/// What a window brought.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// Bytes of each second from the start, those that do not count included.
    pub(super) each_second: Vec<u64>,
}

impl Window {
    /// Bytes, seconds and processor seconds of the window; fails once `over` is true before its
    /// end. `bytes` counts from the start.
    pub(super) fn measure(
        self,
        mut bytes: impl FnMut() -> Result<u64, BenchError>,
        over: impl FnMut() -> bool,
    ) -> Result<(u64, f64, f64), BenchError> {
        let measured = self.measure_each(|| Ok((bytes()?, cpu_seconds())), over)?;
        Ok((measured.bytes, measured.seconds, measured.cpu_seconds))
    }

    /// The same with what each second brought; `figures` are bytes and processor seconds.
    pub(super) fn measure_each(
        self,
        mut figures: impl FnMut() -> Result<(u64, f64), BenchError>,
        mut over: impl FnMut() -> bool,
    ) -> Result<Measured, BenchError> {
        let begun = Instant::now();
        let (mut before, mut cpu) = figures()?;
        let (mut first, mut since) = (before, begun);
        let mut each_second = Vec::new();
        for second in 1..=self.seconds {
            wait(begun + Duration::from_secs(second.into()), &mut over)?;
            let (bytes, cpu_now) = figures()?;
            each_second.push(bytes.saturating_sub(before));
            before = bytes;
            if second == self.skip {
                (first, cpu, since) = (bytes, cpu_now, Instant::now());
            }
            if second == self.seconds {
                cpu = cpu_now - cpu;
            }
        }
        let (bytes, seconds) = (before.saturating_sub(first), since.elapsed().as_secs_f64());
        Ok(Measured { bytes, seconds, cpu_seconds: cpu, each_second })
    }
}

/// Between two looks at whether it is over.
const LOOK: Duration = Duration::from_millis(100);

fn wait(until: Instant, over: &mut impl FnMut() -> bool) -> Result<(), BenchError> {
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

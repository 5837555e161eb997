//! Raw figures of one side of a comparison.

use serde::{Deserialize, Serialize};

/// What one run moved and what it cost. Ratios are made of these, and both are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Side {
    /// Bytes of record batches, as they are on the wire.
    pub(crate) bytes: u64,
    /// From the first connection to everything durable.
    pub(crate) seconds: f64,
    /// User and system time, kernel workers of the process included.
    pub(crate) cpu_seconds: f64,
    /// Largest resident memory.
    pub(crate) rss_bytes: u64,
}

impl Side {
    pub(crate) fn megabytes_per_second(&self) -> f64 {
        approximate(self.bytes) / 1e6 / self.seconds.max(1e-9)
    }

    pub(crate) fn cpu_seconds_per_gigabyte(&self) -> f64 {
        self.cpu_seconds / (approximate(self.bytes.max(1)) / 1e9)
    }

    /// The median of each figure by itself; zeros of nothing.
    pub(crate) fn median(runs: &[Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> f64| median(runs.iter().map(figure).collect());
        Self {
            bytes: middle(runs.iter().map(|run| run.bytes).collect()),
            seconds: of(&|run| run.seconds),
            cpu_seconds: of(&|run| run.cpu_seconds),
            rss_bytes: middle(runs.iter().map(|run| run.rss_bytes).collect()),
        }
    }
}

/// The lower one of two in the middle; 0 of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

fn middle(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// For ratios and display.
#[expect(
    clippy::cast_precision_loss,
    clippy::as_conversions,
    reason = "a figure for people; 53 bits are plenty"
)]
pub(crate) fn approximate(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_per_gigabyte_and_second() {
        let side = Side { bytes: 2_000_000_000, seconds: 4.0, cpu_seconds: 1.0, rss_bytes: 0 };
        assert!((side.megabytes_per_second() - 500.0).abs() < 1e-9);
        assert!((side.cpu_seconds_per_gigabyte() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn each_figure_has_its_own_median() {
        let run = |seconds, rss_bytes| Side { seconds, rss_bytes, ..Side::default() };
        let median = Side::median(&[run(3.0, 1), run(1.0, 3), run(2.0, 2)]);
        assert_eq!((median.seconds.to_bits(), median.rss_bytes), (2.0_f64.to_bits(), 2));
    }
}

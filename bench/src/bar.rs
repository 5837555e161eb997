//! A measure and the limit that it has to keep.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::error::BenchError;
use crate::side::Side;

/// Which way a limit binds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    /// The value is not below.
    AtLeast(f64),
    /// The value is not above.
    AtMost(f64),
    /// Reported for what it is.
    None,
}

/// One line of a comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bar {
    /// Number of the bar in `bench/README.md`.
    #[serde(rename = "bar")]
    pub(crate) number: u8,
    /// What is measured, with its unit.
    pub(crate) name: String,
    /// Of the medians.
    pub(crate) value: f64,
    /// What it has to keep.
    pub(crate) limit: Limit,
    /// Medians of our side.
    pub(crate) ours: Side,
    /// Medians of the other side; zeros where there is none.
    pub(crate) theirs: Side,
    /// Every run of ours, in order.
    pub(crate) our_runs: Vec<Side>,
    /// Every run of theirs, in order.
    pub(crate) their_runs: Vec<Side>,
    /// What else was measured, of each run.
    #[serde(flatten)]
    pub(crate) more: BTreeMap<&'static str, Vec<f64>>,
}

impl Bar {
    /// A bar over all runs of both sides; the value is made of the medians.
    pub(crate) fn new(
        number: u8,
        name: impl Into<String>,
        limit: Limit,
        (our_runs, their_runs): (&[Side], &[Side]),
        value: impl FnOnce(&Side, &Side) -> f64,
    ) -> Self {
        let (ours, theirs) = (Side::median(our_runs), Side::median(their_runs));
        let (our_runs, their_runs) = (our_runs.to_vec(), their_runs.to_vec());
        let value = value(&ours, &theirs);
        let (name, more) = (name.into(), BTreeMap::new());
        Self { number, name, value, limit, ours, theirs, our_runs, their_runs, more }
    }

    /// The bar with another figure of each run, for the JSON.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, values: Vec<f64>) -> Self {
        self.more.insert(name, values);
        self
    }

    pub(crate) fn holds(&self) -> bool {
        match self.limit {
            Limit::AtLeast(limit) => self.value >= limit,
            Limit::AtMost(limit) => self.value <= limit,
            Limit::None => true,
        }
    }
}

/// A table for people, with the raw medians of both sides.
pub(crate) fn print(bars: &[Bar]) {
    println!(
        "{:>3}  {:<58} {:>9} {:>9}  {:<5} {:>26}  {:>26}",
        "bar", "measure", "value", "limit", "holds", "ours MB/s, CPU s/GB, MiB", "theirs"
    );
    for bar in bars {
        let limit = match bar.limit {
            Limit::AtLeast(limit) => format!(">= {limit}"),
            Limit::AtMost(limit) => format!("<= {limit}"),
            Limit::None => "-".to_owned(),
        };
        let holds = if bar.holds() { "yes" } else { "NO" };
        let side = |side: &Side| {
            format!(
                "{:.0}, {:.3}, {}",
                side.megabytes_per_second(),
                side.cpu_seconds_per_gigabyte(),
                side.rss_bytes >> 20
            )
        };
        println!(
            "{:>3}  {:<58} {:>9.3} {:>9}  {:<5} {:>26}  {:>26}",
            bar.number,
            bar.name,
            bar.value,
            limit,
            holds,
            side(&bar.ours),
            side(&bar.theirs)
        );
    }
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    bar: &'a Bar,
    holds: bool,
}

/// The bars as a JSON list.
pub(crate) fn write(bars: &[Bar], path: &Path) -> Result<(), BenchError> {
    let lines: Vec<_> = bars.iter().map(|bar| Line { bar, holds: bar.holds() }).collect();
    let text = serde_json::to_vec_pretty(&lines)
        .map_err(|error| BenchError::File { path: path.to_path_buf(), source: error.into() })?;
    std::fs::write(path, text).map_err(BenchError::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_binds_one_way() {
        let of = |limit| Bar::new(1, "x", limit, (&[], &[]), |_, _| 2.0);
        assert!(of(Limit::AtLeast(2.0)).holds() && !of(Limit::AtLeast(2.1)).holds());
        assert!(of(Limit::AtMost(2.0)).holds() && !of(Limit::AtMost(1.9)).holds());
        assert!(of(Limit::None).holds());
    }
}

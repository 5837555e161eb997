//! The comparisons, one module each.

mod limit;

use clap::Subcommand;

use crate::bar::Bar;
use crate::error::BenchError;

/// What to compare with.
#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// Loops that only move bytes: what this machine can do at best.
    Limit(limit::LimitArgs),
}

/// Runs a comparison.
pub(crate) fn run(what: &What) -> Result<Vec<Bar>, BenchError> {
    match what {
        What::Limit(args) => limit::run(args),
    }
}

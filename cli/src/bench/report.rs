//! What a benchmark prints. A figure without its host, version and command is none.

use std::time::Duration;

use heliostat_io::control::Status;
use serde_json::json;

use super::path::Path;
use super::{Append, BenchArgs};
use crate::failure::Failure;
use crate::output::{approximate, say, size};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) append: Append,
    pub(super) fetch_bytes: u32,
}

/// One measured copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    variant: Variant,
    number: u16,
    bytes: u64,
    took: Duration,
    cpu: Duration,
    copied_bytes: u64,
    fetch_p50_us: u64,
    fetch_p99_us: u64,
    append_p50_us: u64,
    append_p99_us: u64,
}

impl Round {
    pub(super) fn new(
        variant: Variant,
        number: u16,
        took: Duration,
        cpu: Duration,
        status: &Status,
    ) -> Self {
        let shards = &status.shards;
        Self {
            variant,
            number,
            bytes: shards.stats.append.bytes_appended,
            took,
            cpu,
            copied_bytes: shards.stats.append.bytes_copied,
            fetch_p50_us: shards.fetch_latency_us.value_at_quantile(0.5),
            fetch_p99_us: shards.fetch_latency_us.value_at_quantile(0.99),
            append_p50_us: shards.append_latency_us.value_at_quantile(0.5),
            append_p99_us: shards.append_latency_us.value_at_quantile(0.99),
        }
    }

    fn megabytes_per_second(&self) -> f64 {
        approximate(self.bytes) / 1e6 / self.took.as_secs_f64().max(1e-9)
    }

    fn cpu_seconds_per_gigabyte(&self) -> f64 {
        self.cpu.as_secs_f64() / (approximate(self.bytes.max(1)) / 1e9)
    }
}

/// One line a variant: medians of its rounds.
pub(super) fn table(args: &BenchArgs, rounds: &[Round]) -> Result<(), Failure> {
    say(format!(
        "{} partitions, batches of {}, {} a round, {} rounds, {} shards; medians; each round ends \
         with everything durable",
        args.partitions,
        size(u64::from(args.batch_bytes)),
        size(rounds.first().map_or(0, |round| round.bytes)),
        args.rounds(),
        args.shards,
    ))?;
    say(
        "append    fetch bytes      MB/s  CPU s/GB  copied %  fetch p50/p99 ms  append p50/p99 ms",
    )?;
    for variant in variants(rounds) {
        let of = |figure: &dyn Fn(&Round) -> f64| {
            let own = rounds.iter().filter(|round| round.variant == variant);
            median(own.map(figure).collect())
        };
        let ms = |us: u64| approximate(us) / 1e3;
        say(format!(
            "{:<9} {:>11} {:>9.0} {:>9.3} {:>9.2} {:>8.1} {:>8.1} {:>8.1} {:>8.1}",
            variant.append.value(),
            variant.fetch_bytes,
            of(&Round::megabytes_per_second),
            of(&Round::cpu_seconds_per_gigabyte),
            of(&|r| 100.0 * approximate(r.copied_bytes) / approximate(r.bytes.max(1))),
            of(&|r| ms(r.fetch_p50_us)),
            of(&|r| ms(r.fetch_p99_us)),
            of(&|r| ms(r.append_p50_us)),
            of(&|r| ms(r.append_p99_us)),
        ))?;
    }
    Ok(())
}

/// Every round, raw.
pub(super) fn json(args: &BenchArgs, rounds: &[Round], path: Option<&Path>) -> Result<(), Failure> {
    let rounds: Vec<_> = rounds
        .iter()
        .map(|round| {
            json!({
                "round": round.number,
                "append.direct": round.variant.append.value(),
                "mirror.fetch.max.bytes": round.variant.fetch_bytes,
                "bytes": round.bytes,
                "seconds": round.took.as_secs_f64(),
                "cpu_seconds": round.cpu.as_secs_f64(),
                "copied_bytes": round.copied_bytes,
                "fetch_us": { "p50": round.fetch_p50_us, "p99": round.fetch_p99_us },
                "append_us": { "p50": round.append_p50_us, "p99": round.append_p99_us },
            })
        })
        .collect();
    let all = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "partitions": args.partitions,
        "batch_bytes": args.batch_bytes,
        "shards": args.shards,
        "path": path.map(Path::json),
        "rounds": rounds,
    });
    say(all.to_string())
}

/// In the order of their first round.
fn variants(rounds: &[Round]) -> Vec<Variant> {
    let mut variants = Vec::new();
    for round in rounds {
        if !variants.contains(&round.variant) {
            variants.push(round.variant);
        }
    }
    variants
}

/// The lower one of two in the middle; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_one_of_the_values() {
        assert!((median(vec![9.0, 1.0, 5.0]) - 5.0).abs() < f64::EPSILON);
        assert!((median(vec![9.0, 1.0]) - 1.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).abs() < f64::EPSILON);
    }
}

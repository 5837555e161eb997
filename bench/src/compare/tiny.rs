//! The worst case: batches of one record of 100 bytes, from received bytes to completed writes.

use std::process::Command;

use clap::Args;

use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::place::SINK_CPU;
use crate::role::{self, Tiny};
use crate::side::{Side, approximate, median};

/// Batches a second, and instructions a batch: one of the two has to hold.
const RATE_MIN: f64 = 3e6;
const INSTRUCTIONS_MAX: f64 = 400.0;
/// The function of the role that is counted.
const COUNTED: &str = "*tiny*batches_pass*";
/// Copies count by the word and not by the byte, as in `hot/benches/counts.rs`.
const TUNABLES: &str =
    "glibc.cpu.x86_rep_movsb_threshold=4294967296:glibc.cpu.x86_rep_stosb_threshold=4294967296";

/// Arguments of `tiny`.
#[derive(Args, Debug)]
pub(crate) struct TinyArgs {
    /// Answers of 1 MiB in each run.
    #[arg(long, value_name = "N", default_value_t = 200)]
    answers: usize,
    /// Runs.
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
}

pub(super) fn run(args: &TinyArgs) -> Result<Vec<Bar>, BenchError> {
    let arguments = |answers: usize| ["tiny".to_owned(), format!("--answers={answers}")];
    let runs = (0..args.rounds)
        .map(|_| role::run(Some(SINK_CPU), &arguments(args.answers)))
        .collect::<Result<Vec<Tiny>, _>>()?;
    let instructions = instructions_a_batch(&arguments(1))?;
    let rates: Vec<f64> =
        runs.iter().map(|run| approximate(run.batches) / run.side.cpu_seconds).collect();
    let rate = median(rates.clone());
    let sides: Vec<Side> = runs.iter().map(|run| run.side).collect();
    let best = (rate / RATE_MIN).max(INSTRUCTIONS_MAX / instructions);
    let name = "rate / 3 M a second, or 400 / instructions: the better one";
    let bar =
        |name: &str, limit, value| Bar::new(14, name, limit, (sides.as_slice(), &[]), |_, _| value);
    Ok(vec![
        bar(name, Limit::AtLeast(1.0), best)
            .with("batches_per_cpu_second", rates)
            .with("instructions_per_batch", vec![instructions]),
        bar("millions of batches a processor second", Limit::None, rate / 1e6),
        bar("instructions a batch, under callgrind", Limit::None, instructions),
    ])
}

/// Counted over one answer.
fn instructions_a_batch(arguments: &[String]) -> Result<f64, BenchError> {
    let program = std::env::current_exe().map_err(BenchError::system("find this program"))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(program)
        .arg("role")
        .args(arguments)
        .arg("--untimed")
        .env("GLIBC_TUNABLES", TUNABLES)
        .output()
        .map_err(BenchError::system("start valgrind; apt-get install valgrind"))?;
    let failed = |why: String| BenchError::Role { role: "tiny under valgrind".to_owned(), why };
    let told: Tiny = serde_json::from_slice(&output.stdout)
        .map_err(|error| failed(format!("{error}; {}", String::from_utf8_lossy(&output.stderr))))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said
        .lines()
        .find_map(|line| line.split_once("Collected :"))
        .and_then(|(_, count)| count.trim().parse::<u64>().ok())
        .filter(|count| *count > 0)
        .ok_or_else(|| failed(format!("nothing was counted: {said}")))?;
    Ok(approximate(collected) / approximate(told.batches.max(1)))
}

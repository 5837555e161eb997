//! Counts the instructions of the hot functions and holds them against the committed baselines.
//!
//! Exits with 1 if a count is off, with 2 if nothing could be counted.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is what a command line is for"
)]

#[path = "counts/baselines.rs"]
mod baselines;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use baselines::{Baselines, Counts};

const ACCEPT: &str = "cargo run -p heliostat-hot --bin counts -- --accept";

fn main() -> ExitCode {
    let accept = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--accept" => true,
        _ => {
            eprintln!(
                "counts: the only argument is --accept, which makes the counts the baselines"
            );
            return ExitCode::from(2);
        }
    };
    match run(accept) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("counts: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(accept: bool) -> Result<bool, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("counts.txt");
    let rustc = said_by("rustc", &["--version"], "install Rust with rustup")?;
    said_by("valgrind", &["--version"], "apt-get install valgrind")?;
    let install = "cargo install --locked gungraun-runner, of the version in Cargo.lock";
    said_by("gungraun-runner", &["--version"], install)?;
    let file = |error| format!("{}: {error}", path.display());
    if accept {
        let now = Baselines { rustc, counts: count()? };
        std::fs::write(&path, now.to_string()).map_err(file)?;
        println!("{} counts written to {}", now.counts.len(), path.display());
        return Ok(true);
    }
    let text = std::fs::read_to_string(&path).map_err(file)?;
    let baselines: Baselines = text.parse().map_err(|why| format!("{}: {why}", path.display()))?;
    if baselines.rustc != rustc {
        return Err(format!(
            "the baselines are of {}, this is {rustc}: other compilers make other code. \
             Use that one, or accept the counts of this one: {ACCEPT}",
            baselines.rustc
        ));
    }
    let lines = baselines.compare(&count()?);
    let off = lines.iter().filter(|line| line.is_off).count();
    for line in &lines {
        println!("{line}");
    }
    if off > 0 {
        println!(
            "\n{off} of {} counts are off. If that is meant, accept them: {ACCEPT}",
            lines.len()
        );
    }
    Ok(off == 0)
}

/// What a program prints, to see that it is there.
fn said_by(program: &str, args: &[&str], remedy: &str) -> Result<String, String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|error| format!("{program}: {error}; {remedy}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn count() -> Result<Counts, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let bench = ["bench", "--locked", "-p", "heliostat-hot", "--bench", "counts"];
    let output = Command::new(cargo)
        .args(bench)
        .args(["--", "--output-format=json"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo bench: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo {}: {}", bench.join(" "), output.status));
    }
    baselines::read_counts(&String::from_utf8_lossy(&output.stdout))
}

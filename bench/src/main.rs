//! Comparisons of Heliostat with limits of the machine and with its peers, one command each.
//!
//! Whatever is measured runs in a process of its own (`role`), so that its processor time and
//! memory are its own alone; the sides of a comparison run in turn, and medians are compared.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is what a command line is for"
)]

mod bar;
mod clock;
mod compare;
mod error;
mod flamegraphs;
mod host;
mod kafka;
mod loops;
mod mm2;
mod place;
mod process;
mod produce;
mod raw;
mod role;
mod side;
mod synthetic;
mod tail;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use bar::Bar;
use error::BenchError;

/// Measures Heliostat against limits and peers.
#[derive(Debug, Parser)]
#[command(name = "heliostat-bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare, print a table, and exit with 1 if a bar does not hold.
    Compare(CompareArgs),
    /// Make the pictures of `flamegraphs/`; needs perf.
    Flamegraphs(flamegraphs::FlamegraphsArgs),
    /// One side of a comparison, in a process of its own; prints its figures as JSON.
    #[command(hide = true)]
    Role(role::RoleArgs),
}

#[derive(Args, Debug)]
struct CompareArgs {
    #[command(subcommand)]
    what: compare::What,

    /// Also write the bars, with every raw figure, into this file.
    #[arg(long, value_name = "FILE", global = true)]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("heliostat-bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<bool, BenchError> {
    match command {
        Command::Role(args) => role::play(&args).map(|()| true),
        Command::Flamegraphs(args) => flamegraphs::run(&args).map(|()| true),
        Command::Compare(args) => {
            let bars = compare::run(&args.what)?;
            println!("{}", host::line());
            bar::print(&bars);
            if let Some(path) = &args.json {
                bar::write(&bars, path)?;
            }
            Ok(bars.iter().all(Bar::holds))
        }
    }
}

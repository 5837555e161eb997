//! Heliostat: a standalone, byte-identical cluster mirror for Apache Kafka.

mod admin_args;
mod args;
mod bench;
mod check;
mod configs;
mod demo;
mod dump_log;
mod failure;
mod features;
mod file_view;
mod mirror;
mod mirrors;
mod output;
mod process;
mod run_job;
mod server;
mod shards;
mod source_args;
mod survey;
mod top;
mod verify;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use args::{Cli, Command};

/// Exit status of a command that found what it looks for: differences, damage.
const STATUS_FOUND: u8 = 1;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // What happens to a job is told by its command.
    let told = match cli.command {
        // Nobody watches a host but its log.
        Command::Server(_) => "info",
        // Its screen is no place for a log.
        Command::Top(_) => "off",
        _ => "warn,heliostat_io::control=error",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(told));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let outcome = match cli.command {
        Command::DumpLog(args) => dump_log::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Mirror(args) => mirror::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::BenchSource(args) => bench::source::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Mirrors(args) => mirrors::run(&args),
        Command::Configs(args) => configs::run(&args),
        Command::Features(args) => features::run(&args),
        Command::Server(args) => server::run(&args),
        Command::Top(args) => top::run(&args),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(STATUS_FOUND),
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            // Nothing is left to try when standard error is gone.
            let _ = writeln!(std::io::stderr(), "heliostat: {failure}");
            ExitCode::FAILURE
        }
    }
}

//! The long scenarios, one result file a line.
//!
//! `cargo run --release -p heliostat-tests --bin campaign [--only NAME] [--list]`: runs each line
//! that has no result of this commit yet, and writes `tests/results/<line>.md`.

#![expect(clippy::print_stdout, reason = "a program for the prompt")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Parser;
use heliostat_tests::kafka::{Artifacts, KafkaVersion, require};
use heliostat_tests::scenarios::bad_input::{bad_input, build};
use heliostat_tests::scenarios::chance::Chance;
use heliostat_tests::scenarios::changes::topics_change;
use heliostat_tests::scenarios::compacted::compacted;
use heliostat_tests::scenarios::damaged::{Damage, damaged_copy};
use heliostat_tests::scenarios::disk_full::{Filling, disk_full};
use heliostat_tests::scenarios::faults::{Faults, leaders_move_and_die};
use heliostat_tests::scenarios::formats::mixed_formats;
use heliostat_tests::scenarios::identity::{Size, identical};
use heliostat_tests::scenarios::idle::idle;
use heliostat_tests::scenarios::kills::{Kills, killed_again_and_again};
use heliostat_tests::scenarios::retention::{Kept, retention_overtakes};
use heliostat_tests::scenarios::rolling::rolling_restart;
use heliostat_tests::scenarios::sizes::{large_batches, many_partitions};
use heliostat_tests::scenarios::source_away::{Away, source_away};
use heliostat_tests::scenarios::takeover::{Takeover, take_over};
use heliostat_tests::scenarios::unclean::unclean_election;
use heliostat_tests::scenarios::{Figures, Result, child};

/// One line of the campaign.
struct Line {
    name: &'static str,
    version: KafkaVersion,
    what: &'static str,
    run: fn(&Artifacts) -> Result<Figures>,
}

const fn line(
    name: &'static str,
    version: KafkaVersion,
    what: &'static str,
    run: fn(&Artifacts) -> Result<Figures>,
) -> Line {
    Line { name, version, what, run }
}

fn identical_large(kafka: &Artifacts) -> Result<Figures> {
    identical(kafka, Size::LARGE)
}

fn identical_small(kafka: &Artifacts) -> Result<Figures> {
    identical(kafka, Size::SMALL)
}

fn taken_over(kafka: &Artifacts) -> Result<Figures> {
    take_over(kafka, &[Takeover::CleanShutdown, Takeover::NoMarker, Takeover::CopyKilled])
}

fn faults_many(kafka: &Artifacts) -> Result<Figures> {
    leaders_move_and_die(kafka, Faults::MANY)
}

fn killed_often(kafka: &Artifacts) -> Result<Figures> {
    killed_again_and_again(kafka, Kills::MANY, &mut Chance::from_environment())
}

fn disk_filled(kafka: &Artifacts) -> Result<Figures> {
    disk_full(kafka, Filling::LONG)
}

fn leaders_paced(kafka: &Artifacts) -> Result<Figures> {
    leaders_move_and_die(kafka, Faults::PACED)
}

fn source_away_long(kafka: &Artifacts) -> Result<Figures> {
    source_away(kafka, Away::LONG)
}

fn retention_often(kafka: &Artifacts) -> Result<Figures> {
    retention_overtakes(kafka, Kept::MANY)
}

fn damaged_everywhere(kafka: &Artifacts) -> Result<Figures> {
    damaged_copy(kafka, Damage::ALL)
}

fn input_wrong(_: &Artifacts) -> Result<Figures> {
    bad_input(&build()?)
}

const LINES: [Line; 22] = {
    use KafkaVersion::{V2_1, V2_8, V3_9, V4};
    const BYTES: &str = "24 partitions, all codecs, idempotent and transactional producers during \
                         the copy: the copy's bytes and epochs are the leaders' own";
    const TAKEN: &str = "a broker serves the same records and committed records from the copy's \
                         files: clean, without marker, after kill -9 of the copy";
    const FORMATS: &str = "message formats 0, 1 and 2 in one partition, all their codecs";
    [
        line("identical-4", V4, BYTES, identical_large),
        line("identical-3.9", V3_9, BYTES, identical_small),
        line("identical-2.8", V2_8, BYTES, identical_small),
        line("identical-2.1", V2_1, BYTES, identical_small),
        line("takeover-4", V4, TAKEN, taken_over),
        line("takeover-3.9", V3_9, TAKEN, taken_over),
        line("formats-2.8", V2_8, FORMATS, mixed_formats),
        line(
            "faults-4",
            V4,
            "60 leader moves and nine brokers killed with SIGKILL, under load",
            faults_many,
        ),
        line(
            "leaders-paced-4",
            V4,
            "a leader moves every second for a minute, by the clock, under load",
            leaders_paced,
        ),
        line(
            "kills-4",
            V4,
            "the copy's process killed with SIGKILL 50 times under load: while it opens, appends, \
             rolls, writes its checkpoints",
            killed_often,
        ),
        line(
            "disk-full-4",
            V4,
            "the copy's disk fills up under load, with a low-water mark and without; there is \
             room again, and it goes on by itself",
            disk_filled,
        ),
        line(
            "source-away-4",
            V4,
            "all brokers are halted, killed, and not there when the copy starts, 30 s each: it \
             goes on by itself",
            source_away_long,
        ),
        line(
            "rolling-restart-4",
            V4,
            "a host's source of three brokers is restarted one by one under load: no state but \
             MIRRORING is seen, and no retry",
            rolling_restart,
        ),
        line(
            "retention-4",
            V4,
            "time-based retention overtakes a copy that is stopped, and one that is too slow: the \
             ranges are on record, the rest is equal",
            retention_often,
        ),
        line(
            "damaged-copy-4",
            V4,
            "a killed copy's files are damaged in ten ways, one at a time: the next start \
             converges, and all its files are right",
            damaged_everywhere,
        ),
        line(
            "bad-input",
            V4,
            "wrong addresses, settings and directories: the program names what is wrong and what \
             to do on one line, fails, and loses nothing",
            input_wrong,
        ),
        line("unclean-4", V4, "a copied tail is lost by an unclean election", unclean_election),
        line(
            "compacted-4",
            V4,
            "the cleaner works during the copy and after it: superseded, nowhere different",
            compacted,
        ),
        line(
            "changes-4",
            V4,
            "records deleted into a batch and past the copy, partitions added, topic recreated",
            topics_change,
        ),
        line(
            "large-batches-4",
            V4,
            "batches of 24 MB and 100 MB through 16 MiB of shard memory",
            large_batches,
        ),
        line("partitions-1000-4", V4, "one topic of 1,000 partitions", many_partitions),
        line(
            "idle-1000-4",
            V4,
            "1,000 idle partitions followed by an ordinary user with 8 MiB of lockable memory: \
             under 0.2 % of a core",
            idle,
        ),
    ]
};

/// Runs the long scenarios and writes their results.
#[derive(Parser)]
#[command(name = "campaign")]
struct Arguments {
    /// Only the lines whose names contain this; they run again even with a result of this commit.
    #[arg(long)]
    only: Option<String>,
    /// Names the lines and runs nothing.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match child::run_if_asked() {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    }
    let arguments = Arguments::parse();
    let commit = commit();
    let mut failed = 0;
    for line in &LINES {
        let path = results().join(format!("{}.md", line.name));
        if arguments.list {
            println!("{}: {}", line.name, line.what);
            continue;
        }
        match &arguments.only {
            Some(only) if !line.name.contains(only) => continue,
            None if has_result(&path, &commit) => {
                println!("{}: has a result of {commit}", line.name);
                continue;
            }
            _ => {}
        }
        println!("{}: {}", line.name, line.what);
        if !run(line, &path, &commit) {
            failed += 1;
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is checked out; results, which the campaign writes itself, do not make it another.
fn commit() -> String {
    let head = output("git", &["rev-parse", "--short=12", "HEAD"]);
    let changes =
        output("git", &["status", "--porcelain", "--", ":/", ":(top,exclude)tests/results"]);
    if changes.is_empty() { head } else { head + "-dirty" }
}

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results")
}

fn has_result(path: &Path, commit: &str) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().any(|line| line == format!("- commit: {commit}"))
        && text.lines().any(|line| line == "- result: passed")
}

/// Runs a line and writes its result; whether it passed.
fn run(line: &Line, path: &Path, commit: &str) -> bool {
    let began = Instant::now();
    let outcome = match require(line.version) {
        Ok(kafka) => (line.run)(&kafka).map_err(|error| error.to_string()),
        Err(skipped) => Err(skipped.to_string()),
    };
    let seconds = began.elapsed().as_secs();
    let passed = outcome.is_ok();
    let mut text = format!(
        "# {}\n\n{}\n\n- result: {}\n- date: {}\n- commit: {commit}\n- command: `cargo run \
         --release -p heliostat-tests --bin campaign -- --only {}`\n- host: {}\n- kernel: {}\n- \
         profile: {}\n- wall time: {seconds} s\n\n",
        line.name,
        line.what,
        if passed { "passed" } else { "failed" },
        output("date", &["-u", "+%F %T UTC"]),
        line.name,
        host(),
        output("uname", &["-sr"]),
        if cfg!(debug_assertions) { "dev" } else { "release" },
    );
    let details: Vec<_> = match outcome {
        Ok(figures) => figures.iter().map(|(name, value)| format!("- {name}: {value}\n")).collect(),
        Err(error) => vec![format!("```\n{error}\n```\n")],
    };
    text.push_str(&details.concat());
    println!("{text}");
    let written = std::fs::create_dir_all(results()).and_then(|()| std::fs::write(path, text));
    if let Err(error) = &written {
        println!("{}: {error}", path.display());
    }
    passed && written.is_ok()
}

/// Processors and memory.
fn host() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap_or(0);
    format!("{count} x {model}, {} MiB", kib / 1024)
}

/// First line of a program's output.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.map_or_else(|_| "unknown".to_owned(), |text| text.lines().next().unwrap_or("").to_owned())
}

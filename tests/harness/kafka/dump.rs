//! Kafka's own `DumpLogSegments` as the judge of log files.
//!
//! The tool exits with 0 whatever it finds, so its output is searched for complaints.

use std::path::Path;
use std::process::{Command, Stdio};

use super::archive;
use super::artifacts::Artifacts;
use super::error::{KafkaError, Result};

/// Output of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpOutput {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Whether the exit status was 0.
    pub success: bool,
}

/// One line that says something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Words that were searched for.
    pub kind: &'static str,
    /// The line.
    pub line: String,
}

/// What Kafka's tool writes when a file is not as it should be. Compared without case, because
/// versions differ in it.
const COMPLAINTS: [&str; 9] = [
    "mismatches in",
    "found timestamp mismatch",
    "found out of order timestamp",
    "invalid bytes at the end",
    "isvalid: false",
    "failed sanity check",
    "corrupt",
    "exception",
    "could not decode",
];
/// A complaint about an ordinary log, and nothing about a compacted one.
const NON_CONSECUTIVE: &str = "non-consecutive offsets";

impl DumpOutput {
    /// Lines of both streams that say something is wrong. `compacted` allows gaps between
    /// offsets.
    pub fn complaints(&self, compacted: bool) -> Vec<Complaint> {
        let kinds = COMPLAINTS.into_iter().chain((!compacted).then_some(NON_CONSECUTIVE));
        let kinds: Vec<_> = kinds.collect();
        let lines: Vec<_> = self.stdout.lines().chain(self.stderr.lines()).collect();
        let mut found = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            // Payloads of --print-data-log may hold any words.
            if line.trim_start().starts_with('|') {
                continue;
            }
            let lower = line.to_ascii_lowercase();
            let kind = kinds.iter().find(|kind| lower.contains(**kind));
            let Some(kind) = kind else { continue };
            let below = lines.get(at + 1..).unwrap_or_default();
            if *kind != NON_CONSECUTIVE || !is_only_the_first_offset(below) {
                found.push(Complaint { kind, line: (*line).to_owned() });
            }
        }
        found
    }

    /// Lines that describe a batch.
    pub fn batch_lines(&self) -> impl Iterator<Item = &str> {
        self.stdout.lines().filter(|line| line.starts_with("baseOffset: "))
    }
}

/// Whether the lines `below` a complaint of gaps name none but that in front of a file's first
/// record: Kafka 4.4 takes -1 for the offset before it, in every segment.
fn is_only_the_first_offset(below: &[&str]) -> bool {
    let pairs: Vec<_> = below.iter().take_while(|line| line.contains(" is followed by ")).collect();
    !pairs.is_empty() && pairs.iter().all(|pair| pair.trim_start().starts_with("-1 is followed"))
}

/// Runs `DumpLogSegments` of the version of `artifacts` over `files` (`.log`, `.index`,
/// `.timeindex`, `.snapshot`, `.txnindex`), with `flags` such as `--deep-iteration` or
/// `--index-sanity-check`. Costs a JVM start.
///
/// # Errors
///
/// [`KafkaError::Process`] when Java does not start. What the tool thinks of the files is in the
/// output.
pub fn dump_log<P: AsRef<Path>>(
    artifacts: &Artifacts,
    files: &[P],
    flags: &[&str],
) -> Result<DumpOutput> {
    let names: Vec<_> = files.iter().map(|f| f.as_ref().display().to_string()).collect();
    let failed = |source| KafkaError::Process { name: "dump-log".into(), source };
    let mut child = Command::new(artifacts.java())
        .args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args(archive::options(&artifacts.broker_archive()))
        .arg(artifacts.logging(true))
        .arg("-cp")
        .arg(artifacts.class_path())
        .args(["Launcher", "--buffered", artifacts.dump_log_class()])
        .args(flags)
        .args(["--files", &names.join(",")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // Held until the end: the launcher halts when it is closed.
    let _input = child.stdin.take();
    let run = child.wait_with_output().map_err(failed)?;
    Ok(DumpOutput {
        stdout: String::from_utf8_lossy(&run.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&run.stderr).into_owned(),
        success: run.status.success(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stdout: &str, stderr: &str) -> DumpOutput {
        DumpOutput { stdout: stdout.into(), stderr: stderr.into(), success: true }
    }

    #[test]
    fn gaps_are_allowed_in_compacted_logs_only() {
        let gaps = output("", "Non-consecutive offsets in /x/0.log\n");

        assert_eq!(gaps.complaints(false).len(), 1);
        assert_eq!(gaps.complaints(true), []);
    }

    #[test]
    fn where_a_segment_begins_is_no_gap() {
        let first = "Non-consecutive offsets in /x/7.log\n  -1 is followed by 7\n";
        let gap = format!("{first}  9 is followed by 12\n");

        assert_eq!(output("", first).complaints(false), []);
        assert_eq!(output("", &gap).complaints(false).len(), 1);
    }

    #[test]
    fn either_spelling_of_an_invalid_batch_is_found() {
        for line in ["baseOffset: 0 crc: 1 isvalid: false", "| nothing\nx isValid: false"] {
            assert_eq!(output(line, "").complaints(true).len(), 1, "{line}");
        }
    }

    #[test]
    fn payloads_are_not_complaints() {
        let data = output("| offset: 1 payload: exception corrupt\n", "");

        assert_eq!(data.complaints(false), []);
    }
}

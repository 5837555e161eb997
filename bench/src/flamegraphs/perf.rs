//! A role under perf, and its stacks.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use inferno::collapse::Collapse;
use inferno::collapse::perf::Folder;

use crate::error::BenchError;

/// Bytes of a stack that are kept with each tick, from which the frames are told later: there are
/// no frame pointers.
const STACK_BYTES: u32 = 16 << 10;
/// Less processor time makes no picture.
const CPU_MIN: Duration = Duration::from_millis(100);

/// Whether perf is there.
pub(super) fn look() -> Result<(), BenchError> {
    let missing = BenchError::system("start perf; apt-get install linux-perf");
    Command::new("perf").arg("--version").output().map(drop).map_err(missing)
}

/// Stacks, folded, each with its nanoseconds behind it; and all of them together.
pub(super) struct Stacks {
    pub(super) folded: Vec<String>,
    pub(super) cpu: Duration,
}

/// Where one recording is kept.
pub(super) struct Perf {
    data: PathBuf,
    frequency: u32,
}

impl Perf {
    pub(super) fn new(data: PathBuf, frequency: u32) -> Self {
        Self { data, frequency }
    }

    /// What stands before the command of a role; nothing is recorded in its first `skip_ms`.
    pub(super) fn before(&self, skip_ms: u32) -> Vec<String> {
        let mut command = vec![
            "perf".to_owned(),
            "record".to_owned(),
            "--quiet".to_owned(),
            "--event=cpu-clock".to_owned(),
            format!("--freq={}", self.frequency),
            format!("--call-graph=dwarf,{STACK_BYTES}"),
            format!("--output={}", self.data.display()),
        ];
        if skip_ms > 0 {
            command.push(format!("--delay={skip_ms}"));
        }
        command.push("--".to_owned());
        command
    }

    /// The stacks; only those with a frame of the name `within`, if there is one.
    pub(super) fn stacks(&self, within: Option<&str>) -> Result<Stacks, BenchError> {
        let mut script = Command::new("perf")
            // Inlined frames would take minutes.
            .args(["script", "--no-inline", "--force", "--input"])
            .arg(&self.data)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(BenchError::system("start perf script"))?;
        let mut folded = Vec::new();
        if let Some(output) = script.stdout.take() {
            Folder::default()
                .collapse(BufReader::new(output), &mut folded)
                .map_err(BenchError::system("read what perf recorded"))?;
        }
        script.wait().map_err(BenchError::system("wait for perf script"))?;
        let text = String::from_utf8_lossy(&folded);
        let wanted = |line: &&str| within.is_none_or(|name| line.contains(name));
        let folded: Vec<String> = text.lines().filter(wanted).map(str::to_owned).collect();
        let nanoseconds = |stack: &String| stack.rsplit_once(' ')?.1.parse::<u64>().ok();
        let cpu = Duration::from_nanos(folded.iter().filter_map(nanoseconds).sum());
        if cpu < CPU_MIN {
            let what = format!("perf saw {cpu:?} of processor time, a picture takes {CPU_MIN:?}");
            return Err(BenchError::Incomplete(what));
        }
        Ok(Stacks { folded, cpu })
    }
}

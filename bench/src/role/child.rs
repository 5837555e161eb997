//! Starting a role, and hearing from it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde::de::DeserializeOwned;

use crate::error::BenchError;

/// Where a role is played.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seat {
    /// On this processor, or on all.
    pub(crate) cpu: Option<usize>,
    /// In this network namespace, or in that of this process.
    pub(crate) namespace: Option<PathBuf>,
}

impl From<Option<usize>> for Seat {
    fn from(cpu: Option<usize>) -> Self {
        Self { cpu, namespace: None }
    }
}

/// A running role; it is killed when this goes.
#[derive(Debug)]
pub(crate) struct Child {
    role: String,
    process: std::process::Child,
    /// Held: a role that serves ends when it is closed.
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a role in its place.
    pub(crate) fn start(seat: impl Into<Seat>, args: &[String]) -> Result<Self, BenchError> {
        let seat = seat.into();
        let failed = BenchError::system("start a role");
        let program = std::env::current_exe().map_err(BenchError::system("find this program"))?;
        let mut command = Command::new(program);
        command.arg("role");
        if let Some(cpu) = seat.cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        if let Some(namespace) = &seat.namespace {
            command.arg("--netns").arg(namespace);
        }
        let mut process = command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (input, output) = (process.stdin.take(), process.stdout.take().map(BufReader::new));
        let role = args.first().cloned().unwrap_or_default();
        Ok(Self { role, process, input, output })
    }

    /// The next line that it prints.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, BenchError> {
        let failed = |why: String| BenchError::Role { role: self.role.clone(), why };
        let mut line = String::new();
        if let Some(output) = &mut self.output {
            output.read_line(&mut line).map_err(|error| failed(error.to_string()))?;
        }
        if line.is_empty() {
            return Err(failed("it ended without figures; see its error above".to_owned()));
        }
        serde_json::from_str(&line).map_err(|error| failed(format!("{error} in {line:?}")))
    }

    /// Closes its input and waits for its end.
    pub(crate) fn end(mut self) -> Result<(), BenchError> {
        drop(self.input.take());
        let status = self.process.wait().map_err(BenchError::system("wait for a role"))?;
        if status.success() {
            return Ok(());
        }
        Err(BenchError::Role { role: self.role.clone(), why: status.to_string() })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a role to its end and returns its figures.
pub(crate) fn run<T: DeserializeOwned>(
    seat: impl Into<Seat>,
    args: &[String],
) -> Result<T, BenchError> {
    let mut child = Child::start(seat, args)?;
    let figures = child.hear()?;
    child.end()?;
    Ok(figures)
}

//! Starting a role, and hearing from it.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde::de::DeserializeOwned;

use crate::error::BenchError;

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
    /// Starts a role on processor `cpu`, or on all.
    pub(crate) fn start(cpu: Option<usize>, args: &[String]) -> Result<Self, BenchError> {
        let failed = BenchError::system("start a role");
        let program = std::env::current_exe().map_err(BenchError::system("find this program"))?;
        let mut command = Command::new(program);
        command.arg("role");
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
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
    cpu: Option<usize>,
    args: &[String],
) -> Result<T, BenchError> {
    let mut child = Child::start(cpu, args)?;
    let figures = child.hear()?;
    child.end()?;
    Ok(figures)
}

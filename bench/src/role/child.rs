//! Starting a role, and hearing from it.

use std::path::PathBuf;
use std::process::Command;

use heliostat_io::embedded::{self, Heard};
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
    process: embedded::Child,
}

impl Child {
    /// Starts a role in its place.
    pub(crate) fn start(seat: impl Into<Seat>, args: &[String]) -> Result<Self, BenchError> {
        Self::start_behind(&[], seat, args)
    }

    /// Starts a role as the last arguments of another program, which ends with it.
    pub(crate) fn start_behind(
        before: &[String],
        seat: impl Into<Seat>,
        args: &[String],
    ) -> Result<Self, BenchError> {
        let seat = seat.into();
        let program =
            embedded::Child::this_program().map_err(BenchError::system("find this program"))?;
        let mut command = match before.split_first() {
            None => program,
            Some((other, others)) => {
                let mut command = Command::new(other);
                command.args(others).arg(program.get_program());
                command
            }
        };
        command.arg("role");
        if let Some(cpu) = seat.cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        if let Some(namespace) = &seat.namespace {
            command.arg("--netns").arg(namespace);
        }
        let process = embedded::Child::start(command.args(args));
        let process = process.map_err(BenchError::system("start a role"))?;
        Ok(Self { role: args.first().cloned().unwrap_or_default(), process })
    }

    /// The next line that it prints.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, BenchError> {
        let failed = |why: String| BenchError::Role { role: self.role.clone(), why };
        match self.process.hear(|| false).map_err(|error| failed(error.to_string()))? {
            Heard::Line(line) => {
                serde_json::from_str(&line).map_err(|error| failed(format!("{error} in {line:?}")))
            }
            Heard::End | Heard::GivenUp => {
                Err(failed("it ended without figures; see its error above".to_owned()))
            }
        }
    }

    /// Gives it a line of input.
    pub(crate) fn say(&mut self, line: &str) -> Result<(), BenchError> {
        self.process.say(line).map_err(BenchError::system("speak to a role"))
    }

    /// Its process ID.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Closes its input and waits for its end.
    pub(crate) fn end(self) -> Result<(), BenchError> {
        let status = self.process.end().map_err(BenchError::system("wait for a role"))?;
        if status.success() {
            return Ok(());
        }
        Err(BenchError::Role { role: self.role, why: status.to_string() })
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

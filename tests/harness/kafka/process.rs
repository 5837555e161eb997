//! One JVM of the harness: started in a process group of its own, ended with its owner.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::error::{KafkaError, Result};
use super::wait;

/// A running JVM. Dropping it kills the process and waits for it to be gone.
///
/// The held standard input is the second line of defence: the launcher in the JVM halts when this
/// process is gone, however it went.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    _guard: Option<ChildStdin>,
}

impl Process {
    /// Starts `command`; what it prints is appended to `log`.
    pub(crate) fn start(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;

        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(KafkaError::file("open", log))?;
        let err = out.try_clone().map_err(KafkaError::file("open", log))?;
        // A group of its own: Ctrl-C in a terminal reaches the owner, which decides.
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .map_err(|source| KafkaError::Process { name: name.into(), source })?;
        let guard = child.stdin.take();
        Ok(Self { name: name.into(), child, log: log.into(), _guard: guard })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends `signal`. Not to a process that was waited for: its number may be another's by now,
    /// which is why [`Child`] knows.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.exited()?.is_some() {
            return Ok(());
        }
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.map_err(|errno| KafkaError::Process { name: self.name.clone(), source: errno.into() })
    }

    /// Waits until a sent stop signal has reached all threads of the process.
    pub(crate) fn wait_paused(&mut self, timeout: Duration) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        // Only a stop is asked for, so that the exit status stays for the child's own handle.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        wait::until(format!("{} to pause", self.name), timeout, || {
            self.check_alive()?;
            let stopped = waitid(WaitId::Pid(pid), options);
            let stopped = stopped.map_err(|errno| KafkaError::Process {
                name: self.name.clone(),
                source: errno.into(),
            })?;
            Ok(stopped.map(drop))
        })
    }

    /// Exit status, once there is one.
    pub(crate) fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .map_err(|source| KafkaError::Process { name: self.name.clone(), source })
    }

    /// Fails when the process is gone, with the end of its log.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.exited()? {
            None => Ok(()),
            Some(status) => Err(KafkaError::Exited {
                name: self.name.clone(),
                status: status.to_string(),
                log_tail: tail(&self.log, 30),
            }),
        }
    }

    /// Kills at once, without a chance to write anything.
    pub(crate) fn kill(&mut self) -> Result<ExitStatus> {
        let failed = |source| KafkaError::Process { name: self.name.clone(), source };
        self.child.kill().map_err(failed)?;
        self.child.wait().map_err(failed)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process. Nobody is left to hear of an error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Last `lines` lines of a file, or why it cannot be read.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    match fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let all: Vec<&str> = text.lines().collect();
            all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
        }
        Err(error) => format!("{}: {error}", path.display()),
    }
}

//! A process that speaks in lines, and goes with whoever started it.

use std::io::{self, BufRead, BufReader, Write as _};
use std::process::{self, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Time between two looks at whether to go on waiting.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What came of waiting for a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A line, with its end.
    Line(String),
    /// It has closed its output, so it ends.
    End,
    /// The one who waits gave up.
    GivenUp,
}

/// A running child; it is killed when this goes.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
    /// Held: a child that serves ends when it is closed.
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

impl Child {
    /// This program, to be started again.
    ///
    /// # Errors
    /// If the system does not tell where it is.
    pub fn this_program() -> io::Result<Command> {
        std::env::current_exe().map(Command::new)
    }

    /// Starts `command` with pipes for input and output.
    ///
    /// # Errors
    /// From the system.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (process.stdin.take(), process.stdout.take().map(BufReader::new));
        Ok(Self { process, input, output })
    }

    /// Waits for its next line, until `gives_up` says so.
    ///
    /// # Errors
    /// From the system.
    pub fn hear(&mut self, mut gives_up: impl FnMut() -> bool) -> io::Result<Heard> {
        let Some(output) = &mut self.output else { return Ok(Heard::End) };
        while output.buffer().is_empty() {
            if gives_up() {
                return Ok(Heard::GivenUp);
            }
            let mut fds = [PollFd::new(output.get_ref(), PollFlags::IN)];
            let within = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
            match poll(&mut fds, Some(&within)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let mut line = String::new();
        output.read_line(&mut line)?;
        Ok(if line.is_empty() { Heard::End } else { Heard::Line(line) })
    }

    /// Gives it a line of input.
    ///
    /// # Errors
    /// From the system: most likely it has ended.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        let Some(input) = &mut self.input else { return Ok(()) };
        writeln!(input, "{line}")?;
        input.flush()
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Closes its input and waits for its end.
    ///
    /// # Errors
    /// From the system.
    pub fn end(mut self) -> io::Result<ExitStatus> {
        drop(self.input.take());
        self.process.wait()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        Child::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn lines_come_one_by_one_and_then_the_end() {
        let mut child = shell("echo a; echo b; cat; exit 3");
        let mut hear = || child.hear(|| false).unwrap();
        assert_eq!(hear(), Heard::Line("a\n".to_owned()));
        assert_eq!(hear(), Heard::Line("b\n".to_owned()));
        child.say("c").unwrap();
        assert_eq!(child.hear(|| false).unwrap(), Heard::Line("c\n".to_owned()));
        assert_eq!(child.end().unwrap().code(), Some(3), "it ends when its input does");
        let mut silent = shell("exit 0");
        assert_eq!(silent.hear(|| false).unwrap(), Heard::End);
    }

    #[test]
    fn a_silent_child_can_be_given_up_and_is_killed() {
        let mut child = shell("exec cat");
        let mut looks = 0;
        let heard = child.hear(|| {
            looks += 1;
            looks > 2
        });
        assert_eq!(heard.unwrap(), Heard::GivenUp);
        let pid = child.process.id();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}

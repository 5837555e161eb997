//! A copy in a process of its own, so that it can be killed.
//!
//! The process is this binary again: each binary that runs scenarios calls [`run_if_asked`]
//! first, in a test named [`TEST`] where it is a test binary.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::copy::{COPY_TIMEOUT, Copy, Ends, JobPlan};
use super::error::{Result, ScenarioError};
use crate::kafka::{KafkaError, wait};

/// Tells a process that it is to copy, and what.
const ARGUMENT: &str = "HELIOSTAT_SCENARIO_CHILD";
/// Name of the test that has to call [`run_if_asked`].
pub const TEST: &str = "the_second_process_copies";
/// Before each report of the second process.
const REPORT: &str = "ends: ";
/// Time between two reports.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// A copy in another process.
#[derive(Debug)]
pub struct ChildMirror {
    child: Child,
    ends: Arc<Mutex<Ends>>,
}

impl ChildMirror {
    /// Starts a job that follows.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::File`] when the binary cannot be started.
    pub fn follow(copy: &Copy) -> Result<Self> {
        let plan = copy.plan();
        let argument = json!({
            "dir": plan.dir, "bootstrap": plan.bootstrap, "topics": plan.topics,
            "pairs": plan.pairs, "shards": plan.shards,
        });
        let binary = std::env::current_exe().map_err(ScenarioError::file(&plan.dir))?;
        let mut child = Command::new(&binary)
            .args(["--exact", TEST, "--nocapture"])
            .env(ARGUMENT, argument.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(ScenarioError::file(&binary))?;
        let ends = Arc::new(Mutex::new(Ends::new()));
        if let Some(output) = child.stdout.take() {
            let ends = Arc::clone(&ends);
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                    if let Some(seen) = line.split_once(REPORT).and_then(|(_, text)| parse(text)) {
                        *ends.lock().unwrap_or_else(PoisonError::into_inner) = seen;
                    }
                }
            });
        }
        Ok(Self { child, ends })
    }

    /// Ends of its partitions as last reported.
    pub fn ends(&self) -> Ends {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until all partitions of `ends` are copied up to there.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::NotReached`] with the ends that it has, also when the process is gone.
    pub fn wait_for_ends(&mut self, ends: &Ends) -> Result<()> {
        let what = format!("copied by the second process up to {ends:?}");
        let gone = |status| ScenarioError::NotReached {
            what: format!("{ends:?}"),
            waited: Duration::ZERO,
            seen: status,
        };
        let reached = wait::until(what.clone(), COPY_TIMEOUT, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Ok(Some(Err(gone(status.to_string()))));
            }
            let seen = self.ends();
            let all = ends.iter().all(|(name, end)| seen.get(name).is_some_and(|at| at >= end));
            Ok(all.then_some(Ok(())))
        });
        match reached {
            Ok(outcome) => outcome,
            Err(KafkaError::Timeout { waited, .. }) => {
                Err(ScenarioError::NotReached { what, waited, seen: format!("{:?}", self.ends()) })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Kills it with SIGKILL and waits for its end.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Wrong`] when it had ended before.
    pub fn kill(mut self) -> Result<()> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(ScenarioError::Wrong(format!("the second process ended with {status}")));
        }
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        // Either fails only for a process that is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ChildMirror {
    fn drop(&mut self) {
        self.end();
    }
}

fn parse(text: &str) -> Option<Ends> {
    let Value::Object(map) = serde_json::from_str(text.trim()).ok()? else { return None };
    map.into_iter().map(|(name, end)| Some((name, end.as_i64()?))).collect()
}

/// In the second process: copies until it is killed, or until the first process is gone.
/// In any other: `false` at once.
///
/// # Errors
///
/// Those of a copy.
pub fn run_if_asked() -> Result<bool> {
    let Ok(argument) = std::env::var(ARGUMENT) else { return Ok(false) };
    let plan = plan_of(&argument)
        .ok_or_else(|| ScenarioError::Wrong(format!("no plan of a copy: {argument}")))?;
    std::thread::spawn(|| {
        // Nothing is ever written there: the end of it is the end of the first process.
        let mut rest = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut rest);
        std::process::exit(1);
    });
    let mirror = plan.follow()?;
    loop {
        report(&mirror.ends());
        mirror.check()?;
        std::thread::sleep(REPORT_EVERY);
    }
}

fn report(ends: &BTreeMap<String, i64>) {
    let mut out = std::io::stdout().lock();
    // A first process that does not listen any more ends this one through standard input.
    let _ = writeln!(out, "{REPORT}{}", json!(ends)).and_then(|()| out.flush());
}

fn plan_of(argument: &str) -> Option<JobPlan> {
    let value: Value = serde_json::from_str(argument).ok()?;
    let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
    let pairs = value.get("pairs")?.as_array()?.iter();
    Some(JobPlan {
        dir: PathBuf::from(text("dir")?),
        bootstrap: text("bootstrap")?,
        topics: text("topics")?,
        pairs: pairs
            .map(|pair| {
                let part = |index: usize| pair.get(index)?.as_str().map(str::to_owned);
                Some((part(0)?, part(1)?))
            })
            .collect::<Option<_>>()?,
        shards: usize::try_from(value.get("shards")?.as_u64()?).ok()?,
    })
}

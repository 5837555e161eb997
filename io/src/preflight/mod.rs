//! What this machine offers, as data: for `heliostat check` and for the log at start.
//!
//! Each [`Fact`] has a value, a verdict, what it means for a mirror, and what to type if
//! it should be otherwise. Nothing here changes the machine; the probe of a log dir
//! writes one nameless file.

mod kernel;
mod limits;
mod log_dir;
mod network;

pub use limits::{raise_open_files, usable_cpus};

use std::fs;
use std::path::Path;

/// How a fact bears on the mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It runs, with a loss that `meaning` names.
    Warn,
    /// It does not run.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// A stable name: lower case, dots between levels.
    pub name: &'static str,
    /// What was found, with its unit.
    pub value: String,
    /// How that bears on the mirror.
    pub verdict: Verdict,
    /// What it means, in one sentence.
    pub meaning: String,
    /// What to type or change; empty if nothing.
    pub remedy: String,
}

impl Fact {
    fn new(name: &'static str, value: impl Into<String>, verdict: Verdict) -> Self {
        let (meaning, remedy) = (String::new(), String::new());
        Self { name, value: value.into(), verdict, meaning, remedy }
    }

    fn meaning(self, meaning: impl Into<String>) -> Self {
        Self { meaning: meaning.into(), ..self }
    }

    /// Kept only if there is something to mend.
    fn remedy(self, remedy: impl Into<String>) -> Self {
        if self.verdict == Verdict::Ok { self } else { Self { remedy: remedy.into(), ..self } }
    }
}

/// Facts of the machine, for this many shards. Takes milliseconds; blocks.
pub fn system_facts(shards: u16) -> Vec<Fact> {
    let mut facts = vec![kernel::version()];
    facts.extend(kernel::io_uring());
    facts.extend(limits::facts(shards));
    facts.extend(network::facts());
    facts
}

/// Facts of one log dir, which must exist. Writes one nameless file; blocks.
pub fn log_dir_facts(log_dir: &Path) -> Vec<Fact> {
    log_dir::facts(log_dir)
}

/// Whether another process has the log dir. Takes its lock for a moment; makes no file.
pub fn lock_fact(log_dir: &Path) -> Fact {
    log_dir::lock(log_dir)
}

/// A line of `/proc` or `/sys`, without its end.
fn line_of(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// A size for reading.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (unit, name) in UNITS {
        if bytes >= unit {
            return format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(8 << 20), "8.0 MiB");
        assert_eq!(size(192 << 10), "192.0 KiB");
        assert_eq!(size((3 << 30) / 2), "1.5 GiB");
    }

    #[test]
    fn every_fact_has_a_meaning_and_every_trouble_a_remedy() {
        let dir = tempfile::tempdir().expect("scratch");
        let mut facts = system_facts(2);
        facts.extend(log_dir_facts(dir.path()));
        facts.extend(log_dir_facts(&dir.path().join("absent")));
        facts.push(lock_fact(dir.path()));
        for fact in &facts {
            assert!(!fact.value.is_empty() && !fact.meaning.is_empty(), "{fact:?}");
            assert_eq!(fact.verdict == Verdict::Ok, fact.remedy.is_empty(), "{fact:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).expect("listing").count(), 0, "left as it was");
    }
}

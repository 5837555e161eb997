//! What is wrong with the dumped files, in Kafka's words and order.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// Complaints, by file. Clean if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Offset in the index, last offset of the batch that it points to.
    index: BTreeMap<String, BTreeMap<i64, i64>>,
    /// Timestamp in the index, largest one of the batch.
    timestamps: BTreeMap<String, Vec<(i64, i64)>>,
    /// Timestamp in the index, that of the entry before.
    disorder: BTreeMap<String, Vec<(i64, i64)>>,
    /// Offset in the index, offset found in the log.
    missing: BTreeMap<String, Vec<(i64, i64)>>,
    /// Offset, the one that follows it. Not damage: compaction makes such.
    jumps: BTreeMap<String, BTreeMap<i64, i64>>,
    /// Everything that Kafka would print as an exception, or not notice.
    damage: Vec<String>,
    /// Files that nothing here reads.
    ignored: Vec<String>,
    /// Batches printed with `isvalid: false`, and the like.
    complaints: u64,
}

impl Findings {
    /// Whether nothing is wrong. Offsets that are not consecutive are no complaint.
    pub fn is_clean(&self) -> bool {
        self.index.is_empty()
            && self.timestamps.is_empty()
            && self.disorder.is_empty()
            && self.missing.is_empty()
            && self.damage.is_empty()
            && self.complaints == 0
    }

    /// Takes note of a file that is none of a partition's; not a complaint.
    pub fn ignored(&mut self, path: &str) {
        self.ignored.push(path.to_owned());
    }

    /// A file, a place and what is wrong there.
    pub(super) fn damage(&mut self, what: String) {
        self.damage.push(what);
    }

    /// What the lines of the file themselves say.
    pub(super) fn complaint(&mut self) {
        self.complaints = self.complaints.saturating_add(1);
    }

    pub(super) fn index_mismatch(&mut self, path: &str, index: i64, log: i64) {
        self.index.entry(path.to_owned()).or_default().insert(index, log);
    }

    pub(super) fn timestamp_mismatch(&mut self, path: &str, index: i64, log: i64) {
        self.timestamps.entry(path.to_owned()).or_default().push((index, log));
    }

    pub(super) fn out_of_order(&mut self, path: &str, index: i64, before: i64) {
        self.disorder.entry(path.to_owned()).or_default().push((index, before));
    }

    pub(super) fn not_found(&mut self, path: &str, index: i64, log: i64) {
        self.missing.entry(path.to_owned()).or_default().push((index, log));
    }

    pub(super) fn jump(&mut self, path: &str, offset: i64, next: i64) {
        self.jumps.entry(path.to_owned()).or_default().insert(offset, next);
    }

    /// Writes what Kafka writes to standard error, then what it has no words for.
    ///
    /// # Errors
    ///
    /// From the writer.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        for path in &self.ignored {
            writeln!(out, "Ignoring unknown file {path}")?;
        }
        for (path, pairs) in &self.index {
            writeln!(out, "Mismatches in :{path}")?;
            for (index, log) in pairs.iter().rev() {
                writeln!(out, "  Index offset: {index}, log offset: {log}")?;
            }
        }
        for (path, pairs) in &self.timestamps {
            writeln!(out, "Found timestamp mismatch in :{path}")?;
            for (index, log) in pairs {
                writeln!(out, "  Index timestamp: {index}, log timestamp: {log}")?;
            }
        }
        for (path, pairs) in &self.disorder {
            writeln!(out, "Found out of order timestamp in :{path}")?;
            for (index, before) in pairs {
                let before = format!("Previously indexed timestamp: {before}");
                writeln!(out, "  Index timestamp: {index}, {before}")?;
            }
        }
        for (path, pairs) in &self.missing {
            writeln!(out, "The following indexed offsets are not found in :{path}")?;
            for (index, log) in pairs {
                writeln!(out, "Indexed offset: {index}, found log offset: {log}")?;
            }
        }
        for (path, pairs) in &self.jumps {
            writeln!(out, "Non-consecutive offsets in {path}")?;
            for (offset, next) in pairs {
                writeln!(out, "  {offset} is followed by {next}")?;
            }
        }
        for what in &self.damage {
            writeln!(out, "{what}")?;
        }
        Ok(())
    }
}

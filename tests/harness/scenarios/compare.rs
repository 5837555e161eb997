//! Whether a copy is its source: bytes, epochs, what Kafka's own tool says of it.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::{Result, ScenarioError, ensure};
use super::figures::Figures;
use crate::kafka::{Artifacts, KafkaClient, KafkaVersion, dump_log, files, require};

/// What is in a log, by batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Bytes.
    pub bytes: u64,
    /// Batches of format 2, and messages of the older ones.
    pub batches: u64,
    /// Of them, by format.
    pub by_magic: BTreeMap<i8, u64>,
    /// Of them, by Kafka's number of the codec.
    pub by_codec: BTreeMap<i16, u64>,
    /// Batches that belong to transactions, markers not counted.
    pub transactional: u64,
    /// Markers.
    pub control: u64,
    /// Batches with a producer ID.
    pub idempotent: u64,
}

impl Census {
    /// Counts the whole batches of `log`.
    pub fn of(log: &[u8]) -> Self {
        let mut census = Self { bytes: length(log.len()), ..Self::default() };
        let mut rest = log;
        while let Some((batch, behind)) = split_batch(rest) {
            census.count(batch);
            rest = behind;
        }
        census
    }

    fn count(&mut self, batch: &[u8]) {
        let magic = batch.get(16).map_or(-1, |byte| i8::from_be_bytes([*byte]));
        self.batches += 1;
        *self.by_magic.entry(magic).or_default() += 1;
        let attributes = if magic == 2 {
            field(batch, 21).map_or(0, i16::from_be_bytes)
        } else {
            batch.get(17).map_or(0, |byte| i16::from(*byte))
        };
        *self.by_codec.entry(attributes & 7).or_default() += 1;
        if magic == 2 {
            let (transactional, control) = (attributes & 0x10 != 0, attributes & 0x20 != 0);
            self.transactional += u64::from(transactional && !control);
            self.control += u64::from(control);
            let producer = field(batch, 43).map_or(-1, i64::from_be_bytes);
            self.idempotent += u64::from(producer >= 0);
        }
    }

    /// Adds what another log has.
    pub fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.batches += other.batches;
        self.transactional += other.transactional;
        self.control += other.control;
        self.idempotent += other.idempotent;
        for (magic, count) in &other.by_magic {
            *self.by_magic.entry(*magic).or_default() += count;
        }
        for (codec, count) in &other.by_codec {
            *self.by_codec.entry(*codec).or_default() += count;
        }
    }

    /// For people.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        figures.add("bytes compared", self.bytes);
        figures.add("batches", self.batches);
        figures.add("batches by format", format!("{:?}", self.by_magic));
        figures.add("batches by codec", format!("{:?}", self.by_codec));
        figures.add("batches with a producer ID", self.idempotent);
        figures.add("batches of transactions", self.transactional);
        figures.add("markers", self.control);
        figures
    }
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn field<const N: usize>(batch: &[u8], at: usize) -> Option<[u8; N]> {
    batch.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn split_batch(log: &[u8]) -> Option<(&[u8], &[u8])> {
    let size = usize::try_from(i32::from_be_bytes(field(log, 8)?)).ok()?;
    (size >= 14).then_some(())?;
    log.split_at_checked(size.checked_add(12)?)
}

/// The segments of both directories hold the same bytes, one after another.
///
/// # Errors
///
/// [`ScenarioError::Wrong`] with the place of the first difference.
pub fn same_log(source: &Path, copy: &Path) -> Result<Census> {
    let (theirs, ours) = (files::log_bytes(source)?, files::log_bytes(copy)?);
    let differs = theirs.iter().zip(&ours).position(|(a, b)| a != b);
    ensure(theirs.len() == ours.len() && differs.is_none(), || {
        format!(
            "{} has {} bytes, {} {}; first difference {differs:?}",
            copy.display(),
            ours.len(),
            source.display(),
            theirs.len()
        )
    })?;
    Ok(Census::of(&ours))
}

/// Both directories have the same leader epochs. A leader notes its epoch before it has written
/// anything; a copy knows an epoch by its batches. So what starts at `log_end` does not count.
///
/// # Errors
///
/// [`ScenarioError::Wrong`] with both.
pub fn same_epochs(source: &Path, copy: &Path, log_end: i64) -> Result<()> {
    let mut theirs = files::epoch_checkpoint(source)?;
    theirs.retain(|&(_, start)| start < log_end);
    let ours = files::epoch_checkpoint(copy)?;
    ensure(theirs == ours, || {
        format!("{}: epochs {ours:?}, {}: {theirs:?}", copy.display(), source.display())
    })
}

/// Kafka's tool reads every file of these partition directories without a complaint. Returns how
/// many files it read.
///
/// # Errors
///
/// [`ScenarioError::Wrong`] with the complaints.
pub fn no_complaints(kafka: &Artifacts, dirs: &[&Path], compacted: bool) -> Result<usize> {
    let of = |extensions: &[&str]| -> Result<Vec<_>> {
        let mut found = Vec::new();
        for dir in dirs {
            found.extend(files::files_with(dir, extensions)?);
        }
        Ok(found)
    };
    let all = of(&["log", "index", "timeindex", "txnindex", "snapshot"])?;
    let indexes = of(&["index", "timeindex"])?;
    for (files, flag) in [(&all, "--deep-iteration"), (&indexes, "--index-sanity-check")] {
        let dump = dump_log(kafka, files, &[flag])?;
        let complaints = dump.complaints(compacted);
        ensure(dump.success && complaints.is_empty(), || {
            format!("DumpLogSegments {flag}: {complaints:?}\n{}", dump.stderr)
        })?;
        ensure(dump.stdout.matches("Dumping ").count() == files.len(), || {
            format!("DumpLogSegments {flag} did not read all of {files:?}")
        })?;
    }
    Ok(all.len())
}

/// As [`no_complaints`]; where the tool of an old version complains of its own broker's files too
/// (2.1 takes each index entry of a batch of several records for a mismatch), the newest one judges.
///
/// # Errors
///
/// [`ScenarioError::Wrong`] with the complaints.
pub fn no_new_complaints(kafka: &Artifacts, copies: &[&Path], sources: &[&Path]) -> Result<usize> {
    let found = no_complaints(kafka, copies, false);
    if found.is_ok() || no_complaints(kafka, sources, false).is_ok() {
        return found;
    }
    let newest =
        require(KafkaVersion::V4).map_err(|error| ScenarioError::Wrong(error.to_string()))?;
    no_complaints(&newest, copies, false)
}

/// Directories of the present leaders' replicas, by `topic-partition`.
///
/// # Errors
///
/// [`ScenarioError::Wrong`] for a partition without leader.
pub(crate) fn leaders(client: &KafkaClient, topics: &[&str]) -> Result<BTreeMap<String, i32>> {
    let mut found = BTreeMap::new();
    for topic in topics {
        let view = client
            .describe(topic)?
            .ok_or_else(|| ScenarioError::Wrong(format!("no topic {topic}")))?;
        for part in view.partitions {
            let name = format!("{topic}-{}", part.partition);
            let leader =
                part.leader.ok_or_else(|| ScenarioError::Wrong(format!("{name}: no leader")))?;
            found.insert(name, leader);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::forge::{ForgedBatch, LegacyMessage};

    #[test]
    fn a_census_counts_formats_and_markers() {
        let mut log = LegacyMessage::plain(1, 0, b"old").encode();
        log.extend(ForgedBatch::of(&[b"a"]).encode());
        log.extend(ForgedBatch::of(&[b"b"]).producer(7, 0, 0).encode());
        let census = Census::of(&log);
        assert_eq!((census.batches, census.idempotent), (3, 1));
        assert_eq!(census.by_magic, BTreeMap::from([(1, 1), (2, 2)]));
        assert_eq!(census.by_codec, BTreeMap::from([(0, 3)]));
    }

    #[test]
    fn one_byte_is_a_difference() {
        let (source, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = "00000000000000000000.log";
        let mut log = ForgedBatch::of(&[b"a"]).encode();
        std::fs::write(source.path().join(name), &log).unwrap();
        std::fs::write(copy.path().join(name), &log).unwrap();
        assert_eq!(same_log(source.path(), copy.path()).unwrap().batches, 1);
        log[66] ^= 1;
        std::fs::write(copy.path().join(name), &log).unwrap();
        let error = same_log(source.path(), copy.path()).unwrap_err().to_string();
        assert!(error.contains("Some(66)"), "{error}");
    }
}

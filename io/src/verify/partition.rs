//! One partition: copy and source side by side.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use heliostat_core::log::gaps::{GapKind, GapRecord};
use heliostat_core::protocol::TopicIdentity;
use heliostat_core::records::{BatchMeta, RecordError};
use heliostat_core::types::{Offset, TopicPartition};
use tokio::time::sleep;

use super::VerifyError;
use super::compare::{Batch, Verdict, byte_difference, compare, first_offset, unreadable};
use super::copy::{CopyFault, CopyReader, CopySegment};
use super::report::{Difference, Outcome, PartitionReport, SupersededRange, Why};
use super::source::{Source, SourceReader};

/// Warnings of one kind beyond this number are only counted.
const WARNINGS_MAX: usize = 10;
/// Ranges beyond this number are added to the last one.
const RANGES_MAX: usize = 10_000;

/// How often what is no batch is read again, of a copy that is being written.
const WAITS_MAX: u32 = 20;
/// Time between two such reads.
const WAIT: Duration = Duration::from_millis(100);

/// What is to be compared.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) topic: TopicIdentity,
    pub(super) index: i32,
    pub(super) segments: Vec<CopySegment>,
    /// As the copy's checkpoint says.
    pub(super) log_start: Option<Offset>,
    pub(super) gaps: Vec<GapRecord>,
    /// `false` if the topic is known not to be compacted.
    pub(super) may_be_cleaned: bool,
    pub(super) may_map: bool,
    pub(super) may_be_torn: bool,
    pub(super) check_content: bool,
}

/// A batch that was taken out of its reader.
struct Taken {
    meta: BatchMeta,
    bytes: Vec<u8>,
}

impl Taken {
    fn batch(&self) -> Batch<'_> {
        Batch { meta: &self.meta, bytes: &self.bytes }
    }
}

struct Walk<'a> {
    job: &'a Job,
    copy: CopyReader,
    /// Whether the copy has no batch, as far as is known.
    is_empty: bool,
    source: SourceReader<'a>,
    report: PartitionReport,
    unreadable: usize,
    done: &'a AtomicU64,
}

/// Why the walk ends before the ends of both logs.
enum Stop {
    Found(Box<Difference>),
    Failed(VerifyError),
}

impl From<VerifyError> for Stop {
    fn from(error: VerifyError) -> Self {
        Self::Failed(error)
    }
}

impl From<Difference> for Stop {
    fn from(found: Difference) -> Self {
        Self::Found(Box::new(found))
    }
}

/// Compares a partition. `done` counts bytes of the copy.
pub(super) async fn verify_partition(
    job: &Job,
    source: &mut Source,
    done: &AtomicU64,
) -> Result<PartitionReport, VerifyError> {
    let partition = TopicPartition::new(job.topic.name.clone(), job.index);
    let bounds = source.bounds(&partition).await?;
    let (source_start, source_end) = bounds;
    let copy = CopyReader::new(job.segments.clone(), job.may_map, job.may_be_torn);
    let base = job.segments.first().map_or(source_start, |segment| segment.base_offset);
    // Without an entry in the checkpoint the log begins with its first segment, or, where
    // compaction left nothing before that, with the source's.
    let copy_start = job.log_start.unwrap_or(base.min(source_start));
    let report = PartitionReport {
        partition,
        outcome: Outcome::Equal,
        copy_start,
        copy_end: copy_start,
        source_start,
        source_end,
        batches: 0,
        bytes: 0,
        superseded: Vec::new(),
        warnings: Vec::new(),
        gaps: job.gaps.clone(),
    };
    let from = copy_start.max(source_start);
    let topic = job.topic.clone();
    let source = SourceReader::new(source, topic, job.index, from, bounds);
    let mut walk = Walk { job, copy, is_empty: true, source, report, unreadable: 0, done };
    let stopped = walk.run(source_start).await;
    walk.finish(stopped)
}

impl Walk<'_> {
    async fn run(&mut self, source_start: Offset) -> Result<(), Stop> {
        let copy_start = self.report.copy_start;
        if copy_start > source_start && !self.is_gap(source_start, copy_start) {
            self.report.warnings.push(format!(
                "the copy's log start is {copy_start}, the source's {source_start}; what is \
                 between was not compared"
            ));
        }
        while let Some(copied) = self.copy_batch().await? {
            self.report.copy_end = copied.next_offset();
            self.is_empty = false;
            if copied.next_offset() <= self.source.log_start.max(copy_start) {
                let is_trimmed = copied.next_offset() <= self.source.log_start;
                self.pass_unseen(&copied, is_trimmed);
                continue;
            }
            let Some(sent) = self.source.current().await? else {
                self.at_source_end(&copied)?;
                continue;
            };
            if self.copy.bytes() == self.source.bytes() {
                self.note_content(&copied);
                self.pass_copy(&copied);
                self.source.advance();
                continue;
            }
            self.apart(copied, sent).await?;
        }
        Ok(())
    }

    /// The next batch of the copy. A corrupt one is compared with the source's, to say
    /// what it should be.
    async fn copy_batch(&mut self) -> Result<Option<BatchMeta>, Stop> {
        let mut waits = if self.job.may_map { 0 } else { WAITS_MAX };
        loop {
            let (path, position, error) = match self.copy.current() {
                Ok(batch) => return Ok(batch),
                Err(CopyFault::Error(error)) => return Err(error.into()),
                Err(CopyFault::Corrupt { path, position, error }) => (path, position, error),
            };
            // Writes to a file end in any order: what is before the last one may come yet.
            if waits == 0 {
                return Err(self.corrupt(path, position, error).await.into());
            }
            waits -= 1;
            sleep(WAIT).await;
        }
    }

    async fn corrupt(&mut self, path: PathBuf, position: u64, error: RecordError) -> Difference {
        let place = Some(format!("{} at byte {position}", path.display()));
        // What is broken may be the offset, so the end of what is sound counts.
        let sent = self.source.current().await.ok().flatten();
        let offset = sent.map_or(self.report.copy_end, |sent| sent.base_offset);
        let first = if self.job.may_map { "" } else { "stop the mirror, " };
        let meaning = format!(
            "the copy is corrupt: {error}; {first}remove the partition's directory and mirror it \
             again"
        );
        match sent {
            Some(_) if !self.source.bytes().is_empty() => {
                let found = byte_difference(offset, self.copy.bytes(), self.source.bytes());
                Difference { place, meaning, ..found }
            }
            _ => {
                let (copy, source) = (error.to_string(), "not there any more".to_owned());
                let field = "batch".to_owned();
                Difference { offset: Some(offset), field, copy, source, place, meaning }
            }
        }
    }

    fn pass_copy(&mut self, batch: &BatchMeta) {
        self.report.batches = self.report.batches.saturating_add(1);
        self.report.bytes = self.report.bytes.saturating_add(batch.size_bytes.into());
        self.done.fetch_add(batch.size_bytes.into(), Ordering::Relaxed);
        self.copy.advance();
    }

    /// A batch below the start of one of the two logs.
    fn pass_unseen(&mut self, batch: &BatchMeta, is_trimmed: bool) {
        if is_trimmed {
            let records = u64::try_from(batch.records_count).unwrap_or(0);
            self.superseded(Why::Trimmed, batch.base_offset, batch.next_offset(), records);
        }
        self.done.fetch_add(batch.size_bytes.into(), Ordering::Relaxed);
        self.copy.advance();
    }

    /// The copy goes on where the source has ended.
    fn at_source_end(&mut self, batch: &BatchMeta) -> Result<(), Stop> {
        let end = self.source.high_watermark;
        if batch.next_offset() <= end && self.job.may_be_cleaned {
            let records = u64::try_from(batch.records_count).unwrap_or(0);
            self.superseded(Why::Cleaned, batch.base_offset, batch.next_offset(), records);
            self.pass_copy(batch);
            return Ok(());
        }
        let copy = format!("a batch of {} bytes", batch.size_bytes);
        Err(self
            .placed(Difference {
                offset: Some(batch.base_offset),
                field: "batch".to_owned(),
                copy,
                source: format!("ends at {end}"),
                meaning: "the source has lost it, or the copy is ahead of its high watermark"
                    .to_owned(),
                place: None,
            })
            .into())
    }

    fn placed(&self, found: Difference) -> Difference {
        let place = self.copy.place();
        let place = place.map(|(path, at)| format!("{} at byte {at}", path.display()));
        Difference { place, ..found }
    }

    /// The batches differ: collects both sides up to a common end, and judges.
    async fn apart(&mut self, copied: BatchMeta, sent: BatchMeta) -> Result<(), Stop> {
        let place = self.placed(Difference::default()).place;
        let (mut copy, mut source) = (Vec::<Taken>::new(), Vec::<Taken>::new());
        let taken = |meta, bytes: &[u8]| Taken { meta, bytes: bytes.to_vec() };
        let copied = taken(copied, self.copy.bytes());
        let sent = taken(sent, self.source.bytes());
        let first = first_offset(copied.batch());
        if first_offset(sent.batch()) > copied.meta.last_offset {
            copy.push(copied);
        } else if first > sent.meta.last_offset {
            source.push(sent);
        } else {
            copy.push(copied);
            source.push(sent);
        }
        if !source.is_empty() {
            self.source.advance();
        }
        if let [copied] = copy.as_slice() {
            let meta = copied.meta;
            self.pass_copy(&meta);
        }
        while let (Some(a), Some(b)) = (copy.last(), source.last()) {
            let (a, b) = (a.meta.next_offset(), b.meta.next_offset());
            match a.cmp(&b) {
                std::cmp::Ordering::Less => match self.copy_batch().await? {
                    Some(meta) if meta.base_offset < b => {
                        copy.push(taken(meta, self.copy.bytes()));
                        self.report.copy_end = meta.next_offset();
                        self.pass_copy(&meta);
                    }
                    _ => break,
                },
                std::cmp::Ordering::Greater => match self.source.current().await? {
                    Some(meta) if meta.base_offset < a => {
                        source.push(taken(meta, self.source.bytes()));
                        self.source.advance();
                    }
                    _ => break,
                },
                std::cmp::Ordering::Equal => break,
            }
        }
        self.judge(&copy, &source, place)
    }

    fn judge(
        &mut self,
        copy: &[Taken],
        source: &[Taken],
        place: Option<String>,
    ) -> Result<(), Stop> {
        let copied: Vec<_> = copy.iter().map(Taken::batch).collect();
        let sent: Vec<_> = source.iter().map(Taken::batch).collect();
        // Records below the source's start, in the batch that it lies in, are still sent.
        let gap = |offset: Offset| self.is_gap(offset, offset.plus(1));
        let (first, last) = match (copy.first(), copy.last()) {
            (Some(first), Some(last)) => (first.meta.base_offset, last.meta.next_offset()),
            // Only the source has something: an empty batch of it means nothing lost.
            _ => (Offset::NONE, Offset::NONE),
        };
        match compare(&copied, &sent, self.job.may_be_cleaned, &gap) {
            Verdict::Cleaned { records } => {
                if first.0 >= 0 {
                    self.superseded(Why::Cleaned, first, last, records);
                }
                Ok(())
            }
            Verdict::Different(found) => Err(Difference { place, ..found }.into()),
        }
    }

    fn is_gap(&self, from: Offset, to: Offset) -> bool {
        let gaps = self.job.gaps.iter().filter(|gap| gap.kind == GapKind::Gap);
        gaps.into_iter().any(|gap| gap.from <= from && to <= gap.to)
    }

    fn superseded(&mut self, why: Why, from: Offset, to: Offset, records: u64) {
        let is_full = self.report.superseded.len() >= RANGES_MAX;
        match self.report.superseded.last_mut() {
            Some(last) if last.why == why && (last.to >= from || is_full) => {
                last.to = last.to.max(to);
                last.records = last.records.saturating_add(records);
            }
            _ => self.report.superseded.push(SupersededRange { why, from, to, records }),
        }
    }

    fn note_content(&mut self, meta: &BatchMeta) {
        if !self.job.check_content {
            return;
        }
        let Some(reason) = unreadable(Batch { meta, bytes: self.copy.bytes() }) else { return };
        self.unreadable = self.unreadable.saturating_add(1);
        if self.unreadable <= WARNINGS_MAX {
            self.report.warnings.push(format!(
                "{reason}; the checksum holds and the source has the same bytes, so this is how \
                 it was produced"
            ));
        }
    }

    fn finish(mut self, stopped: Result<(), Stop>) -> Result<PartitionReport, VerifyError> {
        if let Some(more) = self.unreadable.checked_sub(WARNINGS_MAX).filter(|more| *more > 0) {
            self.report.warnings.push(format!("{more} more batches that cannot be decoded"));
        }
        let torn = self.copy.tail().unfinished_bytes;
        if torn > 0 {
            let end = self.report.copy_end;
            self.report.warnings.push(if self.job.may_map {
                format!(
                    "{torn} bytes behind offset {end} are no whole batch yet; the next start \
                     completes or cuts them"
                )
            } else {
                format!(
                    "what is behind offset {end} is still being written; run verify again to \
                     compare it"
                )
            });
        }
        if let Some(last) = self.job.segments.last().filter(|_| self.is_empty) {
            // Everything before was trimmed.
            self.report.copy_end = self.report.copy_end.max(last.base_offset);
        }
        self.report.source_end = self.report.source_end.max(self.source.high_watermark);
        self.report.source_start = self.report.source_start.max(self.source.log_start);
        self.report.outcome = match stopped {
            Ok(()) if self.report.superseded.is_empty() => Outcome::Equal,
            Ok(()) => Outcome::Superseded,
            Err(Stop::Found(found)) => Outcome::Different(found),
            Err(Stop::Failed(error)) => return Err(error),
        };
        Ok(self.report)
    }
}

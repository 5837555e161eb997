//! The source: batches of one partition, fetched again.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use heliostat_core::protocol::{
    ErrorCode, FetchPartition, FetchPosition, OffsetAt, OffsetQuery, Reaction, TopicIdentity,
};
use heliostat_core::records::{BatchMeta, BatchWalker, RecordError, WalkLimits};
use heliostat_core::types::{LeaderEpoch, Offset, TopicPartition};
use tokio::time::sleep;

use super::VerifyError;
use crate::source_client::{ClientConfig, FetchClient, Fetched, SourceClient, SourceError};

/// Bytes asked for at a time.
const FETCH_BYTES: u32 = 8 << 20;
/// How often a question is asked again before the partition is given up.
const ATTEMPTS_MAX: u32 = 8;
/// Wait before the second attempt; it doubles.
const WAIT: Duration = Duration::from_millis(100);

/// Both kinds of connections to the source.
#[derive(Debug)]
pub(super) struct Source {
    control: SourceClient,
    fetch: FetchClient,
}

impl Source {
    pub(super) fn new(config: &ClientConfig) -> Self {
        Self { control: SourceClient::new(config.clone()), fetch: FetchClient::new(config) }
    }

    /// First offset and high watermark.
    pub(super) async fn bounds(
        &mut self,
        partition: &TopicPartition,
    ) -> Result<(Offset, Offset), VerifyError> {
        let first = self.offset(partition, OffsetAt::Earliest).await?;
        Ok((first, self.offset(partition, OffsetAt::Latest).await?))
    }

    async fn offset(
        &mut self,
        partition: &TopicPartition,
        at: OffsetAt,
    ) -> Result<Offset, VerifyError> {
        let mut attempts = Attempts::new(partition);
        loop {
            if self.control.leader(partition).is_none() {
                self.refresh(partition).await?;
            }
            let (partition, current_leader_epoch) = (partition.clone(), LeaderEpoch::NONE);
            let query = OffsetQuery { partition: partition.clone(), current_leader_epoch, at };
            let answers = self.control.list_offsets(vec![query]).await;
            let error = match (answers.answers.first(), answers.unanswered.first()) {
                (Some(answer), _) if answer.error.is_none() => return Ok(answer.offset),
                (Some(answer), _) => Trouble::Code(answer.error),
                (None, Some(unanswered)) => Trouble::Source((*unanswered.error).clone()),
                (None, None) => Trouble::Source(SourceError::NoLeader),
            };
            attempts.failed(error).await?;
            self.refresh(&partition).await?;
        }
    }

    async fn refresh(&mut self, partition: &TopicPartition) -> Result<(), VerifyError> {
        let topics = [Arc::clone(&partition.topic)];
        self.control.metadata(Some(&topics)).await.map_err(VerifyError::Source)?;
        Ok(())
    }
}

enum Trouble {
    Code(ErrorCode),
    Source(SourceError),
    Corrupt(RecordError),
    Silent,
}

/// Tries that are left, and the waits between them.
struct Attempts {
    partition: TopicPartition,
    failures: u32,
}

impl Attempts {
    fn new(partition: &TopicPartition) -> Self {
        Self { partition: partition.clone(), failures: 0 }
    }

    /// Waits before the next try, or gives the reason when there is none.
    async fn failed(&mut self, trouble: Trouble) -> Result<(), VerifyError> {
        self.failures = self.failures.saturating_add(1);
        let may_pass = match &trouble {
            Trouble::Code(code) => !matches!(
                code.reaction(),
                Reaction::Unauthorized | Reaction::Fatal | Reaction::TooOld
            ),
            Trouble::Source(_) | Trouble::Corrupt(_) | Trouble::Silent => true,
        };
        if may_pass && self.failures < ATTEMPTS_MAX {
            sleep(WAIT.saturating_mul(1 << self.failures.min(6))).await;
            return Ok(());
        }
        let partition = self.partition.clone();
        Err(match trouble {
            Trouble::Code(error) => VerifyError::Partition { partition, error },
            Trouble::Source(error) => VerifyError::Source(error),
            Trouble::Corrupt(error) => VerifyError::SourceBatch { partition, error },
            Trouble::Silent => VerifyError::NoRecords { partition },
        })
    }
}

/// Reads batches in order.
pub(super) struct SourceReader<'a> {
    source: &'a mut Source,
    partition: TopicPartition,
    topic: TopicIdentity,
    /// Where to fetch next.
    next: Offset,
    fetched: Option<Fetched>,
    at: usize,
    current: Option<(BatchMeta, Range<usize>)>,
    /// Largest seen.
    pub(super) high_watermark: Offset,
    /// Largest seen.
    pub(super) log_start: Offset,
}

impl<'a> SourceReader<'a> {
    /// Reads from the batch that holds `from` to the high watermark.
    pub(super) fn new(
        source: &'a mut Source,
        topic: TopicIdentity,
        index: i32,
        from: Offset,
        bounds: (Offset, Offset),
    ) -> Self {
        Self {
            source,
            partition: TopicPartition::new(Arc::clone(&topic.name), index),
            topic,
            next: from,
            fetched: None,
            at: 0,
            current: None,
            log_start: bounds.0,
            high_watermark: bounds.1,
        }
    }

    /// The batch that is next, checked; `None` at the end of what was asked for, or of
    /// the source.
    pub(super) async fn current(&mut self) -> Result<Option<BatchMeta>, VerifyError> {
        let mut attempts = Attempts::new(&self.partition);
        loop {
            if let Some((meta, _)) = &self.current {
                return Ok(Some(*meta));
            }
            match self.next_in_buffer() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    self.fetched = None;
                    attempts.failed(Trouble::Corrupt(error)).await?;
                }
            }
            if self.next >= self.high_watermark && attempts.failures > 0 {
                return Ok(None);
            }
            self.fetch(&mut attempts).await?;
        }
    }

    /// Takes the next batch of the buffer, if a whole one is there.
    fn next_in_buffer(&mut self) -> Result<bool, RecordError> {
        let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
        loop {
            let Some(fetched) = &self.fetched else { return Ok(false) };
            let rest = fetched.records().get(self.at..).unwrap_or_default();
            let (taken, meta) = BatchWalker::new(limits).feed(rest)?;
            let Some(meta) = meta else {
                self.fetched = None;
                return Ok(false);
            };
            let range = self.at..self.at.saturating_add(taken);
            self.at = range.end;
            // A broker may begin before what was asked for.
            if meta.next_offset() > self.next {
                self.current = Some((meta, range));
                return Ok(true);
            }
        }
    }

    async fn fetch(&mut self, attempts: &mut Attempts) -> Result<(), VerifyError> {
        let Some(leader) = self.source.control.leader(&self.partition).cloned() else {
            attempts.failed(Trouble::Source(SourceError::NoLeader)).await?;
            return self.source.refresh(&self.partition).await;
        };
        let position = FetchPosition {
            fetch_offset: self.next,
            current_leader_epoch: LeaderEpoch::NONE,
            last_fetched_epoch: LeaderEpoch::NONE,
            partition_max_bytes: FETCH_BYTES,
        };
        let topic = self.topic.clone();
        let asked = FetchPartition { topic, index: self.partition.partition, position };
        let fetched = match self.source.fetch.fetch(&leader, &asked).await {
            Ok(fetched) => fetched,
            Err(error) => {
                attempts.failed(Trouble::Source(error)).await?;
                return self.source.refresh(&self.partition).await;
            }
        };
        self.high_watermark = self.high_watermark.max(fetched.high_watermark);
        self.log_start = self.log_start.max(fetched.log_start_offset);
        if fetched.error == ErrorCode::OFFSET_OUT_OF_RANGE {
            // Trimmed meanwhile, if the start is above now.
            let (start, _) = self.source.bounds(&self.partition).await?;
            self.log_start = self.log_start.max(start);
            if start > self.next {
                self.next = start;
                return Ok(());
            }
        }
        if !fetched.error.is_none() {
            attempts.failed(Trouble::Code(fetched.error)).await?;
            return self.source.refresh(&self.partition).await;
        }
        if fetched.records().is_empty() {
            return attempts.failed(Trouble::Silent).await;
        }
        self.fetched = Some(fetched);
        self.at = 0;
        Ok(())
    }

    /// Bytes of the batch that `current` gave.
    pub(super) fn bytes(&self) -> &[u8] {
        let range = self.current.as_ref().map(|(_, range)| range.clone());
        let records = self.fetched.as_ref().map(Fetched::records);
        range.and_then(|range| records?.get(range)).unwrap_or_default()
    }

    /// Goes on behind it.
    pub(super) fn advance(&mut self) {
        if let Some((meta, _)) = self.current.take() {
            self.next = meta.next_offset();
        }
    }
}

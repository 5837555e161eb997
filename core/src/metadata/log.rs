//! `__cluster_metadata-0`: the records, and snapshots of what they say.
//!
//! The files are those of a KRaft controller: segments of v2 batches, and snapshots named after
//! the offset that they reach to and its epoch. Each start of the host is an election that it
//! wins: a new epoch, which a LeaderChange control batch opens.
//!
//! ```text
//!   open:     newest valid snapshot -> records behind it -> LeaderChange of a new epoch
//!   append:   tried on a clone of the image -> written and synced -> the clone is the image
//!   maintain: snapshot written and synced -> older segments and snapshots removed
//! ```
//!
//! What one decision says is in one batch, or between a begin and an end of a transaction; the
//! image never follows a part of it. A transaction that a crash has cut off is aborted by the
//! next start.

mod batches;
mod replay;
mod snapshot;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::ControlFlow;

use uuid::Uuid;

use self::replay::Replay;
pub use self::snapshot::{SNAPSHOT_BYTES_MAX, SnapshotName};
use super::image::{ImageError, MetadataImage};
use super::record::{AbortTransactionRecord, MetadataRecord, MetadataRecordError};
use crate::log::cold_log::{ColdAppendError, ColdLog, ColdReadError};
use crate::log::config::{LogConfig, LogConfigError, LogConfigValues};
use crate::log::recovery::{LogOpenError, OpenOptions, OpenReport};
use crate::log::store::{ColdStore, StoreError};
use crate::records::{BuildError, DecodeError};
use crate::types::{BrokerId, LeaderEpoch, Offset, TimestampMs, TopicId};

/// The log's directory.
pub const METADATA_DIR: &str = "__cluster_metadata-0";

/// The ID that Kafka gives the topic.
pub const METADATA_TOPIC_ID: TopicId = TopicId(Uuid::from_u128(1));

/// When the log is divided and when it is summed up. Bytes are those of record batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataLogLimits {
    /// A segment takes no batch beyond it.
    pub segment_bytes: u32,
    /// A decision of more is divided into batches of about so many.
    pub batch_bytes_max: usize,
    /// A snapshot is due once the log has grown by so much since the last one.
    pub snapshot_bytes: u64,
    /// The same, in records.
    pub snapshot_records: u64,
}

impl Default for MetadataLogLimits {
    /// 8 MiB of each; a snapshot after 20 MiB, as Kafka does, or 100,000 records.
    fn default() -> Self {
        Self {
            segment_bytes: 8 << 20,
            batch_bytes_max: 8 << 20,
            snapshot_bytes: 20 << 20,
            snapshot_records: 100_000,
        }
    }
}

/// How the log is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataLogOptions {
    /// The host, which leads from now on.
    pub node: BrokerId,
    /// Wall-clock time.
    pub now: TimestampMs,
    /// Everything below was durable: damage there is an error, and not cut off as a torn end.
    /// [`Offset::ZERO`] if nothing is known.
    pub recovery_point: Offset,
    /// When it is divided and summed up.
    pub limits: MetadataLogLimits,
}

/// What was done to open the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataOpenReport {
    /// Of the segments.
    pub log: OpenReport,
    /// The snapshot that was used.
    pub snapshot: Option<SnapshotName>,
    /// Newer snapshots that are damaged.
    pub damaged: Vec<SnapshotName>,
    /// Records that were replayed behind it.
    pub replayed: u64,
    /// Records of a decision that a crash has cut off; none of them holds.
    pub aborted: usize,
}

/// Why the metadata cannot be used, or was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataLogError {
    /// The segments cannot be opened.
    #[error("metadata log: {0}")]
    Open(#[from] LogOpenError),
    /// The segments cannot be read.
    #[error("metadata log: {0}")]
    Read(#[from] ColdReadError),
    /// Nothing was appended, or the log has to be opened again.
    #[error("metadata log: {0}")]
    Append(#[from] ColdAppendError),
    /// The system refused.
    #[error("metadata log: {0}")]
    Store(#[from] StoreError),
    /// Limits that no log can have.
    #[error("metadata log: {0}")]
    Config(#[from] LogConfigError),
    /// No batch can be made.
    #[error("metadata log: {0}")]
    Build(#[from] BuildError),
    /// A batch whose records cannot be read, though its checksum holds.
    #[error("metadata {place}: {source}")]
    Batch {
        /// Where.
        place: Place,
        /// What is wrong.
        source: DecodeError,
    },
    /// A record that this release cannot read. Nothing is done with what lies behind it.
    #[error("metadata {place}: {source}")]
    Record {
        /// Where.
        place: Place,
        /// What is wrong.
        source: MetadataRecordError,
    },
    /// A record that does not follow from those before it.
    #[error("metadata {place}: {source}; the log is not this cluster's, or was changed by hand")]
    Image {
        /// Where.
        place: Place,
        /// What is wrong.
        source: ImageError,
    },
    /// The begin or end of a transaction where none can be.
    #[error("metadata {place}: {name} out of place")]
    Transaction {
        /// Where.
        place: Place,
        /// The record.
        name: &'static str,
    },
    /// The log begins behind what is known from a snapshot.
    #[error(
        "metadata log begins at offset {log_start}, but {}; restore the missing .checkpoint file \
         in {METADATA_DIR}",
        snapshot.map_or("there is no valid snapshot".to_owned(), |it| format!("{it} is the last \
         valid snapshot"))
    )]
    Hole {
        /// First offset of the log.
        log_start: Offset,
        /// The last valid snapshot.
        snapshot: Option<SnapshotName>,
    },
    /// A decision that does not follow from the metadata. Nothing was written.
    #[error("metadata cannot be changed so: {0}")]
    Unfit(#[from] ImageError),
    /// All epochs are used.
    #[error("metadata log: no leader epoch is left above {0}")]
    Epochs(LeaderEpoch),
    /// A snapshot would be larger than one that is read. Nothing was written.
    #[error("metadata snapshot of {bytes} bytes; {SNAPSHOT_BYTES_MAX} are read: delete topics")]
    SnapshotTooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The snapshot; `None`: the log.
    pub snapshot: Option<SnapshotName>,
    /// Offset in it.
    pub offset: Offset,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.snapshot {
            Some(name) => write!(f, "snapshot {name}, offset {}", self.offset),
            None => write!(f, "log, offset {}", self.offset),
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct MetadataLog {
    log: ColdLog,
    image: MetadataImage,
    epoch: LeaderEpoch,
    limits: MetadataLogLimits,
    /// Since the last snapshot.
    grown_bytes: u64,
    grown_records: u64,
    last_timestamp: TimestampMs,
}

impl MetadataLog {
    /// Opens the log, making it if it is not there, and begins a new epoch. What a crash has torn
    /// is cut off.
    ///
    /// # Errors
    /// [`MetadataLogError`], naming offset, type and version of a record that is not known; no
    /// new epoch has begun then.
    pub fn open(
        store: &mut dyn ColdStore,
        options: &MetadataLogOptions,
    ) -> Result<(Self, MetadataOpenReport), MetadataLogError> {
        let limits = options.limits;
        store.create_dir(METADATA_DIR)?;
        let found = snapshot::newest(store)?;
        let (name, image) = found.loaded.unzip();
        let config = LogConfig::new(LogConfigValues {
            segment_bytes: i64::from(limits.segment_bytes),
            segment_ms: i64::MAX,
            ..LogConfigValues::default()
        })?;
        let opening = OpenOptions {
            config,
            topic_id: METADATA_TOPIC_ID,
            clean: false,
            recovery_point: options.recovery_point,
            log_start: name.map(|it: SnapshotName| it.end_offset),
            truncate_to: None,
            now_ms: options.now.0,
        };
        let (log, log_report) = ColdLog::open(store, METADATA_DIR, &opening)?;
        let from = name.map_or(Offset::ZERO, |it| it.end_offset);
        if log.log_start() > from {
            return Err(MetadataLogError::Hole { log_start: log.log_start(), snapshot: name });
        }
        let mut replay = Replay::new(image.unwrap_or_default());
        let grown_bytes = replay_log(&log, store, from, &mut replay)?;

        let in_log = log.epochs().latest().map(|entry| entry.epoch);
        let last = in_log.max(name.map(|it| it.epoch)).unwrap_or(LeaderEpoch(0));
        let epoch = last.0.checked_add(1).ok_or(MetadataLogError::Epochs(last))?;
        let (replayed, aborted) = (replay.records(), replay.pending());
        let mut it = Self {
            log,
            image: replay.into_image(),
            epoch: LeaderEpoch(epoch),
            limits,
            grown_bytes,
            grown_records: replayed,
            last_timestamp: options.now,
        };
        it.begin_epoch(store, options, aborted)?;
        let (snapshot, damaged) = (name, found.damaged);
        let aborted = aborted.unwrap_or(0);
        Ok((it, MetadataOpenReport { log: log_report, snapshot, damaged, replayed, aborted }))
    }

    /// Writes what a controller writes when it has been elected.
    fn begin_epoch(
        &mut self,
        store: &mut dyn ColdStore,
        options: &MetadataLogOptions,
        unfinished: Option<usize>,
    ) -> Result<(), MetadataLogError> {
        let (end, now) = (self.log.log_end(), options.now);
        let mut bytes = batches::leader_change(end, self.epoch, options.node, now)?;
        if unfinished.is_some() {
            let reason = Some("the host stopped in the middle of it".to_owned());
            let abort = MetadataRecord::from(AbortTransactionRecord { reason });
            let base = end.plus(1);
            bytes.extend(batches::data(&[abort], base, self.epoch, now, usize::MAX)?);
        }
        self.write(store, &bytes, now)
    }

    /// The metadata as of the last append.
    #[must_use]
    pub fn image(&self) -> &MetadataImage {
        &self.image
    }

    /// Next offset to be written. Everything below is durable.
    #[must_use]
    pub fn log_end(&self) -> Offset {
        self.log.log_end()
    }

    /// Epoch of this start.
    #[must_use]
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// Writes the records of one decision, all or none. Durable on return, and the image says
    /// so from then on.
    ///
    /// # Errors
    /// [`MetadataLogError::Unfit`] for records that do not follow; nothing changed then. After
    /// another error the image is as it was, and the log has to be opened again.
    pub fn append(
        &mut self,
        store: &mut dyn ColdStore,
        records: &[MetadataRecord],
        now: TimestampMs,
    ) -> Result<(), MetadataLogError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut next = self.image.clone();
        records.iter().try_for_each(|record| next.apply(record))?;
        let (base, max) = (self.log.log_end(), self.limits.batch_bytes_max);
        let bytes = batches::data(records, base, self.epoch, now, max)?;
        self.write(store, &bytes, now)?;
        self.image = next;
        Ok(())
    }

    fn write(
        &mut self,
        store: &mut dyn ColdStore,
        bytes: &[u8],
        now: TimestampMs,
    ) -> Result<(), MetadataLogError> {
        let from = self.log.log_end();
        self.log.append(store, bytes)?;
        let count = self.log.log_end().records_since(from);
        self.grown_bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.grown_records += count;
        self.last_timestamp = now;
        Ok(())
    }

    /// Whether the log has grown so much that a snapshot is due.
    #[must_use]
    pub fn is_snapshot_due(&self) -> bool {
        self.grown_bytes >= self.limits.snapshot_bytes
            || self.grown_records >= self.limits.snapshot_records
    }

    /// Takes a snapshot if one is due; see [`Self::take_snapshot`]. To be called after appends.
    ///
    /// # Errors
    /// As [`Self::take_snapshot`].
    pub fn maintain(
        &mut self,
        store: &mut dyn ColdStore,
    ) -> Result<Option<SnapshotName>, MetadataLogError> {
        if self.is_snapshot_due() { self.take_snapshot(store).map(Some) } else { Ok(None) }
    }

    /// Writes what the metadata says now into a snapshot, then removes the segments and the
    /// snapshots that it makes superfluous. The snapshot is durable before anything is removed.
    ///
    /// # Errors
    /// [`MetadataLogError`]; the log goes on, and the next call tries again.
    pub fn take_snapshot(
        &mut self,
        store: &mut dyn ColdStore,
    ) -> Result<SnapshotName, MetadataLogError> {
        let name = SnapshotName { end_offset: self.log.log_end(), epoch: self.epoch };
        let max = self.limits.batch_bytes_max;
        let bytes = snapshot::encode(&self.image, name, self.last_timestamp, max)?;
        store.replace(&name.path(), &bytes)?;
        (self.grown_bytes, self.grown_records) = (0, 0);
        self.log.trim(store, name.end_offset)?;
        snapshot::remove_older(store, name)?;
        Ok(name)
    }
}

/// Follows the log from an offset on; returns the bytes of its batches.
fn replay_log(
    log: &ColdLog,
    store: &dyn ColdStore,
    from: Offset,
    replay: &mut Replay,
) -> Result<u64, MetadataLogError> {
    let (mut bytes_seen, mut failed) = (0_u64, None);
    log.read(store, from, &mut |meta, bytes| {
        bytes_seen += u64::from(meta.size_bytes);
        match replay.batch(None, meta, bytes) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(bytes_seen), Err)
}

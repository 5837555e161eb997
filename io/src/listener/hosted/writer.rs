//! The writing half of a served partition: roll, indexes, side files, truncation.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use heliostat_core::log::config::LogConfig;
use heliostat_core::log::index::{OffsetEntry, SegmentIndexes, TimeEntry};
use heliostat_core::log::names::{SegmentFileKind, SegmentFileName};
use heliostat_core::log::producer_snapshot;
use heliostat_core::log::producer_state::ProducerState;
use heliostat_core::log::roll::{ActiveSegment, roll_base_offset, should_roll};
use heliostat_core::log::txn_index::AbortedTxn;
use heliostat_core::records::BatchMeta;
use heliostat_core::types::{Offset, TimestampMs};

use super::error::HostedError;
use super::segment::{Grown, Segment};

/// State of whoever appends. One at a time.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) dir: PathBuf,
    pub(super) config: LogConfig,
    pub(super) active: Arc<Segment>,
    /// Bytes written to the active segment, published or not.
    pub(super) position: u64,
    pub(super) indexes: SegmentIndexes,
    pub(super) created: TimestampMs,
    pub(super) first_timestamp: Option<TimestampMs>,
    /// Written, but not yet seen by readers.
    pub(super) staged: Staged,
}

/// Index entries of batches that readers do not see yet.
#[derive(Debug, Default)]
pub(super) struct Staged {
    offsets: Vec<OffsetEntry>,
    times: Vec<TimeEntry>,
}

/// Wall-clock time in milliseconds since the epoch.
pub(super) fn now_ms() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Path of a segment's file.
pub(super) fn path_of(dir: &Path, base: Offset, kind: SegmentFileKind) -> PathBuf {
    dir.join(SegmentFileName::live(base, kind).to_string())
}

/// Opens the log file of a segment, making it if `create`.
pub(super) fn open_log(dir: &Path, base: Offset, create: bool) -> Result<File, HostedError> {
    let path = path_of(dir, base, SegmentFileKind::Log);
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .truncate(false)
        .open(&path)
        .map_err(HostedError::file("open", &path))
}

impl Writer {
    /// A writer on a new empty segment.
    pub(super) fn on_new_segment(
        dir: &Path,
        config: LogConfig,
        base: Offset,
    ) -> Result<Self, HostedError> {
        let active = Arc::new(Segment::new(base, open_log(dir, base, true)?, Grown::default()));
        Ok(Self {
            dir: dir.to_path_buf(),
            config,
            active,
            position: 0,
            indexes: SegmentIndexes::new(base, &config),
            created: now_ms(),
            first_timestamp: None,
            staged: Staged::default(),
        })
    }

    /// Whether `batch` must go to a new segment, and what that is called.
    pub(super) fn roll_before(&self, batch: &BatchMeta, log_end: Offset) -> Option<Offset> {
        let active = ActiveSegment {
            size_bytes: self.position,
            first_timestamp: self.first_timestamp,
            created: self.created,
            jitter_ms: 0,
        };
        should_roll(&self.config, &active, &self.indexes, batch, now_ms())
            .map(|_| roll_base_offset(batch, log_end))
    }

    /// Writes a batch behind the others. Nothing changes if it fails.
    pub(super) fn write(&mut self, batch: &BatchMeta, bytes: &[u8]) -> Result<(), HostedError> {
        let path = path_of(&self.dir, self.active.base(), SegmentFileKind::Log);
        self.active
            .file()
            .write_all_at(bytes, self.position)
            .map_err(HostedError::file("write", &path))?;
        self.note(batch);
        Ok(())
    }

    /// Takes note of a batch that lies in the file at the position already.
    pub(super) fn note(&mut self, batch: &BatchMeta) {
        // The roll keeps positions below 2^31 plus one batch.
        let position = u32::try_from(self.position).unwrap_or(u32::MAX);
        if let Some((offset, time)) = self.indexes.on_batch(batch, position) {
            self.staged.offsets.push(offset);
            self.staged.times.extend(time);
        }
        self.first_timestamp.get_or_insert(batch.max_timestamp);
        self.position = self.position.saturating_add(u64::from(batch.size_bytes));
    }

    /// Shows readers what was written.
    pub(super) fn publish(&mut self, aborted: impl IntoIterator<Item = AbortedTxn>) {
        let mut grown = self.active.grown();
        grown.len = self.position;
        grown.offsets.append(&mut self.staged.offsets);
        grown.times.append(&mut self.staged.times);
        grown.aborted.extend(aborted);
        let max = self.indexes.max_timestamp();
        grown.max_time = (max.timestamp.0 >= 0).then_some(max);
    }

    /// Closes the active segment and begins one at `base`. What was written must be
    /// published before.
    pub(super) fn roll(&mut self, base: Offset) -> Result<Arc<Segment>, HostedError> {
        self.end_time_index();
        write_side_files(&self.dir, &self.active)?;
        self.begin(base)
    }

    /// Goes on to the segment at `base`, which is made if it is not there.
    pub(super) fn begin(&mut self, base: Offset) -> Result<Arc<Segment>, HostedError> {
        let file = open_log(&self.dir, base, true)?;
        self.active = Arc::new(Segment::new(base, file, Grown::default()));
        self.position = 0;
        self.indexes = SegmentIndexes::new(base, &self.config);
        self.created = now_ms();
        self.first_timestamp = None;
        Ok(Arc::clone(&self.active))
    }

    /// Gives the time index its last entry.
    pub(super) fn end_time_index(&mut self) {
        if let Some(last) = self.indexes.final_time_entry() {
            self.active.grown().times.push(last);
        }
    }

    /// Writes the side files of the active segment as a close does.
    pub(super) fn close_active(&mut self) -> Result<(), HostedError> {
        self.end_time_index();
        write_side_files(&self.dir, &self.active)?;
        let path = path_of(&self.dir, self.active.base(), SegmentFileKind::Log);
        self.active.file().sync_data().map_err(HostedError::file("sync", &path))
    }
}

/// Writes `.index`, `.timeindex` and, where there is something in it, `.txnindex`.
pub(super) fn write_side_files(dir: &Path, segment: &Segment) -> Result<(), HostedError> {
    let base = segment.base();
    let (offsets, times, aborted) = {
        let grown = segment.grown();
        let offsets: Vec<u8> = grown.offsets.iter().flat_map(|entry| entry.encode(base)).collect();
        let times: Vec<u8> = grown.times.iter().flat_map(|entry| entry.encode(base)).collect();
        (offsets, times, grown.aborted.clone())
    };
    write_file(&path_of(dir, base, SegmentFileKind::Index), &offsets)?;
    write_file(&path_of(dir, base, SegmentFileKind::TimeIndex), &times)?;
    let path = path_of(dir, base, SegmentFileKind::TxnIndex);
    if aborted.is_empty() {
        return remove_file(&path);
    }
    let bytes: Vec<u8> = aborted.iter().flat_map(AbortedTxn::encode).collect();
    write_file(&path, &bytes)
}

/// Writes the producer state of a log that ends at `end`.
pub(super) fn write_snapshot(
    dir: &Path,
    producers: &ProducerState,
    end: Offset,
) -> Result<(), HostedError> {
    let bytes = producer_snapshot::encode(&producers.snapshot());
    write_file(&path_of(dir, end, SegmentFileKind::Snapshot), &bytes)
}

/// Replaces a small file: written beside, renamed.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), HostedError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    let beside = PathBuf::from(beside);
    fs::write(&beside, bytes).map_err(HostedError::file("write", &beside))?;
    fs::rename(&beside, path).map_err(HostedError::file("rename", path))
}

/// Removes a file; one that is not there is no error.
pub(super) fn remove_file(path: &Path) -> Result<(), HostedError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(HostedError::file("remove", path)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

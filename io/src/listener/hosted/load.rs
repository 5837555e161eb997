//! Reads a partition directory: every batch header once, front to back.
//!
//! Indexes, transactions and the log end come out of the segments themselves, so
//! side files can be missing, stale or another implementation's. A tail that is no
//! whole batch is cut, as after a crash.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use heliostat_core::log::checkpoint::decode_partition_metadata;
use heliostat_core::log::config::LogConfig;
use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::names::{
    LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SegmentFileKind, SegmentFileName, SegmentFileState,
};
use heliostat_core::log::producer_state::ProducerState;
use heliostat_core::records::{BatchMeta, BatchWalker, WalkLimits};
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition};

use super::bell::Bell;
use super::error::HostedError;
use super::partition::{Leadership, Partition, State};
use super::segment::Segment;
use super::writer::{Writer, path_of, remove_file};

const READ_BYTES: usize = 1 << 20;

/// What the segments of a directory hold.
pub(super) struct Loaded {
    pub(super) writer: Writer,
    pub(super) segments: Vec<Arc<Segment>>,
    /// `None` if there is no batch.
    pub(super) log_end: Option<Offset>,
    pub(super) epochs: EpochCache,
    pub(super) producers: ProducerState,
}

/// Opens a partition directory. `log_start`: from the log dir's checkpoint.
pub(super) fn open(
    dir: &Path,
    id: TopicPartition,
    config: LogConfig,
    log_start: Option<Offset>,
    leader: BrokerId,
    bell: Arc<Bell>,
) -> Result<Partition, HostedError> {
    let path = dir.join(PARTITION_METADATA);
    let topic_id = match read_small(&path)? {
        Some(bytes) => decode_partition_metadata(&bytes).map_err(HostedError::format(&path))?,
        None => TopicId::NONE,
    };
    let mut bases = list_segments(dir)?;
    if bases.is_empty() {
        bases.push(log_start.unwrap_or(Offset::ZERO));
    }
    let loaded = scan(dir, config, &bases)?;
    let first = loaded.segments.first().map_or(Offset::ZERO, |segment| segment.base());
    let log_start = log_start.unwrap_or(first).max(first);
    let log_end = loaded.log_end.unwrap_or(loaded.writer.active.base()).max(log_start);
    let path = dir.join(LEADER_EPOCH_CHECKPOINT);
    let epochs = match read_small(&path)? {
        Some(bytes) => {
            let mut epochs = EpochCache::decode(&bytes).map_err(HostedError::format(&path))?;
            epochs.truncate_from_end(log_end.plus(1));
            epochs
        }
        None => loaded.epochs,
    };
    let mut producers = loaded.producers;
    producers.on_log_start(log_start);
    producers.on_high_watermark(log_end);
    let epoch = epochs.latest().map_or(LeaderEpoch(0), |entry| entry.epoch);
    let state = State {
        leadership: Leadership { leader, epoch },
        mirrored: false,
        log_start,
        log_end,
        held_at: None,
        producers,
        epochs,
        segments: loaded.segments,
    };
    Ok(Partition::new(id, topic_id, bell, state, loaded.writer))
}

/// Base offsets of the live segments, rising.
fn list_segments(dir: &Path) -> Result<Vec<Offset>, HostedError> {
    let mut bases = Vec::new();
    for entry in fs::read_dir(dir).map_err(HostedError::file("listing", dir))? {
        let entry = entry.map_err(HostedError::file("listing", dir))?;
        if let Some(name) = entry.file_name().to_str().and_then(SegmentFileName::parse)
            && name.kind == SegmentFileKind::Log
            && name.state == SegmentFileState::Live
        {
            bases.push(name.base_offset);
        }
    }
    bases.sort_unstable();
    Ok(bases)
}

/// Removes snapshots of logs that end above `log_end`.
pub(super) fn remove_snapshots_above(dir: &Path, log_end: Offset) -> Result<(), HostedError> {
    for entry in fs::read_dir(dir).map_err(HostedError::file("listing", dir))? {
        let entry = entry.map_err(HostedError::file("listing", dir))?;
        if let Some(name) = entry.file_name().to_str().and_then(SegmentFileName::parse)
            && name.kind == SegmentFileKind::Snapshot
            && name.base_offset > log_end
        {
            remove_file(&entry.path())?;
        }
    }
    Ok(())
}

/// A file that is small by its nature; `None` if it is not there.
pub(super) fn read_small(path: &Path) -> Result<Option<Vec<u8>>, HostedError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(HostedError::file("read", path)(error)),
    }
}

/// Reads the segments at `bases`, which rise and are at least one.
pub(super) fn scan(dir: &Path, config: LogConfig, bases: &[Offset]) -> Result<Loaded, HostedError> {
    let first = bases.first().copied().unwrap_or_default();
    let mut writer = Writer::on_new_segment(dir, config, first)?;
    let mut segments = vec![Arc::clone(&writer.active)];
    let mut epochs = EpochCache::default();
    let mut producers = ProducerState::new(first);
    let mut log_end = None;
    for (index, &base) in bases.iter().enumerate() {
        if index > 0 {
            writer.end_time_index();
            segments.push(writer.begin(base)?);
        }
        let mut aborted = Vec::new();
        let end = scan_segment(&mut writer, |batch| {
            epochs.on_batch(batch);
            aborted.extend(producers.on_batch(batch).and_then(|txn| txn.aborted()));
        })?;
        log_end = end.or(log_end);
        writer.publish(aborted);
        cut_tail(&writer)?;
    }
    Ok(Loaded { writer, segments, log_end, epochs, producers })
}

/// Notes every whole batch of the active segment; the end of the last.
fn scan_segment(
    writer: &mut Writer,
    mut see: impl FnMut(&BatchMeta),
) -> Result<Option<Offset>, HostedError> {
    let path = path_of(&writer.dir, writer.active.base(), SegmentFileKind::Log);
    let mut walker = BatchWalker::new(WalkLimits { batch_bytes_max: u32::MAX, check_crcs: false });
    let mut buffer = vec![0; READ_BYTES];
    let mut position = 0_u64;
    let mut log_end = None;
    loop {
        let read =
            super::super::reading::ServedSegment::read_at(&writer.active, position, &mut buffer)
                .map_err(HostedError::file("read", &path))?;
        let mut rest = buffer.get(..read).unwrap_or_default();
        if rest.is_empty() {
            return Ok(log_end);
        }
        position = position.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        while !rest.is_empty() {
            // What cannot be a batch ends the segment: a torn or preallocated tail.
            let Ok((used, meta)) = walker.feed(rest) else { return Ok(log_end) };
            rest = rest.get(used..).unwrap_or_default();
            let Some(meta) = meta else { break };
            if log_end.is_some_and(|end| meta.last_offset < end) {
                return Ok(log_end);
            }
            writer.note(&meta);
            see(&meta);
            log_end = Some(meta.next_offset());
        }
    }
}

fn cut_tail(writer: &Writer) -> Result<(), HostedError> {
    let path = path_of(&writer.dir, writer.active.base(), SegmentFileKind::Log);
    let file = writer.active.file();
    let len = file.metadata().map_err(HostedError::file("stat", &path))?.len();
    if len > writer.position {
        file.set_len(writer.position).map_err(HostedError::file("truncate", &path))?;
    }
    Ok(())
}

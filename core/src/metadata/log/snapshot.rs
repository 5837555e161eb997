//! Snapshots: files of batches beside the segments.
//!
//! ```text
//!   00000000000000000NNN-EEEEEEEEEE.checkpoint    NNN: end offset, exclusive; E: its epoch
//!   SnapshotHeader (control) | records | SnapshotFooter (control)
//! ```
//!
//! Offsets inside count from 0 and mean nothing. One without header or footer is damaged.

use std::fmt;

use super::batches::{Batches, SNAPSHOT_FOOTER, SNAPSHOT_HEADER, snapshot_footer, snapshot_header};
use super::replay::Replay;
use super::{METADATA_DIR, MetadataLogError};
use crate::log::disk::LogPath;
use crate::log::store::{ColdStore, StoreError};
use crate::metadata::image::MetadataImage;
use crate::records::{BatchMeta, BatchWalker, BuildError, WalkLimits};
use crate::types::{LeaderEpoch, Offset, TimestampMs};

/// Largest snapshot that is written or read, inclusive.
pub const SNAPSHOT_BYTES_MAX: u64 = 512 << 20;

const SUFFIX: &str = ".checkpoint";

/// Which part of the log a snapshot sums up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotName {
    /// End of it, exclusive.
    pub end_offset: Offset,
    /// Epoch of its last record.
    pub epoch: LeaderEpoch,
}

impl SnapshotName {
    /// Reads a file name back; `None` if it is no snapshot's.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (offset, epoch) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        let digits =
            |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(offset, 20) || !digits(epoch, 10) {
            return None;
        }
        let (end_offset, epoch) = (offset.parse().ok()?, epoch.parse().ok()?);
        Some(Self { end_offset: Offset(end_offset), epoch: LeaderEpoch(epoch) })
    }

    pub(super) fn path(self) -> LogPath {
        LogPath { dir: METADATA_DIR.into(), name: self.to_string() }
    }
}

impl fmt::Display for SnapshotName {
    /// The file's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}-{:010}{SUFFIX}", self.end_offset.0, self.epoch.0)
    }
}

/// What there is of snapshots.
#[derive(Debug)]
pub(super) struct Found {
    /// The newest valid one.
    pub(super) loaded: Option<(SnapshotName, MetadataImage)>,
    /// Newer ones that are not.
    pub(super) damaged: Vec<SnapshotName>,
}

/// The newest valid snapshot.
///
/// # Errors
/// Also for a record that is not known: an older snapshot would have it in its log.
pub(super) fn newest(store: &dyn ColdStore) -> Result<Found, MetadataLogError> {
    let mut names = list(store)?;
    names.sort_unstable();
    let mut damaged = Vec::new();
    while let Some(name) = names.pop() {
        let bytes = store.read(&name.path(), SNAPSHOT_BYTES_MAX)?.unwrap_or_default();
        let Some(batches) = split(&bytes) else {
            damaged.push(name);
            continue;
        };
        let mut replay = Replay::new(MetadataImage::default());
        for (meta, bytes) in batches {
            replay.batch(Some(name), &meta, bytes)?;
        }
        return Ok(Found { loaded: Some((name, replay.into_image())), damaged });
    }
    Ok(Found { loaded: None, damaged })
}

fn list(store: &dyn ColdStore) -> Result<Vec<SnapshotName>, StoreError> {
    let entries = store.list(METADATA_DIR)?;
    Ok(entries.iter().filter_map(|entry| SnapshotName::parse(&entry.name)).collect())
}

/// The batches of a whole snapshot; `None` if it is none.
fn split(bytes: &[u8]) -> Option<Vec<(BatchMeta, &[u8])>> {
    let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
    let mut walker = BatchWalker::new(limits);
    let mut batches = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (used, meta) = walker.feed(rest).ok()?;
        let (batch, behind) = rest.split_at_checked(used)?;
        batches.push((meta?, batch));
        rest = behind;
    }
    let [(header, _), .., (footer, _)] = &batches[..] else { return None };
    let is_whole =
        header.control == Some(SNAPSHOT_HEADER) && footer.control == Some(SNAPSHOT_FOOTER);
    is_whole.then_some(batches)
}

/// The bytes of a snapshot.
pub(super) fn encode(
    image: &MetadataImage,
    name: SnapshotName,
    last: TimestampMs,
    batch_bytes_max: usize,
) -> Result<Vec<u8>, MetadataLogError> {
    let mut out = snapshot_header(name.epoch, last)?;
    let mut batches = Batches::new(Offset(1), name.epoch, last, batch_bytes_max);
    image.records(|record| -> Result<(), BuildError> { batches.push(&record.encode()) })?;
    let (bytes, end) = batches.finish()?;
    out.extend(bytes);
    out.extend(snapshot_footer(end, name.epoch, last)?);
    let bytes = out.len();
    if u64::try_from(bytes).is_ok_and(|bytes| bytes <= SNAPSHOT_BYTES_MAX) {
        return Ok(out);
    }
    Err(MetadataLogError::SnapshotTooLarge { bytes })
}

/// Removes the snapshots that are not this one.
pub(super) fn remove_older(
    store: &mut dyn ColdStore,
    newest: SnapshotName,
) -> Result<(), StoreError> {
    for name in list(store)?.into_iter().filter(|name| *name != newest) {
        store.remove(&name.path())?;
    }
    Ok(())
}

//! What lies in a partition's directory, and what of it is waste.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::report::LogOpenError;
use crate::log::disk::LogPath;
use crate::log::names::{
    SegmentFileKind as Kind, SegmentFileName, SegmentFileState as State, TEMPORARY_SUFFIX,
};
use crate::log::store::ColdStore;
use crate::types::Offset;

/// The live files of one segment; lengths in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SegmentFiles {
    pub(super) base: Offset,
    pub(super) log_bytes: u64,
    /// `None`: the file is not there.
    pub(super) index_bytes: Option<u64>,
    pub(super) time_index_bytes: Option<u64>,
    pub(super) txn_index_bytes: Option<u64>,
}

/// Name of a finished replacement's `.log`.
pub(super) fn swap_name(base: Offset) -> SegmentFileName {
    SegmentFileName { state: State::Swap, ..SegmentFileName::live(base, Kind::Log) }
}

#[derive(Debug)]
pub(super) struct Layout {
    pub(super) dir: Arc<str>,
    /// By base offset.
    pub(super) segments: Vec<SegmentFiles>,
    /// Offsets that snapshots end at.
    pub(super) snapshots: BTreeSet<Offset>,
    /// Names of what a crash left.
    pub(super) waste: Vec<String>,
    /// Bases of replacements that the segments they replace have made room for already.
    pub(super) swaps: Vec<Offset>,
}

impl Layout {
    /// Reads the directory, which must exist; changes nothing.
    pub(super) fn read(store: &dyn ColdStore, dir: &Arc<str>) -> Result<Self, LogOpenError> {
        let mut lengths = BTreeMap::new();
        let mut swapped = Vec::new();
        let mut waste = Vec::new();
        for entry in store.list(dir)? {
            let Some(name) = SegmentFileName::parse(&entry.name) else {
                if entry.name.ends_with(TEMPORARY_SUFFIX) && !entry.is_dir {
                    waste.push(entry.name);
                }
                continue;
            };
            match name.state {
                State::Live => {
                    lengths.insert((name.base_offset, name.kind), entry.len);
                }
                State::Swap if name.kind == Kind::Log => swapped.push(name.base_offset),
                State::Deleted | State::Cleaned | State::Swap => waste.push(entry.name),
            }
        }
        // While the file that it replaces is there, nothing was removed for its sake.
        let (unneeded, mut swaps): (Vec<_>, Vec<_>) =
            swapped.into_iter().partition(|base| lengths.contains_key(&(*base, Kind::Log)));
        waste.extend(unneeded.into_iter().map(|base| swap_name(base).to_string()));
        swaps.sort_unstable();
        let mut it = Self {
            dir: Arc::clone(dir),
            segments: Vec::new(),
            snapshots: BTreeSet::new(),
            waste,
            swaps,
        };
        for (&(base, kind), &len) in &lengths {
            match kind {
                Kind::Log => {
                    let of = |kind| lengths.get(&(base, kind)).copied();
                    it.segments.push(SegmentFiles {
                        base,
                        log_bytes: len,
                        index_bytes: of(Kind::Index),
                        time_index_bytes: of(Kind::TimeIndex),
                        txn_index_bytes: of(Kind::TxnIndex),
                    });
                }
                Kind::Snapshot => {
                    it.snapshots.insert(base);
                }
                Kind::Index | Kind::TimeIndex | Kind::TxnIndex => {
                    if !lengths.contains_key(&(base, Kind::Log)) {
                        it.waste.push(SegmentFileName::live(base, kind).to_string());
                    }
                }
            }
        }
        Ok(it)
    }

    pub(super) fn path(&self, base: Offset, kind: Kind) -> LogPath {
        self.named(SegmentFileName::live(base, kind).to_string())
    }

    pub(super) fn named(&self, name: impl Into<String>) -> LogPath {
        LogPath { dir: Arc::clone(&self.dir), name: name.into() }
    }

    /// Index of the segment that holds `offset`, or would.
    pub(super) fn floor(&self, offset: Offset) -> Option<usize> {
        self.segments.partition_point(|segment| segment.base <= offset).checked_sub(1)
    }
}

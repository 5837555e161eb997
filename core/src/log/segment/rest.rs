//! A segment between two uses. Of very many logs few are written to at a time, so all others
//! keep no more than it takes to go on.

use std::sync::Arc;

use super::{FileState, LiveSegment, RecoveredSegment, Seal};
use crate::log::index::SegmentIndexes;
use crate::types::{Offset, TimestampMs};

/// The last segment of a log whose files are closed and hold all of it, but for index entries
/// that wait for company.
#[derive(Debug)]
pub(in crate::log) struct RestingSegment {
    base: Offset,
    size_bytes: u64,
    synced_offset: Offset,
    indexes: SegmentIndexes,
    first_timestamp: Option<TimestampMs>,
    created: TimestampMs,
    side_bytes: [u64; 3],
    /// Of the same three files.
    side_pending: Option<Box<[Vec<u8>; 3]>>,
    direct_refused: bool,
}

impl RestingSegment {
    /// A segment that recovery found; its data is durable up to `log_end`.
    pub(in crate::log) fn recovered(recovered: RecoveredSegment, log_end: Offset) -> Self {
        let RecoveredSegment { base, size_bytes, indexes, side_bytes, first_timestamp, created } =
            recovered;
        Self {
            base,
            size_bytes,
            synced_offset: log_end,
            indexes,
            first_timestamp,
            created,
            side_bytes,
            side_pending: None,
            direct_refused: false,
        }
    }

    /// First offset it may hold.
    pub(in crate::log) fn base(&self) -> Offset {
        self.base
    }

    /// Length of its `.log`.
    pub(in crate::log) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// As it was before it came to rest.
    pub(in crate::log) fn wake(self, dir: Arc<str>) -> LiveSegment {
        let Self { base, size_bytes, indexes, side_bytes, first_timestamp, created, .. } = self;
        let recovered =
            RecoveredSegment { base, size_bytes, indexes, side_bytes, first_timestamp, created };
        let mut live = LiveSegment::recovered(dir, recovered, self.synced_offset);
        live.direct_refused = self.direct_refused;
        if let Some(pending) = self.side_pending {
            let [offset, time, txn] = *pending;
            live.offset_index.pending = offset;
            live.time_index.pending = time;
            live.txn_index.pending = txn;
        }
        live
    }
}

impl LiveSegment {
    /// Whether nothing would be lost by [`Self::rest`].
    pub(in crate::log) fn may_rest(&self) -> bool {
        self.file == FileState::Closed
            && self.exists
            && self.is_quiet()
            && self.is_synced()
            && self.seal == Seal::No
            && !(self.abandoned || self.padded || self.wants_snapshot)
            && self.unsynced_since.is_none()
            && self.untold_abort().is_none()
            && self.budgeted == 0
    }

    /// Gives back all that only an open file needs.
    ///
    /// # Panics
    /// Unless it [may](Self::may_rest): the next run would be written to a wrong place.
    pub(in crate::log) fn rest(self) -> RestingSegment {
        assert!(self.may_rest(), "what comes to rest is closed and synced");
        let sides = [self.offset_index, self.time_index, self.txn_index];
        let side_bytes = sides.each_ref().map(|side| side.written);
        let waits = sides.iter().any(|side| !side.pending.is_empty());
        let side_pending = waits.then(|| {
            Box::new(sides.map(|mut side| {
                side.pending.shrink_to_fit();
                side.pending
            }))
        });
        RestingSegment {
            base: self.base,
            size_bytes: self.committed_end,
            synced_offset: self.synced_offset,
            indexes: self.indexes,
            first_timestamp: self.first_timestamp,
            created: self.created,
            side_bytes,
            side_pending,
            direct_refused: self.direct_refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most of very many logs are at rest, so this is what a segment costs.
    #[test]
    fn a_segment_at_rest_is_small() {
        let size = size_of::<RestingSegment>();
        assert!(size <= 160 && size < size_of::<LiveSegment>() / 3, "{size}");
    }
}

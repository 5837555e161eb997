//! Batches of a segment file, in order, in a fixed amount of memory.

use std::ops::ControlFlow;

use super::report::Damage;
use crate::log::disk::LogPath;
use crate::log::store::{ColdStore, StoreError};
use crate::records::{BatchMeta, BatchWalker, RecordError, WalkLimits};

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkStop {
    /// With the last byte of the last batch.
    FileEnd,
    /// The caller had seen enough; the batch it broke at was not taken.
    Caller,
    /// No batch follows.
    Damage(Damage),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Walked {
    /// End of the last batch that was taken.
    pub(super) end: u64,
    /// Bytes that were read.
    pub(super) bytes: u64,
    pub(super) stop: WalkStop,
}

/// Bytes from which on zeros are known to be no batch.
const ZEROS_MIN: u64 = 12;

/// Shows `take` each valid batch from position `from` on, with its position.
pub(super) fn walk(
    store: &dyn ColdStore,
    path: &LogPath,
    from: u64,
    check_crcs: bool,
    take: &mut dyn FnMut(&BatchMeta, u64) -> ControlFlow<()>,
) -> Result<Walked, StoreError> {
    // Nothing is held of a batch, so a size alone is no reason to refuse it.
    let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs };
    let mut walker = BatchWalker::new(limits);
    let mut walked = Walked { end: from, bytes: 0, stop: WalkStop::FileEnd };
    // Whether everything behind the last batch was zero so far.
    let mut zeros = true;
    store.scan(path, from, &mut |piece| {
        walked.bytes += u64::try_from(piece.len()).unwrap_or(0);
        let mut rest = piece;
        while !rest.is_empty() {
            let (used, batch) = match walker.feed(rest) {
                Ok(fed) => fed,
                Err(RecordError::ZeroTail) => {
                    zeros &= is_zero(rest);
                    walked.stop = WalkStop::Damage(Damage::Zeros);
                    return if zeros { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
                }
                Err(error) => {
                    walked.stop = WalkStop::Damage(Damage::Record(error));
                    return ControlFlow::Break(());
                }
            };
            let Some(meta) = batch else {
                zeros &= walker.pending_bytes() < ZEROS_MIN && is_zero(rest);
                return ControlFlow::Continue(());
            };
            zeros = true;
            rest = rest.get(used..).unwrap_or_default();
            if take(&meta, walked.end).is_break() {
                walked.stop = WalkStop::Caller;
                return ControlFlow::Break(());
            }
            walked.end += u64::from(meta.size_bytes);
        }
        ControlFlow::Continue(())
    })?;
    let bytes = walker.pending_bytes();
    match walked.stop {
        WalkStop::Damage(Damage::Zeros) if !zeros => {
            walked.stop = WalkStop::Damage(Damage::Record(RecordError::ZeroTail));
        }
        WalkStop::FileEnd if bytes > 0 => {
            let damage = if zeros { Damage::Zeros } else { Damage::CutOff { bytes } };
            walked.stop = WalkStop::Damage(damage);
        }
        _ => {}
    }
    Ok(walked)
}

/// The first batch by its header, not verified; `None` if there is none.
pub(super) fn first_batch(
    store: &dyn ColdStore,
    path: &LogPath,
) -> Result<Option<BatchMeta>, StoreError> {
    let mut walker = BatchWalker::new(WalkLimits { batch_bytes_max: u32::MAX, check_crcs: false });
    let mut found = None;
    store.scan(path, 0, &mut |piece| {
        let Ok((_, batch)) = walker.feed(piece) else { return ControlFlow::Break(()) };
        found = batch.or(walker.current().copied());
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

//! Finishes what a cleaner began: its replacement is complete, and segments went for its sake.

use std::ops::ControlFlow;

use super::Opening;
use super::layout::{Layout, swap_name};
use super::report::LogOpenError;
use super::walk::{WalkStop, walk};
use crate::log::names::{SegmentFileKind as Kind, SegmentFileName};
use crate::records::BatchMeta;
use crate::types::Offset;

impl Opening<'_> {
    /// Puts each replacement whose first old segment is gone in the place of all of them, as a
    /// broker does. Leftovers, indexes of the old segment among them, have been removed.
    pub(super) fn finish_swaps(&mut self) -> Result<(), LogOpenError> {
        if self.layout.swaps.is_empty() {
            return Ok(());
        }
        for base in std::mem::take(&mut self.layout.swaps) {
            let end = self.swap_end(base)?;
            // What lies behind its last batch was not replaced by it.
            while let Some(index) =
                self.layout.segments.iter().position(|it| it.base > base && it.base < end)
            {
                self.remove_segment(index)?;
            }
            let live = SegmentFileName::live(base, Kind::Log).to_string();
            self.store.rename(&self.layout.named(swap_name(base).to_string()), &live)?;
        }
        // Whatever the directory said before.
        self.layout = Layout::read(self.store, &self.layout.dir)?;
        Ok(())
    }

    /// Where the replacement at `base` ends, exclusive. All of it is verified before anything
    /// goes for it.
    fn swap_end(&mut self, base: Offset) -> Result<Offset, LogOpenError> {
        let path = self.layout.named(swap_name(base).to_string());
        let mut end = base;
        let mut fits = true;
        let walked = walk(self.store, &path, 0, true, &mut |meta: &BatchMeta, _| {
            fits &= meta.base_offset >= end;
            end = meta.next_offset();
            if fits { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        self.report.bytes_scanned += walked.bytes;
        if walked.stop == WalkStop::FileEnd {
            return Ok(end);
        }
        Err(LogOpenError::UnfinishedSwap { path, position: walked.end })
    }
}

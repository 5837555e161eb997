//! The steps that end a segment: cut, sync, indexes complete, closed.

use super::{FileKind, FileState, LiveSegment, Seal, SideFile, failed};
use crate::log::cx::LogCx;
use crate::log::disk::{DiskAction, DiskDone, DiskError, OpId};
use crate::log::failure::LogFailure;

impl LiveSegment {
    /// No more appends: finish, then seal.
    /// `true` the first time.
    pub(in crate::log) fn begin_seal(&mut self) -> bool {
        let first = self.seal == Seal::No;
        if first {
            self.seal = Seal::Wanted;
        }
        first
    }

    /// Whether the seal is complete and the file closed.
    pub(in crate::log) fn is_sealed(&self) -> bool {
        self.seal == Seal::Done && self.closing.is_none()
    }

    /// Carries the seal one step on, if its turn has come.
    pub(in crate::log) fn pump_seal(&mut self, cx: &mut LogCx<'_>) {
        let ready =
            self.seal == Seal::Wanted && self.is_quiet() && self.committed_end == self.accepted_end;
        if !ready {
            return;
        }
        if !self.exists && self.file == FileState::Closed {
            // Never written: an empty file keeps the log end offset.
            self.open(None, cx);
            return;
        }
        match self.file {
            FileState::Open { file, .. } if self.padded || self.allocated > 0 => {
                self.return_budget(0, cx);
                self.allocated = 0;
                self.padded = false;
                let len = self.committed_end;
                self.seal = Seal::Cutting(cx.request(DiskAction::SetLength { file, len }));
            }
            FileState::Open { .. } => self.sync_to_seal(cx),
            // Evicted, so cut and synced before.
            _ => self.seal_side_files(cx),
        }
    }

    fn sync_to_seal(&mut self, cx: &mut LogCx<'_>) {
        if let FileState::Open { file, .. } = self.file {
            cx.stats.syncs += 1;
            self.seal = Seal::Syncing(cx.request(DiskAction::Sync { file }));
        }
    }

    fn seal_side_files(&mut self, cx: &mut LogCx<'_>) {
        if let Some(entry) = self.indexes.final_time_entry() {
            self.time_index.pending.extend_from_slice(&entry.encode(self.base));
        }
        self.write_side_files(true, cx);
        let left = u32::try_from(self.side_ops.len()).unwrap_or(u32::MAX);
        self.seal = Seal::SideFiles { left };
        if left == 0 {
            self.close_sealed(cx);
        }
    }

    fn close_sealed(&mut self, cx: &mut LogCx<'_>) {
        self.seal = Seal::Done;
        if let FileState::Open { file, .. } = self.file {
            self.close(file, cx);
        }
    }

    fn side_file(&mut self, kind: FileKind) -> &mut SideFile {
        match kind {
            FileKind::Index => &mut self.offset_index,
            FileKind::TimeIndex => &mut self.time_index,
            _ => &mut self.txn_index,
        }
    }

    pub(super) fn write_side_files(&mut self, sync: bool, cx: &mut LogCx<'_>) {
        for kind in [FileKind::Index, FileKind::TimeIndex, FileKind::TxnIndex] {
            let path = self.path(kind);
            let side = self.side_file(kind);
            // Kafka keeps the two indexes even when they are empty, and the third only if used.
            let used = kind != FileKind::TxnIndex || side.written > 0;
            let wanted = !side.pending.is_empty() || (sync && used);
            if !wanted {
                continue;
            }
            let bytes = std::mem::take(&mut side.pending);
            let position = side.written;
            side.written += u64::try_from(bytes.len()).unwrap_or(0);
            if kind == FileKind::TxnIndex {
                self.aborts_writing = self.untold_abort();
                self.aborts_waiting = None;
            }
            let op = cx.request(DiskAction::WriteAt { path, position, bytes, sync });
            self.side_ops.push(op);
        }
    }

    pub(super) fn on_side_done(
        &mut self,
        result: Result<DiskDone, DiskError>,
        cx: &mut LogCx<'_>,
    ) -> Result<(), LogFailure> {
        if let Err(error) = result {
            return failed("write of an index", error);
        }
        if self.side_ops.is_empty() {
            self.aborts_writing = None;
        }
        if let Seal::SideFiles { left } = self.seal {
            self.seal = Seal::SideFiles { left: left - 1 };
            if left == 1 {
                self.close_sealed(cx);
            }
        }
        Ok(())
    }

    pub(super) fn on_seal_step(
        &mut self,
        id: OpId,
        result: Result<DiskDone, DiskError>,
        cx: &mut LogCx<'_>,
    ) -> Result<(), LogFailure> {
        let step = match self.seal {
            Seal::Cutting(op) | Seal::Syncing(op) if op == id => self.seal,
            _ => return Ok(()),
        };
        self.seal = Seal::Wanted;
        let is_cut = matches!(step, Seal::Cutting(_));
        match result {
            Ok(_) if is_cut => self.sync_to_seal(cx),
            Ok(_) => {
                self.synced_end = self.committed_end;
                self.unsynced_since = None;
                self.seal_side_files(cx);
            }
            Err(error) => return failed(if is_cut { "cut to length" } else { "sync" }, error),
        }
        Ok(())
    }
}

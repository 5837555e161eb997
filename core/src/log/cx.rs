//! What a log needs from its shard in each call: time, buffers, limits, and a place
//! for the operations it asks for.

use std::time::Duration;

use super::disk::{DiskAction, DiskOp, FileId, OpId};
use super::slot::SlotPool;
use crate::time::Tick;

/// Whether segment files bypass the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendMode {
    /// `append.direct=false`, or the file system refuses `O_DIRECT`.
    Buffered,
    /// `append.direct=true`: every segment, in blocks of this many bytes.
    Direct {
        /// The larger of the file system's alignment and the physical block.
        block_bytes: u32,
    },
    /// `append.direct=auto`: direct for partitions whose runs are large.
    Auto {
        /// As above.
        block_bytes: u32,
    },
}

/// Limits that all logs of a shard share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendLimits {
    /// Direct or buffered.
    pub mode: AppendMode,
    /// `append.direct=auto`: runs of at least this many bytes open a file for direct writes.
    pub direct_run_bytes_min: u64,
    /// Largest batch that is taken, in bytes.
    pub batch_bytes_max: u32,
    /// Whether checksums are verified before a batch counts.
    pub check_crcs: bool,
    /// First preallocation of a segment, in bytes; it doubles from there.
    pub preallocate_bytes_min: u64,
    /// Largest single preallocation, in bytes.
    pub preallocate_bytes_max: u64,
    /// Sync once so many bytes were appended since the last one.
    pub flush_bytes: u64,
    /// Sync once the oldest unsynced byte is so old.
    pub flush_after: Duration,
}

impl Default for AppendLimits {
    fn default() -> Self {
        Self {
            mode: AppendMode::Buffered,
            direct_run_bytes_min: 256 << 10,
            batch_bytes_max: 256 << 20,
            check_crcs: true,
            preallocate_bytes_min: 256 << 10,
            preallocate_bytes_max: 64 << 20,
            flush_bytes: 64 << 20,
            flush_after: Duration::from_secs(1),
        }
    }
}

/// What the logs of a shard have done since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppendStats {
    /// Bytes below log end offsets that were appended here.
    pub bytes_appended: u64,
    /// Batches below log end offsets that were appended here.
    pub batches_appended: u64,
    /// Record bytes that were moved in memory on their way to the file.
    pub bytes_copied: u64,
    /// Record bytes that were received and dropped: repeated, cut off, refused.
    pub bytes_discarded: u64,
    /// Bytes written to segment files, rewrites of tail blocks and padding included.
    pub bytes_written: u64,
    /// Writes to segment files.
    pub writes: u64,
    /// Syncs of segment files.
    pub syncs: u64,
    /// Times from the first received byte of a write to its completion; the driver drains it.
    pub append_latencies: Vec<Duration>,
}

/// Most latencies kept between two drains: more are dropped, not queued.
const LATENCIES_MAX: usize = 4096;

impl AppendStats {
    pub(super) fn latency(&mut self, took: Duration) {
        if self.append_latencies.len() < LATENCIES_MAX {
            self.append_latencies.push(took);
        }
    }
}

/// Names of operations and files of one shard, never reused.
#[derive(Debug, Default)]
pub struct Ids {
    next_op: u64,
    next_file: u64,
}

impl Ids {
    pub(super) fn file(&mut self) -> FileId {
        self.next_file += 1;
        FileId(self.next_file)
    }

    /// The next operation's name.
    pub fn op(&mut self) -> OpId {
        self.next_op += 1;
        OpId(self.next_op)
    }
}

/// One call's surroundings; borrowed from the shard.
#[derive(Debug)]
pub struct LogCx<'a> {
    /// Now, monotonic.
    pub now: Tick,
    /// Now, milliseconds since the Unix epoch.
    pub wall_ms: i64,
    /// Buffers.
    pub pool: &'a mut SlotPool,
    /// Shared limits.
    pub limits: &'a AppendLimits,
    /// Bytes that may still be preallocated on this log dir.
    pub preallocate_left: &'a mut u64,
    /// Files that may still be opened for runs; what is under way goes on without.
    pub files_left: usize,
    /// Names.
    pub ids: &'a mut Ids,
    /// Operations for the disk, in order of request.
    pub ops: &'a mut Vec<DiskOp>,
    /// Counters.
    pub stats: &'a mut AppendStats,
}

impl LogCx<'_> {
    pub(super) fn request(&mut self, action: DiskAction) -> OpId {
        let id = self.ids.op();
        self.ops.push(DiskOp { id, action });
        id
    }
}

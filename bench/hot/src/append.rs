//! The log of one partition alone: from received bytes to a planned write, and to its completion.

use std::sync::Arc;

use heliostat_core::log::config::LogConfig;
use heliostat_core::log::cx::{AppendLimits, AppendStats, Ids, LogCx};
use heliostat_core::log::disk::DiskOp;
use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::partition::{PartitionLog, RecoveredLog};
use heliostat_core::log::producer_state::ProducerState;
use heliostat_core::log::slot::{SlotClass, SlotPool, map_apart};
use heliostat_core::time::Tick;
use heliostat_core::types::Offset;

use crate::batches::{EPOCH, Run, Size};
use crate::disk::done;

/// Of an empty partition.
pub(crate) fn empty_log() -> PartitionLog {
    PartitionLog::new(RecoveredLog {
        dir: Arc::from("hot-0"),
        config: LogConfig::default(),
        log_start: Offset::ZERO,
        log_end: Offset::ZERO,
        recovery_point: Offset::ZERO,
        sealed: Vec::new(),
        active: None,
        epochs: EpochCache::default(),
        producers: ProducerState::new(Offset::ZERO),
    })
}

/// A log that has taken a run, and the next run, which lies in a buffer already.
///
/// Checksums are not computed: they are what `verify` counts.
#[derive(Debug)]
pub struct Append {
    log: PartitionLog,
    pool: SlotPool,
    ids: Ids,
    ops: Vec<DiskOp>,
    stats: AppendStats,
    limits: AppendLimits,
    preallocate_left: u64,
    bytes: u64,
    batches: usize,
}

impl Append {
    /// Runs of batches of `size`.
    pub fn new(size: Size) -> Self {
        let first = Run::new(size, 0);
        let second = Run::new(size, first.end);
        let mut it = Self {
            log: empty_log(),
            pool: SlotPool::new(4 << 20, map_apart),
            ids: Ids::default(),
            ops: Vec::new(),
            stats: AppendStats::default(),
            limits: AppendLimits { check_crcs: false, ..AppendLimits::default() },
            preallocate_left: 0,
            bytes: 0,
            batches: 0,
        };
        it.lay_out(&first);
        it.append();
        it.lay_out(&second);
        it
    }

    /// The free buffer gets what a socket would bring: appends to a buffered file begin at a
    /// buffer's first byte.
    fn lay_out(&mut self, run: &Run) {
        let mut slot = self.pool.take(SlotClass::Large).expect("room for a buffer");
        slot.bytes_mut()[..run.bytes.len()].copy_from_slice(&run.bytes);
        self.pool.give(slot);
        self.bytes = u64::try_from(run.bytes.len()).expect("a small run");
        self.batches = run.batches;
    }

    /// Takes the run, plans its write, and takes note of its completion; the number of batches.
    ///
    /// # Panics
    /// If the run is not below the log end offset then.
    pub fn append(&mut self) -> usize {
        let before = self.stats.batches_appended;
        let (bytes, left) = (self.bytes, usize::try_from(self.bytes).expect("a small run"));
        self.with(|log, cx| {
            log.begin_run(bytes, EPOCH, cx);
            let offered = log.read_buffer(cx).map_or(0, |buffer| buffer.len());
            assert_eq!(offered, left, "the buffer takes the whole run");
            log.received(left, cx).expect("a legal run");
        });
        while !self.ops.is_empty() {
            for op in std::mem::take(&mut self.ops) {
                let outcome = done(op);
                self.with(|log, cx| log.on_outcome(outcome, cx));
            }
        }
        let appended = usize::try_from(self.stats.batches_appended - before).expect("few");
        assert_eq!(appended, self.batches, "all of it is appended");
        appended
    }

    fn with<R>(&mut self, call: impl FnOnce(&mut PartitionLog, &mut LogCx<'_>) -> R) -> R {
        let mut cx = LogCx {
            now: Tick(1),
            wall_ms: 1_700_000_000_000,
            pool: &mut self.pool,
            limits: &self.limits,
            preallocate_left: &mut self.preallocate_left,
            files_left: 1,
            ids: &mut self.ids,
            ops: &mut self.ops,
            stats: &mut self.stats,
        };
        call(&mut self.log, &mut cx)
    }
}

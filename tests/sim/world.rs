//! One run of the simulation: a source, a log, a disk that misbehaves, and what the
//! oracle says after each step.

use std::collections::VecDeque;
use std::time::Duration;

use heliostat_core::log::config::{LogConfig, LogConfigValues};
use heliostat_core::log::cx::{AppendLimits, AppendMode, AppendStats, Ids, LogCx};
use heliostat_core::log::disk::{DiskOp, DiskOutcome};
use heliostat_core::log::partition::{PartitionLog, RecoveredLog};
use heliostat_core::log::recovery::{self, LogOpenError, OpenOptions};
use heliostat_core::log::slot::{SlotPool, map_apart};
use heliostat_core::time::Tick;
use heliostat_core::types::{LeaderEpoch, Offset, TopicId};
use uuid::Uuid;

use crate::disk::{CrashKind, FaultPlan, Faults, SimDisk};
use crate::oracle::{self, Checked, Promise, Violation, broken, ensure};
use crate::rng::Chance;
use crate::source::{Sizes, Source};

const DIR: &str = "orders-0";
const PREALLOCATE_BYTES: u64 = 8 << 20;
/// No operation takes more completions than this to come to an end.
const DRAIN_STEPS_MAX: usize = 20_000;
/// Events that a failure shows.
const TRACE_MAX: usize = 60;

/// A bug put in on purpose, to see that the oracle sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sabotage {
    #[default]
    None,
    /// Writes are reported as complete while they are in flight, so that nothing is held.
    NothingHeld,
    /// Checksums are not looked at.
    Unverified,
    /// What is complete when a sync completes is taken for durable.
    SyncedByCompletion,
}

/// Bytes of a fetch on their way to the log.
struct Fetch {
    bytes: Vec<u8>,
    sent: usize,
}

pub(crate) struct World {
    chance: Chance,
    sabotage: Sabotage,
    disk: SimDisk,
    source: Source,
    log: PartitionLog,
    config: LogConfig,
    limits: AppendLimits,
    pool: SlotPool,
    ids: Ids,
    stats: AppendStats,
    preallocate_left: u64,
    now: Tick,
    wall_ms: i64,
    fetch: Option<Fetch>,
    run_batches_max: usize,
    /// Checkpoints at the top of the log dir.
    saved_recovery_point: Offset,
    saved_log_start: Option<Offset>,
    /// Highest claim of the log so far: everything below survives.
    durable: Offset,
    /// Producer state begins here: all batches before were removed at once.
    producers_from: Offset,
    /// The power went in the middle of the last opening.
    died_in_recovery: bool,
    steps: u64,
    /// What happened lately, for the message of a failure.
    trace: VecDeque<String>,
}

impl World {
    pub(crate) fn new(seed: u64, sabotage: Sabotage) -> Result<Self, Violation> {
        let mut chance = Chance::new(seed, 0);
        let block_bytes = chance.pick(&[512_u32, 4096]);
        let mode = match chance.below(3) {
            0 => AppendMode::Buffered,
            1 => AppendMode::Direct { block_bytes },
            _ => AppendMode::Auto { block_bytes },
        };
        let limits = AppendLimits {
            mode,
            direct_run_bytes_min: 4_000,
            check_crcs: sabotage != Sabotage::Unverified,
            preallocate_bytes_min: 8 << 10,
            preallocate_bytes_max: 256 << 10,
            flush_bytes: 32 << 10,
            flush_after: Duration::from_millis(50),
            ..AppendLimits::default()
        };
        let plan = FaultPlan {
            short_write: chance.pick(&[0, 5, 30]),
            write_error: chance.pick(&[0, 0, 1]),
            no_space: chance.pick(&[0, 0, 2]),
            sync_error: chance.pick(&[0, 0, 5]),
            other_error: chance.pick(&[0, 0, 1]),
            direct_refused: chance.pick(&[0, 0, 10, 100]),
            direct_block_bytes: u64::from(block_bytes),
        };
        let sizes = match chance.below(4) {
            0 => Sizes { small_max: 60, large_permille: 0, large_max: 0 },
            1 => Sizes { small_max: 2_000, large_permille: 5, large_max: 1_400_000 },
            2 => Sizes { small_max: 700, large_permille: 30, large_max: 90_000 },
            _ => Sizes { small_max: 9_000, large_permille: 0, large_max: 0 },
        };
        let tiny = sizes.small_max < 100;
        let segment_bytes =
            if tiny { 3_000_000 } else { chance.pick(&[2_000, 20_000, 100_000, 3_000_000]) };
        let config = LogConfig::new(LogConfigValues {
            segment_bytes,
            segment_ms: if tiny { 1_000_000 } else { chance.pick(&[400, 1_000_000]) },
            segment_index_bytes: if tiny { 1 << 20 } else { chance.pick(&[48, 1 << 20]) },
            // Index entries of tiny batches gather until they are written ahead of the roll.
            index_interval_bytes: if tiny { 0 } else { chance.pick(&[0, 300, 4_096]) },
            producer_id_expiration_ms: i64::MAX,
            ..LogConfigValues::default()
        })
        .expect("the settings are legal");
        let start = Offset(chance.pick(&[0, 0, 70]));
        let mut source = Source::new(Chance::new(seed, 1), sizes, start);
        let mut disk = SimDisk::new(Chance::new(seed, 2), plan);
        // The source's log may begin inside of its first batch.
        let first = source.index_at(start);
        let first = &source.batches[first].meta;
        let inside = first.last_offset > first.base_offset && chance.percent(50);
        let log_start = if inside { first.last_offset } else { start };
        let options = OpenOptions {
            config,
            topic_id: TopicId(Uuid::from_u128(7)),
            clean: false,
            recovery_point: Offset::ZERO,
            log_start: Some(log_start),
            truncate_to: None,
            now_ms: 0,
        };
        let (recovered, _) = recovery::open(&mut disk, DIR, &options)
            .map_err(|error| Violation { promise: Promise::Opens, what: error.to_string() })?;
        let mut it = Self {
            chance,
            sabotage,
            disk,
            source,
            log: PartitionLog::new(recovered),
            config,
            limits,
            pool: SlotPool::new(8 << 20, map_apart),
            ids: Ids::default(),
            stats: AppendStats::default(),
            preallocate_left: PREALLOCATE_BYTES,
            now: Tick::ZERO,
            wall_ms: 1_000_000,
            fetch: None,
            run_batches_max: if tiny { 80 } else { 12 },
            saved_recovery_point: Offset::ZERO,
            saved_log_start: None,
            durable: Offset::ZERO,
            producers_from: Offset::ZERO,
            died_in_recovery: false,
            steps: 0,
            trace: VecDeque::new(),
        };
        it.producers_from = it.log.log_start_offset().min(start);
        it.saved_log_start = Some(it.log.log_start_offset());
        it.durable = it.log.log_end_offset();
        it.saved_recovery_point = it.durable;
        Ok(it)
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.disk.faults
    }

    /// Runs `steps` steps and stops the log cleanly.
    pub(crate) fn run(&mut self, steps: u64) -> Checked {
        for _ in 0..steps {
            self.step()?;
            self.check()?;
        }
        self.stop_and_reopen()
    }

    /// Calls the log and hands what it asks for to the disk.
    fn call<T>(&mut self, act: impl FnOnce(&mut PartitionLog, &mut LogCx<'_>) -> T) -> T {
        let mut ops: Vec<DiskOp> = Vec::new();
        let mut cx = LogCx {
            now: self.now,
            wall_ms: self.wall_ms,
            pool: &mut self.pool,
            limits: &self.limits,
            preallocate_left: &mut self.preallocate_left,
            files_left: 1,
            ids: &mut self.ids,
            ops: &mut ops,
            stats: &mut self.stats,
        };
        let out = act(&mut self.log, &mut cx);
        for op in ops {
            self.note(format!("  asks {op:?}"));
            self.disk.submit(op);
        }
        out
    }

    fn note(&mut self, what: impl Into<String>) {
        let mut what = what.into();
        what.truncate(what.floor_char_boundary(300));
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(what);
    }

    /// What happened lately, oldest first.
    pub(crate) fn trace(&self) -> String {
        self.trace.iter().fold(String::new(), |all, line| all + "\n" + line)
    }

    fn step(&mut self) -> Checked {
        self.steps += 1;
        if self.log.failure().is_some() {
            return self.reopen_after_failure();
        }
        match self.chance.below(1_000) {
            0..350 => self.feed(),
            350..800 => return self.complete(),
            800..870 => self.pass_time(),
            870..890 => {
                self.save_checkpoints();
            }
            890..905 => {
                self.fetch = None;
                self.disk.faults.count("connection lost");
                self.call(PartitionLog::abort_run);
            }
            905..930 => self.advance_start(),
            930..960 => {
                self.note("evict");
                let _ = self.call(PartitionLog::evict);
            }
            960..974 => return self.crash(),
            974..984 => return self.truncate(),
            984..992 => return self.stop_and_reopen(),
            _ => return self.drain(),
        }
        Ok(())
    }

    fn feed(&mut self) {
        if self.fetch.is_none() {
            self.begin_fetch();
        }
        let Some(mut fetch) = self.fetch.take() else { return };
        let wanted = match self.chance.below(3) {
            0 => 1 + self.chance.below(100),
            1 => 1 + self.chance.below(5_000),
            _ => usize::MAX,
        };
        let rest = &fetch.bytes[fetch.sent..];
        let sent = self.call(|log, cx| {
            let buffer = log.read_buffer(cx)?;
            let n = wanted.min(buffer.len()).min(rest.len());
            buffer[..n].copy_from_slice(&rest[..n]);
            Some((n, log.received(n, cx)))
        });
        match sent {
            Some((n, Ok(()))) => {
                fetch.sent += n;
                if fetch.sent < fetch.bytes.len() {
                    self.fetch = Some(fetch);
                }
            }
            // Refused: the rest of the run is thrown away.
            Some((_, Err(error))) => {
                self.note(format!("refused: {error}"));
                self.disk.faults.count("run refused");
            }
            None => self.fetch = Some(fetch),
        }
    }

    fn begin_fetch(&mut self) {
        if !self.log.takes_runs() {
            return;
        }
        let mut index = self.source.index_at(self.log.fetch_offset());
        if self.chance.percent(10) {
            index = index.saturating_sub(self.chance.between(1, 3));
            self.disk.faults.count("batches repeated");
        }
        let count = self.chance.between(1, self.run_batches_max);
        let mut bytes: Vec<u8> = Vec::new();
        for batch in self.source.batches.iter().skip(index).take(count) {
            bytes.extend_from_slice(&batch.bytes);
        }
        if self.chance.percent(20) {
            self.disk.faults.count("last batch cut off");
            let cut = self.chance.below(bytes.len().min(300));
            bytes.truncate(bytes.len() - cut);
        }
        if self.chance.percent(5) {
            self.disk.faults.count("byte flipped");
            // Offset and epoch of a batch are under no checksum; the source itself could
            // not tell.
            let start = self.batch_start(index, count);
            let at = start + self.chance.pick(&[8, 9, 11, 16, 17, 20, 25, 60]);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << self.chance.below(8);
            }
        }
        let len = u64::try_from(bytes.len()).expect("fits");
        let limit = LeaderEpoch::NONE;
        self.note(format!("run of {len} bytes from batch {index}"));
        self.call(|log, cx| log.begin_run(len, limit, cx));
        self.fetch = Some(Fetch { bytes, sent: 0 });
    }

    /// Where one of the `count` batches from `index` on begins in their bytes.
    fn batch_start(&mut self, index: usize, count: usize) -> usize {
        let before = self.chance.below(count);
        self.source.batches[index..].iter().take(before).map(|batch| batch.bytes.len()).sum()
    }

    fn complete(&mut self) -> Checked {
        if self.sabotage == Sabotage::NothingHeld
            && let Some(outcome) = self.disk.lie()
        {
            self.call(|log, cx| log.on_outcome(outcome, cx));
        }
        let Some(outcome) = self.disk.complete_one() else { return Ok(()) };
        self.deliver(outcome)
    }

    fn deliver(&mut self, outcome: DiskOutcome) -> Checked {
        self.now = self.now.after(Duration::from_micros(100));
        let id = outcome.id;
        if self.disk.has_lied_about(id) {
            return Ok(());
        }
        self.note(format!("completes {outcome:?}"));
        let owned = self.call(|log, cx| log.on_outcome(outcome, cx));
        ensure(owned, Promise::Progress, || format!("nobody asked for {id:?}"))
    }

    fn pass_time(&mut self) {
        let ms = self.chance.between(1, 60);
        self.now = self.now.after(Duration::from_millis(u64::try_from(ms).expect("fits")));
        self.wall_ms += i64::try_from(ms).expect("fits");
        self.call(PartitionLog::tick);
    }

    fn save_checkpoints(&mut self) {
        self.saved_recovery_point = self.log.recovery_point();
        self.saved_log_start = Some(self.log.log_start_offset());
    }

    fn advance_start(&mut self) {
        let behind = i64::try_from(self.chance.between(0, 60)).expect("fits");
        let to = self.log.log_end_offset().plus(-behind);
        self.note(format!("log start to {to}"));
        self.call(|log, cx| log.advance_log_start(to, cx));
    }

    /// Completes what is under way until the log is quiet.
    fn drain(&mut self) -> Checked {
        if self.fetch.take().is_some() {
            self.call(PartitionLog::abort_run);
        }
        for _ in 0..DRAIN_STEPS_MAX {
            let Some(outcome) = self.disk.complete_one() else { break };
            self.deliver(outcome)?;
            self.observe();
            self.check()?;
        }
        ensure(self.disk.in_flight() == 0, Promise::Progress, || {
            "the disk never rests".to_owned()
        })?;
        ensure(self.log.is_quiet(), Promise::Progress, || {
            format!("nothing is in flight, yet the log is not quiet: {:?}", self.log)
        })?;
        ensure(self.pool.lent_bytes() == 0, Promise::Buffers, || {
            format!("{} bytes of slots are lent although all is quiet", self.pool.lent_bytes())
        })?;
        if self.log.failure().is_none() {
            ensure(
                self.log.fetch_offset() == self.log.log_end_offset(),
                Promise::Progress,
                || {
                    let (accepted, end) = (self.log.fetch_offset(), self.log.log_end_offset());
                    format!("accepted to {accepted}, but the log ends at {end} for good")
                },
            )?;
        }
        self.check_all(false)
    }

    fn options(&self) -> OpenOptions {
        OpenOptions {
            config: self.config,
            topic_id: TopicId(Uuid::from_u128(7)),
            clean: false,
            recovery_point: self.saved_recovery_point,
            log_start: self.saved_log_start,
            truncate_to: None,
            now_ms: self.wall_ms,
        }
    }

    /// Opens the log, perhaps dying on the way and starting again.
    fn open(&mut self, options: &OpenOptions) -> Result<RecoveredLog, Violation> {
        let mut options = *options;
        self.died_in_recovery = false;
        for _ in 0..3 {
            if !self.chance.percent(30) {
                break;
            }
            let calls = self.chance.below(12);
            self.disk.cold_calls_left = Some(u64::try_from(calls).expect("fits"));
            let opened = recovery::open(&mut self.disk, DIR, &options);
            self.disk.cold_calls_left = None;
            match opened {
                Ok(_) => {}
                Err(LogOpenError::Store(_)) => self.disk.faults.count("crash in recovery"),
                Err(error) => return broken(Promise::Opens, error.to_string()),
            }
            options.clean = false;
            self.died_in_recovery = true;
            self.disk.crash(CrashKind::PowerNothingKept);
        }
        match recovery::open(&mut self.disk, DIR, &options) {
            Ok((recovered, _)) => Ok(recovered),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                broken(Promise::Opens, format!("{error}: {cause:?}"))
            }
        }
    }

    fn adopt(&mut self, recovered: RecoveredLog) -> Checked {
        self.note(format!(
            "opened {} {}, {} sealed, {:?}",
            recovered.log_start,
            recovered.log_end,
            recovered.sealed.len(),
            recovered.epochs.entries()
        ));
        self.log = PartitionLog::new(recovered);
        self.fetch = None;
        if self.log.log_start_offset() == self.log.log_end_offset() {
            let start = self.log.log_start_offset();
            let first = self.source.index_at(start);
            let start = start.min(self.source.batches[first].meta.base_offset);
            if self.log.producers().producer_count() == 0 {
                self.producers_from = start;
            }
        }
        self.durable = self.log.recovery_point();
        self.save_checkpoints();
        ensure(self.pool.lent_bytes() == 0, Promise::Buffers, || "slots are lost".to_owned())?;
        self.preallocate_left = PREALLOCATE_BYTES;
        self.check_all(false)
    }

    fn crash(&mut self) -> Checked {
        let kind =
            self.chance.pick(&[CrashKind::Process, CrashKind::Power, CrashKind::PowerNothingKept]);
        self.disk.faults.count(match kind {
            CrashKind::Process => "process killed",
            CrashKind::Power => "power lost",
            CrashKind::PowerNothingKept => "power lost, nothing kept",
        });
        self.note(format!("{kind:?} crash, durable to {}", self.durable));
        let durable = self.durable;
        let (accepted, log_start) = (self.log.fetch_offset(), self.log.log_start_offset());
        for slot in self.disk.crash(kind) {
            self.pool.give(slot);
        }
        // The run's own slot goes with the process.
        self.pool = SlotPool::new(self.pool.budget_bytes(), map_apart);
        if self.chance.percent(50) {
            // The checkpoint was written a moment before.
            self.saved_recovery_point = self.saved_recovery_point.max(durable);
            self.saved_log_start = Some(log_start);
        }
        let recovered = self.open(&self.options())?;
        let end = recovered.log_end;
        ensure(end >= self.batch_end(durable), Promise::Durable, || {
            format!("the log ends at {end} after a crash, {durable} was durable")
        })?;
        // Bytes that were verified in part only may turn out to be whole batches.
        let _ = accepted;
        self.adopt(recovered)
    }

    fn reopen_after_failure(&mut self) -> Checked {
        self.disk.faults.count("log failed");
        self.note(format!("failed: {:?}", self.log.failure()));
        self.fetch = None;
        let durable = self.durable;
        self.call(PartitionLog::abandon);
        self.drain()?;
        if self.chance.percent(50) {
            self.save_checkpoints();
        }
        let recovered = self.open(&self.options())?;
        let end = recovered.log_end;
        ensure(end >= self.batch_end(durable), Promise::Durable, || {
            format!("the log ends at {end} after a failure, {durable} was durable")
        })?;
        self.adopt(recovered)
    }

    fn truncate(&mut self) -> Checked {
        self.fetch = None;
        self.call(PartitionLog::abandon);
        self.drain()?;
        self.disk.faults.count("truncation");
        self.note("truncation");
        let behind = i64::try_from(self.chance.between(0, 40)).expect("fits");
        let to = self.log.log_end_offset().plus(-behind).max(self.log.log_start_offset());
        let (from, start) = (self.log.log_end_offset(), self.log.log_start_offset());
        self.save_checkpoints();
        let options = OpenOptions { truncate_to: Some(to), ..self.options() };
        let recovered = self.open(&options)?;
        let end = recovered.log_end;
        ensure(end <= to || end == from.min(to), Promise::Offsets, || {
            format!("cut {start}..{from} to {to}, which gave {end}")
        })?;
        let kept = if self.died_in_recovery { self.durable.min(to) } else { to.min(from) };
        ensure(end >= self.batch_end(kept), Promise::Durable, || {
            format!("cut {start}..{from} to {to}, but {end} loses a whole batch")
        })?;
        self.source.diverge_at(to);
        self.adopt(recovered)
    }

    fn stop_and_reopen(&mut self) -> Checked {
        if self.log.failure().is_some() {
            self.reopen_after_failure()?;
        }
        self.fetch = None;
        self.note("close");
        self.call(PartitionLog::begin_close);
        self.drain()?;
        if self.log.failure().is_some() {
            return self.reopen_after_failure();
        }
        ensure(self.log.is_closed(), Promise::Progress, || format!("not closed: {:?}", self.log))?;
        ensure(self.preallocate_left == PREALLOCATE_BYTES, Promise::Buffers, || {
            format!("{} bytes of reservations are gone", PREALLOCATE_BYTES - self.preallocate_left)
        })?;
        self.check_all(true)?;
        self.disk.faults.count("clean stop");
        self.save_checkpoints();
        let end = self.log.log_end_offset();
        ensure(self.log.recovery_point() == end, Promise::Durable, || {
            format!("closed at {end}, durable to {}", self.log.recovery_point())
        })?;
        // A clean stop is one: what the power takes now was durable.
        if self.chance.percent(50) {
            self.disk.crash(CrashKind::PowerNothingKept);
        }
        let options = OpenOptions { clean: true, ..self.options() };
        let recovered = self.open(&options)?;
        ensure(recovered.log_end == end, Promise::Durable, || {
            format!("closed at {end}, opened at {}", recovered.log_end)
        })?;
        self.adopt(recovered)
    }

    /// End of the last batch that lies wholly below `offset`: behind it may be a gap.
    fn batch_end(&self, offset: Offset) -> Offset {
        let batches = &self.source.batches;
        let below = batches.partition_point(|batch| batch.meta.last_offset < offset);
        batches[..below].last().map_or(Offset(i64::MIN), |batch| batch.meta.next_offset())
    }

    fn observe(&mut self) {
        let claim = match self.sabotage {
            Sabotage::SyncedByCompletion if self.log.recovery_point() > self.durable => {
                self.log.log_end_offset()
            }
            _ => self.log.recovery_point(),
        };
        self.durable = self.durable.max(claim);
    }

    /// Cheap checks, after each step.
    fn check(&mut self) -> Checked {
        self.observe();
        if let Some(what) = self.disk.broken.pop() {
            return broken(Promise::Disk, what);
        }
        let log = &self.log;
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        let ordered = start <= end && end <= log.fetch_offset() && log.recovery_point() <= end;
        ensure(ordered, Promise::Offsets, || {
            format!("{start}, {} {end} {}", log.recovery_point(), log.fetch_offset())
        })?;
        if self.steps.is_multiple_of(64) {
            return self.check_all(false);
        }
        oracle::check_bytes(&self.disk, DIR, &self.source.batches, start, end, 10_000)
    }

    /// Everything. `complete`: the log was closed.
    fn check_all(&mut self, complete: bool) -> Checked {
        let log = &self.log;
        let batches = &self.source.batches;
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        oracle::check_bytes(&self.disk, DIR, batches, start, end, usize::MAX / 2)?;
        oracle::check_epochs(log.epochs(), batches, start, end)?;
        let (producers, aborted) = oracle::producers(batches, self.producers_from, end);
        oracle::check_producers(log.producers(), &producers)?;
        oracle::check_indexes(&self.disk, DIR, batches, &aborted, end, complete)
    }
}

//! Target `recovery`: how to open, where to divide, a partition's directory.

use heliostat_core::log::config::{LogConfig, LogConfigValues};
use heliostat_core::log::index::{OffsetIndexFile, TimeIndexFile};
use heliostat_core::log::names::{SegmentFileKind as Kind, SegmentFileName};
use heliostat_core::log::partition::RecoveredLog;
use heliostat_core::log::recovery::{self, CutReason, LogOpenError, OpenOptions, OpenReport};
use heliostat_core::log::txn_index;
use heliostat_core::types::{Offset, TopicId};

use crate::batches::{PlainBatch, plain, seal};
use crate::store::MemoryStore;

const DIR: &str = "t-0";
/// Base offset of the second segment.
const SECOND: i64 = 3;

/// A partition's directory of any bytes: two segments and one more file. Opening it ends,
/// cuts nothing that it must keep and keeps nothing that is no batch; what it leaves opens
/// again to the same, and nothing changes any more.
///
/// # Panics
/// When recovery breaks its promises: that is what the fuzzer looks for.
pub fn recovery(input: &[u8]) {
    let Some((head, bytes)) = input.split_first_chunk::<6>() else { return };
    let Case { before, options, other } = Case::new(*head, bytes);
    let mut store = before.clone();
    let (opened, report) = match recovery::open(&mut store, DIR, &options) {
        Ok(opened) => opened,
        Err(error) => {
            check_refusal(&error, &before, &store);
            return;
        }
    };
    check_files(&store, &opened);
    check_kept(&before, &store, &options, &report);
    if !options.clean {
        check_batches(&store, &opened);
    }

    let again = OpenOptions {
        clean: false,
        recovery_point: opened.log_end,
        log_start: Some(opened.log_start),
        truncate_to: None,
        ..options
    };
    let first = store.clone();
    let reopened = open_again(&mut store, &again, &opened);
    if !options.clean {
        assert_eq!(reopened.epochs, opened.epochs, "opened twice, other epochs");
    }
    for base in [0, SECOND] {
        assert_eq!(log_file(&store, base), log_file(&first, base), "batches change at rest");
    }
    // Files that were trusted at first have been made anew once; now nothing is left to do.
    let second = store.clone();
    let last = open_again(&mut store, &again, &opened);
    assert_eq!(store, second, "opening a whole log changes it");
    assert_eq!(last.producers.snapshot(), reopened.producers.snapshot());
    if !matches!(other, Some(Kind::Index | Kind::TimeIndex | Kind::TxnIndex)) {
        check_indexes(&store, &last);
    }

    let start = opened.log_end.plus(2);
    let (empty, _) = recovery::reset(&mut store, DIR, start, &again).unwrap_or_else(failed);
    assert_eq!((empty.log_start, empty.log_end), (start, start));
    let started = OpenOptions { log_start: Some(start), recovery_point: start, ..again };
    let _ = open_again(&mut store, &started, &empty);
}

struct Case {
    before: MemoryStore,
    options: OpenOptions,
    /// The segment's file that came with the logs, if it is one.
    other: Option<Kind>,
}

impl Case {
    fn new([flags, kind, point, limit, cut, cut2]: [u8; 6], bytes: &[u8]) -> Self {
        let (log, rest) = bytes.split_at(bytes.len() * usize::from(cut) / 255);
        let (log2, side) = rest.split_at(rest.len() * usize::from(cut2) / 255);
        let (mut log, mut log2) = (log.to_vec(), log2.to_vec());
        if flags & 2 != 0 {
            seal(&mut log);
            seal(&mut log2);
        }
        let mut before = MemoryStore::default();
        before.put(DIR, &name(0, Kind::Log), &log);
        if !log2.is_empty() || flags & 32 != 0 {
            before.put(DIR, &name(SECOND, Kind::Log), &log2);
        }
        let other = match kind % 6 {
            0 => Some(Kind::Index),
            1 => Some(Kind::TimeIndex),
            2 => Some(Kind::TxnIndex),
            3 => Some(Kind::Snapshot),
            _ => None,
        };
        let second = if kind & 0x80 == 0 { 0 } else { SECOND };
        let side_name = match (other, kind % 6) {
            (Some(Kind::Snapshot), _) => name(SECOND, Kind::Snapshot),
            (Some(other), _) => name(second, other),
            (None, 4) => "leader-epoch-checkpoint".to_owned(),
            (None, _) if second == 0 => "partition.metadata".to_owned(),
            (None, _) => name(0, Kind::Log) + ".swap",
        };
        if !side.is_empty() {
            before.put(DIR, &side_name, side);
        }
        let values = LogConfigValues {
            index_interval_bytes: if flags & 4 == 0 { 4_096 } else { 100 },
            ..LogConfigValues::default()
        };
        let low = |byte: u8| Offset(i64::from(byte & 0x0f));
        let options = OpenOptions {
            config: LogConfig::new(values).unwrap_or_default(),
            topic_id: TopicId::NONE,
            clean: flags & 1 != 0,
            recovery_point: low(point),
            log_start: (flags & 8 != 0).then_some(low(point >> 4)),
            truncate_to: (flags & 16 != 0).then_some(low(limit)),
            now_ms: 1_700_000_000_000,
        };
        Self { before, options, other }
    }
}

fn name(base: i64, kind: Kind) -> String {
    SegmentFileName::live(Offset(base), kind).to_string()
}

fn log_file(store: &MemoryStore, base: i64) -> &[u8] {
    store.get(DIR, &name(base, Kind::Log)).unwrap_or_default()
}

/// Batches at the front of a segment that may follow one another in it.
fn in_order(bytes: &[u8], base: i64) -> Vec<PlainBatch> {
    let mut batches = plain(bytes, usize::MAX, true);
    let mut next = base;
    let fits = |batch: &PlainBatch| {
        let fits = batch.base >= next && batch.last - base <= i64::from(i32::MAX);
        next = batch.last + 1;
        fits
    };
    let whole = batches.iter().position({
        let mut fits = fits;
        move |batch| !fits(batch)
    });
    batches.truncate(whole.unwrap_or(batches.len()));
    batches
}

/// Nothing was cut, and what is called damaged is.
fn check_refusal(error: &LogOpenError, before: &MemoryStore, after: &MemoryStore) {
    for base in [0, SECOND] {
        assert_eq!(log_file(before, base), log_file(after, base), "cut, and then refused: {error}");
    }
    if let LogOpenError::Damaged { path, .. } = error {
        let first = in_order(log_file(before, 0), 0);
        let end = first.last().map_or(0, PlainBatch::end);
        let overlaps = first.last().is_some_and(|last| last.last >= SECOND);
        let second = log_file(before, SECOND);
        let end2 = in_order(second, SECOND).last().map_or(0, PlainBatch::end);
        let is_damaged = end < log_file(before, 0).len() || end2 < second.len();
        assert!(is_damaged || (overlaps && !second.is_empty()), "{path} is whole: {error}");
    }
}

/// What recovery hands over is what the files say.
fn check_files(store: &MemoryStore, log: &RecoveredLog) {
    let len = |base: Offset, kind| {
        let file = store.get(DIR, &name(base.0, kind)).unwrap_or_default();
        u64::try_from(file.len()).unwrap_or(u64::MAX)
    };
    for sealed in &log.sealed {
        assert_eq!(sealed.size_bytes, len(sealed.base, Kind::Log));
    }
    if let Some(active) = &log.active {
        assert_eq!(active.size_bytes, len(active.base, Kind::Log));
        let side =
            [Kind::Index, Kind::TimeIndex, Kind::TxnIndex].map(|kind| len(active.base, kind));
        assert_eq!(active.side_bytes, side);
    }
    assert!(log.log_start <= log.log_end, "the log ends before it begins");
    // The epoch in which the log starts begins there, even where the log ends as well.
    let is_inside = |start| start < log.log_end || start == log.log_start;
    assert!(log.epochs.latest().is_none_or(|latest| is_inside(latest.start_offset)));
}

/// Files are a front of what they were, and what was durable is still there.
fn check_kept(
    before: &MemoryStore,
    after: &MemoryStore,
    options: &OpenOptions,
    report: &OpenReport,
) {
    let mut lost = 0;
    for base in [0, SECOND] {
        let (old, new) = (log_file(before, base), log_file(after, base));
        assert!(old.starts_with(new), "recovery made records up");
        lost += old.len() - new.len();
        // A log that ends below its start is not a log any more.
        if options.log_start.is_some() {
            continue;
        }
        let below = options.recovery_point.min(options.truncate_to.unwrap_or(Offset(i64::MAX)));
        let durable = in_order(old, base).into_iter().rfind(|batch| batch.last < below.0);
        let kept = durable.is_none_or(|batch| batch.end() <= new.len());
        assert!(kept, "{durable:?} was below the recovery point: {report:?}");
    }
    if options.log_start.is_none() {
        let point = options.recovery_point;
        let may_cut = report.cut.is_none_or(|cut| match cut.reason {
            CutReason::Truncation => options.truncate_to.is_some(),
            CutReason::Gap { next_base } => next_base > point,
            CutReason::Preallocated | CutReason::Torn(_) => cut.from >= point,
        });
        assert!(may_cut, "cut below the recovery point {point}: {report:?}");
        let told = report.cut.map_or(0, |cut| usize::try_from(cut.bytes).unwrap_or(usize::MAX));
        // What follows the last batch of the first segment is no loss if the second goes on
        // from there.
        let last = in_order(log_file(after, 0), 0).last().map(|batch| batch.last + 1);
        let goes_on = last == Some(SECOND) && after.get(DIR, &name(SECOND, Kind::Log)).is_some();
        assert!(told == lost || (goes_on && told < lost), "{lost} bytes went: {report:?}");
    }
}

/// Every byte of the logs belongs to a batch in its place, and the last one ends the log.
fn check_batches(store: &MemoryStore, log: &RecoveredLog) {
    let mut end = log.log_start.0;
    for base in [0, SECOND] {
        let Some(file) = store.get(DIR, &name(base, Kind::Log)) else { continue };
        let batches = in_order(file, base);
        let last = batches.last();
        assert_eq!(last.map_or(0, PlainBatch::end), file.len(), "no batch, and it was kept");
        end = last.map_or(base, |last| last.last + 1);
    }
    assert_eq!(end.max(log.log_start.0), log.log_end.0, "the log ends elsewhere");
}

fn open_again(store: &mut MemoryStore, options: &OpenOptions, log: &RecoveredLog) -> RecoveredLog {
    let (again, report) = recovery::open(store, DIR, options).unwrap_or_else(failed);
    assert_eq!((again.log_start, again.log_end), (log.log_start, log.log_end), "other ends");
    assert_eq!(again.sealed, log.sealed, "other segments");
    assert!(report.cut.is_none(), "the first opening left something to cut: {report:?}");
    check_files(store, &again);
    again
}

#[expect(clippy::panic, reason = "how a fuzz target says that it found something")]
fn failed<T>(error: LogOpenError) -> T {
    panic!("what was opened does not open again: {error}");
}

/// Every entry leads to a batch, or says the largest timestamp so far.
fn check_indexes(store: &MemoryStore, log: &RecoveredLog) {
    let sealed = log.sealed.iter().map(|segment| segment.base);
    for base in sealed.chain(log.active.iter().map(|active| active.base)) {
        let file = |kind| store.get(DIR, &name(base.0, kind)).unwrap_or_default();
        let batches = in_order(log_file(store, base.0), base.0);
        let entries = OffsetIndexFile::parse(base, file(Kind::Index));
        for entry in entries.iter().flat_map(|index| index.iter()) {
            let at = usize::try_from(entry.position).unwrap_or(usize::MAX);
            let found = batches.iter().any(|it| it.at == at && it.last == entry.offset.0);
            assert!(found, "{entry:?} leads nowhere");
        }
        let times = TimeIndexFile::parse(base, file(Kind::TimeIndex));
        for entry in times.iter().flat_map(|index| index.iter()) {
            let until = batches.iter().take_while(|it| it.last <= entry.offset.0);
            let largest = until.map(|it| it.max_timestamp).max();
            assert_eq!(largest, Some(entry.timestamp.0), "{entry:?} is not the largest");
        }
        let aborted = txn_index::decode(base, file(Kind::TxnIndex));
        assert!(entries.is_ok() && times.is_ok() && aborted.is_ok(), "an index is broken");
    }
}

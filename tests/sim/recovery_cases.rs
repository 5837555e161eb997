//! What recovery makes of directories that are wrong in one way each.

use heliostat_core::log::config::{LogConfig, LogConfigValues};
use heliostat_core::log::names::{SegmentFileKind as Kind, SegmentFileName};
use heliostat_core::log::partition::RecoveredLog;
use heliostat_core::log::recovery::{
    self, Cut, CutReason, Damage, LogOpenError, OpenOptions, OpenReport,
};
use heliostat_core::log::store::ColdStore;
use heliostat_core::records::RecordError;
use heliostat_core::types::{Offset, TopicId};
use uuid::Uuid;

use crate::disk::{FaultPlan, SimDisk};
use crate::oracle::{check_bytes, check_epochs, check_indexes, producers};
use crate::rng::Chance;
use crate::source::{Sizes, Source};

const DIR: &str = "orders-0";
/// Batches in each of the three segments.
const BATCHES: usize = 20;

struct Case {
    disk: SimDisk,
    source: Source,
    /// Base offsets of the segments, and the end of the log.
    bases: Vec<Offset>,
    options: OpenOptions,
}

fn name(base: Offset, kind: Kind) -> String {
    format!("{DIR}/{}", SegmentFileName::live(base, kind))
}

impl Case {
    /// Three segments, complete, as a first recovery without any index leaves them.
    fn new() -> Self {
        let sizes = Sizes { small_max: 300, large_permille: 0, large_max: 0 };
        let mut source = Source::new(Chance::new(3, 1), sizes, Offset::ZERO);
        source.index_at(Offset(1_000));
        let mut disk = SimDisk::new(Chance::new(3, 2), FaultPlan::default());
        let mut bases = vec![Offset::ZERO];
        for batches in source.batches.chunks(BATCHES).take(3) {
            let base = bases[bases.len() - 1];
            let bytes: Vec<u8> = batches.iter().flat_map(|batch| batch.bytes.clone()).collect();
            disk.append_file(&name(base, Kind::Log), &bytes);
            let last = batches.iter().map(|batch| batch.meta.next_offset()).max();
            bases.extend(last);
        }
        let values = LogConfigValues { index_interval_bytes: 200, ..LogConfigValues::default() };
        let options = OpenOptions {
            config: LogConfig::new(values).expect("legal"),
            topic_id: TopicId(Uuid::from_u128(9)),
            clean: false,
            recovery_point: Offset::ZERO,
            log_start: None,
            truncate_to: None,
            now_ms: 0,
        };
        let mut it = Self { disk, source, bases, options };
        let (log, _) = it.open();
        assert_eq!(log.log_end, it.end());
        it
    }

    fn end(&self) -> Offset {
        self.bases[self.bases.len() - 1]
    }

    fn try_open(&mut self) -> Result<(RecoveredLog, OpenReport), LogOpenError> {
        recovery::open(&mut self.disk, DIR, &self.options)
    }

    /// Opens, and holds everything against the source.
    #[track_caller]
    fn open(&mut self) -> (RecoveredLog, OpenReport) {
        let (log, report) = self.try_open().expect("the log opens");
        let batches = &self.source.batches;
        let (_, aborted) = producers(batches, Offset::ZERO, log.log_end);
        let seen = check_bytes(&self.disk, DIR, batches, log.log_start, log.log_end, 1 << 30)
            .and_then(|()| check_epochs(&log.epochs, batches, log.log_start, log.log_end))
            .and_then(|()| check_indexes(&self.disk, DIR, batches, &aborted, log.log_end, false));
        assert!(seen.is_ok(), "{seen:?}");
        (log, report)
    }

    fn size(&self, segment: usize) -> u64 {
        let bytes = self.disk.contents(&name(self.bases[segment], Kind::Log));
        u64::try_from(bytes.map_or(0, Vec::len)).expect("fits")
    }

    /// Flips a bit of a file.
    fn damage(&mut self, path: &str, at: usize) {
        let mut bytes = self.disk.contents(path).expect("is there").clone();
        bytes[at] ^= 4;
        self.disk.replace_file(path, &bytes);
    }

    /// Where batch `index` of a segment begins.
    fn position(&self, segment: usize, index: usize) -> usize {
        let batches = &self.source.batches[segment * BATCHES..];
        batches.iter().take(index).map(|batch| batch.bytes.len()).sum()
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let path = |name: &str| format!("{DIR}/{name}");
        let bytes = |name: &str| self.disk.contents(&path(name)).cloned().unwrap_or_default();
        self.disk.files(DIR).map(|name| (name.to_owned(), bytes(name))).collect()
    }
}

#[test]
fn a_second_recovery_changes_nothing() {
    let mut case = Case::new();
    let before = case.files();
    let (_, report) = case.open();
    assert_eq!(case.files(), before);
    assert_eq!((report.cut, report.removed), (None, vec![]));
}

#[test]
fn after_a_clean_stop_little_is_read() {
    let mut case = Case::new();
    case.options.clean = true;
    // What replays producers, for no snapshot of the end was written.
    case.options.recovery_point = case.end();
    let (log, report) = case.open();
    assert_eq!(log.log_end, case.end());
    assert_eq!(report.rebuilt, Vec::<String>::new());
    assert!(report.bytes_scanned < 2 * case.size(2), "{}", report.bytes_scanned);
}

#[test]
fn indexes_that_are_missing_or_zero_are_made_again() {
    for clean in [true, false] {
        for kind in [Kind::Index, Kind::TimeIndex] {
            for zeroed in [true, false] {
                let mut case = Case::new();
                case.options.clean = clean;
                case.options.recovery_point = case.end();
                let path = name(case.bases[1], kind);
                let good = case.disk.contents(&path).expect("is there").clone();
                if zeroed {
                    case.disk.replace_file(&path, &vec![0; good.len()]);
                } else {
                    case.disk.remove_file(&path);
                }
                let (_, report) = case.open();
                assert_eq!(case.disk.contents(&path), Some(&good), "{clean} {kind:?} {zeroed}");
                assert!(report.rebuilt.iter().any(|name| path.ends_with(name)));
            }
        }
    }
}

#[test]
fn a_torn_tail_is_cut_above_the_recovery_point_only() {
    let mut case = Case::new();
    let (base, at) = (case.bases[2], case.position(2, 15));
    case.damage(&name(base, Kind::Log), at + 20);
    let batch = case.source.batches[2 * BATCHES + 15].meta;
    let cut_at = case.source.batches[2 * BATCHES + 14].meta.next_offset();
    case.options.recovery_point = case.end();
    let before = case.files();
    let refused = case.try_open().expect_err("durable data is damaged");
    let LogOpenError::Damaged { path, position, offset, damage, .. } = &refused else {
        panic!("{refused}");
    };
    assert_eq!(path.to_string(), name(base, Kind::Log));
    assert_eq!((*position, *offset), (u64::try_from(at).expect("fits"), cut_at));
    let Damage::Record(RecordError::CrcMismatch { stored, computed, .. }) = damage else {
        panic!("{damage}");
    };
    assert!(*computed == batch.crc && stored != computed);
    assert_eq!(case.files(), before, "nothing was changed");

    case.options.recovery_point = cut_at;
    let (log, report) = case.open();
    assert_eq!(log.log_end, cut_at);
    let Some(Cut { from, to, reason: CutReason::Torn(_), .. }) = report.cut else {
        panic!("{report:?}");
    };
    assert_eq!((from, to), (cut_at, Some(case.end())));
    assert_eq!(case.size(2), u64::try_from(at).expect("fits"));
}

#[test]
fn a_preallocated_tail_is_cut_and_costs_nothing() {
    let mut case = Case::new();
    let (path, size) = (name(case.bases[2], Kind::Log), case.size(2));
    case.disk.append_file(&path, &[0; 5_000]);
    let (log, report) = case.open();
    assert_eq!((log.log_end, case.size(2)), (case.end(), size));
    let cut = report.cut.expect("says so");
    assert_eq!((cut.reason, cut.batches, cut.bytes), (CutReason::Preallocated, 0, 5_000));
}

#[test]
fn segments_behind_a_cut_go() {
    let mut case = Case::new();
    let at = case.position(1, 3);
    case.damage(&name(case.bases[1], Kind::Log), at + 20);
    let (log, _) = case.open();
    assert_eq!(log.log_end, case.source.batches[BATCHES + 2].meta.next_offset());
    assert_eq!(log.sealed.len(), 1);
    assert_eq!(case.disk.contents(&name(case.bases[2], Kind::Log)), None);
    assert_eq!(case.disk.contents(&name(case.bases[2], Kind::Snapshot)), None);
}

#[test]
fn a_clean_stop_that_the_last_segment_refutes_vouches_for_nothing() {
    let torn_twice = |recovery_point: fn(&Case) -> Offset| {
        let mut case = Case::new();
        // The last batch of the last segment, which is looked at, and one that is not.
        for (segment, batch) in [(1, 3), (2, BATCHES - 1)] {
            let at = case.position(segment, batch);
            case.damage(&name(case.bases[segment], Kind::Log), at + 20);
        }
        case.options.clean = true;
        case.options.recovery_point = recovery_point(&case);
        let (log, _) = case.try_open().expect("the damage is behind the recovery point");
        (log.log_end, case)
    };
    let ends_with = |case: &Case, batch: usize| case.source.batches[batch].meta.next_offset();

    let (log_end, case) = torn_twice(|_| Offset::ZERO);
    assert_eq!(log_end, ends_with(&case, BATCHES + 2));
    // Below the recovery point files are trusted, marker or not.
    let (log_end, case) = torn_twice(|case| case.bases[2].plus(1));
    assert_eq!(log_end, ends_with(&case, 3 * BATCHES - 2));
}

#[test]
fn a_missing_segment_is_a_gap_below_the_recovery_point_and_the_end_above() {
    let mut case = Case::new();
    case.disk.remove_file(&name(case.bases[1], Kind::Log));
    case.options.recovery_point = case.bases[2];
    case.options.log_start = Some(case.bases[2]);
    let (log, _) = case.try_open().expect("a gap is legal");
    assert_eq!(log.log_end, case.end());

    let mut case = Case::new();
    case.disk.remove_file(&name(case.bases[1], Kind::Log));
    let (log, report) = case.open();
    assert_eq!(log.log_end, case.bases[1]);
    let gap = CutReason::Gap { next_base: case.bases[2] };
    assert_eq!(report.cut.map(|cut| cut.reason), Some(gap));
}

#[test]
fn an_empty_last_segment_keeps_the_end() {
    let mut case = Case::new();
    let end = case.end();
    case.disk.append_file(&name(end, Kind::Log), &[]);
    let (log, _) = case.open();
    assert_eq!((log.log_end, log.sealed.len()), (end, 3));
}

#[test]
fn an_empty_segment_inside_the_one_before_it_goes() {
    for recovered in [false, true] {
        let mut case = Case::new();
        let end = case.end();
        let inside = name(end.plus(-2), Kind::Log);
        case.disk.append_file(&inside, &[]);
        case.options.recovery_point = if recovered { end } else { Offset::ZERO };
        let (log, _) = case.open();
        assert_eq!((log.log_end, log.sealed.len()), (end, 2));
        assert_eq!(case.disk.contents(&inside), None);
    }
}

#[test]
fn an_overlap_below_the_recovery_point_is_damage() {
    let mut case = Case::new();
    let log = name(case.bases[0], Kind::Log);
    case.disk.append_file(&log, &case.source.batches[BATCHES].bytes.clone());
    case.disk.remove_file(&name(case.bases[0], Kind::Index));
    case.options.recovery_point = case.end();
    let before = case.disk.contents(&log).cloned();
    let error = case.try_open().map(|(log, _)| log.log_end);
    assert!(
        matches!(error, Err(LogOpenError::Damaged { damage: Damage::Overlap { .. }, .. })),
        "{error:?}"
    );
    assert_eq!(case.disk.contents(&log).cloned(), before);
}

#[test]
fn a_log_start_inside_a_batch_or_above_the_end() {
    let mut case = Case::new();
    case.options.log_start = Some(Offset(2));
    let (log, _) = case.open();
    assert_eq!((log.log_start, log.log_end), (Offset(2), case.end()));

    let above = case.end().plus(50);
    case.options.log_start = Some(above);
    let (log, report) = case.try_open().expect("as Kafka: starts over");
    assert_eq!((log.log_start, log.log_end, log.active.is_none()), (above, above, true));
    assert_eq!(report.ended_below_start, Some(case.end()));
}

#[test]
fn a_recovery_point_above_the_end_is_told() {
    let mut case = Case::new();
    let above = case.end().plus(9);
    case.options.recovery_point = above;
    let (log, report) = case.open();
    assert_eq!((log.log_end, log.recovery_point), (case.end(), case.end()));
    assert_eq!(report.recovery_point_above_end, Some(above));
}

#[test]
fn truncation_keeps_whole_batches() {
    for clean in [true, false] {
        let mut case = Case::new();
        let batch = case.source.batches[BATCHES + 5].meta;
        let kept = case.source.batches[BATCHES + 4].meta.next_offset();
        let old_end = case.end();
        case.options.clean = clean;
        case.options.recovery_point = old_end;
        case.options.truncate_to = Some(batch.last_offset);
        let (log, report) = case.open();
        assert_eq!(log.log_end, kept);
        let cut = report.cut.expect("says so");
        assert_eq!((cut.from, cut.to, cut.reason), (kept, Some(old_end), CutReason::Truncation));
        assert_eq!(cut.batches, u64::try_from(2 * BATCHES - 5).expect("fits"));
        case.options.truncate_to = Some(old_end);
        assert_eq!(case.open().1.cut, None, "nothing is left to cut");
        case.options.truncate_to = Some(Offset::ZERO);
        let (log, _) = case.open();
        assert_eq!((log.log_end, log.active.is_none()), (Offset::ZERO, true));
    }
}

#[test]
fn leftovers_go_and_a_swap_that_is_all_there_is_stays() {
    let mut case = Case::new();
    let base = case.bases[1];
    let left = ["leader-epoch-checkpoint.tmp", "00000000000000000900.index"];
    for file in left {
        case.disk.append_file(&format!("{DIR}/{file}"), b"x");
    }
    for suffix in [".deleted", ".cleaned", ".swap"] {
        case.disk.append_file(&format!("{}{suffix}", name(base, Kind::Log)), b"x");
    }
    let (_, report) = case.open();
    assert_eq!(report.removed.len(), 5, "{:?}", report.removed);
    case.disk.append_file(&format!("{}.swap", name(case.end(), Kind::Log)), b"x");
    let refused = case.try_open().expect_err("its originals are gone");
    assert!(matches!(refused, LogOpenError::UnfinishedSwap { .. }), "{refused}");
}

#[test]
fn another_topic_is_refused() {
    let mut case = Case::new();
    case.options.topic_id = TopicId(Uuid::from_u128(10));
    let refused = case.try_open().expect_err("another topic");
    assert!(matches!(refused, LogOpenError::OtherTopic { .. }), "{refused}");
}

#[test]
fn a_lost_epoch_checkpoint_is_made_again() {
    for bytes in [None, Some(&b"0\n9\nnonsense"[..])] {
        let mut case = Case::new();
        case.options.clean = true;
        let path = format!("{DIR}/leader-epoch-checkpoint");
        let good = case.disk.contents(&path).expect("is there").clone();
        match bytes {
            Some(bytes) => case.disk.replace_file(&path, bytes),
            None => case.disk.remove_file(&path),
        }
        case.open();
        assert_eq!(case.disk.contents(&path), Some(&good));
    }
}

#[test]
fn the_epoch_at_the_log_start_outlives_batches_without_one() {
    let mut case = Case::new();
    let log = name(case.bases[2], Kind::Log);
    let mut bytes = case.disk.contents(&log).expect("is there").clone();
    for batch in 0..BATCHES {
        let at = case.position(2, batch);
        bytes[at + 12..at + 16].copy_from_slice(&(-1_i32).to_be_bytes());
    }
    case.disk.replace_file(&log, &bytes);
    let start = case.bases[2].plus(9);
    case.options.log_start = Some(start);
    case.options.recovery_point = case.end();
    let before = case.source.batches[2 * BATCHES - 1].meta.leader_epoch;
    for _ in 0..2 {
        let (log, _) = case.try_open().expect("opens");
        let entries: Vec<_> =
            log.epochs.entries().iter().map(|it| (it.epoch, it.start_offset)).collect();
        assert_eq!(entries, [(before, start)]);
    }
}

#[test]
fn a_reset_leaves_an_empty_log() {
    let mut case = Case::new();
    let start = case.end().plus(100);
    let (log, _) =
        recovery::reset(&mut case.disk, DIR, start, &case.options).expect("the disk is fine");
    assert_eq!((log.log_start, log.log_end), (start, start));
    let names: Vec<_> =
        case.disk.list(DIR).expect("is there").into_iter().map(|it| it.name).collect();
    let empty = SegmentFileName::live(start, Kind::Log).to_string();
    assert_eq!(names, [empty.as_str(), "leader-epoch-checkpoint", "partition.metadata"]);
}

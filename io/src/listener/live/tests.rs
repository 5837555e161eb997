//! What readers of a host's log are answered, against the catalog, which scans all of it.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;

use heliostat_core::log::config::{LogConfig, LogConfigValues};
use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::names::{LEADER_EPOCH_CHECKPOINT, SegmentFileKind, SegmentFileName};
use heliostat_core::log::shown::ShownLog;
use heliostat_core::records::{
    BatchBuilder, BatchWalker, Compression, EndTxnMarker, LegacyBuilder, LegacyFormat,
    LegacyMessage, NewRecord, WalkLimits,
};
use heliostat_core::types::{ProducerEpoch, ProducerId};
use proptest::prelude::*;
use uuid::Uuid;

use super::super::hosted::{Catalog, CatalogConfig, Partition, TopicSpec};
use super::*;

const NODE: BrokerId = BrokerId(1);
const ID: TopicId = TopicId(Uuid::from_u128(7));
/// Producers of transactions.
const PRODUCERS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Records { count: u8, bytes: usize, time: i64, gap: i64, packed: bool },
    Old { count: u8, time: i64, wrapped: bool },
    InTransaction { producer: usize, count: u8 },
    End { producer: usize, committed: bool },
    Roll,
    Elect { more: i32 },
}

#[derive(Clone, Debug)]
struct Plan {
    steps: Vec<Step>,
    segment_bytes: i64,
    index_interval_bytes: i64,
    /// Parts of 100 of the log that its start goes up.
    start: i64,
    /// Segments that are not sealed, and how many of their last index entries are not written.
    moving: usize,
    behind: usize,
    /// A compaction took everything of a segment, for each bit.
    emptied: u64,
}

fn steps(transactions: bool) -> impl Strategy<Value = Vec<Step>> {
    let records = (1..4_u8, 0..120_usize, 1..60_i64, 0..9_i64, any::<bool>()).prop_map(
        |(count, bytes, time, gap, packed)| Step::Records {
            count,
            bytes,
            time,
            gap: gap.saturating_sub(6),
            packed,
        },
    );
    let old = (1..4_u8, 1..60_i64, any::<bool>()).prop_map(|(count, time, wrapped)| Step::Old {
        count,
        time,
        wrapped,
    });
    let sent = (0..PRODUCERS, 1..4_u8)
        .prop_map(|(producer, count)| Step::InTransaction { producer, count });
    let ended = (0..PRODUCERS, any::<bool>())
        .prop_map(|(producer, committed)| Step::End { producer, committed });
    let weight = if transactions { 4 } else { 0 };
    let one = prop_oneof![
        6 => records,
        1 => old,
        weight => sent,
        weight => ended,
        3 => Just(Step::Roll),
        1 => (0..3_i32).prop_map(|more| Step::Elect { more }),
    ];
    prop::collection::vec(one, 1..110)
}

fn plans() -> impl Strategy<Value = Plan> {
    any::<bool>().prop_flat_map(|transactions| {
        let sizes = (100..2_000_i64, 0..400_i64, prop_oneof![Just(0), 0..100_i64]);
        let shape = (1..4_usize, 0..4_usize, any::<u64>());
        (steps(transactions), sizes, shape).prop_map(
            move |(steps, (segment_bytes, index_interval_bytes, start), shape)| Plan {
                steps,
                segment_bytes,
                index_interval_bytes,
                start,
                moving: shape.0,
                behind: shape.1,
                // Markers stay where they were; what compaction does to them is not at issue.
                emptied: if transactions { 0 } else { shape.2 },
            },
        )
    })
}

fn open(dir: &Path) -> Catalog {
    let log = LogConfig::default();
    let config = CatalogConfig { cluster_id: "c".to_owned(), node_id: NODE, log };
    Catalog::open(dir, config).unwrap()
}

/// Writes what the plan says.
fn write(partition: &Partition, steps: &[Step]) {
    let leadership = Leadership { leader: NODE, epoch: LeaderEpoch(0) };
    partition.elect(leadership).unwrap();
    let mut open = [false; PRODUCERS];
    for step in steps {
        let end = partition.facts(NODE).log_end;
        let epoch = partition.leadership().epoch;
        let bytes = match step {
            Step::Records { count, bytes, time, gap, packed } => {
                let codec = if *packed { Compression::Lz4 } else { Compression::None };
                let builder = BatchBuilder::new(end.plus((*gap).max(0))).compression(codec);
                records(builder.leader_epoch(epoch), *count, *bytes, *time)
            }
            Step::Old { count, time, wrapped } => {
                let mut old = LegacyBuilder::new(LegacyFormat::V1);
                let message = |index: u8| LegacyMessage {
                    offset: end.plus(i64::from(index)),
                    timestamp: TimestampMs(time + i64::from(index)),
                    key: None,
                    value: Some(b"old"),
                };
                let all: Vec<_> = (0..*count).map(message).collect();
                if *wrapped {
                    old.wrapper(Compression::Gzip, &all).unwrap();
                } else {
                    for message in &all {
                        old.message(message).unwrap();
                    }
                }
                old.into_bytes()
            }
            Step::InTransaction { producer, count } => {
                open[*producer] = true;
                let id = ProducerId(i64::try_from(*producer).unwrap());
                let builder = BatchBuilder::new(end).leader_epoch(epoch);
                let builder = builder.producer(id, ProducerEpoch(0), 0).transactional();
                records(builder, *count, 10, 30)
            }
            Step::End { producer, committed } if open[*producer] => {
                open[*producer] = false;
                let marker = EndTxnMarker {
                    offset: end,
                    leader_epoch: epoch,
                    producer_id: ProducerId(i64::try_from(*producer).unwrap()),
                    producer_epoch: ProducerEpoch(0),
                    committed: *committed,
                    coordinator_epoch: 0,
                    timestamp: TimestampMs(30),
                };
                marker.build().unwrap()
            }
            Step::End { .. } => continue,
            Step::Roll => {
                partition.roll().unwrap();
                continue;
            }
            Step::Elect { more } => {
                let epoch = LeaderEpoch(epoch.0 + more);
                partition.elect(Leadership { leader: NODE, epoch }).unwrap();
                continue;
            }
        };
        partition.append_verbatim(&bytes).unwrap();
    }
    if steps.iter().any(|step| matches!(step, Step::Old { .. })) {
        // They make a broker forget its epochs, the one that it leads in, too.
        let epoch = LeaderEpoch(partition.leadership().epoch.0 + 1);
        partition.elect(Leadership { leader: NODE, epoch }).unwrap();
    }
}

fn records(mut builder: BatchBuilder, count: u8, bytes: usize, time: i64) -> Vec<u8> {
    for index in 0..count {
        let value = vec![index; bytes];
        // Times go up and down within a batch, too.
        let timestamp = TimestampMs(time + i64::from(index % 2) * 7);
        let record = NewRecord { timestamp, key: None, value: Some(&value), headers: &[] };
        builder.push(&record).unwrap();
    }
    builder.build().unwrap()
}

fn bases(dir: &Path) -> Vec<Offset> {
    let names = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name());
    let segment = |name: std::ffi::OsString| SegmentFileName::parse(name.to_str()?);
    let mut bases: Vec<_> = names
        .filter_map(segment)
        .filter(|it| it.kind == SegmentFileKind::Log)
        .map(|it| it.base_offset)
        .collect();
    bases.sort();
    bases
}

fn path(dir: &Path, base: Offset, kind: SegmentFileKind) -> std::path::PathBuf {
    dir.join(SegmentFileName::live(base, kind).to_string())
}

/// The log of both: as the catalog has it, and as a host's readers do.
struct Both {
    dir: tempfile::TempDir,
    catalog: Arc<Partition>,
    live: Arc<dyn ReadablePartition>,
    segments: usize,
}

impl Both {
    fn new(plan: &Plan) -> Self {
        let root = tempfile::tempdir().unwrap();
        let catalog = open(root.path());
        let values = LogConfigValues {
            segment_bytes: plan.segment_bytes,
            index_interval_bytes: plan.index_interval_bytes,
            ..LogConfigValues::default()
        };
        let spec = TopicSpec {
            name: "t".to_owned(),
            partitions: 1,
            topic_id: ID,
            configs: BTreeMap::new(),
            log: LogConfig::new(values).unwrap(),
        };
        let mut partition = Arc::clone(&catalog.create_topic(spec).unwrap().partitions[0]);
        write(&partition, &plan.steps);
        let facts = partition.facts(NODE);
        let start = Offset(facts.log_end.0 * plan.start / 100);
        partition.delete_records(start).unwrap();
        let leadership = partition.leadership();
        catalog.close().unwrap();
        let dir = root.path().join("t-0");
        let all = bases(&dir);
        let middle = all.get(1..all.len().saturating_sub(1)).unwrap_or_default();
        let gone = middle.iter().zip(0..64).filter(|(_, bit)| plan.emptied >> bit & 1 == 1);
        let gone: Vec<_> = gone.map(|(base, _)| *base).collect();
        for base in &gone {
            for kind in [SegmentFileKind::Log, SegmentFileKind::Index, SegmentFileKind::TimeIndex] {
                std::fs::write(path(&dir, *base, kind), b"").unwrap();
            }
        }
        if !gone.is_empty() {
            drop(catalog);
            partition = open(root.path()).partition("t", 0).unwrap();
            partition.elect(leadership).unwrap();
        }
        let live = show(root.path(), &partition, plan);
        Self { dir: root, catalog: partition, live, segments: all.len() }
    }
}

/// Shows the log as its owner would.
fn show(root: &Path, partition: &Partition, plan: &Plan) -> Arc<dyn ReadablePartition> {
    let facts = partition.facts(NODE);
    let dir = root.join("t-0");
    let bases = bases(&dir);
    let extent = |base: &Offset| SegmentExtent {
        base: *base,
        len: std::fs::metadata(path(&dir, *base, SegmentFileKind::Log)).unwrap().len(),
    };
    let sealed = bases.len().saturating_sub(plan.moving);
    for base in bases.iter().skip(sealed) {
        for (kind, entry) in [(SegmentFileKind::Index, 8), (SegmentFileKind::TimeIndex, 12)] {
            let path = path(&dir, *base, kind);
            let bytes = std::fs::read(&path).unwrap_or_default();
            let left = bytes.len().saturating_sub(plan.behind * entry);
            std::fs::write(path, &bytes[..left]).unwrap();
        }
    }
    // An epoch of which nothing was written is known to the host's metadata alone.
    let epochs = std::fs::read(dir.join(LEADER_EPOCH_CHECKPOINT)).unwrap();
    let mut epochs = EpochCache::decode(&epochs).unwrap();
    epochs.truncate_from_end(facts.log_end);
    let logs = Arc::new(ServedLogs::new(root));
    logs.set(&Arc::from("t"), ID, 0, facts.leader_epoch);
    logs.log("t", 0).unwrap().show_at_rest(ShownLog {
        log_start: facts.log_start,
        log_end: facts.log_end,
        last_stable: facts.last_stable,
        segments: bases.iter().map(extent).collect(),
        sealed,
        epochs,
    });
    LiveTopics { logs, node: NODE }.partition("t", 0).unwrap()
}

/// Bytes of a run.
fn bytes(run: &RecordsRun) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(run.len).unwrap()];
    run.file.read_exact_at(&mut bytes, run.position).unwrap();
    bytes
}

/// Last offset of the whole batches of a run.
fn last_offset(bytes: &[u8]) -> Option<Offset> {
    let mut walker = BatchWalker::new(WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true });
    let (mut rest, mut last) = (bytes, None);
    while !rest.is_empty() {
        let (used, meta) = walker.feed(rest).unwrap();
        let Some(meta) = meta else { break };
        last = Some(meta.last_offset);
        rest = &rest[used..];
    }
    last
}

/// A run and its aborted transactions, as far as a reader needs them.
fn answer(look: &dyn ReadableLook, request: &ReadRequest) -> Option<(Vec<u8>, Vec<AbortedTxn>)> {
    let run = look.read(request).unwrap()?;
    let bytes = bytes(&run);
    let last = last_offset(&bytes)?;
    assert!(run.end_bound > last, "{run:?} reaches {last}");
    let aborted = look.aborted(&run, request.from).unwrap();
    let needed = |txn: &AbortedTxn| txn.first_offset <= last && txn.last_offset >= request.from;
    Some((bytes, aborted.into_iter().filter(needed).collect()))
}

fn check(plan: &Plan) -> usize {
    let both = Both::new(plan);
    let catalog: &dyn ReadablePartition = both.catalog.as_ref();
    let live = both.live.as_ref();
    let facts = live.facts(NODE).unwrap();
    assert_eq!(facts, catalog.facts(NODE).unwrap());
    let (start, end) = (facts.log_start.0, facts.log_end.0);
    for from in start..=end {
        let from = Offset(from);
        // There is no record at the end, and an epoch of which there is none is not in the log.
        if from < facts.log_end {
            assert_eq!(live.epoch_at(from), catalog.epoch_at(from), "{from}");
        }
        for to in [facts.log_end, facts.last_stable, from.plus(3).min(facts.log_end)] {
            for (bytes_max, first_batch_whole) in
                [(1, true), (1, false), (150, false), (150, true), (1 << 20, false)]
            {
                let log_end = facts.log_end;
                let request = ReadRequest { from, to, log_end, bytes_max, first_batch_whole };
                let got = answer(live.look(NODE, from).unwrap().as_ref(), &request);
                let want = answer(catalog.look(NODE, from).unwrap().as_ref(), &request);
                assert_eq!(got, want, "{request:?}");
            }
        }
    }
    for time in 0..80 {
        let time = TimestampMs(time);
        let (got, want) = (live.offset_for_time(time), catalog.offset_for_time(time));
        assert_eq!(got.unwrap(), want.unwrap(), "{time:?}");
    }
    assert_eq!(live.max_timestamp().unwrap(), catalog.max_timestamp().unwrap());
    for epoch in -1..facts.leader_epoch.0 + 3 {
        let epoch = LeaderEpoch(epoch);
        assert_eq!(live.epoch_end(epoch).unwrap(), catalog.epoch_end(epoch).unwrap(), "{epoch}");
    }
    both.segments
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn readers_of_a_host_get_what_a_scan_finds(plan in plans()) {
        check(&plan);
    }
}

/// More segments than one look takes along lie between an offset and what follows it, and
/// between a transaction and its marker.
#[test]
fn a_look_goes_on_where_it_ends() {
    let records = Step::Records { count: 1, bytes: 9, time: 9, gap: 0, packed: false };
    let plain = [records, Step::Roll].repeat(60);
    let plan = |steps, emptied| Plan {
        steps,
        segment_bytes: 2_000,
        index_interval_bytes: 0,
        start: 0,
        moving: 2,
        behind: 1,
        emptied,
    };
    assert!(check(&plan(plain.clone(), !0 >> 8)) > 50);
    let sent = Step::InTransaction { producer: 0, count: 2 };
    let aborted = Step::End { producer: 0, committed: false };
    let across = [vec![sent, Step::Roll], plain, vec![aborted, records]].concat();
    assert!(check(&plan(across, 0)) > 50);
}

/// A batch that does not fit into what is left of an answer is not passed over.
#[test]
fn what_does_not_fit_is_not_passed_over() {
    let batch = |bytes| Step::Records { count: 1, bytes, time: 9, gap: 0, packed: false };
    let steps = vec![batch(500), Step::Roll, batch(1)];
    let plan = Plan {
        steps,
        segment_bytes: 2_000,
        index_interval_bytes: 0,
        start: 0,
        moving: 1,
        behind: 0,
        emptied: 0,
    };
    check(&plan);
}

/// A segment that has been left, but is not sealed, may still get the entry of an abort: that
/// there was none when somebody looked holds only then.
#[test]
fn an_abort_that_is_told_late_is_not_missed() {
    let steps = vec![
        Step::InTransaction { producer: 0, count: 1 },
        Step::End { producer: 0, committed: false },
        Step::Roll,
        Step::Records { count: 1, bytes: 9, time: 9, gap: 0, packed: false },
    ];
    let plan = Plan {
        steps,
        segment_bytes: 2_000,
        index_interval_bytes: 0,
        start: 0,
        moving: 2,
        behind: 0,
        emptied: 0,
    };
    let both = Both::new(&plan);
    let dir = both.dir.path().join("t-0");
    let (entries, hidden) = (path(&dir, Offset(0), SegmentFileKind::TxnIndex), dir.join("later"));
    std::fs::rename(&entries, &hidden).unwrap();
    let aborted = |partition: &dyn ReadablePartition| {
        let end = partition.facts(NODE).unwrap().log_end;
        let (from, to, bytes_max) = (Offset(0), end, 1 << 20);
        let request = ReadRequest { from, to, log_end: end, bytes_max, first_batch_whole: false };
        answer(partition.look(NODE, from).unwrap().as_ref(), &request).unwrap().1.len()
    };
    assert_eq!(aborted(both.live.as_ref()), 0);
    std::fs::rename(&hidden, &entries).unwrap();
    assert_eq!(aborted(both.live.as_ref()), 1);
    assert_eq!(aborted(both.catalog.as_ref()), 1);
}

/// What was found before the log was cut is not given out any more.
#[test]
fn nothing_is_read_across_a_cut() {
    let records = Step::Records { count: 1, bytes: 9, time: 9, gap: 0, packed: false };
    let steps = [records, Step::Roll].repeat(40);
    let plan = Plan {
        steps,
        segment_bytes: 2_000,
        index_interval_bytes: 0,
        start: 0,
        moving: 1,
        behind: 0,
        emptied: 0,
    };
    let both = Both::new(&plan);
    let root = both.dir.path();
    let logs = Arc::new(ServedLogs::new(root));
    logs.set(&Arc::from("t"), ID, 0, LeaderEpoch(0));
    let log = logs.log("t", 0).unwrap();
    let facts = both.catalog.facts(NODE);
    let dir = root.join("t-0");
    let all = bases(&dir);
    let len = std::fs::metadata(path(&dir, Offset(0), SegmentFileKind::Log)).unwrap().len();
    let again = || ShownLog {
        log_end: facts.log_end,
        last_stable: facts.last_stable,
        segments: all[..40].iter().map(|base| SegmentExtent { base: *base, len }).collect(),
        ..ShownLog::default()
    };
    log.show_at_rest(again());
    let partition = LiveTopics { logs: Arc::clone(&logs), node: NODE }.partition("t", 0).unwrap();
    let look = partition.look(NODE, Offset(0)).unwrap();
    let (from, to, log_end) = (Offset(0), facts.log_end, facts.log_end);
    let request = ReadRequest { from, to, log_end, bytes_max: 99, first_batch_whole: true };
    let run = look.read(&request).unwrap().unwrap();
    assert!(run.is_still_there());
    log.hide();
    assert!(!run.is_still_there());
    assert!(look.aborted(&run, Offset(0)).is_err(), "others may be in what was cut");
    assert!(look.read(&request).is_err());
    assert!(partition.look(NODE, Offset(0)).is_err());
    assert!(partition.offset_for_time(TimestampMs(9)).is_err(), "there may be one");
    assert!(partition.epoch_end(LeaderEpoch(0)).is_err());
    log.show_at_rest(again());
    assert!(!run.is_still_there(), "the same offsets, but perhaps of other files");
    assert!(partition.epoch_end(LeaderEpoch(0)).is_ok());
}

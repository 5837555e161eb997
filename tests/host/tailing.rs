//! Clients read a log while it is mirrored: every byte that they get is held against the source.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use heliostat_core::records::{BatchBuilder, BatchMeta, EndTxnMarker, NewRecord};
use heliostat_core::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};
use heliostat_io::listener::hosted::Partition;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_response::PartitionData;

use super::reader::{Ask, Named, Reader, ask, fetch, only, size, walk};
use super::world::{Running, Source, mirror_all, properties, run};

/// Only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(120);
const BATCHES: usize = 1_500;
/// Offset out of range; not leader or follower.
const OUT_OF_RANGE: i16 = 1;

/// splitmix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }
}

/// What the source was given, by base offset.
#[derive(Default)]
struct Truth {
    batches: Mutex<BTreeMap<i64, Vec<u8>>>,
    is_whole: AtomicBool,
}

impl Truth {
    fn end(&self) -> i64 {
        let batches = self.batches.lock().unwrap();
        let last = batches.values().next_back();
        last.map_or(0, |batch| walk(batch)[0].next_offset().0)
    }
}

/// Producers with even IDs abort, others commit.
fn write(address: SocketAddr, partition: &Partition, truth: &Truth, seed: u64) {
    let mut copy = Reader::connect(address);
    let mut chance = Chance(seed);
    let mut open: BTreeMap<i64, u32> = BTreeMap::new();
    for number in 0..BATCHES {
        let builder = BatchBuilder::new(Offset::ZERO);
        let largest = [40, 400, 4_000, 30_000, 300_000][chance.below(61) / 15];
        let bytes = 1 + chance.below(largest);
        let producer = i64::try_from(chance.below(4)).unwrap();
        let mut batch = match chance.below(5) {
            0 => {
                *open.entry(producer).or_default() += 1;
                let id = ProducerId(producer);
                records(builder.producer(id, ProducerEpoch(0), 0).transactional(), bytes)
            }
            1 if open.remove(&producer).is_some() => marker(producer),
            _ => records(builder, bytes),
        };
        append(partition, truth, &mut batch);
        if number % 200 == 199 {
            // Nothing that the copy has yet to fetch: that would be a gap, and hide it.
            let (end, _) = copy.list_offset("t", -1).unwrap();
            partition.delete_records(Offset(end / 3)).unwrap();
        }
    }
    for producer in open.into_keys() {
        append(partition, truth, &mut marker(producer));
    }
    truth.is_whole.store(true, Ordering::SeqCst);
}

fn append(partition: &Partition, truth: &Truth, batch: &mut Vec<u8>) {
    // Nobody may see it before it is here.
    let mut batches = truth.batches.lock().unwrap();
    let appended = partition.append_as_leader(batch).unwrap();
    batches.insert(appended.base_offset.0, std::mem::take(batch));
}

fn records(mut builder: BatchBuilder, bytes: usize) -> Vec<u8> {
    let value = vec![0x5a; bytes];
    let timestamp = TimestampMs(1_700_000_000_000);
    let record = NewRecord { timestamp, key: None, value: Some(&value), headers: &[] };
    builder.push(&record).unwrap();
    builder.build().unwrap()
}

fn marker(producer: i64) -> Vec<u8> {
    let marker = EndTxnMarker {
        offset: Offset::ZERO,
        leader_epoch: LeaderEpoch(0),
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(0),
        committed: producer % 2 == 1,
        coordinator_epoch: 0,
        timestamp: TimestampMs(1),
    };
    marker.build().unwrap()
}

/// Holds an answer against the source, and returns the offset behind it.
fn check(truth: &Truth, got: &PartitionData, from: i64, committed: bool) -> i64 {
    let bytes = got.records.clone().unwrap_or_default();
    let metas = walk(&bytes);
    let batches = truth.batches.lock().unwrap();
    let (mut at, mut next) = (0, from);
    for meta in &metas {
        let base = meta.base_offset.0;
        let is_next = base == next || (next == from && base < from && meta.last_offset.0 >= from);
        assert!(is_next, "wanted {next}, got {base}");
        assert!(batches[&base] == bytes[at..at + size(meta)], "batch {base}");
        at += size(meta);
        next = meta.next_offset().0;
    }
    // The last one, which is cut off, is right as far as it goes.
    if at < bytes.len() {
        assert!(batches[&next].starts_with(&bytes[at..]), "the tail at {next}");
    }
    if committed {
        check_aborted(got, &metas);
        assert!(next <= got.last_stable_offset.max(from), "{next} is not stable");
    }
    next
}

/// Applies what a consumer does with aborted transactions.
fn check_aborted(got: &PartitionData, metas: &[BatchMeta]) {
    let mut listed: Vec<_> = got.aborted_transactions.clone().unwrap_or_default();
    listed.sort_by_key(|it| it.first_offset);
    let mut listed = listed.into_iter().peekable();
    let mut aborted = std::collections::BTreeSet::new();
    for meta in metas {
        while let Some(txn) = listed.next_if(|it| it.first_offset <= meta.last_offset.0) {
            aborted.insert(txn.producer_id.0);
        }
        let producer = meta.producer_id.0;
        if meta.is_control() {
            aborted.remove(&producer);
        } else if meta.is_transactional() {
            let is_aborted = aborted.contains(&producer);
            assert_eq!(is_aborted, producer % 2 == 0, "batch {}", meta.base_offset);
        }
    }
}

/// Reads from the front to the end.
fn tail(address: SocketAddr, truth: &Truth, version: i16, committed: bool) {
    let mut reader = Reader::connect(address);
    let (mut next, mut session) = (0, (0, if version >= 7 { 0 } else { -1 }));
    let since = Instant::now();
    while !(truth.is_whole.load(Ordering::SeqCst) && next == truth.end()) {
        assert!(since.elapsed() < DEADLINE, "v{version} stays at {next}");
        let asked = Ask { committed, session, max_wait_ms: 300, ..ask(next) };
        reader.send(version, &fetch(version, Named::Name("t"), 0, asked));
        let response = reader.try_receive::<FetchRequest>(version).unwrap();
        assert_eq!(response.error_code, 0);
        session = (response.session_id, session.1 + i32::from(version >= 7));
        let Some(got) = only(response) else { continue };
        match got.error_code {
            0 => next = check(truth, &got, next, committed),
            OUT_OF_RANGE => {
                let (start, _) = reader.list_offset("t", -2).unwrap();
                assert!(start > next, "{next} is there: the log begins at {start}");
                next = start;
            }
            error => panic!("error {error} at {next}"),
        }
    }
}

/// Reads here and there until all has been written.
fn roam(address: SocketAddr, truth: &Truth, seed: u64, committed: bool) {
    let mut chance = Chance(seed);
    let mut reader = Reader::connect(address);
    while !truth.is_whole.load(Ordering::SeqCst) {
        let (end, _) = reader.list_offset("t", -1).unwrap();
        let from = i64::try_from(chance.below(usize::try_from(end).unwrap() + 1)).unwrap();
        let max_bytes = i32::try_from(1 + chance.below(400_000)).unwrap();
        let asked = Ask { max_bytes, committed, ..ask(from) };
        let got = reader.fetch(12, Named::Name("t"), 0, asked);
        match got.error_code {
            0 => {
                check(truth, &got, from, committed);
            }
            OUT_OF_RANGE => assert!(reader.list_offset("t", -2).unwrap().0 > from),
            error => panic!("error {error} at {from}"),
        }
    }
}

fn every_byte_is_the_sources(append_direct: &str) {
    let source = Source::start();
    let topic = source.topic("t", 1);
    let dir = tempfile::tempdir().unwrap();
    let more = [("append.direct", append_direct), ("segment.bytes", "700000")];
    let host = Running::start_with(properties(dir.path(), &more));
    let (truth, address) = (&Truth::default(), host.handle.address());
    append(&topic.partitions[0], truth, &mut records(BatchBuilder::new(Offset::ZERO), 5));
    run(mirror_all(&mut host.client(), &source, "t"));
    std::thread::scope(|scope| {
        scope.spawn(|| write(address, &topic.partitions[0], truth, 5));
        scope.spawn(|| tail(address, truth, 4, false));
        scope.spawn(|| tail(address, truth, 12, true));
        scope.spawn(|| roam(address, truth, 11, false));
        scope.spawn(|| roam(address, truth, 12, true));
    });
    assert!(host.stop().clean);
}

#[test]
fn every_byte_is_the_sources_with_direct_appends() {
    every_byte_is_the_sources("true");
}

#[test]
fn every_byte_is_the_sources_with_buffered_appends() {
    every_byte_is_the_sources("false");
}

//! Files that Kafka wrote, made again from the same batches.

use super::config::{LogConfig, LogConfigValues};
use super::epoch_cache::EpochCache;
use super::index::SegmentIndexes;
use super::producer_snapshot;
use super::producer_state::ProducerState;
use super::test_batch::batch;
use crate::records::{BatchMeta, ControlType};
use crate::types::Offset;

const BASE: Offset = Offset(1_000);

/// One log: its batches, and what Kafka wrote for them, by the word of the line.
#[derive(Default)]
struct Log {
    batches: Vec<BatchMeta>,
    epochs: Vec<String>,
    index: Vec<u8>,
    time_index: Vec<u8>,
    txn_index: Vec<u8>,
    snapshot_name: String,
    snapshot: Vec<u8>,
}

fn hex(digits: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.as_bytes().chunks(2).map(byte).collect()
}

fn number<T: TryFrom<i64, Error: std::fmt::Debug>>(field: i64) -> T {
    T::try_from(field).unwrap()
}

fn parse_batch(line: &str) -> BatchMeta {
    let fields: Vec<i64> = line.split(',').map(|field| field.parse().unwrap()).collect();
    let [base, last, size, epoch, time, id, producer_epoch, sequence, attributes, end, coordinator] =
        fields[..]
    else {
        panic!("eleven fields in {line}")
    };
    let mut meta = batch(base, last)
        .size(number(size))
        .epoch(number(epoch))
        .time(time)
        .producer(id, number(producer_epoch), number(sequence))
        .meta();
    meta.attributes = number(attributes);
    meta.coordinator_epoch = number(coordinator);
    meta.control = match end {
        0 => Some(ControlType::Abort),
        1 => Some(ControlType::Commit),
        _ => None,
    };
    meta
}

fn logs() -> Vec<Log> {
    let mut logs: Vec<Log> = Vec::new();
    for line in include_str!("kafka_files/logs.txt").lines() {
        let (word, rest) = line.split_once(' ').unwrap();
        if word == "log" {
            logs.push(Log::default());
        }
        let Some(log) = logs.last_mut() else { continue };
        match word {
            "batch" => log.batches.push(parse_batch(rest)),
            "epoch" => log.epochs.push(format!("{rest}\n")),
            "index" => log.index = hex(rest),
            "timeindex" => log.time_index = hex(rest),
            "txnindex" => log.txn_index = hex(rest),
            "snapshot" => {
                let (name, bytes) = rest.split_once(' ').unwrap();
                (log.snapshot_name, log.snapshot) = (name.to_owned(), hex(bytes));
            }
            _ => assert_eq!(word, "log"),
        }
    }
    logs
}

#[test]
fn equal_batches_make_equal_files() {
    let config = LogConfig::new(LogConfigValues {
        index_interval_bytes: 300,
        segment_index_bytes: 4_096,
        ..LogConfigValues::default()
    })
    .unwrap();
    let logs = logs();
    assert_eq!(logs.len(), 2);
    for log in logs {
        let mut indexes = SegmentIndexes::new(BASE, &config);
        let mut producers = ProducerState::new(BASE);
        let mut epochs = EpochCache::default();
        let (mut index, mut time_index, mut txn_index) = (Vec::new(), Vec::new(), Vec::new());
        let mut position = 0;
        for batch in &log.batches {
            if let Some((entry, time)) = indexes.on_batch(batch, position) {
                index.extend(entry.encode(BASE));
                time_index.extend(time.into_iter().flat_map(|entry| entry.encode(BASE)));
            }
            position += batch.size_bytes;
            let aborted = producers.on_batch(batch).and_then(|txn| txn.aborted());
            txn_index.extend(aborted.into_iter().flat_map(|entry| entry.encode()));
            epochs.on_batch(batch);
        }
        let last = indexes.final_time_entry();
        time_index.extend(last.into_iter().flat_map(|entry| entry.encode(BASE)));
        assert_eq!(index, log.index);
        assert_eq!(time_index, log.time_index);
        assert_eq!(txn_index, log.txn_index);
        assert_eq!(epochs.encode(), format!("0\n{}\n{}", log.epochs.len(), log.epochs.concat()));
        assert_eq!(log.snapshot_name, format!("{:020}.snapshot", producers.end_offset().0));
        // Kafka's entries are in no order, so bytes are compared in Kafka's.
        let mut entries = producer_snapshot::decode(&log.snapshot).unwrap();
        assert_eq!(producer_snapshot::encode(&entries), log.snapshot);
        entries.sort_by_key(|entry| entry.producer_id);
        assert_eq!(entries, producers.snapshot());
    }
}

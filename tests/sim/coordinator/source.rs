//! A log as those see it who fetch from it, and a plain cluster that has some.

use std::collections::BTreeMap;
use std::rc::Rc;

use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::protocol::fetch_stream::DivergingEpoch;
use heliostat_core::records::{BatchBuilder, EndTxnMarker, NewRecord};
use heliostat_core::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicId};

/// One batch of a log.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) base: Offset,
    /// Exclusive.
    pub(crate) end: Offset,
    pub(crate) epoch: LeaderEpoch,
    pub(crate) bytes: Rc<[u8]>,
}

/// What an answer to a fetch says.
#[derive(Clone, Debug)]
pub(crate) enum Fetched {
    Batches(Vec<Batch>),
    Diverging(DivergingEpoch),
    OutOfRange,
}

/// A partition of a source.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) id: TopicId,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    pub(crate) epoch: LeaderEpoch,
    pub(crate) epochs: EpochCache,
    pub(crate) batches: Vec<Batch>,
}

/// What comes of asking for a partition.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// Nobody answers, or not now.
    Away,
    /// There is no such topic, or another one of its name.
    Gone,
    Is(Box<View>),
}

impl View {
    pub(crate) fn end_of(&self, epoch: LeaderEpoch) -> DivergingEpoch {
        let (epoch, end_offset) = self.epochs.end_offset_for(epoch, self.end);
        DivergingEpoch { epoch, end_offset }
    }

    /// As a broker answers a consumer that says what it has fetched last.
    pub(crate) fn fetch(&self, from: Offset, last: LeaderEpoch) -> Fetched {
        if last.known().is_some() {
            let end = self.end_of(last);
            if end.epoch.known().is_none() {
                return Fetched::OutOfRange;
            }
            if end.epoch < last || end.end_offset < from {
                return Fetched::Diverging(end);
            }
        }
        if from < self.start || from > self.end {
            return Fetched::OutOfRange;
        }
        let all = self.batches.iter().filter(|batch| batch.end > from);
        Fetched::Batches(all.take(3).cloned().collect())
    }

    /// Adds a batch at the end, of the leader's epoch.
    pub(crate) fn push(&mut self, bytes: Vec<u8>, records: i64) -> &Batch {
        let (base, end) = (self.end, self.end.plus(records));
        self.epochs.assign(self.epoch, base);
        self.batches.push(Batch { base, end, epoch: self.epoch, bytes: bytes.into() });
        self.end = end;
        &self.batches[self.batches.len() - 1]
    }

    /// A new leader, which has lost all from `to` on.
    pub(crate) fn elect(&mut self, by: i32, to: Offset) {
        self.batches.retain(|batch| batch.end <= to);
        self.end = self.batches.last().map_or(self.start, |batch| batch.end);
        self.epochs.truncate_from_end(self.end);
        self.epoch = LeaderEpoch(self.epoch.0 + by);
        self.epochs.assign(self.epoch, self.end);
    }
}

/// Records that no other batch has.
pub(crate) fn records(
    base: Offset,
    epoch: LeaderEpoch,
    mark: u64,
    count: i64,
    producer: Option<i64>,
) -> Vec<u8> {
    let mut batch = BatchBuilder::new(base).leader_epoch(epoch);
    if let Some(id) = producer {
        batch = batch.producer(ProducerId(id), ProducerEpoch(0), -1).transactional();
    }
    for index in 0..count {
        let value = format!("{mark}-{index}");
        let value = Some(value.as_bytes());
        let record = NewRecord { timestamp: TimestampMs(1_000), key: None, value, headers: &[] };
        batch.push(&record).expect("a small record");
    }
    batch.build().expect("a small batch")
}

pub(crate) fn marker(base: Offset, epoch: LeaderEpoch, id: i64, committed: bool) -> Vec<u8> {
    let marker = EndTxnMarker {
        offset: base,
        leader_epoch: epoch,
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(0),
        coordinator_epoch: 1,
        committed,
        timestamp: TimestampMs(1_000),
    };
    marker.build().expect("a marker")
}

/// A Kafka without mirrors.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) cluster: &'static str,
    /// Another cluster answers at its addresses.
    pub(crate) is_replaced: bool,
    pub(crate) is_away: bool,
    pub(crate) topics: BTreeMap<String, Vec<View>>,
}

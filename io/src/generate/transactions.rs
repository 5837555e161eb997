//! Transactions of several producers in one partition, interleaved.

use heliostat_core::records::{BatchBuilder, BuildError, EndTxnMarker, NewRecord, reseal};
use heliostat_core::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::batches::{sequence_after, stamp_producer, value};
use super::rng::Rng;
use super::{BEGIN_MS, GenerateError};
use crate::listener::hosted::Partition;

const PRODUCERS: usize = 3;
const PRODUCER_ID: i64 = 5_000;
/// Bytes of records in a batch, about.
const BODY_BYTES: usize = 30_000;
const MS_PER_STEP: i64 = 2;

/// The producers of one partition.
#[derive(Debug)]
pub(super) struct Producers {
    rng: Rng,
    batch: Vec<u8>,
    records: i32,
    time_ms: i64,
    all: [Producer; PRODUCERS],
}

#[derive(Clone, Copy, Debug)]
struct Producer {
    id: i64,
    sequence: i32,
    open: bool,
}

impl Producers {
    pub(super) fn new(seed: u64, partition: i32) -> Result<Self, BuildError> {
        let mut rng = Rng::new(seed);
        let mut builder = BatchBuilder::new(Offset::ZERO)
            .producer(ProducerId(PRODUCER_ID), ProducerEpoch(0), 0)
            .transactional();
        while builder.records_bytes().len() < BODY_BYTES {
            let value = value(&mut rng, true);
            builder.push(&NewRecord {
                timestamp: TimestampMs(BEGIN_MS),
                key: Some(&rng.next().to_be_bytes()),
                value: Some(&value),
                headers: &[],
            })?;
        }
        let first_id = PRODUCER_ID + 10 * i64::from(partition);
        let mut next_id = first_id;
        let all = [(); PRODUCERS].map(|()| {
            next_id += 1;
            Producer { id: next_id, sequence: 0, open: false }
        });
        let records = builder.records_count();
        Ok(Self { rng, batch: builder.build()?, records, time_ms: BEGIN_MS, all })
    }

    /// One producer writes a batch, or ends what it has open: every third by an abort.
    pub(super) fn step(&mut self, partition: &Partition) -> Result<usize, GenerateError> {
        let which = self.rng.length(3);
        let ends = self.rng.below(4) == 0;
        let aborts = self.rng.below(3) == 0;
        let Some(producer) = self.all.get_mut(which) else { return Ok(0) };
        if producer.open && ends {
            producer.open = false;
            let id = producer.id;
            return self.end(partition, id, !aborts);
        }
        producer.open = true;
        let mut batch = self.batch.clone();
        stamp_producer(&mut batch, producer.id, 0, producer.sequence);
        producer.sequence = sequence_after(producer.sequence, self.records);
        reseal(&mut batch);
        partition.append_as_leader(&mut batch)?;
        Ok(batch.len())
    }

    /// Commits what is open, so that a reader of committed records sees the end.
    pub(super) fn end_all(&mut self, partition: &Partition) -> Result<(), GenerateError> {
        let open = self.all.iter_mut().filter(|producer| producer.open);
        let ids: Vec<_> = open
            .map(|producer| {
                producer.open = false;
                producer.id
            })
            .collect();
        for id in ids {
            self.end(partition, id, true)?;
        }
        Ok(())
    }

    fn end(
        &mut self,
        partition: &Partition,
        producer_id: i64,
        committed: bool,
    ) -> Result<usize, GenerateError> {
        self.time_ms += MS_PER_STEP;
        let mut marker = EndTxnMarker {
            offset: Offset::ZERO,
            leader_epoch: LeaderEpoch::NONE,
            producer_id: ProducerId(producer_id),
            producer_epoch: ProducerEpoch(0),
            coordinator_epoch: 0,
            committed,
            timestamp: TimestampMs(self.time_ms),
        }
        .build()?;
        partition.append_as_leader(&mut marker)?;
        Ok(marker.len())
    }
}

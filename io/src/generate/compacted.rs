//! A partition as the cleaner leaves it.

use heliostat_core::records::{BatchBuilder, NewRecord};
use heliostat_core::types::{BrokerId, LeaderEpoch, ProducerEpoch, ProducerId, TimestampMs};

use super::batches::value;
use super::rng::Rng;
use super::{BEGIN_MS, GenerateError};
use crate::listener::hosted::Partition;

const PRODUCER_ID: i64 = 9_000;
/// Every so many batches one is of another kind.
const KINDS: u64 = 8;
const DELETE_RETENTION_MS: i64 = 86_400_000;

/// Writes batches with gaps, empty batches and tombstones with a delete horizon.
#[derive(Debug)]
pub(super) struct Cleaned {
    rng: Rng,
    batches: u64,
}

impl Cleaned {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), batches: 0 }
    }

    pub(super) fn step(&mut self, partition: &Partition) -> Result<usize, GenerateError> {
        let log_end = partition.facts(BrokerId::NONE).log_end;
        let LeaderEpoch(epoch) = partition.leadership().epoch;
        // Whole batches are gone between the ones that are left.
        let gap = i64::try_from(self.rng.below(40)).unwrap_or(0);
        let builder = BatchBuilder::new(log_end.plus(gap)).leader_epoch(LeaderEpoch(epoch));
        self.batches += 1;
        let batch = match self.batches % KINDS {
            2 => empty(builder, self.batches)?,
            5 => self.tombstones(builder)?,
            _ => self.survivors(builder)?,
        };
        partition.append_verbatim(&batch)?;
        Ok(batch.len())
    }

    /// Some of fifty records are left; the last ones may be gone too.
    fn survivors(&mut self, builder: BatchBuilder) -> Result<Vec<u8>, GenerateError> {
        let mut builder = builder.last_offset_delta(49);
        for delta in 0..50 {
            if self.rng.below(3) == 0 {
                let value = value(&mut self.rng, delta % 2 == 0);
                builder.push_at(delta, &record(delta, Some(&value)))?;
            }
        }
        Ok(builder.build()?)
    }

    /// Deletions that wait for their own end, which the base timestamp says (KIP-534).
    fn tombstones(&mut self, builder: BatchBuilder) -> Result<Vec<u8>, GenerateError> {
        let mut builder = builder
            .delete_horizon(TimestampMs(BEGIN_MS + DELETE_RETENTION_MS))
            .last_offset_delta(19);
        for delta in 0..20 {
            if self.rng.below(2) == 0 {
                builder.push_at(delta, &record(delta, None))?;
            }
        }
        Ok(builder.build()?)
    }
}

/// No record is left, but the producer's last sequence is still needed.
fn empty(builder: BatchBuilder, number: u64) -> Result<Vec<u8>, GenerateError> {
    let sequence = i32::try_from(number.saturating_mul(10)).unwrap_or(0);
    let producer = ProducerId(PRODUCER_ID);
    let builder = builder.producer(producer, ProducerEpoch(0), sequence).last_offset_delta(9);
    Ok(builder.build()?)
}

fn record(delta: i32, value: Option<&[u8]>) -> NewRecord<'_> {
    const KEYS: [&[u8]; 4] = [b"alpha", b"beta", b"gamma", b"delta"];
    let key = usize::try_from(delta % 4).ok().and_then(|index| KEYS.get(index).copied());
    NewRecord { timestamp: TimestampMs(BEGIN_MS + i64::from(delta)), key, value, headers: &[] }
}

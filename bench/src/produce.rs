//! A load on a real Kafka that does not wait for it: batches are due at fixed times, and one
//! that comes late does not move those behind it.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use heliostat_core::records::{BatchBuilder, NewRecord};
use heliostat_core::types::{Offset, TimestampMs};
use heliostat_tests::kafka::Wire;

use crate::clock::wait_until;
use crate::error::BenchError;

/// Different batches, in turn.
const BATCHES: usize = 16;
/// What one record's value takes; it does not compress.
const VALUE_BYTES: usize = 1_024;

/// The load.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Of one size.
    batches: Vec<Bytes>,
    partitions: u32,
    every: Duration,
    count: u32,
}

/// A batch that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) partition: usize,
    /// Of its last record.
    pub(crate) offset: i64,
    /// When it was to be sent: latencies begin here.
    pub(crate) due: Instant,
    /// When the broker had acknowledged it.
    pub(crate) acked: Instant,
}

impl Load {
    /// `rate` bytes a second for `time` to all partitions in turn.
    pub(crate) fn new(
        rate: u32,
        time: Duration,
        partitions: u16,
        batch_bytes: usize,
    ) -> Result<Self, BenchError> {
        let made = || -> io::Result<Vec<Bytes>> {
            let mut noise = File::open("/dev/urandom")?;
            (0..BATCHES).map(|_| batch(&mut noise, batch_bytes)).collect()
        };
        let batches = made().map_err(BenchError::system("make batches"))?;
        let size = u32::try_from(batches.first().map_or(1, Bytes::len)).unwrap_or(u32::MAX);
        let every = Duration::from_secs_f64(f64::from(size) / f64::from(rate.max(1)));
        let count = time.as_nanos().div_ceil(every.as_nanos().max(1));
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Self { batches, partitions: partitions.max(1).into(), every, count })
    }

    /// Of all batches, and of one for each partition before them.
    pub(crate) fn bytes(&self) -> u64 {
        let size = self.batches.first().map_or(0, Bytes::len);
        u64::from(self.count + self.partitions) * u64::try_from(size).unwrap_or(0)
    }

    /// One batch for each partition, so that whoever copies is at work before the load begins.
    pub(crate) fn prime(&self, broker: &str, topic: &str) -> Result<(), BenchError> {
        let mut wire = Wire::connect(broker)?;
        for partition in 0..self.partitions {
            let partition = i32::try_from(partition).unwrap_or(i32::MAX);
            wire.produce(topic, partition, self.batch(partition.unsigned_abs()))?;
        }
        Ok(())
    }

    /// Sends those of the partitions whose number leaves `own` when divided by `senders`, each at
    /// its time.
    pub(crate) fn send(
        &self,
        (broker, topic): (&str, &str),
        begin: Instant,
        (own, senders): (u32, u32),
    ) -> Result<Vec<Sent>, BenchError> {
        let mut wire = Wire::connect(broker)?;
        let mut sent = Vec::new();
        for number in 0..self.count {
            let partition = number % self.partitions;
            if partition % senders.max(1) != own {
                continue;
            }
            let due = begin + self.every * number;
            wait_until(due);
            let batch = self.batch(number);
            let records = records(&batch);
            let index = i32::try_from(partition).unwrap_or(i32::MAX);
            let first = wire.produce(topic, index, batch)?;
            sent.push(Sent {
                partition: usize::try_from(partition).unwrap_or(0),
                offset: first + records - 1,
                due,
                acked: Instant::now(),
            });
        }
        Ok(sent)
    }

    fn batch(&self, number: u32) -> Bytes {
        let kind = usize::try_from(number).unwrap_or(0) % self.batches.len().max(1);
        self.batches.get(kind).cloned().unwrap_or_default()
    }
}

/// Number of records, from the header.
fn records(batch: &Bytes) -> i64 {
    let count = batch.get(57..61).and_then(|bytes| bytes.try_into().ok());
    i32::from_be_bytes(count.unwrap_or_default()).into()
}

fn batch(noise: &mut File, bytes: usize) -> io::Result<Bytes> {
    let mut builder = BatchBuilder::new(Offset::ZERO);
    let mut value = [0; VALUE_BYTES];
    // Retention must not take it.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let timestamp = TimestampMs(i64::try_from(now).unwrap_or(0));
    while builder.records_count() == 0 || builder.records_bytes().len() < bytes {
        noise.read_exact(&mut value)?;
        builder
            .push(&NewRecord { timestamp, key: None, value: Some(&value), headers: &[] })
            .map_err(io::Error::other)?;
    }
    builder.build().map(Bytes::from).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_as_large_as_its_rate_and_time() {
        let load = Load::new(1_000_000, Duration::from_secs(10), 4, 16 << 10).unwrap();
        let size = u64::try_from(load.batches[0].len()).unwrap();
        let primed = 4 * size;
        let bytes = load.bytes() - primed;
        assert!((10_000_000..10_000_000 + size).contains(&bytes), "{bytes}");
        assert!(load.batches.iter().all(|batch| batch.len() == load.batches[0].len()));
        assert!(records(&load.batches[0]) >= 15);
    }
}

//! What the partitions hold, as a function of time.

use std::time::Duration;

use heliostat_core::records::{BatchBuilder, BuildError, Compression, NewRecord};
use heliostat_core::types::{Offset, TimestampMs};

/// How batches come into being: one after the other, over all partitions in turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Offered {
    /// All were there before anybody asked: so many in each partition.
    Stored(u64),
    /// So many bytes a second over all partitions, from when all of them are asked for.
    Rate(f64),
    /// One more than was fetched, in each partition and for ever, once all of them are asked for:
    /// answers hold a batch of each partition in turn.
    Turns,
    /// So many were there before anybody asked; so many bytes a second over the first `active`
    /// partitions, from when the source is told to.
    Later {
        /// In each partition.
        stored: u64,
        /// Partitions that get more, at least 1.
        active: u64,
        /// Bytes a second.
        rate: f64,
    },
}

/// Every partition.
#[derive(Clone, Debug)]
pub(crate) struct SyntheticLog {
    /// Partitions in all.
    pub(crate) partitions: u64,
    offered: Offered,
    batch: Vec<u8>,
    records: i64,
}

impl SyntheticLog {
    /// Batches of `records` records with values of `value_bytes`, which do not compress.
    pub(crate) fn new(
        partitions: u64,
        offered: Offered,
        records: u32,
        value_bytes: usize,
    ) -> Result<Self, BuildError> {
        let mut builder = BatchBuilder::new(Offset::ZERO).compression(Compression::None);
        let mut state = 1_279_u64;
        let mut value = vec![0; value_bytes];
        for _ in 0..records.max(1) {
            for byte in &mut value {
                // xorshift64: no compressor finds anything in it.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *byte = state.to_be_bytes()[0];
            }
            let timestamp = TimestampMs(1_700_000_000_000);
            builder.push(&NewRecord { timestamp, key: None, value: Some(&value), headers: &[] })?;
        }
        let batch = builder.build()?;
        Ok(Self { partitions: partitions.max(1), offered, batch, records: records.max(1).into() })
    }

    /// Size of each batch.
    pub(crate) fn batch_bytes(&self) -> usize {
        self.batch.len()
    }

    /// Whether all batches were there before anybody asked.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.offered, Offered::Stored(_))
    }

    /// Whether batches come once the source is told to.
    pub(crate) fn is_told(&self) -> bool {
        matches!(self.offered, Offered::Later { .. })
    }

    /// Partitions that batches come to in turn: the first ones.
    pub(crate) fn taking_turns(&self) -> u64 {
        match self.offered {
            Offered::Later { active, .. } => active.clamp(1, self.partitions),
            Offered::Stored(_) | Offered::Rate(_) | Offered::Turns => self.partitions,
        }
    }

    /// Whether batches come to whoever goes on.
    pub(crate) fn takes_turns(&self) -> bool {
        self.offered == Offered::Turns
    }

    /// Batches of all partitions that exist `elapsed` after the start.
    pub(crate) fn births(&self, elapsed: Duration) -> u64 {
        match self.offered {
            Offered::Turns => 0,
            Offered::Stored(batches) => batches.saturating_mul(self.partitions),
            Offered::Rate(bytes_per_s) | Offered::Later { rate: bytes_per_s, .. } => {
                whole(elapsed.as_secs_f64() * bytes_per_s / bytes(self.batch.len()))
            }
        }
    }

    /// From the start to the batch behind the first `births`; `None` if none comes any more.
    pub(crate) fn birth(&self, births: u64) -> Option<Duration> {
        match self.offered {
            Offered::Stored(_) | Offered::Turns => None,
            Offered::Rate(bytes_per_s) | Offered::Later { rate: bytes_per_s, .. } => {
                let seconds = counted(births + 1) * bytes(self.batch.len()) / bytes_per_s;
                Some(Duration::from_secs_f64(seconds))
            }
        }
    }

    /// Batches of `partition` among the first `births`, which come to partitions in turn.
    pub(crate) fn batches(&self, partition: u64, births: u64) -> u64 {
        let turns = self.taking_turns();
        let came = match turns > partition {
            true => births / turns + u64::from(births % turns > partition),
            false => 0,
        };
        match self.offered {
            Offered::Later { stored, .. } => stored + came,
            Offered::Stored(_) | Offered::Rate(_) | Offered::Turns => came,
        }
    }

    /// Log end offset of a partition with so many batches.
    pub(crate) fn end(&self, batches: u64) -> i64 {
        i64::try_from(batches).unwrap_or(i64::MAX).saturating_mul(self.records)
    }

    /// Number of the batch that holds `offset`.
    pub(crate) fn batch_of(&self, offset: i64) -> u64 {
        u64::try_from(offset / self.records).unwrap_or(0)
    }

    /// Appends batch `number` of a partition to `out`. Its checksum covers neither the base
    /// offset nor the leader epoch, so only those change.
    pub(crate) fn write(&self, number: u64, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(&self.batch);
        let base = self.end(number).to_be_bytes();
        for (into, from) in out.iter_mut().skip(at).zip(base) {
            *into = from;
        }
        for into in out.iter_mut().skip(at + 12).take(4) {
            *into = 0;
        }
    }
}

#[expect(clippy::cast_precision_loss, clippy::as_conversions, reason = "sizes far below 53 bits")]
fn bytes(len: usize) -> f64 {
    len as f64
}

fn counted(count: u64) -> f64 {
    crate::side::approximate(count)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::as_conversions,
    reason = "saturates, and is never negative"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(offered: Offered) -> SyntheticLog {
        SyntheticLog::new(3, offered, 2, 100).expect("fits a batch")
    }

    #[test]
    fn batches_come_to_partitions_in_turn() {
        let log = log(Offered::Stored(2));
        assert_eq!(log.births(Duration::ZERO), 6);
        let of = |births| [0, 1, 2].map(|partition| log.batches(partition, births));
        assert_eq!(of(0), [0, 0, 0]);
        assert_eq!(of(4), [2, 1, 1]);
        assert_eq!(of(6), [2, 2, 2]);
    }

    #[test]
    fn what_comes_later_comes_to_the_first_ones() {
        let log = log(Offered::Later { stored: 4, active: 2, rate: 1_000.0 });
        let of = |births| [0, 1, 2].map(|partition| log.batches(partition, births));
        assert_eq!(of(0), [4, 4, 4]);
        assert_eq!(of(3), [6, 5, 4]);
        assert_eq!(log.births(Duration::ZERO), 0);
    }

    #[test]
    fn a_rate_gives_a_batch_when_its_last_byte_is_due() {
        let log = log(Offered::Rate(1_000.0));
        let first = log.birth(0).expect("comes");
        assert_eq!(log.births(first.mul_f64(0.99)), 0);
        assert_eq!(log.births(first.mul_f64(1.01)), 1);
    }

    #[test]
    fn a_batch_is_valid_at_its_offsets() {
        let log = log(Offered::Stored(9));
        let mut out = Vec::new();
        log.write(7, &mut out);
        assert_eq!(out.len(), log.batch_bytes());
        assert_eq!(out[..8], 14_i64.to_be_bytes());
        let crc = u32::from_be_bytes([out[17], out[18], out[19], out[20]]);
        assert_eq!(crc, crc32c::crc32c(&out[21..]));
        assert_eq!(log.batch_of(15), 7);
    }
}

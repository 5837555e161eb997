//! Runs of batches as a producer with Kafka's defaults writes them: idempotent, not compressed.

use heliostat_core::records::{BatchBuilder, NewRecord};
use heliostat_core::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Most bytes of a run: Kafka's `max.partition.fetch.bytes`.
pub const RUN_BYTES: usize = 1 << 20;

/// Epoch of every batch.
pub(crate) const EPOCH: LeaderEpoch = LeaderEpoch(3);

const PRODUCERS: i64 = 4;
const STARTED_MS: i64 = 1_700_000_000_000;

/// How large batches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// One record of 100 bytes each: the worst case.
    Tiny,
    /// Kafka's `batch.size`: 16 KiB, records of 1 KiB.
    Usual,
    /// 1 MiB, records of 1 KiB.
    Large,
}

impl Size {
    fn records(self) -> (usize, usize) {
        match self {
            Self::Tiny => (1, 100),
            Self::Usual => (15, 1024),
            Self::Large => (1000, 1024),
        }
    }
}

/// Record bytes of one partition in one answer.
#[derive(Clone, Debug)]
pub struct Run {
    /// Whole batches, one behind another.
    pub bytes: Vec<u8>,
    /// Number of batches.
    pub batches: usize,
    /// Offset behind the last one.
    pub end: i64,
}

impl Run {
    /// As many batches of `size` as fit, from offset `from` on.
    ///
    /// # Panics
    /// Never: all sizes are legal.
    pub fn new(size: Size, from: i64) -> Self {
        let (records, value_bytes) = size.records();
        let value: Vec<u8> = (0..=250_u8).cycle().take(value_bytes).collect();
        let mut run = Self { bytes: Vec::with_capacity(RUN_BYTES), batches: 0, end: from };
        loop {
            let producer = ProducerId(9000 + run.end % PRODUCERS);
            let sequence = i32::try_from(run.end / PRODUCERS).expect("few batches");
            let mut builder = BatchBuilder::new(Offset(run.end)).leader_epoch(EPOCH).producer(
                producer,
                ProducerEpoch(0),
                sequence,
            );
            // A millisecond for sixteen batches, so that time index entries are made as they are.
            let timestamp = TimestampMs(STARTED_MS + run.end / 16);
            for _ in 0..records {
                let record = NewRecord { timestamp, key: None, value: Some(&value), headers: &[] };
                builder.push(&record).expect("a record that fits");
            }
            let batch = builder.build().expect("a legal batch");
            if run.bytes.len() + batch.len() > RUN_BYTES {
                return run;
            }
            run.bytes.extend_from_slice(&batch);
            run.batches += 1;
            run.end += i64::try_from(records).expect("few records");
        }
    }
}

//! Batches of one codec without end, from a few bodies that are made once.

use heliostat_core::records::{BatchBuilder, BuildError, Compression, NewRecord, reseal};
use heliostat_core::types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::BEGIN_MS;
use super::rng::Rng;

/// Sizes of the bodies before compression, in bytes: what producers with little and
/// with much to say send.
const BODY_BYTES: [usize; 6] = [900_000, 16_000, 250_000, 1_200, 64_000, 900_000];
/// Longest value in bytes.
const VALUE_BYTES_MAX: u64 = 4_000;
/// Record time between batches.
const STEP_MS: i64 = 3;
/// Producer IDs of plain partitions begin here.
const PRODUCER_ID: i64 = 1_000;

const BASE_TIMESTAMP_AT: usize = 27;
const MAX_TIMESTAMP_AT: usize = 35;
const PRODUCER_ID_AT: usize = 43;
const PRODUCER_EPOCH_AT: usize = 51;
const BASE_SEQUENCE_AT: usize = 53;

/// Words of values that compress.
const WORDS: [&str; 12] = [
    "order",
    "created",
    "customer",
    "amount",
    "currency",
    "EUR",
    "shipped",
    "from",
    "warehouse",
    "north",
    "pending",
    "confirmed",
];

/// An endless stream of batches, the same for the same seed.
#[derive(Debug)]
pub struct BatchSource {
    templates: Vec<Template>,
    next_template: usize,
    buffer: Vec<u8>,
    time_ms: i64,
    producer_id: i64,
    sequence: i32,
}

#[derive(Debug)]
struct Template {
    bytes: Vec<u8>,
    records: i32,
    span_ms: i64,
}

impl BatchSource {
    /// Makes the bodies; that is where compression takes its time.
    ///
    /// # Errors
    ///
    /// An unknown codec.
    pub fn new(seed: u64, codec: Compression) -> Result<Self, BuildError> {
        let mut rng = Rng::new(seed);
        let templates = BODY_BYTES
            .iter()
            .enumerate()
            .map(|(index, &bytes)| Template::new(&mut rng, codec, bytes, index % 2 == 0))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            templates,
            next_template: 0,
            buffer: Vec::new(),
            time_ms: BEGIN_MS,
            producer_id: -1,
            sequence: 0,
        })
    }

    /// Begins the stream of another partition: even ones have an idempotent
    /// producer, odd ones none.
    pub fn restart(&mut self, partition: i32) {
        self.time_ms = BEGIN_MS;
        self.next_template = usize::try_from(partition).unwrap_or(0);
        self.sequence = 0;
        self.producer_id = if partition % 2 == 0 { PRODUCER_ID + i64::from(partition) } else { -1 };
    }

    /// From now on records carry this time, in milliseconds since the epoch.
    pub fn set_time(&mut self, time_ms: i64) {
        self.time_ms = time_ms;
    }

    /// The next batch, sealed, at offset 0 and without an epoch: to be appended as
    /// the leader does.
    pub fn next_batch(&mut self) -> &mut [u8] {
        let index = self.next_template.checked_rem(self.templates.len()).unwrap_or(0);
        self.next_template = index + 1;
        self.buffer.clear();
        if let Some(template) = self.templates.get(index) {
            self.buffer.extend_from_slice(&template.bytes);
            let last_ms = self.time_ms.saturating_add(template.span_ms);
            stamp(&mut self.buffer, BASE_TIMESTAMP_AT, &self.time_ms.to_be_bytes());
            stamp(&mut self.buffer, MAX_TIMESTAMP_AT, &last_ms.to_be_bytes());
            if self.producer_id >= 0 {
                let sequence = self.sequence;
                stamp_producer(&mut self.buffer, self.producer_id, 0, sequence);
                self.sequence = sequence_after(sequence, template.records);
            }
            self.time_ms = last_ms.saturating_add(STEP_MS);
            reseal(&mut self.buffer);
        }
        &mut self.buffer
    }
}

/// Kafka's rule: 2147483647 is followed by 0.
pub(super) fn sequence_after(sequence: i32, records: i32) -> i32 {
    i32::try_from((i64::from(sequence) + i64::from(records)) % (i64::from(i32::MAX) + 1))
        .unwrap_or(0)
}

pub(super) fn stamp_producer(batch: &mut [u8], id: i64, epoch: i16, sequence: i32) {
    stamp(batch, PRODUCER_ID_AT, &id.to_be_bytes());
    stamp(batch, PRODUCER_EPOCH_AT, &epoch.to_be_bytes());
    stamp(batch, BASE_SEQUENCE_AT, &sequence.to_be_bytes());
}

fn stamp(batch: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(field) = batch.get_mut(at..at.saturating_add(bytes.len())) {
        field.copy_from_slice(bytes);
    }
}

impl Template {
    fn new(
        rng: &mut Rng,
        codec: Compression,
        bytes: usize,
        compressible: bool,
    ) -> Result<Self, BuildError> {
        let mut builder = BatchBuilder::new(Offset::ZERO)
            .producer(ProducerId::NONE, ProducerEpoch(-1), -1)
            .compression(codec);
        let mut records = 0;
        while builder.records_bytes().len() < bytes {
            let key = format!("key-{:08x}", rng.below(1 << 20));
            let value = value(rng, compressible);
            let trace = rng.next().to_be_bytes();
            let both = [("trace", Some(&trace[..])), ("empty", None)];
            let headers = if records % 3 == 0 { &both[..] } else { &[] };
            builder.push(&NewRecord {
                timestamp: TimestampMs(i64::from(records)),
                key: (records % 5 != 0).then_some(key.as_bytes()),
                value: (records % 17 != 16).then_some(&value),
                headers,
            })?;
            records += 1;
        }
        let span_ms = i64::from(records - 1);
        Ok(Self { bytes: builder.build()?, records, span_ms })
    }
}

/// A value of text that compresses, or of noise that does not.
pub(super) fn value(rng: &mut Rng, compressible: bool) -> Vec<u8> {
    let length = 20 + rng.length(VALUE_BYTES_MAX);
    let mut value = Vec::with_capacity(length);
    if compressible {
        while value.len() < length {
            value.extend_from_slice(WORDS.get(rng.length(12)).unwrap_or(&"").as_bytes());
            value.push(b' ');
        }
    } else {
        value.resize(length, 0);
        rng.fill(&mut value);
    }
    value
}

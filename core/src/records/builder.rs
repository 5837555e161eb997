//! Builds record batches of format v2, as a producer and a broker would.
//!
//! For the demo's generator, the simulation and tests: the mirror copies
//! batches and never makes one, but for the markers of a stop. What no producer
//! would write, but a cleaner or another client does, can be asked for: gaps,
//! empty batches, bodies compressed elsewhere.

use zerocopy::IntoBytes;

use super::batch_header::{
    BatchHeader, CRC_V2_FROM, HEADER_V2_BYTES, LOG_OVERHEAD_BYTES, MAGIC_V2, check_offsets,
};
use super::compression::{CompressionError, compress};
use super::error::RecordError;
use super::meta::Compression;
use super::varint::{put_varint, put_varlong};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
const DELETE_HORIZON: i16 = 0x40;

/// Why no batch could be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Offsets in a batch rise, and end at its last offset.
    #[error("offset delta {delta} does not lie between {delta_min} and {delta_max}")]
    OffsetDelta {
        /// Asked for.
        delta: i32,
        /// Smallest that is free, inclusive.
        delta_min: i64,
        /// Largest of the batch, inclusive.
        delta_max: i32,
    },
    /// A length does not fit its field.
    #[error("{bytes} bytes do not fit into one batch")]
    TooLarge {
        /// How many there are.
        bytes: usize,
    },
    /// Offsets that no log has.
    #[error("impossible offsets")]
    Offsets(#[source] RecordError),
    /// The records do not compress.
    #[error("cannot compress the records")]
    Compression(#[source] CompressionError),
}

/// A record for a batch.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// −1 for none. Any order is legal.
    pub timestamp: TimestampMs,
    /// `None` is null.
    pub key: Option<&'a [u8]>,
    /// `None` is null: a tombstone.
    pub value: Option<&'a [u8]>,
    /// Name and value each.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// Collects records and writes one v2 batch of them.
///
/// Timestamps are deltas from the first record's, so whatever changes the base
/// ([`delete_horizon`](Self::delete_horizon)) comes before the first record; all
/// else in any order.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: i32,
    attributes: i16,
    compression: Compression,
    base_timestamp: Option<TimestampMs>,
    max_timestamp: TimestampMs,
    log_append_time: Option<TimestampMs>,
    /// The records as they are stored, uncompressed.
    records: Vec<u8>,
    /// Body of the record that is being written; kept for its memory.
    scratch: Vec<u8>,
    records_count: i32,
    /// Smallest offset delta that is free.
    next_delta: i64,
    last_offset_delta: Option<i32>,
}

impl BatchBuilder {
    /// A batch from `base_offset` on: no producer, epoch −1, not compressed.
    pub fn new(base_offset: Offset) -> Self {
        Self {
            base_offset,
            leader_epoch: LeaderEpoch::NONE,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch(-1),
            base_sequence: -1,
            attributes: 0,
            compression: Compression::None,
            base_timestamp: None,
            max_timestamp: TimestampMs::NONE,
            log_append_time: None,
            records: Vec::new(),
            scratch: Vec::new(),
            records_count: 0,
            next_delta: 0,
            last_offset_delta: None,
        }
    }

    /// Epoch of the leader that appends the batch.
    #[must_use]
    pub fn leader_epoch(mut self, epoch: LeaderEpoch) -> Self {
        self.leader_epoch = epoch;
        self
    }

    /// An idempotent producer, and the sequence of the first record.
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> Self {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// Part of a transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.attributes |= TRANSACTIONAL;
        self
    }

    /// Carries a marker and no data. Its record is the caller's;
    /// [`EndTxnMarker`](super::control::EndTxnMarker) writes a whole one.
    #[must_use]
    pub fn control(mut self) -> Self {
        self.attributes |= CONTROL;
        self
    }

    /// How the records are stored.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// All records carry `timestamp`, that of the append.
    #[must_use]
    pub fn log_append_time(mut self, timestamp: TimestampMs) -> Self {
        self.log_append_time = Some(timestamp);
        self.attributes |= LOG_APPEND_TIME;
        self
    }

    /// As the cleaner rewrites a batch with tombstones (KIP-534): the base
    /// timestamp says from when on they may go.
    ///
    /// # Panics
    ///
    /// If there are records already: their deltas count from another base.
    #[must_use]
    pub fn delete_horizon(mut self, horizon: TimestampMs) -> Self {
        assert!(self.records_count == 0, "the delete horizon is set before the first record");
        self.base_timestamp = Some(horizon);
        self.attributes |= DELETE_HORIZON;
        self
    }

    /// The batch covers offsets up to base + `delta`, inclusive, whether or not
    /// the last ones have records: compaction removed them, or all.
    #[must_use]
    pub fn last_offset_delta(mut self, delta: i32) -> Self {
        self.last_offset_delta = Some(delta);
        self
    }

    /// Adds a record at the next offset.
    ///
    /// # Errors
    ///
    /// Nothing is added when a length or the offset does not fit.
    pub fn push(&mut self, record: &NewRecord<'_>) -> Result<(), BuildError> {
        let delta = i32::try_from(self.next_delta).unwrap_or(i32::MAX);
        self.push_at(delta, record)
    }

    /// Adds a record at base offset + `delta`, behind a gap if `delta` is not the next.
    ///
    /// # Errors
    ///
    /// Nothing is added when a length does not fit or `delta` goes back.
    pub fn push_at(&mut self, delta: i32, record: &NewRecord<'_>) -> Result<(), BuildError> {
        if i64::from(delta) < self.next_delta {
            let (delta_min, delta_max) = (self.next_delta, i32::MAX);
            return Err(BuildError::OffsetDelta { delta, delta_min, delta_max });
        }
        let base = self.base_timestamp.unwrap_or(record.timestamp);
        self.scratch.clear();
        self.scratch.push(0); // Attributes of a record: none are defined.
        // Wraps for distances beyond i64, and back again when read, as in Java.
        put_varlong(&mut self.scratch, record.timestamp.0.wrapping_sub(base.0));
        put_varint(&mut self.scratch, delta);
        put_bytes(&mut self.scratch, record.key)?;
        put_bytes(&mut self.scratch, record.value)?;
        put_varint(&mut self.scratch, length_i32(record.headers.len())?);
        for (name, value) in record.headers {
            put_bytes(&mut self.scratch, Some(name.as_bytes()))?;
            put_bytes(&mut self.scratch, *value)?;
        }

        put_varint(&mut self.records, length_i32(self.scratch.len())?);
        self.records.extend_from_slice(&self.scratch);
        self.base_timestamp = Some(base);
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        self.records_count = self.records_count.saturating_add(1);
        self.next_delta = i64::from(delta) + 1;
        Ok(())
    }

    /// Records so far.
    pub fn records_count(&self) -> i32 {
        self.records_count
    }

    /// The records so far as they are stored, uncompressed: to decide when a
    /// batch is full, or to compress them otherwise.
    pub fn records_bytes(&self) -> &[u8] {
        &self.records
    }

    /// Writes the batch. An empty one without a last offset delta covers one offset.
    ///
    /// # Errors
    ///
    /// Sizes or offsets that do not fit, an unknown codec.
    pub fn build(&self) -> Result<Vec<u8>, BuildError> {
        // A batch without records has no body, whatever its codec.
        if self.compression == Compression::None || self.records_count == 0 {
            self.build_with_body(&self.records)
        } else {
            let body = compress(self.compression, MAGIC_V2, &self.records);
            self.build_with_body(&body.map_err(BuildError::Compression)?)
        }
    }

    /// Writes the batch with `body` in place of the records, which the caller
    /// has compressed in the way of another client.
    ///
    /// # Errors
    ///
    /// Sizes or offsets that do not fit.
    pub fn build_with_body(&self, body: &[u8]) -> Result<Vec<u8>, BuildError> {
        let needed = i32::try_from(self.next_delta - 1).unwrap_or(i32::MAX).max(0);
        let last_offset_delta = self.last_offset_delta.unwrap_or(needed);
        if last_offset_delta < needed {
            return Err(BuildError::OffsetDelta {
                delta: needed,
                delta_min: 0,
                delta_max: last_offset_delta,
            });
        }
        check_offsets(self.base_offset, last_offset_delta).map_err(BuildError::Offsets)?;
        let size_bytes = HEADER_V2_BYTES.saturating_add(body.len());
        let overhead = usize::try_from(LOG_OVERHEAD_BYTES).unwrap_or(0);
        let header = BatchHeader {
            base_offset: self.base_offset.0.into(),
            length: length_i32(size_bytes.saturating_sub(overhead))?.into(),
            partition_leader_epoch: self.leader_epoch.0.into(),
            magic: MAGIC_V2,
            crc: 0.into(),
            attributes: (self.attributes | codec_bits(self.compression)).into(),
            last_offset_delta: last_offset_delta.into(),
            base_timestamp_ms: self.base_timestamp.unwrap_or(TimestampMs::NONE).0.into(),
            max_timestamp_ms: self.log_append_time.unwrap_or(self.max_timestamp).0.into(),
            producer_id: self.producer_id.0.into(),
            producer_epoch: self.producer_epoch.0.into(),
            base_sequence: self.base_sequence.into(),
            records_count: self.records_count.into(),
        };
        let mut batch = Vec::with_capacity(size_bytes);
        batch.extend_from_slice(header.as_bytes());
        batch.extend_from_slice(body);
        reseal(&mut batch);
        Ok(batch)
    }
}

/// Puts the right CRC-32C into a v2 batch whose bytes were changed: for tests
/// and for the forge of odd batches. Fewer bytes than a header stay as they are.
pub fn reseal(batch: &mut [u8]) {
    if batch.len() < HEADER_V2_BYTES {
        return;
    }
    let (head, covered) = batch.split_at_mut(CRC_V2_FROM);
    if let Some(field) = head.last_chunk_mut() {
        *field = crc32c::crc32c(covered).to_be_bytes();
    }
}

/// The codec's bits of the attributes.
pub(super) fn codec_bits(compression: Compression) -> i16 {
    match compression {
        Compression::None => 0,
        Compression::Gzip => 1,
        Compression::Snappy => 2,
        Compression::Lz4 => 3,
        Compression::Zstd => 4,
        Compression::Unknown(code) => i16::from(code & 0x07),
    }
}

pub(super) fn length_i32(bytes: usize) -> Result<i32, BuildError> {
    i32::try_from(bytes).map_err(|_| BuildError::TooLarge { bytes })
}

fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) -> Result<(), BuildError> {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, length_i32(bytes.len())?);
            out.extend_from_slice(bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

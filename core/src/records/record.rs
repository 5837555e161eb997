//! The records of one batch, one after another, from verified bytes.
//!
//! Used by dump-log, verify and the demo; the mirror itself reads no records.
//! A batch gives exactly as many records as its header says, or an error.

use std::borrow::Cow;

use super::batch_header::{HEADER_V2_BYTES, MAGIC_V2};
use super::compression::decompress;
use super::decode_error::{DecodeError, DecodeReason};
use super::legacy::{LegacyRecords, LegacySet, Wrapper};
use super::meta::{BatchMeta, Compression};
use super::varint::{Cursor, VarintError};
use crate::types::{Offset, TimestampMs};

/// One record; its bytes are borrowed from the decoded batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Absolute offset.
    pub offset: Offset,
    /// The record's own, or the batch's log append time where attribute bit 3 is
    /// set; −1 for none. A delta beyond `i64` wraps, as in Java.
    pub timestamp: TimestampMs,
    /// `None` is null.
    pub key: Option<&'a [u8]>,
    /// `None` is null: a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// None in v0 and v1.
    pub headers: Headers<'a>,
    /// With Kafka's wrap behind 2147483647; −1 for none.
    pub sequence: i32,
    /// A v0 or v1 message's own checksum, which holds; `None` for v2.
    pub crc: Option<u32>,
}

/// A header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader<'a> {
    /// UTF-8 by convention; not checked.
    pub key: &'a [u8],
    /// `None` is null.
    pub value: Option<&'a [u8]>,
}

/// Iterates the headers of a record, which have been checked already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Headers<'a> {
    type Item = RecordHeader<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut cursor = Cursor::new(self.bytes);
        let header = (!cursor.is_empty()).then(|| header(&mut cursor))?.ok();
        self.bytes = cursor.rest();
        header
    }
}

fn header<'a>(cursor: &mut Cursor<'a>) -> Result<RecordHeader<'a>, VarintError> {
    let key = cursor.nullable_bytes()?.ok_or(VarintError::NegativeLength(-1))?;
    Ok(RecordHeader { key, value: cursor.nullable_bytes()? })
}

/// A batch with its body decompressed, if it had to be.
#[derive(Clone, Debug)]
pub struct DecodedBatch<'a> {
    meta: BatchMeta,
    /// v2: the records. v0 and v1: a set of messages.
    body: Cow<'a, [u8]>,
    /// For a compressed v0 or v1 message: what its inner messages follow.
    wrapper: Option<Wrapper>,
}

impl<'a> DecodedBatch<'a> {
    /// Opens the whole batch `bytes`, whose facts the walker gave as `meta`.
    /// The decompressed body has at most `cap` bytes, inclusive.
    ///
    /// # Errors
    ///
    /// Bytes of another size, a body that does not decompress, an unreadable wrapper.
    pub fn decode(meta: &BatchMeta, bytes: &'a [u8], cap: usize) -> Result<Self, DecodeError> {
        Self::open(meta, bytes, cap)
            .map_err(|reason| DecodeError { base_offset: meta.base_offset, reason })
    }

    fn open(meta: &BatchMeta, bytes: &'a [u8], cap: usize) -> Result<Self, DecodeReason> {
        if usize::try_from(meta.size_bytes) != Ok(bytes.len()) {
            return Err(DecodeReason::Size { want: meta.size_bytes, have: bytes.len() });
        }
        let codec = meta.compression();
        let unpack = |packed: &[u8]| {
            decompress(codec, meta.magic, packed, cap).map_err(DecodeReason::Compression)
        };
        let mut wrapper = None;
        let body = if meta.magic == MAGIC_V2 {
            let body = bytes.get(HEADER_V2_BYTES..).unwrap_or_default();
            // A batch that the cleaner emptied keeps its codec and has no body.
            if codec == Compression::None || meta.records_count == 0 {
                Cow::Borrowed(body)
            } else {
                Cow::Owned(unpack(body)?)
            }
        } else if codec == Compression::None {
            Cow::Borrowed(bytes)
        } else {
            let packed = LegacySet::new(bytes).only_message()?.value;
            let set = unpack(packed.ok_or(DecodeReason::EmptyWrapper)?)?;
            wrapper = Some(Wrapper::of(meta, &set)?);
            Cow::Owned(set)
        };
        Ok(Self { meta: *meta, body, wrapper })
    }

    /// The batch's facts.
    pub fn meta(&self) -> &BatchMeta {
        &self.meta
    }

    /// The records from the first on; see [`Records`].
    pub fn records(&self) -> Records<'_> {
        let part = if self.meta.magic == MAGIC_V2 {
            Part::V2 { cursor: Cursor::new(&self.body), index: 0 }
        } else {
            Part::Legacy(LegacyRecords::new(&self.body, self.wrapper))
        };
        Records { meta: &self.meta, part }
    }
}

/// Iterates the records of a batch. Ends after the last one or after an error;
/// a missing or a surplus record is an error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    meta: &'a BatchMeta,
    part: Part<'a>,
}

#[derive(Clone, Debug)]
enum Part<'a> {
    V2 { cursor: Cursor<'a>, index: u32 },
    Legacy(LegacyRecords<'a>),
    Ended,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordView<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match &mut self.part {
            Part::V2 { cursor, index } => next_v2(self.meta, cursor, index),
            Part::Legacy(messages) => messages.next_record(),
            Part::Ended => Ok(None),
        };
        if !matches!(next, Ok(Some(_))) {
            self.part = Part::Ended;
        }
        let base_offset = self.meta.base_offset;
        next.map_err(|reason| DecodeError { base_offset, reason }).transpose()
    }
}

fn next_v2<'a>(
    meta: &BatchMeta,
    cursor: &mut Cursor<'a>,
    index: &mut u32,
) -> Result<Option<RecordView<'a>>, DecodeReason> {
    let records_count = meta.records_count;
    if i64::from(*index) >= i64::from(records_count) {
        return match cursor.rest().len() {
            0 => Ok(None),
            bytes => Err(DecodeReason::TrailingBytes { records_count, bytes }),
        };
    }
    if cursor.is_empty() {
        return Err(DecodeReason::Shortfall { records_count, found: *index });
    }
    let record = record_v2(meta, cursor, *index)?;
    *index = index.saturating_add(1);
    Ok(Some(record))
}

fn record_v2<'a>(
    meta: &BatchMeta,
    cursor: &mut Cursor<'a>,
    index: u32,
) -> Result<RecordView<'a>, DecodeReason> {
    let broken = |source| DecodeReason::Record { index, source };
    let length = cursor.varint().map_err(broken)?;
    let length = super::varint::length_of(length).map_err(broken)?;
    let mut fields = Cursor::new(cursor.slice(length).map_err(broken)?);
    let (raw, rest) = RawRecord::read(&mut fields).map_err(broken)?;
    if !rest.is_empty() {
        return Err(DecodeReason::RecordSize { index, bytes: rest.len() });
    }

    let offset = meta.base_offset.plus(i64::from(raw.offset_delta));
    if offset < meta.base_offset || offset > meta.last_offset {
        return Err(DecodeReason::RecordOffset { index, offset });
    }
    let timestamp = if meta.is_log_append_time() {
        meta.max_timestamp
    } else {
        TimestampMs(meta.base_timestamp.0.wrapping_add(raw.timestamp_delta))
    };
    Ok(RecordView {
        offset,
        timestamp,
        key: raw.key,
        value: raw.value,
        headers: raw.headers,
        sequence: sequence(meta.base_sequence, raw.offset_delta),
        crc: None,
    })
}

/// The fields of a v2 record as they are stored.
struct RawRecord<'a> {
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: Headers<'a>,
}

impl<'a> RawRecord<'a> {
    /// The record, and what lies behind its last field.
    fn read(fields: &mut Cursor<'a>) -> Result<(Self, &'a [u8]), VarintError> {
        let _attributes = fields.u8()?;
        let timestamp_delta = fields.varlong()?;
        let offset_delta = fields.varint()?;
        let key = fields.nullable_bytes()?;
        let value = fields.nullable_bytes()?;
        let headers_count = super::varint::length_of(fields.varint()?)?;
        let start = fields.rest();
        // Each header takes two bytes at least, so a false count ends soon.
        for _ in 0..headers_count {
            header(fields)?;
        }
        let rest = fields.rest();
        let (bytes, _) = start.split_at(start.len().saturating_sub(rest.len()));
        let headers = Headers { bytes };
        Ok((Self { timestamp_delta, offset_delta, key, value, headers }, rest))
    }
}

/// Kafka's rule: 2147483647 is followed by 0.
fn sequence(base_sequence: i32, offset_delta: i32) -> i32 {
    if base_sequence < 0 {
        return -1;
    }
    let sum = i64::from(base_sequence).saturating_add(i64::from(offset_delta));
    i32::try_from(sum % (i64::from(i32::MAX) + 1)).unwrap_or(-1)
}

#[cfg(test)]
mod tests;

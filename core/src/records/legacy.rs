//! Messages of formats v0 and v1, alone or in a compressed wrapper.
//!
//! A wrapper is a message whose value is a compressed set of messages. Its stored
//! offset is that of its last message. Inside, v0 has absolute offsets; v1 has
//! relative ones, of which the last belongs to the wrapper's offset. Wrappers do
//! not nest.

use zerocopy::FromBytes;

use super::batch_header::LOG_OVERHEAD_BYTES;
use super::decode_error::DecodeReason;
use super::legacy_header::{CRC_LEGACY_FROM, LegacyHeader, LegacyTimestamp};
use super::meta::BatchMeta;
use super::record::{Headers, RecordView};
use super::varint::{Cursor, VarintError, length_of};
use crate::types::{Offset, TimestampMs};

/// One message as stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    offset: i64,
    magic: u8,
    attributes: u8,
    timestamp: TimestampMs,
    key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    crc: u32,
}

/// What the messages in a wrapper take from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrapper {
    /// Added to each offset; 0 for v0, whose offsets are absolute.
    base: i64,
    /// No message is above; `None` where the wrapper does not say.
    last: Option<i64>,
    /// Replaces the timestamps of v1 messages.
    log_append_time: Option<TimestampMs>,
}

impl Wrapper {
    /// Reads through `set`, the decompressed messages of the wrapper `meta`.
    pub(super) fn of(meta: &BatchMeta, set: &[u8]) -> Result<Self, DecodeReason> {
        let mut messages = LegacySet::new(set);
        let mut last_inner = None;
        while let Some(message) = messages.next_message()? {
            last_inner = Some(message.offset);
        }
        let last_inner = last_inner.ok_or(DecodeReason::EmptyWrapper)?;
        let log_append_time = meta.is_log_append_time().then_some(meta.max_timestamp);
        let wrapper = meta.last_offset.0;
        // A v1 wrapper at 0 comes from producers that leave it so; Kafka, too,
        // takes the inner offsets as they are then.
        if meta.magic == 0 || wrapper == 0 {
            return Ok(Self { base: 0, last: None, log_append_time });
        }
        if last_inner < 0 || last_inner > wrapper {
            return Err(DecodeReason::WrapperOffset { last_inner: Offset(last_inner) });
        }
        let base = wrapper.saturating_sub(last_inner);
        Ok(Self { base, last: Some(wrapper), log_append_time })
    }
}

/// Reads a run of messages, each with its checksum.
#[derive(Clone, Debug)]
pub(super) struct LegacySet<'a> {
    cursor: Cursor<'a>,
    /// Of the next message.
    index: u32,
}

impl<'a> LegacySet<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { cursor: Cursor::new(bytes), index: 0 }
    }

    /// The message that fills all bytes.
    pub(super) fn only_message(mut self) -> Result<Message<'a>, DecodeReason> {
        let message = self.next_message()?;
        let message = message.ok_or(DecodeReason::Shortfall { records_count: 1, found: 0 })?;
        match self.cursor.rest().len() {
            0 => Ok(message),
            bytes => Err(DecodeReason::TrailingBytes { records_count: 1, bytes }),
        }
    }

    /// The next message; `None` at the end of the bytes.
    fn next_message(&mut self) -> Result<Option<Message<'a>>, DecodeReason> {
        if self.cursor.is_empty() {
            return Ok(None);
        }
        let index = self.index;
        let broken = |source| DecodeReason::Record { index, source };
        let message = self.cut_message().map_err(broken)?;
        self.index = index.saturating_add(1);

        let short = || broken(VarintError::Short);
        let (header, rest) = LegacyHeader::ref_from_prefix(message).map_err(|_| short())?;
        let computed = crc32fast::hash(message.get(CRC_LEGACY_FROM..).unwrap_or_default());
        let stored = header.crc.get();
        if header.magic > 1 {
            return Err(DecodeReason::InnerMagic { index, magic: header.magic });
        }
        if stored != computed {
            return Err(DecodeReason::InnerCrc { index, stored, computed });
        }
        let (timestamp, rest) = if header.magic == 0 {
            (TimestampMs::NONE, rest)
        } else {
            let (field, rest) = LegacyTimestamp::ref_from_prefix(rest).map_err(|_| short())?;
            (TimestampMs(field.timestamp_ms.get()), rest)
        };
        let mut fields = Cursor::new(rest);
        let key = fields.nullable_bytes_i32().map_err(broken)?;
        let value = fields.nullable_bytes_i32().map_err(broken)?;
        match fields.rest().len() {
            0 => {}
            bytes => return Err(DecodeReason::RecordSize { index, bytes }),
        }
        let (offset, magic) = (header.offset.get(), header.magic);
        let attributes = header.attributes;
        Ok(Some(Message { offset, magic, attributes, timestamp, key, value, crc: stored }))
    }

    /// The bytes of the next message, leading fields included.
    fn cut_message(&mut self) -> Result<&'a [u8], VarintError> {
        let mut ahead = self.cursor;
        let _offset: [u8; 8] = ahead.array()?;
        let length = length_of(ahead.i32()?)?;
        let overhead = usize::try_from(LOG_OVERHEAD_BYTES).unwrap_or(0);
        self.cursor.slice(length.saturating_add(overhead))
    }
}

/// The records of one stored message: itself, or those in the wrapper it is.
#[derive(Clone, Debug)]
pub(super) struct LegacyRecords<'a> {
    set: LegacySet<'a>,
    wrapper: Option<Wrapper>,
}

impl<'a> LegacyRecords<'a> {
    /// `bytes` is the message itself, or with a `wrapper` its decompressed value.
    pub(super) fn new(bytes: &'a [u8], wrapper: Option<Wrapper>) -> Self {
        Self { set: LegacySet::new(bytes), wrapper }
    }

    /// The next record; `None` behind the last.
    pub(super) fn next_record(&mut self) -> Result<Option<RecordView<'a>>, DecodeReason> {
        let index = self.set.index;
        let Some(message) = self.set.next_message()? else { return Ok(None) };
        let mut offset = message.offset;
        let mut timestamp = message.timestamp;
        if let Some(wrapper) = self.wrapper {
            if message.attributes & 0x07 != 0 {
                return Err(DecodeReason::NestedTwice { index });
            }
            offset = offset.saturating_add(wrapper.base);
            let outside = offset < wrapper.base || wrapper.last.is_some_and(|last| offset > last);
            if outside {
                return Err(DecodeReason::RecordOffset { index, offset: Offset(offset) });
            }
            if message.magic > 0 {
                timestamp = wrapper.log_append_time.unwrap_or(timestamp);
            }
        }
        Ok(Some(RecordView {
            offset: Offset(offset),
            timestamp,
            key: message.key,
            value: message.value,
            headers: Headers::default(),
            sequence: -1,
            crc: Some(message.crc),
        }))
    }
}

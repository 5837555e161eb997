//! Builds messages of formats v0 and v1, alone and in compressed wrappers: for
//! tests, and for sources that still hold old data.

use super::builder::{BuildError, codec_bits, length_i32};
use super::compression::compress;
use super::meta::Compression;
use crate::types::{Offset, TimestampMs};

const LOG_APPEND_TIME: u8 = 0x08;

/// The two formats before v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegacyFormat {
    /// Magic 0: no timestamps.
    V0,
    /// Magic 1.
    V1,
}

impl LegacyFormat {
    /// As stored.
    pub fn magic(self) -> u8 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
        }
    }
}

/// A message to write; −1 is no timestamp, v0 has none anyway.
#[derive(Clone, Copy, Debug)]
pub struct LegacyMessage<'a> {
    /// Absolute offset.
    pub offset: Offset,
    /// Create time; see [`LegacyBuilder::log_append_time`].
    pub timestamp: TimestampMs,
    /// `None` is null.
    pub key: Option<&'a [u8]>,
    /// `None` is null.
    pub value: Option<&'a [u8]>,
}

/// Writes messages of one format one behind another.
#[derive(Clone, Debug)]
pub struct LegacyBuilder {
    format: LegacyFormat,
    log_append_time: Option<TimestampMs>,
    bytes: Vec<u8>,
}

impl LegacyBuilder {
    /// An empty run of messages.
    pub fn new(format: LegacyFormat) -> Self {
        Self { format, log_append_time: None, bytes: Vec::new() }
    }

    /// Messages and wrappers from here on carry `timestamp`, that of the append
    /// (v1 only). Messages in a wrapper keep their own, which readers then ignore.
    #[must_use]
    pub fn log_append_time(mut self, timestamp: TimestampMs) -> Self {
        self.log_append_time = Some(timestamp);
        self
    }

    /// Adds one uncompressed message.
    ///
    /// # Errors
    ///
    /// A length that does not fit.
    pub fn message(&mut self, message: &LegacyMessage<'_>) -> Result<(), BuildError> {
        let timestamp = self.log_append_time.unwrap_or(message.timestamp);
        let attributes = self.time_bit();
        let message = LegacyMessage { timestamp, ..*message };
        put_message(&mut self.bytes, self.format, attributes, &message)
    }

    /// Adds `messages` as one compressed wrapper. Its offset is that of the last;
    /// v1 stores offsets relative to the first message's.
    ///
    /// # Errors
    ///
    /// A length that does not fit, an unknown codec.
    pub fn wrapper(
        &mut self,
        codec: Compression,
        messages: &[LegacyMessage<'_>],
    ) -> Result<(), BuildError> {
        let mut set = Vec::new();
        let first = messages.first().map_or(0, |message| message.offset.0);
        let base = if self.format == LegacyFormat::V0 { 0 } else { first };
        for message in messages {
            let offset = Offset(message.offset.0.saturating_sub(base));
            put_message(&mut set, self.format, 0, &LegacyMessage { offset, ..*message })?;
        }
        let packed = compress(codec, self.format.magic(), &set).map_err(BuildError::Compression)?;
        let largest = messages.iter().map(|message| message.timestamp).max();
        let wrapper = LegacyMessage {
            offset: messages.last().map_or(Offset::ZERO, |message| message.offset),
            timestamp: self.log_append_time.or(largest).unwrap_or(TimestampMs::NONE),
            key: None,
            value: Some(&packed),
        };
        let attributes = u8::try_from(codec_bits(codec)).unwrap_or(0) | self.time_bit();
        put_message(&mut self.bytes, self.format, attributes, &wrapper)
    }

    /// The bytes written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn time_bit(&self) -> u8 {
        if self.log_append_time.is_some() && self.format == LegacyFormat::V1 {
            LOG_APPEND_TIME
        } else {
            0
        }
    }
}

fn put_message(
    out: &mut Vec<u8>,
    format: LegacyFormat,
    attributes: u8,
    message: &LegacyMessage<'_>,
) -> Result<(), BuildError> {
    let mut covered = vec![format.magic(), attributes];
    if format == LegacyFormat::V1 {
        covered.extend_from_slice(&message.timestamp.0.to_be_bytes());
    }
    for bytes in [message.key, message.value] {
        let length = bytes.map_or(Ok(-1), |bytes| length_i32(bytes.len()))?;
        covered.extend_from_slice(&length.to_be_bytes());
        covered.extend_from_slice(bytes.unwrap_or_default());
    }
    let length = length_i32(covered.len().saturating_add(4))?;
    out.extend_from_slice(&message.offset.0.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&crc32fast::hash(&covered).to_be_bytes());
    out.extend_from_slice(&covered);
    Ok(())
}

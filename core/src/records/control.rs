//! The marker in a control batch: which transaction ends and how.
//!
//! A control batch has one record that matters, its first. The key is version
//! and type, two int16; the value of an end-of-transaction marker is its version
//! (int16) and the epoch of the transaction coordinator (int32).

use super::builder::{BatchBuilder, BuildError, NewRecord};
use super::meta::ControlType;
use super::varint::{Cursor, VarintError};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// As much of a control batch's record as is kept to read the marker. The value
/// of other control records may be longer; nothing of it is needed.
pub const CONTROL_RECORD_BYTES_MAX: usize = 256;

/// Why the marker of a control batch cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Kafka never compresses control batches, and the walker never decompresses.
    #[error("is compressed (codec {codec})")]
    Compressed {
        /// Bits 0 to 2 of the attributes.
        codec: i16,
    },
    /// The record breaks off, or a number in it is no number.
    #[error("its record cannot be read")]
    Record(#[source] VarintError),
    /// No key, or one too short for version and type.
    #[error("its key has {key_bytes} bytes, want at least 4")]
    Key {
        /// Bytes of the key; 0 for null.
        key_bytes: usize,
    },
    /// Versions start at 0.
    #[error("negative version {version}")]
    Version {
        /// Of the key or of an end-of-transaction value.
        version: i16,
    },
    /// An end-of-transaction marker without version and coordinator epoch.
    #[error("its value has {value_bytes} bytes, want at least 6")]
    Value {
        /// Bytes of the value; 0 for null.
        value_bytes: usize,
    },
}

impl From<VarintError> for ControlError {
    fn from(source: VarintError) -> Self {
        Self::Record(source)
    }
}

/// What a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Kind of control record.
    pub control: ControlType,
    /// Of an ABORT or COMMIT; −1 otherwise.
    pub coordinator_epoch: i32,
}

/// Reads the marker from the records of an uncompressed control batch.
///
/// `records` is what follows the 61 header bytes, from the first on; the
/// first [`CONTROL_RECORD_BYTES_MAX`] bytes are enough.
///
/// # Errors
///
/// Whatever Kafka, too, would refuse; types that are not known are not an error.
pub fn read_marker(records: &[u8]) -> Result<Marker, ControlError> {
    let mut cursor = Cursor::new(records);
    let _length = cursor.varint()?;
    let _attributes = cursor.u8()?;
    let _timestamp_delta = cursor.varlong()?;
    let _offset_delta = cursor.varint()?;
    let key = cursor.nullable_bytes()?.unwrap_or_default();
    let short = ControlError::Key { key_bytes: key.len() };
    let mut key = Cursor::new(key);
    let (Ok(version), Ok(code)) = (key.i16(), key.i16()) else { return Err(short) };
    if version < 0 {
        return Err(ControlError::Version { version });
    }
    let control = ControlType::from_code(code);
    let coordinator_epoch = match control {
        ControlType::Abort | ControlType::Commit => read_coordinator_epoch(cursor)?,
        ControlType::MirrorPidReset | ControlType::Other(_) => -1,
    };
    Ok(Marker { control, coordinator_epoch })
}

fn read_coordinator_epoch(mut cursor: Cursor<'_>) -> Result<i32, ControlError> {
    let value = cursor.nullable_bytes()?.unwrap_or_default();
    let short = ControlError::Value { value_bytes: value.len() };
    let mut value = Cursor::new(value);
    let version = value.i16().map_err(|_| short)?;
    if version < 0 {
        return Err(ControlError::Version { version });
    }
    value.i32().map_err(|_| short)
}

/// The batch that a transaction coordinator writes when a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTxnMarker {
    /// Offset of the marker.
    pub offset: Offset,
    /// Of the partition's leader.
    pub leader_epoch: LeaderEpoch,
    /// Whose transaction ends.
    pub producer_id: ProducerId,
    /// 32767 is legal.
    pub producer_epoch: ProducerEpoch,
    /// Of the transaction coordinator.
    pub coordinator_epoch: i32,
    /// COMMIT or ABORT.
    pub committed: bool,
    /// When the marker was written.
    pub timestamp: TimestampMs,
}

impl EndTxnMarker {
    /// The whole batch.
    ///
    /// # Errors
    ///
    /// [`BuildError::Offsets`] for an offset that no log has.
    pub fn build(&self) -> Result<Vec<u8>, BuildError> {
        let control = if self.committed { ControlType::Commit } else { ControlType::Abort };
        let key = control_key(control);
        let [a, b, c, d] = self.coordinator_epoch.to_be_bytes();
        let value = [0, 0, a, b, c, d]; // Version 0 before it.
        let mut batch = BatchBuilder::new(self.offset)
            .leader_epoch(self.leader_epoch)
            .producer(self.producer_id, self.producer_epoch, -1)
            .transactional()
            .control();
        batch.push(&NewRecord {
            timestamp: self.timestamp,
            key: Some(&key),
            value: Some(&value),
            headers: &[],
        })?;
        batch.build()
    }
}

/// The key of a control record: version 0 and the type.
pub fn control_key(control: ControlType) -> [u8; 4] {
    let [high, low] = control.code().to_be_bytes();
    [0, 0, high, low]
}

//! The marker in a control batch: which transaction ends and how.
//!
//! A control batch has one record that matters, its first. The key is version
//! and type, two int16; the value of an end-of-transaction marker is its version
//! (int16) and the epoch of the transaction coordinator (int32).

use super::builder::{BatchBuilder, BuildError, NewRecord};
use super::meta::ControlType;
use super::varint::{Cursor, VarintError, put_unsigned};
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

/// The batch that ends a mirror in a partition (KIP-1279): everyone who sees it forgets every
/// producer, so that IDs which the destination gives away mean nobody from the source.
///
/// It belongs to no producer and to no transaction: a broker that does not know the type takes
/// such a batch, and would refuse a marker of a producer that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorPidReset<'a> {
    /// Offset of the record.
    pub offset: Offset,
    /// Of the partition's leader, above every mirrored batch's.
    pub leader_epoch: LeaderEpoch,
    /// Cluster whose producers are forgotten.
    pub source_cluster_id: &'a str,
    /// When it was written.
    pub timestamp: TimestampMs,
}

impl MirrorPidReset<'_> {
    /// The whole batch.
    ///
    /// # Errors
    ///
    /// [`BuildError::Offsets`] for an offset that no log has, [`BuildError::TooLarge`] for a
    /// cluster ID that no field holds.
    pub fn build(&self) -> Result<Vec<u8>, BuildError> {
        let key = control_key(ControlType::MirrorPidReset);
        let mut batch = BatchBuilder::new(self.offset).leader_epoch(self.leader_epoch).control();
        batch.push(&NewRecord {
            timestamp: self.timestamp,
            key: Some(&key),
            value: Some(&self.value()?),
            headers: &[],
        })?;
        batch.build()
    }

    /// `MirrorPidResetRecord`, version 0, flexible: `Version` int16, `SourceClusterId` string.
    fn value(&self) -> Result<Vec<u8>, BuildError> {
        let id = self.source_cluster_id.as_bytes();
        let length = i16::try_from(id.len());
        let length = length.map_err(|_| BuildError::TooLarge { bytes: id.len() })?;
        let mut value = vec![0, 0];
        // A compact string counts itself and one more.
        put_unsigned(&mut value, u64::from(length.unsigned_abs()) + 1);
        value.extend_from_slice(id);
        value.push(0); // No tagged fields.
        Ok(value)
    }
}

/// The key of a control record: version 0 and the type.
pub fn control_key(control: ControlType) -> [u8; 4] {
    let [high, low] = control.code().to_be_bytes();
    [0, 0, high, low]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{BatchWalker, DecodedBatch, WalkLimits};

    fn read(batch: &[u8]) -> crate::records::BatchMeta {
        let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
        let (used, meta) = BatchWalker::new(limits).feed(batch).unwrap();
        assert_eq!(used, batch.len());
        meta.unwrap()
    }

    fn with_crc(parts: &[&[u8]]) -> Vec<u8> {
        let mut batch = parts.concat();
        crate::records::reseal(&mut batch);
        batch
    }

    /// By hand, from the layout of a batch and the schema of the record.
    #[test]
    fn bytes_of_a_reset_are_those_of_the_schema() {
        let reset = MirrorPidReset {
            offset: Offset(0x0102),
            leader_epoch: LeaderEpoch(9),
            source_cluster_id: "src",
            timestamp: TimestampMs(5),
        };
        let want = with_crc(&[
            &[0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 67, 0, 0, 0, 9, 2],
            &[0; 4],                       // CRC
            &[0, 0x20],                    // control, not transactional
            &[0, 0, 0, 0],                 // last offset delta
            &[0, 0, 0, 0, 0, 0, 0, 5],     // base timestamp
            &[0, 0, 0, 0, 0, 0, 0, 5],     // largest timestamp
            &[0xff; 8],                    // producer ID
            &[0xff; 2],                    // producer epoch
            &[0xff; 4],                    // base sequence
            &[0, 0, 0, 1],                 // records
            &[34, 0, 0, 0, 8, 0, 0, 0, 7], // 17 bytes; key: version 0, type 7
            &[14, 0, 0, 4, b's', b'r', b'c', 0, 0],
        ]);
        let batch = reset.build().unwrap();
        assert_eq!(batch, want);
        let meta = read(&batch);
        assert_eq!((meta.control, meta.coordinator_epoch), (Some(ControlType::MirrorPidReset), -1));
        assert!(meta.is_control() && !meta.is_transactional() && !meta.producer_id.is_some());
        let decoded = DecodedBatch::decode(&meta, &batch, 1_000).unwrap();
        let [Ok(record)] = &decoded.records().collect::<Vec<_>>()[..] else { panic!("one record") };
        assert_eq!(record.value, Some(&b"\0\0\x04src\0"[..]));
    }

    #[test]
    fn a_long_cluster_id_has_a_long_length() {
        let id = "x".repeat(200);
        let reset = |id| MirrorPidReset {
            offset: Offset(0),
            leader_epoch: LeaderEpoch(0),
            source_cluster_id: id,
            timestamp: TimestampMs(0),
        };
        let batch = reset(&id).build().unwrap();
        let meta = read(&batch);
        assert_eq!(meta.control, Some(ControlType::MirrorPidReset));
        let decoded = DecodedBatch::decode(&meta, &batch, 1_000).unwrap();
        let record = decoded.records().next().unwrap().unwrap();
        assert_eq!(record.value.unwrap()[..4], [0, 0, 0xc9, 1]);
        let longest = "x".repeat(32_768);
        let refused = reset(&longest).build();
        assert!(matches!(refused, Err(BuildError::TooLarge { bytes: 32_768 })));
    }

    #[test]
    fn bytes_of_an_abort_are_kafkas() {
        let marker = EndTxnMarker {
            offset: Offset(3),
            leader_epoch: LeaderEpoch(9),
            producer_id: ProducerId(77),
            producer_epoch: ProducerEpoch(4),
            coordinator_epoch: 6,
            committed: false,
            timestamp: TimestampMs(5),
        };
        let want = with_crc(&[
            &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 66, 0, 0, 0, 9, 2],
            &[0; 4],
            &[0, 0x30],
            &[0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 5],
            &[0, 0, 0, 0, 0, 0, 0, 5],
            &[0, 0, 0, 0, 0, 0, 0, 77],
            &[0, 4],
            &[0xff; 4],
            &[0, 0, 0, 1],
            &[32, 0, 0, 0, 8, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 6, 0],
        ]);
        assert_eq!(marker.build().unwrap(), want);
    }
}

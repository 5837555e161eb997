//! Producer state on disk: `<offset>.snapshot`.
//!
//! ```text
//! i16 version 1, u32 CRC-32C of all that follows, i32 number of entries, entries:
//! 46 bytes   i64 producer ID, i16 epoch, i32 last sequence, i64 last offset,
//!            i32 offset delta, i64 timestamp, i32 coordinator epoch,
//!            i64 first offset of the open transaction
//! ```
//!
//! Version 1 is the only one that any Kafka has written or reads.

use super::format_error::{FileKind, FormatError, count};
use crate::types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

const FILE: FileKind = FileKind::ProducerSnapshot;
const VERSION: i16 = 1;
/// Version, checksum, number of entries.
const HEAD_BYTES: usize = 10;
const ENTRY_BYTES: usize = 46;

/// What is kept of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// Whose.
    pub producer_id: ProducerId,
    /// Its newest epoch.
    pub producer_epoch: ProducerEpoch,
    /// Last sequence of its last batch; −1 if no batch is known.
    pub last_sequence: i32,
    /// Last offset of its last batch; −1 if no batch is known.
    pub last_offset: Offset,
    /// Last minus first offset of its last batch; 0 if no batch is known.
    pub offset_delta: i32,
    /// Largest timestamp of its last batch or marker.
    pub last_timestamp: TimestampMs,
    /// Of its last marker; −1 if there was none.
    pub coordinator_epoch: i32,
    /// Where its open transaction begins; −1 if none is open.
    pub current_txn_first_offset: Offset,
}

/// Bytes of a snapshot file. Kafka writes entries in no order; here they keep
/// the order given, so that equal states make equal files.
///
/// # Panics
///
/// For more entries than an `i32` can count, which is more than memory holds.
pub fn encode(entries: &[SnapshotEntry]) -> Vec<u8> {
    let mut body = Vec::with_capacity(HEAD_BYTES + entries.len() * ENTRY_BYTES);
    let number = i32::try_from(entries.len()).unwrap_or(i32::MAX);
    assert!(number < i32::MAX, "a table of producers that no file can hold");
    body.extend(VERSION.to_be_bytes());
    body.extend([0; 4]);
    body.extend(number.to_be_bytes());
    for entry in entries {
        body.extend(entry.producer_id.0.to_be_bytes());
        body.extend(entry.producer_epoch.0.to_be_bytes());
        body.extend(entry.last_sequence.to_be_bytes());
        body.extend(entry.last_offset.0.to_be_bytes());
        body.extend(entry.offset_delta.to_be_bytes());
        body.extend(entry.last_timestamp.0.to_be_bytes());
        body.extend(entry.coordinator_epoch.to_be_bytes());
        body.extend(entry.current_txn_first_offset.0.to_be_bytes());
    }
    let (head, covered) = body.split_at_mut(6);
    let (_, checksum) = head.split_at_mut(2);
    checksum.copy_from_slice(&crc32c::crc32c(covered).to_be_bytes());
    body
}

/// Takes the next bytes off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

fn entry(bytes: &mut &[u8]) -> Option<SnapshotEntry> {
    Some(SnapshotEntry {
        producer_id: ProducerId(i64::from_be_bytes(take(bytes)?)),
        producer_epoch: ProducerEpoch(i16::from_be_bytes(take(bytes)?)),
        last_sequence: i32::from_be_bytes(take(bytes)?),
        last_offset: Offset(i64::from_be_bytes(take(bytes)?)),
        offset_delta: i32::from_be_bytes(take(bytes)?),
        last_timestamp: TimestampMs(i64::from_be_bytes(take(bytes)?)),
        coordinator_epoch: i32::from_be_bytes(take(bytes)?),
        current_txn_first_offset: Offset(i64::from_be_bytes(take(bytes)?)),
    })
}

/// Reads a snapshot file. Memory follows the file's length and not its count field.
///
/// # Errors
///
/// [`FormatError`]; Kafka then deletes the file and takes the one before it.
pub fn decode(bytes: &[u8]) -> Result<Vec<SnapshotEntry>, FormatError> {
    let (head_bytes, entry_bytes) = (count(HEAD_BYTES), count(ENTRY_BYTES));
    let length =
        FormatError::Length { file: FILE, bytes: count(bytes.len()), head_bytes, entry_bytes };
    let mut rest = bytes;
    let version = i16::from_be_bytes(take(&mut rest).ok_or_else(|| length.clone())?);
    if version != VERSION {
        let (got, known) = (i64::from(version), i64::from(VERSION));
        return Err(FormatError::Version { file: FILE, got, known });
    }
    let stored = u32::from_be_bytes(take(&mut rest).ok_or_else(|| length.clone())?);
    let computed = crc32c::crc32c(rest);
    if stored != computed {
        return Err(FormatError::Checksum { file: FILE, stored, computed });
    }
    let declared = i32::from_be_bytes(take(&mut rest).ok_or_else(|| length.clone())?);
    if !rest.len().is_multiple_of(ENTRY_BYTES) {
        return Err(length);
    }
    let found = rest.len() / ENTRY_BYTES;
    if usize::try_from(declared) != Ok(found) {
        let (expected, got) = ("as many entries as announced", count(found));
        let got = i64::try_from(got).unwrap_or(i64::MAX);
        let entry = u64::try_from(declared).unwrap_or(0);
        return Err(FormatError::Entry { file: FILE, entry, expected, got });
    }
    let entries = rest.chunks_exact(ENTRY_BYTES).map_while(|mut stored| entry(&mut stored));
    Ok(entries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_entry() -> impl Strategy<Value = SnapshotEntry> {
        let first = (any::<i64>(), any::<i16>(), any::<i32>(), any::<i64>());
        let second = (any::<i32>(), any::<i64>(), any::<i32>(), any::<i64>());
        (first, second).prop_map(
            |((id, epoch, sequence, last), (delta, time, coordinator, txn))| SnapshotEntry {
                producer_id: ProducerId(id),
                producer_epoch: ProducerEpoch(epoch),
                last_sequence: sequence,
                last_offset: Offset(last),
                offset_delta: delta,
                last_timestamp: TimestampMs(time),
                coordinator_epoch: coordinator,
                current_txn_first_offset: Offset(txn),
            },
        )
    }

    fn sample() -> SnapshotEntry {
        SnapshotEntry {
            producer_id: ProducerId(1),
            producer_epoch: ProducerEpoch(2),
            last_sequence: 3,
            last_offset: Offset(4),
            offset_delta: 5,
            last_timestamp: TimestampMs(6),
            coordinator_epoch: 7,
            current_txn_first_offset: Offset(-1),
        }
    }

    #[test]
    fn bytes_are_kafkas() {
        let bytes = encode(&[sample()]);
        let mut want = vec![0; 56];
        (want[1], want[9]) = (1, 1);
        // Last byte of each field: producer ID, epoch, sequence, offset, delta, time, coordinator.
        for (value, at) in (1..=7).zip([17, 19, 23, 31, 35, 43, 47]) {
            want[at] = value;
        }
        want[48..].fill(0xff);
        want[2..6].copy_from_slice(&bytes[2..6]);
        assert_eq!(bytes, want);
        assert_eq!(bytes[2..6], crc32c::crc32c(&bytes[6..]).to_be_bytes());
        assert_eq!(encode(&[]).len(), 10);
        assert_eq!(decode(&encode(&[])), Ok(vec![]));
    }

    #[test]
    fn damage_is_named() {
        let with_checksum = |mut bytes: Vec<u8>| {
            let crc = crc32c::crc32c(&bytes[6..]).to_be_bytes();
            bytes[2..6].copy_from_slice(&crc);
            decode(&bytes).unwrap_err().to_string()
        };
        let mut bytes = encode(&[sample()]);
        bytes.truncate(55);
        assert_eq!(
            with_checksum(bytes),
            "producer snapshot: 55 bytes, want a head of 10 and entries of 46"
        );
        let mut bytes = encode(&[sample()]);
        bytes[9] = 2;
        assert_eq!(
            with_checksum(bytes),
            "producer snapshot, entry 2: want as many entries as announced, got 1"
        );
        let mut bytes = encode(&[sample()]);
        bytes[6] = 0xff;
        assert!(with_checksum(bytes).contains("as many entries as announced"));
        let mut bytes = encode(&[sample()]);
        bytes[1] = 2;
        assert_eq!(
            decode(&bytes).unwrap_err().to_string(),
            "producer snapshot: format version 2, known is 1"
        );
        let mut bytes = encode(&[sample()]);
        bytes[20] ^= 1;
        assert!(matches!(decode(&bytes), Err(FormatError::Checksum { .. })));
        assert!(matches!(decode(&[0, 1, 0]), Err(FormatError::Length { bytes: 3, .. })));
    }

    proptest! {
        #[test]
        fn entries_round_trip(entries in prop::collection::vec(any_entry(), 0..20)) {
            prop_assert_eq!(decode(&encode(&entries)), Ok(entries));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, valid: bool) {
            if valid && bytes.len() >= 6 {
                let crc = crc32c::crc32c(&bytes[6..]).to_be_bytes();
                bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
                bytes[2..6].copy_from_slice(&crc);
            }
            if let Ok(entries) = decode(&bytes) {
                prop_assert_eq!(encode(&entries), bytes);
            }
        }
    }
}

//! Aborted transactions of a segment: `.txnindex`.
//!
//! ```text
//! 34 bytes   i16 version 0, i64 producer ID, i64 first offset, i64 last offset,
//!            i64 last stable offset
//! ```
//!
//! An entry belongs to the segment that holds the abort marker; the transaction may
//! have begun segments before. A segment without aborts has no file.

use super::format_error::{FileKind, FormatError, count};
use crate::types::{Offset, ProducerId};

const FILE: FileKind = FileKind::TxnIndex;
const VERSION: i16 = 0;

/// One aborted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Whose.
    pub producer_id: ProducerId,
    /// First offset of its first batch in the partition.
    pub first_offset: Offset,
    /// Offset of the abort marker.
    pub last_offset: Offset,
    /// Where the log was stable, exclusive, once this transaction had ended: the
    /// start of the oldest transaction still open then, or what follows the marker.
    pub last_stable_offset: Offset,
}

impl AbortedTxn {
    /// Size of an entry.
    pub const BYTES: usize = 34;

    /// As the file holds it.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let fields = [
            self.producer_id.0,
            self.first_offset.0,
            self.last_offset.0,
            self.last_stable_offset.0,
        ];
        let (version, rest) = out.split_at_mut(2);
        version.copy_from_slice(&VERSION.to_be_bytes());
        for (at, field) in rest.chunks_exact_mut(8).zip(fields) {
            at.copy_from_slice(&field.to_be_bytes());
        }
        out
    }
}

/// Reads the file of the segment that begins at `base_offset` and checks it: length,
/// versions, markers inside the segment and rising.
///
/// # Errors
///
/// [`FormatError`]; the file must then be rebuilt from the log.
pub fn decode(base_offset: Offset, bytes: &[u8]) -> Result<Vec<AbortedTxn>, FormatError> {
    if !bytes.len().is_multiple_of(AbortedTxn::BYTES) {
        let (bytes, entry_bytes) = (count(bytes.len()), count(AbortedTxn::BYTES));
        return Err(FormatError::Length { file: FILE, bytes, head_bytes: 0, entry_bytes });
    }
    let mut found: Vec<AbortedTxn> = Vec::with_capacity(bytes.len() / AbortedTxn::BYTES);
    for (index, stored) in bytes.chunks_exact(AbortedTxn::BYTES).enumerate() {
        let wrong = |expected, got| {
            Err(FormatError::Entry { file: FILE, entry: count(index), expected, got })
        };
        let Some((version, fields)) = stored.split_first_chunk::<2>() else { break };
        let version = i16::from_be_bytes(*version);
        if version != VERSION {
            let (got, known) = (i64::from(version), i64::from(VERSION));
            return Err(FormatError::Version { file: FILE, got, known });
        }
        let (fields, _) = fields.as_chunks::<8>();
        let &[producer_id, first, last, stable] = fields else { break };
        let entry = AbortedTxn {
            producer_id: ProducerId(i64::from_be_bytes(producer_id)),
            first_offset: Offset(i64::from_be_bytes(first)),
            last_offset: Offset(i64::from_be_bytes(last)),
            last_stable_offset: Offset(i64::from_be_bytes(stable)),
        };
        if entry.last_offset < base_offset {
            return wrong("a last offset inside the segment", entry.last_offset.0);
        }
        if found.last().is_some_and(|before| before.last_offset >= entry.last_offset) {
            return wrong("a last offset above that of the entry before", entry.last_offset.0);
        }
        found.push(entry);
    }
    Ok(found)
}

/// Length in bytes that a file with these `entries` must be cut to when the log is
/// cut to end at `log_end`, exclusive: transactions whose marker lies at or behind
/// it go, for they are open again.
pub fn bytes_below(entries: &[AbortedTxn], log_end: Offset) -> u64 {
    count(entries.partition_point(|entry| entry.last_offset < log_end) * AbortedTxn::BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(producer_id: i64, first: i64, last: i64, stable: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id: ProducerId(producer_id),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        }
    }

    fn file(entries: &[AbortedTxn]) -> Vec<u8> {
        entries.iter().flat_map(AbortedTxn::encode).collect()
    }

    #[test]
    fn bytes_are_kafkas() {
        let bytes = entry(0x0102, 3, 4, 5).encode();
        let mut want = [0; 34];
        (want[8], want[9], want[17], want[25], want[33]) = (1, 2, 3, 4, 5);
        assert_eq!(bytes, want);
    }

    #[test]
    fn truncation_drops_what_ended_behind_the_end() {
        let entries = [entry(1, 5, 10, 8), entry(2, 8, 20, 21)];
        assert_eq!(bytes_below(&entries, Offset(10)), 0);
        assert_eq!(bytes_below(&entries, Offset(20)), 34);
        assert_eq!(bytes_below(&entries, Offset(21)), 68);
    }

    #[test]
    fn damage_is_named() {
        let check = |bytes: &[u8], message: &str| {
            assert_eq!(decode(Offset(7), bytes).unwrap_err().to_string(), message);
        };
        check(&[0; 35], "transaction index: 35 bytes, want a head of 0 and entries of 34");
        let mut bytes = file(&[entry(1, 5, 10, 8)]);
        bytes[1] = 1;
        check(&bytes, "transaction index: format version 1, known is 0");
        check(
            &file(&[entry(1, 5, 6, 7)]),
            "transaction index, entry 0: want a last offset inside the segment, got 6",
        );
        check(
            &file(&[entry(1, 5, 10, 8), entry(2, 8, 10, 11)]),
            "transaction index, entry 1: want a last offset above that of the entry before, got 10",
        );
    }

    proptest! {
        #[test]
        fn entries_round_trip(
            fields in prop::collection::vec((any::<i64>(), any::<i64>(), 1..9_i64, any::<i64>()), 0..20),
        ) {
            let mut last = 0;
            let entries: Vec<_> = fields
                .into_iter()
                .map(|(id, first, step, stable)| {
                    last += step;
                    entry(id, first, last, stable)
                })
                .collect();
            prop_assert_eq!(decode(Offset(0), &file(&entries)), Ok(entries));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), whole: bool) {
            if whole {
                bytes.truncate(bytes.len() / 34 * 34);
                bytes.chunks_exact_mut(34).for_each(|entry| entry[..2].fill(0));
            }
            if let Ok(entries) = decode(Offset(0), &bytes) {
                prop_assert_eq!(file(&entries), bytes);
            }
        }
    }
}

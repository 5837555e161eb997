//! Target `checkpoints`: which format, and a file of it.

use std::fmt::Debug;

use heliostat_core::config::MirrorConfig;
use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::format_error::FileKind;
use heliostat_core::log::gaps::{self, GapFile};
use heliostat_core::log::index::{IndexEntry, IndexFile, OffsetEntry, TimeEntry};
use heliostat_core::log::meta_properties::MetaProperties;
use heliostat_core::log::names::SegmentFileName;
use heliostat_core::log::{FormatError, checkpoint, producer_snapshot, properties, txn_index};
use heliostat_core::mirror::own_ids;
use heliostat_core::types::Offset;

/// Every small file, each with any bytes: what decodes encodes to the same value, and
/// keeps the rules of its format.
///
/// # Panics
/// When a format breaks its promises: that is what the fuzzer looks for.
pub fn checkpoints(input: &[u8]) {
    let Some((&kind, bytes)) = input.split_first() else { return };
    match kind % 12 {
        0 => {
            if let Some(cache) =
                round_trip(bytes, EpochCache::decode, |it| Some(it.encode().into_bytes()))
            {
                let rises = cache
                    .entries()
                    .is_sorted_by(|a, b| a.epoch < b.epoch && a.start_offset < b.start_offset);
                assert!(rises, "epochs and their starts rise: {cache:?}");
            }
        }
        1 => {
            let file = FileKind::RecoveryPointCheckpoint;
            round_trip(
                bytes,
                |bytes| checkpoint::decode_offsets(file, bytes),
                |it| Some(checkpoint::encode_offsets(file, it).ok()?.into_bytes()),
            );
        }
        2 => {
            round_trip(bytes, checkpoint::decode_partition_metadata, |id| {
                Some(checkpoint::encode_partition_metadata(*id).into_bytes())
            });
        }
        3 => {
            round_trip(bytes, MetaProperties::decode, |it| Some(it.encode().into_bytes()));
        }
        4 => {
            let encode = |it: &Vec<_>| Some(producer_snapshot::encode(it));
            if let Some(entries) = round_trip(bytes, producer_snapshot::decode, encode) {
                assert_eq!(producer_snapshot::encode(&entries), bytes, "one spelling only");
            }
            // Behind the checksum, which a fuzzer cannot guess.
            let sealed = producer_snapshot::encode(&[]);
            let mut sealed = [&sealed, bytes].concat();
            let number = i32::try_from(bytes.len() / 46).unwrap_or(0);
            sealed[6..10].copy_from_slice(&number.to_be_bytes());
            let sum = crc32c::crc32c(&sealed[6..]);
            sealed[2..6].copy_from_slice(&sum.to_be_bytes());
            let is_whole = bytes.len().is_multiple_of(46);
            assert_eq!(producer_snapshot::decode(&sealed).is_ok(), is_whole);
            round_trip(&sealed, producer_snapshot::decode, encode);
        }
        5 => gap_file(bytes),
        6 => {
            let rises =
                |a: &OffsetEntry, b: &OffsetEntry| a.offset < b.offset && a.position < b.position;
            index(bytes, |entry: OffsetEntry, base| entry.encode(base).to_vec(), rises);
        }
        7 => {
            let rises =
                |a: &TimeEntry, b: &TimeEntry| a.timestamp < b.timestamp && a.offset <= b.offset;
            index(bytes, |entry: TimeEntry, base| entry.encode(base).to_vec(), rises);
        }
        8 => {
            let decode = |bytes: &[u8]| txn_index::decode(Offset(0), bytes);
            let encode = |it: &Vec<txn_index::AbortedTxn>| {
                Some(it.iter().flat_map(|entry| entry.encode()).collect())
            };
            if let Some(entries) = round_trip(bytes, decode, encode) {
                assert_eq!(encode(&entries).as_deref(), Some(bytes), "one spelling only");
            }
        }
        9 => {
            round_trip(bytes, own_ids::decode, |it| Some(own_ids::encode(it).into_bytes()));
        }
        10 => {
            let decode = |bytes: &[u8]| properties::parse(FileKind::Configuration, bytes);
            let encode = |it: &Vec<(String, String)>| {
                let lines = it.iter().map(|(key, value)| properties::format_line(key, value));
                Some(lines.flat_map(|line| line.into_bytes().into_iter().chain(*b"\n")).collect())
            };
            round_trip(bytes, decode, encode);
            let _ = MirrorConfig::parse(bytes);
        }
        _ => {
            if let Ok(text) = std::str::from_utf8(bytes)
                && let Some(name) = SegmentFileName::parse(text)
            {
                assert_eq!(name.to_string(), text, "a file by another name");
            }
        }
    }
}

/// Decodes, encodes and decodes again; `encode` may refuse.
fn round_trip<T: Debug + PartialEq>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, FormatError>,
    encode: impl Fn(&T) -> Option<Vec<u8>>,
) -> Option<T> {
    let value = decode(bytes).ok()?;
    if let Some(again) = encode(&value) {
        assert_eq!(decode(&again).as_ref(), Ok(&value), "written otherwise than read");
    }
    Some(value)
}

/// Records are written as they are read, but for reasons that no file of ours holds.
fn gap_file(bytes: &[u8]) {
    let Ok(file) = GapFile::decode(bytes) else { return };
    assert_eq!(u64::try_from(bytes.len()), Ok(file.valid_bytes + file.torn_bytes));
    let valid = usize::try_from(file.valid_bytes).unwrap_or(usize::MAX);
    let whole = GapFile::decode(bytes.get(..valid).unwrap_or_default());
    assert_eq!(whole.map(|whole| whole.records).as_ref(), Ok(&file.records), "cut, it is whole");
    let lines: Vec<_> = file.records.iter().filter_map(|record| record.encode().ok()).collect();
    if lines.len() < file.records.len() {
        return;
    }
    let text = gaps::header() + &lines.concat();
    let again = GapFile::decode(text.as_bytes()).map(|again| again.records).unwrap_or_default();
    assert_eq!(again.len(), file.records.len(), "a record is lost: {text}");
    for (again, record) in again.iter().zip(&file.records) {
        let same = |mut it: gaps::GapRecord| {
            it.reason = "".into();
            it
        };
        assert_eq!(same(again.clone()), same(record.clone()));
        assert_eq!(again.encode(), record.encode());
    }
}

/// Entries rise, each is found by its key, and they are all of the file but its zeros.
fn index<E: IndexEntry<Key: Debug> + Debug + PartialEq>(
    bytes: &[u8],
    encode: impl Fn(E, Offset) -> Vec<u8>,
    rises: impl Fn(&E, &E) -> bool,
) {
    let base = Offset(5);
    let Ok(file) = IndexFile::<E>::parse(base, bytes) else { return };
    let entries: Vec<_> = file.iter().collect();
    assert_eq!(entries.len(), file.len(), "an entry that was checked is gone");
    assert_eq!(file.last(), entries.last().copied());
    assert!(entries.is_sorted_by(rises), "entries rise: {entries:?}");
    let mut again: Vec<u8> = entries.iter().flat_map(|entry| encode(*entry, base)).collect();
    again.resize(again.len() + usize::try_from(file.padding_bytes()).unwrap_or(0), 0);
    assert_eq!(again, bytes, "one spelling only");
    for (index, entry) in entries.iter().enumerate() {
        assert_eq!(file.lookup(entry.key()), *entry, "an entry is not found");
        let below = u64::try_from(index * E::ENTRY_BYTES).unwrap_or(u64::MAX);
        assert!(file.bytes_below(entry.offset()) <= below, "a cut keeps {entry:?}");
    }
}

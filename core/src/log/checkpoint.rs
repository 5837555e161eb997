//! Text files with one offset per line, as Kafka writes them.
//!
//! ```text
//! 0                       version
//! 2                       entries that follow
//! orders 0 4211           topic, partition, offset
//! orders 1 17
//! ```
//!
//! The whole file is replaced at each write, so a file that is cut off in the
//! middle is corruption and not a crash. An empty file means "no entries", as in Kafka.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::format_error::{FileKind, FormatError, count, excerpt, text};
use crate::types::{Offset, TopicId, TopicPartition};

const VERSION: i32 = 0;

/// An offset for each partition of a log dir: recovery points, log start offsets
/// or high watermarks, by the name of the file.
pub type OffsetCheckpoint = BTreeMap<TopicPartition, Offset>;

/// Bytes of an offset checkpoint.
///
/// # Errors
///
/// [`FormatError::Unwritable`] for a topic name that is empty or holds white space.
pub fn encode_offsets(file: FileKind, offsets: &OffsetCheckpoint) -> Result<String, FormatError> {
    let lines = offsets.iter().map(|(at, offset)| (&*at.topic, at.partition, *offset));
    encode_offset_lines(file, lines)
}

/// The same, of topics, partitions and offsets in the order of their names.
///
/// # Errors
///
/// As [`encode_offsets`].
pub fn encode_offset_lines<'a>(
    file: FileKind,
    offsets: impl Iterator<Item = (&'a str, i32, Offset)>,
) -> Result<String, FormatError> {
    let (mut lines, mut count, mut known) = (String::new(), 0_u64, "");
    for (topic, partition, offset) in offsets {
        if topic != known || count == 0 {
            if topic.is_empty() || topic.contains(char::is_whitespace) {
                let expected = "a topic name without white space";
                return Err(FormatError::Unwritable { file, expected, got: excerpt(topic) });
            }
            known = topic;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{topic} {partition} {offset}");
        count += 1;
    }
    Ok(format!("{VERSION}\n{count}\n{lines}"))
}

/// Reads an offset checkpoint back. Of two lines for one partition the later holds, as in Kafka.
///
/// # Errors
///
/// [`FormatError`] with the first line that is wrong.
pub fn decode_offsets(file: FileKind, bytes: &[u8]) -> Result<OffsetCheckpoint, FormatError> {
    let expected = "a topic, a partition and an offset";
    let lines = decode_lines(file, bytes, expected, |line| {
        let mut words = line.split_ascii_whitespace();
        let topic = words.next()?;
        let partition = words.next()?.parse().ok().filter(|partition| *partition >= 0)?;
        let offset = words.next()?.parse().ok()?;
        let at = TopicPartition::new(topic, partition);
        words.next().is_none().then_some((at, Offset(offset)))
    })?;
    Ok(lines.into_iter().collect())
}

/// Version, number of entries, entries.
pub(super) fn encode_lines(lines: impl ExactSizeIterator<Item = String>) -> String {
    let mut out = format!("{VERSION}\n{}\n", lines.len());
    for line in lines {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// Reads what [`encode_lines`] wrote; `parse` says `None` to a line that is not
/// what `expected` names. Memory follows what is there and not what line 2 announces.
pub(super) fn decode_lines<T>(
    file: FileKind,
    bytes: &[u8],
    expected: &'static str,
    mut parse: impl FnMut(&str) -> Option<T>,
) -> Result<Vec<T>, FormatError> {
    let wrong = |line: usize, expected, got: &str| FormatError::Line {
        file,
        line: count(line),
        expected,
        got: excerpt(got),
    };
    let mut lines = text(file, bytes)?.lines();
    let Some(version) = lines.next() else { return Ok(Vec::new()) };
    match version.parse::<i32>() {
        Ok(VERSION) => {}
        Ok(got) => {
            let (got, known) = (i64::from(got), i64::from(VERSION));
            return Err(FormatError::Version { file, got, known });
        }
        Err(_) => return Err(wrong(1, "the format version", version)),
    }
    let Some(declared) = lines.next() else { return Ok(Vec::new()) };
    let entries =
        declared.parse::<u32>().map_err(|_| wrong(2, "the number of entries", declared))?;
    let mut found = Vec::new();
    for (index, line) in lines.enumerate() {
        found.push(parse(line).ok_or_else(|| wrong(index + 3, expected, line))?);
    }
    if count(found.len()) != u64::from(entries) {
        let (declared, found) = (u64::from(entries), count(found.len()));
        return Err(FormatError::Count { file, declared, found });
    }
    Ok(found)
}

/// Bytes of `partition.metadata`. Kafka ends it without a line feed.
pub fn encode_partition_metadata(topic_id: TopicId) -> String {
    let mut out = format!("version: {VERSION}\n");
    // Writing to a string cannot fail.
    let _ = write!(out, "topic_id: {topic_id}");
    out
}

/// Reads the topic ID of `partition.metadata`. Later versions are taken, as in Kafka.
///
/// # Errors
///
/// [`FormatError`] for anything that Kafka refuses, the all-zero ID included.
pub fn decode_partition_metadata(bytes: &[u8]) -> Result<TopicId, FormatError> {
    let file = FileKind::PartitionMetadata;
    let mut lines = text(file, bytes)?.lines();
    let mut value = |number: u64, key: &str, expected: &'static str| {
        let line = lines.next().ok_or(FormatError::Ended { file, line: number, expected })?;
        let value = line.strip_prefix(key).and_then(|rest| {
            let value = rest.strip_prefix(':')?;
            value.starts_with(|c: char| c.is_ascii_whitespace()).then(|| value.trim_ascii_start())
        });
        let wrong = FormatError::Line { file, line: number, expected, got: excerpt(line) };
        value.ok_or_else(|| wrong.clone()).map(|value| (value, wrong))
    };
    let (version, wrong) = value(1, "version", "`version: 0`")?;
    if version.parse::<i32>().is_ok_and(|version| version >= VERSION) {
        let (id, wrong) = value(2, "topic_id", "`topic_id:` and a topic ID that is not all zeros")?;
        id.parse::<TopicId>().ok().and_then(TopicId::known).ok_or(wrong)
    } else {
        Err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    const FILE: FileKind = FileKind::RecoveryPointCheckpoint;

    fn offsets(entries: &[(&str, i32, i64)]) -> OffsetCheckpoint {
        entries.iter().map(|&(t, p, o)| (TopicPartition::new(t, p), Offset(o))).collect()
    }

    #[test]
    fn offsets_are_spelled_as_kafka_spells_them() {
        let at = offsets(&[("orders", 1, 17), ("orders", 0, 4_211), ("a-b", 3, 0)]);
        let bytes = encode_offsets(FILE, &at).unwrap();
        assert_eq!(bytes, "0\n3\na-b 3 0\norders 0 4211\norders 1 17\n");
        assert_eq!(decode_offsets(FILE, bytes.as_bytes()), Ok(at));
        assert_eq!(encode_offsets(FILE, &offsets(&[])).unwrap(), "0\n0\n");
    }

    #[track_caller]
    fn refused(bytes: &str, message: &str) {
        assert_eq!(decode_offsets(FILE, bytes.as_bytes()).unwrap_err().to_string(), message);
    }

    #[test]
    fn errors_name_file_line_and_expectation() {
        let name = "recovery-point-offset-checkpoint";
        let entry = "a topic, a partition and an offset";
        refused("1\n0\n", &format!("{name}: format version 1, known is 0"));
        refused("x\n0\n", &format!("{name}, line 1: want the format version, got \"x\""));
        refused("0\n-1\n", &format!("{name}, line 2: want the number of entries, got \"-1\""));
        refused("0\n1\na 0\n", &format!("{name}, line 3: want {entry}, got \"a 0\""));
        refused("0\n1\na -1 0\n", &format!("{name}, line 3: want {entry}, got \"a -1 0\""));
        refused("0\n1\na 0 1 2\n", &format!("{name}, line 3: want {entry}, got \"a 0 1 2\""));
        refused("0\n2\na 0 1\n", &format!("{name}, line 2: announces 2 entries, 1 follow"));
        refused("0\n1\na 0 1\n\n", &format!("{name}, line 4: want {entry}, got \"\""));
        let bad = decode_offsets(FILE, b"0\n\xff").unwrap_err();
        assert_eq!(bad.to_string(), format!("{name}: byte 2 is not UTF-8 text"));
    }

    #[test]
    fn what_kafka_reads_as_empty_is_empty() {
        for empty in ["", "0\n", "0\n0\n"] {
            assert_eq!(decode_offsets(FILE, empty.as_bytes()), Ok(OffsetCheckpoint::new()));
        }
    }

    #[test]
    fn a_name_that_would_break_the_file_is_not_written() {
        for name in ["", "a b", "a\nb"] {
            assert!(encode_offsets(FILE, &offsets(&[(name, 0, 0)])).is_err(), "{name:?}");
        }
    }

    #[test]
    fn partition_metadata_is_kafkas() {
        let id = TopicId(Uuid::from_u128(1));
        let bytes = encode_partition_metadata(id);
        assert_eq!(bytes, "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(decode_partition_metadata(bytes.as_bytes()), Ok(id));
        let newer = b"version: 2\r\ntopic_id:   AAAAAAAAAAAAAAAAAAAAAQ\nmore: 1\n";
        assert_eq!(decode_partition_metadata(newer), Ok(id));
        for not in [
            "",
            "version: 0",
            "version:0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
            "version: -1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
            "version: 0\ntopic_id: short",
            "topic_id: AAAAAAAAAAAAAAAAAAAAAQ\nversion: 0",
        ] {
            assert!(decode_partition_metadata(not.as_bytes()).is_err(), "{not:?}");
        }
    }

    proptest! {
        #[test]
        fn offsets_round_trip(
            entries in prop::collection::btree_map(
                ("[a-zA-Z0-9._-]{1,12}", 0..100_i32).prop_map(|(t, p)| TopicPartition::new(t, p)),
                any::<i64>().prop_map(Offset),
                0..20,
            ),
        ) {
            let bytes = encode_offsets(FILE, &entries).unwrap();
            prop_assert_eq!(decode_offsets(FILE, bytes.as_bytes()), Ok(entries));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, text in "[0-9a \n:_-]{0,60}") {
            let _ = decode_offsets(FILE, &bytes);
            let _ = decode_offsets(FILE, text.as_bytes());
            let _ = decode_partition_metadata(&bytes);
            let _ = decode_partition_metadata(text.as_bytes());
        }

        #[test]
        fn topic_ids_round_trip(value in 1..u128::MAX) {
            let id = TopicId(Uuid::from_u128(value));
            prop_assert_eq!(decode_partition_metadata(encode_partition_metadata(id).as_bytes()), Ok(id));
        }
    }
}

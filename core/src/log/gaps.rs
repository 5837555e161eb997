//! `mirror-gaps`: what the source no longer had, and what was cut from the copy.
//!
//! A text file of our own at the top of a log dir. It only grows. Fields are
//! separated by tabs:
//!
//! ```text
//! mirror-gaps<TAB>1
//! gap<TAB>orders<TAB>0<TAB>AAAAAAAAAAAAAAAAAAAAAQ<TAB>100<TAB>250<TAB>2026-11-29T20:53:02.125Z<TAB>reason
//! ```
//!
//! A line counts once its line feed is on disk. What follows the last line feed
//! was torn by a crash; it must be cut off before the next line is appended.

use std::sync::Arc;

use super::format_error::{FileKind, FormatError, count, excerpt, text};
use super::utc;
use crate::types::{Offset, TimestampMs, TopicId, TopicPartition};

const FILE: FileKind = FileKind::MirrorGaps;
const NAME: &str = super::names::MIRROR_GAPS;
const VERSION: i64 = 1;
/// A longer reason is cut: the file is read whole.
const REASON_CHARS_MAX: usize = 512;

/// What happened to a range of offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapKind {
    /// The source no longer had it when it was to be copied.
    Gap,
    /// It was in the copy and was cut, for the source's history had changed.
    Truncation,
}

impl GapKind {
    fn word(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Truncation => "truncation",
        }
    }
}

/// One lost or cut range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GapRecord {
    /// What happened.
    pub kind: GapKind,
    /// Where.
    pub partition: TopicPartition,
    /// Of which topic of that name; [`TopicId::NONE`] if the source has no IDs.
    pub topic_id: TopicId,
    /// First offset, inclusive.
    pub from: Offset,
    /// Last offset, exclusive. Above `from`.
    pub to: Offset,
    /// Wall-clock time at which it was noticed.
    pub time: TimestampMs,
    /// One sentence for the operator.
    pub reason: Arc<str>,
}

impl GapRecord {
    /// The record's line, line feed included.
    ///
    /// Control characters of the reason become spaces, and it is cut at 512 characters.
    ///
    /// # Errors
    ///
    /// [`FormatError::Unwritable`] for a topic name that is empty or holds control
    /// characters, and for a range without offsets.
    pub fn encode(&self) -> Result<String, FormatError> {
        let topic = &*self.partition.topic;
        if topic.is_empty() || topic.contains(char::is_control) {
            let expected = "a topic name without control characters";
            return Err(FormatError::Unwritable { file: FILE, expected, got: excerpt(topic) });
        }
        let (from, to) = (self.from, self.to);
        if from >= to {
            let got = format!("{from} to {to}").into_boxed_str();
            let expected = "a range with offsets";
            return Err(FormatError::Unwritable { file: FILE, expected, got });
        }
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let reason: String = self.reason.chars().take(REASON_CHARS_MAX).map(printable).collect();
        let (kind, partition) = (self.kind.word(), self.partition.partition);
        let (id, time) = (self.topic_id, utc::format(self.time));
        Ok(format!("{kind}\t{topic}\t{partition}\t{id}\t{from}\t{to}\t{time}\t{reason}\n"))
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(8, '\t');
        let kind = fields.next()?;
        let kind = [GapKind::Gap, GapKind::Truncation].into_iter().find(|k| k.word() == kind)?;
        let topic = fields.next().filter(|topic| !topic.is_empty())?;
        let partition = TopicPartition::new(topic, fields.next()?.parse().ok()?);
        let topic_id = fields.next()?.parse().ok()?;
        let from = Offset(fields.next()?.parse().ok()?);
        let to = Offset(fields.next()?.parse().ok()?);
        let time = utc::parse(fields.next()?)?;
        let reason = fields.next()?.into();
        (from < to).then_some(Self { kind, partition, topic_id, from, to, time, reason })
    }
}

/// First line of a new file, line feed included.
pub fn header() -> String {
    format!("{NAME}\t{VERSION}\n")
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GapFile {
    /// Oldest first.
    pub records: Vec<GapRecord>,
    /// Length up to and with the last line feed: what the file must be cut to
    /// before it is appended to. 0: begin with [`header`].
    pub valid_bytes: u64,
    /// Bytes behind it, which a crash tore off and which were ignored.
    pub torn_bytes: u64,
}

impl GapFile {
    /// Reads the file; an empty one is one without records.
    ///
    /// # Errors
    ///
    /// [`FormatError`] for a line that is complete and wrong: the file was edited
    /// or damaged, and must not be appended to before a person has looked at it.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let valid = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let (whole, torn) = bytes.split_at(valid);
        let mut it = Self {
            records: Vec::new(),
            valid_bytes: count(whole.len()),
            torn_bytes: count(torn.len()),
        };
        // Not `lines`: a carriage return would be somebody's edit.
        for (line, number) in text(FILE, whole)?.split_terminator('\n').zip(1_u64..) {
            let wrong = |expected| FormatError::Line {
                file: FILE,
                line: number,
                expected,
                got: excerpt(line),
            };
            if number == 1 {
                let version = line.split_once('\t').filter(|(name, _)| *name == NAME);
                let version = version.and_then(|(_, version)| version.parse::<i64>().ok());
                let got = version.ok_or_else(|| wrong("`mirror-gaps` and a version"))?;
                if got != VERSION {
                    return Err(FormatError::Version { file: FILE, got, known: VERSION });
                }
            } else {
                it.records.push(GapRecord::parse(line).ok_or_else(|| {
                    wrong("kind, topic, partition, topic ID, from, to, time, reason")
                })?);
            }
        }
        Ok(it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn record() -> GapRecord {
        GapRecord {
            kind: GapKind::Gap,
            partition: TopicPartition::new("orders", 0),
            topic_id: TopicId(Uuid::from_u128(1)),
            from: Offset(100),
            to: Offset(250),
            time: TimestampMs(1_795_985_582_125),
            reason: "retention at the source was faster".into(),
        }
    }

    const LINE: &str = "gap\torders\t0\tAAAAAAAAAAAAAAAAAAAAAQ\t100\t250\t\
                        2026-11-29T20:53:02.125Z\tretention at the source was faster\n";

    #[test]
    fn lines_are_as_documented() {
        assert_eq!(record().encode().unwrap(), LINE);
        let cut = GapRecord {
            kind: GapKind::Truncation,
            reason: "a\tb\nc".into(),
            topic_id: TopicId::NONE,
            ..record()
        };
        let line = cut.encode().unwrap();
        assert!(line.starts_with("truncation\torders\t0\tAAAAAAAAAAAAAAAAAAAAAA\t"), "{line}");
        assert!(line.ends_with("\ta b c\n"), "{line}");
        let long = GapRecord { reason: "é".repeat(2_000).into(), ..record() };
        assert_eq!(long.encode().unwrap().matches('é').count(), 512);
    }

    #[test]
    fn a_torn_last_line_is_ignored_and_reported() {
        let mut bytes = header() + LINE;
        let valid = bytes.len();
        bytes += &LINE[..30];
        let it = GapFile::decode(bytes.as_bytes()).unwrap();
        assert_eq!(it.records, [record()]);
        assert_eq!((it.valid_bytes, it.torn_bytes), (count(valid), 30));
        // Even one that lacks its line feed only: its reason may go on.
        let it = GapFile::decode((header() + LINE.trim_end()).as_bytes()).unwrap();
        assert_eq!(it.records, []);
        // A tail of zeros, as a file system leaves it, and half a character.
        let mut bytes = header().into_bytes();
        bytes.extend([0, 0, 0xc3]);
        let it = GapFile::decode(&bytes).unwrap();
        assert_eq!((it.valid_bytes, it.torn_bytes), (14, 3));
        assert_eq!(GapFile::decode(b"").unwrap(), GapFile::default());
        assert_eq!(GapFile::decode(b"mirr").unwrap().torn_bytes, 4);
    }

    #[test]
    fn whole_lines_that_are_wrong_are_named() {
        let check = |text: String, message: &str| {
            let error = GapFile::decode(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        };
        let fields = "kind, topic, partition, topic ID, from, to, time, reason";
        check("0\n".into(), "mirror-gaps, line 1: want `mirror-gaps` and a version, got \"0\"");
        check("mirror-gaps\t2\n".into(), "mirror-gaps: format version 2, known is 1");
        for bad in [
            LINE.replacen("gap", "hole", 1),
            LINE.replace("\t250\t", "\t100\t"),
            LINE.replace("\t100\t", "\t100\t\t"),
            LINE.replace("02.125Z", "02Z"),
            LINE.replace("orders", ""),
            "\n".into(),
        ] {
            check(header() + LINE + &bad, &format!("mirror-gaps, line 3: want {fields}, got "));
        }
    }

    #[test]
    fn what_would_break_the_file_is_not_written() {
        let topic = |name: &str| GapRecord { partition: TopicPartition::new(name, 0), ..record() };
        assert!(topic("a\tb").encode().is_err());
        assert!(topic("").encode().is_err());
        assert_eq!(
            GapRecord { to: Offset(100), ..record() }.encode().unwrap_err().to_string(),
            "mirror-gaps: cannot hold \"100 to 100\", want a range with offsets"
        );
    }

    fn any_record() -> impl Strategy<Value = GapRecord> {
        let place = ("[a-zA-Z0-9._-]{1,12}", 0..100_i32, any::<u128>());
        let range = (any::<bool>(), 0..1_000_i64, 1..1_000_i64, 0..4_000_000_000_000_i64);
        (place, range, "\\PC{0,40}").prop_map(
            |((topic, partition, id), (cut, from, len, ms), reason)| GapRecord {
                kind: if cut { GapKind::Truncation } else { GapKind::Gap },
                partition: TopicPartition::new(topic, partition),
                topic_id: TopicId(Uuid::from_u128(id)),
                from: Offset(from),
                to: Offset(from + len),
                time: TimestampMs(ms),
                reason: reason.into(),
            },
        )
    }

    proptest! {
        /// Wherever a crash cuts the file, the whole lines before it survive.
        #[test]
        fn records_survive_a_cut_anywhere(records in prop::collection::vec(any_record(), 0..8), cut: u16) {
            let mut bytes = header().into_bytes();
            let mut ends = vec![bytes.len()];
            for record in &records {
                bytes.extend(record.encode().unwrap().bytes());
                ends.push(bytes.len());
            }
            prop_assert_eq!(&GapFile::decode(&bytes).unwrap().records, &records);
            let cut = usize::from(cut) % (bytes.len() + 1);
            let it = GapFile::decode(&bytes[..cut]).unwrap();
            let whole = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
            prop_assert_eq!(&it.records[..], &records[..whole]);
            prop_assert_eq!(it.valid_bytes + it.torn_bytes, count(cut));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, text in "[a-z0-9\t\n]{0,60}") {
            let _ = GapFile::decode(&bytes);
            let mut file = header().into_bytes();
            file.extend(bytes);
            let _ = GapFile::decode(&file);
            let _ = GapFile::decode((header() + &text).as_bytes());
        }
    }
}

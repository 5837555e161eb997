//! Two batches, or two runs of batches, that are not the same bytes: what differs, and
//! whether a cleaner at the source explains it.

use std::collections::BTreeMap;

use heliostat_core::records::{BatchMeta, DecodedBatch, RecordView};
use heliostat_core::types::{Offset, TimestampMs};

use super::report::Difference;

/// Decompressed records of one batch are not read beyond this.
pub(super) const CONTENT_BYTES_MAX: usize = 1 << 30;
/// Bytes of a value that are shown.
const SHOWN_BYTES: usize = 16;

/// A batch with its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'a> {
    pub(super) meta: &'a BatchMeta,
    pub(super) bytes: &'a [u8],
}

/// What was found in a run of batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The source's cleaner explains it; so many records are in the copy only.
    Cleaned {
        records: u64,
    },
    Different(Difference),
}

/// Fields of a v2 batch: first byte, behind the last, Kafka's name.
const FIELDS: [(usize, usize, &str); 13] = [
    (0, 8, "baseOffset"),
    (8, 12, "batchLength"),
    (12, 16, "partitionLeaderEpoch"),
    (16, 17, "magic"),
    (17, 21, "crc"),
    (21, 23, "attributes"),
    (23, 27, "lastOffsetDelta"),
    (27, 35, "baseTimestamp"),
    (35, 43, "maxTimestamp"),
    (43, 51, "producerId"),
    (51, 53, "producerEpoch"),
    (53, 57, "baseSequence"),
    (57, 61, "records count"),
];
/// The first fields of v0 and v1 messages.
const LEGACY_FIELDS: [(usize, usize, &str); 5] = [
    (0, 8, "offset"),
    (8, 12, "messageSize"),
    (12, 16, "crc"),
    (16, 17, "magic"),
    (17, 18, "attributes"),
];

/// The first difference between the bytes of two batches.
pub(super) fn byte_difference(offset: Offset, copy: &[u8], source: &[u8]) -> Difference {
    let common = copy.iter().zip(source).position(|(a, b)| a != b);
    let at = common.unwrap_or_else(|| copy.len().min(source.len()));
    let is_v2 = source.get(16).is_some_and(|magic| *magic >= 2);
    let fields: &[_] = if is_v2 { &FIELDS } else { &LEGACY_FIELDS };
    let field = fields.iter().find(|(from, to, _)| (*from..*to).contains(&at));
    let (field, copy, source) = match field {
        Some((from, to, name)) => {
            (format!("{name} of the batch"), number(copy, *from, *to), number(source, *from, *to))
        }
        None => (format!("records, byte {at} of the batch"), hex_at(copy, at), hex_at(source, at)),
    };
    Difference { offset: Some(offset), field, copy, source, ..Difference::default() }
}

fn number(bytes: &[u8], from: usize, to: usize) -> String {
    let Some(field) = bytes.get(from..to) else { return "cut off".to_owned() };
    // All but the checksum are signed.
    let is_negative = from != 17 && field.first().is_some_and(|byte| *byte >= 0x80);
    let start = if is_negative { -1_i64 } else { 0 };
    let value = field.iter().fold(start, |value, byte| value << 8 | i64::from(*byte));
    if from == 17 && to == 21 { format!("{value:#010x}") } else { value.to_string() }
}

fn hex_at(bytes: &[u8], at: usize) -> String {
    hex(Some(bytes.get(at..).unwrap_or_default()))
}

/// The start of a value in hexadecimal.
pub(super) fn hex(bytes: Option<&[u8]>) -> String {
    use std::fmt::Write as _;
    let Some(bytes) = bytes else { return "null".to_owned() };
    let mut out = "0x".to_owned();
    for byte in bytes.iter().take(SHOWN_BYTES) {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    if bytes.len() > SHOWN_BYTES {
        let _ = write!(out, "… ({} bytes)", bytes.len());
    } else if bytes.is_empty() {
        return "nothing".to_owned();
    }
    out
}

/// A record with its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    timestamp: TimestampMs,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Kept {
    fn of(record: &RecordView<'_>) -> Self {
        let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let header = |header: heliostat_core::records::RecordHeader<'_>| {
            (header.key.to_vec(), own(header.value))
        };
        Self {
            timestamp: record.timestamp,
            key: own(record.key),
            value: own(record.value),
            headers: record.headers.clone().map(header).collect(),
        }
    }

    /// The first field that differs, with both values.
    fn difference(&self, source: &Self) -> Option<(&'static str, String, String)> {
        if self.timestamp != source.timestamp {
            let show = |timestamp: TimestampMs| timestamp.0.to_string();
            return Some(("timestamp", show(self.timestamp), show(source.timestamp)));
        }
        for (name, copy, source) in
            [("key", &self.key, &source.key), ("value", &self.value, &source.value)]
        {
            let (copy, source) = (copy.as_deref(), source.as_deref());
            if copy != source {
                return Some((name, around(copy, source), around(source, copy)));
            }
        }
        if self.headers != source.headers {
            return Some(("headers", headers(&self.headers), headers(&source.headers)));
        }
        None
    }
}

/// `shown` from a little before the first byte that differs from `other`.
fn around(shown: Option<&[u8]>, other: Option<&[u8]>) -> String {
    let (Some(shown), Some(other)) = (shown, other) else { return hex(shown) };
    let at = shown.iter().zip(other).position(|(a, b)| a != b);
    let at = at.unwrap_or_else(|| shown.len().min(other.len()));
    let text = hex(Some(shown.get(at..).unwrap_or_default()));
    if at == 0 { text } else { format!("{text} at byte {at}") }
}

fn headers(headers: &[(Vec<u8>, Option<Vec<u8>>)]) -> String {
    let one = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| {
        format!("{}={}", String::from_utf8_lossy(key), hex(value.as_deref()))
    };
    format!("[{}]", headers.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Records by offset; `Err` with the reason if a batch cannot be read.
fn records_of(batches: &[Batch<'_>]) -> Result<BTreeMap<Offset, Kept>, String> {
    let mut found = BTreeMap::new();
    for batch in batches {
        let decoded = DecodedBatch::decode(batch.meta, batch.bytes, CONTENT_BYTES_MAX);
        let decoded = decoded.map_err(|error| with_causes(&error))?;
        for record in decoded.records() {
            let record = record.map_err(|error| with_causes(&error))?;
            found.insert(record.offset, Kept::of(&record));
        }
    }
    Ok(found)
}

/// An error and what caused it, on one line.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// First offset that a batch can have a record at. A compressed v0 or v1 message says only
/// its last.
pub(super) fn first_offset(batch: Batch<'_>) -> Offset {
    let is_wrapper = batch.meta.magic < 2 && batch.meta.attributes & 0x07 != 0;
    if is_wrapper && let Ok(records) = records_of(&[batch]) {
        return records.keys().next().copied().unwrap_or(batch.meta.base_offset);
    }
    batch.meta.base_offset
}

/// What a cleaner leaves as it was when it rewrites a batch. Of the attributes that is all but
/// the bit that says what the base timestamp means; a batch that it empties has no codec either.
fn kept_fields(meta: &BatchMeta, is_emptied: bool) -> [(&'static str, i64); 7] {
    let changed = if is_emptied { 0x47 } else { 0x40 };
    [
        ("magic", meta.magic.into()),
        ("partitionLeaderEpoch", meta.leader_epoch.0.into()),
        ("attributes", i64::from(meta.attributes & !changed)),
        ("lastOffset", meta.last_offset.0),
        ("producerId", meta.producer_id.0),
        ("producerEpoch", meta.producer_epoch.0.into()),
        ("baseSequence", meta.base_sequence.into()),
    ]
}

/// Compares runs of batches that cover the same offsets and are not the same bytes.
/// `may_be_cleaned` is `false` if the topic is known not to be compacted; `gap` says
/// whether the copy is known to lack an offset.
pub(super) fn compare(
    copy: &[Batch<'_>],
    source: &[Batch<'_>],
    may_be_cleaned: bool,
    gap: &dyn Fn(Offset) -> bool,
) -> Verdict {
    if let ([copy], [source]) = (copy, source)
        && copy.meta.magic >= 2
        && copy.meta.base_offset == source.meta.base_offset
    {
        let offset = Some(copy.meta.base_offset);
        let is_emptied = source.meta.records_count == 0;
        let kept = |meta| kept_fields(meta, is_emptied).into_iter();
        let pairs = kept(copy.meta).zip(kept(source.meta));
        for ((name, copy), (_, source)) in pairs {
            if copy != source {
                let field = format!("{name} of the batch");
                let (copy, source) = (copy.to_string(), source.to_string());
                let found = Difference { offset, field, copy, source, ..Difference::default() };
                return Verdict::Different(found);
            }
        }
    }
    let first = copy.first().or(source.first()).map_or(Offset::NONE, |b| b.meta.base_offset);
    let (copied, kept) = match (records_of(copy), records_of(source)) {
        (Ok(copied), Ok(kept)) => (copied, kept),
        (copied, kept) => {
            let show = |records: Result<_, String>| records.err().unwrap_or("readable".to_owned());
            return Verdict::Different(match (copy, source) {
                ([copy], [source]) => byte_difference(first, copy.bytes, source.bytes),
                _ => Difference {
                    offset: Some(first),
                    field: "records of the batch".to_owned(),
                    copy: show(copied),
                    source: show(kept),
                    ..Difference::default()
                },
            });
        }
    };
    for (offset, record) in &kept {
        if let Some(found) = record_difference(*offset, copied.get(offset), record, gap) {
            return Verdict::Different(found);
        }
    }
    let lost = copied.keys().filter(|offset| !kept.contains_key(offset));
    let records = u64::try_from(lost.clone().count()).unwrap_or(u64::MAX);
    if !may_be_cleaned && let Some(offset) = lost.clone().next() {
        return Verdict::Different(Difference {
            offset: Some(*offset),
            field: "record".to_owned(),
            copy: "there".to_owned(),
            source: "none".to_owned(),
            meaning: "the source does not have it, though the topic is not compacted".to_owned(),
            ..Difference::default()
        });
    }
    if let ([copy], [source]) = (copy, source)
        && records == 0
        && !horizon_was_set(copy.meta, source.meta)
    {
        return Verdict::Different(byte_difference(first, copy.bytes, source.bytes));
    }
    Verdict::Cleaned { records }
}

/// A first pass of the cleaner changes nothing but this.
fn horizon_was_set(copy: &BatchMeta, source: &BatchMeta) -> bool {
    !copy.has_delete_horizon() && source.has_delete_horizon()
}

fn record_difference(
    offset: Offset,
    copy: Option<&Kept>,
    source: &Kept,
    gap: &dyn Fn(Offset) -> bool,
) -> Option<Difference> {
    let (field, copy, source, meaning) = match copy {
        None if gap(offset) => return None,
        None => {
            let meaning = "the copy lacks it, and knows of no gap there";
            ("record", "none".to_owned(), "there".to_owned(), meaning)
        }
        Some(copy) => {
            let (field, copy, source) = copy.difference(source)?;
            (field, copy, source, "")
        }
    };
    let (field, meaning) = (field.to_owned(), meaning.to_owned());
    Some(Difference { offset: Some(offset), field, copy, source, meaning, place: None })
}

/// Whether the records of a batch whose checksum holds can be read at all.
pub(super) fn unreadable(batch: Batch<'_>) -> Option<String> {
    let decoded = match DecodedBatch::decode(batch.meta, batch.bytes, CONTENT_BYTES_MAX) {
        Ok(decoded) => decoded,
        Err(error) => return Some(with_causes(&error)),
    };
    decoded.records().find_map(|record| record.err().map(|error| with_causes(&error)))
}

#[cfg(test)]
mod tests;

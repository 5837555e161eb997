//! Record batches of format 2.
//!
//! ```text
//! base offset 8 | length 4 | partition leader epoch 4 | magic 1 | CRC 4 | attributes 2 |
//! last offset delta 4 | base timestamp 8 | max timestamp 8 | producer ID 8 | producer epoch 2 |
//! base sequence 4 | record count 4 | records
//! ```
//! The CRC-32C covers everything after itself, so a broker may change the first fields.

/// Transactional bit of the attributes.
pub const TRANSACTIONAL: i16 = 0x10;
/// Control bit of the attributes.
pub const CONTROL: i16 = 0x20;
/// Bit that says the base timestamp is the delete horizon.
pub const DELETE_HORIZON: i16 = 0x40;

const CRC_START: usize = 21;
const LENGTH_END: usize = 12;

/// One record of a forged batch.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ForgedRecord {
    /// Added to the base offset.
    pub offset_delta: i32,
    /// Added to the base timestamp; 64 bits, as the format has them.
    pub timestamp_delta_ms: i64,
    /// Key; `None` is null.
    pub key: Option<Vec<u8>>,
    /// Value; `None` is null.
    pub value: Option<Vec<u8>>,
    /// Headers in order; a value may be null.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl ForgedRecord {
    /// A record with a value, at `offset_delta`.
    pub fn value(offset_delta: i32, value: &[u8]) -> Self {
        Self { offset_delta, value: Some(value.to_vec()), ..Self::default() }
    }

    /// The record as the format has it, its length in front.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = vec![0]; // attributes, unused by the format
        varlong(&mut body, self.timestamp_delta_ms);
        varlong(&mut body, self.offset_delta.into());
        bytes(&mut body, self.key.as_deref());
        bytes(&mut body, self.value.as_deref());
        varlong(&mut body, i64::try_from(self.headers.len()).unwrap_or(i64::MAX));
        for (key, value) in &self.headers {
            bytes(&mut body, Some(key.as_bytes()));
            bytes(&mut body, value.as_deref());
        }
        let mut record = Vec::new();
        varlong(&mut record, i64::try_from(body.len()).unwrap_or(i64::MAX));
        record.extend(body);
        record
    }
}

/// A batch with every header field free. `None` in the last fields means "what is right".
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ForgedBatch {
    /// Offset of delta 0. A produced batch gets the broker's.
    pub base_offset: i64,
    /// Leader epoch. A produced batch gets the broker's.
    pub partition_leader_epoch: i32,
    /// Format; 2 is the only one with this layout.
    pub magic: i8,
    /// Codec in the low three bits, then [`TRANSACTIONAL`], [`CONTROL`], [`DELETE_HORIZON`].
    pub attributes: i16,
    /// Timestamp of delta 0.
    pub base_timestamp_ms: i64,
    /// Largest timestamp; `None` is the largest of the records.
    pub max_timestamp_ms: Option<i64>,
    /// Producer ID; −1 is none.
    pub producer_id: i64,
    /// Producer epoch; −1 is none.
    pub producer_epoch: i16,
    /// Sequence of delta 0; −1 is none.
    pub base_sequence: i32,
    /// The records.
    pub records: Vec<ForgedRecord>,
    /// Bytes in place of the encoded records: compressed ones, or nonsense.
    pub payload: Option<Vec<u8>>,
    /// Length field; `None` is the true one.
    pub length: Option<i32>,
    /// CRC field; `None` is the true one.
    pub crc: Option<u32>,
    /// Delta of the last offset; `None` is the last record's.
    pub last_offset_delta: Option<i32>,
    /// Number of records; `None` counts them.
    pub records_count: Option<i32>,
}

impl ForgedBatch {
    /// A correct, uncompressed batch of one record for each value, without producer. Its
    /// timestamps are of November 2023: a topic with the default retention drops it soon.
    pub fn of(values: &[&[u8]]) -> Self {
        Self::of_records((0..).zip(values).map(|(d, v)| ForgedRecord::value(d, v)).collect())
    }

    /// A correct, uncompressed batch of these records, without producer.
    pub fn of_records(records: Vec<ForgedRecord>) -> Self {
        Self {
            base_offset: 0,
            partition_leader_epoch: 0,
            magic: 2,
            attributes: 0,
            base_timestamp_ms: 1_700_000_000_000,
            max_timestamp_ms: None,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records,
            payload: None,
            length: None,
            crc: None,
            last_offset_delta: None,
            records_count: None,
        }
    }

    /// Names a producer.
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        (self.producer_id, self.producer_epoch, self.base_sequence) = (id, epoch, base_sequence);
        self
    }

    /// Replaces the records' bytes by `compress` of them and sets the codec bits.
    pub fn compressed(mut self, codec: i16, compress: impl FnOnce(&[u8]) -> Vec<u8>) -> Self {
        self.payload = Some(compress(&self.encoded_records()));
        self.attributes = (self.attributes & !0x7) | codec;
        self
    }

    /// The records one after another, uncompressed.
    pub fn encoded_records(&self) -> Vec<u8> {
        self.records.iter().flat_map(ForgedRecord::encode).collect()
    }

    /// The batch as it stands in a log.
    pub fn encode(&self) -> Vec<u8> {
        let last_delta = self.records.last().map_or(-1, |r| r.offset_delta);
        let latest = self.records.iter().map(|r| r.timestamp_delta_ms).max().unwrap_or(0);
        let count = i32::try_from(self.records.len()).unwrap_or(i32::MAX);
        let payload = self.payload.clone().unwrap_or_else(|| self.encoded_records());

        let mut b = Vec::with_capacity(payload.len() + 61);
        b.extend(self.base_offset.to_be_bytes());
        b.extend([0; 4]); // length, below
        b.extend(self.partition_leader_epoch.to_be_bytes());
        b.extend(self.magic.to_be_bytes());
        b.extend([0; 4]); // CRC, below
        b.extend(self.attributes.to_be_bytes());
        b.extend(self.last_offset_delta.unwrap_or(last_delta).to_be_bytes());
        b.extend(self.base_timestamp_ms.to_be_bytes());
        let max = self.max_timestamp_ms.unwrap_or(self.base_timestamp_ms.saturating_add(latest));
        b.extend(max.to_be_bytes());
        b.extend(self.producer_id.to_be_bytes());
        b.extend(self.producer_epoch.to_be_bytes());
        b.extend(self.base_sequence.to_be_bytes());
        b.extend(self.records_count.unwrap_or(count).to_be_bytes());
        b.extend(payload);

        let true_length = i32::try_from(b.len() - LENGTH_END).unwrap_or(i32::MAX);
        b[8..LENGTH_END].copy_from_slice(&self.length.unwrap_or(true_length).to_be_bytes());
        let crc = self.crc.unwrap_or_else(|| crc32c::crc32c(&b[CRC_START..]));
        b[CRC_START - 4..CRC_START].copy_from_slice(&crc.to_be_bytes());
        b
    }
}

/// Size of the first batch of `log` in bytes, by its length field; 0 when there is none.
pub fn size_bytes(log: &[u8]) -> u64 {
    let length = log.get(8..LENGTH_END).and_then(|field| field.try_into().ok());
    length.map_or(0, |field| u64::from(u32::from_be_bytes(field)) + 12)
}

fn bytes(into: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => varlong(into, -1),
        Some(value) => {
            varlong(into, i64::try_from(value.len()).unwrap_or(i64::MAX));
            into.extend(value);
        }
    }
}

/// Zigzag variable-length number; the same bytes for 32 and 64 bits.
fn varlong(into: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    loop {
        let low = u8::try_from(rest & 0x7f).unwrap_or(0);
        rest >>= 7;
        if rest == 0 {
            into.push(low);
            return;
        }
        into.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::records::RecordBatchDecoder;

    use super::*;

    /// The protocol crate, which shares no code with the forge, reads back what went in.
    #[test]
    fn another_decoder_agrees() {
        let mut batch = ForgedBatch::of(&[b"one", b"two"]).producer(900_001, 7, 41);
        batch.base_offset = 1000;
        batch.partition_leader_epoch = 5;
        batch.records[1].timestamp_delta_ms = 1 << 40;
        batch.records[1].key = Some(b"k".to_vec());
        batch.records[1].headers.push(("h".into(), None));

        let set = RecordBatchDecoder::decode(&mut Bytes::from(batch.encode())).unwrap();

        assert_eq!(set.records.len(), 2);
        let last = &set.records[1];
        assert_eq!((last.offset, last.sequence), (1001, 42));
        assert_eq!((last.producer_id, last.producer_epoch), (900_001, 7));
        assert_eq!(last.timestamp, 1_700_000_000_000 + (1 << 40));
        assert_eq!(last.partition_leader_epoch, 5);
        assert_eq!(last.value.as_deref(), Some(&b"two"[..]));
        assert_eq!(last.headers.len(), 1);
    }

    #[test]
    fn forged_fields_stand_where_the_format_has_them() {
        let mut batch = ForgedBatch::of(&[b"x"]);
        batch.crc = Some(0x0102_0304);
        batch.length = Some(0x0506_0708);
        batch.records_count = Some(9);
        batch.last_offset_delta = Some(10);

        let bytes = batch.encode();

        assert_eq!(bytes[8..12], [5, 6, 7, 8]);
        assert_eq!(bytes[17..21], [1, 2, 3, 4]);
        assert_eq!(bytes[23..27], [0, 0, 0, 10]);
        assert_eq!(bytes[57..61], [0, 0, 0, 9]);
    }
}

//! Batches read the plain way, from bytes that are all there: what the walker has to find.
//!
//! Nothing is shared with the walker but the marker's format; the checksums are computed
//! byte by byte from tables of their own.

use heliostat_core::records::{
    CONTROL_RECORD_BYTES_MAX, CRC_V2_FROM, HEADER_V2_BYTES, read_marker,
};

/// Where the checksum of formats 0 and 1 begins to count, behind its own field.
const CRC_LEGACY_FROM: usize = 16;
const CRC32C: [u32; 256] = crc_table(0x82f6_3b78);
const CRC32: [u32; 256] = crc_table(0xedb8_8320);

/// A whole and valid batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainBatch {
    /// Position of its first byte.
    pub(crate) at: usize,
    /// Its length.
    pub(crate) size: usize,
    /// Message format.
    pub(crate) magic: u8,
    /// First offset.
    pub(crate) base: i64,
    /// Last offset, inclusive.
    pub(crate) last: i64,
    /// Largest timestamp; −1 for format 0.
    pub(crate) max_timestamp: i64,
}

impl PlainBatch {
    /// Position behind it.
    pub(crate) fn end(&self) -> usize {
        self.at + self.size
    }
}

/// The batches from the front of `bytes` up to the first that is not whole and valid.
pub(crate) fn plain(bytes: &[u8], size_max: usize, check_crcs: bool) -> Vec<PlainBatch> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(batch) = first(bytes.get(at..).unwrap_or_default(), size_max, check_crcs) {
        found.push(PlainBatch { at, ..batch });
        at += batch.size;
    }
    found
}

fn first(bytes: &[u8], size_max: usize, check_crcs: bool) -> Option<PlainBatch> {
    let batch = cut(bytes).filter(|batch| batch.len() <= size_max)?;
    let (base, magic) = (i64_at(batch, 0)?, *batch.get(16)?);
    let (mut last, mut max_timestamp) = (base, -1);
    let crc_ok = |table, crc_at, from| {
        !check_crcs || u32_at(batch, crc_at) == batch.get(from..).map(|covered| crc(table, covered))
    };
    let is_valid = match magic {
        0 => batch.len() >= 12 + 14 && crc_ok(&CRC32, 12, CRC_LEGACY_FROM),
        1 => {
            max_timestamp = i64_at(batch, 18)?;
            batch.len() >= 12 + 22 && crc_ok(&CRC32, 12, CRC_LEGACY_FROM)
        }
        2 => {
            let delta = i64::from(i32_at(batch, 23)?);
            let count = i64::from(i32_at(batch, 57)?);
            max_timestamp = i64_at(batch, 35)?;
            last = base.checked_add(delta)?;
            delta >= 0
                && (0..=delta + 1).contains(&count)
                && crc_ok(&CRC32C, 17, CRC_V2_FROM)
                && (count == 0 || is_marker_readable(batch))
        }
        _ => false,
    };
    let is_valid = is_valid && base >= 0 && last < i64::MAX;
    is_valid.then_some(PlainBatch { at: 0, size: batch.len(), magic, base, last, max_timestamp })
}

fn is_marker_readable(batch: &[u8]) -> bool {
    let attributes = batch.get(22).copied().unwrap_or(0);
    let body = batch.get(HEADER_V2_BYTES..).unwrap_or_default();
    let kept = body.get(..CONTROL_RECORD_BYTES_MAX).unwrap_or(body);
    attributes & 0x20 == 0 || (attributes % 8 == 0 && read_marker(kept).is_ok())
}

/// The bytes of the first batch by its length field, if they are all there.
fn cut(bytes: &[u8]) -> Option<&[u8]> {
    let length = usize::try_from(i32_at(bytes, 8)?).ok()?;
    bytes.get(..length.checked_add(12)?)
}

/// Puts the right checksum into each batch, as far as lengths lead on: what a fuzzer
/// cannot guess.
pub(crate) fn seal(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(size) = bytes.get(at..).and_then(cut).map(<[u8]>::len) {
        let batch = bytes.get_mut(at..at + size).unwrap_or_default();
        let (crc_at, from, table) = match batch.get(16) {
            Some(2) => (17, CRC_V2_FROM, &CRC32C),
            _ => (12, CRC_LEGACY_FROM, &CRC32),
        };
        let sum = batch.get(from..).map(|covered| crc(table, covered).to_be_bytes());
        if let (Some(field), Some(sum)) = (batch.get_mut(crc_at..crc_at + 4), sum) {
            field.copy_from_slice(&sum);
        }
        at += size;
    }
}

fn i64_at(bytes: &[u8], at: usize) -> Option<i64> {
    bytes.get(at..)?.first_chunk().map(|field| i64::from_be_bytes(*field))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|field| i32::from_be_bytes(*field))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|field| u32::from_be_bytes(*field))
}

fn crc(table: &[u32; 256], bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        table[usize::from(low ^ byte)] ^ (crc >> 8)
    })
}

/// Of the polynomial with its bits reversed.
const fn crc_table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let (mut index, mut start) = (0, 0_u32);
    while index < table.len() {
        let (mut value, mut bit) = (start, 0);
        while bit < 8 {
            value = (value >> 1) ^ if value & 1 == 1 { polynomial } else { 0 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
        start += 1;
    }
    table
}

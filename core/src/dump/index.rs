//! `.index` and `.timeindex`, checked against the log.

use std::io;

use super::log::{facts, with_causes};
use super::{DumpOptions, FileBytes, Findings, Named, Out, as_u64};
use crate::log::index::{OffsetEntry, OffsetIndexFile, TimeEntry, TimeIndexFile};
use crate::records::{BatchMeta, DecodedBatch, HEADER_V2_BYTES, LOG_OVERHEAD_BYTES};

/// Decompressed records of one batch are not read beyond this.
const CONTENT_BYTES_MAX: usize = 1 << 30;

/// Entries of an offset index as stored, signs and order unchecked: absolute offset, position.
/// Ends at the zeros that a broker preallocates.
fn offset_entries(at: Named<'_>, bytes: &[u8]) -> Vec<(i64, i64)> {
    let mut entries = Vec::new();
    for (index, stored) in bytes.chunks_exact(OffsetEntry::BYTES).enumerate() {
        let (relative, position) = (i32_at(stored, 0), i32_at(stored, 4));
        let offset = at.base_offset.0.saturating_add(relative.into());
        // No batch that has an entry begins at position 0.
        if (offset == at.base_offset.0 && index > 0) || (relative == 0 && position == 0) {
            break;
        }
        entries.push((offset, position.into()));
    }
    entries
}

/// Entries of a time index as stored: timestamp, absolute offset.
fn time_entries(at: Named<'_>, bytes: &[u8]) -> Vec<(i64, i64)> {
    let mut entries = Vec::new();
    for (index, stored) in bytes.chunks_exact(TimeEntry::BYTES).enumerate() {
        let relative = i32_at(stored, 8);
        let timestamp = i64::from(i32_at(stored, 0)) << 32 | i64::from(u32_at(stored, 4));
        let is_padding =
            index == 0 && stored.iter().all(|byte| *byte == 0) && bytes.len() > TimeEntry::BYTES;
        if (relative == 0 && index > 0) || is_padding {
            break;
        }
        entries.push((timestamp, at.base_offset.0.saturating_add(relative.into())));
    }
    entries
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
    field.map_or(0, |field| u32::from_be_bytes(*field))
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    u32_at(bytes, at).cast_signed()
}

/// Prints an offset index and checks each entry against `log`, the segment's `.log` file.
///
/// # Errors
///
/// From the system, reading or writing. What is wrong with the file goes into `findings`.
pub fn dump_offset_index(
    at: Named<'_>,
    file: &dyn FileBytes,
    log: &dyn FileBytes,
    options: &DumpOptions,
    out: Out<'_>,
    findings: &mut Findings,
) -> io::Result<()> {
    let bytes = file.read_all()?;
    let entries = offset_entries(at, &bytes);
    if entries.is_empty() {
        return writeln!(out, "{} is empty.", at.shown);
    }
    if options.index_sanity_only {
        let parsed = OffsetIndexFile::parse(at.base_offset, &bytes).map(|_| ());
        return sanity(at, parsed.map_err(|error| with_causes(&error)), out, findings);
    }
    check_length(at, bytes.len(), OffsetEntry::BYTES, findings);
    for (offset, position) in entries {
        match last_offset_at(log, position)? {
            Some((found, _)) if found == offset => {}
            Some((found, _)) => findings.index_mismatch(at.path, offset, found),
            None => findings.damage(format!(
                "{}: entry for offset {offset} points to position {position}, where no batch is",
                at.path
            )),
        }
        if !options.verify_index_only {
            writeln!(out, "offset: {offset} position: {position}")?;
        }
    }
    Ok(())
}

/// Prints a time index and checks each entry against `log`, found through `index`, the
/// segment's `.log` and `.index` files.
///
/// # Errors
///
/// From the system, reading or writing. What is wrong with the file goes into `findings`.
pub fn dump_time_index(
    at: Named<'_>,
    file: &dyn FileBytes,
    index: &dyn FileBytes,
    log: &dyn FileBytes,
    options: &DumpOptions,
    out: Out<'_>,
    findings: &mut Findings,
) -> io::Result<()> {
    let bytes = file.read_all()?;
    if options.index_sanity_only {
        let parsed = TimeIndexFile::parse(at.base_offset, &bytes).map(|_| ());
        return sanity(at, parsed.map_err(|error| with_causes(&error)), out, findings);
    }
    check_length(at, bytes.len(), TimeEntry::BYTES, findings);
    let offsets = offset_entries(at, &index.read_all()?);
    let mut before = -1;
    for (timestamp, offset) in time_entries(at, &bytes) {
        let below = offsets.partition_point(|(indexed, _)| *indexed <= offset);
        let start = below.checked_sub(1).and_then(|index| offsets.get(index));
        let start = start.map_or(0, |(_, position)| *position);
        match find_batch(log, start, offset)? {
            None => findings.not_found(at.path, offset, -1),
            Some((found, _, _)) if found != offset => findings.not_found(at.path, offset, found),
            Some((_, position, size)) => {
                let largest = largest_timestamp(log, position, size)?;
                if largest != Some(timestamp) {
                    findings.timestamp_mismatch(at.path, timestamp, largest.unwrap_or(-1));
                }
                if before >= timestamp {
                    findings.out_of_order(at.path, timestamp, before);
                }
            }
        }
        if !options.verify_index_only {
            writeln!(out, "timestamp: {timestamp} offset: {offset}")?;
        }
        before = timestamp;
    }
    Ok(())
}

fn sanity(
    at: Named<'_>,
    parsed: Result<(), String>,
    out: Out<'_>,
    findings: &mut Findings,
) -> io::Result<()> {
    match parsed {
        Ok(()) => writeln!(out, "{} passed sanity check.", at.shown),
        Err(error) => {
            findings.damage(format!("{} failed sanity check: {error}", at.path));
            Ok(())
        }
    }
}

fn check_length(at: Named<'_>, bytes: usize, entry_bytes: usize, findings: &mut Findings) {
    if !bytes.is_multiple_of(entry_bytes) {
        let left = bytes % entry_bytes;
        findings.damage(format!("{}: {left} bytes behind the last whole entry", at.path));
    }
}

/// Last offset and size of the batch whose header is at `position`.
fn last_offset_at(log: &dyn FileBytes, position: i64) -> io::Result<Option<(i64, u64)>> {
    let Ok(position) = u64::try_from(position) else { return Ok(None) };
    let head = log.read(position, HEADER_V2_BYTES)?;
    let left = log.len().saturating_sub(position);
    let size = u64::from(u32_at(&head, 8)).saturating_add(LOG_OVERHEAD_BYTES.into());
    if head.len() <= 17 || size <= 17 || size > left {
        return Ok(None);
    }
    let offset = i64::from(i32_at(&head, 0)) << 32 | i64::from(u32_at(&head, 4));
    let delta = if head.get(16).is_some_and(|magic| *magic >= 2) { i32_at(&head, 23) } else { 0 };
    Ok(Some((offset.saturating_add(delta.into()), size)))
}

/// The first batch from `position` on that ends with `offset` or behind it: last offset,
/// position, size.
fn find_batch(
    log: &dyn FileBytes,
    position: i64,
    offset: i64,
) -> io::Result<Option<(i64, u64, u64)>> {
    let Ok(mut position) = u64::try_from(position) else { return Ok(None) };
    while let Some((last, size)) = last_offset_at(log, position.try_into().unwrap_or(-1))? {
        if last >= offset {
            return Ok(Some((last, position, size)));
        }
        position = position.saturating_add(size);
    }
    Ok(None)
}

/// As the records have it; as the header has it where there are none.
fn largest_timestamp(log: &dyn FileBytes, position: u64, size: u64) -> io::Result<Option<i64>> {
    let bytes = log.read(position, usize::try_from(size).unwrap_or(usize::MAX))?;
    let Ok((meta, _)) = facts(&bytes) else { return Ok(None) };
    if as_u64(bytes.len()) != size || meta.records_count == 0 {
        return Ok(Some(meta.max_timestamp.0));
    }
    Ok(largest_of(&meta, &bytes))
}

fn largest_of(meta: &BatchMeta, bytes: &[u8]) -> Option<i64> {
    let decoded = DecodedBatch::decode(meta, bytes, CONTENT_BYTES_MAX).ok()?;
    let records: Result<Vec<i64>, _> =
        decoded.records().map(|record| record.map(|record| record.timestamp.0)).collect();
    records.ok()?.into_iter().max()
}

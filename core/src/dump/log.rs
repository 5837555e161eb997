//! `.log`: batches and their records.

use std::io;

use super::decoded::{Decoded, decode};
use super::{DumpOptions, FileBytes, Findings, Named, Out, as_u64, optional};
use crate::metadata::control::{LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord};
use crate::protocol::mirror::decode as decode_message;
use crate::protocol::mirror::field::Field;
use crate::protocol::mirror::json::Json;
use crate::records::{
    BatchMeta, BatchWalker, Compression, ControlType, DecodedBatch, HEADER_V2_BYTES,
    LOG_OVERHEAD_BYTES, RecordError, RecordView, WalkLimits,
};

/// Decompressed records of one batch are not read beyond this.
const CONTENT_BYTES_MAX: usize = 1 << 30;
/// A batch is not looked for in fewer bytes: offset, length, four more, magic.
const MAGIC_END: u64 = 17;
/// Smallest length field that any format has.
const LENGTH_MIN: u32 = 14;
/// Zeros are looked for in such steps.
const ZERO_STEP: usize = 1 << 20;

/// Prints a segment's batches, and its records if asked.
///
/// # Errors
///
/// From the system, reading or writing. What is wrong with the file goes into `findings`.
pub fn dump_log(
    at: Named<'_>,
    file: &dyn FileBytes,
    options: &DumpOptions,
    out: Out<'_>,
    findings: &mut Findings,
) -> io::Result<()> {
    writeln!(out, "Log starting offset: {}", at.base_offset)?;
    let mut dump = LogDump { at, file, options, findings, position: 0, last_offset: None };
    while let Some(batch) = dump.next_batch(out)? {
        dump.batch(&batch, out)?;
    }
    Ok(())
}

/// A batch's place, its facts and its bytes.
struct Batch<'a> {
    position: u64,
    meta: BatchMeta,
    is_valid: bool,
    bytes: std::borrow::Cow<'a, [u8]>,
}

struct LogDump<'a> {
    at: Named<'a>,
    file: &'a dyn FileBytes,
    options: &'a DumpOptions,
    findings: &'a mut Findings,
    position: u64,
    /// Of the record before.
    last_offset: Option<i64>,
}

/// Facts of a whole batch, and whether its checksum holds.
pub(super) fn facts(bytes: &[u8]) -> Result<(BatchMeta, bool), RecordError> {
    let walk = |check_crcs| {
        let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs };
        let fed = BatchWalker::new(limits).feed(bytes);
        // The length says where the batch ends, so a batch that does not end is none.
        fed.map(|(_, meta)| meta)
    };
    match walk(true) {
        Ok(Some(meta)) => Ok((meta, true)),
        Ok(None) => Err(RecordError::ZeroTail),
        Err(error @ RecordError::CrcMismatch { .. }) => match walk(false) {
            Ok(Some(meta)) => Ok((meta, false)),
            Ok(None) => Err(error),
            Err(deeper) => Err(deeper),
        },
        Err(error) => Err(error),
    }
}

impl<'a> LogDump<'a> {
    /// The batch at the position, which moves behind it; `None` at the end of the log.
    fn next_batch(&mut self, out: Out<'_>) -> io::Result<Option<Batch<'a>>> {
        loop {
            let position = self.position;
            let left = self.file.len().saturating_sub(position);
            if left == 0 {
                return Ok(None);
            }
            let head = self.file.read(position, HEADER_V2_BYTES)?;
            let length = head.get(8..12).and_then(|field| <[u8; 4]>::try_from(field).ok());
            let length = u32::from_be_bytes(length.unwrap_or_default());
            let size = u64::from(length).saturating_add(LOG_OVERHEAD_BYTES.into());
            let is_whole = left >= MAGIC_END && size <= left;
            if left >= MAGIC_END && length < LENGTH_MIN || length > i32::MAX.unsigned_abs() {
                self.bad_length(length, out)?;
                return Ok(None);
            }
            if !is_whole {
                self.cut_off(left, out)?;
                return Ok(None);
            }
            let bytes = self.file.read(position, usize::try_from(size).unwrap_or(usize::MAX))?;
            let facts = facts(&bytes);
            let is_sound = matches!(facts, Ok((_, true)));
            if !is_sound && self.options.is_live && self.is_zero_from(position + size)? {
                writeln!(out, "Last batch at position {position} is being written")?;
                return Ok(None);
            }
            self.position = position.saturating_add(size);
            match facts {
                Ok((meta, is_valid)) => return Ok(Some(Batch { position, meta, is_valid, bytes })),
                Err(error) => {
                    let path = self.at.path;
                    self.findings.damage(format!("{path}, position {position}: {error}"));
                }
            }
        }
    }

    /// Zeros to the end of the file are its preallocated tail.
    fn bad_length(&mut self, length: u32, out: Out<'_>) -> io::Result<()> {
        let (position, path) = (self.position, self.at.path);
        let left = self.file.len().saturating_sub(position);
        if self.is_zero_from(position)? {
            let name = self.at.name;
            return writeln!(out, "Found {left} preallocated bytes at the end of {name}");
        }
        self.findings.damage(format!(
            "{path}, position {position}: length {length} is below the smallest of a batch; what \
             follows, {left} bytes, cannot be read"
        ));
        Ok(())
    }

    fn cut_off(&mut self, left: u64, out: Out<'_>) -> io::Result<()> {
        let (position, name) = (self.position, self.at.name);
        if self.is_zero_from(position)? {
            return writeln!(out, "Found {left} preallocated bytes at the end of {name}");
        }
        if self.options.is_live {
            return writeln!(out, "Last batch at position {position} is being written");
        }
        self.findings.complaint();
        writeln!(out, "Found {left} invalid bytes at the end of {name}")
    }

    fn is_zero_from(&self, from: u64) -> io::Result<bool> {
        let mut at = from;
        while at < self.file.len() {
            let bytes = self.file.read(at, ZERO_STEP)?;
            if bytes.is_empty() {
                break;
            }
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at = at.saturating_add(as_u64(bytes.len()));
        }
        Ok(true)
    }

    fn batch(&mut self, batch: &Batch<'_>, out: Out<'_>) -> io::Result<()> {
        if !batch.is_valid {
            self.findings.complaint();
        }
        let line = batch_line(&batch.meta, batch.position, batch.is_valid);
        writeln!(out, "{line}")?;
        if self.options.deep_iteration || self.options.print_data {
            self.records(batch, out)?;
        }
        Ok(())
    }

    fn records(&mut self, batch: &Batch<'_>, out: Out<'_>) -> io::Result<()> {
        let (position, path) = (batch.position, self.at.path);
        let unreadable = |error: &dyn std::error::Error| {
            format!("{path}, position {position}: {}", with_causes(error))
        };
        let decoded = match DecodedBatch::decode(&batch.meta, &batch.bytes, CONTENT_BYTES_MAX) {
            Ok(decoded) => decoded,
            Err(error) => {
                self.findings.damage(unreadable(&error));
                return Ok(());
            }
        };
        for record in decoded.records() {
            match record {
                Ok(record) => self.record(&batch.meta, &record, out)?,
                Err(error) => self.findings.damage(unreadable(&error)),
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        meta: &BatchMeta,
        record: &RecordView<'_>,
        out: Out<'_>,
    ) -> io::Result<()> {
        let offset = record.offset.0;
        if let Some(before) = self.last_offset.replace(offset)
            && before.checked_add(1) != Some(offset)
        {
            self.findings.jump(self.at.path, before, offset);
        }
        let mut prefix = "| ";
        if !self.options.skip_record_metadata {
            print_metadata(meta, record, out)?;
            prefix = " ";
        }
        if self.options.print_data && !meta.is_control() {
            let Decoded { key, payload, damage } = decode(self.options.decoder, record);
            if let Some(key) = key {
                write!(out, "{prefix}key: {key}")?;
                prefix = " ";
            }
            if let Some(payload) = payload {
                write!(out, "{prefix}payload: {payload}")?;
            }
            if let Some(damage) = damage {
                self.findings.damage(format!("{}, {damage}", self.at.path));
            }
        }
        writeln!(out)
    }
}

/// Control records of a quorum's log and of its snapshots, in the version that is known here.
fn quorum_record(control: ControlType, value: &[u8]) -> Option<String> {
    fn shown<M: Field + Json>(name: &str, value: &[u8]) -> Option<String> {
        // All of them begin with their version.
        let message = value.starts_with(&[0, 0]).then(|| decode_message::<M>(value).ok())??;
        let mut out = name.to_owned();
        message.json(&mut out);
        Some(out)
    }
    match control.code() {
        2 => shown::<LeaderChangeMessage>("LeaderChange: ", value),
        3 => shown::<SnapshotHeaderRecord>("SnapshotHeader ", value),
        4 => shown::<SnapshotFooterRecord>("SnapshotFooter ", value),
        _ => None,
    }
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

fn batch_line(meta: &BatchMeta, position: u64, is_valid: bool) -> String {
    let head = if meta.magic >= 2 {
        let horizon = meta.has_delete_horizon().then_some(meta.base_timestamp.0);
        format!(
            "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} \
             producerId: {} producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} \
             isControl: {} deleteHorizonMs: {}",
            meta.base_offset,
            meta.last_offset,
            meta.records_count,
            meta.base_sequence,
            meta.last_sequence(),
            meta.producer_id,
            meta.producer_epoch,
            meta.leader_epoch,
            meta.is_transactional(),
            meta.is_control(),
            optional(horizon),
        )
    } else {
        format!("offset: {}", meta.last_offset)
    };
    format!(
        "{head} position: {position} {}: {} size: {} magic: {} compresscodec: {} crc: {} \
         isvalid: {is_valid}",
        timestamp_type(meta),
        meta.max_timestamp.0,
        meta.size_bytes,
        meta.magic,
        codec(meta.compression()),
        meta.crc,
    )
}

fn timestamp_type(meta: &BatchMeta) -> &'static str {
    match meta.magic {
        0 => "NoTimestampType",
        _ if meta.is_log_append_time() => "LogAppendTime",
        _ => "CreateTime",
    }
}

fn codec(compression: Compression) -> String {
    match compression {
        Compression::None => "none".to_owned(),
        Compression::Gzip => "gzip".to_owned(),
        Compression::Snappy => "snappy".to_owned(),
        Compression::Lz4 => "lz4".to_owned(),
        Compression::Zstd => "zstd".to_owned(),
        Compression::Unknown(code) => format!("unknown({code})"),
    }
}

fn size_of(bytes: Option<&[u8]>) -> i64 {
    bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX))
}

fn print_metadata(meta: &BatchMeta, record: &RecordView<'_>, out: Out<'_>) -> io::Result<()> {
    write!(
        out,
        "| offset: {} {}: {} keySize: {} valueSize: {}",
        record.offset,
        timestamp_type(meta),
        record.timestamp.0,
        size_of(record.key),
        size_of(record.value),
    )?;
    if meta.magic >= 2 {
        write!(out, " sequence: {} headerKeys: [", record.sequence)?;
        for (index, header) in record.headers.clone().enumerate() {
            let between = if index > 0 { "," } else { "" };
            write!(out, "{between}{}", String::from_utf8_lossy(header.key))?;
        }
        write!(out, "]")?;
    }
    if let Some(crc) = record.crc {
        write!(out, " isValid: true crc: {crc}")?;
    }
    if meta.is_control() {
        print_control(meta, record.value.unwrap_or_default(), out)?;
    }
    Ok(())
}

fn print_control(meta: &BatchMeta, value: &[u8], out: Out<'_>) -> io::Result<()> {
    let epoch = meta.coordinator_epoch;
    match meta.control {
        Some(ControlType::Abort) => write!(out, " endTxnMarker: ABORT coordinatorEpoch: {epoch}"),
        Some(ControlType::Commit) => {
            write!(out, " endTxnMarker: COMMIT coordinatorEpoch: {epoch}")
        }
        Some(control) => {
            if let Some(text) = quorum_record(control, value) {
                return write!(out, " {text}");
            }
            let name = match control.code() {
                2 => "LEADER_CHANGE",
                3 => "SNAPSHOT_HEADER",
                4 => "SNAPSHOT_FOOTER",
                5 => "KRAFT_VERSION",
                6 => "KRAFT_VOTERS",
                _ => "UNKNOWN",
            };
            write!(out, " controlType: {name}({})", control.code())
        }
        None => Ok(()),
    }
}

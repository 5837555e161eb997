//! Splits a stream of bytes into batches and verifies each.
//!
//! The same walker reads a Fetch response off a socket and a segment file in
//! recovery. Bytes come in pieces of any size and are not collected: the header
//! is kept (with a control batch, the start of its record too), the rest is only
//! counted and run through the checksum.
//!
//! ```text
//!           12 bytes         17 bytes             18, 26 or 61 bytes
//!   Length ----------> Magic ----------> Header --------------------> Body --> next batch
//! ```
//!
//! The first 17 bytes mean the same in all formats (offset, length, four bytes,
//! magic), so formats may alternate within a run.
//!
//! Invariant: what [`BatchWalker::feed`] returns as a batch was there to its last
//! byte and its checksum held. Continuity of offsets and epochs is the log's business.

use super::batch_header::{
    BatchHeader, CRC_V2_FROM, HEADER_V2_BYTES, LENGTH_V2_MIN, MAGIC_V2, check_offsets, size_bytes,
};
use super::control::{CONTROL_RECORD_BYTES_MAX, ControlError, read_marker};
use super::error::RecordError;
use super::legacy_header::{
    CRC_LEGACY_FROM, HEADER_V0_BYTES, HEADER_V1_BYTES, LENGTH_V0_MIN, LENGTH_V1_MIN, legacy_meta,
};
use super::meta::BatchMeta;
use crate::types::Offset;

/// Where the common part of all formats ends: behind the magic.
const MAGIC_END: usize = 17;
const MAGIC_AT: usize = 16;
const LENGTH_END: usize = 12;
const KEPT_BYTES: usize = HEADER_V2_BYTES + CONTROL_RECORD_BYTES_MAX;

/// What a [`BatchWalker`] takes and checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkLimits {
    /// Largest batch in bytes, inclusive, leading offset and length fields
    /// included. The walker holds no batch in memory; the limit is for its owner.
    pub batch_bytes_max: u32,
    /// Whether checksums are computed. `false` is for measuring only.
    pub check_crcs: bool,
}

/// Which part of a batch is being collected, or counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Offset and length.
    Length,
    /// What lies between length and magic, and the magic.
    Magic,
    /// The rest of the fixed header.
    Header,
    /// Everything behind the header.
    Body,
}

/// Streaming verifier of a run of batches in mixed formats.
///
/// Memory is fixed: nothing is allocated, whatever the bytes claim.
#[derive(Clone, Debug)]
pub struct BatchWalker {
    limits: WalkLimits,
    /// The first bytes of the batch under way: header, control record.
    kept: [u8; KEPT_BYTES],
    /// Valid bytes of `kept`.
    kept_len: usize,
    /// Bytes of `kept` at which `part` is complete.
    kept_goal: usize,
    part: Part,
    /// Bytes of the batch that have been consumed.
    seen_bytes: u32,
    /// Of the whole batch; `None` until the length field is there.
    size_bytes: Option<u32>,
    /// Over what has been consumed; CRC-32C or CRC-32 by the magic.
    crc: u32,
    /// Once the header is complete.
    meta: Option<BatchMeta>,
    /// The end of the walk, repeated until `reset`.
    failed: Option<RecordError>,
}

impl BatchWalker {
    /// A walker at the start of a batch.
    pub fn new(limits: WalkLimits) -> Self {
        Self {
            limits,
            kept: [0; KEPT_BYTES],
            kept_len: 0,
            kept_goal: LENGTH_END,
            part: Part::Length,
            seen_bytes: 0,
            size_bytes: None,
            crc: 0,
            meta: None,
            failed: None,
        }
    }

    /// Consumes from the front of `bytes` until a batch completes or the bytes end.
    ///
    /// Returns how many bytes were consumed and the batch, if its last byte was
    /// among them. Without a batch everything was consumed.
    ///
    /// # Errors
    ///
    /// What is wrong with the batch under way. There is no way to go on behind
    /// it, so the same error comes back until [`reset`](Self::reset).
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<BatchMeta>), RecordError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.kept_len == 0
            && let Some((used, meta)) = self.whole(bytes)
        {
            return Ok((used, Some(meta)));
        }
        self.advance(bytes).inspect_err(|&error| self.failed = Some(error))
    }

    /// The batch at the front of `bytes`, if all of it is there and all is well: nothing is kept
    /// of it then. What is wrong with another one, the pieces tell.
    #[inline]
    fn whole(&self, bytes: &[u8]) -> Option<(usize, BatchMeta)> {
        let (header, _) = BatchHeader::view(bytes)?;
        let size_bytes = header.size_bytes();
        let batch = bytes.get(..usize::try_from(size_bytes).ok()?)?;
        if header.check().is_err() || size_bytes > self.limits.batch_bytes_max {
            return None;
        }
        let meta = header.to_meta();
        // A marker is read from the record, which is kept.
        let checked = || crc32c::crc32c(batch.get(CRC_V2_FROM..).unwrap_or_default()) == meta.crc;
        (!meta.is_control() && (!self.limits.check_crcs || checked()))
            .then_some((batch.len(), meta))
    }

    /// Facts of the batch under way, once its header is complete.
    ///
    /// Not verified: the checksum stands for nothing before the last byte, and
    /// the marker of a control batch is not read yet.
    pub fn current(&self) -> Option<&BatchMeta> {
        self.meta.as_ref()
    }

    /// Bytes of the unfinished batch seen so far; 0 between batches.
    pub fn pending_bytes(&self) -> u64 {
        u64::from(self.seen_bytes)
    }

    /// Bytes that the unfinished batch still lacks; `None` until its length is known.
    pub fn remaining_bytes(&self) -> Option<u64> {
        self.size_bytes.map(|size| u64::from(size.saturating_sub(self.seen_bytes)))
    }

    /// Drops the unfinished batch, or the error, and expects a new batch: for
    /// the cut-off last batch of a fetch.
    pub fn reset(&mut self) {
        self.kept_len = 0;
        self.kept_goal = LENGTH_END;
        self.part = Part::Length;
        self.seen_bytes = 0;
        self.size_bytes = None;
        self.crc = 0;
        self.meta = None;
        self.failed = None;
    }

    fn advance(&mut self, bytes: &[u8]) -> Result<(usize, Option<BatchMeta>), RecordError> {
        let mut rest = bytes;
        while self.part != Part::Body {
            rest = self.keep(rest, self.kept_goal);
            if self.kept_len < self.kept_goal {
                return Ok((bytes.len(), None));
            }
            match self.part {
                Part::Length => self.on_length()?,
                Part::Magic => self.on_magic()?,
                Part::Header | Part::Body => self.on_header()?,
            }
        }
        rest = self.consume_body(rest);
        if self.remaining_bytes() != Some(0) {
            return Ok((bytes.len(), None));
        }
        let meta = self.finish()?;
        Ok((bytes.len().saturating_sub(rest.len()), meta))
    }

    /// Moves bytes to `kept` until it holds `goal` of them; returns the others.
    fn keep<'a>(&mut self, bytes: &'a [u8], goal: usize) -> &'a [u8] {
        let room = self.kept.get_mut(self.kept_len..goal).unwrap_or_default();
        let (taken, rest) = bytes.split_at(room.len().min(bytes.len()));
        let (room, _) = room.split_at_mut(taken.len());
        room.copy_from_slice(taken);
        self.kept_len += taken.len();
        self.count(taken.len());
        rest
    }

    fn count(&mut self, bytes: usize) {
        // Never more than `size_bytes`, which is a u32.
        self.seen_bytes = self.seen_bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    fn kept(&self) -> &[u8] {
        self.kept.get(..self.kept_len).unwrap_or_default()
    }

    fn offset(&self) -> Offset {
        Offset(self.kept().first_chunk().map_or(-1, |bytes| i64::from_be_bytes(*bytes)))
    }

    fn length(&self) -> i32 {
        let field = self.kept().get(8..).and_then(<[u8]>::first_chunk);
        field.map_or(-1, |bytes| i32::from_be_bytes(*bytes))
    }

    fn on_length(&mut self) -> Result<(), RecordError> {
        let (base_offset, length) = (self.offset(), self.length());
        if base_offset == Offset::ZERO && length == 0 {
            return Err(RecordError::ZeroTail);
        }
        self.check_length(LENGTH_V0_MIN)?;
        let size_bytes = size_bytes(length);
        let size_bytes_max = self.limits.batch_bytes_max;
        if size_bytes > size_bytes_max {
            return Err(RecordError::BatchTooLarge { base_offset, size_bytes, size_bytes_max });
        }
        check_offsets(base_offset, 0)?;
        self.size_bytes = Some(size_bytes);
        self.part = Part::Magic;
        self.kept_goal = MAGIC_END;
        Ok(())
    }

    fn check_length(&self, length_min: i32) -> Result<(), RecordError> {
        let length = self.length();
        if length < length_min {
            let base_offset = self.offset();
            return Err(RecordError::LengthTooSmall { base_offset, length, length_min });
        }
        Ok(())
    }

    fn on_magic(&mut self) -> Result<(), RecordError> {
        let magic = self.kept().get(MAGIC_AT).copied().unwrap_or(u8::MAX);
        let (length_min, goal) = match magic {
            0 => (LENGTH_V0_MIN, HEADER_V0_BYTES),
            1 => (LENGTH_V1_MIN, HEADER_V1_BYTES),
            MAGIC_V2 => (LENGTH_V2_MIN, HEADER_V2_BYTES),
            _ => return Err(RecordError::UnknownMagic { base_offset: self.offset(), magic }),
        };
        // Each minimum covers its header, so the header never reaches into the next batch.
        self.check_length(length_min)?;
        self.part = Part::Header;
        self.kept_goal = goal;
        Ok(())
    }

    fn on_header(&mut self) -> Result<(), RecordError> {
        let (meta, crc_from) = if let Some((header, _)) =
            BatchHeader::view(self.kept()).filter(|(header, _)| header.magic() == MAGIC_V2)
        {
            header.check()?;
            (Some(header.to_meta()), CRC_V2_FROM)
        } else {
            (legacy_meta(self.kept()).transpose()?, CRC_LEGACY_FROM)
        };
        assert!(meta.is_some(), "a complete header has its facts");
        self.meta = meta;
        self.part = Part::Body;
        self.crc = self.crc_over(0, self.kept().get(crc_from..).unwrap_or_default());
        Ok(())
    }

    fn is_v2(&self) -> bool {
        self.meta.as_ref().is_some_and(|meta| meta.magic == MAGIC_V2)
    }

    /// `crc` continued over `bytes`; `crc` itself if checksums are off.
    fn crc_over(&self, crc: u32, bytes: &[u8]) -> u32 {
        if !self.limits.check_crcs {
            crc
        } else if self.is_v2() {
            crc32c::crc32c_append(crc, bytes)
        } else {
            let mut hasher = crc32fast::Hasher::new_with_initial(crc);
            hasher.update(bytes);
            hasher.finalize()
        }
    }

    /// Runs the batch's own bytes through the checksum; returns the others.
    fn consume_body<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let left = usize::try_from(self.remaining_bytes().unwrap_or(0)).unwrap_or(usize::MAX);
        let (own, rest) = bytes.split_at(left.min(bytes.len()));
        self.crc = self.crc_over(self.crc, own);
        let behind = if self.meta.as_ref().is_some_and(BatchMeta::is_control) {
            self.keep(own, KEPT_BYTES)
        } else {
            own
        };
        self.count(behind.len());
        rest
    }

    /// Checks the complete batch and makes ready for the next.
    fn finish(&mut self) -> Result<Option<BatchMeta>, RecordError> {
        let Some(mut meta) = self.meta else { return Ok(None) };
        let base_offset = meta.base_offset;
        if self.limits.check_crcs && self.crc != meta.crc {
            let (stored, computed) = (meta.crc, self.crc);
            return Err(RecordError::CrcMismatch { base_offset, stored, computed });
        }
        // The cleaner empties control batches too; nothing is left to read then.
        if meta.is_control() && meta.records_count > 0 {
            let codec = meta.attributes & 0x07;
            let marker = if codec == 0 {
                read_marker(self.kept().get(HEADER_V2_BYTES..).unwrap_or_default())
            } else {
                Err(ControlError::Compressed { codec })
            };
            let marker = marker.map_err(|source| RecordError::Control { base_offset, source })?;
            meta.control = Some(marker.control);
            meta.coordinator_epoch = marker.coordinator_epoch;
        }
        self.reset();
        Ok(Some(meta))
    }
}

#[cfg(test)]
mod tests;

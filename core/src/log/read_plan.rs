//! Which bytes of which segment answer a read.
//!
//! The index gives a position near the offset, batch headers from there the exact
//! one. A read stays within one segment, starts at a whole batch and may end in
//! the middle of one, as a broker's does: readers drop a cut-off last batch.

use crate::types::Offset;

/// Bytes that one look at batch headers reads.
const SCAN_BYTES: usize = 4096;
/// Offset, length, epoch or CRC, magic: enough to tell the format.
const HEAD_BYTES: usize = 17;
/// Up to and with the last offset delta of a v2 batch.
const HEAD_V2_BYTES: usize = 27;
/// The two leading fields, which the length does not count.
const OVERHEAD_BYTES: u64 = 12;

/// A segment and how many bytes of it count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentExtent {
    /// Base offset: its name.
    pub base: Offset,
    /// Bytes of whole batches; a preallocated tail is not part of it.
    pub len: u64,
}

/// Positional reads of segments, named by their base offset.
pub trait SegmentRead {
    /// Why a read failed.
    type Error;

    /// Position of the last indexed batch at or below `target`; 0 if there is none.
    ///
    /// # Errors
    /// The implementation's.
    fn index_floor(&mut self, segment: Offset, target: Offset) -> Result<u64, Self::Error>;

    /// Fills `into` from `position` on as far as the file goes, and says how far.
    ///
    /// # Errors
    /// The implementation's.
    fn read_at(
        &mut self,
        segment: Offset,
        position: u64,
        into: &mut [u8],
    ) -> Result<usize, Self::Error>;
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// First offset, inclusive.
    pub from: Offset,
    /// Readable end, exclusive. A batch that reaches past it is not read.
    pub to: Offset,
    /// End of the log: with `to == log_end` no end has to be looked for.
    pub log_end: Offset,
    /// Bytes at most.
    pub bytes_max: u64,
    /// Take the first batch whole even if it is larger.
    pub first_batch_whole: bool,
}

/// Bytes that answer a read; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRun {
    /// The segment.
    pub segment: Offset,
    /// Where in it.
    pub position: u64,
    /// How many bytes.
    pub len: u64,
    /// Base offset of the first batch; may be below the wanted offset.
    pub first_base: Offset,
    /// No batch of the run reaches this offset.
    pub end_bound: Offset,
}

/// What comes of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPlan {
    /// These bytes.
    Run(ReadRun),
    /// Nothing is readable there, or not even the first batch fits. What later segments hold
    /// would leave something out.
    Nothing,
    /// All of these segments end below the wanted offset: the next ones may have it.
    Beyond,
}

/// Why a read cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum ReadPlanError<E> {
    /// The disk refused.
    #[error("segment {segment} cannot be read")]
    Read {
        /// The segment.
        segment: Offset,
        /// Why.
        #[source]
        source: E,
    },
    /// What stands at a batch's place is no batch.
    #[error("segment {segment} holds no batch at position {position}")]
    Corrupt {
        /// The segment.
        segment: Offset,
        /// Where in it.
        position: u64,
    },
}

/// Where a batch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// Where in the segment.
    pub position: u64,
    /// Whole size in bytes.
    pub size: u64,
    /// First offset; for formats 0 and 1 the stored one.
    pub base_offset: Offset,
    /// Last offset, inclusive.
    pub last_offset: Offset,
}

/// Plans a read over `segments`, which rise by base offset.
///
/// # Errors
///
/// [`ReadPlanError`] of the segments touched.
pub fn plan_read<R: SegmentRead>(
    segments: &[SegmentExtent],
    request: &ReadRequest,
    reader: &mut R,
) -> Result<ReadPlan, ReadPlanError<R::Error>> {
    if request.from >= request.to {
        return Ok(ReadPlan::Nothing);
    }
    let at_or_below = segments.partition_point(|segment| segment.base <= request.from);
    let candidates = segments.get(at_or_below.saturating_sub(1)..).unwrap_or_default();
    for (index, segment) in candidates.iter().enumerate() {
        if segment.base >= request.to {
            return Ok(ReadPlan::Nothing);
        }
        // Compaction may have taken all that is at or behind the offset: look further.
        let Some(first) = locate(*segment, request.from, reader)? else { continue };
        let next_base = candidates.get(index + 1).map_or(request.log_end, |next| next.base);
        let end = if request.to >= next_base {
            segment.len
        } else {
            locate(*segment, request.to, reader)?.map_or(segment.len, |batch| batch.position)
        };
        let bytes_max = if request.first_batch_whole {
            request.bytes_max.max(first.size)
        } else {
            request.bytes_max
        };
        // A cut-off first batch would be of no use to anybody.
        let fits = first.size <= bytes_max && first.position + first.size <= end;
        if !fits {
            return Ok(ReadPlan::Nothing);
        }
        return Ok(ReadPlan::Run(ReadRun {
            segment: segment.base,
            position: first.position,
            len: bytes_max.min(end - first.position),
            first_base: first.base_offset,
            end_bound: request.to.min(next_base),
        }));
    }
    Ok(ReadPlan::Beyond)
}

/// The first batch of `segment` that reaches `offset`, `None` if all end below it.
///
/// # Errors
///
/// [`ReadPlanError`] of the segment.
pub fn locate<R: SegmentRead>(
    segment: SegmentExtent,
    offset: Offset,
    reader: &mut R,
) -> Result<Option<BatchPlace>, ReadPlanError<R::Error>> {
    let position = reader
        .index_floor(segment.base, offset)
        .map_err(|source| ReadPlanError::Read { segment: segment.base, source })?;
    let mut scan = BatchScan::new(segment, position);
    while let Some(batch) = scan.next(reader)? {
        if batch.last_offset >= offset {
            return Ok(Some(batch));
        }
    }
    Ok(None)
}

/// Walks the batch headers of one segment. Each step reads at most one small piece.
#[derive(Debug)]
pub struct BatchScan {
    segment: SegmentExtent,
    position: u64,
    buffer: Vec<u8>,
    /// Position of the buffer's first byte.
    buffer_at: u64,
}

impl BatchScan {
    /// A scan from `position`, where a batch must begin.
    pub fn new(segment: SegmentExtent, position: u64) -> Self {
        Self { segment, position, buffer: Vec::new(), buffer_at: 0 }
    }

    /// The next batch, `None` at the end of the segment.
    ///
    /// # Errors
    ///
    /// [`ReadPlanError`] of the segment.
    pub fn next<R: SegmentRead>(
        &mut self,
        reader: &mut R,
    ) -> Result<Option<BatchPlace>, ReadPlanError<R::Error>> {
        if self.position >= self.segment.len {
            return Ok(None);
        }
        let position = self.position;
        let corrupt = ReadPlanError::Corrupt { segment: self.segment.base, position };
        let head = self.head(reader)?;
        let Some(batch) = parse_head(head, position) else { return Err(corrupt) };
        if position + batch.size > self.segment.len {
            return Err(corrupt);
        }
        self.position = position + batch.size;
        Ok(Some(batch))
    }

    /// The bytes at the position, as many as a header needs if they are there.
    fn head<R: SegmentRead>(&mut self, reader: &mut R) -> Result<&[u8], ReadPlanError<R::Error>> {
        let held = |buffer_at: u64, position: u64| {
            position.checked_sub(buffer_at).and_then(|skip| usize::try_from(skip).ok())
        };
        let enough = held(self.buffer_at, self.position)
            .is_some_and(|skip| self.buffer.len() >= skip.saturating_add(HEAD_V2_BYTES));
        if !enough {
            self.buffer.resize(SCAN_BYTES, 0);
            let read = reader
                .read_at(self.segment.base, self.position, &mut self.buffer)
                .map_err(|source| ReadPlanError::Read { segment: self.segment.base, source })?;
            self.buffer.truncate(read);
            self.buffer_at = self.position;
        }
        let skip = held(self.buffer_at, self.position).unwrap_or(usize::MAX);
        Ok(self.buffer.get(skip..).unwrap_or_default())
    }
}

fn parse_head(head: &[u8], position: u64) -> Option<BatchPlace> {
    let base_offset = Offset(i64::from_be_bytes(*head.first_chunk()?));
    let length = i32::from_be_bytes(*head.get(8..)?.first_chunk()?);
    let magic = *head.get(HEAD_BYTES - 1)?;
    // Behind the length: four bytes of epoch or CRC and the magic, at least.
    let size = u64::try_from(length).ok().filter(|&length| length >= 5)? + OVERHEAD_BYTES;
    let last_offset = if magic >= 2 {
        let delta = i32::from_be_bytes(*head.get(HEAD_V2_BYTES - 4..)?.first_chunk()?);
        base_offset.plus(i64::from(delta.max(0)))
    } else {
        base_offset
    };
    Some(BatchPlace { position, size, base_offset, last_offset })
}

#[cfg(test)]
mod tests;

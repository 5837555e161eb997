//! Reads whole response bodies of the control path.
//!
//! Codecs that are generated from Kafka's schemas allocate what a count says
//! before its elements are there. Here every count is held against the bytes
//! that are left, so a broken peer costs no more memory than it sent.

use uuid::Uuid;

use super::wire::{DecodeError, Reader, to_usize, utf8};
use crate::types::TopicId;

/// A response body in the encoding of one version.
#[derive(Debug)]
pub(super) struct Body<'a> {
    reader: Reader<'a>,
    flexible: bool,
}

impl<'a> Body<'a> {
    pub(super) fn new(bytes: &'a [u8], flexible: bool) -> Self {
        Self { reader: Reader::new(bytes), flexible }
    }

    pub(super) fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        Ok(self.reader.i8(field)? != 0)
    }

    pub(super) fn i8(&mut self, field: &'static str) -> Result<i8, DecodeError> {
        self.reader.i8(field)
    }

    pub(super) fn i16(&mut self, field: &'static str) -> Result<i16, DecodeError> {
        self.reader.i16(field)
    }

    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.reader.i32(field)
    }

    pub(super) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.reader.i64(field)
    }

    pub(super) fn topic_id(&mut self, field: &'static str) -> Result<TopicId, DecodeError> {
        self.reader.u128(field).map(|id| TopicId(Uuid::from_u128(id)))
    }

    /// `None` for null.
    pub(super) fn nullable_str(
        &mut self,
        field: &'static str,
    ) -> Result<Option<&'a str>, DecodeError> {
        if self.flexible {
            return self.reader.compact_str(field);
        }
        match self.reader.i16(field)? {
            -1 => Ok(None),
            len => {
                let len = u64::try_from(len)
                    .map_err(|_| DecodeError::Negative { field, got: i64::from(len) })?;
                utf8(self.reader.take(len, field)?, field).map(Some)
            }
        }
    }

    pub(super) fn str(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        self.nullable_str(field)?.ok_or(DecodeError::Null { field })
    }

    /// Reads an array by `element`, which consumes `element_bytes_min` at least; null is empty.
    pub(super) fn array<T>(
        &mut self,
        field: &'static str,
        element_bytes_min: u64,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = if self.flexible {
            self.reader.compact_len(field)?.unwrap_or(0)
        } else {
            match self.reader.i32(field)? {
                -1 => 0,
                len => u32::try_from(len)
                    .map_err(|_| DecodeError::Negative { field, got: i64::from(len) })?,
            }
        };
        let (need, left) = (u64::from(count) * element_bytes_min, self.reader.left());
        if need > left {
            return Err(DecodeError::PastFrame { field, need, left });
        }
        // An element in memory can be some times larger than on the wire, so the
        // first allocation is small and growth follows what was read.
        let mut out = Vec::with_capacity(to_usize(u64::from(count.min(64))));
        for _ in 0..count {
            out.push(element(self)?);
        }
        Ok(out)
    }

    /// Skips the tagged fields at the end of a struct, where the version has them.
    pub(super) fn tags(&mut self, field: &'static str) -> Result<(), DecodeError> {
        if self.flexible { self.reader.skip_tagged(field) } else { Ok(()) }
    }

    /// The end of the outermost struct: its tagged fields, and nothing behind.
    pub(super) fn finish(mut self) -> Result<(), DecodeError> {
        self.tags("tagged fields of the response")?;
        match self.reader.left() {
            0 => Ok(()),
            left => Err(DecodeError::FrameNotConsumed { left }),
        }
    }
}

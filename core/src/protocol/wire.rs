//! Reads primitives of the Kafka protocol from a slice, with errors that name the field.

/// What a peer must not send. Every variant names the field; a connection on
/// which one occurred has lost its place and must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The size in front of a message is impossible, or above the configured limit.
    #[error("message of {got} bytes: between {min} and {max} are accepted")]
    FrameSize {
        /// Size that the peer announced.
        got: i64,
        /// Smallest response of the API and version, in bytes.
        min: u64,
        /// Configured limit in bytes, inclusive.
        max: u64,
    },
    /// The field, with what must follow it, does not fit into the rest.
    #[error("{field} needs {need} bytes, {left} are left")]
    PastFrame {
        /// The field.
        field: &'static str,
        /// Bytes that the field and its obligatory followers take.
        need: u64,
        /// Bytes of the message after the field's own length.
        left: u64,
    },
    /// The message goes on after its last field.
    #[error("{left} bytes after the last field")]
    FrameNotConsumed {
        /// Bytes left over.
        left: u64,
    },
    /// A length or number that is negative where only 0 and more are allowed.
    #[error("{field} is {got}, must not be negative")]
    Negative {
        /// The field.
        field: &'static str,
        /// Its value.
        got: i64,
    },
    /// A null where the schema allows none.
    #[error("{field} is null")]
    Null {
        /// The field.
        field: &'static str,
    },
    /// More elements, or a longer value, than configured.
    #[error("{field}: {got} is above the limit of {max}")]
    AboveLimit {
        /// The field.
        field: &'static str,
        /// Count or length that the peer announced.
        got: u64,
        /// Configured limit, inclusive.
        max: u64,
    },
    /// A variable-length number that does not end, or does not fit into 32 bits.
    #[error("{field}: variable-length number does not fit into 32 bits")]
    Varint {
        /// The field.
        field: &'static str,
    },
    /// Text that is not UTF-8.
    #[error("{field} is not UTF-8 at byte {at}")]
    Utf8 {
        /// The field.
        field: &'static str,
        /// Index of the first wrong byte within the text.
        at: u64,
    },
    /// A tagged field whose content is shorter than its announced size.
    #[error("{field}: {used} of {size} bytes used")]
    TaggedSize {
        /// The field.
        field: &'static str,
        /// Announced size in bytes.
        size: u64,
        /// Bytes that its content took.
        used: u64,
    },
    /// A port outside 0 to 65535.
    #[error("port of a broker is {got}")]
    Port {
        /// Its value.
        got: i32,
    },
    /// A tagged field that occurs twice in one struct.
    #[error("{field} occurs twice")]
    Repeated {
        /// The field.
        field: &'static str,
    },
}

/// Length of a slice as the number that errors carry.
pub(crate) fn len64(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// A `u64` as an index; saturates on targets where it does not fit.
pub(crate) fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The text in `bytes`.
pub(crate) fn utf8<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = u64::try_from(error.valid_up_to()).unwrap_or(u64::MAX);
        DecodeError::Utf8 { field, at }
    })
}

/// An unsigned varint that arrives byte by byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Varint {
    value: u64,
    shift: u32,
}

impl Varint {
    /// Takes one byte; the value once it was the last.
    pub(crate) fn push(
        &mut self,
        byte: u8,
        field: &'static str,
    ) -> Result<Option<u32>, DecodeError> {
        self.value |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        if byte & 0x80 != 0 {
            // The fifth byte is the last that 32 bits can need.
            return if self.shift < 35 { Ok(None) } else { Err(DecodeError::Varint { field }) };
        }
        let value = u32::try_from(self.value).map_err(|_| DecodeError::Varint { field })?;
        *self = Self::default();
        Ok(Some(value))
    }
}

/// Consumes a slice from the front.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Bytes not read yet.
    pub(crate) fn left(&self) -> u64 {
        len64(self.bytes)
    }

    /// What has not been read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn take(&mut self, n: u64, field: &'static str) -> Result<&'a [u8], DecodeError> {
        match self.bytes.split_at_checked(to_usize(n)) {
            Some((head, rest)) => {
                self.bytes = rest;
                Ok(head)
            }
            None => Err(DecodeError::PastFrame { field, need: n, left: self.left() }),
        }
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        if let Some((head, rest)) = self.bytes.split_first_chunk::<N>() {
            self.bytes = rest;
            return Ok(*head);
        }
        let need = u64::try_from(N).unwrap_or(u64::MAX);
        Err(DecodeError::PastFrame { field, need, left: self.left() })
    }

    pub(crate) fn i8(&mut self, field: &'static str) -> Result<i8, DecodeError> {
        self.array(field).map(i8::from_be_bytes)
    }

    pub(crate) fn i16(&mut self, field: &'static str) -> Result<i16, DecodeError> {
        self.array(field).map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.array(field).map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.array(field).map(i64::from_be_bytes)
    }

    pub(crate) fn u128(&mut self, field: &'static str) -> Result<u128, DecodeError> {
        self.array(field).map(u128::from_be_bytes)
    }

    pub(crate) fn varint(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let mut varint = Varint::default();
        loop {
            let [byte] = self.array(field)?;
            if let Some(value) = varint.push(byte, field)? {
                return Ok(value);
            }
        }
    }

    /// A compact length (value plus one on the wire); `None` for null.
    pub(crate) fn compact_len(&mut self, field: &'static str) -> Result<Option<u32>, DecodeError> {
        self.varint(field).map(|value| value.checked_sub(1))
    }

    /// A compact string; `None` for null.
    pub(crate) fn compact_str(
        &mut self,
        field: &'static str,
    ) -> Result<Option<&'a str>, DecodeError> {
        match self.compact_len(field)? {
            None => Ok(None),
            Some(len) => utf8(self.take(u64::from(len), field)?, field).map(Some),
        }
    }

    /// Skips the tagged fields at the end of a struct.
    pub(crate) fn skip_tagged(&mut self, field: &'static str) -> Result<(), DecodeError> {
        // Each field takes two bytes at least, so the slice bounds the loop.
        for _ in 0..self.varint(field)? {
            self.varint(field)?;
            let size = self.varint(field)?;
            self.take(u64::from(size), field)?;
        }
        Ok(())
    }
}

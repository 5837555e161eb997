//! Zigzag variable-length integers, and the cursor that reads records with them.

/// Why no number or slice could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VarintError {
    /// The bytes end too early.
    #[error("bytes end too early")]
    Short,
    /// More continuation bytes than the type has room for, or bits above it.
    #[error("variable-length number is too long")]
    TooLong,
    /// A length is negative where there is no null.
    #[error("negative length {0}")]
    NegativeLength(i32),
}

/// Reads from the front of borrowed bytes; never past their end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `count` bytes.
    pub(super) fn slice(&mut self, count: usize) -> Result<&'a [u8], VarintError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(VarintError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], VarintError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(VarintError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, VarintError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(super) fn i16(&mut self) -> Result<i16, VarintError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(super) fn i32(&mut self) -> Result<i32, VarintError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// A zigzag varint of up to 5 bytes.
    pub(super) fn varint(&mut self) -> Result<i32, VarintError> {
        // Java reads 32 bits and drops what lies above; a fifth byte with more
        // bits than fit is written by nobody, so it is refused.
        let raw = u32::try_from(self.raw(5)?).map_err(|_| VarintError::TooLong)?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// A zigzag varlong of up to 10 bytes.
    pub(super) fn varlong(&mut self) -> Result<i64, VarintError> {
        let raw = self.raw(10)?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    fn raw(&mut self, bytes_max: u32) -> Result<u64, VarintError> {
        let mut value = 0_u64;
        for index in 0..bytes_max {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            let shift = 7 * index;
            if shift == 63 && bits > 1 {
                return Err(VarintError::TooLong);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(VarintError::TooLong)
    }

    /// Bytes behind a varint length; −1 is null.
    pub(super) fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, VarintError> {
        match self.varint()? {
            -1 => Ok(None),
            length => self.slice(length_of(length)?).map(Some),
        }
    }

    /// Bytes behind an int32 length; −1 is null. Legacy messages have these.
    pub(super) fn nullable_bytes_i32(&mut self) -> Result<Option<&'a [u8]>, VarintError> {
        match self.i32()? {
            -1 => Ok(None),
            length => self.slice(length_of(length)?).map(Some),
        }
    }
}

/// A length that must not be negative.
pub(super) fn length_of(length: i32) -> Result<usize, VarintError> {
    usize::try_from(length).map_err(|_| VarintError::NegativeLength(length))
}

/// Appends `value` as a zigzag varint.
pub(super) fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_varlong(out, i64::from(value));
}

/// Appends `value` as a zigzag varlong; for small values the bytes are those of a varint.
pub(super) fn put_varlong(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Appends `value` as an unsigned varint, of which messages' lengths and tags are made.
pub(crate) fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(value: i64, bytes: &[u8]) {
        let mut out = Vec::new();
        put_varlong(&mut out, value);
        assert_eq!(out, bytes, "encoding of {value}");
        assert_eq!(Cursor::new(bytes).varlong(), Ok(value));
        if let Ok(small) = i32::try_from(value) {
            assert_eq!(Cursor::new(bytes).varint(), Ok(small));
        }
    }

    #[test]
    fn small_and_extreme_numbers_have_kafkas_bytes() {
        check(0, &[0]);
        check(-1, &[1]);
        check(1, &[2]);
        check(-64, &[0x7f]);
        check(64, &[0x80, 0x01]);
        check(i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]);
        check(i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]);
        check(i64::MAX, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        check(i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    }

    #[test]
    fn numbers_without_end_are_refused() {
        assert_eq!(Cursor::new(&[0x80; 4]).varint(), Err(VarintError::Short));
        assert_eq!(Cursor::new(&[0x80; 5]).varint(), Err(VarintError::TooLong));
        assert_eq!(
            Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint(),
            Err(VarintError::TooLong)
        );
        assert_eq!(Cursor::new(&[0x80; 11]).varlong(), Err(VarintError::TooLong));
        let above = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02];
        assert_eq!(Cursor::new(&above).varlong(), Err(VarintError::TooLong));
    }

    proptest! {
        #[test]
        fn numbers_round_trip(value: i64, small: i32) {
            let mut out = Vec::new();
            put_varlong(&mut out, value);
            put_varint(&mut out, small);
            let mut cursor = Cursor::new(&out);
            prop_assert_eq!(cursor.varlong(), Ok(value));
            prop_assert_eq!(cursor.varint(), Ok(small));
            prop_assert!(cursor.is_empty());
        }
    }
}

//! Puts primitives together from pieces of a response, and keeps count of it.

use crate::protocol::wire::{DecodeError, Varint, len64, to_usize};

/// Widest fixed part that is read in one step: a partition's leading fields.
const SMALL: usize = 32;

/// Bytes of a primitive that has arrived only in part, and what the response has left.
///
/// Every method takes from the front of `input` and answers `None` when that is
/// used up before the primitive is complete.
#[derive(Debug)]
pub(super) struct Pieces {
    /// Bytes of the response that have not been taken yet.
    pub(super) frame_left: u64,
    small: [u8; SMALL],
    small_len: usize,
    varint: Varint,
    long: Vec<u8>,
}

impl Pieces {
    pub(super) fn new() -> Self {
        let (small, small_len) = ([0; SMALL], 0);
        Self { frame_left: 0, small, small_len, varint: Varint::default(), long: Vec::new() }
    }

    /// Whether `need` more bytes fit into the response.
    pub(super) fn fits(&self, field: &'static str, need: u64) -> Result<(), DecodeError> {
        let left = self.frame_left;
        if need <= left { Ok(()) } else { Err(DecodeError::PastFrame { field, need, left }) }
    }

    /// Moves up to `want` bytes from `input`; `want` was checked against the response.
    fn advance<'a>(&mut self, input: &mut &'a [u8], want: usize) -> &'a [u8] {
        let (head, rest) = input.split_at(want.min(input.len()));
        *input = rest;
        self.frame_left -= len64(head);
        head
    }

    /// `N` bytes, at most [`SMALL`].
    pub(super) fn fixed<const N: usize>(
        &mut self,
        input: &mut &[u8],
        field: &'static str,
    ) -> Result<Option<[u8; N]>, DecodeError> {
        const { assert!(N <= SMALL) };
        if self.small_len == 0 {
            self.fits(field, u64::try_from(N).unwrap_or(u64::MAX))?;
            if let Some(whole) = input.first_chunk::<N>() {
                self.advance(input, N);
                return Ok(Some(*whole));
            }
        }
        let piece = self.advance(input, N - self.small_len);
        let end = self.small_len + piece.len();
        self.small[self.small_len..end].copy_from_slice(piece);
        self.small_len = end;
        if end < N {
            return Ok(None);
        }
        self.small_len = 0;
        Ok(self.small.first_chunk::<N>().copied())
    }

    pub(super) fn i32(
        &mut self,
        input: &mut &[u8],
        field: &'static str,
    ) -> Result<Option<i32>, DecodeError> {
        Ok(self.fixed(input, field)?.map(i32::from_be_bytes))
    }

    pub(super) fn varint(
        &mut self,
        input: &mut &[u8],
        field: &'static str,
    ) -> Result<Option<u32>, DecodeError> {
        loop {
            self.fits(field, 1)?;
            let Some(byte) = self.advance(input, 1).first() else { return Ok(None) };
            if let Some(value) = self.varint.push(*byte, field)? {
                return Ok(Some(value));
            }
        }
    }

    /// `len` bytes in a buffer that grows as they arrive. The caller has checked
    /// `len` against the response and a limit of its own, and passes the same
    /// until it gets the bytes, which it then returns by [`Self::long_done`].
    pub(super) fn long(&mut self, input: &mut &[u8], len: u64) -> Option<&[u8]> {
        let want = len - len64(&self.long);
        let piece = self.advance(input, to_usize(want));
        self.long.extend_from_slice(piece);
        (len64(&self.long) == len).then_some(self.long.as_slice())
    }

    /// Forgets the bytes that [`Self::long`] gave out.
    pub(super) fn long_done(&mut self) {
        self.long.clear();
    }

    /// Drops bytes; lowers `left` to 0 as they arrive.
    pub(super) fn skip(&mut self, input: &mut &[u8], left: &mut u64) {
        *left -= len64(self.advance(input, to_usize(*left)));
    }
}

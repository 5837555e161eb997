//! The fixed parts of v0 and v1 messages as views over received bytes.

use zerocopy::big_endian::{I32, I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::batch_header::{check_offsets, size_bytes};
use super::error::RecordError;
use super::meta::BatchMeta;
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Where the CRC-32 of a message begins to count: at its magic.
pub(super) const CRC_LEGACY_FROM: usize = 16;
/// Bytes of a v0 message before its key length.
pub(super) const HEADER_V0_BYTES: usize = 18;
/// Bytes of a v1 message before its key length.
pub(super) const HEADER_V1_BYTES: usize = 26;
/// Smallest length field of v0: CRC, magic, attributes, two lengths.
pub(super) const LENGTH_V0_MIN: i32 = 14;
/// Smallest length field of v1, which has a timestamp besides.
pub(super) const LENGTH_V1_MIN: i32 = 22;

/// What v0 and v1 messages begin with. Up to the magic, a v2 batch has the same
/// layout, but for the leader epoch in place of the CRC.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct LegacyHeader {
    pub(super) offset: I64,
    pub(super) length: I32,
    pub(super) crc: U32,
    pub(super) magic: u8,
    pub(super) attributes: u8,
}

const _: () = assert!(size_of::<LegacyHeader>() == HEADER_V0_BYTES);

/// What magic 1 has behind the common header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct LegacyTimestamp {
    pub(super) timestamp_ms: I64,
}

const _: () = assert!(HEADER_V0_BYTES + size_of::<LegacyTimestamp>() == HEADER_V1_BYTES);

/// Facts of the message that starts at `bytes`. `None` if its header is not all there.
/// Magic must have been checked to be 0 or 1.
pub(super) fn legacy_meta(bytes: &[u8]) -> Option<Result<BatchMeta, RecordError>> {
    let (header, rest) = LegacyHeader::ref_from_prefix(bytes).ok()?;
    let timestamp = match header.magic {
        0 => TimestampMs::NONE,
        _ => TimestampMs(LegacyTimestamp::ref_from_prefix(rest).ok()?.0.timestamp_ms.get()),
    };
    let offset = Offset(header.offset.get());
    Some(check_offsets(offset, 0).map(|()| BatchMeta {
        base_offset: offset,
        last_offset: offset,
        size_bytes: size_bytes(header.length.get()),
        magic: header.magic,
        leader_epoch: LeaderEpoch::NONE,
        crc: header.crc.get(),
        attributes: i16::from(header.attributes),
        max_timestamp: timestamp,
        base_timestamp: timestamp,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch(-1),
        base_sequence: -1,
        records_count: 1,
        control: None,
        coordinator_epoch: -1,
    }))
}

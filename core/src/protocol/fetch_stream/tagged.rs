//! Contents of the tagged fields that a Fetch response is known to have.

use super::event::{DivergingEpoch, LeaderHint, NodeEndpoint, PartitionEnd, SnapshotId};
use crate::protocol::wire::{DecodeError, Reader, len64};
use crate::types::{BrokerId, LeaderEpoch, Offset};

/// Refuses a second value of a field and one that leaves bytes of its size over.
fn set<T>(
    slot: &mut Option<T>,
    value: T,
    field: &'static str,
    (reader, size): (&Reader<'_>, u64),
) -> Result<(), DecodeError> {
    if reader.left() > 0 {
        return Err(DecodeError::TaggedSize { field, size, used: size - reader.left() });
    }
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(DecodeError::Repeated { field }),
    }
}

/// Reads one of a partition's known tagged fields.
pub(super) fn partition_field(
    end: &mut PartitionEnd,
    tag: u32,
    bytes: &[u8],
) -> Result<(), DecodeError> {
    let size = len64(bytes);
    let mut reader = Reader::new(bytes);
    match tag {
        0 => {
            let field = "diverging_epoch";
            let epoch = LeaderEpoch(reader.i32(field)?);
            let end_offset = Offset(reader.i64(field)?);
            if epoch.known().is_some() && end_offset < Offset::ZERO {
                let field = "diverging_epoch.end_offset";
                return Err(DecodeError::Negative { field, got: end_offset.0 });
            }
            reader.skip_tagged(field)?;
            set(
                &mut end.diverging_epoch,
                DivergingEpoch { epoch, end_offset },
                field,
                (&reader, size),
            )
        }
        1 => {
            let field = "current_leader";
            let leader = BrokerId(reader.i32(field)?);
            let epoch = LeaderEpoch(reader.i32(field)?);
            reader.skip_tagged(field)?;
            set(&mut end.current_leader, LeaderHint { leader, epoch }, field, (&reader, size))
        }
        2 => {
            let field = "snapshot_id";
            let end_offset = Offset(reader.i64(field)?);
            let epoch = LeaderEpoch(reader.i32(field)?);
            reader.skip_tagged(field)?;
            set(&mut end.snapshot_id, SnapshotId { end_offset, epoch }, field, (&reader, size))
        }
        _ => {
            let field = "mirror_leader_epoch";
            let epoch = LeaderEpoch(reader.i32(field)?);
            set(&mut end.mirror_leader_epoch, epoch, field, (&reader, size))
        }
    }
}

/// Reads the response's node endpoints.
pub(super) fn endpoints_field(
    slot: &mut Option<Vec<NodeEndpoint>>,
    bytes: &[u8],
) -> Result<(), DecodeError> {
    let field = "node_endpoints";
    let size = len64(bytes);
    let mut reader = Reader::new(bytes);
    let count = reader.compact_len(field)?.ok_or(DecodeError::Null { field })?;
    let mut endpoints = Vec::new();
    for _ in 0..count {
        let node = BrokerId(reader.i32(field)?);
        let host = reader.compact_str("node_endpoints.host")?;
        let host = host.ok_or(DecodeError::Null { field: "node_endpoints.host" })?.to_owned();
        let port = reader.i32(field)?;
        let port = u16::try_from(port).map_err(|_| DecodeError::Port { got: port })?;
        let rack = reader.compact_str("node_endpoints.rack")?.map(str::to_owned);
        reader.skip_tagged(field)?;
        endpoints.push(NodeEndpoint { node, host, port, rack });
    }
    set(slot, endpoints, field, (&reader, size))
}

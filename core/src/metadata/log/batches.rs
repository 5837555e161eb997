//! Batches of the metadata log.

use crate::metadata::control::{
    LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord, Voter,
};
use crate::metadata::record::{BeginTransactionRecord, EndTransactionRecord, MetadataRecord};
use crate::protocol::mirror::encode;
use crate::records::{BatchBuilder, BuildError, ControlType, NewRecord, control_key};
use crate::types::{BrokerId, LeaderEpoch, Offset, TimestampMs};

/// Types of the control records of a KRaft log and its snapshots.
const LEADER_CHANGE: ControlType = ControlType::Other(2);
pub(super) const SNAPSHOT_HEADER: ControlType = ControlType::Other(3);
pub(super) const SNAPSHOT_FOOTER: ControlType = ControlType::Other(4);

/// Bytes of a record beside its value, at most.
const RECORD_OVERHEAD_BYTES: usize = 24;

/// The control batch that opens an epoch.
pub(super) fn leader_change(
    base: Offset,
    epoch: LeaderEpoch,
    node: BrokerId,
    now: TimestampMs,
) -> Result<Vec<u8>, BuildError> {
    let voters = vec![Voter { voter_id: node.0 }];
    let granting_voters = voters.clone();
    let message = LeaderChangeMessage { version: 0, leader_id: node.0, voters, granting_voters };
    control(base, epoch, LEADER_CHANGE, &encode(&message), now)
}

/// The control batch that opens a snapshot.
pub(super) fn snapshot_header(
    epoch: LeaderEpoch,
    last: TimestampMs,
) -> Result<Vec<u8>, BuildError> {
    let record = SnapshotHeaderRecord { version: 0, last_contained_log_timestamp: last.0 };
    control(Offset::ZERO, epoch, SNAPSHOT_HEADER, &encode(&record), last)
}

/// The control batch that closes one.
pub(super) fn snapshot_footer(
    base: Offset,
    epoch: LeaderEpoch,
    last: TimestampMs,
) -> Result<Vec<u8>, BuildError> {
    let record = SnapshotFooterRecord { version: 0 };
    control(base, epoch, SNAPSHOT_FOOTER, &encode(&record), last)
}

fn control(
    base: Offset,
    epoch: LeaderEpoch,
    kind: ControlType,
    value: &[u8],
    timestamp: TimestampMs,
) -> Result<Vec<u8>, BuildError> {
    let mut batch = BatchBuilder::new(base).leader_epoch(epoch).control();
    let key = control_key(kind);
    batch.push(&NewRecord { timestamp, key: Some(&key), value: Some(value), headers: &[] })?;
    batch.build()
}

/// The records in one batch, or in several and a transaction around them.
pub(super) fn data(
    records: &[MetadataRecord],
    base: Offset,
    epoch: LeaderEpoch,
    now: TimestampMs,
    batch_bytes_max: usize,
) -> Result<Vec<u8>, BuildError> {
    let mut values: Vec<_> = records.iter().map(MetadataRecord::encode).collect();
    let bytes: usize = values.iter().map(|value| value.len() + RECORD_OVERHEAD_BYTES).sum();
    if bytes > batch_bytes_max {
        values.insert(0, MetadataRecord::from(BeginTransactionRecord { name: None }).encode());
        values.push(MetadataRecord::from(EndTransactionRecord {}).encode());
    }
    let mut batches = Batches::new(base, epoch, now, batch_bytes_max);
    values.iter().try_for_each(|value| batches.push(value))?;
    Ok(batches.finish()?.0)
}

/// Batches that are filled one after another.
#[derive(Debug)]
pub(super) struct Batches {
    epoch: LeaderEpoch,
    timestamp: TimestampMs,
    bytes_max: usize,
    out: Vec<u8>,
    batch: BatchBuilder,
    next: Offset,
}

impl Batches {
    pub(super) fn new(
        base: Offset,
        epoch: LeaderEpoch,
        timestamp: TimestampMs,
        bytes_max: usize,
    ) -> Self {
        let batch = BatchBuilder::new(base).leader_epoch(epoch);
        Self { epoch, timestamp, bytes_max, out: Vec::new(), batch, next: base }
    }

    pub(super) fn push(&mut self, value: &[u8]) -> Result<(), BuildError> {
        let bytes = self.batch.records_bytes().len() + value.len() + RECORD_OVERHEAD_BYTES;
        if self.batch.records_count() > 0 && bytes > self.bytes_max {
            self.out.extend(self.batch.build()?);
            self.batch = BatchBuilder::new(self.next).leader_epoch(self.epoch);
        }
        let timestamp = self.timestamp;
        self.batch.push(&NewRecord { timestamp, key: None, value: Some(value), headers: &[] })?;
        self.next = self.next.plus(1);
        Ok(())
    }

    /// The bytes, and the offset behind the last record.
    pub(super) fn finish(mut self) -> Result<(Vec<u8>, Offset), BuildError> {
        if self.batch.records_count() > 0 {
            self.out.extend(self.batch.build()?);
        }
        Ok((self.out, self.next))
    }
}

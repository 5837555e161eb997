//! Batch facts for tests, field by field.

use crate::records::{BatchMeta, ControlType};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Facts of one batch under construction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestBatch(BatchMeta);

/// A plain v2 batch of 100 bytes that covers `base` to `last`, both inclusive.
pub(crate) fn batch(base: i64, last: i64) -> TestBatch {
    TestBatch(BatchMeta {
        base_offset: Offset(base),
        last_offset: Offset(last),
        size_bytes: 100,
        magic: 2,
        leader_epoch: LeaderEpoch(0),
        crc: 0,
        attributes: 0,
        max_timestamp: TimestampMs(1_000),
        base_timestamp: TimestampMs(1_000),
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch(-1),
        base_sequence: -1,
        records_count: i32::try_from(last - base + 1).unwrap_or(i32::MAX),
        control: None,
        coordinator_epoch: -1,
    })
}

impl TestBatch {
    pub(crate) fn epoch(mut self, epoch: i32) -> Self {
        self.0.leader_epoch = LeaderEpoch(epoch);
        self
    }

    pub(crate) fn magic(mut self, magic: u8) -> Self {
        self.0.magic = magic;
        self
    }

    pub(crate) fn size(mut self, bytes: u32) -> Self {
        self.0.size_bytes = bytes;
        self
    }

    pub(crate) fn time(mut self, ms: i64) -> Self {
        self.0.max_timestamp = TimestampMs(ms);
        self
    }

    pub(crate) fn producer(mut self, id: i64, epoch: i16, sequence: i32) -> Self {
        self.0.producer_id = ProducerId(id);
        self.0.producer_epoch = ProducerEpoch(epoch);
        self.0.base_sequence = sequence;
        self
    }

    pub(crate) fn transactional(mut self) -> Self {
        self.0.attributes |= 0x10;
        self
    }

    pub(crate) fn control(mut self, control: Option<ControlType>, coordinator_epoch: i32) -> Self {
        self.0.attributes |= 0x20;
        self.0.control = control;
        self.0.coordinator_epoch = coordinator_epoch;
        self
    }

    pub(crate) fn meta(self) -> BatchMeta {
        self.0
    }
}

//! The bytes of a Fetch response around its records.
//!
//! Records stay in their files: a layout holds everything else, in one buffer, and
//! says where the records of which partition belong. So a response costs memory by
//! its partitions and not by its bytes.

use std::ops::Range;
use std::sync::Arc;

use kafka_protocol::error::ResponseError;

use super::admit::Divergence;
use super::request::{PartitionKey, TopicKey};
use crate::log::txn_index::AbortedTxn;
use crate::protocol::FETCH_VERSION_MIRROR_EPOCH;
use crate::records::varint::put_unsigned;
use crate::types::{BrokerId, LeaderEpoch, Offset};

/// First version with tagged fields.
const VERSION_FLEXIBLE: i16 = 12;

/// Leader of a partition, told with an error about leadership (KIP-951).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentLeader {
    /// The leader.
    pub leader: BrokerId,
    /// Its epoch.
    pub epoch: LeaderEpoch,
}

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// The broker.
    pub node: BrokerId,
    /// Host name or address.
    pub host: Arc<str>,
    /// Port.
    pub port: u16,
}

/// The answer for one partition, without its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionAnswer {
    /// The partition, as the request named it.
    pub key: PartitionKey,
    /// The error; `None` for none.
    pub error: Option<ResponseError>,
    /// Readable end; −1 with an error.
    pub high_watermark: Offset,
    /// Last stable offset; −1 with an error.
    pub last_stable: Offset,
    /// Log start offset; −1 with an error.
    pub log_start: Offset,
    /// Where the client's log leaves ours (v12 on).
    pub diverging: Option<Divergence>,
    /// The leader, with an error about it (v12 on).
    pub current_leader: Option<CurrentLeader>,
    /// Latest epoch in the log, for a follower of a mirror (v19 on); [`LeaderEpoch::NONE`]
    /// leaves it out.
    pub mirror_leader_epoch: LeaderEpoch,
    /// Aborted transactions of the range; `None` unless the client reads committed.
    pub aborted: Option<Vec<AbortedTxn>>,
    /// Bytes of records that follow.
    pub records_bytes: u64,
}

impl PartitionAnswer {
    /// An error and nothing else.
    pub fn failed(key: PartitionKey, error: ResponseError) -> Self {
        Self {
            key,
            error: Some(error),
            high_watermark: Offset::NONE,
            last_stable: Offset::NONE,
            log_start: Offset::NONE,
            diverging: None,
            current_leader: None,
            mirror_leader_epoch: LeaderEpoch::NONE,
            aborted: None,
            records_bytes: 0,
        }
    }
}

/// What stands before the partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponseHead {
    /// Version of the request.
    pub version: i16,
    /// Correlation ID of the request.
    pub correlation_id: i32,
    /// How long the client was or should be held back, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole response.
    pub error: Option<ResponseError>,
    /// Session, 0 for none.
    pub session_id: i32,
    /// Addresses of the leaders that were told (v16 on).
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// A piece of the response, in sending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// This range of [`FetchResponseLayout::bytes`].
    Bytes(Range<usize>),
    /// All `records_bytes` of the answer with this index.
    Records(usize),
}

/// Why a response cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a response of {bytes} bytes does not fit into a frame")]
pub struct ResponseTooLarge {
    /// Its size.
    pub bytes: u64,
}

/// A laid out response, its frame length included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponseLayout {
    /// Everything but the records.
    pub bytes: Vec<u8>,
    /// How bytes and records alternate.
    pub pieces: Vec<Piece>,
}

impl FetchResponseLayout {
    /// Lays out `answers`, which stay in their order. Neighbours of one topic share
    /// its entry.
    ///
    /// # Errors
    ///
    /// [`ResponseTooLarge`] if the frame's length would not fit its field.
    pub fn new(
        head: &FetchResponseHead,
        answers: &[PartitionAnswer],
    ) -> Result<Self, ResponseTooLarge> {
        let mut out = Writer::new(head.version);
        out.i32(0); // The frame length comes last.
        out.i32(head.correlation_id);
        out.tags(0);
        out.i32(head.throttle_time_ms);
        if head.version >= 7 {
            out.i16(head.error.map_or(0, |error| error.code()));
            out.i32(head.session_id);
        }
        let topics: Vec<&[PartitionAnswer]> =
            answers.chunk_by(|a, b| a.key.topic == b.key.topic).collect();
        out.length(topics.len());
        let mut index = 0;
        for topic in topics {
            match topic.first().map(|answer| &answer.key.topic) {
                Some(TopicKey::Name(name)) => out.string(name),
                Some(TopicKey::Id(id)) => out.raw(id.0.as_bytes()),
                None => {}
            }
            out.length(topic.len());
            for answer in topic {
                out.partition(answer, index);
                index += 1;
            }
            out.tags(0);
        }
        if head.version >= 16 && !head.node_endpoints.is_empty() {
            out.tags(1);
            out.tagged(0, |out| out.node_endpoints(&head.node_endpoints));
        } else {
            out.tags(0);
        }
        out.finish()
    }
}

struct Writer {
    version: i16,
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// Start of the bytes that belong to no piece yet.
    piece_from: usize,
    records_bytes: u64,
}

impl Writer {
    fn new(version: i16) -> Self {
        Self { version, bytes: Vec::new(), pieces: Vec::new(), piece_from: 0, records_bytes: 0 }
    }

    fn flexible(&self) -> bool {
        self.version >= VERSION_FLEXIBLE
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn i16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }

    fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    fn uvarint(&mut self, value: u64) {
        put_unsigned(&mut self.bytes, value);
    }

    /// Number of elements of an array, or of bytes.
    fn length(&mut self, length: usize) {
        if self.flexible() {
            self.uvarint(u64::try_from(length).unwrap_or(u64::MAX).saturating_add(1));
        } else {
            // What does not fit is found by the check of the whole.
            self.i32(i32::try_from(length).unwrap_or(i32::MAX));
        }
    }

    fn null_array(&mut self) {
        if self.flexible() {
            self.uvarint(0);
        } else {
            self.i32(-1);
        }
    }

    fn string(&mut self, text: &str) {
        if self.flexible() {
            self.length(text.len());
            self.raw(text.as_bytes());
        } else {
            let text = text.get(..usize::from(i16::MAX.unsigned_abs())).unwrap_or(text);
            self.i16(i16::try_from(text.len()).unwrap_or(0));
            self.raw(text.as_bytes());
        }
    }

    /// Opens the tagged fields of a struct.
    fn tags(&mut self, count: u64) {
        if self.flexible() {
            self.uvarint(count);
        }
    }

    /// One tagged field, whose body `write` writes.
    fn tagged(&mut self, tag: u64, write: impl FnOnce(&mut Self)) {
        let mut body = Self::new(self.version);
        write(&mut body);
        self.uvarint(tag);
        self.uvarint(u64::try_from(body.bytes.len()).unwrap_or(u64::MAX));
        self.raw(&body.bytes);
    }

    fn node_endpoints(&mut self, nodes: &[NodeEndpoint]) {
        self.length(nodes.len());
        for node in nodes {
            self.i32(node.node.0);
            self.string(&node.host);
            self.i32(i32::from(node.port));
            self.length_null_string();
            self.tags(0);
        }
    }

    /// No rack.
    fn length_null_string(&mut self) {
        self.uvarint(0);
    }

    fn partition(&mut self, answer: &PartitionAnswer, index: usize) {
        self.i32(answer.key.partition);
        self.i16(answer.error.map_or(0, |error| error.code()));
        self.i64(answer.high_watermark.0);
        self.i64(answer.last_stable.0);
        if self.version >= 5 {
            self.i64(answer.log_start.0);
        }
        match &answer.aborted {
            None => self.null_array(),
            Some(aborted) => {
                self.length(aborted.len());
                for txn in aborted {
                    self.i64(txn.producer_id.0);
                    self.i64(txn.first_offset.0);
                    self.tags(0);
                }
            }
        }
        if self.version >= 11 {
            self.i32(BrokerId::NONE.0); // No other replica is preferred.
        }
        self.records(answer.records_bytes, index);
        if self.flexible() {
            self.partition_tags(answer);
        }
    }

    fn records(&mut self, bytes: u64, index: usize) {
        // A null record set is legal, but brokers send an empty one.
        self.length(usize::try_from(bytes).unwrap_or(usize::MAX));
        if bytes > 0 {
            self.close_piece();
            self.pieces.push(Piece::Records(index));
            self.records_bytes = self.records_bytes.saturating_add(bytes);
        }
    }

    fn partition_tags(&mut self, answer: &PartitionAnswer) {
        let mirror_epoch = answer
            .mirror_leader_epoch
            .known()
            .filter(|_| self.version >= FETCH_VERSION_MIRROR_EPOCH);
        let count = u64::from(answer.diverging.is_some())
            + u64::from(answer.current_leader.is_some())
            + u64::from(mirror_epoch.is_some());
        self.tags(count);
        if let Some(diverging) = answer.diverging {
            self.tagged(0, |out| {
                out.i32(diverging.epoch.0);
                out.i64(diverging.end.0);
                out.tags(0);
            });
        }
        if let Some(current) = answer.current_leader {
            self.tagged(1, |out| {
                out.i32(current.leader.0);
                out.i32(current.epoch.0);
                out.tags(0);
            });
        }
        if let Some(epoch) = mirror_epoch {
            self.tagged(3, |out| out.i32(epoch.0));
        }
    }

    fn close_piece(&mut self) {
        if self.piece_from < self.bytes.len() {
            self.pieces.push(Piece::Bytes(self.piece_from..self.bytes.len()));
            self.piece_from = self.bytes.len();
        }
    }

    fn finish(mut self) -> Result<FetchResponseLayout, ResponseTooLarge> {
        self.close_piece();
        let bytes = u64::try_from(self.bytes.len())
            .unwrap_or(u64::MAX)
            .saturating_add(self.records_bytes)
            .saturating_sub(4);
        let length = i32::try_from(bytes).map_err(|_| ResponseTooLarge { bytes })?;
        if let Some(field) = self.bytes.first_chunk_mut::<4>() {
            *field = length.to_be_bytes();
        }
        Ok(FetchResponseLayout { bytes: self.bytes, pieces: self.pieces })
    }
}

#[cfg(test)]
mod tests;

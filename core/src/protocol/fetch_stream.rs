//! Decodes Fetch responses as their bytes arrive.
//!
//! A response is never collected: header fields are taken from whatever bytes
//! are there, and where a partition's records begin the decoder only says how
//! many bytes follow, so that the caller reads them from the socket straight
//! into the segment buffer.
//!
//! ```text
//! size  header  [ topic [ fields  RECORDS  tagged fields ]* tagged fields ]* tagged fields
//!          |                |        |            |                                 |
//!        Header         Partition    |      PartitionEnd                           End
//!                               the caller's
//! ```
//!
//! In the flexible versions (12 and newer) a partition's tagged fields, the
//! diverging epoch among them, come behind its records; the node endpoints come
//! behind everything. Unknown tagged fields are skipped.
//!
//! Invariants: no byte is looked at twice; no allocation follows a length or a
//! count of the peer before the bytes are there; every length is held against
//! the rest of the response and what must still follow in it.

mod event;
mod pieces;
mod tagged;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use uuid::Uuid;

pub use event::{
    DivergingEpoch, FetchEvent, FetchLimits, LeaderHint, NodeEndpoint, PartitionEnd,
    PartitionHeader, ResponseHeader, SnapshotId, TopicRef,
};
use pieces::Pieces;
use tagged::{endpoints_field, partition_field};

use crate::protocol::ErrorCode;
use crate::protocol::wire::{DecodeError, Reader, utf8};
use crate::types::{BrokerId, Offset, TopicId};

/// Oldest response version that is understood.
pub const FETCH_VERSION_MIN: i16 = 4;
/// Newest response version that is understood; 19 is KIP-1279's.
pub const FETCH_VERSION_MAX: i16 = 19;

/// First version with tagged fields and compact lengths.
const FLEXIBLE: i16 = 12;

/// A push parser for the responses of one connection, all of one version.
///
/// Call [`feed`](Self::feed) with what was received, again and again, until it
/// takes nothing and reports nothing: then either bytes are missing, or
/// [`remaining_records`](Self::remaining_records) is not 0 and the next bytes of
/// the connection are records, which the caller takes and reports by
/// [`records_taken`](Self::records_taken). After `End` it is ready for the next
/// response.
#[derive(Debug)]
pub struct FetchStream {
    version: i16,
    limits: FetchLimits,
    state: State,
    pieces: Pieces,
    failed: Option<DecodeError>,
    /// Topics that follow the current one.
    topics_left: u32,
    /// Partitions that follow the current one in its topic.
    partitions_left: u32,
    /// Partitions announced in this response so far.
    partitions_seen: u32,
    aborted_left: u32,
    records_left: u64,
    correlation_id: i32,
    topic: TopicRef,
    partition: PartitionHeader,
    end: PartitionEnd,
    node_endpoints: Option<Vec<NodeEndpoint>>,
}

/// What is read next.
#[derive(Clone, Copy, Debug)]
enum State {
    Size,
    Correlation,
    Head,
    TopicCount,
    TopicStart,
    TopicName { len: u32 },
    PartitionCount,
    PartitionStart,
    AbortedCount,
    AbortedStart,
    Replica,
    RecordsLength,
    Records,
    PartitionDone,
    ResponseDone,
    Tagged(Scope, Tagged),
}

/// The struct that tagged fields belong to.
#[derive(Clone, Copy, Debug)]
enum Scope {
    Header,
    Aborted,
    Partition,
    Topic,
    Response,
}

/// Progress within tagged fields; `left` counts the fields after the current one.
#[derive(Clone, Copy, Debug)]
enum Tagged {
    Count,
    Tag { left: u32 },
    Size { left: u32, tag: u32 },
    Value { left: u32, tag: u32, size: u32 },
    Skip { left: u32, bytes: u64 },
}

impl FetchStream {
    /// A decoder that expects the 4-byte size of a response of `version`.
    ///
    /// # Panics
    ///
    /// If `version` is not one of [`FETCH_VERSION_MIN`] to [`FETCH_VERSION_MAX`]:
    /// it is chosen here, never by the peer.
    pub fn new(version: i16, limits: FetchLimits) -> Self {
        assert!(
            (FETCH_VERSION_MIN..=FETCH_VERSION_MAX).contains(&version),
            "Fetch version {version} is not implemented"
        );
        let topic = TopicRef::Id(TopicId::NONE);
        let partition = PartitionHeader {
            topic: topic.clone(),
            index: 0,
            error: ErrorCode::NONE,
            high_watermark: Offset::NONE,
            last_stable_offset: Offset::NONE,
            log_start_offset: Offset::NONE,
            aborted_count: 0,
            preferred_read_replica: BrokerId::NONE,
            records_bytes: 0,
        };
        Self {
            version,
            limits,
            state: State::Size,
            pieces: Pieces::new(),
            failed: None,
            topics_left: 0,
            partitions_left: 0,
            partitions_seen: 0,
            aborted_left: 0,
            records_left: 0,
            correlation_id: 0,
            topic,
            partition,
            end: PartitionEnd::default(),
            node_endpoints: None,
        }
    }

    /// The version that it decodes.
    pub fn version(&self) -> i16 {
        self.version
    }

    /// Consumes bytes from the front of `bytes` and stops at the first event.
    ///
    /// Returns how many it took. Without an event, all were taken, unless
    /// records are next: those it leaves to the caller. An event can come
    /// without a byte, so that it is worth asking with an empty slice.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] that names the field. The connection has lost its
    /// place: every later call gives the same error.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<FetchEvent>), DecodeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut input = bytes;
        loop {
            match self.step(&mut input) {
                Ok(Step::Next(state)) => self.state = state,
                Ok(Step::Report(state, event)) => {
                    self.state = state;
                    return Ok((bytes.len() - input.len(), Some(event)));
                }
                Ok(Step::Starved) => return Ok((bytes.len() - input.len(), None)),
                Err(error) => {
                    self.failed = Some(error.clone());
                    return Err(error);
                }
            }
        }
    }

    /// The caller took `n` of the record bytes that are due.
    ///
    /// # Panics
    ///
    /// If fewer than `n` are due: the caller has taken bytes that are not records.
    pub fn records_taken(&mut self, n: u64) {
        assert!(n <= self.records_left, "{n} record bytes taken, {} are due", self.records_left);
        self.records_left -= n;
        self.pieces.frame_left -= n;
    }

    /// Record bytes of the current partition that the caller has not taken yet.
    pub fn remaining_records(&self) -> u64 {
        self.records_left
    }

    /// Bytes of the current response that are still to come, records included;
    /// 0 between two responses.
    pub fn frame_remaining(&self) -> u64 {
        self.pieces.frame_left
    }

    /// Whether the current partition is the last one of its response.
    pub fn is_last_partition(&self) -> bool {
        self.topics_left == 0 && self.partitions_left == 0
    }

    /// Whether it stands between two responses.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Size) && self.pieces.frame_left == 0
    }

    fn flexible(&self) -> bool {
        self.version >= FLEXIBLE
    }

    /// Bytes of an empty set of tagged fields.
    fn tags_min(&self) -> u64 {
        u64::from(self.flexible())
    }

    /// Smallest topic on the wire, in bytes: name or ID, count, tagged fields.
    fn topic_min(&self) -> u64 {
        match self.version {
            ..12 => 2 + 4,
            12 => 1 + 1 + 1,
            _ => 16 + 1 + 1,
        }
    }

    /// Smallest partition on the wire, in bytes: fixed fields, aborted
    /// transactions, preferred replica, records length, tagged fields.
    fn partition_min(&self) -> u64 {
        match self.version {
            ..5 => 22 + 4 + 4,
            5..11 => 30 + 4 + 4,
            11 => 30 + 4 + 4 + 4,
            _ => 30 + 1 + 4 + 1 + 1,
        }
    }

    /// Smallest rest of the response after the current topic.
    fn after_topic_min(&self) -> u64 {
        u64::from(self.topics_left) * self.topic_min() + self.tags_min()
    }

    /// Smallest rest of the response after the current partition.
    fn after_partition_min(&self) -> u64 {
        u64::from(self.partitions_left) * self.partition_min()
            + self.tags_min()
            + self.after_topic_min()
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Step, DecodeError> {
        match self.state {
            State::Size => self.size(input),
            State::Correlation => self.correlation(input),
            State::Head => self.head(input),
            State::TopicCount => self.topic_count(input),
            State::TopicStart => self.topic_start(input),
            State::TopicName { len } => self.topic_name(input, len),
            State::PartitionCount => self.partition_count(input),
            State::PartitionStart => self.partition_start(input),
            State::AbortedCount => self.aborted_count(input),
            State::AbortedStart => self.aborted_start(input),
            State::Replica => self.replica(input),
            State::RecordsLength => self.records_length(input),
            State::Records if self.records_left > 0 => Ok(Step::Starved),
            State::Records => Ok(self.tagged_or(Scope::Partition)),
            State::PartitionDone => {
                Ok(Step::Report(State::PartitionStart, FetchEvent::PartitionEnd(self.end.known())))
            }
            State::ResponseDone => self.response_done(),
            State::Tagged(scope, progress) => self.tagged(input, scope, progress),
        }
    }

    fn size(&mut self, input: &mut &[u8]) -> Result<Step, DecodeError> {
        if self.pieces.frame_left == 0 {
            if input.is_empty() {
                return Ok(Step::Starved);
            }
            // The size does not count itself; its own bytes are all there is to read so far.
            self.pieces.frame_left = 4;
        }
        let Some(size) = self.pieces.i32(input, "response size")? else { return Ok(Step::Starved) };
        let head = if self.version >= 7 { 10 } else { 4 };
        let count = if self.flexible() { 1 } else { 4 };
        let min = 4 + head + count + 2 * self.tags_min();
        let max = self.limits.frame_bytes_max;
        match u64::try_from(size) {
            Ok(size) if (min..=max).contains(&size) => self.pieces.frame_left = size,
            _ => return Err(DecodeError::FrameSize { got: i64::from(size), min, max }),
        }
        self.partitions_seen = 0;
        Ok(Step::Next(State::Correlation))
    }

    fn correlation(&mut self, input: &mut &[u8]) -> Result<Step, DecodeError> {
        let Some(id) = self.pieces.i32(input, "correlation_id")? else { return Ok(Step::Starved) };
        self.correlation_id = id;
        Ok(self.tagged_or(Scope::Header))
    }

    fn head(&mut self, input: &mut &[u8]) -> Result<Step, DecodeError> {
        let field = "fields in front of the topics";
        let (throttle, error, session_id) = if self.version >= 7 {
            let Some(fixed) = self.pieces.fixed::<10>(input, field)? else {
                return Ok(Step::Starved);
            };
            let mut reader = Reader::new(&fixed);
            (reader.i32(field)?, ErrorCode(reader.i16(field)?), reader.i32(field)?)
        } else {
            let Some(throttle) = self.pieces.i32(input, field)? else { return Ok(Step::Starved) };
            (throttle, ErrorCode::NONE, 0)
        };
        let throttle_ms = u32::try_from(throttle).map_err(|_| {
            let got = i64::from(throttle);
            DecodeError::Negative { field: "throttle_time_ms", got }
        })?;
        let correlation_id = self.correlation_id;
        let header = ResponseHeader { correlation_id, throttle_ms, error, session_id };
        Ok(Step::Report(State::TopicCount, FetchEvent::Header(header)))
    }

    fn topic_count(&mut self, input: &mut &[u8]) -> Result<Step, DecodeError> {
        let field = "topic count";
        let Some(count) = self.length(input, field)? else { return Ok(Step::Starved) };
        let count = limited(count.required(field)?, field, self.limits.topics_max)?;
        self.topics_left = count;
        self.pieces.fits(field, self.after_topic_min())?;
        Ok(Step::Next(State::TopicStart))
    }

    fn topic_start(&mut self, input: &mut &[u8]) -> Result<Step, DecodeError> {
        let Some(topics_left) = self.topics_left.checked_sub(1) else {
            return Ok(self.tagged_or(Scope::Response));
        };
        let next = if self.version >= 13 {
            let Some(id) = self.pieces.fixed::<16>(input, "topic_id")? else {
                return Ok(Step::Starved);
            };
            self.topic = TopicRef::Id(TopicId(Uuid::from_bytes(id)));
            State::PartitionCount
        } else {
            let field = "topic name";
            let len = if self.flexible() {
                let Some(value) = self.pieces.varint(input, field)? else {
                    return Ok(Step::Starved);
                };
                Length::from_compact(value)
            } else {
                let Some(bytes) = self.pieces.fixed(input, field)? else {
                    return Ok(Step::Starved);
                };
                Length::from_signed(i32::from(i16::from_be_bytes(bytes)), field)?
            };
            let len = limited(len.required(field)?, field, self.limits.name_bytes_max)?;
            self.pieces.fits(field, u64::from(len))?;
            State::TopicName { len }
        };
        self.topics_left = topics_left;
        Ok(Step::Next(next))
    }

    fn topic_name(&mut self, input: &mut &[u8], len: u32) -> Result<Step, DecodeError> {
        let Some(bytes) = self.pieces.long(input, u64::from(len)) else {
            return Ok(Step::Starved);
        };
        self.topic = TopicRef::Name(Arc::from(utf8(bytes, "topic name")?));
        self.pieces.long_done();
        Ok(Step::Next(State::PartitionCount))
    }

    fn partition_count(&mut self, input: &mut &[u8]) -> Result<Step, DecodeError> {
        let field = "partition count";
        let Some(count) = self.length(input, field)? else { return Ok(Step::Starved) };
        let count = count.required(field)?;
        let seen = self.partitions_seen.saturating_add(count);
        self.partitions_seen = limited(seen, field, self.limits.partitions_max)?;
        self.partitions_left = count;
        self.pieces.fits(field, self.after_partition_min())?;
        Ok(Step::Next(State::PartitionStart))
    }

    fn partition_start(&mut self, input: &mut &[u8]) -> Result<Step, DecodeError> {
        let Some(partitions_left) = self.partitions_left.checked_sub(1) else {
            return Ok(self.tagged_or(Scope::Topic));
        };
        let field = "partition fields";
        // Only the log start offset, at the end, differs between the versions.
        let mut fixed = [0xff; 30];
        if self.version >= 5 {
            let Some(bytes) = self.pieces.fixed::<30>(input, field)? else {
                return Ok(Step::Starved);
            };
            fixed = bytes;
        } else {
            let Some(bytes) = self.pieces.fixed::<22>(input, field)? else {
                return Ok(Step::Starved);
            };
            fixed[..22].copy_from_slice(&bytes);
        }
        let mut reader = Reader::new(&fixed);
        let index = reader.i32(field)?;
        if index < 0 {
            return Err(DecodeError::Negative { field: "partition_index", got: i64::from(index) });
        }
        self.partition = PartitionHeader {
            topic: self.topic.clone(),
            index,
            error: ErrorCode(reader.i16(field)?),
            high_watermark: Offset(reader.i64(field)?),
            last_stable_offset: Offset(reader.i64(field)?),
            log_start_offset: Offset(reader.i64(field)?),
            aborted_count: 0,
            preferred_read_replica: BrokerId::NONE,
            records_bytes: 0,
        };
        self.end = PartitionEnd { index, ..PartitionEnd::default() };
        self.partitions_left = partitions_left;
        Ok(Step::Next(State::AbortedCount))
    }

    fn aborted_count(&mut self, input: &mut &[u8]) -> Result<Step, DecodeError> {
        let field = "aborted_transactions count";
        let Some(count) = self.length(input, field)? else { return Ok(Step::Starved) };
        let count = limited(count.or_zero(), field, self.limits.aborted_max)?;
        let entries = u64::from(count) * (16 + self.tags_min());
        self.pieces.fits(field, entries + self.after_partition_min())?;
        self.aborted_left = count;
        self.partition.aborted_count = count;
        Ok(Step::Next(State::AbortedStart))
    }

    fn aborted_start(&mut self, input: &mut &[u8]) -> Result<Step, DecodeError> {
        let Some(aborted_left) = self.aborted_left.checked_sub(1) else {
            let replica = self.version >= 11;
            return Ok(Step::Next(if replica { State::Replica } else { State::RecordsLength }));
        };
        // Whose transaction was aborted is said again by the markers in the log.
        if self.pieces.fixed::<16>(input, "aborted_transactions")?.is_none() {
            return Ok(Step::Starved);
        }
        self.aborted_left = aborted_left;
        Ok(self.tagged_or(Scope::Aborted))
    }

    fn replica(&mut self, input: &mut &[u8]) -> Result<Step, DecodeError> {
        let Some(node) = self.pieces.i32(input, "preferred_read_replica")? else {
            return Ok(Step::Starved);
        };
        self.partition.preferred_read_replica = BrokerId(node);
        Ok(Step::Next(State::RecordsLength))
    }

    fn records_length(&mut self, input: &mut &[u8]) -> Result<Step, DecodeError> {
        let field = "records";
        let Some(len) = self.length(input, field)? else { return Ok(Step::Starved) };
        let len = u64::from(len.or_zero());
        self.pieces.fits(field, len + self.tags_min() + self.after_partition_min())?;
        self.records_left = len;
        self.partition.records_bytes = len;
        Ok(Step::Report(State::Records, FetchEvent::Partition(self.partition.clone())))
    }

    fn response_done(&mut self) -> Result<Step, DecodeError> {
        let left = self.pieces.frame_left;
        if left > 0 {
            return Err(DecodeError::FrameNotConsumed { left });
        }
        let node_endpoints = self.node_endpoints.take().unwrap_or_default();
        Ok(Step::Report(State::Size, FetchEvent::End { node_endpoints }))
    }

    /// Length of an array or of bytes in the version's encoding.
    fn length(
        &mut self,
        input: &mut &[u8],
        field: &'static str,
    ) -> Result<Option<Length>, DecodeError> {
        if self.flexible() {
            return Ok(self.pieces.varint(input, field)?.map(Length::from_compact));
        }
        self.pieces.i32(input, field)?.map(|len| Length::from_signed(len, field)).transpose()
    }

    /// Goes to the tagged fields of `scope` where the version has them.
    fn tagged_or(&self, scope: Scope) -> Step {
        if self.flexible() {
            Step::Next(State::Tagged(scope, Tagged::Count))
        } else {
            Step::Next(after_tagged(scope))
        }
    }

    fn tagged(
        &mut self,
        input: &mut &[u8],
        scope: Scope,
        progress: Tagged,
    ) -> Result<Step, DecodeError> {
        let field = scope.field();
        let next = match progress {
            Tagged::Count => {
                let Some(count) = self.pieces.varint(input, field)? else {
                    return Ok(Step::Starved);
                };
                // A field takes a tag and a size at least.
                self.pieces.fits(field, u64::from(count) * 2)?;
                Tagged::Tag { left: count }
            }
            Tagged::Tag { left: 0 } => return Ok(Step::Next(after_tagged(scope))),
            Tagged::Tag { left } => {
                let Some(tag) = self.pieces.varint(input, field)? else {
                    return Ok(Step::Starved);
                };
                Tagged::Size { left: left - 1, tag }
            }
            Tagged::Size { left, tag } => {
                let Some(size) = self.pieces.varint(input, field)? else {
                    return Ok(Step::Starved);
                };
                limited(size, field, self.limits.tagged_bytes_max)?;
                self.pieces.fits(field, u64::from(size))?;
                if scope.knows(tag, self.version) {
                    Tagged::Value { left, tag, size }
                } else {
                    Tagged::Skip { left, bytes: u64::from(size) }
                }
            }
            Tagged::Value { left, tag, size } => {
                let Some(bytes) = self.pieces.long(input, u64::from(size)) else {
                    return Ok(Step::Starved);
                };
                match scope {
                    Scope::Partition => partition_field(&mut self.end, tag, bytes)?,
                    _ => endpoints_field(&mut self.node_endpoints, bytes)?,
                }
                self.pieces.long_done();
                Tagged::Tag { left }
            }
            Tagged::Skip { left, mut bytes } => {
                self.pieces.skip(input, &mut bytes);
                if bytes > 0 {
                    self.state = State::Tagged(scope, Tagged::Skip { left, bytes });
                    return Ok(Step::Starved);
                }
                Tagged::Tag { left }
            }
        };
        Ok(Step::Next(State::Tagged(scope, next)))
    }
}

/// Outcome of one step.
enum Step {
    Next(State),
    Report(State, FetchEvent),
    Starved,
}

impl Scope {
    fn field(self) -> &'static str {
        match self {
            Self::Header => "tagged fields of the header",
            Self::Aborted => "tagged fields of an aborted transaction",
            Self::Partition => "tagged fields of a partition",
            Self::Topic => "tagged fields of a topic",
            Self::Response => "tagged fields of the response",
        }
    }

    /// Whether `tag` is read; every other is skipped.
    fn knows(self, tag: u32, version: i16) -> bool {
        match self {
            Self::Partition => tag <= 2 || (tag == 3 && version >= 19),
            Self::Response => tag == 0 && version >= 16,
            Self::Header | Self::Aborted | Self::Topic => false,
        }
    }
}

/// What follows the tagged fields of `scope`.
fn after_tagged(scope: Scope) -> State {
    match scope {
        Scope::Header => State::Head,
        Scope::Aborted => State::AbortedStart,
        Scope::Partition => State::PartitionDone,
        Scope::Topic => State::TopicStart,
        Scope::Response => State::ResponseDone,
    }
}

/// A length or count as the wire has it.
#[derive(Clone, Copy, Debug)]
enum Length {
    Null,
    Of(u32),
}

impl Length {
    /// Compact lengths are one more than the length; 0 is null.
    fn from_compact(value: u32) -> Self {
        value.checked_sub(1).map_or(Self::Null, Self::Of)
    }

    /// −1 is null; everything below is refused.
    fn from_signed(value: i32, field: &'static str) -> Result<Self, DecodeError> {
        match u32::try_from(value) {
            Ok(value) => Ok(Self::Of(value)),
            Err(_) if value == -1 => Ok(Self::Null),
            Err(_) => Err(DecodeError::Negative { field, got: i64::from(value) }),
        }
    }

    /// Where the schema allows a null, which means empty.
    fn or_zero(self) -> u32 {
        match self {
            Self::Null => 0,
            Self::Of(len) => len,
        }
    }

    /// Where the schema allows no null.
    fn required(self, field: &'static str) -> Result<u32, DecodeError> {
        match self {
            Self::Null => Err(DecodeError::Null { field }),
            Self::Of(len) => Ok(len),
        }
    }
}

fn limited(value: u32, field: &'static str, max: u32) -> Result<u32, DecodeError> {
    if value <= max {
        Ok(value)
    } else {
        Err(DecodeError::AboveLimit { field, got: u64::from(value), max: u64::from(max) })
    }
}

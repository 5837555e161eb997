//! One connection to a source broker: handshake, one Fetch request at a time, and the
//! bytes of its answer that were read ahead of the decoder.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::message::PartitionKey;
use super::path::Path;
use crate::fetcher::Backoff;
use crate::protocol::fetch_stream::FetchEvent;
use crate::protocol::fetch_stream::{
    FETCH_VERSION_MIN, FetchLimits, FetchStream, LeaderHint, PartitionHeader,
};
use crate::protocol::{ApiVersions, BrokerApis, DecodeError, FetchSession, split_response};
use crate::time::Tick;
use crate::types::{BrokerId, Offset};

/// Read ahead while responses consist of large runs: what is read too far is copied.
const READ_AHEAD_SMALL: usize = 4 << 10;
/// Read ahead while they consist of many small ones: a copy is cheaper than a call.
const READ_AHEAD_LARGE: usize = 64 << 10;
/// Bytes of a batch up to the end of `lastOffsetDelta`: enough to place it.
pub(super) const HEAD_BYTES: usize = 27;
/// A batch's length counts from here on.
const LENGTH_END: u64 = 12;
/// An `ApiVersions` answer is a few hundred bytes; more is not a broker.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Newest `ApiVersions` version that every broker from 2.4 on knows; older ones say so.
const API_VERSIONS_VERSION: i16 = 3;

/// A connection of a shard. The generation tells a reconnected one from its past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Place in the shard's list.
    pub index: usize,
    /// Counts the connects.
    pub generation: u32,
}

/// Which partitions share a connection. They never mix: a long poll or a throttle
/// would hold up the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// Behind their source; the number spreads them.
    Busy(usize),
    /// Caught up: long polls.
    Tail,
    /// Under the throttle, behind or not.
    Throttled,
    /// Takes ranges of one partition, together with others; the number tells them apart.
    Stripe(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Down,
    Connecting,
    /// Waits for an answer to `ApiVersions` of this version.
    Handshake(i16),
    Ready,
}

/// Where the record bytes of the partition at hand go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunTarget {
    Append(usize),
    /// A range whose turn has not come yet.
    Ahead(usize),
    Discard,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) correlation_id: i32,
    pub(super) sent_at: Tick,
    /// Number of the range that it asks for, on a stripe.
    pub(super) range: Option<u64>,
    /// The answer has come to its last partition: what it holds is known.
    pub(super) named: bool,
}

/// The partition whose part of a response is being read.
#[derive(Debug)]
pub(super) struct Current {
    /// Its place in the shard, if the answer is wanted.
    pub(super) partition: Option<usize>,
    /// Fetch offset that the request named.
    pub(super) sent_offset: Offset,
    pub(super) header: PartitionHeader,
    /// Its records were refused, and that was dealt with.
    pub(super) refused: bool,
    pub(super) standing: Standing,
}

/// What an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Where the partition stands now.
    Fresh,
    /// A range of it that others come before, or came when it was asked for.
    Ahead,
    /// Something that is over: nothing of it holds any more.
    Stale,
}

/// A batch as its first bytes show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchHead {
    pub(super) base: Offset,
    pub(super) last: Offset,
    pub(super) size: u64,
    /// Of the format that these places are those of.
    pub(super) is_v2: bool,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) broker: BrokerId,
    pub(super) lane: Lane,
    pub(super) phase: Phase,
    pub(super) apis: BrokerApis,
    pub(super) session: FetchSession,
    pub(super) stream: FetchStream,
    /// Partitions in its session, by their place in the shard.
    pub(super) members: BTreeSet<usize>,
    /// The question whose answer has not begun.
    pub(super) in_flight: Option<InFlight>,
    /// The one whose answer is being received.
    pub(super) answering: Option<InFlight>,
    /// Partitions of that answer that have been received to their end.
    pub(super) ended: Vec<usize>,
    /// When the last answer had been received.
    pub(super) answered_at: Tick,
    pub(super) current: Option<Current>,
    pub(super) run: Option<RunTarget>,
    /// Partitions whose leader moved, until the response's end names its address. By key:
    /// a place may have another tenant by then.
    pub(super) moves: Vec<(PartitionKey, LeaderHint)>,
    /// No byte by then, and it counts as dead.
    pub(super) deadline: Tick,
    /// When its timer goes off next; [`Tick::NEVER`] for not set.
    pub(super) timer_at: Tick,
    /// The broker's quota asked for silence, or new records may gather.
    pub(super) quiet_until: Tick,
    /// A timer for the end of that is set.
    pub(super) quiet_timer: bool,
    /// The answer under way has records.
    pub(super) brought_records: bool,
    /// Some of its partitions are not caught up with it.
    pub(super) left_behind: bool,
    /// Waits for a buffer, or for the turn of its range.
    pub(super) stalled: bool,
    /// The throttle has held the next question up since then.
    pub(super) throttled_since: Option<Tick>,
    /// Bytes of batches that the log has already, still to be passed over.
    pub(super) skip: u64,
    pub(super) path: Path,
    /// When connecting began, and how long it took.
    pub(super) connecting_at: Tick,
    pub(super) connect_took: Duration,
    /// When the handshake was sent.
    pub(super) greeted_at: Tick,
    pub(super) backoff: Backoff,
    pub(super) down_reason: Option<Arc<str>>,
    staging: Vec<u8>,
    start: usize,
    end: usize,
    read_ahead: usize,
    correlation_id: i32,
}

impl Connection {
    pub(super) fn new(index: usize, broker: BrokerId, lane: Lane, limits: FetchLimits) -> Self {
        Self {
            id: ConnectionId { index, generation: 0 },
            broker,
            lane,
            phase: Phase::Down,
            apis: BrokerApis::default(),
            session: FetchSession::new(FETCH_VERSION_MIN),
            stream: FetchStream::new(FETCH_VERSION_MIN, limits),
            members: BTreeSet::new(),
            in_flight: None,
            answering: None,
            ended: Vec::new(),
            answered_at: Tick::ZERO,
            current: None,
            run: None,
            moves: Vec::new(),
            deadline: Tick::NEVER,
            timer_at: Tick::NEVER,
            quiet_until: Tick::ZERO,
            quiet_timer: false,
            brought_records: false,
            left_behind: false,
            throttled_since: None,
            stalled: false,
            skip: 0,
            path: Path::default(),
            connecting_at: Tick::ZERO,
            connect_took: Duration::ZERO,
            greeted_at: Tick::ZERO,
            backoff: Backoff::default(),
            down_reason: None,
            staging: Vec::new(),
            start: 0,
            end: 0,
            read_ahead: READ_AHEAD_LARGE,
            correlation_id: 0,
        }
    }

    /// A connection of a broker that is gone serves another one.
    pub(super) fn adopt(&mut self, broker: BrokerId, lane: Lane) {
        self.broker = broker;
        self.lane = lane;
        self.session = FetchSession::new(FETCH_VERSION_MIN);
        self.backoff = Backoff::default();
        self.path = Path::default();
        self.down_reason = None;
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_) | Phase::Ready)
    }

    /// A question is open.
    pub(super) fn is_asked(&self) -> bool {
        self.in_flight.is_some() || self.answering.is_some()
    }

    pub(super) fn next_correlation_id(&mut self) -> i32 {
        self.correlation_id = self.correlation_id.checked_add(1).unwrap_or(1);
        self.correlation_id
    }

    /// First version of `ApiVersions` to ask for.
    pub(super) fn begin_handshake(&mut self) -> i16 {
        self.phase = Phase::Handshake(API_VERSIONS_VERSION);
        API_VERSIONS_VERSION
    }

    /// Forgets everything of the broken connection.
    pub(super) fn break_off(&mut self, limits: FetchLimits) {
        self.phase = Phase::Down;
        self.path.ends();
        self.id.generation = self.id.generation.wrapping_add(1);
        self.session.on_request_failed();
        self.stream = FetchStream::new(self.stream.version(), limits);
        self.in_flight = None;
        self.answering = None;
        self.ended.clear();
        self.current = None;
        self.run = None;
        self.moves.clear();
        self.deadline = Tick::NEVER;
        self.quiet_until = Tick::ZERO;
        self.brought_records = false;
        self.left_behind = false;
        self.throttled_since = None;
        self.stalled = false;
        self.skip = 0;
        self.start = 0;
        self.end = 0;
    }

    /// Bytes that were read and not consumed.
    pub(super) fn staged(&self) -> &[u8] {
        self.staging.get(self.start..self.end).unwrap_or_default()
    }

    /// The batch that comes next, once so much of it was read ahead. What is cut off has no
    /// head: behind it comes the rest of the answer.
    pub(super) fn batch_head(&self) -> Option<BatchHead> {
        let left = usize::try_from(self.stream.remaining_records()).unwrap_or(usize::MAX);
        let head = self.staged().first_chunk::<HEAD_BYTES>().filter(|_| left >= HEAD_BYTES)?;
        let [b0, b1, b2, b3, b4, b5, b6, b7, l0, l1, l2, l3, _, _, _, _, magic, .., d0, d1, d2, d3] =
            *head;
        let base = i64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
        let length = i32::from_be_bytes([l0, l1, l2, l3]);
        let delta = i32::from_be_bytes([d0, d1, d2, d3]);
        Some(BatchHead {
            base: Offset(base),
            last: Offset(base.saturating_add(i64::from(delta))),
            size: u64::try_from(length).unwrap_or(0) + LENGTH_END,
            is_v2: magic == 2,
        })
    }

    /// Where to read to, if not into a slot; never empty.
    pub(super) fn staging_buffer(&mut self) -> &mut [u8] {
        if self.staging.is_empty() {
            self.staging = vec![0; READ_AHEAD_LARGE];
        }
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.end == self.staging.len() {
            self.staging.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let limit = (self.end + self.read_ahead).min(self.staging.len());
        &mut self.staging[self.end..limit]
    }

    pub(super) fn staging_received(&mut self, n: usize) {
        assert!(self.end + n <= self.staging.len(), "received no more than was offered");
        self.end += n;
    }

    pub(super) fn consume(&mut self, n: usize) {
        assert!(self.start + n <= self.end, "consumed no more than was there");
        self.start += n;
    }

    /// Decodes the next step of the answer from what was read ahead. `None` if nothing
    /// more can be made of it.
    pub(super) fn decode(&mut self) -> Result<Option<(usize, Option<FetchEvent>)>, DecodeError> {
        if self.start == self.end && self.stream.is_idle() {
            return Ok(None);
        }
        let staged = self.staging.get(self.start..self.end).unwrap_or_default();
        let (used, event) = self.stream.feed(staged)?;
        self.consume(used);
        Ok(Some((used, event)))
    }

    /// Chooses the read-ahead by the runs that the broker sends.
    pub(super) fn saw_run(&mut self, records_bytes: u64) {
        let large = usize::try_from(records_bytes).unwrap_or(usize::MAX) >= READ_AHEAD_LARGE;
        self.read_ahead = if large { READ_AHEAD_SMALL } else { READ_AHEAD_LARGE };
    }

    /// The answer to `ApiVersions`, once it is whole. `Err` holds the sentence for the
    /// operator.
    pub(super) fn handshake_answer(&mut self, version: i16) -> Result<Option<ApiVersions>, String> {
        let staged = self.staged();
        let Some(size) = staged.first_chunk::<4>() else { return Ok(None) };
        let size = usize::try_from(i32::from_be_bytes(*size)).unwrap_or(usize::MAX);
        if size > HANDSHAKE_BYTES_MAX {
            return Err(not_kafka(staged));
        }
        let Some(frame) = staged.get(4..4 + size) else {
            return if 4 + size > READ_AHEAD_LARGE { Err(not_kafka(staged)) } else { Ok(None) };
        };
        let answer = split_response(frame, false)
            .and_then(|(_, body)| ApiVersions::decode(version, body))
            .map_err(|error: DecodeError| {
                format!("the answer to ApiVersions is unreadable: {error}")
            })?;
        self.consume(4 + size);
        Ok(Some(answer))
    }
}

/// What listens there, by its first bytes.
fn not_kafka(staged: &[u8]) -> String {
    if staged.starts_with(b"HTTP") {
        "an HTTP server answers there: check the port of the broker".to_owned()
    } else if matches!(staged, [0x15 | 0x16, 3, ..]) {
        "the port speaks TLS: use the broker's PLAINTEXT listener".to_owned()
    } else {
        "what answers there does not speak the Kafka protocol: check host and port".to_owned()
    }
}

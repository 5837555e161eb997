//! Fetch requests out, answers in: where received bytes go, and what an answer means.

use std::sync::Arc;
use std::time::Duration;

use super::{Action, Shard};
use crate::engine::connection::{
    ConnectionId, Current, InFlight, Lane, Phase, RunTarget, Standing,
};
use crate::engine::message::{BrokerAddress, Leader, PartitionKey, Report, ReturnReason, Trouble};
use crate::engine::partition::Status;
use crate::engine::timers::Timer;
use crate::log::failure::RunError;
use crate::protocol::fetch_stream::{
    FetchEvent, FetchStream, LeaderHint, NodeEndpoint, PartitionEnd, PartitionHeader,
    ResponseHeader,
};
use crate::protocol::{Answered, ErrorCode, FetchPlan, HeaderOutcome, Reaction, RequestId};
use crate::time::Tick;
use crate::types::{LeaderEpoch, Offset};

/// Most fetch latencies kept between two drains.
const LATENCIES_MAX: usize = 4096;
/// A fetch is so many times what its connection has in flight: 94 % of the path.
const FETCH_IN_FLIGHTS: u64 = 16;
/// Of one partition: several come in each answer, and each end is an occasion to move it.
const PARTITION_IN_FLIGHTS: u64 = 4;
const FETCH_BYTES_MIN: u32 = 1 << 20;

/// What a Fetch asks for, besides the session's partitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) max_bytes: u32,
    /// An answer is still being received.
    pub(super) ahead: bool,
    /// Number of the range, of a stripe.
    pub(super) range: Option<u64>,
}

impl Shard {
    /// Sends the next Fetch, if nothing is in flight and there is something to ask for.
    pub(super) fn send_fetch(&mut self, index: usize) {
        let (now, parked) = (self.now, self.parked || self.stopping);
        let connection = &self.connections[index];
        let striped = matches!(connection.lane, Lane::Stripe(_));
        let busy = if striped { !self.takes_question(index) } else { connection.is_asked() };
        if parked || busy || connection.members.is_empty() {
            return;
        }
        if connection.quiet_until > now {
            let at = connection.quiet_until;
            // Not the connection's timer: that one would be set anew for every question.
            if !std::mem::replace(&mut self.connections[index].quiet_timer, true) {
                self.timers.set(at, Timer::Quiet(index));
            }
            return;
        }
        let mut max_bytes = self.response_bytes(index);
        let connection = &self.connections[index];
        if connection.lane == Lane::Throttled {
            match self.throttle.grant(max_bytes, now) {
                Some(granted) => {
                    max_bytes = granted;
                    let since = self.connections[index].throttled_since.take();
                    self.stats.spent.throttled += since.map_or(Duration::ZERO, |at| now.since(at));
                }
                None => {
                    self.connections[index].throttled_since.get_or_insert(now);
                    if !self.throttle_timer {
                        self.throttle_timer = true;
                        self.timers.set(self.throttle.ready_at(now), Timer::Throttle);
                    }
                    return;
                }
            }
        }
        if self.connections[index].answering.is_some() {
            if !self.keeps_version(index) {
                return;
            }
        } else if let Err(reason) = self.choose_version(index) {
            self.break_connection(index, &Arc::from(reason));
            return;
        }
        if striped {
            self.send_range(index);
        } else {
            self.send_fetch_request(index, Question { max_bytes, ahead: false, range: None });
        }
    }

    /// Bytes of one answer that the path of a connection is worth.
    pub(super) fn response_bytes(&self, index: usize) -> u32 {
        self.path_bytes(index, FETCH_IN_FLIGHTS, self.config.fetch_max_bytes)
    }

    /// Bytes of one partition in it.
    pub(super) fn partition_bytes(&self, index: usize) -> u32 {
        self.path_bytes(index, PARTITION_IN_FLIGHTS, self.config.partition_max_bytes)
    }

    /// `max`, or less where that takes a connection long: partitions take turns.
    fn path_bytes(&self, index: usize, in_flights: u64, max: u32) -> u32 {
        let path = &self.connections[index].path;
        if path.rtt() < self.config.stripes.rtt_min {
            return max;
        }
        path.fetch_bytes(in_flights, FETCH_BYTES_MIN.min(max), max)
    }

    /// Whether the next question speaks the version of the answer that is being received.
    pub(super) fn keeps_version(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        let version = connection.apis.fetch_version(self.without_id == 0);
        version.is_ok_and(|version| version == connection.stream.version())
    }

    fn choose_version(&mut self, index: usize) -> Result<(), String> {
        let connection = &mut self.connections[index];
        let version = connection
            .apis
            .fetch_version(self.without_id == 0)
            .map_err(|error| error.to_string())?;
        if version != connection.stream.version() {
            connection.stream = FetchStream::new(version, self.config.fetch_limits);
            connection.session.set_version(version);
        }
        Ok(())
    }

    pub(super) fn send_fetch_request(&mut self, index: usize, question: Question) {
        let Question { max_bytes, ahead, range } = question;
        let connection = &mut self.connections[index];
        let request = connection.session.plan();
        // What is asked ahead leaves something out: the broker must not wait for the rest.
        let wait = if ahead { Duration::ZERO } else { self.config.fetch_wait };
        let plan = FetchPlan {
            max_wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
            min_bytes: self.config.fetch_min_bytes,
            max_bytes,
            session_id: request.session_id,
            session_epoch: request.session_epoch,
            partitions: &request.partitions,
            forgotten: &request.forgotten,
            rack: "",
        };
        let correlation_id = connection.next_correlation_id();
        let id = RequestId { correlation_id, client_id: &self.config.client_id };
        let bytes = match plan.encode(connection.stream.version(), id) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.break_connection(index, &Arc::from(error.to_string()));
                return;
            }
        };
        connection.in_flight =
            Some(InFlight { correlation_id, sent_at: self.now, range, named: false });
        let patience = self.config.fetch_wait + self.config.request_timeout;
        connection.deadline = self.now.after(patience);
        let deadline = connection.deadline;
        self.actions.push_back(Action::Send { connection: connection.id, bytes });
        self.stats.fetches += 1;
        self.stats.fetches_ahead += u64::from(ahead);
        self.connection_timer(index, deadline);
    }

    /// Where the next received bytes of a connection belong, never empty. `None` while
    /// it has to wait: [`Action::Wake`] comes, or the connection is gone.
    pub fn read_buffer(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        let connection = self.connections.get_mut(id.index)?;
        if connection.id != id || !connection.is_open() {
            return None;
        }
        let partition = match connection.run {
            Some(RunTarget::Append(partition)) => partition,
            Some(RunTarget::Ahead(_)) if connection.stalled => return None,
            Some(RunTarget::Ahead(_) | RunTarget::Discard) | None => {
                return Some(self.connections[id.index].staging_buffer());
            }
        };
        // What was read ahead goes first, and waits for a buffer itself if it is still here.
        if connection.staged().is_empty() && self.has_buffer(partition) {
            let partition = self.partitions.get_mut(partition)?.as_deref_mut()?;
            return partition.log.offered_buffer();
        }
        self.stall(id.index);
        None
    }

    /// Bytes that the socket may hold before this connection is woken for them, at least 1: while
    /// a long answer comes, one wake-up a millisecond serves it as well as one a packet. Never
    /// more than the answer has left.
    #[must_use]
    pub fn low_water(&self, id: ConnectionId) -> usize {
        let Some(connection) = self.connections.get(id.index).filter(|it| it.id == id) else {
            return 1;
        };
        connection.path.low_water(connection.stream.frame_remaining())
    }

    fn has_buffer(&mut self, partition: usize) -> bool {
        self.with_log(partition, |log, cx| log.read_buffer(cx).is_some()).unwrap_or(false)
    }

    fn stall(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if !connection.stalled {
            connection.stalled = true;
            self.stats.buffer_waits += 1;
            connection.path.stalls(true, self.now);
        }
    }

    pub(super) fn wake_stalled(&mut self) {
        for index in 0..self.connections.len() {
            if std::mem::take(&mut self.connections[index].stalled) {
                self.process(index);
                let connection = &self.connections[index];
                if !connection.stalled && connection.is_open() {
                    self.actions.push_back(Action::Wake { connection: connection.id });
                    self.go_on(index);
                }
            }
        }
    }

    /// The wait was ours: the broker's time begins now.
    fn go_on(&mut self, index: usize) {
        let now = self.now;
        let connection = &mut self.connections[index];
        connection.path.stalls(false, now);
        if connection.is_asked() {
            connection.deadline = now.after(self.config.request_timeout);
        }
    }

    /// The first `n` bytes of [`Self::read_buffer`] have been received.
    pub fn on_received(&mut self, id: ConnectionId, n: usize) {
        let Some(connection) = self.connections.get_mut(id.index) else { return };
        if connection.id != id || n == 0 {
            return;
        }
        if connection.is_asked() {
            connection.deadline = self.now.after(self.config.request_timeout);
        }
        match connection.run {
            Some(RunTarget::Append(partition)) if connection.staged().is_empty() => {
                self.stats.record_bytes_received += u64::try_from(n).unwrap_or(0);
                connection.stream.records_taken(u64::try_from(n).unwrap_or(0));
                self.append(id.index, partition, n);
            }
            _ => connection.staging_received(n),
        }
        self.process(id.index);
    }

    /// `n` bytes lie in the log's buffer.
    fn append(&mut self, index: usize, partition: usize, n: usize) {
        let broker = self.connections[index].broker;
        if let Some(broker) = self.brokers.get_mut(&broker) {
            broker.bytes_appended += u64::try_from(n).unwrap_or(0);
        }
        self.measure(index);
        let result = self.with_log(partition, |log, cx| log.received(n, cx));
        if let Some(Err(error)) = result {
            let connection = &mut self.connections[index];
            connection.run = Some(RunTarget::Discard);
            let sent_offset = connection.current.as_mut().map_or(Offset::NONE, |current| {
                current.refused = true;
                current.sent_offset
            });
            self.on_refused(partition, sent_offset, error);
        }
    }

    /// Consumes what has been read ahead.
    pub(super) fn process(&mut self, index: usize) {
        loop {
            let connection = &mut self.connections[index];
            match connection.phase {
                Phase::Handshake(version) => {
                    if !self.handshake(index, version) {
                        return;
                    }
                    self.drive(index);
                }
                Phase::Ready if connection.run.is_some() => {
                    if !self.take_records(index) {
                        return;
                    }
                }
                Phase::Ready => {
                    if !self.decode(index) {
                        return;
                    }
                }
                Phase::Down | Phase::Connecting => return,
            }
        }
    }

    /// Moves read-ahead record bytes to where they belong. `false` if it has to wait.
    fn take_records(&mut self, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let left = connection.stream.remaining_records();
        if left == 0 {
            connection.run = None;
            return true;
        }
        let staged = connection.staged().len();
        let take = staged.min(usize::try_from(left).unwrap_or(usize::MAX));
        if take == 0 {
            return false;
        }
        let taken = match connection.run {
            Some(RunTarget::Append(partition)) => {
                if !self.has_buffer(partition) {
                    self.stall(index);
                    return false;
                }
                let connection = &self.connections[index];
                let log = self.partitions.get_mut(partition).and_then(Option::as_deref_mut);
                let Some(buffer) = log.and_then(|partition| partition.log.offered_buffer()) else {
                    return false;
                };
                let n = take.min(buffer.len());
                buffer[..n].copy_from_slice(&connection.staged()[..n]);
                self.stats.append.bytes_copied += u64::try_from(n).unwrap_or(0);
                Some((partition, n))
            }
            Some(RunTarget::Ahead(partition)) => return self.take_ahead(index, partition),
            Some(RunTarget::Discard) | None => None,
        };
        let n = taken.map_or(take, |(_, n)| n);
        let n_u64 = u64::try_from(n).unwrap_or(0);
        let connection = &mut self.connections[index];
        connection.consume(n);
        connection.stream.records_taken(n_u64);
        self.stats.record_bytes_received += n_u64;
        match taken {
            Some((partition, n)) => self.append(index, partition, n),
            None => self.stats.record_bytes_dropped += n_u64,
        }
        true
    }

    /// Decodes one step of the response. `false` if more bytes are needed.
    fn decode(&mut self, index: usize) -> bool {
        let (used, event) = match self.connections[index].decode() {
            Ok(None) => return false,
            Ok(Some(step)) => step,
            Err(error) => {
                let reason = format!("the broker's answer to Fetch is broken: {error}");
                self.break_connection(index, &Arc::from(reason));
                return false;
            }
        };
        match event {
            None => return used > 0,
            Some(FetchEvent::Header(header)) => self.on_header(index, header),
            Some(FetchEvent::Partition(header)) => self.on_partition(index, header),
            Some(FetchEvent::PartitionEnd(end)) => self.on_partition_end(index, end),
            Some(FetchEvent::End { node_endpoints }) => self.on_end(index, &node_endpoints),
        }
        true
    }

    fn on_header(&mut self, index: usize, header: ResponseHeader) {
        let now = self.now;
        let connection = &mut self.connections[index];
        let Some(asked) = connection.in_flight.take() else {
            self.break_connection(index, &Arc::from("the broker answers what was not asked"));
            return;
        };
        if asked.correlation_id != header.correlation_id {
            let reason = format!(
                "the broker answers request {}, asked was {}",
                header.correlation_id, asked.correlation_id
            );
            self.break_connection(index, &Arc::from(reason));
            return;
        }
        connection.answering = Some(asked);
        connection.ended.clear();
        let free_at = connection.answered_at;
        // One that was asked ahead has waited for the answer before it.
        if asked.sent_at >= free_at {
            connection.path.answered_after(now.since(asked.sent_at), now);
        }
        connection.path.answer_begins(now.since(asked.sent_at.max(free_at)), now);
        if header.throttle_ms > 0 {
            self.stats.broker_throttle_ms += u64::from(header.throttle_ms);
            let until = now.after(Duration::from_millis(u64::from(header.throttle_ms)));
            connection.quiet_until = connection.quiet_until.max(until);
        }
        match connection.session.on_response_header(header.error, header.session_id) {
            HeaderOutcome::InSession | HeaderOutcome::NoSession | HeaderOutcome::Reset(_) => {}
            HeaderOutcome::Failed(error) => {
                let reason = format!("the broker answers Fetch with {error}");
                self.break_connection(index, &Arc::from(reason));
            }
        }
    }

    fn on_partition(&mut self, index: usize, header: PartitionHeader) {
        let session = &mut self.connections[index].session;
        let answered = session.answered(&header.topic, header.index, header.records_bytes);
        let (member, sent_offset) = match answered {
            Answered::Wanted { token, sent } => (usize::try_from(token).ok(), sent.fetch_offset),
            Answered::Unwanted | Answered::NotAsked => (None, Offset::NONE),
        };
        let standing = self.standing(index, member, sent_offset);
        let limit = self.wanted(member, standing, &header);
        let bytes = header.records_bytes;
        let target = match (limit, member) {
            (Some(limit), Some(member)) => {
                if self.partition(member).is_some_and(|partition| partition.throttled) {
                    self.throttle.spend(bytes, self.now);
                }
                self.with_log(member, |log, cx| log.begin_run(bytes, limit, cx));
                RunTarget::Append(member)
            }
            (None, Some(member)) if standing == Standing::Ahead && header.error.is_none() => {
                RunTarget::Ahead(member)
            }
            _ => RunTarget::Discard,
        };
        let connection = &mut self.connections[index];
        if bytes > 0 {
            connection.saw_run(bytes);
            connection.path.announced(bytes);
            connection.run = Some(target);
        }
        connection.current =
            Some(Current { partition: member, sent_offset, header, refused: false, standing });
        if connection.stream.is_last_partition()
            && let Some(answering) = &mut connection.answering
        {
            answering.named = true;
        }
        if matches!(connection.lane, Lane::Stripe(_)) {
            self.drive(index);
        } else {
            self.ask_ahead(index);
        }
    }

    /// Whether an answer to a question for `sent_offset` is about what is open now: a
    /// partition may have gone on elsewhere and come back while it was under way.
    fn standing(&self, index: usize, member: Option<usize>, sent_offset: Offset) -> Standing {
        let partition = member.and_then(|it| self.partitions.get(it)).and_then(Option::as_deref);
        let Some(partition) = partition.filter(|it| it.status == Status::Fetching) else {
            return Standing::Stale;
        };
        let at_end = sent_offset == partition.log.fetch_offset();
        let Some(striping) = &partition.striping else {
            let fresh = partition.connection == Some(index) && at_end;
            return if fresh { Standing::Fresh } else { Standing::Stale };
        };
        let number = self.connections[index].answering.and_then(|it| it.range);
        match number.and_then(|number| striping.plan.get(number)) {
            Some(range) if !range.is_exact() => Standing::Ahead,
            Some(_) if at_end => Standing::Fresh,
            Some(_) | None => Standing::Stale,
        }
    }

    /// The epoch limit for records that are wanted; `None` if they are to be dropped:
    /// not asked for in this way, or the log cannot take them now.
    fn wanted(
        &mut self,
        member: Option<usize>,
        standing: Standing,
        header: &PartitionHeader,
    ) -> Option<LeaderEpoch> {
        let fresh = standing == Standing::Fresh;
        let partition = self.partition(member?)?;
        (fresh && partition.log.takes_runs() && header.error.is_none() && header.records_bytes > 0)
            .then(|| partition.epoch_limit())
    }

    fn on_partition_end(&mut self, index: usize, end: PartitionEnd) {
        let Some(current) = self.connections[index].current.take() else { return };
        let Current { partition: Some(member), header, refused, standing, .. } = current else {
            return;
        };
        self.connections[index].ended.push(member);
        if matches!(self.connections[index].lane, Lane::Stripe(_)) {
            if !refused {
                self.on_range_end(index, member, &header, &end);
            }
            return;
        }
        let Some(partition) = self.partition(member) else { return };
        if partition.connection != Some(index) || partition.status != Status::Fetching {
            return;
        }
        if standing != Standing::Fresh {
            self.set_position(member);
            return;
        }
        if self.judge_end(index, member, &header, &end) && !refused {
            self.on_fetched(index, member, &header);
        }
    }

    /// What the source says about where the partition stands; `false` if it goes no further.
    pub(super) fn judge_end(
        &mut self,
        index: usize,
        member: usize,
        header: &PartitionHeader,
        end: &PartitionEnd,
    ) -> bool {
        if !header.error.is_none() {
            self.on_error(index, member, header.error, end.current_leader);
            return false;
        }
        if let Some(diverging) = end.diverging_epoch {
            self.begin_return(member, ReturnReason::Diverged(diverging));
            return false;
        }
        true
    }

    pub(super) fn on_fetched(&mut self, index: usize, member: usize, header: &PartitionHeader) {
        let now = self.now;
        let Some(partition) = self.partition(member) else { return };
        if header.high_watermark >= Offset::ZERO {
            // Of ranges, an answer that was given earlier may be dealt with later.
            let least =
                if partition.striping.is_some() { partition.high_watermark } else { Offset::NONE };
            partition.high_watermark = header.high_watermark.max(least);
        }
        partition.observe();
        // A leader change may take it back; readers were promised the largest one.
        partition.source_last_stable = partition.source_last_stable.max(header.last_stable_offset);
        if partition.trouble.take().is_some() || partition.backoff.attempts() > 0 {
            partition.backoff.succeeded();
        }
        let got_records = header.records_bytes > 0;
        if got_records {
            partition.active_at = now;
        }
        let caught_up = partition.is_caught_up();
        let idle = caught_up && !got_records;
        let behind = !partition.is_caught_up()
            && header.records_bytes >= u64::from(self.config.partition_max_bytes / 2);
        let log_start = header.log_start_offset;
        self.with_log(member, |log, cx| log.advance_log_start(log_start, cx));
        self.mark_dirty(member);
        self.tell_first_arrival(member);
        self.set_position(member);
        let connection = &mut self.connections[index];
        connection.brought_records |= got_records;
        connection.left_behind |= !caught_up;
        if connection.backoff.attempts() > 0 {
            connection.backoff.succeeded();
            connection.down_reason = None;
        }
        let lane = connection.lane;
        match lane {
            // Nothing has arrived yet for a partition without data: it never was busy.
            Lane::Busy(_) if idle && !self.was_active(member) => self.change_lane(member),
            Lane::Tail if behind => self.change_lane(member),
            Lane::Stripe(_) => {
                self.adapt(index, member);
                self.after_range(member);
            }
            Lane::Busy(_) => self.adapt(index, member),
            Lane::Tail | Lane::Throttled => {}
        }
    }

    fn was_active(&mut self, member: usize) -> bool {
        let (now, after) = (self.now, self.config.idle_move_after);
        self.partition(member).is_some_and(|partition| {
            partition.log.bytes_committed() > 0 && now.since(partition.active_at) < after
        })
    }

    pub(super) fn change_lane(&mut self, member: usize) {
        self.delist(member);
        self.resume(member);
    }

    /// Busy partitions that have gone quiet move to the long polls.
    pub(super) fn move_idle(&mut self) {
        for index in 0..self.connections.len() {
            if !matches!(self.connections[index].lane, Lane::Busy(_)) {
                continue;
            }
            let members: Vec<usize> = self.connections[index].members.iter().copied().collect();
            for member in members {
                let caught_up = self.partition(member).is_some_and(|p| p.is_caught_up());
                if caught_up && !self.was_active(member) {
                    self.change_lane(member);
                }
            }
        }
    }

    pub(super) fn on_error(
        &mut self,
        index: usize,
        member: usize,
        error: ErrorCode,
        hint: Option<LeaderHint>,
    ) {
        let attempts_max = self.config.attempts_max;
        let Some(partition) = self.partition(member) else { return };
        let tries = partition.backoff.attempts() + 1;
        let (key, fetch_offset) = (partition.key, partition.log.fetch_offset());
        match error.reaction() {
            Reaction::LeaderMoved | Reaction::FencedEpoch | Reaction::RefreshMetadata => {
                if let Some(hint) = hint {
                    self.connections[index].moves.push((key, hint));
                }
                self.back_off(member, Trouble::Source(error));
                self.want_metadata();
            }
            Reaction::OffsetOutOfRange => {
                self.begin_return(member, ReturnReason::OutOfRange { fetch_offset });
            }
            Reaction::UnknownTopic if tries >= attempts_max => {
                self.begin_return(member, ReturnReason::UnknownTopic(error));
            }
            Reaction::UnknownTopic => {
                self.back_off(member, Trouble::Source(error));
                self.want_metadata();
            }
            Reaction::Corrupt if tries >= attempts_max => {
                self.begin_return(member, ReturnReason::Fatal(error));
            }
            Reaction::TooOld | Reaction::Fatal => {
                self.begin_return(member, ReturnReason::Fatal(error));
            }
            Reaction::Retry
            | Reaction::Unauthorized
            | Reaction::Corrupt
            | Reaction::SessionReset(_)
            | Reaction::Proceed => self.back_off(member, Trouble::Source(error)),
        }
    }

    fn on_refused(&mut self, member: usize, sent_offset: Offset, error: RunError) {
        let attempts_max = self.config.attempts_max;
        let Some(partition) = self.partition(member) else { return };
        let key = partition.key;
        // Progress before the refusal makes it a new matter.
        if partition.log.fetch_offset() != sent_offset {
            partition.backoff.succeeded();
        }
        let tries = partition.backoff.attempts() + 1;
        match error {
            RunError::EpochAhead { epoch, .. }
                if partition.local_epoch.known().is_some_and(|local| epoch > local) =>
            {
                self.begin_return(member, ReturnReason::EpochFenced { epoch });
            }
            RunError::EpochAhead { .. } => {
                self.back_off(member, Trouble::Refused(error));
                self.want_metadata();
            }
            RunError::Record(_) if tries < attempts_max => {
                self.actions.push_back(Action::Report(Report::BadBatch { key, error }));
                self.back_off(member, Trouble::Refused(error));
            }
            RunError::Record(_) | RunError::EpochGoesBack { .. } | RunError::Overlap { .. } => {
                self.begin_return(member, ReturnReason::Refused(error));
            }
        }
    }

    fn on_end(&mut self, index: usize, endpoints: &[NodeEndpoint]) {
        let connection = &mut self.connections[index];
        let asked = connection.answering.take();
        let range = asked.and_then(|it| it.range);
        connection.answered_at = self.now;
        connection.deadline = match connection.in_flight {
            None => Tick::NEVER,
            Some(_) => self.now.after(self.config.fetch_wait + self.config.request_timeout),
        };
        let striped = matches!(connection.lane, Lane::Stripe(_));
        let spent = connection.path.answer_ends(striped, self.now);
        self.stats.spent.add(&spent);
        // A long poll without records tells of the source's patience.
        let brought_records = std::mem::take(&mut connection.brought_records);
        if brought_records && self.stats.fetch_latencies.len() < LATENCIES_MAX {
            self.stats.fetch_latencies.push(spent.waiting);
        }
        let left_behind = std::mem::take(&mut connection.left_behind);
        if let (Some(asked), true, false) = (asked, brought_records, left_behind)
            && matches!(connection.lane, Lane::Busy(_) | Lane::Tail)
        {
            let until = asked.sent_at.after(self.config.fetch_linger);
            connection.quiet_until = connection.quiet_until.max(until);
        }
        let moves = std::mem::take(&mut connection.moves);
        for (key, hint) in moves {
            self.follow_hint(key, hint, endpoints);
        }
        if striped {
            self.on_range_silent(index, range.unwrap_or_default());
            if let Some(&member) = self.connections[index].members.first() {
                self.drive_stripes(member);
            }
        } else {
            self.drive(index);
        }
    }

    /// A broker named another leader, and perhaps where it is.
    fn follow_hint(&mut self, key: PartitionKey, hint: LeaderHint, endpoints: &[NodeEndpoint]) {
        let Some(member) = self.index_of(key) else { return };
        if let Some(endpoint) = endpoints.iter().find(|endpoint| endpoint.node == hint.leader)
            && !self.brokers.contains_key(&hint.leader)
        {
            self.know_broker(BrokerAddress {
                id: endpoint.node,
                host: Arc::from(endpoint.host.as_str()),
                port: endpoint.port,
            });
        }
        let known = self.brokers.contains_key(&hint.leader);
        let leader = Leader { broker: hint.leader, epoch: hint.epoch };
        let Some(partition) = self.partition(member) else { return };
        if partition.learn_leader(leader) {
            self.actions.push_back(Action::Report(Report::LeaderHint { key, leader }));
            // The new leader has not failed yet: no back-off from the old one's answer.
            if known && self.partition(member).is_some_and(|p| p.status == Status::BackingOff) {
                self.resume(member);
            } else {
                // Its back-off was over before the answer was: it asks the old one again.
                self.restart(member);
            }
        }
    }
}

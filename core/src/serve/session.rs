//! Server side of fetch sessions (KIP-227).
//!
//! A session remembers the partitions of a client and what it was last told of
//! each, so that a request names only what changed and a response only what is
//! new. The number of sessions is bounded: a new one takes the slot of one that
//! is long unused, or of a smaller one that has had its time.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use kafka_protocol::error::ResponseError;

use super::request::{FetchParams, FetchRequestFacts, PartitionKey, VERSION_TOPIC_IDS};
use super::response::PartitionAnswer;
use crate::time::Tick;
use crate::types::{LeaderEpoch, Offset};

/// Epoch of a request that asks for a full fetch and a new session.
const EPOCH_INITIAL: i32 = 0;
/// Epoch of a request that asks for a full fetch without a session.
const EPOCH_FINAL: i32 = -1;

/// Bounds of the cache.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// `max.incremental.fetch.session.cache.slots`: sessions at most.
    pub slots: usize,
    /// How long a session keeps its slot against others.
    pub min_eviction_age: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { slots: 1000, min_eviction_age: Duration::from_mins(2) }
    }
}

/// What a request turned out to be. Goes back to [`FetchSessionCache::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchContext {
    /// A full fetch outside of any session.
    Sessionless,
    /// A full fetch that wants a session.
    Full,
    /// A request of a session.
    Incremental {
        /// The session.
        session_id: i32,
        /// The epoch that the session now expects.
        epoch_next: i32,
    },
}

/// What goes into the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionAnswer {
    /// Session ID, 0 for none. The partitions of the response have been chosen.
    Session(i32),
    /// An error of the whole response, without partitions.
    Error(ResponseError),
}

#[derive(Debug)]
struct CachedPartition {
    params: FetchParams,
    /// Place in the session's order.
    turn: u64,
    /// What the client was last told; [`Offset::NONE`] makes it be told again.
    high_watermark: Offset,
    log_start: Offset,
    mirror_leader_epoch: LeaderEpoch,
}

impl CachedPartition {
    fn new(params: FetchParams, turn: u64) -> Self {
        Self {
            params,
            turn,
            high_watermark: Offset::NONE,
            log_start: Offset::NONE,
            mirror_leader_epoch: LeaderEpoch::NONE,
        }
    }

    /// Whether `answer` says something new; remembers it as told.
    fn tell(&mut self, answer: &PartitionAnswer) -> bool {
        let news = answer.records_bytes > 0
            || answer.high_watermark != self.high_watermark
            || answer.log_start != self.log_start
            || answer.mirror_leader_epoch != self.mirror_leader_epoch
            || answer.error.is_some()
            || answer.diverging.is_some();
        self.log_start = answer.log_start;
        self.mirror_leader_epoch = answer.mirror_leader_epoch;
        // After an error the watermark is told again once the partition is well.
        self.high_watermark =
            if answer.error.is_some() { Offset::NONE } else { answer.high_watermark };
        news
    }
}

#[derive(Debug)]
struct Session {
    created: Tick,
    used: Tick,
    /// The epoch of the next request.
    epoch: i32,
    by_id: bool,
    partitions: HashMap<PartitionKey, CachedPartition>,
    /// Turn to key: partitions that gave data move behind those that did not.
    order: BTreeMap<u64, PartitionKey>,
    turn_next: u64,
}

impl Session {
    fn put(&mut self, key: &PartitionKey, params: FetchParams) {
        if let Some(cached) = self.partitions.get_mut(key) {
            cached.params = params;
            return;
        }
        let turn = self.turn_next;
        self.turn_next += 1;
        self.order.insert(turn, key.clone());
        self.partitions.insert(key.clone(), CachedPartition::new(params, turn));
    }

    fn forget(&mut self, key: &PartitionKey) {
        if let Some(cached) = self.partitions.remove(key) {
            self.order.remove(&cached.turn);
        }
    }

    fn move_to_end(&mut self, key: &PartitionKey) {
        let Some(cached) = self.partitions.get_mut(key) else { return };
        if let Some(key) = self.order.remove(&cached.turn) {
            cached.turn = self.turn_next;
            self.turn_next += 1;
            self.order.insert(cached.turn, key);
        }
    }

    fn list(&self) -> Vec<(PartitionKey, FetchParams)> {
        self.order
            .values()
            .filter_map(|key| Some((key.clone(), self.partitions.get(key)?.params)))
            .collect()
    }
}

/// All sessions of one listener thread.
#[derive(Debug)]
pub struct FetchSessionCache {
    limits: SessionLimits,
    sessions: HashMap<i32, Session>,
    evictions: u64,
}

impl FetchSessionCache {
    /// An empty cache.
    pub fn new(limits: SessionLimits) -> Self {
        Self { limits, sessions: HashMap::new(), evictions: 0 }
    }

    /// Sessions at the moment.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Sessions that lost their slot to another.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Drops a session as an eviction would: its client hears
    /// `FETCH_SESSION_ID_NOT_FOUND`. Whether it was there.
    pub fn evict(&mut self, session_id: i32) -> bool {
        let there = self.sessions.remove(&session_id).is_some();
        self.evictions += u64::from(there);
        there
    }

    /// Drops all sessions, as a restarted broker does.
    pub fn clear(&mut self) {
        self.sessions.clear();
    }

    /// Takes a request in: what it is, and the partitions to serve in their order.
    ///
    /// # Errors
    ///
    /// An error of the whole response: the session is unknown
    /// (`FETCH_SESSION_ID_NOT_FOUND`), its epoch is another
    /// (`INVALID_FETCH_SESSION_EPOCH`), or it mixes names and topic IDs
    /// (`FETCH_SESSION_TOPIC_ID_ERROR`).
    pub fn begin(
        &mut self,
        now: Tick,
        request: &FetchRequestFacts,
    ) -> Result<(FetchContext, Vec<(PartitionKey, FetchParams)>), ResponseError> {
        let id = request.session_id;
        if matches!(request.session_epoch, EPOCH_INITIAL | EPOCH_FINAL) {
            // A full fetch of a session replaces it.
            self.sessions.remove(&id);
            let context = if request.session_epoch == EPOCH_FINAL {
                FetchContext::Sessionless
            } else {
                FetchContext::Full
            };
            return Ok((context, distinct(&request.partitions)));
        }
        let session = self.sessions.get_mut(&id).ok_or(ResponseError::FetchSessionIdNotFound)?;
        if session.epoch != request.session_epoch {
            return Err(ResponseError::InvalidFetchSessionEpoch);
        }
        if session.by_id != (request.version >= VERSION_TOPIC_IDS) {
            return Err(ResponseError::FetchSessionTopicIdError);
        }
        for (key, params) in &request.partitions {
            session.put(key, *params);
        }
        for key in &request.forgotten {
            session.forget(key);
        }
        if session.partitions.is_empty() {
            self.sessions.remove(&id);
            return Ok((FetchContext::Sessionless, Vec::new()));
        }
        session.used = now;
        session.epoch = epoch_after(session.epoch);
        let context = FetchContext::Incremental { session_id: id, epoch_next: session.epoch };
        Ok((context, session.list()))
    }

    /// Ends a request: opens a session if it wants one, and takes out of `answers`
    /// what the client knows already. `id_seed` is a random number for a new ID.
    pub fn finish(
        &mut self,
        now: Tick,
        context: FetchContext,
        request: &FetchRequestFacts,
        answers: &mut Vec<PartitionAnswer>,
        id_seed: u32,
    ) -> SessionAnswer {
        match context {
            FetchContext::Sessionless => SessionAnswer::Session(0),
            FetchContext::Full => {
                SessionAnswer::Session(self.create(now, request, answers, id_seed))
            }
            FetchContext::Incremental { session_id, epoch_next } => {
                let Some(session) = self.sessions.get_mut(&session_id) else {
                    answers.clear();
                    return SessionAnswer::Error(ResponseError::FetchSessionIdNotFound);
                };
                // Another connection used the session while this request waited.
                if session.epoch != epoch_next {
                    answers.clear();
                    return SessionAnswer::Error(ResponseError::InvalidFetchSessionEpoch);
                }
                answers.retain(|answer| {
                    let Some(cached) = session.partitions.get_mut(&answer.key) else {
                        return false;
                    };
                    let news = cached.tell(answer);
                    if news && answer.records_bytes > 0 {
                        session.move_to_end(&answer.key);
                    }
                    news
                });
                SessionAnswer::Session(session_id)
            }
        }
    }

    /// The ID of a new session, 0 if there is nothing to remember or no slot.
    fn create(
        &mut self,
        now: Tick,
        request: &FetchRequestFacts,
        answers: &[PartitionAnswer],
        id_seed: u32,
    ) -> i32 {
        if request.partitions.is_empty() || !self.make_room(now, request.partitions.len()) {
            return 0;
        }
        let mut session = Session {
            created: now,
            used: now,
            epoch: epoch_after(EPOCH_INITIAL),
            by_id: request.version >= VERSION_TOPIC_IDS,
            partitions: HashMap::with_capacity(request.partitions.len()),
            order: BTreeMap::new(),
            turn_next: 0,
        };
        for (key, params) in &request.partitions {
            session.put(key, *params);
        }
        for answer in answers {
            if let Some(cached) = session.partitions.get_mut(&answer.key) {
                cached.tell(answer);
            }
        }
        // Ends: there are fewer sessions than IDs.
        let mut id = i32::try_from(id_seed & 0x7fff_ffff).unwrap_or(1).max(1);
        while self.sessions.contains_key(&id) {
            id = id.checked_add(1).unwrap_or(1);
        }
        self.sessions.insert(id, session);
        id
    }

    /// Kafka's rule: the longest unused session goes if it was unused for the
    /// eviction age; else the smallest that is older than that, if the new one is larger.
    fn make_room(&mut self, now: Tick, partitions: usize) -> bool {
        if self.sessions.len() < self.limits.slots {
            return true;
        }
        let age = self.limits.min_eviction_age;
        let unused = self.sessions.iter().min_by_key(|(id, session)| (session.used, **id));
        let idle = unused.filter(|(_, session)| now.since(session.used) > age).map(|(id, _)| *id);
        let victim = idle.or_else(|| {
            let old = self.sessions.iter().filter(|(_, s)| now.since(s.created) > age);
            let smallest = old.min_by_key(|(id, session)| (session.partitions.len(), **id));
            smallest.filter(|(_, s)| s.partitions.len() < partitions).map(|(id, _)| *id)
        });
        victim.is_some_and(|id| self.evict(id))
    }
}

/// A client that names a partition twice means its last word.
fn distinct(partitions: &[(PartitionKey, FetchParams)]) -> Vec<(PartitionKey, FetchParams)> {
    let mut places = HashMap::with_capacity(partitions.len());
    let mut kept: Vec<(PartitionKey, FetchParams)> = Vec::with_capacity(partitions.len());
    for (key, params) in partitions {
        if let Some(&place) = places.get(key) {
            if let Some((_, old)) = kept.get_mut::<usize>(place) {
                *old = *params;
            }
        } else {
            places.insert(key, kept.len());
            kept.push((key.clone(), *params));
        }
    }
    kept
}

fn epoch_after(epoch: i32) -> i32 {
    match epoch {
        ..0 => EPOCH_FINAL,
        i32::MAX => 1,
        epoch => epoch + 1,
    }
}

#[cfg(test)]
mod tests;

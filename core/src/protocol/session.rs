//! The client's side of incremental fetch sessions (KIP-227), one per connection.
//!
//! A broker remembers the partitions of a session with their positions, so that
//! a request only carries what changed since the last one, and an answer only
//! the partitions that have something to say.
//!
//! ```text
//!             answer with a session ID
//!   full  ------------------------------->  incremental, epoch 1, 2, … 2^31-1, 1, …
//!   fetch <-------------------------------
//!             any error, a lost request, an answer that names what was not asked
//! ```
//!
//! A broker that answers a full fetch with session ID 0 has no room for a
//! session: positions stay and full fetches go on. Their order rotates, since
//! the broker fills a response from the front.
//!
//! Invariant: after an answered request, the broker's session holds exactly the
//! partitions that were wanted when the request was planned, at the positions
//! that were wanted then. A request costs O(what changed); only full ones cost
//! O(all).

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use super::fetch_request::{
    FETCH_VERSION_NAMES_MAX, FETCH_VERSION_SESSIONS, FetchPartition, FetchPosition,
    ForgottenPartition, TopicIdentity,
};
use super::fetch_stream::TopicRef;
use super::{ErrorCode, Reaction, SessionFault};
use crate::types::{LeaderEpoch, Offset, TopicId};

/// Entries that are kept when none is wanted: for so few, a session goes on rather than anew.
const KEPT_UNWANTED_MAX: usize = 1_000;
/// "No session" on the wire.
const NO_SESSION: i32 = 0;
/// Epoch of a request that opens a session.
const EPOCH_OPEN: i32 = 0;
/// Epoch of a request that wants no session.
const EPOCH_NONE: i32 = -1;

/// The partitions of one connection and what the broker knows of them.
#[derive(Debug)]
pub struct FetchSession {
    version: i16,
    next: Next,
    /// A request has been planned and not been answered.
    in_flight: bool,
    /// Client and broker disagree: the next request starts over.
    start_over: bool,
    topics: Slab<Topic>,
    names: HashMap<Arc<str>, usize>,
    ids: HashMap<TopicId, usize>,
    without_id: usize,
    entries: Slab<Entry>,
    wanted: usize,
    /// Entries to look at for the next incremental request, each once.
    changed: Vec<usize>,
    /// Entry that the next full request starts with.
    rotation: usize,
}

/// What the next request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Everything; closes the session `close` at the broker if it is not 0.
    Full { close: i32 },
    /// What changed.
    Incremental { id: i32, epoch: i32 },
}

#[derive(Debug)]
struct Topic {
    identity: TopicIdentity,
    /// Their entries.
    partitions: HashMap<i32, u32>,
}

/// One of these for each of very many partitions.
#[derive(Debug)]
struct Entry {
    topic: u32,
    index: i32,
    token: u32,
    /// `None` once it was removed here and the broker may not know yet.
    wanted: Kept,
    /// What the last request told the broker.
    sent: Kept,
    /// Whether it is in `changed`.
    queued: bool,
    /// Its place in the next request.
    place: Place,
}

/// Whether a partition takes part in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    In,
    /// It leaves with the next request, and comes back with the one after it.
    Leaving,
    /// The last request left it out.
    Out,
}

/// An `Option<FetchPosition>` in the space of a position.
#[derive(Clone, Copy, Debug)]
struct Kept {
    fetch_offset: Offset,
    current_leader_epoch: LeaderEpoch,
    last_fetched_epoch: LeaderEpoch,
    partition_max_bytes: u32,
    is_some: bool,
}

impl Kept {
    const NONE: Self = Self {
        fetch_offset: Offset::NONE,
        current_leader_epoch: LeaderEpoch::NONE,
        last_fetched_epoch: LeaderEpoch::NONE,
        partition_max_bytes: 0,
        is_some: false,
    };

    fn some(position: FetchPosition) -> Self {
        let FetchPosition {
            fetch_offset,
            current_leader_epoch,
            last_fetched_epoch,
            partition_max_bytes,
        } = position;
        Self {
            fetch_offset,
            current_leader_epoch,
            last_fetched_epoch,
            partition_max_bytes,
            is_some: true,
        }
    }

    fn get(&self) -> Option<FetchPosition> {
        let Self {
            fetch_offset,
            current_leader_epoch,
            last_fetched_epoch,
            partition_max_bytes,
            is_some,
        } = *self;
        is_some.then_some(FetchPosition {
            fetch_offset,
            current_leader_epoch,
            last_fetched_epoch,
            partition_max_bytes,
        })
    }
}

/// Session part and partitions of the next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// 0 for none.
    pub session_id: i32,
    /// 0 opens a session, −1 wants none.
    pub session_epoch: i32,
    /// All partitions of a full request, the changed ones of an incremental one.
    pub partitions: Vec<FetchPartition>,
    /// Partitions that leave the session.
    pub forgotten: Vec<ForgottenPartition>,
}

impl SessionRequest {
    /// Whether it names every partition.
    pub fn is_full(&self) -> bool {
        self.session_epoch <= EPOCH_OPEN
    }
}

/// What the header of a response means for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderOutcome {
    /// The session goes on, or has been opened.
    InSession,
    /// The broker keeps no session. What the response holds is good; the next
    /// request is a full one. An empty, throttled answer is to be waited out.
    NoSession,
    /// The broker has lost the session: nothing was fetched, positions stay,
    /// the next request is a full one.
    Reset(SessionFault),
    /// The request failed as a whole; the next one is a full one.
    Failed(ErrorCode),
}

/// What a partition of a response is to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It was asked for and is still wanted.
    Wanted {
        /// The caller's handle, as given to [`FetchSession::want`].
        token: u32,
        /// The position that was sent. Records that do not begin there answer
        /// an older question than the one that is open now.
        sent: FetchPosition,
    },
    /// It was removed while the request was under way: discard.
    Unwanted,
    /// It was not asked for: discard. The next request starts the session over.
    NotAsked,
}

impl FetchSession {
    /// An empty session that will speak Fetch `version`.
    pub fn new(version: i16) -> Self {
        Self {
            version,
            next: Next::Full { close: NO_SESSION },
            in_flight: false,
            start_over: false,
            topics: Slab::default(),
            names: HashMap::new(),
            ids: HashMap::new(),
            without_id: 0,
            entries: Slab::default(),
            wanted: 0,
            changed: Vec::new(),
            rotation: 0,
        }
    }

    /// Fetch version of the requests.
    pub fn version(&self) -> i16 {
        self.version
    }

    /// Number of partitions that are wanted.
    pub fn len(&self) -> usize {
        self.wanted
    }

    /// Whether no partition is wanted.
    pub fn is_empty(&self) -> bool {
        self.wanted == 0
    }

    /// Whether every topic has an ID: what the Fetch version depends on.
    pub fn all_topics_have_ids(&self) -> bool {
        self.without_id == 0
    }

    /// Goes over to another Fetch version, between two requests. Naming topics
    /// otherwise than before starts the session over.
    ///
    /// # Panics
    ///
    /// If a request is under way: its answer speaks the old version.
    pub fn set_version(&mut self, version: i16) {
        assert!(!self.in_flight, "version changed under a request");
        let renamed = by_id(version) != by_id(self.version);
        let sessions =
            (version >= FETCH_VERSION_SESSIONS) != (self.version >= FETCH_VERSION_SESSIONS);
        self.version = version;
        self.start_over |= renamed || sessions;
    }

    /// Wants `index` of `topic` from `position` on, with the next request.
    /// `token` is the caller's handle and comes back with each answer.
    ///
    /// Another topic ID under a known name is another topic where topics go by
    /// ID: all partitions of the old one are removed. Where they go by name the
    /// ID is only noted.
    ///
    /// O(1), or O(partitions of the topic) when its ID changed.
    pub fn want(&mut self, topic: &TopicIdentity, index: i32, token: u32, position: FetchPosition) {
        let slot = self.topic_slot(topic);
        let Some(home) = self.topics.get_mut(slot) else { return };
        let entries = &mut self.entries;
        let at = *home.partitions.entry(index).or_insert_with(|| {
            let (topic, wanted, sent) = (narrow(slot), Kept::NONE, Kept::NONE);
            let (queued, place) = (false, Place::In);
            narrow(entries.insert(Entry { topic, index, token, wanted, sent, queued, place }))
        });
        let at = widen(at);
        let Some(entry) = self.entries.get_mut(at) else { return };
        self.wanted += usize::from(!entry.wanted.is_some);
        entry.token = token;
        entry.wanted = Kept::some(position);
        self.touch(at);
    }

    /// Takes `index` of the topic `name` out, with the next request. Returns
    /// whether it was wanted. O(1).
    pub fn remove(&mut self, name: &str, index: i32) -> bool {
        let Some(home) = self.names.get(name).and_then(|&slot| self.topics.get(slot)) else {
            return false;
        };
        let Some(&at) = home.partitions.get(&index) else { return false };
        self.unwant(widen(at))
    }

    /// Gives back what is kept for the next incremental request, if nothing is wanted and
    /// there is much of it. The next request, if there is one, starts over.
    pub fn rest(&mut self) {
        if self.wanted > 0 || self.in_flight || self.entries.end() < KEPT_UNWANTED_MAX {
            return;
        }
        *self = Self { next: Next::Full { close: self.session_id() }, ..Self::new(self.version) };
    }

    /// Leaves `index` of the topic `name` out of the next request, and only of that one: the
    /// answer that is being received may still bring something of it, so that its position is
    /// not known. O(1).
    pub fn leave_out(&mut self, name: &str, index: i32) {
        let Some(home) = self.names.get(name).and_then(|&slot| self.topics.get(slot)) else {
            return;
        };
        let Some(&at) = home.partitions.get(&index) else { return };
        let at = widen(at);
        if let Some(entry) = self.entries.get_mut(at).filter(|entry| entry.wanted.is_some) {
            if entry.place == Place::Out {
                // Nothing is to be forgotten, and no answer to come.
                entry.sent = Kept::NONE;
            }
            entry.place = Place::Leaving;
            self.touch(at);
        }
    }

    /// Whether the last request named it, or an earlier one of the session did.
    pub fn is_asked(&self, name: &str, index: i32) -> bool {
        let home = self.names.get(name).and_then(|&slot| self.topics.get(slot));
        let at = home.and_then(|home| home.partitions.get(&index));
        let entry = at.and_then(|&at| self.entries.get(widen(at)));
        entry.is_some_and(|entry| entry.sent.is_some && entry.place == Place::In)
    }

    /// The next request.
    ///
    /// # Panics
    ///
    /// If the last one has neither been answered nor failed.
    pub fn plan(&mut self) -> SessionRequest {
        assert!(!self.in_flight, "one request of a session at a time");
        if std::mem::take(&mut self.start_over) {
            self.next = Next::Full { close: self.session_id() };
        }
        let request = match self.next {
            _ if self.version < FETCH_VERSION_SESSIONS => self.plan_full(NO_SESSION, EPOCH_NONE),
            Next::Full { close } => self.plan_full(close, EPOCH_OPEN),
            Next::Incremental { id, epoch } => self.plan_changed(id, epoch),
        };
        self.in_flight = true;
        request
    }

    /// The header of the response to the last request has come.
    ///
    /// # Panics
    ///
    /// If there is no request under way: the caller took another's answer.
    pub fn on_response_header(&mut self, error: ErrorCode, session_id: i32) -> HeaderOutcome {
        assert!(std::mem::take(&mut self.in_flight), "response without a request");
        let ours = self.session_id();
        match error.reaction() {
            Reaction::Proceed => {}
            Reaction::SessionReset(fault) => {
                // A session that is gone need not be closed.
                let gone = fault == SessionFault::NotFound;
                self.next = Next::Full { close: if gone { NO_SESSION } else { ours } };
                return HeaderOutcome::Reset(fault);
            }
            _ => {
                self.next = Next::Full { close: ours };
                return HeaderOutcome::Failed(error);
            }
        }
        self.next = match self.next {
            Next::Full { .. } if session_id > NO_SESSION => {
                Next::Incremental { id: session_id, epoch: 1 }
            }
            Next::Incremental { id, epoch } if session_id == id => {
                Next::Incremental { id, epoch: next_epoch(epoch) }
            }
            // An incremental answer from another session: close ours, if it is there.
            Next::Incremental { id, .. } if session_id != NO_SESSION => Next::Full { close: id },
            Next::Full { .. } | Next::Incremental { .. } => Next::Full { close: NO_SESSION },
        };
        match self.next {
            Next::Incremental { .. } => HeaderOutcome::InSession,
            Next::Full { .. } => HeaderOutcome::NoSession,
        }
    }

    /// The connection is lost, or the request cannot be answered any more. The
    /// next request closes the session, in case it is still there, and opens another.
    pub fn on_request_failed(&mut self) {
        self.in_flight = false;
        self.next = Next::Full { close: self.session_id() };
    }

    /// A partition has been answered, with `records_bytes` of records.
    pub fn answered(&mut self, topic: &TopicRef, index: i32, records_bytes: u64) -> Answered {
        let slot = match topic {
            TopicRef::Name(name) => self.names.get(name),
            TopicRef::Id(id) => self.ids.get(id),
        };
        let home = slot.and_then(|&slot| self.topics.get(slot));
        let at = home.and_then(|home| home.partitions.get(&index)).copied().map(widen);
        let found = at.and_then(|at| Some((at, self.entries.get(at)?)));
        match found.and_then(|(at, entry)| Some((at, entry, entry.sent.get()?))) {
            Some((at, entry, sent)) if entry.wanted.is_some => {
                if records_bytes > 0 {
                    self.rotation = at + 1;
                }
                Answered::Wanted { token: entry.token, sent }
            }
            Some(_) => Answered::Unwanted,
            None => {
                self.start_over = true;
                Answered::NotAsked
            }
        }
    }

    /// Session that the broker has for this connection, as far as known; 0 for none.
    pub fn session_id(&self) -> i32 {
        match self.next {
            Next::Full { close: id } | Next::Incremental { id, .. } => id,
        }
    }

    fn plan_full(&mut self, session_id: i32, session_epoch: i32) -> SessionRequest {
        // What nobody wants any more is left out, and thereby forgotten.
        for at in std::mem::take(&mut self.changed) {
            let Some(entry) = self.entries.get_mut(at) else { continue };
            entry.queued = false;
            if !entry.wanted.is_some {
                self.forget(at);
            }
        }
        let end = self.entries.end();
        let start = if self.rotation < end { self.rotation } else { 0 };
        let mut partitions = Vec::with_capacity(self.wanted);
        for at in (start..end).chain(0..start) {
            let Some(entry) = self.entries.get_mut(at) else { continue };
            if entry.place == Place::Leaving {
                entry.place = Place::Out;
                self.touch(at);
                continue;
            }
            entry.place = Place::In;
            entry.sent = entry.wanted;
            partitions.extend(self.topics.get(widen(entry.topic)).and_then(|home| {
                let (topic, position) = (home.identity.clone(), entry.wanted.get()?);
                Some(FetchPartition { topic, index: entry.index, position })
            }));
        }
        SessionRequest { session_id, session_epoch, partitions, forgotten: Vec::new() }
    }

    fn plan_changed(&mut self, session_id: i32, session_epoch: i32) -> SessionRequest {
        let mut changed = std::mem::take(&mut self.changed);
        // Neighbours of one topic share its entry on the wire.
        changed.sort_unstable_by_key(|&at| self.entries.get(at).map(|entry| (entry.topic, at)));
        let (mut partitions, mut forgotten) = (Vec::new(), Vec::new());
        let mut left_out = Vec::new();
        for &at in &changed {
            let Some(entry) = self.entries.get_mut(at) else { continue };
            let Some(home) = self.topics.get(widen(entry.topic)) else { continue };
            entry.queued = false;
            let (topic, index) = (&home.identity, entry.index);
            let place = std::mem::replace(&mut entry.place, Place::In);
            let known = entry.sent.get().filter(|_| place != Place::Out);
            match (entry.wanted.get(), known) {
                (Some(_), known) if place == Place::Leaving => {
                    entry.place = Place::Out;
                    left_out.push(at);
                    if known.is_some() {
                        forgotten.push(ForgottenPartition { topic: topic.clone(), index });
                    }
                }
                (Some(position), sent)
                    if sent.is_none_or(|sent| !same_on_wire(position, sent, self.version)) =>
                {
                    entry.sent = entry.wanted;
                    partitions.push(FetchPartition { topic: topic.clone(), index, position });
                }
                (Some(_), _) => {}
                (None, sent) => {
                    if sent.is_some() {
                        forgotten.push(ForgottenPartition { topic: topic.clone(), index });
                    }
                    self.forget(at);
                }
            }
        }
        // The allocation serves the next request too.
        changed.clear();
        self.changed = changed;
        for at in left_out {
            self.touch(at);
        }
        SessionRequest { session_id, session_epoch, partitions, forgotten }
    }

    /// Slot of `topic`, made if need be.
    fn topic_slot(&mut self, topic: &TopicIdentity) -> usize {
        if let Some(&slot) = self.names.get(&topic.name)
            && let Some(home) = self.topics.get_mut(slot)
        {
            let old = home.identity.id;
            if old == topic.id {
                return slot;
            }
            if !by_id(self.version) {
                home.identity.id = topic.id;
                self.drop_id(old, slot);
                self.note_id(topic.id, slot);
                return slot;
            }
            let all: Vec<_> = home.partitions.values().copied().map(widen).collect();
            for at in all {
                self.unwant(at);
            }
            // Back to an ID that the broker has not been told to forget yet.
            if let Some(&slot) = self.ids.get(&topic.id)
                && self.topics.get(slot).is_some_and(|home| home.identity.name == topic.name)
            {
                self.names.insert(Arc::clone(&topic.name), slot);
                return slot;
            }
        }
        let home = Topic { identity: topic.clone(), partitions: HashMap::new() };
        let slot = self.topics.insert(home);
        self.names.insert(Arc::clone(&topic.name), slot);
        self.note_id(topic.id, slot);
        slot
    }

    fn note_id(&mut self, id: TopicId, slot: usize) {
        match id.known() {
            Some(id) => _ = self.ids.insert(id, slot),
            None => self.without_id += 1,
        }
    }

    fn drop_id(&mut self, id: TopicId, slot: usize) {
        if id.known().is_none() {
            self.without_id -= 1;
        } else if self.ids.get(&id) == Some(&slot) {
            self.ids.remove(&id);
        }
    }

    /// Marks an entry as removed; it stays until the broker is told.
    fn unwant(&mut self, at: usize) -> bool {
        let Some(entry) = self.entries.get_mut(at) else { return false };
        let was = std::mem::replace(&mut entry.wanted, Kept::NONE).is_some;
        self.wanted -= usize::from(was);
        self.touch(at);
        was
    }

    /// Puts an entry among the changed ones, once.
    fn touch(&mut self, at: usize) {
        if let Some(entry) = self.entries.get_mut(at)
            && !std::mem::replace(&mut entry.queued, true)
        {
            self.changed.push(at);
        }
    }

    /// Drops an entry, and its topic with the last one.
    fn forget(&mut self, at: usize) {
        let Some(Entry { topic, index, .. }) = self.entries.remove(at) else { return };
        let slot = widen(topic);
        let Some(home) = self.topics.get_mut(slot) else { return };
        home.partitions.remove(&index);
        if home.partitions.is_empty()
            && let Some(home) = self.topics.remove(slot)
        {
            if self.names.get(&home.identity.name) == Some(&slot) {
                self.names.remove(&home.identity.name);
            }
            self.drop_id(home.identity.id, slot);
        }
    }
}

/// A place among topics or entries, of which there are never more than tokens.
fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn widen(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// Whether topics go by ID.
fn by_id(version: i16) -> bool {
    version > FETCH_VERSION_NAMES_MAX
}

/// Epoch after `epoch`; 0 and −1 have meanings of their own and are left out.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

/// Whether two positions are the same bytes in a request of `version`.
fn same_on_wire(a: FetchPosition, b: FetchPosition, version: i16) -> bool {
    let seen = |mut position: FetchPosition| {
        if version < 12 {
            position.last_fetched_epoch = LeaderEpoch::NONE;
        }
        if version < 9 {
            position.current_leader_epoch = LeaderEpoch::NONE;
        }
        position
    };
    seen(a) == seen(b)
}

/// Values under small numbers that stay the same while a value is in.
#[derive(Debug)]
struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    fn get(&self, at: usize) -> Option<&T> {
        self.slots.get(at)?.as_ref()
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.slots.get_mut(at)?.as_mut()
    }

    fn insert(&mut self, value: T) -> usize {
        if let Some(at) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(at)
        {
            *slot = Some(value);
            return at;
        }
        self.slots.push(Some(value));
        self.slots.len() - 1
    }

    fn remove(&mut self, at: usize) -> Option<T> {
        let value = self.slots.get_mut(at)?.take()?;
        self.free.push(at);
        Some(value)
    }

    /// One above the greatest number in use.
    fn end(&self) -> usize {
        self.slots.len()
    }
}

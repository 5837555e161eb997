//! Producers of one partition and their transactions, as a Kafka follower keeps them.
//!
//! Rebuilt from batch headers and markers alone. Nothing is refused: the source's
//! leader has checked sequences and epochs already, and what it wrote is what holds.
//! The table is a function of the log; its snapshot files only save the re-reading.
//!
//! ```text
//!   transactional data --> ongoing --marker--> unreplicated --high watermark--> gone
//! ```
//!
//! A transaction holds the last stable offset back while it is ongoing, and while
//! its marker is at or above the high watermark.

use std::collections::{BTreeMap, VecDeque};

use super::producer_snapshot::SnapshotEntry;
use super::txn_index::AbortedTxn;
use crate::records::{BatchMeta, ControlType};
use crate::types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

/// Batches that are remembered of each producer, to recognise repeated ones.
const BATCHES_MAX: usize = 5;

/// Sequence and offsets of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerBatch {
    /// Sequence of the batch's last record.
    pub last_sequence: i32,
    /// Last offset that the batch covers.
    pub last_offset: Offset,
    /// Last minus first offset.
    pub offset_delta: i32,
    /// Largest timestamp.
    pub timestamp: TimestampMs,
}

/// What is known of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    epoch: ProducerEpoch,
    coordinator_epoch: i32,
    last_timestamp: TimestampMs,
    txn_first_offset: Option<Offset>,
    batches: VecDeque<ProducerBatch>,
}

impl ProducerEntry {
    fn empty() -> Self {
        Self {
            epoch: ProducerEpoch(-1),
            coordinator_epoch: -1,
            last_timestamp: TimestampMs::NONE,
            txn_first_offset: None,
            batches: VecDeque::new(),
        }
    }

    /// A new epoch starts its sequences anew, so older batches say nothing any more.
    fn enter_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.batches.clear();
            self.epoch = epoch;
        }
    }

    fn add_batch(&mut self, batch: &BatchMeta) {
        self.enter_epoch(batch.producer_epoch);
        if self.batches.len() == BATCHES_MAX {
            self.batches.pop_front();
        }
        let delta = batch.last_offset.0.saturating_sub(batch.base_offset.0);
        self.batches.push_back(ProducerBatch {
            last_sequence: batch.last_sequence(),
            last_offset: batch.last_offset,
            offset_delta: i32::try_from(delta).unwrap_or(i32::MAX),
            timestamp: batch.max_timestamp,
        });
        self.last_timestamp = batch.max_timestamp;
    }

    /// Newest epoch.
    pub fn epoch(&self) -> ProducerEpoch {
        self.epoch
    }

    /// Coordinator epoch of the last marker; −1 if there was none.
    pub fn coordinator_epoch(&self) -> i32 {
        self.coordinator_epoch
    }

    /// Largest timestamp of the last batch or marker.
    pub fn last_timestamp(&self) -> TimestampMs {
        self.last_timestamp
    }

    /// Where the open transaction begins, if one is open.
    pub fn txn_first_offset(&self) -> Option<Offset> {
        self.txn_first_offset
    }

    /// Up to five batches of the newest epoch, oldest first.
    pub fn batches(&self) -> impl ExactSizeIterator<Item = &ProducerBatch> {
        self.batches.iter()
    }

    fn snapshot(&self, producer_id: ProducerId) -> SnapshotEntry {
        let last = self.batches.back();
        SnapshotEntry {
            producer_id,
            producer_epoch: self.epoch,
            last_sequence: last.map_or(-1, |batch| batch.last_sequence),
            last_offset: last.map_or(Offset::NONE, |batch| batch.last_offset),
            offset_delta: last.map_or(0, |batch| batch.offset_delta),
            last_timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            current_txn_first_offset: self.txn_first_offset.unwrap_or(Offset::NONE),
        }
    }

    fn from_snapshot(entry: &SnapshotEntry) -> Self {
        let known = |offset: Offset| (offset.0 >= 0).then_some(offset);
        let batch = known(entry.last_offset).map(|last_offset| ProducerBatch {
            last_sequence: entry.last_sequence,
            last_offset,
            offset_delta: entry.offset_delta,
            timestamp: entry.last_timestamp,
        });
        Self {
            epoch: entry.producer_epoch,
            coordinator_epoch: entry.coordinator_epoch,
            last_timestamp: entry.last_timestamp,
            txn_first_offset: known(entry.current_txn_first_offset),
            batches: batch.into_iter().collect(),
        }
    }
}

/// A transaction that a marker has just ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTxn {
    /// Whose.
    pub producer_id: ProducerId,
    /// First offset of its first batch in the partition.
    pub first_offset: Offset,
    /// Offset of the marker.
    pub last_offset: Offset,
    /// Aborted, not committed.
    pub is_aborted: bool,
    /// Start of the oldest transaction of another producer that is still open, or
    /// what follows the marker. Regardless of the high watermark.
    pub last_stable_offset: Offset,
}

impl CompletedTxn {
    /// The entry that the marker's segment gets in its `.txnindex`; `None` for a commit.
    pub fn aborted(&self) -> Option<AbortedTxn> {
        self.is_aborted.then_some(AbortedTxn {
            producer_id: self.producer_id,
            first_offset: self.first_offset,
            last_offset: self.last_offset,
            last_stable_offset: self.last_stable_offset,
        })
    }
}

/// Producer state of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerState {
    /// `None` while all of them are empty, as in most of very many partitions.
    tables: Option<Box<Tables>>,
    log_start: Offset,
    end_offset: Offset,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tables {
    /// By ID. Most partitions have few producers, for whom a tree would reserve room for many;
    /// and a new one mostly has the highest ID.
    producers: Vec<(ProducerId, ProducerEntry)>,
    /// By first offset.
    ongoing: BTreeMap<Offset, ProducerId>,
    /// First offset to marker's offset.
    unreplicated: BTreeMap<Offset, Offset>,
}

impl Tables {
    const EMPTY: &Self =
        &Self { producers: Vec::new(), ongoing: BTreeMap::new(), unreplicated: BTreeMap::new() };

    fn producer(&self, id: ProducerId) -> Option<&ProducerEntry> {
        let place = self.producers.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.producers.get(place).map(|(_, entry)| entry)
    }

    /// The entry of `id`, an empty one if it is new.
    fn producer_mut(&mut self, id: ProducerId) -> &mut ProducerEntry {
        let place = self.producers.binary_search_by_key(&id, |(id, _)| *id);
        let place = place.unwrap_or_else(|place| {
            if self.producers.is_empty() {
                self.producers.reserve_exact(1);
            }
            self.producers.insert(place, (id, ProducerEntry::empty()));
            place
        });
        &mut self.producers[place].1
    }
}

impl ProducerState {
    /// Without producers, for a log whose first batch will come at or behind `log_start`.
    pub fn new(log_start: Offset) -> Self {
        Self { log_start, end_offset: log_start, ..Self::default() }
    }

    /// From the entries of the snapshot that ends at `snapshot_offset`, exclusive.
    /// Show it every batch from there on. Entries that [`Self::expire`] would drop at
    /// `now` are left out.
    pub fn load(
        entries: &[SnapshotEntry],
        snapshot_offset: Offset,
        log_start: Offset,
        expiry: ProducerExpiry,
    ) -> Self {
        let mut it = Self::new(log_start);
        it.end_offset = snapshot_offset;
        for stored in entries {
            let entry = ProducerEntry::from_snapshot(stored);
            if !expiry.has_expired(&entry) {
                let tables = it.tables.get_or_insert_default();
                if let Some(first) = entry.txn_first_offset {
                    tables.ongoing.insert(first, stored.producer_id);
                }
                *tables.producer_mut(stored.producer_id) = entry;
            }
        }
        it
    }

    /// Takes note of a batch that is in the log. Batches come in log order, each
    /// once. Returns the transaction that a marker ends, if it had data here.
    ///
    /// A marker of an unknown producer makes the producer known and ends nothing.
    /// A control batch whose record was compacted away says nothing. Data outside
    /// of a transaction while one is open leaves it open: a broker would have
    /// refused the batch, so its word cannot be asked.
    /// [`ControlType::MirrorPidReset`] forgets every producer and open transaction, whose
    /// producer could not end it any more; a stop aborts them before. A transaction that has
    /// ended still waits for the high watermark: readers need its marker.
    pub fn on_batch(&mut self, batch: &BatchMeta) -> Option<CompletedTxn> {
        self.end_offset = batch.next_offset();
        if batch.control == Some(ControlType::MirrorPidReset) {
            if let Some(tables) = &mut self.tables {
                tables.producers.clear();
                tables.ongoing.clear();
                self.drop_empty();
            }
            return None;
        }
        if batch.magic < 2 || !batch.producer_id.is_some() {
            return None;
        }
        if batch.is_control() {
            return match batch.control {
                Some(ControlType::Abort) => self.on_marker(batch, true),
                Some(ControlType::Commit) => self.on_marker(batch, false),
                Some(ControlType::MirrorPidReset | ControlType::Other(_)) | None => None,
            };
        }
        let tables = self.tables.get_or_insert_default();
        let entry = tables.producer_mut(batch.producer_id);
        entry.add_batch(batch);
        if batch.is_transactional() && entry.txn_first_offset.is_none() {
            entry.txn_first_offset = Some(batch.base_offset);
            tables.ongoing.insert(batch.base_offset, batch.producer_id);
        }
        None
    }

    fn on_marker(&mut self, batch: &BatchMeta, is_aborted: bool) -> Option<CompletedTxn> {
        let tables = self.tables.get_or_insert_default();
        let entry = tables.producer_mut(batch.producer_id);
        let first_offset = entry.txn_first_offset.take();
        entry.enter_epoch(batch.producer_epoch);
        entry.coordinator_epoch = batch.coordinator_epoch;
        entry.last_timestamp = batch.max_timestamp;
        let first_offset = first_offset?;
        let last_offset = batch.base_offset;
        tables.ongoing.remove(&first_offset);
        tables.unreplicated.insert(first_offset, last_offset);
        let oldest_open = tables.ongoing.first_key_value().map(|(first, _)| *first);
        Some(CompletedTxn {
            producer_id: batch.producer_id,
            first_offset,
            last_offset,
            is_aborted,
            last_stable_offset: oldest_open.unwrap_or(last_offset.plus(1)),
        })
    }

    /// Forgets transactions whose marker is below the high watermark. Call it as that
    /// moves: until then each ended transaction is kept.
    pub fn on_high_watermark(&mut self, high_watermark: Offset) {
        // Mostly there are none, and this is asked for each batch.
        if let Some(tables) = &mut self.tables
            && !tables.unreplicated.is_empty()
        {
            tables.unreplicated.retain(|_, marker| *marker >= high_watermark);
            self.drop_empty();
        }
    }

    /// Follows a log start that moved up. Producers are kept, as in Kafka, even if
    /// all their batches are gone.
    pub fn on_log_start(&mut self, log_start: Offset) {
        self.log_start = self.log_start.max(log_start);
        self.end_offset = self.end_offset.max(log_start);
        self.on_high_watermark(log_start);
    }

    /// Start of the oldest transaction that is open, or whose marker is at or above
    /// the high watermark; at least the log start.
    pub fn first_unstable_offset(&self, high_watermark: Offset) -> Option<Offset> {
        let tables = self.tables();
        let ongoing = tables.ongoing.first_key_value().map(|(first, _)| *first);
        let mut unreplicated = tables.unreplicated.iter();
        let unreplicated =
            unreplicated.find(|(_, marker)| **marker >= high_watermark).map(|(first, _)| *first);
        let first = ongoing.into_iter().chain(unreplicated).min()?;
        Some(first.max(self.log_start))
    }

    /// Exclusive end of what a `read_committed` consumer may see. Never above the
    /// high watermark.
    pub fn last_stable_offset(&self, high_watermark: Offset) -> Offset {
        let unstable = self.first_unstable_offset(high_watermark);
        unstable.map_or(high_watermark, |first| first.min(high_watermark))
    }

    /// Forgets producers that have been silent for too long, never one with an open
    /// transaction. Returns how many.
    pub fn expire(&mut self, expiry: ProducerExpiry) -> usize {
        let Some(tables) = &mut self.tables else { return 0 };
        let before = tables.producers.len();
        tables.producers.retain(|(_, entry)| !expiry.has_expired(entry));
        let expired = before - tables.producers.len();
        self.drop_empty();
        expired
    }

    /// Number of producers known. The caller compares it with its limit and reports;
    /// nothing is dropped here to stay below one, for the copy would then answer
    /// otherwise than the source.
    pub fn producer_count(&self) -> usize {
        self.tables().producers.len()
    }

    /// Exclusive end of the batches that this state covers.
    pub fn end_offset(&self) -> Offset {
        self.end_offset
    }

    /// Says that the log ends at `end_offset` without further batches: before the
    /// snapshot of a roll behind a gap, which is named after the new segment.
    pub fn advance_end_offset(&mut self, end_offset: Offset) {
        self.end_offset = self.end_offset.max(end_offset);
    }

    /// One producer.
    pub fn producer(&self, producer_id: ProducerId) -> Option<&ProducerEntry> {
        self.tables().producer(producer_id)
    }

    /// All producers, by ID.
    pub fn producers(&self) -> impl ExactSizeIterator<Item = (ProducerId, &ProducerEntry)> {
        self.tables().producers.iter().map(|(id, entry)| (*id, entry))
    }

    /// Producers with an open transaction, the oldest first, with its first offset.
    pub fn open_txns(&self) -> impl ExactSizeIterator<Item = (ProducerId, Offset)> {
        self.tables().ongoing.iter().map(|(first, id)| (*id, *first))
    }

    /// Entries of a snapshot file named after [`Self::end_offset`], by producer ID.
    /// Of the batches only the last one of each producer is in it, as in Kafka.
    pub fn snapshot(&self) -> Vec<SnapshotEntry> {
        self.tables().producers.iter().map(|(id, entry)| entry.snapshot(*id)).collect()
    }

    /// Whether a log cut to end at `log_end` needs its state loaded again, from the
    /// snapshot that [`snapshot_to_load`] names and the batches behind it. A state
    /// cannot be rolled back in place: what a batch replaced is not kept.
    pub fn must_reload(&self, log_end: Offset) -> bool {
        self.end_offset != log_end
    }

    fn tables(&self) -> &Tables {
        self.tables.as_deref().unwrap_or(Tables::EMPTY)
    }

    fn drop_empty(&mut self) {
        self.tables.take_if(|tables| **tables == *Tables::EMPTY);
    }
}

/// How long silence lasts before a producer is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerExpiry {
    /// `producer.id.expiration.ms`
    pub expiration_ms: i64,
    /// Wall-clock time.
    pub now: TimestampMs,
}

impl ProducerExpiry {
    fn has_expired(self, entry: &ProducerEntry) -> bool {
        let silent_ms = self.now.0.saturating_sub(entry.last_timestamp.0);
        entry.txn_first_offset.is_none() && silent_ms >= self.expiration_ms
    }
}

/// The snapshot to start from for a log from `log_start` to `log_end` (exclusive):
/// the newest that ends above the start and not behind the end. `None`: start from
/// an empty state at the log start. Kafka deletes those outside of that range.
pub fn snapshot_to_load(
    snapshots: impl IntoIterator<Item = Offset>,
    log_start: Offset,
    log_end: Offset,
) -> Option<Offset> {
    snapshots.into_iter().filter(|at| *at > log_start && *at <= log_end).max()
}

#[cfg(test)]
mod tests;

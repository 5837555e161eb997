//! `__mirror_state` on this host's own disk: what is stored of every mirrored partition.
//!
//! One [`ColdLog`](crate::log::cold_log::ColdLog) for each of the topic's partitions, in
//! directories `__mirror_state-<n>` as a broker would have them. A key's partition follows from
//! its hash and the number of partitions, so that number must never change under the records: all
//! directories are made at once, with the first record, the highest first, and from then on the
//! directories say how many there are, whatever the configuration has come to say. A host that
//! mirrors nothing has none.
//!
//! What [`StateLog::append`] has acknowledged is durable and found by every later
//! [`StateLog::open`]. Of what it could not acknowledge each record may be found or not, as its
//! caller says again what holds ([`Event::NotStored`](super::partition::Event::NotStored)).
//!
//! Plain, blocking calls, for the control thread.

mod error;
mod partition;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use self::error::{StateAppendError, StateLogError, StateWriteError};
use self::partition::StatePartition;
use super::partition::Stored;
use super::placement::{coordinator_partition, key as placement_key};
use super::record::{LastMirrored, MirrorKey, StateRecord};
use crate::log::cold_log::ColdLog;
use crate::log::config::LogConfig;
use crate::log::recovery::{Cut, OpenOptions};
use crate::log::store::ColdStore;
use crate::types::{LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition};

/// The topic's name.
pub const MIRROR_STATE_TOPIC: &str = "__mirror_state";

/// How the log is opened and kept.
#[derive(Clone, Debug)]
pub struct StateLogOptions {
    /// `mirror.state.topic.num.partitions`: for the making of the topic only.
    pub partitions: u16,
    /// Roll and index settings.
    pub log: LogConfig,
    /// The topic's ID; [`TopicId::NONE`]: nothing is checked.
    pub topic_id: TopicId,
    /// The process that wrote the log stopped cleanly.
    pub clean: bool,
    /// By partition: everything below was durable. Damage below is an error, above it the log is
    /// cut there; without an entry all of a partition may be cut.
    pub recovery_points: BTreeMap<u16, Offset>,
    /// A smaller partition is never compacted. Bytes.
    pub compact_bytes_min: u64,
    /// Wall-clock time, milliseconds since the Unix epoch.
    pub now_ms: i64,
}

impl Default for StateLogOptions {
    /// 50 partitions, compacted from 1 MiB on.
    fn default() -> Self {
        Self {
            partitions: 50,
            log: LogConfig::default(),
            topic_id: TopicId::NONE,
            clean: false,
            recovery_points: BTreeMap::new(),
            compact_bytes_min: 1 << 20,
            now_ms: 0,
        }
    }
}

/// What was found when the log was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// The newest state of each partition that has one.
    pub states: BTreeMap<MirrorKey, Stored>,
    /// Where the copy of each partition ended that was stopped.
    pub last_mirrored: BTreeMap<MirrorKey, LastMirrored>,
    /// Records of types and versions that are not known here: passed over, and kept.
    pub unknown: u64,
    /// What partitions lost at their ends, which nobody had acknowledged.
    pub cuts: Vec<(u16, Cut)>,
}

impl Replayed {
    fn apply(&mut self, record: StateRecord) {
        match record {
            StateRecord::Partition(key, Some(stored)) => {
                self.states.insert(key, stored);
            }
            StateRecord::Partition(key, None) => {
                self.states.remove(&key);
            }
            StateRecord::LastMirrored(key, Some(last)) => {
                self.last_mirrored.insert(key, last);
            }
            StateRecord::LastMirrored(key, None) => {
                self.last_mirrored.remove(&key);
            }
        }
    }
}

/// What all records of one append carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendAs {
    /// When they are written.
    pub timestamp: TimestampMs,
    /// Of the topic's leader; never below an earlier one.
    pub leader_epoch: LeaderEpoch,
}

/// See the module's text.
#[derive(Debug)]
pub struct StateLog {
    options: StateLogOptions,
    /// Empty until the topic is made.
    partitions: Vec<StatePartition>,
}

impl StateLog {
    /// Opens what there is of the topic, and reads all of it. Torn ends are cut.
    ///
    /// # Errors
    /// [`StateLogError`]; it may be called again.
    pub fn open(
        store: &mut dyn ColdStore,
        options: StateLogOptions,
    ) -> Result<(Self, Replayed), StateLogError> {
        let mut replayed = Replayed::default();
        let mut it = Self { options, partitions: Vec::new() };
        if let Some(count) = Self::count_on_disk(store)? {
            it.partitions = it.open_partitions(store, count, &mut replayed)?;
        }
        Ok((it, replayed))
    }

    /// How many partitions the topic has, by its directories; `None` if it was not made yet.
    fn count_on_disk(store: &dyn ColdStore) -> Result<Option<u16>, StateLogError> {
        let entries = store.list("")?;
        let partition = |name: &str| {
            let it = TopicPartition::from_dir_name(name)?;
            (*it.topic == *MIRROR_STATE_TOPIC).then_some(it.partition)
        };
        let dirs = entries.iter().filter(|entry| entry.is_dir);
        let Some(last) = dirs.filter_map(|entry| partition(&entry.name)).max() else {
            return Ok(None);
        };
        let count = u16::try_from(last).ok().and_then(|last| last.checked_add(1));
        count.map(Some).ok_or(StateLogError::PartitionIndex { partition: last })
    }

    /// The highest first: as long as that one is there, it says how many there are.
    fn open_partitions(
        &self,
        store: &mut dyn ColdStore,
        count: u16,
        replayed: &mut Replayed,
    ) -> Result<Vec<StatePartition>, StateLogError> {
        let mut partitions = Vec::with_capacity(usize::from(count));
        for index in (0..count).rev() {
            let mut partition = StatePartition::new(index);
            partition.open(store, &self.open_options(index), replayed)?;
            partitions.push(partition);
        }
        partitions.reverse();
        Ok(partitions)
    }

    fn open_options(&self, partition: u16) -> OpenOptions {
        let recovery_point = self.options.recovery_points.get(&partition).copied();
        OpenOptions {
            config: self.options.log,
            topic_id: self.options.topic_id,
            clean: self.options.clean,
            recovery_point: recovery_point.unwrap_or(Offset::ZERO),
            log_start: None,
            truncate_to: None,
            now_ms: self.options.now_ms,
        }
    }

    /// The topic's partitions; as many as it will have before it was made.
    #[must_use]
    pub fn partition_count(&self) -> u16 {
        u16::try_from(self.partitions.len())
            .ok()
            .filter(|count| *count > 0)
            .unwrap_or(self.options.partitions.max(1))
    }

    /// The partition that has a key: who leads it coordinates the key's mirror.
    #[must_use]
    pub fn partition_of(&self, key: &MirrorKey) -> u16 {
        let key = placement_key(&key.mirror, key.topic, key.partition);
        coordinator_partition(&key, self.partition_count())
    }

    /// Directory and log end offset of each partition, for the recovery point's checkpoint:
    /// everything below is durable. Partitions that have to be opened again are left out.
    pub fn ends(&self) -> impl Iterator<Item = (u16, Offset)> {
        self.partitions.iter().filter_map(|it| Some((it.index(), it.log()?.log_end())))
    }

    /// The logs of its partitions. Those that have to be opened again are left out.
    pub fn logs(&self) -> impl Iterator<Item = (u16, &ColdLog)> {
        self.partitions.iter().filter_map(|it| Some((it.index(), it.log()?)))
    }

    /// Bytes of record batches in all partitions.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.partitions.iter().filter_map(StatePartition::log).map(|log| log.size_bytes()).sum()
    }

    /// Makes records durable, each in the partition of its key and in their order there; makes
    /// the topic before the first ones. Any number of them: batches are of 1 MiB at most.
    ///
    /// # Errors
    /// [`StateAppendError`]. One partition's trouble stays that partition's: the error says which
    /// records are not known to be durable, all others are. A partition that failed is opened
    /// again by the next append that needs it.
    pub fn append(
        &mut self,
        store: &mut dyn ColdStore,
        records: &[StateRecord],
        with: AppendAs,
    ) -> Result<(), StateAppendError> {
        let mut encoded = Vec::with_capacity(records.len());
        for (index, record) in records.iter().enumerate() {
            let key = record.encode_key();
            let key = key.map_err(|source| StateAppendError::Refused { index, source })?;
            encoded.push((index, key, record.encode_value()));
        }
        if encoded.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.make(store) {
            let not_durable = (0..records.len()).collect();
            return Err(StateAppendError::NotDurable {
                not_durable,
                source: Box::new(error.into()),
            });
        }
        let mut groups: BTreeMap<u16, Vec<_>> = BTreeMap::new();
        for (encoded, record) in encoded.into_iter().zip(records) {
            groups.entry(self.partition_of(record.key())).or_default().push(encoded);
        }
        let mut failed: Option<(Vec<usize>, StateWriteError)> = None;
        for (index, group) in groups {
            let options = self.open_options(index);
            let Some(partition) = self.partitions.get_mut(usize::from(index)) else { continue };
            if let Err((durable, error)) = partition.append(store, &options, &group, with) {
                let lost = group.iter().skip(durable).map(|(index, ..)| *index);
                let (not_durable, _) = failed.get_or_insert_with(|| (Vec::new(), error));
                not_durable.extend(lost);
            }
        }
        match failed {
            None => Ok(()),
            Some((mut not_durable, source)) => {
                not_durable.sort_unstable();
                Err(StateAppendError::NotDurable { not_durable, source: Box::new(source) })
            }
        }
    }

    /// Makes the topic, if it is not there.
    fn make(&mut self, store: &mut dyn ColdStore) -> Result<(), StateLogError> {
        if self.partitions.is_empty() {
            // A crash may have left some; then those say how many there are to be.
            let count = Self::count_on_disk(store)?.unwrap_or(self.options.partitions.max(1));
            self.partitions = self.open_partitions(store, count, &mut Replayed::default())?;
        }
        Ok(())
    }

    /// The partition that [`Self::compact_due`] would compact now.
    pub fn due(&self) -> Option<u16> {
        let min = self.options.compact_bytes_min;
        Some(self.partitions.iter().find(|it| it.is_due(min))?.index())
    }

    /// Compacts one partition whose log is larger than both [`StateLogOptions::compact_bytes_min`]
    /// and four times what lives in it; `None` if there is none. Call it after an append, until
    /// there is none. Offsets stay; tombstones go with everything that they delete.
    ///
    /// # Errors
    /// [`StateLogError`]. Nothing is lost; the partition is opened again by the next append.
    pub fn compact_due(&mut self, store: &mut dyn ColdStore) -> Result<Option<u16>, StateLogError> {
        let min = self.options.compact_bytes_min;
        let Some(partition) = self.partitions.iter_mut().find(|it| it.is_due(min)) else {
            return Ok(None);
        };
        partition.compact(store)?;
        Ok(Some(partition.index()))
    }
}

/// The tombstones that delete everything of a key, as a mirror's deletion writes them.
#[must_use]
pub fn tombstones(key: &MirrorKey) -> [StateRecord; 2] {
    [StateRecord::Partition(key.clone(), None), StateRecord::LastMirrored(key.clone(), None)]
}

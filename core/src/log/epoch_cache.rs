//! Where each leader epoch begins in a log: Kafka's epoch cache and its checkpoint.
//!
//! Filled from the batches that arrive and from nothing else, so it equals the
//! source's for the same records. Epochs and start offsets both rise strictly.

use super::checkpoint::{decode_lines, encode_lines};
use super::format_error::{FileKind, FormatError};
use crate::records::BatchMeta;
use crate::types::{LeaderEpoch, Offset};

/// First offset that the leader of an epoch wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    /// Never negative.
    pub epoch: LeaderEpoch,
    /// Inclusive; after a trim of the log's start, its start.
    pub start_offset: Offset,
}

/// Epochs of one log, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochCache {
    entries: Vec<EpochEntry>,
}

impl EpochCache {
    /// Gives back memory that no entry needs: most logs have one.
    pub fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Whether both begin and end alike and are as long. Of two states of one log that only
    /// moves on, such ones are equal.
    pub fn has_ends_of(&self, other: &Self) -> bool {
        self.entries.len() == other.entries.len()
            && self.entries.first() == other.entries.first()
            && self.entries.last() == other.entries.last()
    }

    /// Takes note of an appended batch. `true`: the entries changed, and the
    /// checkpoint must be written before the batch counts as flushed.
    ///
    /// A batch of format 0 or 1 carries no epoch and empties the cache, as in Kafka:
    /// what was known before says nothing about records that hide their epoch.
    pub fn on_batch(&mut self, batch: &BatchMeta) -> bool {
        if batch.magic >= 2 {
            self.assign(batch.leader_epoch, batch.base_offset)
        } else {
            self.clear()
        }
    }

    /// Says that `epoch` begins at `start_offset`. `true`: the entries changed.
    ///
    /// Nothing happens for a negative epoch or offset, and for the latest epoch at
    /// or behind its start. Otherwise every entry with the same or a higher epoch,
    /// or the same or a higher start, goes first: the newest word is right.
    pub fn assign(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> bool {
        if epoch.0 < 0 || start_offset.0 < 0 {
            return false;
        }
        if let Some(latest) = self.latest()
            && latest.epoch == epoch
            && latest.start_offset <= start_offset
        {
            return false;
        }
        while let Some(latest) = self.latest()
            && (latest.epoch >= epoch || latest.start_offset >= start_offset)
        {
            self.entries.pop();
        }
        self.entries.push(EpochEntry { epoch, start_offset });
        true
    }

    /// Forgets what begins at or behind `log_end`, the exclusive end that the log
    /// was cut to. `true`: the entries changed.
    pub fn truncate_from_end(&mut self, log_end: Offset) -> bool {
        if log_end.0 < 0 {
            return false;
        }
        let keep = self.entries.partition_point(|entry| entry.start_offset < log_end);
        let changed = keep < self.entries.len();
        self.entries.truncate(keep);
        changed
    }

    /// Forgets epochs that end at or before `log_start`; the one that it lies in
    /// begins there from now on. `true`: the entries changed.
    pub fn truncate_from_start(&mut self, log_start: Offset) -> bool {
        let below = self.entries.partition_point(|entry| entry.start_offset <= log_start);
        let Some(last_below) = below.checked_sub(1) else { return false };
        self.entries.drain(..last_below);
        match self.entries.first_mut() {
            Some(first) if first.start_offset != log_start => {
                first.start_offset = log_start;
                true
            }
            _ => last_below > 0,
        }
    }

    /// Answer to Kafka's `OffsetForLeaderEpoch`: the largest epoch at or below the
    /// requested one, and its exclusive end: where the next epoch begins, or
    /// `log_end` for the latest.
    ///
    /// [`LeaderEpoch::NONE`] with [`Offset::NONE`] if the request is −1 or newer
    /// than everything here. A request older than everything here gets itself back,
    /// with the start of the oldest entry.
    pub fn end_offset_for(&self, requested: LeaderEpoch, log_end: Offset) -> (LeaderEpoch, Offset) {
        let undefined = (LeaderEpoch::NONE, Offset::NONE);
        if requested == LeaderEpoch::NONE {
            return undefined;
        }
        if self.latest().is_some_and(|latest| latest.epoch == requested) {
            return (requested, log_end);
        }
        let higher = self.entries.partition_point(|entry| entry.epoch <= requested);
        let Some(next) = self.entries.get(higher) else { return undefined };
        let floor = higher.checked_sub(1).and_then(|index| self.entries.get(index));
        (floor.map_or(requested, |floor| floor.epoch), next.start_offset)
    }

    /// Epoch of the record at `offset`, `None` if it lies before the oldest entry.
    /// The end of the log is not known here, so any later offset has the latest epoch.
    pub fn epoch_for_offset(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|entry| entry.start_offset <= offset);
        Some(self.entries.get(after.checked_sub(1)?)?.epoch)
    }

    /// The newest entry.
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// Oldest first.
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// Forgets everything. `true`: there was something.
    pub fn clear(&mut self) -> bool {
        let changed = !self.entries.is_empty();
        self.entries.clear();
        changed
    }

    /// Contents of `leader-epoch-checkpoint`.
    pub fn encode(&self) -> String {
        encode_lines(
            self.entries.iter().map(|entry| format!("{} {}", entry.epoch, entry.start_offset)),
        )
    }

    /// Reads `leader-epoch-checkpoint`. Lines are assigned one after the other, so
    /// a line that contradicts earlier ones replaces them, as in Kafka.
    ///
    /// # Errors
    ///
    /// [`FormatError`] with the first line that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let expected = "an epoch and an offset, neither negative";
        let lines = decode_lines(FileKind::LeaderEpochCheckpoint, bytes, expected, |line| {
            let mut words = line.split_ascii_whitespace();
            let epoch = words.next()?.parse().ok().filter(|epoch| *epoch >= 0)?;
            let start = words.next()?.parse().ok().filter(|start| *start >= 0)?;
            words.next().is_none().then_some((LeaderEpoch(epoch), Offset(start)))
        })?;
        let mut cache = Self::default();
        for (epoch, start_offset) in lines {
            cache.assign(epoch, start_offset);
        }
        Ok(cache)
    }
}

#[cfg(test)]
mod tests;

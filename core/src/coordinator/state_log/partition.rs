//! One partition of `__mirror_state`: its log, and which of its records live.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::error::{StateLogError, StateWriteError};
use super::{AppendAs, MIRROR_STATE_TOPIC, Replayed};
use crate::coordinator::record::{RecordError, StateRecord};
use crate::log::cold_log::{ColdLog, Kept, READ_BATCH_BYTES_MAX};
use crate::log::recovery::OpenOptions;
use crate::log::store::ColdStore;
use crate::records::{BatchBuilder, BatchMeta, BuildError, DecodedBatch, NewRecord};
use crate::types::Offset;

/// Largest batch that is written, in bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Room that a batch's header and a record's lengths take at most.
const OVERHEAD_BYTES: usize = 128;
/// Records of a batch are not decompressed beyond this: who else writes here compresses, perhaps.
const CONTENT_BYTES_MAX: usize = 64 << 20;
/// A log is due for compaction when it is so many times larger than what lives in it.
const DEAD_FACTOR: u64 = 4;

/// A record to append: its place among the caller's, key and value.
pub(super) type Encoded = (usize, Vec<u8>, Option<Vec<u8>>);

/// The newest record of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Newest {
    offset: Offset,
    bytes: u64,
}

#[derive(Debug)]
pub(super) struct StatePartition {
    index: u16,
    dir: Arc<str>,
    /// `None` until it is opened, and after a failure.
    log: Option<ColdLog>,
    /// Where its log ended when it was last known: durable up to there.
    durable: Offset,
    /// By encoded key. A key that was deleted has none.
    newest: BTreeMap<Vec<u8>, Newest>,
    live_bytes: u64,
}

impl StatePartition {
    pub(super) fn new(index: u16) -> Self {
        Self {
            index,
            dir: format!("{MIRROR_STATE_TOPIC}-{index}").into(),
            log: None,
            durable: Offset::ZERO,
            newest: BTreeMap::new(),
            live_bytes: 0,
        }
    }

    pub(super) fn index(&self) -> u16 {
        self.index
    }

    pub(super) fn log(&self) -> Option<&ColdLog> {
        self.log.as_ref().filter(|log| !log.is_poisoned())
    }

    /// Opens the log and reads all of it into `replayed`.
    pub(super) fn open(
        &mut self,
        store: &mut dyn ColdStore,
        options: &OpenOptions,
        replayed: &mut Replayed,
    ) -> Result<(), StateLogError> {
        self.log = None;
        self.newest.clear();
        self.live_bytes = 0;
        let opened = ColdLog::open(store, &self.dir, options);
        let (log, report) =
            opened.map_err(|source| StateLogError::Open { dir: Arc::clone(&self.dir), source })?;
        if let Some(cut) = report.cut {
            replayed.cuts.push((self.index, cut));
        }
        let mut failed = None;
        log.read(
            store,
            Offset::ZERO,
            &mut |meta, bytes| match self.replay(meta, bytes, replayed) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            },
        )?;
        if let Some(error) = failed {
            return Err(error);
        }
        self.durable = log.log_end();
        self.log = Some(log);
        Ok(())
    }

    fn replay(
        &mut self,
        meta: &BatchMeta,
        bytes: &[u8],
        replayed: &mut Replayed,
    ) -> Result<(), StateLogError> {
        if meta.is_control() {
            return Ok(());
        }
        let dir = || Arc::clone(&self.dir);
        let broken = |source| StateLogError::Batch { dir: dir(), source };
        let batch = DecodedBatch::decode(meta, bytes, CONTENT_BYTES_MAX).map_err(broken)?;
        let mut found = Vec::new();
        for record in batch.records() {
            let record = record.map_err(broken)?;
            let offset = record.offset;
            let key = record.key.ok_or_else(|| StateLogError::NoKey { dir: dir(), offset })?;
            match StateRecord::decode(key, record.value) {
                Ok(decoded) => {
                    found.push((key.to_vec(), offset, record.value.map(<[u8]>::len)));
                    replayed.apply(decoded);
                }
                Err(RecordError::KeyType(_) | RecordError::ValueVersion(_)) => {
                    replayed.unknown += 1;
                    self.live_bytes += size(key, record.value.map(<[u8]>::len));
                }
                Err(source) => {
                    return Err(StateLogError::Record { dir: dir(), offset, source });
                }
            }
        }
        for (key, offset, value_bytes) in found {
            self.note(key, offset, value_bytes);
        }
        Ok(())
    }

    /// A record of a known type is in the log.
    fn note(&mut self, key: Vec<u8>, offset: Offset, value_bytes: Option<usize>) {
        let old = match value_bytes {
            Some(_) => {
                let bytes = size(&key, value_bytes);
                self.live_bytes += bytes;
                self.newest.insert(key, Newest { offset, bytes })
            }
            None => self.newest.remove(&key),
        };
        self.live_bytes -= old.map_or(0, |old| old.bytes);
    }

    /// Appends records, in order; opens the log again if an earlier call failed. The error says
    /// how many of the first ones are durable.
    pub(super) fn append(
        &mut self,
        store: &mut dyn ColdStore,
        options: &OpenOptions,
        records: &[Encoded],
        with: AppendAs,
    ) -> Result<(), (usize, StateWriteError)> {
        if self.log().is_none() {
            let recovery_point = options.recovery_point.max(self.durable);
            let options = OpenOptions { clean: false, recovery_point, ..*options };
            let opened = self.open(store, &options, &mut Replayed::default());
            opened.map_err(|error| (0, error.into()))?;
        }
        let mut done = 0;
        while done < records.len() {
            let rest = records.get(done..).unwrap_or_default();
            match self.append_batch(store, rest, with) {
                Ok(count) => done += count,
                Err(error) => return Err((done, error)),
            }
        }
        Ok(())
    }

    /// Appends as many of the first records as one batch takes, and says how many.
    fn append_batch(
        &mut self,
        store: &mut dyn ColdStore,
        records: &[Encoded],
        with: AppendAs,
    ) -> Result<usize, StateWriteError> {
        let Some(log) = self.log.as_mut() else { return Ok(0) };
        let base = log.log_end();
        let mut batch = BatchBuilder::new(base).leader_epoch(with.leader_epoch);
        let mut count = 0;
        for (_, key, value) in records {
            let bytes = key.len() + value.as_ref().map_or(0, Vec::len) + OVERHEAD_BYTES;
            if count > 0 && batch.records_bytes().len() + bytes > BATCH_BYTES_MAX {
                break;
            }
            let (key, value) = (Some(key.as_slice()), value.as_deref());
            batch.push(&NewRecord { timestamp: with.timestamp, key, value, headers: &[] })?;
            count += 1;
        }
        log.append(store, &batch.build()?)?;
        self.durable = log.log_end();
        for ((_, key, value), delta) in records.iter().take(count).zip(0..) {
            self.note(key.clone(), base.plus(delta), value.as_ref().map(Vec::len));
        }
        Ok(count)
    }

    /// Whether the log is larger than `bytes_min` and mostly dead.
    pub(super) fn is_due(&self, bytes_min: u64) -> bool {
        let most = bytes_min.max(self.live_bytes.saturating_mul(DEAD_FACTOR));
        self.log().is_some_and(|log| log.size_bytes() > most)
    }

    /// Leaves the newest record of each key, and those that are not understood. A tombstone is
    /// left of nothing: all that is older goes before it or together with it.
    pub(super) fn compact(&mut self, store: &mut dyn ColdStore) -> Result<(), StateLogError> {
        let Some(log) = self.log.as_mut() else { return Ok(()) };
        let newest = &self.newest;
        log.rewrite(store, &mut |meta, bytes| clean(newest, meta, bytes))?;
        self.durable = log.log_end();
        Ok(())
    }
}

/// Bytes of a record, about.
fn size(key: &[u8], value_bytes: Option<usize>) -> u64 {
    u64::try_from(key.len() + value_bytes.unwrap_or(0) + 10).unwrap_or(0)
}

/// What stays of a batch. One that cannot be read stays as it is.
fn clean(newest: &BTreeMap<Vec<u8>, Newest>, meta: &BatchMeta, bytes: &[u8]) -> Kept {
    if meta.is_control() {
        return Kept::Whole;
    }
    let Ok(batch) = DecodedBatch::decode(meta, bytes, CONTENT_BYTES_MAX) else {
        return Kept::Whole;
    };
    let Ok(records) = batch.records().collect::<Result<Vec<_>, _>>() else { return Kept::Whole };
    let total = records.len();
    let lives =
        |offset: Offset, key: &[u8], value: Option<&[u8]>| match StateRecord::decode(key, value) {
            Ok(_) => newest.get(key).is_some_and(|newest| newest.offset == offset),
            Err(_) => true,
        };
    let kept: Vec<_> = records
        .into_iter()
        .filter(|record| record.key.is_none_or(|key| lives(record.offset, key, record.value)))
        .collect();
    if kept.is_empty() {
        return Kept::Nothing;
    }
    if kept.len() == total {
        return Kept::Whole;
    }
    let rebuild = || -> Result<Vec<u8>, BuildError> {
        let delta = |offset: Offset| {
            let delta = offset.0.saturating_sub(meta.base_offset.0);
            i32::try_from(delta).unwrap_or(i32::MAX)
        };
        let mut new = BatchBuilder::new(meta.base_offset)
            .leader_epoch(meta.leader_epoch)
            .last_offset_delta(delta(meta.last_offset));
        for record in &kept {
            let headers: Vec<_> = record
                .headers
                .clone()
                .filter_map(|header| Some((std::str::from_utf8(header.key).ok()?, header.value)))
                .collect();
            let (timestamp, key, value) = (record.timestamp, record.key, record.value);
            let record_ = NewRecord { timestamp, key, value, headers: &headers };
            new.push_at(delta(record.offset), &record_)?;
        }
        new.build()
    };
    rebuild().map_or(Kept::Whole, Kept::As)
}

const _: () = assert!(BATCH_BYTES_MAX < 1 << 26 && READ_BATCH_BYTES_MAX >= 1 << 26);

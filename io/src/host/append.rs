//! Records for a partition that is led here and that nobody mirrors.

use std::sync::Arc;

use heliostat_core::coordinator::MirrorState;
use heliostat_core::coordinator::state_log::MIRROR_STATE_TOPIC;
use heliostat_core::log::cold_log::{ColdAppendError, ColdLog};
use heliostat_core::log::recovery::{LogOpenError, OpenOptions};
use heliostat_core::log::shown::ShownLog;
use heliostat_core::records::{BatchHeader, RecordError};
use heliostat_core::types::{LeaderEpoch, Offset, TopicPartition};
use tokio::sync::oneshot;

use super::run::Host;
use crate::control::Ends;
use crate::disk::FileStore;

/// Why records were not appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The host has ended.
    #[error("the host has ended")]
    Gone,
    /// No such partition.
    #[error("{0} is not here")]
    Unknown(TopicPartition),
    /// What the host keeps of itself.
    #[error("{0} is written by the host alone")]
    Internal(TopicPartition),
    /// It is mirrored: READ_ONLY_TOPIC.
    #[error("{at} belongs to mirror {mirror} and is read-only until it is stopped")]
    ReadOnly {
        /// The partition.
        at: TopicPartition,
        /// Its mirror.
        mirror: Arc<str>,
    },
    /// The bytes are no whole batches.
    #[error("these bytes are no record batches")]
    Batches(#[from] RecordError),
    /// The bytes end within a batch.
    #[error("the last batch is cut off")]
    CutOff,
    /// Its log cannot be opened.
    #[error(transparent)]
    Open(#[from] LogOpenError),
    /// They were refused, or some of the first may be in the log.
    #[error(transparent)]
    Log(#[from] ColdAppendError),
}

/// A request of [`HostHandle::append`](super::HostHandle::append).
#[derive(Debug)]
pub(super) struct Append {
    pub(super) at: TopicPartition,
    pub(super) batches: Vec<u8>,
    pub(super) reply: oneshot::Sender<Result<Offset, AppendError>>,
}

impl Host {
    pub(super) async fn take_append(&mut self, append: Append) {
        let Append { at, batches, reply } = append;
        let outcome = self.append(&at, batches).await;
        // Whoever asked may have given up.
        let _ = reply.send(outcome);
    }

    async fn append(
        &mut self,
        at: &TopicPartition,
        batches: Vec<u8>,
    ) -> Result<Offset, AppendError> {
        if &*at.topic == MIRROR_STATE_TOPIC {
            return Err(AppendError::Internal(at.clone()));
        }
        let unknown = || AppendError::Unknown(at.clone());
        let topic = self.image().topic(&at.topic).ok_or_else(unknown)?;
        let (id, epoch) = (topic.id, self.local_epoch(at));
        if topic.partition(at.partition).is_none() {
            return Err(unknown());
        }
        let keys = self.keys_of(&at.topic);
        if let Some(key) = keys.iter().find(|key| key.partition == at.partition) {
            let state = self.mirrors.get(key).map(|it| it.state());
            let mirror = Arc::clone(&key.mirror);
            let is_running = self.links.get(&mirror).is_some_and(|it| it.running.contains_key(at));
            if state != Some(MirrorState::Stopped) || is_running {
                return Err(AppendError::ReadOnly { at: at.clone(), mirror });
            }
        }
        let log = self.config.mirror.log;
        let options = self.log_dir.borrow_mut().open_options(at, id, log, None);
        let mut store = FileStore::new(&self.config.log_dir);
        let dir = at.to_string();
        let appended =
            tokio::task::spawn_blocking(move || append(&mut store, &dir, &options, epoch, batches));
        let appended = match appended.await {
            Ok(appended) => appended,
            Err(bug) => std::panic::resume_unwind(bug.into_panic()),
        };
        let readers = self.served.log_at(at);
        match appended {
            Ok((base, log)) => {
                let (log_start, log_end) = (log.log_start, log.log_end);
                let ends = Ends { log_start, recovery_point: log_end, high_watermark: log_end };
                self.log_dir.borrow_mut().closed(at, ends);
                readers.inspect(|readers| readers.show_at_rest(log));
                Ok(base)
            }
            Err(error) => {
                if matches!(error, AppendError::Log(ColdAppendError::Store(_))) {
                    // What the files hold is not known.
                    self.log_dir.borrow_mut().distrust(at);
                    readers.inspect(|readers| readers.hide());
                }
                Err(error)
            }
        }
    }
}

fn append(
    store: &mut FileStore,
    dir: &str,
    options: &OpenOptions,
    epoch: LeaderEpoch,
    mut batches: Vec<u8>,
) -> Result<(Offset, ShownLog), AppendError> {
    let (mut log, _) = ColdLog::open(store, dir, options)?;
    let base = log.log_end();
    stamp(&mut batches, base, epoch)?;
    log.append(store, &batches)?;
    Ok((base, ShownLog::of_cold(&log)))
}

/// Gives batches their offsets and their epoch, neither of which a checksum covers.
fn stamp(batches: &mut [u8], base: Offset, epoch: LeaderEpoch) -> Result<(), AppendError> {
    let mut next = base;
    let mut rest = batches;
    while !rest.is_empty() {
        let (header, _) = BatchHeader::view(rest).ok_or(AppendError::CutOff)?;
        header.check()?;
        let size = usize::try_from(header.size_bytes()).unwrap_or(usize::MAX);
        let records = i64::from(header.last_offset_delta()).saturating_add(1);
        let (batch, behind) = rest.split_at_mut_checked(size).ok_or(AppendError::CutOff)?;
        for (at, field) in [(0, &next.0.to_be_bytes()[..]), (12, &epoch.0.to_be_bytes())] {
            if let Some(into) = batch.get_mut(at..at + field.len()) {
                into.copy_from_slice(field);
            }
        }
        next = next.plus(records);
        rest = behind;
    }
    Ok(())
}

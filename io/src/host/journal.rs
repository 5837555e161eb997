//! What the host has decided, durable: the metadata log and the state log, written by a thread
//! beside the control thread, one write at a time.

use std::path::Path;
use std::sync::Arc;

use heliostat_core::coordinator::StateRecord;
use heliostat_core::coordinator::state_log::{
    AppendAs, MIRROR_STATE_TOPIC, Replayed, StateAppendError, StateLog, StateLogOptions,
};
use heliostat_core::log::shown::ShownLog;
use heliostat_core::metadata::image::MetadataImage;
use heliostat_core::metadata::log::{
    MetadataLog, MetadataLogError, MetadataLogOptions, MetadataOpenReport,
};
use heliostat_core::metadata::record::MetadataRecord;
use heliostat_core::types::{LeaderEpoch, Offset, TimestampMs};

use super::HostError;
use super::error::with_causes;
use crate::control::now_ms;
use crate::disk::FileStore;
use crate::served::ServedLogs;

/// Both logs. They are lent to the thread that writes, and come back with it.
#[derive(Debug)]
pub(super) struct Journal {
    logs: Option<Box<Logs>>,
    /// Readers hear of topics, epochs and states once they are durable.
    served: Arc<ServedLogs>,
}

#[derive(Debug)]
struct Logs {
    store: FileStore,
    metadata: MetadataLog,
    states: StateLog,
}

impl Journal {
    /// Opens both, and reads all of them.
    ///
    /// # Errors
    /// [`HostError`] with the offset and the record that stands in the way.
    pub(super) fn open(
        log_dir: &Path,
        metadata: &MetadataLogOptions,
        states: StateLogOptions,
        served: Arc<ServedLogs>,
    ) -> Result<(Self, MetadataOpenReport, Replayed), HostError> {
        let mut store = FileStore::new(log_dir);
        let (metadata, report) = MetadataLog::open(&mut store, metadata)?;
        let (states, replayed) = StateLog::open(&mut store, states)?;
        for topic in metadata.image().topics() {
            for (partition, it) in (0..).zip(&topic.partitions) {
                served.set(&topic.name, topic.id, partition, it.leader_epoch);
            }
        }
        let logs = Some(Box::new(Logs { store, metadata, states }));
        let it = Self { logs, served };
        it.show_states();
        Ok((it, report, replayed))
    }

    fn logs(&self) -> &Logs {
        self.logs.as_ref().unwrap_or_else(|| unreachable!("a write is awaited where it is begun"))
    }

    /// Brokers, topics, configs, as they are durable.
    pub(super) fn image(&self) -> &MetadataImage {
        self.logs().metadata.image()
    }

    /// End of the metadata log, exclusive.
    pub(super) fn metadata_end(&self) -> Offset {
        self.logs().metadata.log_end()
    }

    /// The partition of `__mirror_state` that has a key, of how many.
    pub(super) fn states(&self) -> &StateLog {
        &self.logs().states
    }

    /// Makes the records of one decision durable, all or none.
    ///
    /// # Errors
    /// [`MetadataLogError`]: nothing of it holds. The log may have to be opened again.
    pub(super) async fn decide(
        &mut self,
        records: Vec<MetadataRecord>,
    ) -> Result<(), MetadataLogError> {
        if records.is_empty() {
            return Ok(());
        }
        let served = Arc::clone(&self.served);
        let decided = self.lend(move |logs| -> Result<(), MetadataLogError> {
            let now = TimestampMs(now_ms());
            logs.metadata.append(&mut logs.store, &records, now)?;
            serve(&served, logs.metadata.image(), &records);
            if let Err(error) = logs.metadata.maintain(&mut logs.store) {
                // The log goes on without; it is tried again with the next record.
                tracing::warn!("snapshot of the metadata log: {}", with_causes(&error));
            }
            Ok(())
        });
        decided.await?;
        // The topic of states may have been made.
        self.show_states();
        Ok(())
    }

    /// Makes states durable.
    ///
    /// # Errors
    /// [`StateAppendError`]: which of them are not known to be.
    pub(super) async fn store(
        &mut self,
        records: Vec<StateRecord>,
    ) -> Result<(), StateAppendError> {
        if records.is_empty() {
            return Ok(());
        }
        let served = Arc::clone(&self.served);
        let stored = self.lend(move |logs| {
            let with =
                AppendAs { timestamp: TimestampMs(now_ms()), leader_epoch: logs.metadata.epoch() };
            logs.states.append(&mut logs.store, &records, with)?;
            loop {
                // Readers know the log by its files, and those are replaced.
                let due =
                    logs.states.due().and_then(|it| served.log(MIRROR_STATE_TOPIC, it.into()));
                due.inspect(|readers| readers.hide());
                match logs.states.compact_due(&mut logs.store) {
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(()),
                    Err(error) => {
                        tracing::warn!("compaction of __mirror_state: {}", with_causes(&error));
                        return Ok(());
                    }
                }
            }
        });
        let outcome = stored.await;
        self.show_states();
        outcome
    }

    /// Readers see the logs of states that have grown.
    fn show_states(&self) {
        for (partition, log) in self.states().logs() {
            let Some(readers) = self.served.log(MIRROR_STATE_TOPIC, i32::from(partition)) else {
                return;
            };
            if readers.facts().is_ok_and(|facts| facts.log_end == log.log_end()) {
                continue;
            }
            readers.show_at_rest(ShownLog::of_cold(log));
        }
    }

    /// Runs `write` on a thread that may block.
    async fn lend<T: Send + 'static>(
        &mut self,
        write: impl FnOnce(&mut Logs) -> T + Send + 'static,
    ) -> T {
        let Some(mut logs) = self.logs.take() else {
            unreachable!("a write is awaited where it is begun")
        };
        let lent = tokio::task::spawn_blocking(move || {
            let outcome = write(&mut logs);
            (logs, outcome)
        });
        match lent.await {
            Ok((logs, outcome)) => {
                self.logs = Some(logs);
                outcome
            }
            // A bug in the logs: nothing more may be decided.
            Err(bug) => std::panic::resume_unwind(bug.into_panic()),
        }
    }
}

/// Takes over what a decision says of topics and their leaders.
fn serve(served: &ServedLogs, image: &MetadataImage, records: &[MetadataRecord]) {
    for record in records {
        match record {
            MetadataRecord::Partition(it) => {
                if let Some(topic) = image.topic_by_id(it.topic_id) {
                    let epoch = LeaderEpoch(it.leader_epoch);
                    served.set(&topic.name, it.topic_id, it.partition_id, epoch);
                }
            }
            MetadataRecord::RemoveTopic(it) => served.remove(it.topic_id),
            _ => {}
        }
    }
}

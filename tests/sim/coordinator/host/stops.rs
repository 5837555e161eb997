//! What threads do for a stop: the position where mirroring ended, and the markers.

use std::sync::Arc;

use heliostat_core::coordinator::LastMirrored;
use heliostat_core::coordinator::markers::StopMarkers;
use heliostat_core::log::cold_log::ColdLog;
use heliostat_core::types::{LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition};

use super::{Host, LookedUp, News, Sabotage, Stopping, Task};
use crate::job::{Copy, read};
use crate::registry::id;
use crate::source::Batch;

impl Host {
    pub(crate) fn looked_up(&mut self, mirror: Arc<str>, generation: u64, outcome: LookedUp) {
        self.up().news.push_back(News::LookedUp { mirror, generation, outcome });
    }

    /// Does what a thread does. A look-up is the world's to answer.
    pub(crate) fn run_task(&mut self, task: Task) {
        let news = match task {
            Task::LookUp { .. } => return self.up().tasks.push_back(task),
            Task::Inspect(stop) => {
                let outcome = self.inspect(&stop).map_err(|error| Arc::from(error.as_str()));
                News::Inspected(stop, outcome)
            }
            Task::Mark { stop, last_epoch, leader_epoch } => {
                let outcome = self.mark(&stop, last_epoch, leader_epoch);
                News::Marked(stop, outcome.map_err(|error| Arc::from(error.as_str())))
            }
        };
        self.up().news.push_back(news);
    }

    pub(crate) fn open(&mut self, at: &TopicPartition, id: TopicId) -> Result<ColdLog, String> {
        let copies = self.up().links.values().filter_map(|link| link.copies.get(at));
        if copies.clone().any(Copy::is_on_shard) {
            self.broken.push(format!("{at} is opened while a shard has it"));
        }
        let options = self.disk.options(at, id, None);
        let opened = ColdLog::open(&mut self.disk.store, &at.to_string(), &options);
        let (log, _) = opened.map_err(|error| error.to_string())?;
        self.disk.note(at, log.log_start(), log.log_end());
        self.disk.found(at, id, &log);
        // It is written by others from here on.
        self.disk.books.remove(at);
        Ok(log)
    }

    pub(super) fn inspect(&mut self, stop: &Stopping) -> Result<LastMirrored, String> {
        let log = self.open(&stop.at, stop.key.topic)?;
        let epoch = log.epochs().latest().map_or(LeaderEpoch::NONE, |entry| entry.epoch);
        Ok(LastMirrored { epoch, offset: log.log_end() })
    }

    pub(super) fn mark(
        &mut self,
        stop: &Stopping,
        last_mirrored: LeaderEpoch,
        leader_epoch: LeaderEpoch,
    ) -> Result<(Offset, Offset), String> {
        let mut log = self.open(&stop.at, stop.key.topic)?;
        let markers = StopMarkers {
            last_mirrored,
            leader_epoch,
            source_cluster_id: "source",
            timestamp: TimestampMs(i64::try_from(self.now.0 / 1_000).unwrap_or(0)),
        };
        let from = markers.written_from(log.epochs(), log.log_end());
        let mut has_reset = false;
        if from < log.log_end() {
            let store = &self.disk.store;
            let see = &mut |meta: &heliostat_core::records::BatchMeta, _: &[u8]| {
                has_reset |= markers.is_reset(meta);
                std::ops::ControlFlow::Continue(())
            };
            log.read(store, from, see).map_err(|error| error.to_string())?;
        }
        has_reset &= !self.sabotaged(Sabotage::MarkTwice);
        let missing = markers.missing(log.log_end(), log.producers(), has_reset);
        let mut missing = missing.map_err(|error| error.to_string())?;
        if self.sabotaged(Sabotage::NoAborts) && missing.len() > 1 {
            missing = markers
                .missing(
                    log.log_end(),
                    &heliostat_core::log::producer_state::ProducerState::new(log.log_end()),
                    false,
                )
                .map_err(|error| error.to_string())?;
        }
        for bytes in missing {
            self.append(&mut log, (stop.key.topic, stop.at.partition), bytes, leader_epoch)?;
        }
        Ok((log.log_start(), log.log_end()))
    }

    /// Appends one batch that is made here.
    pub(crate) fn append(
        &mut self,
        log: &mut ColdLog,
        at: (TopicId, i32),
        bytes: Vec<u8>,
        epoch: LeaderEpoch,
    ) -> Result<(), String> {
        let (base, before) = (log.log_end(), read(log, &self.disk.store).last().map(id));
        let appended = log.append(&mut self.disk.store, &bytes);
        let what = format!(
            "{} appends {} at {base}, epoch {epoch}: {}",
            self.cluster,
            log.dir(),
            appended.is_ok()
        );
        self.disk.registry.borrow_mut().say(what);
        // Where it failed it may be there all the same, or not: who finds it notes it.
        appended.map_err(|error| error.to_string())?;
        let batch = Batch { base, end: log.log_end(), epoch, bytes: bytes.into() };
        self.disk.registry.borrow_mut().wrote(self.cluster, at, &batch, before);
        Ok(())
    }
}

//! A host's logs as others see them, and what an oracle reads of the files.

use heliostat_core::coordinator::MirrorKey;
use heliostat_core::coordinator::state_log::{Replayed, StateLog};
use heliostat_core::log::cold_log::ColdLog;
use heliostat_core::types::{TopicId, TopicPartition};

use super::{Host, state_options};
use crate::job::read;
use crate::shown::read_shown;
use crate::source::{Batch, View};

impl Host {
    /// A partition as those see it who fetch from it.
    pub(crate) fn view(&self, at: &TopicPartition) -> Option<View> {
        let up = self.up.as_ref()?;
        let topic = self.image().topic(&at.topic)?;
        let epoch = topic.partition(at.partition)?.leader_epoch;
        if let Some(log) = up.own.get(at) {
            return Some(View {
                id: topic.id,
                start: log.log_start(),
                end: log.log_end(),
                epoch,
                epochs: log.epochs().clone(),
                batches: read(log, &self.disk.store),
            });
        }
        let mut copies = up.links.values().filter_map(|link| link.copies.get(at));
        let shown = copies.find_map(|copy| copy.reader.shown())?;
        let batches = read_shown(&self.disk.store, &at.to_string(), &shown.segments);
        Some(View {
            id: topic.id,
            start: shown.log_start,
            end: shown.log_end,
            epoch,
            epochs: shown.epochs,
            // The oracle says what is wrong.
            batches: batches.unwrap_or_default(),
        })
    }

    /// What the files hold, on a disk without faults.
    pub(crate) fn look(&self, at: &TopicPartition) -> Option<(ColdLog, Vec<Batch>)> {
        let mut store = self.disk.store.view();
        if !store.has_log(&at.to_string()) {
            return None;
        }
        let options = self.disk.options(at, TopicId::NONE, None);
        let (log, _) = ColdLog::open(&mut store, &at.to_string(), &options).ok()?;
        let batches = read(&log, &store);
        Some((log, batches))
    }

    /// The newest states that the files hold.
    pub(crate) fn durable_states(&self) -> Replayed {
        let mut store = self.disk.store.view();
        StateLog::open(&mut store, state_options()).map(|it| it.1).unwrap_or_default()
    }

    pub(super) fn check_stopped(&mut self, key: &MirrorKey) {
        let Some(at) = self.place(key) else { return };
        let last = self.up().mirrors.last_mirrored(key);
        let epoch = self.local_epoch(&at);
        let Some((log, batches)) = self.look(&at) else {
            return self.broken.push(format!("{at} is STOPPED without a log"));
        };
        self.disk.count("stopped");
        if let Err(what) = crate::oracle::stopped(&log, &batches, last, epoch) {
            self.broken.push(format!("{} {at} is STOPPED: {what}", self.cluster));
        }
    }
}

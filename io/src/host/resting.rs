//! Logs that nobody follows when a host starts: they are opened, recovered if the last stop was
//! not clean, and shown to readers, before anything else may touch them.

use std::sync::Arc;

use heliostat_core::coordinator::MirrorState;
use heliostat_core::log::partition::RecoveredLog;
use heliostat_core::log::recovery::{self, OpenOptions};
use heliostat_core::log::shown::ShownLog;
use heliostat_core::types::TopicPartition;

use super::error::with_causes;
use super::run::Host;
use crate::disk::FileStore;
use crate::served::ServedLog;

struct Resting {
    at: TopicPartition,
    readers: Arc<ServedLog>,
    options: OpenOptions,
}

impl Host {
    /// Shows all logs that are not about to be followed. One that cannot be opened stays hidden.
    pub(super) async fn show_resting(&mut self) {
        let mut tasks = Vec::new();
        for topic in self.journal.image().topics() {
            let keys = self.keys_of(&topic.name);
            for partition in 0..topic.partition_count() {
                let at = TopicPartition::new(Arc::clone(&topic.name), partition);
                let key = usize::try_from(partition).ok().and_then(|index| keys.get(index));
                let state = key.and_then(|key| self.mirrors.get(key)).map(|it| it.state());
                let is_followed = matches!(
                    state,
                    Some(
                        MirrorState::Mirroring
                            | MirrorState::LogTruncation
                            | MirrorState::EpochFencing
                    )
                );
                let Some(readers) = self.served.log_at(&at) else { continue };
                // The host's own logs are shown already.
                if is_followed || readers.facts().is_ok() {
                    continue;
                }
                if self.log_dir.borrow().has_log(&at) {
                    let log = self.config.mirror.log;
                    let options = self.log_dir.borrow_mut().open_options(&at, topic.id, log, None);
                    tasks.push(Resting { at, readers, options });
                } else if key.is_none() {
                    // Of a topic that is only here.
                    readers.show_at_rest(ShownLog::default());
                }
            }
        }
        self.open_resting(tasks).await;
    }

    /// Partitions that have just been made, and that nobody mirrors, are empty.
    pub(super) fn show_made(&self, topic: &str) {
        if self.image().mirror_of(topic).is_some() {
            return;
        }
        let count = self.image().topic(topic).map_or(0, |topic| topic.partition_count());
        for partition in 0..count {
            let at = TopicPartition::new(topic, partition);
            let readers = self.served.log_at(&at).filter(|readers| readers.facts().is_err());
            if let Some(readers) = readers
                && !self.log_dir.borrow().has_log(&at)
            {
                readers.show_at_rest(ShownLog::default());
            }
        }
    }

    async fn open_resting(&self, tasks: Vec<Resting>) {
        let threads = usize::try_from(self.config.mirror.recovery_threads).unwrap_or(1).max(1);
        let each = tasks.len().div_ceil(threads).max(1);
        let store = FileStore::new(&self.config.log_dir);
        let mut tasks = tasks.into_iter().peekable();
        let mut running = Vec::new();
        while tasks.peek().is_some() {
            let own: Vec<Resting> = tasks.by_ref().take(each).collect();
            let mut store = store.clone();
            running.push(tokio::task::spawn_blocking(move || {
                own.into_iter().filter_map(|task| show(&mut store, task)).collect::<Vec<_>>()
            }));
        }
        for thread in running {
            match thread.await {
                // They need not be recovered again, by the next start or by this one's stop.
                Ok(opened) => opened.iter().for_each(|(at, log)| {
                    let _ = self.log_dir.borrow_mut().opened(at, log);
                }),
                Err(bug) => std::panic::resume_unwind(bug.into_panic()),
            }
        }
        let mut log_dir = self.log_dir.borrow_mut();
        if let Err(error) = log_dir.settle() {
            tracing::warn!("checkpoints: {}", with_causes(&error));
        }
    }
}

fn show(store: &mut FileStore, task: Resting) -> Option<(TopicPartition, RecoveredLog)> {
    let Resting { at, readers, options } = task;
    match recovery::open(store, &at.to_string(), &options) {
        Ok((log, _)) => {
            readers.show_at_rest(ShownLog::of_recovered(&log));
            Some((at, log))
        }
        Err(error) => {
            tracing::error!("{at} cannot be read by clients: {}", with_causes(&error));
            None
        }
    }
}

//! The log dir of a host, and what is known of its logs.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use heliostat_core::log::cold_log::ColdLog;
use heliostat_core::log::config::{LogConfig, LogConfigValues};
use heliostat_core::log::recovery::OpenOptions;
use heliostat_core::types::{LeaderEpoch, Offset, TopicId, TopicPartition};

use super::{NOW, Sabotage};
use crate::job::read;
use crate::registry::Registry;
use crate::rng::Chance;
use crate::shown::Book;
use crate::store::SimStore;

/// The log dir.
pub(crate) struct Disk {
    pub(crate) store: SimStore,
    /// Checkpoints: log start and recovery point.
    known: BTreeMap<TopicPartition, (Offset, Offset)>,
    config: LogConfig,
    /// What readers were shown of copies.
    pub(crate) books: BTreeMap<TopicPartition, Book>,
    /// What an alignment cuts, and the newest epoch in which clients read it.
    pub(crate) cuts: Vec<(TopicPartition, LeaderEpoch)>,
    /// Logs that were closed by a clean stop, and not touched since.
    pub(super) clean: BTreeSet<TopicPartition>,
    pub(crate) broken: Vec<String>,
    pub(crate) registry: Rc<RefCell<Registry>>,
    pub(crate) sabotage: Sabotage,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Disk {
    pub(super) fn new(
        store: SimStore,
        chance: &mut Chance,
        registry: Rc<RefCell<Registry>>,
        sabotage: Sabotage,
    ) -> Self {
        Self {
            store,
            known: BTreeMap::new(),
            config: log_config(chance),
            books: BTreeMap::new(),
            cuts: Vec::new(),
            clean: BTreeSet::new(),
            broken: Vec::new(),
            registry,
            sabotage,
            counts: BTreeMap::new(),
        }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn note(&mut self, at: &TopicPartition, start: Offset, durable: Offset) {
        self.known.insert(at.clone(), (start, durable));
    }

    pub(crate) fn options(
        &self,
        at: &TopicPartition,
        topic_id: TopicId,
        truncate_to: Option<Offset>,
    ) -> OpenOptions {
        let known = self.known.get(at);
        OpenOptions {
            config: self.config,
            topic_id,
            clean: self.clean.contains(at),
            recovery_point: known.map_or(Offset::ZERO, |known| known.1),
            log_start: known.map(|known| known.0),
            truncate_to,
            now_ms: NOW.0,
        }
    }
}

impl Disk {
    /// A copy's log is about to be opened, and cut.
    pub(crate) fn may_lose(&mut self, at: &TopicPartition, is_whole: bool, to: Option<Offset>) {
        match (is_whole, to, self.books.get_mut(at)) {
            (false, None, _) => drop(self.books.remove(at)),
            (false, Some(to), Some(book)) => {
                book.durable = book.durable.min(to);
                book.batches.retain(|batch| batch.end <= to);
            }
            _ => {}
        }
    }

    /// Everything below `end` is durable.
    pub(crate) fn is_durable(&mut self, at: &TopicPartition, end: Offset) {
        if let Some(book) = self.books.get_mut(at) {
            book.durable = book.durable.max(end);
        }
    }

    /// A log was opened: what it holds was written by somebody, and is what was known of it.
    pub(crate) fn found(&mut self, at: &TopicPartition, id: TopicId, log: &ColdLog) {
        let batches = read(log, &self.store);
        let (start, end) = (log.log_start(), log.log_end());
        self.clean.remove(at);
        if let Some(book) = self.books.get(at)
            && let Err(what) = book.compare(&batches, start, end_of_time())
        {
            self.broken.push(format!("{at} is opened: {what}"));
        }
        let mut before = None;
        for batch in &batches {
            self.registry.borrow_mut().note((id, at.partition), batch, before);
            before = Some(crate::registry::id(batch));
        }
        let segments = log.segments().collect();
        let book = Book { batches, segments, start, end, durable: end };
        self.books.insert(at.clone(), book);
    }

    /// What recovery finds on a copy of the disk is what was known.
    pub(super) fn check_books(&mut self) {
        if self.books.is_empty() {
            return;
        }
        let mut view = self.store.view();
        for (at, book) in &self.books {
            let dir = at.to_string();
            if !view.has_log(&dir) {
                continue;
            }
            let options = self.options(at, TopicId::NONE, None);
            let what = match ColdLog::open(&mut view, &dir, &options) {
                Ok((log, _)) => book.compare(&read(&log, &view), log.log_start(), end_of_time()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(what) = what {
                self.broken.push(format!("{at} after a crash: {what}"));
            }
        }
    }
}

fn end_of_time() -> Offset {
    Offset(i64::MAX)
}

fn log_config(chance: &mut Chance) -> LogConfig {
    let values = LogConfigValues {
        segment_bytes: chance.pick(&[400, 1_500, 1 << 30]),
        index_interval_bytes: chance.pick(&[0, 300, 4_096]),
        ..LogConfigValues::default()
    };
    LogConfig::new(values).expect("the settings are legal")
}

//! The front of a log that a snapshot has made superfluous.

use super::ColdLog;
use crate::log::names::SegmentFileKind as Kind;
use crate::log::store::{ColdStore, StoreError};
use crate::types::Offset;

impl ColdLog {
    /// Removes the segments of which everything lies below `to`, oldest first; the log starts
    /// with the first one that stays. The active segment always stays. Returns how many went.
    ///
    /// # Errors
    /// [`StoreError`] from the system. What is gone then is gone, and the log goes on.
    pub fn trim(&mut self, store: &mut dyn ColdStore, to: Offset) -> Result<usize, StoreError> {
        let mut removed = 0;
        while let Some(first) = self.sealed.first().copied() {
            let next = self.sealed.get(1).map(|it| it.base);
            let Some(end) = next.or_else(|| self.active.as_ref().map(|it| it.base)) else { break };
            if end > to {
                break;
            }
            // The batches first: what is left of a segment without them is waste.
            for kind in Kind::ALL {
                store.remove(&self.segment_path(first.base, kind))?;
            }
            self.sealed.remove(0);
            self.log_start = self.log_start.max(end);
            removed += 1;
        }
        if removed > 0 {
            self.epochs.truncate_from_start(self.log_start);
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::config::{LogConfig, LogConfigValues};
    use crate::log::recovery::OpenOptions;
    use crate::log::test_store::{TestStore, Torn};
    use crate::records::{BatchBuilder, NewRecord};
    use crate::types::{LeaderEpoch, TimestampMs, TopicId};

    const DIR: &str = "t-0";

    fn open(store: &mut TestStore) -> ColdLog {
        let values = LogConfigValues { segment_bytes: 300, ..LogConfigValues::default() };
        let options = OpenOptions {
            config: LogConfig::new(values).unwrap(),
            topic_id: TopicId::NONE,
            clean: false,
            recovery_point: Offset::ZERO,
            log_start: None,
            truncate_to: None,
            now_ms: 1_000,
        };
        ColdLog::open(store, DIR, &options).unwrap().0
    }

    /// Segments at 0, 3, 6 and 9, of three batches each, with another epoch in each segment.
    fn filled(store: &mut TestStore) -> ColdLog {
        let mut log = open(store);
        for offset in 0..12_i32 {
            let mut batch = BatchBuilder::new(Offset(offset.into()));
            batch = batch.leader_epoch(LeaderEpoch(offset / 3));
            let (timestamp, value) = (TimestampMs(1_000), [7; 25]);
            let record = NewRecord { timestamp, key: None, value: Some(&value), headers: &[] };
            batch.push(&record).unwrap();
            log.append(store, &batch.build().unwrap()).unwrap();
        }
        log
    }

    fn segments(store: &TestStore) -> Vec<String> {
        let names = store.names(DIR).into_iter();
        names.filter_map(|name| name.strip_suffix(".log")).map(str::to_owned).collect()
    }

    #[test]
    fn only_what_lies_wholly_below_goes() {
        for (to, first, removed) in [(0, 0, 0), (2, 0, 0), (3, 3, 1), (8, 6, 2), (12, 9, 3)] {
            let mut store = TestStore::default();
            let mut log = filled(&mut store);
            assert_eq!(segments(&store).len(), 4);
            assert_eq!(log.trim(&mut store, Offset(to)), Ok(removed), "{to}");
            assert_eq!((log.log_start(), log.log_end()), (Offset(first), Offset(12)));
            let below = format!("{first:020}");
            assert!(store.names(DIR).iter().all(|name| !name.starts_with('0') || **name >= *below));
            let again = open(&mut store);
            assert_eq!((again.log_start(), again.log_end()), (Offset(first), Offset(12)));
            assert_eq!((again.epochs(), again.size_bytes()), (log.epochs(), log.size_bytes()));
        }
    }

    #[test]
    fn a_crash_leaves_a_log_that_begins_later_or_not() {
        let mut whole = TestStore::default();
        let before = filled(&mut whole).log_end();
        let filling = whole.calls;
        for calls in 0..20 {
            for torn in Torn::ALL {
                let mut store = TestStore::default();
                let mut log = filled(&mut store);
                assert_eq!(store.calls, filling);
                store.crash_after(calls, torn);
                let done = log.trim(&mut store, Offset(9));
                store.restart();
                let again = open(&mut store);
                assert_eq!(again.log_end(), before, "{calls} {torn:?}");
                assert!(again.log_start() >= log.log_start(), "{calls} {torn:?}");
                assert!([0, 3, 6, 9].contains(&again.log_start().0), "{calls} {torn:?}");
                assert_eq!(done.is_ok(), calls >= 15, "five files of each of three segments");
            }
        }
    }
}

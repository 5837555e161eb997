//! Which partitions somebody asks for: a load begins once all of them are asked for.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Counts askers of each partition, over all sessions.
#[derive(Debug)]
pub(super) struct AskedFor {
    askers: Vec<AtomicU32>,
    /// Partitions with an asker.
    asked: AtomicU64,
    /// All had one, and since then some always have.
    all_since: Mutex<Option<Instant>>,
}

impl AskedFor {
    pub(super) fn new(partitions: u64) -> Self {
        Self {
            askers: (0..partitions).map(|_| AtomicU32::new(0)).collect(),
            asked: AtomicU64::new(0),
            all_since: Mutex::new(None),
        }
    }

    /// When the last partition was asked for; `None` before, and after the client has gone.
    pub(super) fn all_since(&self) -> Option<Instant> {
        *self.all_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session asks for a partition, once until it [leaves](Self::leave) it.
    pub(super) fn join(&self, number: u64) {
        let Some(askers) = self.of(number) else { return };
        if askers.fetch_add(1, Ordering::SeqCst) == 0 {
            let asked = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            if usize::try_from(asked).is_ok_and(|asked| asked == self.askers.len()) {
                self.set(|since| *since = since.or_else(|| Some(Instant::now())));
            }
        }
    }

    /// A session asks for it no more.
    pub(super) fn leave(&self, number: u64) {
        let Some(askers) = self.of(number) else { return };
        if askers.fetch_sub(1, Ordering::SeqCst) == 1
            && self.asked.fetch_sub(1, Ordering::SeqCst) == 1
        {
            self.set(|since| *since = None);
        }
    }

    fn of(&self, number: u64) -> Option<&AtomicU32> {
        self.askers.get(usize::try_from(number).ok()?)
    }

    fn set(&self, change: impl FnOnce(&mut Option<Instant>)) {
        change(&mut self.all_since.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_begins_with_the_last_partition_and_ends_with_the_client() {
        let asked = AskedFor::new(2);
        asked.join(0);
        asked.join(0);
        assert_eq!(asked.all_since(), None);
        asked.join(1);
        let since = asked.all_since();
        assert!(since.is_some());
        // One moves from session to session.
        asked.leave(1);
        asked.join(1);
        asked.leave(0);
        assert_eq!(asked.all_since(), since);
        asked.leave(0);
        asked.leave(1);
        assert_eq!(asked.all_since(), None);
    }
}

//! What the connections to a catalog share.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_lite::future::or;
use heliostat_core::serve::FetchSessionCache;
use heliostat_core::time::Tick;

use super::config::ListenerConfig;
use super::hosted::Catalog;
use super::thread::Thread;

/// A catalog with its fetch sessions, shared by all threads of a listener.
#[derive(Debug)]
pub(super) struct Hosted {
    pub(super) catalog: Arc<Catalog>,
    sessions: Mutex<FetchSessionCache>,
}

impl Hosted {
    pub(super) fn new(catalog: Arc<Catalog>, config: &ListenerConfig) -> Self {
        let sessions = Mutex::new(FetchSessionCache::new(config.sessions));
        Self { catalog, sessions }
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, FetchSessionCache> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a connection has of its thread and of the catalog.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) thread: Rc<Thread>,
    pub(super) hosted: Arc<Hosted>,
}

impl Service {
    pub(super) fn catalog(&self) -> &Catalog {
        &self.hosted.catalog
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, FetchSessionCache> {
        self.hosted.sessions()
    }

    pub(super) fn config(&self) -> &ListenerConfig {
        self.thread.config()
    }

    pub(super) fn now(&self) -> Tick {
        self.thread.now()
    }

    /// The changes of all logs so far.
    pub(super) fn changes(&self) -> u64 {
        self.thread.changes.now()
    }

    /// Waits until a log changed since `seen`, at most until `deadline`.
    pub(super) async fn changed(&self, seen: u64, deadline: Tick) {
        let left = deadline.since(self.now());
        let timer = async {
            glommio::timer::sleep(left).await;
        };
        or(self.thread.changes.past(seen), timer).await;
    }
}

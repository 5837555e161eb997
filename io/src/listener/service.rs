//! What connections share: what can be read, its fetch sessions, and their thread.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_lite::future::or;
use heliostat_core::serve::FetchSessionCache;
use heliostat_core::time::Tick;

use super::config::ListenerConfig;
use super::hosted::Catalog;
use super::readable::{Place, ReadablePartition, ReadableTopics};
use super::thread::Thread;
use super::waits::Wait;

/// Topics with their fetch sessions, shared by all threads of a listener.
#[derive(Debug)]
pub(super) struct Readable {
    pub(super) topics: Arc<dyn ReadableTopics>,
    sessions: Mutex<FetchSessionCache>,
}

impl Readable {
    pub(super) fn new(topics: Arc<dyn ReadableTopics>, config: &ListenerConfig) -> Self {
        let sessions = Mutex::new(FetchSessionCache::new(config.sessions));
        Self { topics, sessions }
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, FetchSessionCache> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a connection has of its thread and of the topics.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) thread: Rc<Thread>,
    pub(super) readable: Arc<Readable>,
}

impl Service {
    pub(super) fn topics(&self) -> &dyn ReadableTopics {
        self.readable.topics.as_ref()
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, FetchSessionCache> {
        self.readable.sessions()
    }

    pub(super) fn config(&self) -> &ListenerConfig {
        self.thread.config()
    }

    pub(super) fn now(&self) -> Tick {
        self.thread.now()
    }

    /// Changes of these partitions from now on, of all of them together.
    pub(super) fn watch(&self, places: &[Place]) -> Watch<'_> {
        let seen = self.thread.changes.now();
        let there = || places.iter().filter_map(|place| place.as_deref().ok());
        let numbers: Vec<u64> = there().filter_map(ReadablePartition::waited_for_as).collect();
        if numbers.is_empty() {
            return Watch { service: self, seen, wait: None };
        }
        let wait = self.thread.waits.begin(numbers);
        for partition in there() {
            partition.ask(self.thread.waits.thread());
        }
        Watch { service: self, seen, wait: Some(wait) }
    }
}

/// See [`Service::watch`].
pub(super) struct Watch<'a> {
    service: &'a Service,
    seen: u64,
    wait: Option<Wait<'a>>,
}

impl Watch<'_> {
    /// Waits until something has changed since the beginning, at most until `deadline`.
    pub(super) async fn changed(&self, deadline: Tick) {
        let left = deadline.since(self.service.now());
        let timer = async {
            glommio::timer::sleep(left).await;
        };
        match &self.wait {
            Some(wait) => or(wait.over(), timer).await,
            None => or(self.service.thread.changes.past(self.seen), timer).await,
        }
    }
}

/// What a connection to a catalog has besides.
#[derive(Debug)]
pub(super) struct CatalogService {
    pub(super) service: Service,
    pub(super) catalog: Arc<Catalog>,
}

impl CatalogService {
    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(super) fn config(&self) -> &ListenerConfig {
        self.service.config()
    }
}

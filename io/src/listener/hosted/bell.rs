//! Tells listener threads that some log changed.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Rings for every change of a served log. Cheap when nobody listens.
#[derive(Debug, Default)]
pub struct Bell {
    hearers: Mutex<Vec<Arc<Notify>>>,
}

impl Bell {
    /// Wakes every hearer, now or when it listens next.
    pub fn ring(&self) {
        let mut hearers = self.hearers.lock().unwrap_or_else(PoisonError::into_inner);
        // A hearer that ended holds its end no more.
        hearers.retain(|hearer| Arc::strong_count(hearer) > 1);
        for hearer in hearers.iter() {
            hearer.notify_one();
        }
    }

    /// A new hearer. Rings between two looks are one.
    pub fn hearer(&self) -> Arc<Notify> {
        let hearer = Arc::new(Notify::new());
        let mut hearers = self.hearers.lock().unwrap_or_else(PoisonError::into_inner);
        hearers.push(Arc::clone(&hearer));
        hearer
    }
}

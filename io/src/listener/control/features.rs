//! What clients are told of the host's features.

use std::sync::atomic::{AtomicI16, AtomicI64, Ordering};

/// The feature that the APIs of KIP-1279 need.
pub const MIRROR_VERSION_FEATURE: &str = "mirror.version";

/// Its highest level here; 0 turns it off.
pub const MIRROR_VERSION_MAX: i16 = 1;

/// Levels of the features, set by the host and read by its listener.
#[derive(Debug)]
pub struct FeatureLevels {
    mirror_version: AtomicI16,
    epoch: AtomicI64,
}

impl FeatureLevels {
    /// `mirror.version` at `level`, as of metadata offset `epoch` (0 or more).
    pub fn new(level: i16, epoch: i64) -> Self {
        Self { mirror_version: AtomicI16::new(level), epoch: AtomicI64::new(epoch) }
    }

    /// Sets the level of `mirror.version` as of metadata offset `epoch`. Requests that are
    /// read from now on see it; call it once the level is durable.
    pub fn set_mirror_version(&self, level: i16, epoch: i64) {
        self.mirror_version.store(level, Ordering::Release);
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Level of `mirror.version`.
    pub fn mirror_version(&self) -> i16 {
        self.mirror_version.load(Ordering::Acquire)
    }

    /// Metadata offset of the last change.
    pub fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Acquire)
    }
}

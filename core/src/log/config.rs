//! Settings of a log, with Kafka's names, defaults and limits.

use std::time::Duration;

use super::index::{OffsetEntry, TimeEntry};

/// Raw settings; [`LogConfig::new`] checks them. The default is Kafka's, where
/// Kafka has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfigValues {
    /// `segment.bytes`
    pub segment_bytes: i64,
    /// `segment.ms`
    pub segment_ms: i64,
    /// `segment.jitter.ms`
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`
    pub segment_index_bytes: i64,
    /// `index.interval.bytes`
    pub index_interval_bytes: i64,
    /// `flush.bytes`. Ours: Kafka counts messages, which a mirror does not look at.
    pub flush_bytes: i64,
    /// `flush.ms`. Kafka's default is "never": it has replicas. A mirror's log is
    /// its only progress, so the default here is a second.
    pub flush_ms: i64,
    /// `producer.id.expiration.ms`
    pub producer_id_expiration_ms: i64,
}

impl Default for LogConfigValues {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4_096,
            flush_bytes: 64 << 20,
            flush_ms: 1_000,
            producer_id_expiration_ms: 24 * 3_600_000,
        }
    }
}

/// A setting that no log can work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}={got}: want {min} to {max}")]
pub struct LogConfigError {
    /// Name of the setting.
    pub key: &'static str,
    /// Its value.
    pub got: i64,
    /// Smallest legal value.
    pub min: i64,
    /// Largest legal value.
    pub max: i64,
}

/// Checked settings of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    segment_bytes: u32,
    segment_ms: i64,
    segment_jitter_ms: i64,
    segment_index_bytes: u32,
    index_interval_bytes: u32,
    flush_bytes: u64,
    flush_ms: u64,
    producer_id_expiration_ms: i64,
}

impl LogConfig {
    /// Checks `values`.
    ///
    /// Tighter than Kafka in one place: an index file must hold two entries, or
    /// every batch would want a segment of its own before it has written anything.
    ///
    /// # Errors
    ///
    /// [`LogConfigError`] names the first bad setting and its limits.
    pub fn new(values: LogConfigValues) -> Result<Self, LogConfigError> {
        let ms = "segment.ms";
        let segment_ms = long(ms, values.segment_ms, 1, i64::MAX)?;
        Ok(Self {
            segment_bytes: int("segment.bytes", values.segment_bytes, 14)?,
            segment_ms,
            segment_jitter_ms: long("segment.jitter.ms", values.segment_jitter_ms, 0, segment_ms)?,
            segment_index_bytes: int("segment.index.bytes", values.segment_index_bytes, 24)?,
            index_interval_bytes: int("index.interval.bytes", values.index_interval_bytes, 0)?,
            flush_bytes: long("flush.bytes", values.flush_bytes, 1, i64::MAX)?.unsigned_abs(),
            flush_ms: long("flush.ms", values.flush_ms, 0, i64::MAX)?.unsigned_abs(),
            producer_id_expiration_ms: long(
                "producer.id.expiration.ms",
                values.producer_id_expiration_ms,
                1,
                i64::MAX,
            )?,
        })
    }

    /// A segment takes no further batch that would make it larger. A single batch
    /// may be larger and is alone in its segment then.
    pub fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    /// Span of record time, in milliseconds, after which a segment is closed.
    pub fn segment_ms(&self) -> i64 {
        self.segment_ms
    }

    /// Largest part of [`Self::segment_ms`] that may be taken off at random, so that
    /// segments of the same age do not all roll at once. Milliseconds.
    pub fn segment_jitter_ms(&self) -> i64 {
        self.segment_jitter_ms
    }

    /// Entries that a full offset index holds.
    pub fn offset_index_entries_max(&self) -> u32 {
        entries(self.segment_index_bytes, OffsetEntry::BYTES)
    }

    /// Entries that a full time index holds, the one for the roll included.
    pub fn time_index_entries_max(&self) -> u32 {
        entries(self.segment_index_bytes, TimeEntry::BYTES)
    }

    /// More bytes than this between two index entries.
    pub fn index_interval_bytes(&self) -> u32 {
        self.index_interval_bytes
    }

    /// Bytes appended since the last flush at which the next one is due.
    pub fn flush_bytes(&self) -> u64 {
        self.flush_bytes
    }

    /// Time since the first unflushed append after which a flush is due.
    pub fn flush_after(&self) -> Duration {
        Duration::from_millis(self.flush_ms)
    }

    /// Age of a producer's last batch, in milliseconds, at which it is forgotten.
    pub fn producer_id_expiration_ms(&self) -> i64 {
        self.producer_id_expiration_ms
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        let values = LogConfigValues::default();
        #[expect(clippy::expect_used, reason = "a test holds the defaults within the limits")]
        Self::new(values).expect("the defaults are legal")
    }
}

fn long(key: &'static str, got: i64, min: i64, max: i64) -> Result<i64, LogConfigError> {
    if (min..=max).contains(&got) { Ok(got) } else { Err(LogConfigError { key, got, min, max }) }
}

/// One of Kafka's `int` settings.
fn int(key: &'static str, got: i64, min: i64) -> Result<u32, LogConfigError> {
    let max = i64::from(i32::MAX);
    let checked = long(key, got, min, max)?;
    u32::try_from(checked).map_err(|_| LogConfigError { key, got, min, max })
}

fn entries(index_bytes: u32, entry_bytes: usize) -> u32 {
    u32::try_from(entry_bytes).ok().and_then(|bytes| index_bytes.checked_div(bytes)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_kafkas() {
        let it = LogConfig::default();
        assert_eq!(it.segment_bytes(), 1_073_741_824);
        assert_eq!(it.segment_ms(), 604_800_000);
        assert_eq!(it.segment_jitter_ms(), 0);
        assert_eq!(it.offset_index_entries_max(), 1_310_720);
        assert_eq!(it.time_index_entries_max(), 873_813);
        assert_eq!(it.index_interval_bytes(), 4_096);
        assert_eq!(it.producer_id_expiration_ms(), 86_400_000);
    }

    #[test]
    fn what_no_log_can_work_with_is_refused() {
        let with = |change: fn(&mut LogConfigValues)| {
            let mut values = LogConfigValues::default();
            change(&mut values);
            LogConfig::new(values).map_err(|error| error.to_string())
        };
        assert!(with(|v| v.segment_bytes = i64::from(i32::MAX)).is_ok());
        assert_eq!(
            with(|v| v.segment_bytes = 1 << 31),
            Err("segment.bytes=2147483648: want 14 to 2147483647".into())
        );
        assert!(with(|v| v.segment_index_bytes = 23).is_err());
        assert!(with(|v| v.segment_ms = 0).is_err());
        assert!(with(|v| v.index_interval_bytes = -1).is_err());
        assert_eq!(
            with(|v| (v.segment_ms, v.segment_jitter_ms) = (10, 11)),
            Err("segment.jitter.ms=11: want 0 to 10".into())
        );
    }
}

//! Broker properties: an ordered map that prints as a properties file, and the sets that tests
//! ask for by name.

use std::collections::BTreeMap;

/// Properties by key; a later value replaces an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<String, String>);

impl Properties {
    /// Sets `key`.
    #[expect(clippy::needless_pass_by_value, reason = "callers pass numbers and literals")]
    pub fn set(&mut self, key: impl Into<String>, value: impl ToString) -> &mut Self {
        self.0.insert(key.into(), value.to_string());
        self
    }

    /// Adds all of `others`, replacing keys that are there.
    pub fn extend(&mut self, others: &Self) -> &mut Self {
        self.0.extend(others.0.iter().map(|(key, value)| (key.clone(), value.clone())));
        self
    }

    /// Value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The text of a properties file. Keys and values are ours: none needs escapes.
    pub fn to_file(&self) -> String {
        let lines: Vec<_> = self.0.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        lines.concat()
    }
}

/// Makes a broker notice within a second or two what it looks for every few minutes by default:
/// retention, deleted segments, dirty logs, expired producer IDs.
pub fn fast_housekeeping() -> Properties {
    let mut p = Properties::default();
    p.set("log.retention.check.interval.ms", 500)
        .set("log.initial.task.delay.ms", 500)
        .set("log.segment.delete.delay.ms", 0)
        .set("log.cleaner.backoff.ms", 200)
        .set("log.cleaner.threads", 1)
        .set("log.cleaner.dedupe.buffer.size", 8 * 1024 * 1024)
        .set("transactional.id.expiration.ms", 3_600_000)
        .set("transaction.abort.timed.out.transaction.cleanup.interval.ms", 500)
        .set("producer.id.expiration.check.interval.ms", 1_000);
    p
}

/// Lets batches of up to `bytes` through: request, message and replica limits.
pub fn large_messages(bytes: u32) -> Properties {
    let mut p = Properties::default();
    p.set("message.max.bytes", bytes)
        .set("replica.fetch.max.bytes", bytes)
        .set("socket.request.max.bytes", u64::from(bytes) + 1024 * 1024);
    p
}

/// What every broker of the harness has: small pools, one-partition internal topics with factors
/// that fit `brokers`, no surprises such as topics that create themselves.
pub(crate) fn common(brokers: usize) -> Properties {
    let factor = brokers.min(3);
    let min_isr = factor.div_ceil(2);
    let mut p = Properties::default();
    p.set("num.network.threads", 2)
        .set("num.io.threads", 2)
        .set("offsets.topic.num.partitions", 1)
        .set("offsets.topic.replication.factor", factor)
        .set("transaction.state.log.num.partitions", 1)
        .set("transaction.state.log.replication.factor", factor)
        .set("transaction.state.log.min.isr", min_isr)
        .set("default.replication.factor", factor)
        .set("group.initial.rebalance.delay.ms", 0)
        .set("auto.create.topics.enable", false)
        .set("auto.leader.rebalance.enable", false)
        .set("controlled.shutdown.enable", true);
    p
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_value_replaces_an_earlier_one() {
        let mut p = common(3);
        let mut later = Properties::default();
        later.set("num.io.threads", 9);

        p.extend(&later);

        assert_eq!(p.get("num.io.threads"), Some("9"));
        assert!(p.to_file().contains("num.io.threads=9\n"));
        assert_eq!(p.get("offsets.topic.replication.factor"), Some("3"));
    }
}

//! Checked values of a configuration file.

use std::collections::BTreeMap;
use std::time::Duration;

use super::key::{KEYS, KeyType, find};
use super::nearest::nearest;
use super::throttled::ThrottledPartitions;
use crate::log::config::{LogConfig, LogConfigError, LogConfigValues};
use crate::log::properties;
use crate::log::{FileKind, FormatError};

/// Memory for data of one shard when nothing else is said, in bytes.
pub const DEFAULT_SHARD_MEMORY_BYTES: u64 = 64 << 20;

/// What is wrong with a configuration. Values of security keys are never part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key that is not known.
    #[error(
        "unknown key {key}{}",
        nearest.map(|key| format!("; did you mean {key}?")).unwrap_or_default()
    )]
    Unknown {
        /// As the file spells it.
        key: String,
        /// The known key that is most like it.
        nearest: Option<&'static str>,
    },
    /// A value that the key does not take.
    #[error("{key}={got}: want {want}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        got: String,
        /// What it takes.
        want: String,
    },
    /// Encryption or authentication is asked for.
    #[error(
        "{key}: connections to the source are PLAINTEXT only in this release; remove the key, \
         and name a PLAINTEXT listener of the source in bootstrap.servers"
    )]
    Security {
        /// The key; its value may be a secret.
        key: String,
    },
    /// Two values contradict each other.
    #[error("{low}={low_value} must not be above {high}={high_value}")]
    Order {
        /// The key with the lower value.
        low: &'static str,
        /// Its value.
        low_value: i64,
        /// The key with the higher value.
        high: &'static str,
        /// Its value.
        high_value: i64,
    },
    /// Not a properties file.
    #[error(transparent)]
    Syntax(#[from] FormatError),
    /// A log setting that no log can work with.
    #[error(transparent)]
    Log(#[from] LogConfigError),
}

/// What a partition does about a range that the source no longer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapPolicy {
    /// Record it and go on behind it.
    Continue,
    /// Record it and stop.
    Stop,
}

/// `append.direct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppendDirect {
    /// By the size of what arrives.
    Auto,
    /// Always past the page cache.
    Always,
    /// Always through the page cache.
    Never,
}

/// Limits of Fetch requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchConfig {
    /// `mirror.fetch.wait.max.ms`
    pub wait_max_ms: u32,
    /// `mirror.fetch.backoff.ms`
    pub backoff: Duration,
    /// `mirror.fetch.min.bytes`
    pub min_bytes: u32,
    /// `mirror.fetch.linger.ms`
    pub linger: Duration,
    /// `mirror.fetch.response.max.bytes`
    pub response_max_bytes: u32,
    /// `mirror.fetch.max.bytes`: of one partition.
    pub partition_max_bytes: u32,
    /// `mirror.num.replica.fetchers`: connections of a shard to each broker.
    pub connections_per_broker: u32,
    /// `mirror.num.replica.fetchers.max`: as many are opened while they bring throughput.
    pub connections_max: u32,
    /// `mirror.partition.stripes.max`: of these, for one partition.
    pub stripes_max: u32,
    /// `mirror.partition.stripe.bytes`
    pub stripe_bytes: u32,
}

/// Everything that a configuration file says, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    /// `bootstrap.servers`, as written; empty if the file does not say.
    pub bootstrap_servers: Vec<String>,
    /// `client.id`
    pub client_id: String,
    /// `request.timeout.ms`
    pub request_timeout: Duration,
    /// `socket.connection.setup.timeout.ms`
    pub connection_setup_timeout: Duration,
    /// `reconnect.backoff.ms`
    pub reconnect_backoff: Duration,
    /// `reconnect.backoff.max.ms`
    pub reconnect_backoff_max: Duration,
    /// `receive.buffer.bytes`; `None` for the kernel's choice.
    pub receive_buffer_bytes: Option<u32>,
    /// `send.buffer.bytes`; `None` for the kernel's choice.
    pub send_buffer_bytes: Option<u32>,
    /// Limits of Fetch requests.
    pub fetch: FetchConfig,
    /// `num.recovery.threads.per.data.dir`
    pub recovery_threads: u32,
    /// `mirror.metadata.refresh.interval.ms`
    pub metadata_refresh: Duration,
    /// `mirror.replication.throttled.rate`, bytes per second; `None` for no limit.
    pub throttled_rate: Option<u64>,
    /// `mirror.replication.throttled.replicas`
    pub throttled: ThrottledPartitions,
    /// `mirror.gap.policy`
    pub gap_policy: GapPolicy,
    /// `mirror.support.unclean.leader.election`
    pub unclean_leader_election: bool,
    /// `mirror.shard.memory.bytes`
    pub shard_memory_bytes: u64,
    /// `append.direct`
    pub append_direct: AppendDirect,
    /// `log.dir.free.min.bytes`
    pub free_min_bytes: u64,
    /// `check.crcs`
    pub check_crcs: bool,
    /// Segments, indexes, flushes.
    pub log: LogConfig,
}

impl Default for MirrorConfig {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "a test holds the defaults within the limits")]
        Self::from_pairs([]).expect("the defaults are legal")
    }
}

impl MirrorConfig {
    /// Reads a properties file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the first thing that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        Self::from_pairs(properties::parse(FileKind::Configuration, bytes)?)
    }

    /// Checks keys and values; of a key that is there twice the later value holds, as in Java.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the first key that is wrong.
    pub fn from_pairs(
        pairs: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut values = Values::default();
        for (name, value) in pairs {
            values.set(&name, value.trim())?;
        }
        values.check()
    }
}

/// Values by key, each legal by its type.
#[derive(Debug, Default)]
struct Values(BTreeMap<&'static str, String>);

impl Values {
    fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let is_security = ["ssl.", "sasl.", "security."].iter().any(|p| name.starts_with(p));
        let Some(key) = find(name) else {
            if is_security {
                return Err(ConfigError::Security { key: name.to_owned() });
            }
            let known = KEYS.iter().map(|key| key.name);
            let key = name.chars().take(100).collect();
            return Err(ConfigError::Unknown { key, nearest: nearest(name, known) });
        };
        let is_legal = match key.values {
            KeyType::Text | KeyType::List => true,
            KeyType::Boolean => matches!(value, "true" | "false"),
            KeyType::OneOf(words) => words.contains(&value),
            KeyType::Number { min, max } => {
                value.parse::<i64>().is_ok_and(|number| (min..=max).contains(&number))
            }
        };
        if !is_legal && is_security {
            return Err(ConfigError::Security { key: name.to_owned() });
        }
        if !is_legal {
            return Err(wrong(key.name, value, key.values.range()));
        }
        self.0.insert(key.name, value.to_owned());
        Ok(())
    }

    fn text(&self, name: &'static str) -> &str {
        let default = || find(name).map_or("", |key| key.default);
        self.0.get(name).map_or_else(default, String::as_str)
    }

    fn number(&self, name: &'static str) -> i64 {
        self.text(name).parse().unwrap_or_default()
    }

    fn u64(&self, name: &'static str) -> u64 {
        u64::try_from(self.number(name)).unwrap_or_default()
    }

    fn u32(&self, name: &'static str) -> u32 {
        u32::try_from(self.number(name)).unwrap_or_default()
    }

    fn millis(&self, name: &'static str) -> Duration {
        Duration::from_millis(self.u64(name))
    }

    /// −1 is the kernel's choice.
    fn buffer(&self, name: &'static str) -> Option<u32> {
        u32::try_from(self.number(name)).ok()
    }

    fn log(&self) -> Result<LogConfig, LogConfigError> {
        LogConfig::new(LogConfigValues {
            segment_bytes: self.number("segment.bytes"),
            segment_ms: self.number("segment.ms"),
            segment_index_bytes: self.number("segment.index.bytes"),
            index_interval_bytes: self.number("index.interval.bytes"),
            flush_bytes: self.number("flush.bytes"),
            flush_ms: self.number("flush.ms"),
            producer_id_expiration_ms: self.number("producer.id.expiration.ms"),
            ..LogConfigValues::default()
        })
    }

    fn fetch(&self) -> FetchConfig {
        FetchConfig {
            wait_max_ms: self.u32("mirror.fetch.wait.max.ms"),
            backoff: self.millis("mirror.fetch.backoff.ms"),
            min_bytes: self.u32("mirror.fetch.min.bytes"),
            linger: self.millis("mirror.fetch.linger.ms"),
            response_max_bytes: self.u32("mirror.fetch.response.max.bytes"),
            partition_max_bytes: self.u32("mirror.fetch.max.bytes"),
            connections_per_broker: self.u32("mirror.num.replica.fetchers"),
            connections_max: self.u32("mirror.num.replica.fetchers.max"),
            stripes_max: self.u32("mirror.partition.stripes.max"),
            stripe_bytes: self.u32("mirror.partition.stripe.bytes"),
        }
    }

    fn ordered(&self, low: &'static str, high: &'static str) -> Result<(), ConfigError> {
        let (low_value, high_value) = (self.number(low), self.number(high));
        if low_value <= high_value {
            return Ok(());
        }
        Err(ConfigError::Order { low, low_value, high, high_value })
    }

    fn check(&self) -> Result<MirrorConfig, ConfigError> {
        self.ordered("reconnect.backoff.ms", "reconnect.backoff.max.ms")?;
        // A request that the source may hold back for longer than we wait always fails.
        self.ordered("mirror.fetch.wait.max.ms", "request.timeout.ms")?;
        let throttled_key = "mirror.replication.throttled.replicas";
        let throttled = ThrottledPartitions::parse(self.text(throttled_key)).ok_or_else(|| {
            let want = "*, or a list of topic and topic:partition".to_owned();
            wrong(throttled_key, self.text(throttled_key), want)
        })?;
        let rate = self.number("mirror.replication.throttled.rate");
        let servers = self.text("bootstrap.servers").split(',').map(str::trim);
        Ok(MirrorConfig {
            bootstrap_servers: servers.filter(|s| !s.is_empty()).map(str::to_owned).collect(),
            client_id: self.text("client.id").to_owned(),
            request_timeout: self.millis("request.timeout.ms"),
            connection_setup_timeout: self.millis("socket.connection.setup.timeout.ms"),
            reconnect_backoff: self.millis("reconnect.backoff.ms"),
            reconnect_backoff_max: self.millis("reconnect.backoff.max.ms"),
            receive_buffer_bytes: self.buffer("receive.buffer.bytes"),
            send_buffer_bytes: self.buffer("send.buffer.bytes"),
            fetch: self.fetch(),
            recovery_threads: self.u32("num.recovery.threads.per.data.dir"),
            metadata_refresh: self.millis("mirror.metadata.refresh.interval.ms"),
            throttled_rate: (rate < i64::MAX).then_some(rate.unsigned_abs()),
            throttled,
            gap_policy: match self.text("mirror.gap.policy") {
                "stop" => GapPolicy::Stop,
                _ => GapPolicy::Continue,
            },
            unclean_leader_election: self.text("mirror.support.unclean.leader.election") == "true",
            shard_memory_bytes: self.u64("mirror.shard.memory.bytes"),
            append_direct: match self.text("append.direct") {
                "true" => AppendDirect::Always,
                "false" => AppendDirect::Never,
                _ => AppendDirect::Auto,
            },
            free_min_bytes: self.u64("log.dir.free.min.bytes"),
            check_crcs: self.text("check.crcs") == "true",
            log: self.log()?,
        })
    }
}

fn wrong(key: &'static str, got: &str, want: String) -> ConfigError {
    const GOT_CHARS_MAX: usize = 80;
    ConfigError::Value { key, got: got.chars().take(GOT_CHARS_MAX).collect(), want }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> Result<MirrorConfig, String> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        MirrorConfig::from_pairs(pairs).map_err(|error| error.to_string())
    }

    #[test]
    fn every_default_is_legal_and_equals_the_logs_own() {
        for key in KEYS {
            assert!(Values::default().set(key.name, key.default).is_ok(), "{}", key.name);
            assert!(!key.doc.is_empty() && !key.doc.ends_with('.'), "{}", key.name);
        }
        let it = MirrorConfig::default();
        assert_eq!(it.log, LogConfig::default());
        assert_eq!(it.shard_memory_bytes, DEFAULT_SHARD_MEMORY_BYTES);
        assert_eq!(it.throttled_rate, None);
        assert_eq!(it.metadata_refresh, Duration::from_secs(30));
        assert_eq!((it.receive_buffer_bytes, it.gap_policy), (None, GapPolicy::Continue));
        assert!(it.check_crcs && !it.unclean_leader_election);
    }

    #[test]
    fn values_reach_their_fields() {
        let it = config(&[
            ("bootstrap.servers", "a:9092, b:9093,"),
            ("mirror.gap.policy", "stop"),
            ("mirror.replication.throttled.rate", "1000"),
            ("mirror.replication.throttled.replicas", "orders:3"),
            ("append.direct", "false"),
            ("receive.buffer.bytes", " 4096 "),
            ("check.crcs", "true"),
            ("check.crcs", "false"),
            ("segment.bytes", "2048"),
        ])
        .unwrap();
        assert_eq!(it.bootstrap_servers, ["a:9092", "b:9093"]);
        assert_eq!((it.gap_policy, it.throttled_rate), (GapPolicy::Stop, Some(1_000)));
        assert_ne!(it.throttled, ThrottledPartitions::All);
        assert_eq!((it.append_direct, it.check_crcs), (AppendDirect::Never, false));
        assert_eq!((it.receive_buffer_bytes, it.log.segment_bytes()), (Some(4_096), 2_048));
    }

    #[test]
    fn files_are_properties() {
        let it = MirrorConfig::parse(b"# mine\nbootstrap.servers = a:1\nflush.ms: 7\n").unwrap();
        assert_eq!(it.bootstrap_servers, ["a:1"]);
        assert_eq!(it.log.flush_after(), Duration::from_millis(7));
        let error = MirrorConfig::parse(b"flush.ms=\\u00g0").unwrap_err().to_string();
        assert!(error.starts_with("configuration, line 1: want four hexadecimal"), "{error}");
    }

    #[track_caller]
    fn refused(key: &str, value: &str, message: &str) {
        assert_eq!(config(&[(key, value)]).unwrap_err(), message);
    }

    #[test]
    fn errors_name_the_key_and_the_remedy() {
        refused("flush.millis", "1", "unknown key flush.millis; did you mean flush.ms?");
        refused("zookeeper.connect", "x", "unknown key zookeeper.connect");
        refused("flush.ms", "soon", "flush.ms=soon: want a whole number from 0 on");
        refused(
            "request.timeout.ms",
            "0",
            "request.timeout.ms=0: want a whole number from 1 to 2147483647",
        );
        refused("append.direct", "yes", "append.direct=yes: want one of auto, true, false");
        refused(
            "mirror.replication.throttled.replicas",
            "a:b",
            "mirror.replication.throttled.replicas=a:b: want *, or a list of topic and \
             topic:partition",
        );
        let order = config(&[("reconnect.backoff.ms", "20000")]).unwrap_err();
        assert_eq!(
            order,
            "reconnect.backoff.ms=20000 must not be above reconnect.backoff.max.ms=10000"
        );
    }

    #[test]
    fn secrets_are_refused_and_not_shown() {
        assert!(config(&[("security.protocol", "PLAINTEXT")]).is_ok());
        for (key, value) in [
            ("security.protocol", "s3cret"),
            ("sasl.jaas.config", "password=s3cret"),
            ("ssl.keystore.password", "s3cret"),
        ] {
            let error = config(&[(key, value)]).unwrap_err();
            assert!(error.starts_with(key) && error.contains("PLAINTEXT"), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}

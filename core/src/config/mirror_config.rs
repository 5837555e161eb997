//! Checked values of a configuration file.

use std::time::Duration;

use super::key::KEYS;
use super::throttled::ThrottledPartitions;
use super::values::{Values, wrong};
use crate::log::config::{LogConfig, LogConfigError, LogConfigValues};
use crate::log::properties;
use crate::log::{FileKind, FormatError};
use crate::select::SelectError;

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
    /// The listener is to encrypt or authenticate.
    #[error("{key}: this release listens in PLAINTEXT only; remove the key")]
    ListenerSecurity {
        /// The key; its value may be a secret.
        key: String,
    },
    /// A key that has no default and is not there.
    #[error("{key} is missing: {doc}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What it is for.
        doc: &'static str,
    },
    /// A key of Kafka's that has no meaning here.
    #[error("{key}: {why}; remove the key")]
    Meaningless {
        /// The key.
        key: &'static str,
        /// Why it has none.
        why: &'static str,
    },
    /// A value that never changes.
    #[error("{key} is {is} and stays so; make another mirror for another source")]
    Fixed {
        /// The key.
        key: &'static str,
        /// What it is.
        is: String,
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
    /// A list of patterns that cannot be used.
    #[error(transparent)]
    Patterns(#[from] SelectError),
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
        check(&Values::from_pairs(KEYS.iter(), pairs)?)
    }
}

fn fetch(values: &Values) -> FetchConfig {
    FetchConfig {
        wait_max_ms: values.u32("mirror.fetch.wait.max.ms"),
        backoff: values.millis("mirror.fetch.backoff.ms"),
        min_bytes: values.u32("mirror.fetch.min.bytes"),
        linger: values.millis("mirror.fetch.linger.ms"),
        response_max_bytes: values.u32("mirror.fetch.response.max.bytes"),
        partition_max_bytes: values.u32("mirror.fetch.max.bytes"),
        connections_per_broker: values.u32("mirror.num.replica.fetchers"),
        connections_max: values.u32("mirror.num.replica.fetchers.max"),
        stripes_max: values.u32("mirror.partition.stripes.max"),
        stripe_bytes: values.u32("mirror.partition.stripe.bytes"),
    }
}

fn log(values: &Values) -> Result<LogConfig, LogConfigError> {
    LogConfig::new(LogConfigValues {
        segment_bytes: values.number("segment.bytes"),
        segment_ms: values.number("segment.ms"),
        segment_index_bytes: values.number("segment.index.bytes"),
        index_interval_bytes: values.number("index.interval.bytes"),
        flush_bytes: values.number("flush.bytes"),
        flush_ms: values.number("flush.ms"),
        producer_id_expiration_ms: values.number("producer.id.expiration.ms"),
        ..LogConfigValues::default()
    })
}

fn check(values: &Values) -> Result<MirrorConfig, ConfigError> {
    values.ordered("reconnect.backoff.ms", "reconnect.backoff.max.ms")?;
    // A request that the source may hold back for longer than we wait always fails.
    values.ordered("mirror.fetch.wait.max.ms", "request.timeout.ms")?;
    let throttled_key = "mirror.replication.throttled.replicas";
    let throttled = ThrottledPartitions::parse(values.text(throttled_key)).ok_or_else(|| {
        let want = "*, or a list of topic and topic:partition".to_owned();
        wrong(throttled_key, values.text(throttled_key), want)
    })?;
    let rate = values.number("mirror.replication.throttled.rate");
    let servers = values.text("bootstrap.servers").split(',').map(str::trim);
    Ok(MirrorConfig {
        bootstrap_servers: servers.filter(|s| !s.is_empty()).map(str::to_owned).collect(),
        client_id: values.text("client.id").to_owned(),
        request_timeout: values.millis("request.timeout.ms"),
        connection_setup_timeout: values.millis("socket.connection.setup.timeout.ms"),
        reconnect_backoff: values.millis("reconnect.backoff.ms"),
        reconnect_backoff_max: values.millis("reconnect.backoff.max.ms"),
        receive_buffer_bytes: values.buffer("receive.buffer.bytes"),
        send_buffer_bytes: values.buffer("send.buffer.bytes"),
        fetch: fetch(values),
        recovery_threads: values.u32("num.recovery.threads.per.data.dir"),
        metadata_refresh: values.millis("mirror.metadata.refresh.interval.ms"),
        throttled_rate: (rate < i64::MAX).then_some(rate.unsigned_abs()),
        throttled,
        gap_policy: match values.text("mirror.gap.policy") {
            "stop" => GapPolicy::Stop,
            _ => GapPolicy::Continue,
        },
        unclean_leader_election: values.text("mirror.support.unclean.leader.election") == "true",
        shard_memory_bytes: values.u64("mirror.shard.memory.bytes"),
        append_direct: match values.text("append.direct") {
            "true" => AppendDirect::Always,
            "false" => AppendDirect::Never,
            _ => AppendDirect::Auto,
        },
        free_min_bytes: values.u64("log.dir.free.min.bytes"),
        check_crcs: values.text("check.crcs") == "true",
        log: log(values)?,
    })
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
            let pair = [(key.name.to_owned(), key.default.to_owned())];
            assert!(Values::from_pairs(KEYS.iter(), pair).is_ok(), "{}", key.name);
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

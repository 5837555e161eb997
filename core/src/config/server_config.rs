//! Checked values of a host's configuration file.

use std::path::PathBuf;
use std::time::Duration;

use super::listen::ListenAddress;
use super::mirror_config::{ConfigError, MirrorConfig};
use super::server_keys::{MEANINGLESS, is_default_of_mirrors, is_of_mirrors, known};
use super::values::{Values, is_security, wrong};
use crate::coordinator::retry::RetryPolicy;
use crate::log::{FileKind, properties};
use crate::types::BrokerId;

/// What a listener is written like.
const LISTENER: &str = "PLAINTEXT://HOST:PORT";

/// Limits of connections of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// `num.network.threads`
    pub threads: u16,
    /// `max.connections` of each thread.
    pub connections_max: u32,
    /// `max.connections.per.ip`
    pub connections_per_ip_max: u32,
    /// `queued.max.requests`
    pub queued_requests_max: u32,
    /// `socket.request.max.bytes`
    pub request_bytes_max: u32,
    /// `connections.max.idle.ms`
    pub idle_max: Duration,
    /// `socket.send.buffer.bytes`; `None` for the kernel's choice.
    pub send_buffer_bytes: Option<u32>,
    /// `socket.receive.buffer.bytes`; `None` for the kernel's choice.
    pub receive_buffer_bytes: Option<u32>,
    /// `fetch.max.bytes`
    pub fetch_bytes_max: u32,
}

/// Everything that a host's configuration file says, checked. Secrets have no place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// `node.id`
    pub node_id: BrokerId,
    /// `listeners`
    pub listener: ListenAddress,
    /// `advertised.listeners`; `None` for what the listener has.
    pub advertised: Option<ListenAddress>,
    /// `log.dirs`
    pub log_dir: PathBuf,
    /// `cluster.id`; `None` for a new one, or the one that is stored.
    pub cluster_id: Option<String>,
    /// `metrics.listener`; `None` for nowhere.
    pub metrics: Option<ListenAddress>,
    /// `metrics.partitions.max`
    pub metrics_partitions_max: u32,
    /// `mirror.shards`; `None` for one a core, less one.
    pub shards: Option<u16>,
    /// Limits of connections of clients.
    pub limits: ConnectionLimits,
    /// `mirror.state.topic.num.partitions`
    pub state_partitions: u16,
    /// `mirror.failed.retry.*`
    pub retry: RetryPolicy,
    /// Shards, logs, and what mirrors have that do not say otherwise.
    pub mirror: MirrorConfig,
    /// What the file says of keys that a mirror may set as well: the defaults of
    /// [`super::MirrorLevelConfig`].
    pub mirror_defaults: Vec<(String, String)>,
}

impl ServerConfig {
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
        let pairs: Vec<_> = pairs.into_iter().collect();
        for (name, _) in &pairs {
            if let Some(&(key, why)) = MEANINGLESS.iter().find(|(key, _)| key == name) {
                return Err(ConfigError::Meaningless { key, why });
            }
            if is_security(name) || name.starts_with("listener.") {
                return Err(ConfigError::ListenerSecurity { key: name.clone() });
            }
        }
        check(&Values::from_pairs(known(), pairs)?)
    }
}

fn check(values: &Values) -> Result<ServerConfig, ConfigError> {
    values
        .ordered("mirror.failed.retry.initial.backoff.ms", "mirror.failed.retry.max.backoff.ms")?;
    let mirror = MirrorConfig::from_pairs(values.pairs(is_of_mirrors))?;
    // A fetch that the source may hold back for longer than we wait always fails.
    let wait = i64::from(mirror.fetch.wait_max_ms);
    let (low, high) = ("mirror.fetch.wait.max.ms", "mirror.socket.timeout.ms");
    if wait > values.number(high) {
        let high_value = values.number(high);
        return Err(ConfigError::Order { low, low_value: wait, high, high_value });
    }
    let node_id = values.required("node.id")?;
    let want = "a whole number from 0 to 2147483647";
    let legal = node_id.parse().ok().filter(|id: &i32| *id >= 0);
    let node_id = BrokerId(legal.ok_or_else(|| wrong("node.id", node_id, want))?);
    Ok(ServerConfig {
        node_id,
        listener: listener(values, "listeners")?
            .unwrap_or_else(|| ListenAddress { host: String::new(), port: 9092 }),
        advertised: advertised(values)?,
        log_dir: log_dir(values)?,
        cluster_id: cluster_id(values)?,
        metrics: metrics(values)?,
        metrics_partitions_max: values.u32("metrics.partitions.max"),
        shards: values.given("mirror.shards").map(|_| values.u16("mirror.shards")),
        limits: limits(values),
        state_partitions: values.u16("mirror.state.topic.num.partitions"),
        retry: RetryPolicy {
            initial: values.millis("mirror.failed.retry.initial.backoff.ms"),
            max: values.millis("mirror.failed.retry.max.backoff.ms"),
            max_attempts: values.u16("mirror.failed.retry.max.attempts"),
        },
        mirror,
        mirror_defaults: values.pairs(is_default_of_mirrors),
    })
}

/// The one listener of the key; `None` if it has no value.
fn listener(values: &Values, key: &'static str) -> Result<Option<ListenAddress>, ConfigError> {
    let text = values.text(key);
    let entries = values.list(key);
    let want = match entries.as_slice() {
        [] if key == "advertised.listeners" => return Ok(None),
        [one] => match ListenAddress::parse_listener(one) {
            Some(address) => return Ok(Some(address)),
            None if one.contains("://") && !one.starts_with("PLAINTEXT://") => {
                format!("{LISTENER}; this release listens in PLAINTEXT only")
            }
            None => LISTENER.to_owned(),
        },
        [] => LISTENER.to_owned(),
        [..] => format!("one {LISTENER}; this release has one listener"),
    };
    Err(wrong(key, text, want))
}

fn advertised(values: &Values) -> Result<Option<ListenAddress>, ConfigError> {
    let key = "advertised.listeners";
    let address = listener(values, key)?;
    match &address {
        Some(address) if address.is_any() || address.port == 0 => {
            let want = "a host and a port that clients can connect to";
            Err(wrong(key, values.text(key), want))
        }
        _ => Ok(address),
    }
}

fn log_dir(values: &Values) -> Result<PathBuf, ConfigError> {
    let key = "log.dirs";
    values.required(key)?;
    match values.list(key).as_slice() {
        [one] => Ok(PathBuf::from(one)),
        _ => {
            let want = "one directory; this release keeps the copy in one, so join disks below it";
            Err(wrong(key, values.text(key), want))
        }
    }
}

fn cluster_id(values: &Values) -> Result<Option<String>, ConfigError> {
    const CHARS_MAX: usize = 100;
    let key = "cluster.id";
    let Some(text) = values.given(key).filter(|text| !text.is_empty()) else { return Ok(None) };
    let is_legal = text.len() <= CHARS_MAX
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if !is_legal {
        return Err(wrong(key, text, "up to 100 letters, digits, _ and -"));
    }
    Ok(Some(text.to_owned()))
}

fn metrics(values: &Values) -> Result<Option<ListenAddress>, ConfigError> {
    let key = "metrics.listener";
    let Some(text) = values.given(key).filter(|text| !text.is_empty()) else { return Ok(None) };
    let address = ListenAddress::parse(text);
    address.map(Some).ok_or_else(|| wrong(key, text, "HOST:PORT"))
}

fn limits(values: &Values) -> ConnectionLimits {
    ConnectionLimits {
        threads: values.u16("num.network.threads"),
        connections_max: values.u32("max.connections"),
        connections_per_ip_max: values.u32("max.connections.per.ip"),
        queued_requests_max: values.u32("queued.max.requests"),
        request_bytes_max: values.u32("socket.request.max.bytes"),
        idle_max: values.millis("connections.max.idle.ms"),
        send_buffer_bytes: values.buffer("socket.send.buffer.bytes"),
        receive_buffer_bytes: values.buffer("socket.receive.buffer.bytes"),
        fetch_bytes_max: values.u32("fetch.max.bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::server_keys::SERVER_KEYS;
    use super::*;

    const LEAST: &str = "node.id=1\nlog.dirs=/data\n";

    fn config(more: &str) -> Result<ServerConfig, String> {
        ServerConfig::parse(format!("{LEAST}{more}").as_bytes()).map_err(|e| e.to_string())
    }

    #[track_caller]
    fn refused(more: &str, message: &str) {
        assert_eq!(config(more).unwrap_err(), message);
    }

    #[test]
    fn the_least_file_has_kafkas_defaults() {
        let it = config("").unwrap();
        assert_eq!((it.node_id, it.log_dir), (BrokerId(1), PathBuf::from("/data")));
        assert_eq!(it.listener.to_string(), ":9092");
        assert_eq!((it.advertised, it.cluster_id, it.metrics, it.shards), (None, None, None, None));
        assert_eq!((it.retry, it.state_partitions), (RetryPolicy::default(), 50));
        assert_eq!(it.mirror, MirrorConfig::default());
        assert_eq!(it.mirror_defaults, []);
        let limits = it.limits;
        assert_eq!((limits.queued_requests_max, limits.connections_max), (500, 1_024));
        assert_eq!((limits.request_bytes_max, limits.idle_max.as_secs()), (100 << 20, 600));
    }

    #[test]
    fn every_default_is_legal_and_no_name_is_there_twice() {
        let mut names: Vec<_> = known().map(|key| key.name).collect();
        for key in SERVER_KEYS.iter().filter(|key| !key.default.is_empty()) {
            assert!(config(&format!("{}={}\n", key.name, key.default)).is_ok(), "{}", key.name);
            assert!(!key.doc.ends_with('.'), "{}", key.name);
        }
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn values_reach_their_fields() {
        let it = config(
            "listeners=PLAINTEXT://[::]:19092\n\
             advertised.listeners = PLAINTEXT://mirror.example.com:29092\n\
             cluster.id=MkU3OEVBNTcwNTJENDM2Qk\n\
             metrics.listener=127.0.0.1:9464\n\
             mirror.shards=4\n\
             mirror.fetch.max.bytes=4096\n\
             mirror.socket.timeout.ms=2000\n\
             mirror.failed.retry.max.attempts=0\n\
             connections.max.idle.ms=5\n",
        )
        .unwrap();
        assert_eq!(it.listener, ListenAddress { host: "::".to_owned(), port: 19_092 });
        assert_eq!(it.advertised.unwrap().to_string(), "mirror.example.com:29092");
        assert_eq!(it.cluster_id.as_deref(), Some("MkU3OEVBNTcwNTJENDM2Qk"));
        assert_eq!(it.metrics.unwrap().port, 9_464);
        assert_eq!((it.shards, it.retry.max_attempts), (Some(4), 0));
        assert_eq!(it.mirror.fetch.partition_max_bytes, 4_096);
        assert_eq!(it.limits.idle_max, Duration::from_millis(5));
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let want =
            [pair("mirror.fetch.max.bytes", "4096"), pair("mirror.socket.timeout.ms", "2000")];
        assert_eq!(it.mirror_defaults, want);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = ServerConfig::parse(b"").unwrap_err().to_string();
        assert_eq!(error, "node.id is missing: number of this host in its cluster, from 0 on");
        let error = ServerConfig::parse(b"node.id=1\nlog.dirs=").unwrap_err().to_string();
        assert_eq!(error, "log.dirs is missing: directory of the copy; one directory");
    }

    #[test]
    fn errors_name_the_key_and_the_remedy() {
        refused("log.dirz=/a", "unknown key log.dirz; did you mean log.dirs?");
        refused("bootstrap.servers=a:1", "unknown key bootstrap.servers");
        refused("mirror.shards=0", "mirror.shards=0: want a whole number from 1 to 1024");
        let replicas = "mirror.state.topic.replication.factor";
        refused(&format!("{replicas}=3"), &format!("{replicas}=3: want 1"));
        refused("node.id=-1", "node.id=-1: want a whole number from 0 to 2147483647");
        refused(
            "log.dirs=/a,/b",
            "log.dirs=/a,/b: want one directory; this release keeps the copy in one, so join \
             disks below it",
        );
        refused("listeners=:9092", "listeners=:9092: want PLAINTEXT://HOST:PORT");
        refused(
            "listeners=SSL://h:1",
            "listeners=SSL://h:1: want PLAINTEXT://HOST:PORT; this release listens in PLAINTEXT \
             only",
        );
        refused(
            "listeners=PLAINTEXT://:1,PLAINTEXT://:2",
            "listeners=PLAINTEXT://:1,PLAINTEXT://:2: want one PLAINTEXT://HOST:PORT; this \
             release has one listener",
        );
        refused(
            "advertised.listeners=PLAINTEXT://0.0.0.0:9092",
            "advertised.listeners=PLAINTEXT://0.0.0.0:9092: want a host and a port that clients \
             can connect to",
        );
        refused("metrics.listener=9464", "metrics.listener=9464: want HOST:PORT");
        refused("cluster.id=a b", "cluster.id=a b: want up to 100 letters, digits, _ and -");
        refused(
            "process.roles=broker",
            "process.roles: this host is its own controller; remove the key",
        );
        refused(
            "mirror.socket.timeout.ms=999",
            "mirror.fetch.wait.max.ms=1000 must not be above mirror.socket.timeout.ms=999",
        );
        refused(
            "mirror.failed.retry.max.backoff.ms=999",
            "mirror.failed.retry.initial.backoff.ms=1000 must not be above \
             mirror.failed.retry.max.backoff.ms=999",
        );
    }

    #[test]
    fn secrets_are_refused_and_not_shown() {
        for line in [
            "ssl.keystore.password=s3cret",
            "sasl.jaas.config=s3cret",
            "listener.name.sasl_ssl.plain.sasl.jaas.config=s3cret",
        ] {
            let error = config(line).unwrap_err();
            assert!(error.contains("listens in PLAINTEXT only"), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}

//! Keys of configs that can be altered while the host runs, by resource.

use super::code;
use super::decision::{Refusal, shown};
use crate::config::{Key, KeyType, nearest};
use crate::metadata::image::{MIRROR_NAME, ResourceType};

/// Source brokers of a mirror.
pub(super) const BOOTSTRAP_SERVERS: &str = "bootstrap.servers";
/// The cluster that a mirror copies; it stays the same.
pub const SOURCE_CLUSTER_ID: &str = "mirror.source.cluster.id";

/// Tiered storage, which KIP-1279 does not mirror into, and which is not to be had here.
const REMOTE_STORAGE: &str = "remote.storage.enable";

const INT_MAX: i64 = 2_147_483_647;
const LONG_MAX: i64 = i64::MAX;

const fn key(name: &'static str, values: KeyType, default: &'static str, doc: &'static str) -> Key {
    Key { name, values, default, doc }
}

const fn number(min: i64, max: i64) -> KeyType {
    KeyType::Number { min, max }
}

const COUNT: KeyType = number(0, INT_MAX);
const INT: KeyType = number(1, INT_MAX);
const MILLIS: KeyType = number(0, LONG_MAX);
const LIMIT: KeyType = number(-1, LONG_MAX);

/// Keys of a mirror.
pub const MIRROR_KEYS: &[Key] = &[
    key(BOOTSTRAP_SERVERS, KeyType::List, "", "brokers of the source, host:port each"),
    key(SOURCE_CLUSTER_ID, KeyType::Text, "", "cluster ID of the source; never changes"),
    key("client.id", KeyType::Text, "", "name that the source knows this mirror by"),
    key("request.timeout.ms", INT, "30000", "longest wait for an answer"),
    key("socket.connection.setup.timeout.ms", MILLIS, "10000", "longest wait for a connection"),
    key("socket.connection.setup.timeout.max.ms", MILLIS, "30000", "the same, after failures"),
    key("connections.max.idle.ms", LIMIT, "600000", "an idle connection is closed after it"),
    key("reconnect.backoff.ms", MILLIS, "50", "first wait before connecting again"),
    key("reconnect.backoff.max.ms", MILLIS, "10000", "longest wait before connecting again"),
    key("mirror.fetch.wait.max.ms", COUNT, "1000", "longest wait of the source for data"),
    key("mirror.fetch.backoff.ms", MILLIS, "1000", "wait after a failed fetch"),
    key("mirror.fetch.min.bytes", COUNT, "1", "bytes that the source waits for"),
    key("mirror.fetch.response.max.bytes", INT, "10485760", "most bytes of a response"),
    key("mirror.fetch.max.bytes", INT, "1048576", "most bytes of a partition in a response"),
    key("mirror.socket.timeout.ms", INT, "30000", "longest wait for a fetch"),
    key("mirror.socket.receive.buffer.bytes", number(-1, INT_MAX), "65536", "receive buffer"),
    key("mirror.topic.properties.exclude", KeyType::List, "", "topic configs that stay behind"),
    key("mirror.topics.include", KeyType::List, "", "patterns of topics to mirror when seen"),
    key("mirror.topics.exclude", KeyType::List, "__.*", "patterns of topics not to; they win"),
    key("mirror.groups.include", KeyType::List, ".*", "patterns of groups to copy offsets of"),
    key("mirror.groups.exclude", KeyType::List, "", "patterns of groups not to; they win"),
    key("mirror.acls.include", KeyType::List, "*", "rules of ACLs to copy"),
    key("security.protocol", PROTOCOLS, "PLAINTEXT", "how connections are protected"),
    key("security.providers", KeyType::Text, "", "as in Kafka's clients"),
    key("sasl.mechanism", KeyType::Text, "PLAIN", "how this mirror proves who it is"),
    key("sasl.jaas.config", KeyType::Text, "", "with which secret"),
    key("sasl.kerberos.service.name", KeyType::Text, "", "as in Kafka's clients"),
    key("sasl.login.callback.handler.class", KeyType::Text, "", "as in Kafka's clients"),
    key("sasl.oauthbearer.token.endpoint.url", KeyType::Text, "", "as in Kafka's clients"),
    key(
        "sasl.oauthbearer.client.credentials.client.id",
        KeyType::Text,
        "",
        "as in Kafka's clients",
    ),
    key(
        "sasl.oauthbearer.client.credentials.client.secret",
        KeyType::Text,
        "",
        "as in Kafka's clients",
    ),
    key("sasl.oauthbearer.scope.claim.name", KeyType::Text, "scope", "as in Kafka's clients"),
    key("ssl.protocol", KeyType::Text, "TLSv1.3", "as in Kafka's clients"),
    key("ssl.enabled.protocols", KeyType::List, "TLSv1.2,TLSv1.3", "as in Kafka's clients"),
    key("ssl.cipher.suites", KeyType::List, "", "as in Kafka's clients"),
    key("ssl.endpoint.identification.algorithm", KeyType::Text, "https", "empty: names unchecked"),
    key("ssl.truststore.type", KeyType::Text, "PEM", "as in Kafka's clients"),
    key("ssl.truststore.location", KeyType::Text, "", "as in Kafka's clients"),
    key("ssl.truststore.password", KeyType::Text, "", "as in Kafka's clients"),
    key("ssl.truststore.certificates", KeyType::Text, "", "as in Kafka's clients"),
    key("ssl.keystore.type", KeyType::Text, "PEM", "as in Kafka's clients"),
    key("ssl.keystore.location", KeyType::Text, "", "as in Kafka's clients"),
    key("ssl.keystore.password", KeyType::Text, "", "as in Kafka's clients"),
    key("ssl.keystore.key", KeyType::Text, "", "as in Kafka's clients"),
    key("ssl.keystore.certificate.chain", KeyType::Text, "", "as in Kafka's clients"),
    key("ssl.key.password", KeyType::Text, "", "as in Kafka's clients"),
];

const PROTOCOLS: KeyType = KeyType::OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]);

/// Keys of a topic. All of Kafka's are kept, so that a broker that takes the log dir over finds
/// what the source had.
pub const TOPIC_KEYS: &[Key] = &[
    key("cleanup.policy", KeyType::List, "delete", "delete, compact, or both"),
    key("compression.type", COMPRESSIONS, "producer", "as in Kafka"),
    key("compression.gzip.level", number(-1, 9), "-1", "as in Kafka"),
    key("compression.lz4.level", number(1, 17), "9", "as in Kafka"),
    key("compression.zstd.level", number(-131_072, 22), "3", "as in Kafka"),
    key("delete.retention.ms", MILLIS, "86400000", "how long a tombstone stays"),
    key("file.delete.delay.ms", MILLIS, "60000", "wait before a file is removed"),
    key("flush.messages", number(1, LONG_MAX), "9223372036854775807", "as in Kafka"),
    key("flush.ms", MILLIS, "9223372036854775807", "as in Kafka"),
    key("follower.replication.throttled.replicas", KeyType::List, "", "as in Kafka"),
    key("index.interval.bytes", COUNT, "4096", "bytes between entries of an index"),
    key("leader.replication.throttled.replicas", KeyType::List, "", "as in Kafka"),
    key("local.retention.bytes", number(-2, LONG_MAX), "-2", "as in Kafka"),
    key("local.retention.ms", number(-2, LONG_MAX), "-2", "as in Kafka"),
    key("max.compaction.lag.ms", number(1, LONG_MAX), "9223372036854775807", "as in Kafka"),
    key("max.message.bytes", COUNT, "1048588", "largest batch"),
    key("message.timestamp.after.max.ms", MILLIS, "3600000", "as in Kafka"),
    key("message.timestamp.before.max.ms", MILLIS, "9223372036854775807", "as in Kafka"),
    key("message.timestamp.type", TIMESTAMPS, "CreateTime", "as in Kafka"),
    key("min.cleanable.dirty.ratio", KeyType::Text, "0.5", "as in Kafka"),
    key("min.compaction.lag.ms", MILLIS, "0", "as in Kafka"),
    key("min.insync.replicas", INT, "1", "as in Kafka"),
    key("preallocate", KeyType::Boolean, "false", "as in Kafka"),
    key("remote.log.copy.disable", KeyType::Boolean, "false", "as in Kafka"),
    key("remote.log.delete.on.disable", KeyType::Boolean, "false", "as in Kafka"),
    key(REMOTE_STORAGE, KeyType::Boolean, "false", "tiered storage, which is not to be had here"),
    key("retention.bytes", LIMIT, "-1", "most bytes of a partition; -1 for no limit"),
    key("retention.ms", LIMIT, "604800000", "how long records stay; -1 for ever"),
    key("segment.bytes", INT, "1073741824", "largest segment"),
    key("segment.index.bytes", number(4, INT_MAX), "10485760", "largest index"),
    key("segment.jitter.ms", MILLIS, "0", "as in Kafka"),
    key("segment.ms", number(1, LONG_MAX), "604800000", "oldest active segment"),
    key("unclean.leader.election.enable", KeyType::Boolean, "false", "as in Kafka"),
    key(
        "mirror.support.unclean.leader.election",
        KeyType::Boolean,
        "false",
        "whether divergence met while mirroring is cut away",
    ),
    key(
        "mirror.replication.throttled.replicas",
        KeyType::List,
        "",
        "partitions that mirror.replication.throttled.rate holds for: partition:broker, or *",
    ),
];

const COMPRESSIONS: KeyType =
    KeyType::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]);
const TIMESTAMPS: KeyType = KeyType::OneOf(&["CreateTime", "LogAppendTime"]);

/// Keys of a broker.
pub const BROKER_KEYS: &[Key] = &[
    key("mirror.num.replica.fetchers", INT, "1", "connections to each source broker"),
    key("mirror.metadata.refresh.interval.ms", MILLIS, "30000", "time between looks at sources"),
    key(
        "mirror.replication.throttled.rate",
        MILLIS,
        "9223372036854775807",
        "bytes per second of throttled partitions",
    ),
    key("mirror.fetch.wait.max.ms", COUNT, "1000", "default of the mirrors' own"),
    key("mirror.fetch.backoff.ms", MILLIS, "1000", "default of the mirrors' own"),
    key("mirror.fetch.min.bytes", COUNT, "1", "default of the mirrors' own"),
    key("mirror.fetch.response.max.bytes", INT, "10485760", "default of the mirrors' own"),
    key("mirror.fetch.max.bytes", INT, "1048576", "default of the mirrors' own"),
    key("mirror.socket.timeout.ms", INT, "30000", "default of the mirrors' own"),
    key(
        "mirror.socket.receive.buffer.bytes",
        number(-1, INT_MAX),
        "65536",
        "default of the mirrors' own",
    ),
];

/// The keys of a kind of resource; none for one that has no configs here.
#[must_use]
pub fn keys_of(kind: ResourceType) -> &'static [Key] {
    match kind {
        ResourceType::TOPIC => TOPIC_KEYS,
        ResourceType::BROKER => BROKER_KEYS,
        ResourceType::MIRROR => MIRROR_KEYS,
        _ => &[],
    }
}

/// The key of a name.
pub(super) fn find(kind: ResourceType, name: &str) -> Result<&'static Key, Refusal> {
    if kind == ResourceType::TOPIC && name == MIRROR_NAME {
        let message = "mirror.name is internal: start, stop, pause or resume the topic instead";
        return Err(Refusal::new(code::INVALID_CONFIG, message));
    }
    let keys = keys_of(kind);
    if let Some(key) = keys.iter().find(|key| key.name == name) {
        return Ok(key);
    }
    let advice = nearest(name, keys.iter().map(|key| key.name))
        .map(|key| format!("; did you mean {key}?"))
        .unwrap_or_default();
    let message = format!("unknown key {} of a {kind}{advice}", shown(name));
    Err(Refusal::new(code::INVALID_CONFIG, message))
}

/// Whether a key takes a value. One that is a secret takes any text, so none is shown.
pub(super) fn check_value(key: &Key, value: &str) -> Result<(), Refusal> {
    let is_legal = match key.values {
        KeyType::Text | KeyType::List => true,
        KeyType::Boolean => matches!(value, "true" | "false"),
        KeyType::OneOf(words) => words.contains(&value),
        KeyType::Number { min, max } => {
            value.parse::<i64>().is_ok_and(|number| (min..=max).contains(&number))
        }
    };
    if key.name == REMOTE_STORAGE && value == "true" {
        let message = "remote.storage.enable stays false: this host has no tiered storage, and \
                       keeps all of a copy on its own disks, whatever the source does";
        return Err(Refusal::new(code::INVALID_CONFIG, message));
    }
    if is_legal {
        return Ok(());
    }
    let message = format!("{} takes {}, not {:?}", key.name, key.values.range(), shown(value));
    Err(Refusal::new(code::INVALID_CONFIG, message))
}

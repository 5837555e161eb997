//! Keys of a host's configuration file, beside those of [`super::KEYS`] that hold for it.

use super::key::{INT_MAX, KEYS, Key, KeyType, LONG_MAX, number, other};

/// Keys of [`KEYS`] that belong to one mirror and not to the host.
const NOT_OF_A_HOST: [&str; 3] = ["bootstrap.servers", "client.id", "security.protocol"];

/// Keys that a host has beside those of [`KEYS`].
pub const SERVER_KEYS: &[Key] = &[
    other("node.id", KeyType::Text, "", "number of this host in its cluster, from 0 on"),
    other(
        "listeners",
        KeyType::List,
        "PLAINTEXT://:9092",
        "where clients connect to, PLAINTEXT://HOST:PORT; one listener",
    ),
    other(
        "advertised.listeners",
        KeyType::List,
        "",
        "what clients are told to connect to, PLAINTEXT://HOST:PORT; default: listeners",
    ),
    other("log.dirs", KeyType::List, "", "directory of the copy; one directory"),
    other(
        "cluster.id",
        KeyType::Text,
        "",
        "identity of the cluster that this host makes up; default: a new one at the first start",
    ),
    other(
        "metrics.listener",
        KeyType::Text,
        "",
        "HOST:PORT where metrics and health are served over HTTP; default: nowhere",
    ),
    number(
        "metrics.partitions.max",
        0,
        2_000,
        "1000",
        "partitions with metrics of their own; of more there are only sums, and the worst",
    ),
    number("mirror.shards", 1, 1_024, "", "threads that copy; default: one a core, less one"),
    number("num.network.threads", 1, 256, "1", "threads that serve clients"),
    number(
        "max.connections",
        1,
        INT_MAX,
        "1024",
        "connections of clients to each of these threads; more are closed at once",
    ),
    number(
        "max.connections.per.ip",
        1,
        INT_MAX,
        "2147483647",
        "connections of clients from one address; more are closed at once",
    ),
    number(
        "queued.max.requests",
        1,
        INT_MAX,
        "500",
        "requests that wait for the control thread; with so many, connections are not read",
    ),
    number(
        "socket.request.max.bytes",
        1,
        INT_MAX,
        "104857600",
        "longest request of a client, in bytes; a longer one ends its connection",
    ),
    number(
        "connections.max.idle.ms",
        1,
        LONG_MAX,
        "600000",
        "silence of a client, in milliseconds, that ends its connection",
    ),
    number(
        "socket.send.buffer.bytes",
        -1,
        INT_MAX,
        "102400",
        "send buffer of a socket to a client; -1 leaves it to the kernel, which adapts it",
    ),
    number(
        "socket.receive.buffer.bytes",
        -1,
        INT_MAX,
        "102400",
        "receive buffer of a socket to a client; -1 leaves it to the kernel, which adapts it",
    ),
    number(
        "fetch.max.bytes",
        1_024,
        INT_MAX,
        "57671680",
        "bytes of one answer to a consumer; its first batch may be larger",
    ),
    number(
        "mirror.state.topic.num.partitions",
        1,
        10_000,
        "50",
        "partitions of __mirror_state; fixed at the first start",
    ),
    number(
        "mirror.state.topic.replication.factor",
        1,
        1,
        "1",
        "replicas of __mirror_state: this host is the only one",
    ),
    number(
        "mirror.failed.retry.initial.backoff.ms",
        1,
        LONG_MAX,
        "1000",
        "half of the first wait before a failed partition is tried again, in milliseconds",
    ),
    number(
        "mirror.failed.retry.max.backoff.ms",
        1,
        LONG_MAX,
        "300000",
        "longest wait before a failed partition is tried again, in milliseconds",
    ),
    number(
        "mirror.failed.retry.max.attempts",
        0,
        32_767,
        "10",
        "failures after which a partition waits for an operator; 0 for at once",
    ),
    number(
        "mirror.socket.timeout.ms",
        1,
        INT_MAX,
        "30000",
        "longest wait for an answer to a fetch, in milliseconds; a mirror may set its own",
    ),
    number(
        "mirror.socket.receive.buffer.bytes",
        -1,
        INT_MAX,
        "-1",
        "receive buffer of a socket that fetches; -1 leaves it to the kernel; a mirror may set \
         its own",
    ),
    other(
        "unstable.api.versions.enable",
        KeyType::Boolean,
        "false",
        "taken as KIP-1279 has it; the mirror APIs are served either way",
    ),
    other(
        "unstable.feature.versions.enable",
        KeyType::Boolean,
        "false",
        "taken as KIP-1279 has it; mirror.version is 1 either way",
    ),
];

/// Keys of Kafka's that have no meaning for a host, with the reason.
pub(super) const MEANINGLESS: [(&str, &str); 4] = [
    ("log.dir", "log.dirs says where the copy is"),
    ("mirror.admin.listener.name", "this host needs no client to itself"),
    ("sasl.mechanism.mirror.admin.protocol", "this host needs no client to itself"),
    ("process.roles", "this host is its own controller"),
];

/// Every key that the file may hold.
pub(super) fn known() -> impl Iterator<Item = &'static Key> {
    SERVER_KEYS.iter().chain(KEYS.iter().filter(|key| !NOT_OF_A_HOST.contains(&key.name)))
}

/// Whether the key is one of [`KEYS`].
pub(super) fn is_of_mirrors(name: &str) -> bool {
    KEYS.iter().any(|key| key.name == name)
}

/// Whether the key has the same meaning for one mirror, which may set its own value.
pub(super) fn is_default_of_mirrors(name: &str) -> bool {
    name.starts_with("mirror.socket.") || is_of_mirrors(name)
}

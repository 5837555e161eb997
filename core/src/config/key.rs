//! The table of keys: what a configuration file may hold, for parsing and for printing.

/// What values a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// `true` or `false`.
    Boolean,
    /// A whole number, both ends included.
    Number {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// Any text.
    Text,
    /// Texts, separated by commas.
    List,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl KeyType {
    /// The legal values in words.
    pub fn range(self) -> String {
        match self {
            Self::Boolean => "true or false".to_owned(),
            Self::Number { min, max } if min == max => min.to_string(),
            Self::Number { min, max: i64::MAX } => format!("a whole number from {min} on"),
            Self::Number { min, max } => format!("a whole number from {min} to {max}"),
            Self::Text => "a text".to_owned(),
            Self::List => "a list, separated by commas".to_owned(),
            Self::OneOf(words) => format!("one of {}", words.join(", ")),
        }
    }
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name as the file spells it.
    pub name: &'static str,
    /// Its values.
    pub values: KeyType,
    /// Value when it is not set; empty for none.
    pub default: &'static str,
    /// Meaning and unit.
    pub doc: &'static str,
}

pub(super) const INT_MAX: i64 = 2_147_483_647;
pub(super) const LONG_MAX: i64 = i64::MAX;

pub(super) const fn number(
    name: &'static str,
    min: i64,
    max: i64,
    default: &'static str,
    doc: &'static str,
) -> Key {
    Key { name, values: KeyType::Number { min, max }, default, doc }
}

pub(super) const fn other(
    name: &'static str,
    values: KeyType,
    default: &'static str,
    doc: &'static str,
) -> Key {
    Key { name, values, default, doc }
}

/// Every key that is known, in the order in which they are explained.
pub const KEYS: &[Key] = &[
    other(
        "bootstrap.servers",
        KeyType::List,
        "",
        "host:port of brokers of the source; more than one survives the loss of one",
    ),
    other(
        "client.id",
        KeyType::Text,
        "heliostat",
        "name that the source's quotas and logs know this mirror by",
    ),
    other(
        "security.protocol",
        KeyType::OneOf(&["PLAINTEXT"]),
        "PLAINTEXT",
        "how connections to the source are protected",
    ),
    number(
        "request.timeout.ms",
        1,
        INT_MAX,
        "30000",
        "longest wait for an answer of the source, in milliseconds",
    ),
    number(
        "socket.connection.setup.timeout.ms",
        1,
        LONG_MAX,
        "10000",
        "longest wait for a connection to the source, in milliseconds",
    ),
    number(
        "reconnect.backoff.ms",
        0,
        LONG_MAX,
        "50",
        "wait before the first new attempt to connect, in milliseconds; doubles from there",
    ),
    number(
        "reconnect.backoff.max.ms",
        0,
        LONG_MAX,
        "10000",
        "longest wait between attempts to connect, in milliseconds",
    ),
    number(
        "receive.buffer.bytes",
        -1,
        INT_MAX,
        "-1",
        "receive buffer of a socket to the source; -1 leaves it to the kernel, which adapts it",
    ),
    number(
        "send.buffer.bytes",
        -1,
        INT_MAX,
        "-1",
        "send buffer of a socket to the source; -1 leaves it to the kernel, which adapts it",
    ),
    number(
        "mirror.fetch.wait.max.ms",
        0,
        INT_MAX,
        "1000",
        "longest time that the source holds an empty answer back, in milliseconds",
    ),
    number(
        "mirror.fetch.backoff.ms",
        0,
        LONG_MAX,
        "1000",
        "wait before a partition is fetched again after an error of the source, in milliseconds",
    ),
    number("mirror.fetch.min.bytes", 0, INT_MAX, "1", "bytes from which on the source answers"),
    number(
        "mirror.fetch.linger.ms",
        0,
        1_000,
        "5",
        "least time between two questions of a connection that has caught up, in milliseconds",
    ),
    number(
        "mirror.fetch.response.max.bytes",
        1,
        INT_MAX,
        "57671680",
        "bytes of one answer; its first batch may be larger; a broker has a cap of its own",
    ),
    number(
        "mirror.fetch.max.bytes",
        1,
        INT_MAX,
        "8388608",
        "bytes of one partition in an answer; its first batch may be larger",
    ),
    number(
        "mirror.num.replica.fetchers",
        1,
        64,
        "2",
        "connections for fetching to each broker of the source, for each shard",
    ),
    number(
        "mirror.num.replica.fetchers.max",
        1,
        256,
        "128",
        "connections for fetching to each broker that a shard opens on a long path, while they \
         make it faster",
    ),
    number(
        "mirror.partition.stripes.max",
        1,
        256,
        "32",
        "of these, most that fetch one large partition together; 1 for none",
    ),
    number(
        "mirror.partition.stripe.bytes",
        4096,
        INT_MAX,
        "524288",
        "least bytes that such a connection asks for at once; they wait in its socket",
    ),
    number(
        "mirror.metadata.refresh.interval.ms",
        100,
        LONG_MAX,
        "30000",
        "time between two looks for new topics, partitions and leaders, in milliseconds",
    ),
    number(
        "mirror.replication.throttled.rate",
        0,
        LONG_MAX,
        "9223372036854775807",
        "bytes per second that throttled partitions take together; the default is no limit",
    ),
    other(
        "mirror.replication.throttled.replicas",
        KeyType::List,
        "*",
        "partitions that the rate holds for: * for all, or a list of topic and topic:partition",
    ),
    other(
        "mirror.gap.policy",
        KeyType::OneOf(&["continue", "stop"]),
        "continue",
        "what a partition does when the source no longer has what comes next; it is recorded",
    ),
    other(
        "mirror.support.unclean.leader.election",
        KeyType::Boolean,
        "false",
        "whether the copy is cut where the source lost records; otherwise the partition stops",
    ),
    number(
        "mirror.shard.memory.bytes",
        1 << 22,
        1 << 40,
        "67108864",
        "memory for data of one shard, in bytes",
    ),
    other(
        "append.direct",
        KeyType::OneOf(&["auto", "true", "false"]),
        "auto",
        "whether segment files are written past the page cache",
    ),
    number(
        "flush.bytes",
        1,
        LONG_MAX,
        "67108864",
        "bytes of a partition that may be lost in a crash and are then fetched again",
    ),
    number(
        "flush.ms",
        0,
        LONG_MAX,
        "1000",
        "age, in milliseconds, at which appended bytes are flushed",
    ),
    number(
        "num.recovery.threads.per.data.dir",
        1,
        64,
        "32",
        "threads that open and recover logs; new partitions wait for the disk, not the processor",
    ),
    number(
        "log.dir.free.min.bytes",
        0,
        LONG_MAX,
        "268435456",
        "free space below which nothing is fetched until there is room again",
    ),
    other(
        "check.crcs",
        KeyType::Boolean,
        "true",
        "whether batches are verified before they count; false is for measurements only",
    ),
    number("segment.bytes", 14, INT_MAX, "1073741824", "size at which a segment is closed"),
    number("segment.ms", 1, LONG_MAX, "604800000", "age at which a segment is closed"),
    number("segment.index.bytes", 24, INT_MAX, "10485760", "largest index of a segment"),
    number("index.interval.bytes", 0, INT_MAX, "4096", "bytes between two index entries"),
    number(
        "producer.id.expiration.ms",
        1,
        LONG_MAX,
        "86400000",
        "age at which an idle producer is forgotten",
    ),
];

//! Newtypes of the field's numbers, in Kafka's words with Kafka's meaning.
//!
//! Each kind of number has its own type, so that an offset is never taken for a
//! position and an epoch never for a broker. Conversions are named.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

/// Position of a record in a partition. What a value means (log start, log end,
/// high watermark) is said by the name of the variable that holds it: log end
/// offset and high watermark are exclusive, log start offset is inclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

impl Offset {
    /// First offset of every partition that has never been trimmed.
    pub const ZERO: Self = Self(0);
    /// Kafka's "no offset" on the wire.
    pub const NONE: Self = Self(-1);

    /// This offset moved by `delta` records; saturates at the ends of `i64`.
    #[must_use]
    pub fn plus(self, delta: i64) -> Self {
        Self(self.0.saturating_add(delta))
    }

    /// Records from `other` up to here, 0 if `other` is ahead.
    pub fn records_since(self, other: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(other.0)).unwrap_or(0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Epoch of a partition leader. −1 means unknown: batches of message formats
/// older than v2 carry it, and it enters no epoch cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderEpoch(pub i32);

impl LeaderEpoch {
    /// Kafka's "no epoch".
    pub const NONE: Self = Self(-1);

    /// `None` for the sentinel −1 (and any other negative value).
    pub fn known(self) -> Option<Self> {
        (self.0 >= 0).then_some(self)
    }
}

impl Default for LeaderEpoch {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Display for LeaderEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identity of a producer session; −1 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub i64);

impl ProducerId {
    /// A batch written without idempotence.
    pub const NONE: Self = Self(-1);

    /// Whether the batch belongs to an idempotent or transactional producer.
    pub fn is_some(self) -> bool {
        self.0 >= 0
    }
}

impl fmt::Display for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Epoch of a producer ID; −1 for none. 32767 is legal and the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerEpoch(pub i16);

impl fmt::Display for ProducerEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Milliseconds since the Unix epoch as a record carries it; −1 for none.
/// Producers may write anything, so neither order nor plausibility is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimestampMs(pub i64);

impl TimestampMs {
    /// Kafka's "no timestamp".
    pub const NONE: Self = Self(-1);
}

/// Identity of a topic, which survives neither deletion nor recreation.
/// All zeros: the source has no topic IDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub Uuid);

impl TopicId {
    /// The source gives no topic IDs (Kafka before 2.8, or an old inter-broker protocol).
    pub const NONE: Self = Self(Uuid::nil());

    /// `None` for the all-zero ID.
    pub fn known(self) -> Option<Self> {
        (!self.0.is_nil()).then_some(self)
    }
}

impl fmt::Display for TopicId {
    /// Kafka's spelling: base64url without padding, 22 characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let value = self.0.as_u128();
        // 128 bits are 21 groups of six and one of two, which is padded on the right.
        for group in 0..22_u32 {
            let six = if group == 21 { value << 4 } else { value >> (122 - 6 * group) } & 0x3f;
            let index = usize::try_from(six).unwrap_or(0);
            write!(f, "{}", char::from(ALPHABET[index]))?;
        }
        Ok(())
    }
}

/// Why a text is no topic ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a topic ID: want 22 characters of base64url, got {0:?}")]
pub struct TopicIdError(pub String);

impl std::str::FromStr for TopicId {
    type Err = TopicIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || TopicIdError(text.chars().take(64).collect());
        if text.len() != 22 {
            return Err(refused());
        }
        let mut value = 0_u128;
        for (index, byte) in text.bytes().enumerate() {
            let six = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'-' => 62,
                b'_' => 63,
                _ => return Err(refused()),
            };
            value = if index == 21 {
                (value << 2) | u128::from(six >> 4)
            } else {
                (value << 6) | u128::from(six)
            };
        }
        Ok(Self(Uuid::from_u128(value)))
    }
}

/// A partition by name and index: how operators, directories and old protocol
/// versions name it. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition index, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// Partition `partition` of `topic`.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }

    /// Reads `topic-partition` back, as Kafka names its directories: the last
    /// dash divides. `None` if there is no index behind it.
    pub fn from_dir_name(name: &str) -> Option<Self> {
        let (topic, index) = name.rsplit_once('-')?;
        let digits = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
        (digits && !topic.is_empty()).then(|| index.parse().ok())?.map(|p| Self::new(topic, p))
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Node ID of a broker; −1 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerId(pub i32);

impl BrokerId {
    /// No broker: a partition without a leader.
    pub const NONE: Self = Self(-1);
}

impl fmt::Display for BrokerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Index of an engine shard, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_id_is_spelled_as_kafka_spells_it() {
        // Kafka's own well-known metadata topic ID, 16 bytes that end in 1.
        let metadata = TopicId(Uuid::from_u128(1));
        assert_eq!(metadata.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!("AAAAAAAAAAAAAAAAAAAAAQ".parse(), Ok(metadata));
    }

    proptest::proptest! {
        #[test]
        fn topic_id_round_trips(value: u128) {
            let id = TopicId(Uuid::from_u128(value));
            proptest::prop_assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn directory_names_divide_at_the_last_dash() {
        assert_eq!(TopicPartition::from_dir_name("a-b-12"), Some(TopicPartition::new("a-b", 12)));
        for not in ["a", "a-", "-3", "a-b", "a-1x", "a-99999999999"] {
            assert_eq!(TopicPartition::from_dir_name(not), None, "{not}");
        }
    }
}

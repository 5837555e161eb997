//! Which partition of `__mirror_state` has a key.

use crate::types::TopicId;

/// Key of a mirrored partition, as it is hashed: names may hold colons, so it is read from the
/// right.
#[must_use]
pub fn key(mirror: &str, topic: TopicId, partition: i32) -> String {
    format!("{mirror}:{topic}:{partition}")
}

/// The partition of `__mirror_state` for `key`, of `partitions`: Java's hash of the string, and
/// Kafka's absolute value, which takes the least integer for 0.
#[must_use]
pub fn coordinator_partition(key: &str, partitions: u16) -> u16 {
    let hash = key
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    let positive = hash.checked_abs().unwrap_or(0).unsigned_abs();
    u16::try_from(positive % u32::from(partitions.max(1))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// `"polygenelubricants".hashCode()` is the least integer; `"hello"` is 99162322, `"dc-west"`
    /// with a sign: values of Java's specification of the hash.
    #[test]
    fn hashes_are_javas() {
        assert_eq!(coordinator_partition("polygenelubricants", 50), 0);
        assert_eq!(coordinator_partition("hello", 50), 22);
        assert_eq!(coordinator_partition("", 50), 0);
        // U+1F600 counts as two units: 0xD83D * 31 + 0xDE00 = 1772899.
        assert_eq!(coordinator_partition("\u{1F600}", 1_000), 899);
        // -1524582912 by hand: "zzzzzz" overflows.
        let hash = "zzzzzz".bytes().fold(0_i64, |hash, byte| hash * 31 + i64::from(byte));
        let wrapped = i32::try_from((hash + (1 << 31)).rem_euclid(1 << 32) - (1 << 31)).unwrap();
        let want = u16::try_from(wrapped.unsigned_abs() % 50).unwrap();
        assert_eq!(coordinator_partition("zzzzzz", 50), want);
    }

    #[test]
    fn keys_have_kafkas_ids() {
        let id = TopicId(Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        assert_eq!(key("a:b", id, 7), "a:b:ASNFZ4mrze8BI0VniavN7w:7");
        assert_eq!(key("m", TopicId(Uuid::nil()), 0), "m:AAAAAAAAAAAAAAAAAAAAAA:0");
    }
}

//! Messages of formats 0 and 1, and their compressed wrappers.
//!
//! ```text
//! offset 8 | size 4 | CRC-32 4 | magic 1 | attributes 1 | [timestamp 8, magic 1] |
//! key length 4, key | value length 4, value
//! ```

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyMessage {
    /// Absolute offset; inside a wrapper of magic 1, relative to the wrapper's first.
    pub offset: i64,
    /// 0 or 1.
    pub magic: i8,
    /// Codec in the low three bits; bit 3 is the timestamp type of magic 1.
    pub attributes: i8,
    /// Milliseconds since 1970; magic 0 has none.
    pub timestamp_ms: i64,
    /// Key; `None` is null.
    pub key: Option<Vec<u8>>,
    /// Value; of a wrapper, the compressed message set.
    pub value: Option<Vec<u8>>,
    /// CRC field; `None` is the true one.
    pub crc: Option<u32>,
}

impl LegacyMessage {
    /// A plain message.
    pub fn plain(magic: i8, offset: i64, value: &[u8]) -> Self {
        Self {
            offset,
            magic,
            attributes: 0,
            timestamp_ms: 1_400_000_000_000,
            key: None,
            value: Some(value.to_vec()),
            crc: None,
        }
    }

    /// A wrapper of `inner`, compressed by `compress`, whose codec bits are `codec`. Its offset is
    /// that of the last message. With magic 1 the inner offsets become relative, as the format
    /// wants.
    pub fn wrapper(inner: &[Self], codec: i8, compress: impl FnOnce(&[u8]) -> Vec<u8>) -> Self {
        let (magic, first) = inner.first().map_or((1, 0), |m| (m.magic, m.offset));
        let set: Vec<u8> = inner
            .iter()
            .flat_map(|message| {
                let mut message = message.clone();
                if magic == 1 {
                    message.offset -= first;
                }
                message.encode()
            })
            .collect();
        Self {
            attributes: codec,
            timestamp_ms: inner.iter().map(|m| m.timestamp_ms).max().unwrap_or(-1),
            ..Self::plain(magic, inner.last().map_or(0, |m| m.offset), &compress(&set))
        }
    }

    /// The message as it stands in a log.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(self.magic.to_be_bytes());
        body.extend(self.attributes.to_be_bytes());
        if self.magic > 0 {
            body.extend(self.timestamp_ms.to_be_bytes());
        }
        for part in [&self.key, &self.value] {
            match part {
                None => body.extend((-1_i32).to_be_bytes()),
                Some(bytes) => {
                    body.extend(i32::try_from(bytes.len()).unwrap_or(i32::MAX).to_be_bytes());
                    body.extend(bytes);
                }
            }
        }
        let crc = self.crc.unwrap_or_else(|| crc32fast::hash(&body));
        let mut message = Vec::with_capacity(body.len() + 16);
        message.extend(self.offset.to_be_bytes());
        message.extend(i32::try_from(body.len() + 4).unwrap_or(i32::MAX).to_be_bytes());
        message.extend(crc.to_be_bytes());
        message.extend(body);
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_crc_cover_what_the_format_says() {
        let v0 = LegacyMessage::plain(0, 3, b"abc").encode();
        let v1 = LegacyMessage::plain(1, 3, b"abc").encode();

        assert_eq!(v0.len(), 8 + 4 + 4 + 2 + 4 + 4 + 3);
        assert_eq!(v1.len(), v0.len() + 8);
        assert_eq!(v0[8..12], u32::try_from(v0.len() - 12).unwrap().to_be_bytes());
        assert_eq!(v0[12..16], crc32fast::hash(&v0[16..]).to_be_bytes());
    }

    #[test]
    fn a_wrapper_of_magic_1_has_relative_offsets_inside_and_the_last_outside() {
        let inner = [7, 8, 9].map(|offset| LegacyMessage::plain(1, offset, b"x"));

        let wrapper = LegacyMessage::wrapper(&inner, 1, <[u8]>::to_vec);

        assert_eq!((wrapper.offset, wrapper.attributes), (9, 1));
        let set = wrapper.value.unwrap();
        assert_eq!(set[0..8], 0_i64.to_be_bytes());
        let one = inner[0].encode().len();
        assert_eq!(set[2 * one..2 * one + 8], 2_i64.to_be_bytes());
    }
}

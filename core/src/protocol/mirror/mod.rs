//! The APIs of KIP-1279, version 0, both directions: a host serves them, an admin client asks.
//!
//! On the wire they are those of the KIP's first generation, byte for byte. What was added since,
//! there or here, is a tagged field numbered from 1000 in each struct, so that neither side needs
//! the other's additions; `TAGS.md` lists them. kafka-protocol's codecs have none of these APIs.
//!
//! CreateTopics has a version more with the KIP, 8, which is here too.

mod create_topics;
pub(crate) mod field;
pub mod json;
mod messages;

pub use create_topics::{
    CREATE_TOPICS_KEY, CREATE_TOPICS_VERSION_MIRROR_INFO, CreatableReplicaAssignment,
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse, CreatedTopic,
    CreatedTopicConfig, MirrorInfo,
};
pub use messages::*;

pub use field::Field;

use super::Api;
use super::wire::{DecodeError, Reader};

/// A request body of these APIs.
pub trait MirrorRequest: Field {
    /// What it is called.
    const API: Api;
    /// Its API key.
    const API_KEY: i16;
    /// What answers it.
    type Response: Field;
}

/// The body's bytes, without a header.
#[must_use]
pub fn encode<M: Field>(message: &M) -> Vec<u8> {
    let mut out = Vec::new();
    message.write(&mut out);
    out
}

/// A whole body, without a header.
///
/// # Errors
/// [`DecodeError`], naming the field; also for bytes behind the last one.
pub fn decode<M: Field>(bytes: &[u8]) -> Result<M, DecodeError> {
    let mut reader = Reader::new(bytes);
    let message = M::read(&mut reader, "body")?;
    match reader.left() {
        0 => Ok(message),
        left => Err(DecodeError::FrameNotConsumed { left }),
    }
}

#[cfg(test)]
mod tests;

//! Actions.
#![deny(unsafe_code)]

pub mod disk;
pub mod ring;
pub mod shard;

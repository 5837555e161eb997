//! Actions.
#![deny(unsafe_code)]

pub mod disk;
pub mod preflight;
pub mod ring;
pub mod shard;

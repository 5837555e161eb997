//! Configuration of a mirror: Java properties with Kafka's names where Kafka has one.

mod key;
mod mirror_config;
mod nearest;
mod throttled;

pub use key::{KEYS, Key, KeyType};
pub use mirror_config::{
    AppendDirect, ConfigError, DEFAULT_SHARD_MEMORY_BYTES, FetchConfig, GapPolicy, MirrorConfig,
};
pub use throttled::ThrottledPartitions;

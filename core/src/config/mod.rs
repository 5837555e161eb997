//! Configuration of a mirror, of a host, of a mirror that a host keeps, and of an admin client:
//! Java properties with Kafka's names where Kafka has one.

mod admin_config;
mod key;
mod listen;
mod mirror_config;
mod mirror_level;
mod nearest;
mod server_config;
mod server_keys;
mod throttled;
mod values;

pub use admin_config::{ADMIN_KEYS, AdminConfig};
pub use key::{KEYS, Key, KeyType};
pub use listen::ListenAddress;
pub use mirror_config::{
    AppendDirect, ConfigError, DEFAULT_SHARD_MEMORY_BYTES, FetchConfig, GapPolicy, MirrorConfig,
};
pub use mirror_level::{
    ConfigChange, MIRROR_LEVEL_KEYS, MIRROR_SOURCE_CLUSTER_ID, MirrorLevelConfig,
};
pub(crate) use nearest::nearest;
pub use server_config::{ConnectionLimits, ServerConfig};
pub use server_keys::SERVER_KEYS;
pub use throttled::ThrottledPartitions;

//! Records of the metadata log, in types and versions that a released Kafka reads.
//!
//! A record's value is a frame: its version (1), the record's type and the version of that, each
//! an unsigned varint, then a flexible message. There is no key.
//!
//! | type | name | version |
//! |---|---|---|
//! | 0 | RegisterBrokerRecord | 3 |
//! | 1 | UnregisterBrokerRecord | 0 |
//! | 2 | TopicRecord | 0 |
//! | 3 | PartitionRecord | 1 |
//! | 4 | ConfigRecord | 0 |
//! | 9 | RemoveTopicRecord | 0 |
//! | 12 | FeatureLevelRecord | 0 |
//! | 20 | NoOpRecord | 0 |
//! | 23 | BeginTransactionRecord | 0 |
//! | 24 | EndTransactionRecord | 0 |
//! | 25 | AbortTransactionRecord | 0 |
//!
//! Each is read in the version in which it is written and in no other: what is passed over would
//! be lost with the next snapshot, so whoever finds another one is told.

use std::fmt;

use uuid::Uuid;

use crate::protocol::DecodeError;
use crate::protocol::mirror::field::{Field, structs};
use crate::protocol::mirror::json::{Json, JsonObject};
use crate::protocol::wire::Reader;
use crate::records::varint::put_unsigned;
use crate::types::TopicId;

/// Version of the frame around each record.
const FRAME_VERSION: u32 = 1;

structs! {
    /// A broker that is there, and how it is reached.
    struct RegisterBrokerRecord {
        /// Its node ID.
        broker_id: i32 = "BrokerId",
        /// Whether it comes from ZooKeeper: never here.
        is_migrating_zk_broker: bool = "IsMigratingZkBroker",
        /// Differs with each start of its process.
        incarnation_id: Uuid = "IncarnationId",
        /// Offset of the registration in the metadata log: rises with each one.
        broker_epoch: i64 = "BrokerEpoch",
        /// Its listeners.
        end_points: Vec<BrokerEndpoint> = "EndPoints",
        /// What it supports.
        features: Vec<BrokerFeature> = "Features",
        /// Where it stands.
        rack: Option<String> = "Rack",
        /// Whether it leads nothing for now.
        fenced: bool = "Fenced" or true,
        /// Whether it is about to leave.
        in_controlled_shutdown: bool = "InControlledShutdown",
        @ 0
        /// IDs of its log dirs.
        log_dirs: Vec<Uuid> = "LogDirs" or Vec::new(),
    }

    /// A listener.
    struct BrokerEndpoint {
        /// Its name.
        name: String = "Name",
        /// Host that clients connect to.
        host: String = "Host",
        /// Port that clients connect to.
        port: u16 = "Port",
        /// 0 for PLAINTEXT, 1 for SSL, 2 for SASL_PLAINTEXT, 3 for SASL_SSL.
        security_protocol: i16 = "SecurityProtocol",
    }

    /// Levels of a feature that a broker supports, both ends included.
    struct BrokerFeature {
        /// Name of the feature.
        name: String = "Name",
        /// Lowest level.
        min_supported_version: i16 = "MinSupportedVersion",
        /// Highest level.
        max_supported_version: i16 = "MaxSupportedVersion",
    }

    /// A broker that has left for good.
    struct UnregisterBrokerRecord {
        /// Its node ID.
        broker_id: i32 = "BrokerId",
        /// That of its registration.
        broker_epoch: i64 = "BrokerEpoch",
    }

    /// A topic; its partitions follow.
    struct TopicRecord {
        /// Its name.
        name: String = "Name",
        /// Its ID.
        topic_id: TopicId = "TopicId",
    }

    /// A partition, new or as it is from now on: all of it, with the absolute leader epoch.
    struct PartitionRecord {
        /// Its index.
        partition_id: i32 = "PartitionId" or -1,
        /// Its topic.
        topic_id: TopicId = "TopicId",
        /// Node IDs of its replicas, the preferred leader first.
        replicas: Vec<i32> = "Replicas",
        /// Those in sync.
        isr: Vec<i32> = "Isr",
        /// Those that a reassignment removes.
        removing_replicas: Vec<i32> = "RemovingReplicas",
        /// Those that a reassignment adds.
        adding_replicas: Vec<i32> = "AddingReplicas",
        /// Node ID of the leader; -1 for none.
        leader: i32 = "Leader" or -1,
        /// Epoch of the leader.
        leader_epoch: i32 = "LeaderEpoch" or -1,
        /// Counts the changes of the partition.
        partition_epoch: i32 = "PartitionEpoch" or -1,
        /// Log dir of each replica; zeros for not chosen yet.
        directories: Vec<Uuid> = "Directories",
        @ 0
        /// 1 after an unclean election, until the leader has recovered.
        leader_recovery_state: i8 = "LeaderRecoveryState" or 0,
    }

    /// A config of a resource.
    struct ConfigRecord {
        /// 2 for a topic, 4 for a broker, 64 for a mirror.
        resource_type: i8 = "ResourceType",
        /// Name of the topic or mirror, number of the broker, empty for all brokers.
        resource_name: String = "ResourceName",
        /// The key.
        name: String = "Name",
        /// The value; null removes it.
        value: Option<String> = "Value",
    }

    /// A topic that is gone, with its partitions and configs.
    struct RemoveTopicRecord {
        /// Its ID.
        topic_id: TopicId = "TopicId",
    }

    /// Level of a feature of the cluster.
    struct FeatureLevelRecord {
        /// Name of the feature.
        name: String = "Name",
        /// Its level; 0 turns it off.
        feature_level: i16 = "FeatureLevel",
    }

    /// Says nothing.
    struct NoOpRecord {}

    /// What follows counts only once the transaction has ended.
    struct BeginTransactionRecord {
        @ 0
        /// What it is about.
        name: Option<String> = "Name" or None,
    }

    /// All since the begin of the transaction counts.
    struct EndTransactionRecord {}

    /// Nothing since the begin of the transaction counts.
    struct AbortTransactionRecord {
        @ 0
        /// Why.
        reason: Option<String> = "Reason" or None,
    }
}

/// Why bytes are no record of this log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataRecordError {
    /// Another frame.
    #[error("a record in a frame of version {got}; 1 is known")]
    FrameVersion {
        /// Its version.
        got: u32,
    },
    /// A type that this release does not have.
    #[error(
        "a record of type {api_key}, version {version}, which this release does not know; \
         start the release that wrote it"
    )]
    UnknownType {
        /// Its type.
        api_key: u32,
        /// Its version.
        version: u32,
    },
    /// A version that this release does not have.
    #[error(
        "a {name} (type {api_key}) of version {version}, this release knows version {known}; \
         start the release that wrote it"
    )]
    UnknownVersion {
        /// Name of the type.
        name: &'static str,
        /// Its type.
        api_key: u32,
        /// Its version.
        version: u32,
        /// The version that is known.
        known: u32,
    },
    /// The bytes do not follow the schema.
    #[error("a {name}: {source}")]
    Field {
        /// Name of the type, or of the frame.
        name: &'static str,
        /// What is wrong.
        source: DecodeError,
    },
}

macro_rules! metadata_records {
    ($($key:literal $version:literal $name:ident($body:ident),)*) => {
        /// One record.
        #[derive(Clone, PartialEq, Eq)]
        pub enum MetadataRecord {
            $(
                #[doc = concat!("Type ", $key, ".")]
                $name($body),
            )*
        }

        $(impl From<$body> for MetadataRecord {
            fn from(body: $body) -> Self {
                Self::$name(body)
            }
        })*

        impl MetadataRecord {
            /// Kafka's name of its type.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => stringify!($body),)*
                }
            }

            /// As `kafka-dump-log.sh --cluster-metadata-decoder` prints it, but for the values of
            /// configs that are secret.
            #[must_use]
            pub fn to_json(&self) -> String {
                let mut out = String::new();
                let mut object = JsonObject::new(&mut out)
                    .field("Type", &enum_name(self.name()))
                    .field("Version", &self.version());
                let data = object.name("Data");
                match self {
                    Self::Config(config) if is_sensitive(&config.name) => {
                        let value = config.value.as_ref().map(|_| "[hidden]".to_owned());
                        ConfigRecord { value, ..config.clone() }.json(data);
                    }
                    $(Self::$name(body) => body.json(data),)*
                }
                object.end();
                out
            }

            /// Version of its schema.
            #[must_use]
            pub fn version(&self) -> i16 {
                match self {
                    $(Self::$name(_) => $version,)*
                }
            }

            /// The value of the record, frame included.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                let mut out = Vec::new();
                put_unsigned(&mut out, FRAME_VERSION.into());
                match self {
                    $(Self::$name(body) => {
                        put_unsigned(&mut out, $key);
                        put_unsigned(&mut out, $version);
                        body.write(&mut out);
                    })*
                }
                out
            }

            /// The record of a value.
            ///
            /// # Errors
            /// [`MetadataRecordError`], naming type, version and field.
            pub fn decode(value: &[u8]) -> Result<Self, MetadataRecordError> {
                let mut reader = Reader::new(value);
                let (api_key, version) = read_frame(&mut reader)?;
                match api_key {
                    $($key => {
                        let name = stringify!($body);
                        if version != $version {
                            let known = $version;
                            let error = MetadataRecordError::UnknownVersion {
                                name, api_key, version, known,
                            };
                            return Err(error);
                        }
                        read_body(&mut reader, name).map(Self::$name)
                    })*
                    _ => Err(MetadataRecordError::UnknownType { api_key, version }),
                }
            }
        }

        impl fmt::Debug for MetadataRecord {
            /// Without the values of configs that are secret.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::Config(config) if is_sensitive(&config.name) => {
                        let value = config.value.as_ref().map(|_| "[hidden]".to_owned());
                        f.debug_tuple("Config").field(&ConfigRecord { value, ..config.clone() })
                            .finish()
                    }
                    $(Self::$name(body) => {
                        f.debug_tuple(stringify!($name)).field(body).finish()
                    })*
                }
            }
        }
    };
}

metadata_records! {
    0 3 RegisterBroker(RegisterBrokerRecord),
    1 0 UnregisterBroker(UnregisterBrokerRecord),
    2 0 Topic(TopicRecord),
    3 1 Partition(PartitionRecord),
    4 0 Config(ConfigRecord),
    9 0 RemoveTopic(RemoveTopicRecord),
    12 0 FeatureLevel(FeatureLevelRecord),
    20 0 NoOp(NoOpRecord),
    23 0 BeginTransaction(BeginTransactionRecord),
    24 0 EndTransaction(EndTransactionRecord),
    25 0 AbortTransaction(AbortTransactionRecord),
}

/// Whether a config's value is a secret, to be shown to nobody: passwords, private keys, JAAS
/// lines, with or without the prefix of a listener.
#[must_use]
pub fn is_sensitive(key: &str) -> bool {
    key.contains("password")
        || key.contains("passphrase")
        || key.ends_with("ssl.keystore.key")
        || key.ends_with("sasl.jaas.config")
        || key.ends_with(".secret")
}

/// Kafka's constant for the type: `TOPIC_RECORD`.
fn enum_name(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}

fn read_frame(reader: &mut Reader<'_>) -> Result<(u32, u32), MetadataRecordError> {
    let mut number = |field| {
        let read = reader.varint(field);
        read.map_err(|source| MetadataRecordError::Field { name: "record's frame", source })
    };
    let got = number("frame version")?;
    if got != FRAME_VERSION {
        return Err(MetadataRecordError::FrameVersion { got });
    }
    Ok((number("record type")?, number("record version")?))
}

fn read_body<B: Field>(
    reader: &mut Reader<'_>,
    name: &'static str,
) -> Result<B, MetadataRecordError> {
    let wrong = |source| MetadataRecordError::Field { name, source };
    let body = B::read(reader, name).map_err(wrong)?;
    match reader.left() {
        0 => Ok(body),
        left => Err(wrong(DecodeError::FrameNotConsumed { left })),
    }
}

#[cfg(test)]
mod tests;

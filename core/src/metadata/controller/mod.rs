//! What a controller decides, of the image alone: the records to write and the answer.
//!
//! Nothing is changed here. Who asks writes the records, all of them or none, and answers once
//! they are durable; a dry run takes the answer and drops the records. The wish of a topic is in
//! the metadata, the state that its partitions have reached is not: what depends on that is
//! checked by who asks.

mod answers;
mod cluster;
mod code;
mod configs;
mod decision;
mod keys;
mod members;
mod mirrors;
mod partitions;
mod patterns;
mod start;
mod topics;

pub use answers::{bump_response, list_mirrors, mirror_response, topics_response};
pub use cluster::{
    BrokerRegistration, FeatureUpdate, METADATA_VERSION_MIN, bootstrap, register_broker,
    update_feature,
};
pub use configs::{ConfigChange, ConfigOp, ConfigOpKind, ConfigResult, alter_configs};
pub use decision::{Decision, Named, Refusal, TopicResults, first_refusal};
pub use keys::{BROKER_KEYS, MIRROR_KEYS, SOURCE_CLUSTER_ID, TOPIC_KEYS, keys_of};
pub use members::{
    check_recover_mirror_topics, pause_mirror_topics, resume_mirror_topics, stop_mirror_topics,
};
pub use mirrors::{create_mirror, delete_mirror};
pub use partitions::{
    BumpResult, GrowTopic, bump_leader_epochs, create_partitions, new_epochs_at_start,
};
pub use start::start_mirror_topics;
pub use topics::{
    CreatedTopic, NewTopic, PARTITIONS_MAX, TopicDefaults, TopicKey, create_topics, delete_topics,
};

#[cfg(test)]
mod tests;

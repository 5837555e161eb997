//! Admin client: KIP-1279's methods for mirrors, and what an operator needs beside them.
//!
//! It speaks to any server that has the APIs, a Heliostat host or a Kafka cluster. One
//! question is under way at a time. Every wait has a deadline, answers have a size limit, and
//! a change is sent once: if its answer is lost, the error says that the outcome is unknown.

mod answer;
mod client;
mod configs;
mod error;
mod figures;
mod mirrors;
mod topics;

pub use client::{AdminClient, Cluster, Coordinator, Feature, Features};
pub use configs::{ConfigEntry, ConfigOp, ConfigResource, ConfigSource, ConfigSynonym};
pub use error::{AdminError, Refusal};
pub use figures::FiguresQuery;
pub use mirrors::{
    DeleteOptions, MirrorDescription, MirrorListing, MirrorPartition, StartOptions, StopOptions,
    TopicOutcome,
};
pub use topics::{CreatedTopic, NewTopic};

#[cfg(test)]
mod tests;

//! Real Apache Kafka for tests: brokers that are started, hurt and inspected from Rust.
//!
//! Owns everything between a test and a JVM: the jars ([`Artifacts`]), brokers and their faults
//! ([`Cluster`]), Kafka's own clients behind one long-lived JVM ([`Driver`]), Kafka's own judge of
//! log files ([`dump_log`]), inputs that no client would write ([`forge`]) and the longer
//! sequences that several tests need ([`recipes`]).
//!
//! ```text
//!   test ── Cluster ──── Launcher JVM: kafka.Kafka      one a broker, killed on drop
//!     │        └──────── Launcher JVM: QuorumPeerMain   old versions only
//!     ├──── Driver ───── JVM: Admin, Producer, Consumer one a test, any number of clusters
//!     ├──── Wire ─────── TCP: Metadata, Produce v3      no JVM
//!     └──── dump_log ─── JVM: DumpLogSegments           one a call
//! ```
//!
//! Invariants:
//! - Nothing outlives the test. Dropping a value ends its processes, also while a panic unwinds,
//!   and a JVM whose harness is gone halts by itself.
//! - Nothing waits for ever: each wait polls a condition and has a deadline ([`KafkaError::Timeout`]).
//! - Nothing listens but on loopback, and nothing is written outside the cluster's directory and
//!   the cache.

mod archive;
pub mod artifacts;
pub mod client;
pub mod cluster;
pub mod driver;
pub mod dump;
pub mod error;
pub mod files;
pub mod forge;
pub mod mirror_maker;
pub mod node;
mod ports;
mod process;
pub mod properties;
pub mod recipes;
pub mod tiered;
pub mod wait;
pub mod wire;

pub use artifacts::{Artifacts, KafkaVersion, Skipped, found_or_skip, or_skip, require};
pub use client::{Compression, Consumed, Isolation, KafkaClient, OffsetAt, Produced, Workload};
pub use cluster::{Cluster, ClusterBuilder};
pub use driver::Driver;
pub use dump::{Complaint, DumpOutput, dump_log};
pub use error::{KafkaError, Result};
pub use mirror_maker::{MirrorMaker, MirrorMakerJars};
pub use node::{Node, NodeState};
pub use properties::Properties;
pub use tiered::TieredStore;
pub use wire::{PartitionView, TopicView, Wire};

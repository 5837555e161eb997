//! What tests of more than one module share: real Kafka.

pub mod kafka;

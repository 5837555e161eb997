//! What tests of more than one module share: real Kafka, a proxy that misbehaves.

pub mod fuzz;
pub mod kafka;
pub mod proxy;

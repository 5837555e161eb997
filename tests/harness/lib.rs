//! What tests of more than one module share: real Kafka, a host in the same process, the
//! scenarios that a copy has to pass, a proxy that misbehaves.

pub mod host;
pub mod kafka;
pub mod proxy;
pub mod scenarios;

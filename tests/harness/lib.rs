//! What tests of more than one module share: real Kafka, the scenarios that a copy of it has to
//! pass, a proxy that misbehaves.

pub mod kafka;
pub mod proxy;
pub mod scenarios;

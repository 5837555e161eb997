//! A mirroring host over a real Kafka: failover, a source that dies, and what a source does to its
//! topics, its leaders and itself.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod cascade;
mod dead_source;
mod events;
mod failover;
mod tiered;

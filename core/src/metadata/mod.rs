//! Metadata of the standalone destination, a cluster of one node: what a KRaft controller keeps.
//!
//! [`record`] is how it is stored, [`image`] what it says now, [`controller`] how requests change
//! it, [`log`] where it lies: `__cluster_metadata-0`, which Kafka's own tools read.

pub mod control;
pub mod controller;
pub mod image;
pub mod log;
pub mod record;

//! Actions of Heliostat: rings, sockets, segment files, the shard loop, the control thread.
//!
//! Decisions are [`heliostat_core`]'s; here they meet the kernel.

#![deny(unsafe_code)]

pub mod admin;
pub mod control;
pub mod disk;
pub mod embedded;
mod fault;
pub mod generate;
pub mod host;
pub mod huge_page;
pub mod listener;
pub mod net;
pub mod path_emulator;
pub mod preflight;
pub mod ring;
mod served;
pub mod shard;
pub mod source_client;
pub mod verify;

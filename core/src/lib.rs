//! Decisions of Heliostat, without I/O.
//!
//! Nothing in this crate opens a socket or a file, starts a thread or reads a
//! clock: bytes, completions and time come in as arguments, and what is to be
//! done goes out as values. The same code therefore runs in production and in
//! the deterministic simulation.

#![forbid(unsafe_code)]

pub mod config;
pub mod coordinator;
pub mod dump;
pub mod engine;
pub mod fetcher;
pub mod log;
pub mod metadata;
pub mod mirror;
pub mod protocol;
pub mod records;
pub mod select;
pub mod serve;
pub mod time;
pub mod types;

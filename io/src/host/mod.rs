//! A mirroring host: the control layer of KIP-1279 over one log dir.
//!
//! ```text
//!  listener ──ControlCall──▶ Host ──Order──▶ control::Job (one a mirror, with shards of its own)
//!                             │  ◀─Happening──      │
//!                  core::coordinator::Mirrors       ▼
//!                  core::metadata (controller)   segment files
//!                             │
//!                  Journal: __cluster_metadata-0, __mirror_state-N   (durable, then obeyed)
//! ```
//!
//! Everything runs as tasks of the control thread; [`Host::run`] is the one that decides. It
//! waits for nobody but the disk: what is asked of a source, and what is written into the logs of
//! partitions that are being stopped, are tasks and threads that report back.
//!
//! Order of durability: a wish is in the metadata log before the coordinator hears of it, a state
//! is in the state log before its action begins, and the position of a stop is stored before the
//! leader epoch is raised, before the markers are written, before STOPPED is stored.

mod align;
mod append;
mod error;
mod failover;
mod happened;
mod http;
mod http_text;
mod journal;
mod link;
mod requests;
mod resting;
mod run;
mod snapshot;
mod start;
mod steps;
mod sync;

/// Longest time in which a source answers a question that a client waits for.
const SOURCE_ANSWERS_WITHIN: std::time::Duration = std::time::Duration::from_secs(15);

pub use append::AppendError;
pub use error::HostError;
pub use run::{Host, HostHandle, HostReport, MirrorStanding};

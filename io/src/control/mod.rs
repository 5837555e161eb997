//! The control thread: one job that copies topics of a source into a log dir.
//!
//! It discovers topics, opens logs, gives them to shards, reacts to what they give back,
//! writes checkpoints, and shows how it goes. Decisions are `heliostat_core::mirror`'s.

mod by_name;
mod cancel;
mod copies;
mod copy;
mod job;
mod log_dir;
pub mod metrics_http;
mod metrics_text;
mod openers;
pub(crate) mod prometheus;
mod questions;
mod shards;
mod status;
pub mod steering;

pub use cancel::{CancelHandle, CancelWatch, StopSignals, cancellation};
pub(crate) use job::random;
pub use job::{Ended, Job, JobConfig, JobError, JobHandle, JobReport};
pub(crate) use log_dir::{Ends, now_ms};
pub use log_dir::{LogDir, LogDirError, SharedLogDir};
pub use shards::{FleetShare, ShardFleet, ShardsError, spawn_fleet, spawn_shards};
pub use status::{Event, EventKind, JobPhase, PartitionState, PartitionStatus, Status, Totals};

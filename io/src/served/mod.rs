//! A host's logs as clients read them: where each stands, and its files.
//!
//! ```text
//!   shard, or the thread that has a log open ──show──▶ ServedLog ◀──look── listener threads
//!                                                         │                     ▲
//!                                                         └──id──▶ Wakes ───────┘
//! ```
//!
//! The owner of a log shows it after each step; it never waits for a reader, and a reader never
//! asks it. What lies below the shown end is in the files and changes no more, but for the block
//! in which the log ends, so files are read without the owner, too. A log that is cut, or that
//! nobody has opened since the start, is hidden: clients are told to ask again.

mod files;
mod log;
mod logs;
mod wakes;

pub(crate) use files::{SegmentFiles, aborted};
pub(crate) use log::{Hidden, ServedLog, StillShown};
pub(crate) use logs::ServedLogs;
pub(crate) use wakes::{Changed, WakeEnd};

//! The mirror coordinator of KIP-1279: in which state each mirrored partition is, which one the
//! operator wants, and what is done about the difference.
//!
//! [`PartitionMirror`] decides for one partition: events go in, actions come out. It rests on
//! three tables, each a `match` that the compiler checks: which state may follow which
//! ([`MirrorState::may_become`]), what a wish means in each state ([`decide`]), and what a
//! finished action leads to. A state is stored before its action begins, so a restart repeats an
//! interrupted step and never skips one.
//!
//! Where this differs from the KIP, the reason stands beside the code:
//! * a stop is accepted in every state, and neither it nor a pause waits for a retry
//!   ([`decide`]);
//! * a source that cannot be reached is no failure of the partition
//!   ([`Event::SourceUnreachable`](partition::Event::SourceUnreachable));
//! * an alignment that is tried again keeps the count of its attempts ([`retry`]).

pub mod alignment;
pub mod bump;
pub mod decide;
pub mod fencing;
pub mod markers;
pub mod mirrors;
pub mod partition;
pub mod placement;
pub mod record;
pub mod retry;
pub mod state;
pub mod state_log;

pub use decide::{Decision, decide};
pub use mirrors::{Mirrors, Step, ToStore};
pub use partition::PartitionMirror;
pub use record::{LastMirrored, MirrorKey, StateRecord};
pub use state::{DesiredState, MirrorState};

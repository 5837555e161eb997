//! One io_uring per shard, and the only place that hands memory to the kernel.
//!
//! A [`Ring`] owns everything that the kernel may touch, buffers, paths and file
//! descriptors, from the moment an operation is pushed until its completion has been
//! reaped. Callers get it back by value, so no borrow can outlive an operation and no
//! buffer can be written while the kernel reads it.
//!
//! ```text
//!   push ──> slab entry (owns op) ──> submission queue ──> kernel
//!                                                            │
//!   Completion { tag, op, result } <── reap <── completion queue ──> eventfd ──> bell
//! ```
//!
//! Invariants: an entry of the slab neither moves nor is freed while its operation is
//! in flight; there are never more operations in flight than completion queue entries,
//! so completions cannot overflow.
#![expect(unsafe_code, reason = "submission entries carry raw pointers; see the invariants above")]

mod bell;
mod op;
mod setup;
mod slab;
mod uring;

pub use bell::{EventfdBell, Rung};
pub use op::{Completion, File, RingOp, RingReply};
pub use setup::{Refusal, RingConfig, RingError, RingFeatures, features_of};
pub use uring::Ring;

//! Decisions of serving logs to clients: fetch sessions, what a fetch may read,
//! how long it waits, and the bytes around the records of its answer.
//!
//! The driver (the listener) owns sockets and files. It asks
//! [`FetchSessionCache`] which partitions a request means, walks them with a
//! [`FetchBudget`], reads through [`crate::log::read_plan`], and sends what
//! [`FetchResponseLayout`] lays out.

mod admit;
mod budget;
mod guard;
mod isolation;
mod request;
mod response;
mod session;

pub use admit::{Divergence, ReadBounds, ReadFault, ServedFacts, admit_read, check_leader_epoch};
pub use budget::{FetchBudget, Take, WaitDecision, WaitFacts, decide_wait};
pub use guard::{RequestShapeError, check_request_shape};
pub use isolation::{IsolationLevel, aborted_in};
pub use request::{
    FetchDecodeError, FetchParams, FetchRequestFacts, PartitionKey, TopicKey, decode_fetch,
};
pub use response::{
    CurrentLeader, FetchResponseHead, FetchResponseLayout, NodeEndpoint, PartitionAnswer, Piece,
};
pub use session::{FetchContext, FetchSessionCache, SessionAnswer, SessionLimits};

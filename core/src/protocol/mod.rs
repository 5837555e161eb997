//! The streaming Fetch decoder, fetch sessions and error codes. Everything else on the wire is
//! kafka-protocol's, behind thin wrappers that speak the types of this crate.

mod error_code;
pub mod fetch_stream;
mod wire;

pub use error_code::{ErrorCode, Reaction, SessionFault};
pub use wire::DecodeError;

//! What to ask of the source, and when.

mod backoff;

pub use backoff::{Backoff, BackoffPolicy};

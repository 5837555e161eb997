//! The built `heliostat server` that dies at any place, and starts again: what a stop and an
//! alignment have begun is ended, nothing is done twice, and what was acknowledged holds.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

mod align;
mod child;
mod delete;
mod kills;
mod logs;
mod refusals;
mod signals;
mod source;
mod stop;
mod top;

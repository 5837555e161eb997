//! The disk side of `io` on the real kernel and file system.
//!
//! Scratch lies in the system's temporary directory. A test that needs a right that the
//! user does not have prints what it skips.
#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail like tests")]

mod bell;
mod child;
mod cold;
mod disk_model;
mod faults;
mod many;
mod support;

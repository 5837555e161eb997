//! The listener as a client sees it: real sockets, kafka-protocol as the other side.
#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail like tests")]

mod apis;
mod client;
mod control;
mod faults;
mod fetching;
mod followers;
mod garbage;
mod generated;
mod sessions;
mod stored;

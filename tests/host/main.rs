//! A mirroring host over real sockets and files, with the embedded source, driven through its own
//! admin client.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail that way")]

mod failback;
mod figures;
mod http;
mod many;
mod proxy;
mod reader;
mod reading;
mod stop;
mod sync;
mod tailing;
mod workflow;
mod world;

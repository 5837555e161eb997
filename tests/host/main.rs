//! A mirroring host over real sockets and files, with the embedded source, driven through its own
//! admin client.

#![expect(clippy::unwrap_used, reason = "tests fail that way")]

mod failback;
mod http;
mod many;
mod proxy;
mod stop;
mod sync;
mod workflow;
mod world;

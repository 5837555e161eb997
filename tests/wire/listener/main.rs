//! The listener as a client sees it: real sockets, kafka-protocol as the other side.

mod apis;
mod client;
mod fetching;
mod garbage;
mod sessions;
mod stored;

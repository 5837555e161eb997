//! The listener: serves partitions of a log dir over TCP with the Kafka protocol, or the
//! control API of a mirroring host ([`control`]).
//!
//! ```text
//! accept -> connection: frame -> header -> API -> answer -> next frame
//!                                           |
//!             fetch: session -> admit -> plan -> wait | layout -> headers by send,
//!                                                              records by sendfile
//! ```
//!
//! Requests of one connection are answered one after the other, as a broker does;
//! connections share nothing but fetch sessions. A response is never collected
//! whole: records go from the segment file to the socket.

mod apis;
mod config;
mod configs;
mod connection;
pub mod control;
mod event;
mod fetch;
mod frame;
pub mod hosted;
mod live;
mod net;
mod offsets;
mod produce;
mod readable;
mod reading;
mod send;
mod server;
mod service;
mod thread;
mod waits;

pub use config::ListenerConfig;
pub use server::{Listener, ListenerError};

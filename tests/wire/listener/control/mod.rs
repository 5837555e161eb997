//! The control API of a host as a client sees it; the test is the control thread.

mod features;
mod garbage;
mod host;
mod kafka_apis;
mod limits;
mod mirror_apis;
mod waiting;

//! Settings of a listener, by Kafka's names where Kafka has one.

use std::net::SocketAddr;
use std::time::Duration;

use heliostat_core::serve::SessionLimits;
use heliostat_core::types::BrokerId;

/// How to listen.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Where to listen; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Host name that clients are told; the address itself if `None`.
    pub advertised_host: Option<String>,
    /// `node.id` of this listener.
    pub node_id: BrokerId,
    /// Executors, each on a thread of its own.
    pub threads: usize,
    /// `fetch.max.bytes`: records in one response; the first batch may exceed it.
    pub fetch_max_bytes: u32,
    /// `socket.send.buffer.bytes`: `None` leaves it to the system (Kafka's −1).
    pub socket_send_buffer_bytes: Option<usize>,
    /// `socket.receive.buffer.bytes`: `None` leaves it to the system.
    pub socket_receive_buffer_bytes: Option<usize>,
    /// `socket.request.max.bytes`: a longer frame ends its connection.
    pub socket_request_max_bytes: u32,
    /// `connections.max.idle.ms`: without a byte for so long, a connection ends.
    pub connections_max_idle: Duration,
    /// `max.connections` of each thread; more are closed at once.
    pub connections_max: usize,
    /// `max.connections.per.ip` of each thread; more are closed at once.
    pub connections_per_ip_max: usize,
    /// Fetch sessions of all threads.
    pub sessions: SessionLimits,
    /// Whether followers fetch here: up to the log end, and in Fetch v19, which tells the
    /// followers of mirrors the latest epoch of the log. Else whoever fetches is a consumer.
    pub followers: bool,
}

impl ListenerConfig {
    /// Kafka's defaults on `address`, one thread.
    pub fn new(address: SocketAddr, node_id: BrokerId) -> Self {
        Self {
            address,
            advertised_host: None,
            node_id,
            threads: 1,
            fetch_max_bytes: 55 << 20,
            socket_send_buffer_bytes: Some(100 << 10),
            socket_receive_buffer_bytes: Some(100 << 10),
            socket_request_max_bytes: 100 << 20,
            connections_max_idle: Duration::from_mins(10),
            connections_max: 1024,
            connections_per_ip_max: usize::MAX,
            sessions: SessionLimits::default(),
            followers: false,
        }
    }
}

//! Bytes to and from a broker. Everything above sees a [`Transport`]; encryption and
//! authentication wrap one transport into another and slip in here.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;

use super::error::Cause;
use super::host_port::HostPort;

/// A connection that carries bytes both ways.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

/// Settings of sockets to the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Longest wait for a connection to one address.
    pub connect_timeout: Duration,
    /// Receive buffer in bytes; `None` leaves it to the kernel, which adapts it.
    pub receive_buffer_bytes: Option<u32>,
    /// Send buffer in bytes; `None` leaves it to the kernel, which adapts it.
    pub send_buffer_bytes: Option<u32>,
}

/// Silence after which the kernel asks whether the peer still lives. A broker that lost
/// its power, or a firewall that forgot the connection, shows itself so.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Resolves the name and connects to the first of its addresses that answers.
pub(super) async fn connect(
    peer: &HostPort,
    options: &SocketOptions,
) -> Result<Box<dyn Transport>, Cause> {
    let after = options.connect_timeout;
    let resolved = timeout(after, lookup_host((&*peer.host, peer.port))).await;
    let resolve = |reason: &str| Cause::Resolve { reason: Arc::from(reason) };
    let addresses: Vec<_> = resolved
        .map_err(|_| resolve("the resolver does not answer"))?
        .map_err(|error| resolve(&error.to_string()))?
        .collect();

    let mut last = resolve("no address");
    for address in addresses {
        match timeout(after, connect_to(address, options)).await {
            Ok(Ok(stream)) => return Ok(Box::new(stream)),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                last = Cause::Refused;
            }
            Ok(Err(error)) => last = Cause::Connect { reason: Arc::from(error.to_string()) },
            Err(_) => last = Cause::ConnectTimeout { after },
        }
    }
    Err(last)
}

async fn connect_to(address: SocketAddr, options: &SocketOptions) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Before the connection exists, or the window scale does not cover them.
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(bytes) = options.send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

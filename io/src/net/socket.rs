//! TCP connections to brokers.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use glommio::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};

/// Socket options of fetch connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// `receive.buffer.bytes`; `None` leaves it to the kernel, which adapts it.
    pub receive_buffer_bytes: Option<usize>,
    /// Silence after which the peer is probed.
    pub keepalive: Duration,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { receive_buffer_bytes: None, keepalive: Duration::from_secs(30) }
    }
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name has no address.
    #[error("{host}:{port}: unknown host; check the name and the resolver ({reason})")]
    UnknownHost {
        /// As configured or advertised.
        host: String,
        /// TCP port.
        port: u16,
        /// What the resolver says.
        reason: String,
    },
    /// No address of the host answers.
    #[error("{host}:{port}: {reason}; check that the broker runs and listens there")]
    Refused {
        /// As configured or advertised.
        host: String,
        /// TCP port.
        port: u16,
        /// What the system says of the last address.
        reason: String,
    },
}

/// Connects to the first address of `host` that answers. Names are resolved each time,
/// on glommio's blocking pool.
///
/// # Errors
/// [`ConnectError`], one line for the operator.
pub async fn connect(
    host: &str,
    port: u16,
    options: SocketOptions,
) -> Result<TcpStream, ConnectError> {
    let addresses = resolve(host, port).await?;
    let mut reason = "no address".to_owned();
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                let set = configure(&stream, options);
                if let Err(error) = set {
                    tracing::warn!(%host, port, %error, "socket options were not set");
                }
                return Ok(stream);
            }
            Err(error) => reason = io::Error::from(error).to_string(),
        }
    }
    Err(ConnectError::Refused { host: host.to_owned(), port, reason })
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let name = host.to_owned();
    let lookup = move || (name.as_str(), port).to_socket_addrs().map(Vec::from_iter);
    glommio::executor().spawn_blocking(lookup).await.map_err(|error| ConnectError::UnknownHost {
        host: host.to_owned(),
        port,
        reason: error.to_string(),
    })
}

#[expect(unsafe_code, reason = "glommio's stream lends its descriptor only as a number")]
fn configure(stream: &TcpStream, options: SocketOptions) -> io::Result<()> {
    stream.set_nodelay(true).map_err(io::Error::from)?;
    // SAFETY: the stream owns the descriptor and outlives this borrow of it.
    let fd = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
    let socket = SockRef::from(&fd);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(options.keepalive))?;
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

//! TCP connections to brokers.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use glommio::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};

use super::set_low_water;

/// Socket options of fetch connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// `receive.buffer.bytes`; `None` leaves it to the kernel, which adapts it.
    pub receive_buffer_bytes: Option<usize>,
    /// Bytes that a connection holds unread from the start, if the kernel adapts its buffer;
    /// 0 for what the kernel begins with.
    pub unread_bytes: u32,
    /// Silence after which the peer is probed.
    pub keepalive: Duration,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { receive_buffer_bytes: None, unread_bytes: 0, keepalive: Duration::from_secs(30) }
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
    match options.receive_buffer_bytes {
        Some(bytes) => socket.set_recv_buffer_size(bytes)?,
        None if options.unread_bytes > 0 => hold_unread(fd, options.unread_bytes)?,
        None => {}
    }
    Ok(())
}

/// Makes room for `bytes`. The kernel gives an unread socket little at first, and more as it sees
/// it emptied; but it makes room at once for what is to be waited for, up to half of
/// `net.ipv4.tcp_rmem[2]`, and goes on adapting from there. A fixed buffer would end that.
fn hold_unread(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_low_water(&fd, usize::try_from(bytes).unwrap_or(usize::MAX))?;
    // What has come is told as before.
    set_low_water(&fd, 1)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    /// Goal: a socket that nobody reads holds several times of what the kernel begins with. How
    /// near it comes to what is asked depends on the sender: memory is counted, and small packets
    /// take more of it. Method: send until it takes no more.
    #[test]
    fn an_unread_socket_holds_more_when_asked() {
        const WANTED: u32 = 2 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let held = |unread: u32| {
            let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut writer, _) = listener.accept().unwrap();
            if unread > 0 {
                hold_unread(reader.as_fd(), unread).unwrap();
            }
            SockRef::from(&writer).set_send_buffer_size(16 << 10).unwrap();
            writer.set_nonblocking(true).unwrap();
            let (mut sent, mut idle) = (0, 0);
            // Acknowledgements come at once on this machine; whoever is late has many tries.
            while idle < 1_000 {
                match writer.write(&[0; 16 << 10]) {
                    Ok(n) => (sent, idle) = (sent + n, 0),
                    Err(_) => idle += 1,
                }
                std::thread::yield_now();
            }
            sent
        };
        let (little, much) = (held(0), held(WANTED));
        assert!(much > 3 * little, "{little} bytes, then {much}");
    }
}

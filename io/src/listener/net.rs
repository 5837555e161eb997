//! The few things that need a socket's descriptor.
#![expect(unsafe_code, reason = "glommio takes and gives bare descriptors")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use glommio::net::{TcpListener, TcpStream};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use super::config::ListenerConfig;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A listening socket. Its buffer sizes are inherited by what it accepts. With
/// `shared_port` other sockets can listen on its port too, and share what comes.
pub(super) fn bind(config: &ListenerConfig, shared_port: bool) -> io::Result<Socket> {
    let domain = if config.address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared_port)?;
    if let Some(bytes) = config.socket_send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = config.socket_receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind(&config.address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Gives a listening socket to the executor of this thread.
pub(super) fn on_executor(socket: Socket) -> TcpListener {
    let fd = OwnedFd::from(socket).into_raw_fd();
    // SAFETY: `into_raw_fd` gave the descriptor up, so the listener is its one owner.
    unsafe { TcpListener::from_raw_fd(fd) }
}

fn borrow(stream: &TcpStream) -> BorrowedFd<'_> {
    // SAFETY: the stream owns the descriptor and is borrowed as long as the result.
    unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) }
}

/// Prepares an accepted socket: small answers leave at once, sendfile does not block, and
/// a peer that neither sends nor takes a byte for `idle` is given up.
pub(super) fn prepare(stream: &TcpStream, idle: Duration) -> io::Result<()> {
    let socket = |error: glommio::GlommioError<()>| io::Error::from(error);
    stream.set_read_timeout(Some(idle)).map_err(socket)?;
    stream.set_write_timeout(Some(idle)).map_err(socket)?;
    let fd = borrow(stream);
    rustix::net::sockopt::set_tcp_nodelay(fd, true)?;
    rustix::net::sockopt::set_socket_keepalive(fd, true)?;
    rustix::io::ioctl_fionbio(fd, true)?;
    Ok(())
}

/// What became of an attempt to send from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// So many bytes, at least one.
    Bytes(u64),
    /// The socket takes nothing now.
    Full,
    /// The file ends before.
    Ended,
    /// The system cannot do it between these two.
    Unsupported,
}

/// Sends up to `bytes` of `file` from `position` on, without waiting for the socket.
pub(super) fn send_file(
    stream: &TcpStream,
    file: &File,
    position: u64,
    bytes: u64,
) -> io::Result<Sent> {
    let mut at = position;
    let count = usize::try_from(bytes).unwrap_or(usize::MAX);
    match rustix::fs::sendfile(borrow(stream), file, Some(&mut at), count) {
        Ok(0) => Ok(Sent::Ended),
        Ok(sent) => Ok(Sent::Bytes(u64::try_from(sent).unwrap_or(u64::MAX))),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Sent::Full),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(Sent::Unsupported),
        Err(error) => Err(error.into()),
    }
}

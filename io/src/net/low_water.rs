//! `SO_RCVLOWAT`: how much a socket holds before its reader is woken.

use std::ffi::c_int;
use std::io;
use std::os::fd::AsRawFd;

use glommio::net::TcpStream;

/// A stream whose reader may be woken late.
pub trait LowWater {
    /// From now on the stream counts as readable once `bytes` are there, or its receive buffer is
    /// as good as full, or the peer has closed it. A read takes what is there all the same.
    ///
    /// # Errors
    /// What the system says; the mark stays as it was.
    fn set_low_water(&self, bytes: usize) -> io::Result<()>;
}

impl LowWater for TcpStream {
    fn set_low_water(&self, bytes: usize) -> io::Result<()> {
        set_low_water(self, bytes)
    }
}

/// As [`LowWater::set_low_water`], for any socket. Neither rustix nor socket2 has this option.
///
/// # Errors
/// What the system says.
#[expect(unsafe_code, reason = "the option is set through the C library")]
pub fn set_low_water(socket: &impl AsRawFd, bytes: usize) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    let len = libc::socklen_t::try_from(size_of::<c_int>()).unwrap_or_default();
    // SAFETY: `value` is an int, lives across the call, and `len` is its size. A descriptor that is
    // none is an error.
    let done = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const value).cast(), len)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn readable(stream: &TcpStream, wait: Duration) -> bool {
        let wait = Timespec::try_from(wait).unwrap();
        poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&wait)).unwrap() == 1
    }

    #[test]
    fn a_socket_is_readable_from_its_mark_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut writer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let reader = listener.accept().unwrap().0;
        set_low_water(&reader, 1_000).unwrap();
        writer.write_all(&[7; 999]).unwrap();
        // A read that waits would wait for the mark, too.
        reader.set_nonblocking(true).unwrap();
        while reader.peek(&mut [0; 2_000]).unwrap_or(0) < 999 {
            std::thread::yield_now();
        }
        assert!(!readable(&reader, Duration::ZERO));
        writer.write_all(&[7]).unwrap();
        assert!(readable(&reader, Duration::from_secs(10)));

        set_low_water(&reader, 100_000).unwrap();
        assert!(!readable(&reader, Duration::ZERO));
        set_low_water(&reader, 1).unwrap();
        assert!(readable(&reader, Duration::ZERO), "what is there counts at once");
        set_low_water(&reader, 100_000).unwrap();
        drop(writer);
        assert!(readable(&reader, Duration::from_secs(10)), "so does the end");
    }
}

//! The raw port of the embedded source: log bytes without Kafka's protocol, for the loops.
//!
//! ```text
//!   connection = slice* end
//!   slice      = partition: u32 | length: u32 | bytes       (integers are big-endian)
//! ```
//!
//! Of each partition in turn comes a slice of 8 MiB, until all are sent; the last slice of a
//! partition is shorter. Bytes leave with sendfile in pieces of 1 MiB, as those of a Fetch do.

use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use heliostat_io::listener::ListenerConfig;
use heliostat_io::listener::hosted::Topic;
use rustix::fs::sendfile;
use rustix::net::{SendFlags, send, sockopt};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// What `mirror.fetch.max.bytes` is by default.
pub(crate) const SLICE_BYTES: u64 = 8 << 20;
/// As `io/src/listener/send.rs`.
const SEND_BYTES: u64 = 1 << 20;
/// Longest wait for the other end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The head of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Which file its bytes belong to.
    pub(crate) partition: u32,
    /// How many bytes follow.
    pub(crate) len: u32,
}

impl Slice {
    pub(crate) fn encode(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        let (partition, len) = bytes.split_at_mut(4);
        partition.copy_from_slice(&self.partition.to_be_bytes());
        len.copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// The next one of `stream`; `None` at its end.
    pub(crate) fn read(stream: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = [0; 8];
        let have = loop {
            match stream.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome?,
            }
        };
        if have == 0 {
            return Ok(None);
        }
        stream.read_exact(bytes.get_mut(have..).unwrap_or_default())?;
        let [partition @ .., _, _, _, _] = bytes;
        let [_, _, _, _, len @ ..] = bytes;
        let (partition, len) = (u32::from_be_bytes(partition), u32::from_be_bytes(len));
        Ok(Some(Self { partition, len }))
    }
}

/// A raw port that is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Port {
    /// Where.
    pub(crate) address: SocketAddr,
    /// What each connection is sent, without the heads of slices.
    pub(crate) bytes: u64,
}

impl Port {
    /// Connects as the loops do.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(stream)
    }
}

/// A port of its own whose sockets are as those of `config`.
pub(crate) fn bind(config: &ListenerConfig) -> io::Result<TcpListener> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // What is accepted inherits them.
    if let Some(bytes) = config.socket_send_buffer_bytes {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    }
    if let Some(bytes) = config.socket_receive_buffer_bytes {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    Ok(socket)
}

/// Prepares what was accepted.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(TIMEOUT))
}

/// Sends the stored batches of `topic` to whoever connects, one after the other, until the
/// process ends.
pub(crate) fn serve(topic: &Topic, config: &ListenerConfig) -> Result<Port, BenchError> {
    let mut logs = Vec::with_capacity(topic.partitions.len());
    for partition in &topic.partitions {
        logs.push(Log::open(partition.dir())?);
    }
    let socket = bind(config).map_err(BenchError::system("open the raw port"))?;
    let address = socket.local_addr().map_err(BenchError::system("open the raw port"))?;
    let bytes = logs.iter().map(|log| log.bytes).sum();
    std::thread::spawn(move || {
        for stream in socket.incoming() {
            if let Err(error) = stream.and_then(|stream| send_all(&stream, &logs)) {
                eprintln!("the raw port: {error}");
            }
        }
    });
    Ok(Port { address, bytes })
}

/// The segment files of one partition, oldest first.
#[derive(Debug)]
struct Log {
    segments: Vec<(File, u64)>,
    bytes: u64,
}

impl Log {
    fn open(dir: &Path) -> Result<Self, BenchError> {
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(BenchError::file(dir))? {
            let path = entry.map_err(BenchError::file(dir))?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                paths.push(path);
            }
        }
        paths.sort();
        let mut segments = Vec::with_capacity(paths.len());
        for path in &paths {
            let file = File::open(path).map_err(BenchError::file(path))?;
            let len = file.metadata().map_err(BenchError::file(path))?.len();
            segments.push((file, len));
        }
        let bytes = segments.iter().map(|(_, len)| len).sum();
        Ok(Self { segments, bytes })
    }

    /// Sends `bytes` from position `from` of the whole log on.
    fn send(&self, stream: &TcpStream, from: u64, bytes: u64) -> io::Result<()> {
        let (mut from, mut left) = (from, bytes);
        for (file, len) in &self.segments {
            while from < *len && left > 0 {
                let mut at = from;
                let wanted = left.min(len.saturating_sub(from)).min(SEND_BYTES);
                let count = usize::try_from(wanted).unwrap_or(usize::MAX);
                let sent = match sendfile(stream, file, Some(&mut at), count) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(sent) => u64::try_from(sent).unwrap_or(u64::MAX),
                    Err(rustix::io::Errno::INTR) => 0,
                    Err(error) => return Err(error.into()),
                };
                from = from.saturating_add(sent);
                left = left.saturating_sub(sent);
            }
            from = from.saturating_sub(*len);
        }
        Ok(())
    }
}

fn send_all(stream: &TcpStream, logs: &[Log]) -> io::Result<()> {
    prepare(stream)?;
    let mut from = 0;
    while logs.iter().any(|log| from < log.bytes) {
        for (partition, log) in (0_u32..).zip(logs) {
            let bytes = log.bytes.saturating_sub(from).min(SLICE_BYTES);
            if bytes == 0 {
                continue;
            }
            let slice = Slice { partition, len: u32::try_from(bytes).unwrap_or(u32::MAX) };
            // Eight bytes are always taken whole by a blocking socket; they wait for what follows.
            send(stream, &slice.encode(), SendFlags::MORE | SendFlags::NOSIGNAL)?;
            log.send(stream, from, bytes)?;
        }
        from = from.saturating_add(SLICE_BYTES);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let slice = Slice { partition: 7, len: 8 << 20 };
        let bytes = slice.encode();
        assert_eq!(bytes, [0, 0, 0, 7, 0, 0x80, 0, 0]);
        assert_eq!(Slice::read(&mut &bytes[..]).unwrap(), Some(slice));
        assert_eq!(Slice::read(&mut &bytes[..0]).unwrap(), None);
        assert!(Slice::read(&mut &bytes[..5]).is_err());
    }
}

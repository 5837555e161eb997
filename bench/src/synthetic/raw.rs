//! The raw port of the synthetic source: a batch of each partition in turn, for ever, without
//! Kafka's protocol ([`crate::raw`] has the framing).

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use super::server::Cluster;
use crate::raw::{Slice, prepare};

/// What one call sends, about: as an answer, it leaves in large pieces.
const SEND_BYTES: usize = 1 << 20;

/// Sends to whoever connects, one after the other, until the process ends.
pub(super) fn serve(cluster: &Arc<Cluster>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let cluster = Arc::clone(cluster);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // It ends when the loop has seen enough.
            let _ = stream.and_then(|stream| send(&cluster, stream));
        }
    });
    Ok(address)
}

fn send(cluster: &Cluster, mut stream: TcpStream) -> io::Result<()> {
    prepare(&stream)?;
    let len = u32::try_from(cluster.log.batch_bytes()).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(2 * SEND_BYTES);
    for number in 0_u64.. {
        for partition in 0..u32::try_from(cluster.log.partitions).unwrap_or(u32::MAX) {
            out.extend_from_slice(&Slice { partition, len }.encode());
            cluster.log.write(number, &mut out);
            if out.len() >= SEND_BYTES {
                stream.write_all(&out)?;
                out.clear();
            }
        }
    }
    Ok(())
}

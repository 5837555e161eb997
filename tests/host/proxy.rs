//! A proxy that hides the last mirror offsets from whoever asks a host for them, as a peer of an
//! earlier generation of KIP-1279 would.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use heliostat_core::protocol::mirror::{
    self, DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse, MirrorRequest as _,
};

/// Correlation ID of a response and the tagged fields of its header, none.
const HEADER_BYTES: usize = 5;

/// Listens before it knows its server, so that the server can advertise it.
pub(crate) struct Proxy {
    listener: TcpListener,
    hidden: Arc<Mutex<u64>>,
}

impl Proxy {
    pub(crate) fn bind() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { listener, hidden: Arc::default() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// How many offsets it has hidden.
    pub(crate) fn hidden(&self) -> u64 {
        *self.hidden.lock().unwrap()
    }

    /// Passes connections on to `server` until the process ends.
    pub(crate) fn serve(&self, server: SocketAddr) {
        let listener = self.listener.try_clone().unwrap();
        let hidden = Arc::clone(&self.hidden);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(server) else { continue };
                relay(&client, &server, &hidden);
            }
        });
    }
}

fn relay(client: &TcpStream, server: &TcpStream, hidden: &Arc<Mutex<u64>>) {
    let asked = Arc::new(Mutex::new(HashSet::new()));
    let ends = || (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (mut from, mut to) = ends();
    let noted = Arc::clone(&asked);
    thread::spawn(move || {
        while let Some(frame) = read_frame(&mut from) {
            let key = i16::from_be_bytes(*frame.first_chunk().unwrap());
            if key == DescribeClusterMirrorsRequest::API_KEY {
                noted.lock().unwrap().insert(<[u8; 4]>::try_from(&frame[4..8]).unwrap());
            }
            if write_frame(&mut to, &frame).is_none() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    let (mut to, mut from) = ends();
    let hidden = Arc::clone(hidden);
    thread::spawn(move || {
        while let Some(mut frame) = read_frame(&mut from) {
            let id = <[u8; 4]>::try_from(&frame[..4]).unwrap();
            if asked.lock().unwrap().remove(&id) {
                let body = hide(&frame[HEADER_BYTES..], &mut hidden.lock().unwrap());
                frame.truncate(HEADER_BYTES);
                frame.extend(body);
            }
            if write_frame(&mut to, &frame).is_none() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

fn hide(body: &[u8], hidden: &mut u64) -> Vec<u8> {
    let mut answer: DescribeClusterMirrorsResponse = mirror::decode(body).unwrap();
    let described = answer.mirrors.iter_mut().flat_map(|it| &mut it.topics);
    let described =
        described.flat_map(|it| &mut it.partitions).map(|it| &mut it.last_mirror_offset);
    let looked_up = answer.lookup_results.iter_mut().flat_map(|it| &mut it.partitions);
    for offset in described.chain(looked_up.map(|it| &mut it.last_mirror_offset)) {
        *hidden += u64::from(*offset >= 0);
        *offset = -1;
    }
    mirror::encode(&answer)
}

fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

fn write_frame(stream: &mut TcpStream, frame: &[u8]) -> Option<()> {
    let length = i32::try_from(frame.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], frame].concat()).ok()
}

//! Scripted brokers for tests.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use heliostat_core::protocol::Api;
use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::protocol::Encodable;

use super::HostPort;

/// One connection of a broker.
pub(crate) type Script = Box<dyn FnOnce(&mut Peer) + Send>;

/// The broker's end of a connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    /// The last request, without its size.
    pub(crate) frame: Vec<u8>,
}

/// What a client asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) api: i16,
    pub(crate) version: i16,
    pub(crate) correlation: i32,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, frame: Vec::new() }
    }

    /// The next request, `None` once the client has gone.
    pub(crate) fn read(&mut self) -> Option<Asked> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).ok()?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
        self.stream.read_exact(&mut frame).ok()?;
        let short = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
        let correlation = i32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]]);
        let asked = Asked { api: short(0), version: short(2), correlation };
        self.frame = frame;
        Some(asked)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        // The client may have gone.
        let _ = self.stream.write_all(bytes);
    }

    pub(crate) fn answer(&mut self, to: Asked, body: &impl Encodable) {
        self.write(&frame(to, body));
    }

    pub(crate) fn negotiate(&mut self) {
        let asked = self.read().unwrap();
        assert_eq!(asked.api, 18);
        self.answer(asked, &modern());
    }
}

pub(crate) fn frame(to: Asked, body: &impl Encodable) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    frame.put_i32(to.correlation);
    let api = Api::ALL.into_iter().find(|api| api.key() == to.api).unwrap();
    if api.response_header_is_flexible(to.version) {
        frame.put_u8(0);
    }
    body.encode(&mut frame, to.version).unwrap();
    let size = i32::try_from(frame.len() - 4).unwrap();
    frame[..4].copy_from_slice(&size.to_be_bytes());
    frame.freeze()
}

pub(crate) fn versions(apis: &[(i16, i16, i16)]) -> ApiVersionsResponse {
    let keys = apis.iter().map(|&(key, min, max)| {
        ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max)
    });
    ApiVersionsResponse::default().with_api_keys(keys.collect())
}

pub(crate) fn modern() -> ApiVersionsResponse {
    versions(&[(1, 4, 17), (2, 1, 10), (3, 0, 13), (18, 0, 4), (23, 2, 4), (32, 1, 4)])
}

/// A broker on a free port of the loopback; each connection runs the next script.
pub(crate) struct Broker {
    pub(crate) at: HostPort,
    thread: Option<JoinHandle<()>>,
}

impl Broker {
    pub(crate) fn start(make: impl FnOnce(&HostPort) -> Vec<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let at = HostPort { host: Arc::from("127.0.0.1"), port };
        let scripts = make(&at);
        let thread = std::thread::spawn(move || {
            for script in scripts {
                let (stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                script(&mut Peer::new(stream));
            }
        });
        Self { at, thread: Some(thread) }
    }

    pub(crate) fn one(script: impl FnOnce(&mut Peer) + Send + 'static) -> Self {
        Self::start(|_| vec![Box::new(script)])
    }

    /// All scripts have run, and none has panicked.
    pub(crate) fn finish(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A port where nobody listens.
pub(crate) fn closed_port() -> HostPort {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    HostPort { host: Arc::from("127.0.0.1"), port: listener.local_addr().unwrap().port() }
}

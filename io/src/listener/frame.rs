//! Frames: a length of four bytes, then so many.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use futures_lite::AsyncReadExt;
use glommio::net::TcpStream;
use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::MIRROR_API_KEYS;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, RequestHeader};
use kafka_protocol::protocol::{Decodable, Encodable, Request as _, StrBytes};

/// Memory grows by this much at a time, and only with bytes that came.
const STEP_BYTES: usize = 64 << 10;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    /// The socket failed or the peer left in the middle.
    #[error("connection failed")]
    Io(#[from] io::Error),
    /// No client of ours sends this.
    #[error("frame of {length} bytes, want 0 to {length_max}: no Kafka client?")]
    FrameLength { length: i32, length_max: u32 },
    /// The frame holds no request that is served.
    #[error("request cannot be served: {0}")]
    Request(String),
    /// A response does not fit, which is our own limit.
    #[error("response cannot be encoded: {0}")]
    Response(String),
    /// An error that the response of this version has no field for.
    #[error("API key {api_key} v{version} has no field for {error}")]
    NoErrorField { api_key: i16, version: i16, error: ErrorCode },
    /// The control thread is gone, or lets the request drop.
    #[error("no answer to API key {api_key} from the control thread")]
    Unanswered { api_key: i16 },
    /// The log lost bytes while they were sent.
    #[error("segment was truncated during a response")]
    Truncated,
}

/// The next frame, `None` when the peer closed between frames.
pub(super) async fn read_frame(
    stream: &mut TcpStream,
    length_max: u32,
) -> Result<Option<Bytes>, ConnectionError> {
    let mut field = [0; 4];
    let mut have = 0;
    while let Some(rest) = field.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest).await? {
            0 if have == 0 => return Ok(None),
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            read => have += read,
        }
    }
    let length = i32::from_be_bytes(field);
    let wanted = u32::try_from(length)
        .ok()
        .filter(|&length| length <= length_max)
        .and_then(|length| usize::try_from(length).ok())
        .ok_or(ConnectionError::FrameLength { length, length_max })?;
    let mut frame = BytesMut::new();
    while frame.len() < wanted {
        let from = frame.len();
        frame.resize(wanted.min(from.saturating_add(STEP_BYTES)), 0);
        let into = frame.get_mut(from..).unwrap_or_default();
        stream.read_exact(into).await?;
    }
    Ok(Some(frame.freeze()))
}

/// A request's header, and its body as it came.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) api_key: i16,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    pub(super) client_id: Option<StrBytes>,
    pub(super) body: Bytes,
}

impl Request {
    /// The API, where kafka-protocol knows it.
    pub(super) fn api(&self) -> Option<ApiKey> {
        ApiKey::try_from(self.api_key).ok()
    }
}

/// Versions of the headers of request and response; `None` for an unknown API.
fn header_versions(api_key: i16, version: i16) -> Option<(i16, i16)> {
    if MIRROR_API_KEYS.contains(&api_key) {
        return Some((2, 1));
    }
    let api = ApiKey::try_from(api_key).ok()?;
    Some((api.request_header_version(version), api.response_header_version(version)))
}

/// Reads the header. A version of ApiVersions that is not served has a header all
/// the same, so that its client can be told.
pub(super) fn read_request(mut frame: Bytes) -> Result<Request, ConnectionError> {
    let refused = |what: &str| ConnectionError::Request(what.to_owned());
    let code = frame.first_chunk().map(|bytes| i16::from_be_bytes(*bytes));
    let version = frame.get(2..).and_then(<[u8]>::first_chunk).map(|b| i16::from_be_bytes(*b));
    let (Some(api_key), Some(version)) = (code, version) else {
        return Err(refused("shorter than a header"));
    };
    let (header, _) = header_versions(api_key, version)
        .ok_or_else(|| ConnectionError::Request(format!("unknown API key {api_key}")))?;
    if api_key == ApiVersionsRequest::KEY && !(0..=4).contains(&version) {
        let id = frame.get(4..).and_then(<[u8]>::first_chunk).map(|b| i32::from_be_bytes(*b));
        let correlation_id = id.ok_or_else(|| refused("shorter than a header"))?;
        return Ok(Request {
            api_key,
            version,
            correlation_id,
            client_id: None,
            body: Bytes::new(),
        });
    }
    let header = RequestHeader::decode(&mut frame, header)
        .map_err(|error| ConnectionError::Request(error.to_string()))?;
    let RequestHeader { correlation_id, client_id, .. } = header;
    Ok(Request { api_key, version, correlation_id, client_id, body: frame })
}

/// A whole response with its frame length.
pub(super) fn encode_response(
    request: &Request,
    version: i16,
    body: &impl Encodable,
) -> Result<Bytes, ConnectionError> {
    frame_response(request, version, |out| {
        body.encode(out, version).map_err(|error| ConnectionError::Response(error.to_string()))
    })
}

/// A whole response whose body `write` appends.
pub(super) fn frame_response(
    request: &Request,
    version: i16,
    write: impl FnOnce(&mut BytesMut) -> Result<(), ConnectionError>,
) -> Result<Bytes, ConnectionError> {
    let mut out = BytesMut::new();
    out.put_i32(0);
    out.put_i32(request.correlation_id);
    // Response header v1 has an empty set of tagged fields; ApiVersions always has v0.
    if header_versions(request.api_key, version).is_some_and(|(_, header)| header >= 1) {
        out.put_u8(0);
    }
    write(&mut out)?;
    let length = i32::try_from(out.len().saturating_sub(4))
        .map_err(|error| ConnectionError::Response(error.to_string()))?;
    if let Some(field) = out.first_chunk_mut::<4>() {
        *field = length.to_be_bytes();
    }
    Ok(out.freeze())
}

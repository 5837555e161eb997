//! Requests and responses as frames: size, header, body.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::RequestHeader;
use kafka_protocol::protocol::{Encodable, Request, StrBytes};

use super::wire::{DecodeError, Reader};

/// A request that cannot be written. Only a text that is too long for its field
/// gets here; everything else is chosen by this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request with API key {api_key} cannot be written as version {version}: {reason}")]
pub struct EncodeError {
    /// Key of the API.
    pub api_key: i16,
    /// Version that it was to be written as.
    pub version: i16,
    /// What the encoder says.
    pub reason: String,
}

/// What a request carries beside its content.
#[derive(Clone, Copy, Debug)]
pub struct RequestId<'a> {
    /// Comes back with the response.
    pub correlation_id: i32,
    /// Who asks: what operators put quotas on.
    pub client_id: &'a str,
}

/// A whole request: 4-byte size, header of the version that the API asks for, body.
pub(super) fn encode_request<R: Request>(
    id: RequestId<'_>,
    version: i16,
    request: &R,
) -> Result<Bytes, EncodeError> {
    encode_request_as(id, version, version, request)
}

/// As [`encode_request`], with a body in another version than the header says: one that
/// differs by what `request` carries as unknown tagged fields.
pub(super) fn encode_request_as<R: Request>(
    id: RequestId<'_>,
    version: i16,
    body_version: i16,
    request: &R,
) -> Result<Bytes, EncodeError> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(id.correlation_id)
        .with_client_id(Some(StrBytes::from_string(id.client_id.to_owned())));
    let refused = |reason: String| EncodeError { api_key: R::KEY, version, reason };

    let mut frame = BytesMut::new();
    frame.put_i32(0);
    header.encode(&mut frame, R::header_version(version)).map_err(|e| refused(e.to_string()))?;
    request.encode(&mut frame, body_version).map_err(|e| refused(e.to_string()))?;
    let size = i32::try_from(frame.len() - 4)
        .map_err(|_| refused(format!("{} bytes are too many", frame.len())))?;
    frame[..4].copy_from_slice(&size.to_be_bytes());
    Ok(frame.freeze())
}

/// A whole request with the header of flexible versions around a body that is written already.
///
/// # Errors
///
/// [`EncodeError`] if the client ID or the body is too long.
pub(super) fn encode_flexible(
    api_key: i16,
    version: i16,
    id: RequestId<'_>,
    body: &[u8],
) -> Result<Bytes, EncodeError> {
    let refused = |what: &str, len: usize| EncodeError {
        api_key,
        version,
        reason: format!("{len} bytes of {what} are too many"),
    };
    let client_id = id.client_id.as_bytes();
    let client_len =
        i16::try_from(client_id.len()).map_err(|_| refused("client ID", client_id.len()))?;
    // Key, version, correlation ID, the client ID with its length, no tagged fields.
    let size = 2 + 2 + 4 + 2 + client_id.len() + 1 + body.len();
    let announced = i32::try_from(size).map_err(|_| refused("request", size))?;
    let mut frame = BytesMut::with_capacity(size + 4);
    frame.put_i32(announced);
    frame.put_i16(api_key);
    frame.put_i16(version);
    frame.put_i32(id.correlation_id);
    frame.put_i16(client_len);
    frame.put_slice(client_id);
    frame.put_u8(0);
    frame.put_slice(body);
    Ok(frame.freeze())
}

/// Divides a response, without its 4-byte size, into correlation ID and body.
/// `flexible_header` says whether tagged fields follow the ID.
///
/// # Errors
///
/// [`DecodeError::PastFrame`] if it ends before its body.
pub fn split_response(frame: &[u8], flexible_header: bool) -> Result<(i32, &[u8]), DecodeError> {
    let mut reader = Reader::new(frame);
    let correlation_id = reader.i32("correlation_id")?;
    if flexible_header {
        reader.skip_tagged("tagged fields of the header")?;
    }
    Ok((correlation_id, reader.rest()))
}

//! Requests that are sent and read as whole bodies of one version.

use bytes::Bytes;

use crate::protocol::frame::encode_flexible;
use crate::protocol::mirror::field::Field;
use crate::protocol::mirror::{MirrorRequest, decode, encode};
use crate::protocol::{Api, DecodeError, EncodeError, RequestId};

/// A request of one flexible version.
pub trait AdminRequest: Field {
    /// What it is called.
    const API: Api;
    /// The version whose codec this is.
    const VERSION: i16;
    /// What answers it.
    type Response: Field;

    /// The request as a frame.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] if the client ID or the body is too long.
    fn frame(&self, id: RequestId<'_>) -> Result<Bytes, EncodeError> {
        encode_flexible(Self::API.key(), Self::VERSION, id, &encode(self))
    }

    /// Reads the body of the answer: throttle time in milliseconds, and the answer.
    ///
    /// # Errors
    ///
    /// [`DecodeError`], naming the field.
    fn answer(body: &[u8]) -> Result<(u32, Self::Response), DecodeError> {
        let response = decode(body)?;
        // It leads the answers of all these APIs but of the negotiation, which is asked once.
        let throttle_ms = body.first_chunk().map(|field| i32::from_be_bytes(*field));
        let throttle_ms = throttle_ms.filter(|_| Self::API != Api::ApiVersions);
        Ok((throttle_ms.and_then(|ms| u32::try_from(ms).ok()).unwrap_or(0), response))
    }
}

impl<M: MirrorRequest> AdminRequest for M {
    const API: Api = M::API;
    const VERSION: i16 = 0;
    type Response = M::Response;
}

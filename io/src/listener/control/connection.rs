//! One connection to the control API: requests in, answers out, in order.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_lite::AsyncWriteExt;
use futures_lite::future::or;
use glommio::net::TcpStream;
use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::MIRROR_API_KEYS;
use kafka_protocol::messages::{
    ApiVersionsRequest, FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest,
    ProduceRequest,
};
use kafka_protocol::protocol::Request as _;

use super::super::connection::decode as decode_body;
use super::super::frame::{ConnectionError, Request, encode_response, read_frame, read_request};
use super::super::service::Service;
use super::super::{fetch, net, offsets, produce};
use super::apis;
use super::decode::{Decoded, decode};
use super::encode::encode;
use super::port::{Caller, ControlPort};
use super::request::ControlRequest;
use super::response::{ControlResponse, Refusal};

/// Serves until the peer closes, stays silent for too long, or sends what no client does.
pub(in crate::listener) async fn serve(
    service: &Service,
    port: &ControlPort,
    mut stream: TcpStream,
    peer: SocketAddr,
) -> Result<(), ConnectionError> {
    let config = service.config();
    net::prepare(&stream, config.connections_max_idle)?;
    while let Some(frame) = read_frame(&mut stream, config.socket_request_max_bytes).await? {
        let request = read_request(frame)?;
        if request.api_key == FetchRequest::KEY {
            apis::check(&request)?;
            let body = decode_body::<FetchRequest>(&request)?;
            fetch::serve(service, &mut stream, &request, &body).await?;
        } else {
            let response = match answer_here(service, &request)? {
                Some(response) => response,
                None => answer(port, peer, &request).await?,
            };
            stream.write_all(&response).await?;
        }
        glommio::yield_if_needed().await;
    }
    Ok(())
}

/// Answers what is read from logs, and refuses records; `None` for what the control thread answers.
fn answer_here(service: &Service, request: &Request) -> Result<Option<Bytes>, ConnectionError> {
    let version = request.version;
    match request.api_key {
        ListOffsetsRequest::KEY => {
            apis::check(request)?;
            let body = decode_body::<ListOffsetsRequest>(request)?;
            let response = offsets::list_offsets(service, version, &body);
            encode_response(request, version, &response).map(Some)
        }
        OffsetForLeaderEpochRequest::KEY => {
            apis::check(request)?;
            let body = decode_body::<OffsetForLeaderEpochRequest>(request)?;
            let response = offsets::offset_for_leader_epoch(service, &body);
            encode_response(request, version, &response).map(Some)
        }
        ProduceRequest::KEY => {
            apis::check(request)?;
            let body = decode_body::<ProduceRequest>(request)?;
            let refusal = produce::refuse(version, &body, produce::OF_A_HOST).ok_or_else(|| {
                ConnectionError::Request("Produce with acks=0 to read-only topics".to_owned())
            })?;
            encode_response(request, version, &refusal).map(Some)
        }
        _ => Ok(None),
    }
}

async fn answer(
    port: &ControlPort,
    peer: SocketAddr,
    request: &Request,
) -> Result<Bytes, ConnectionError> {
    if request.api_key == ApiVersionsRequest::KEY {
        return apis::api_versions(request, port.features());
    }
    let asked = match decode(request)? {
        Decoded::Ask(asked) => asked,
        Decoded::Answer(response) => return encode(request, response),
    };
    let is_mirror = MIRROR_API_KEYS.contains(&request.api_key);
    if is_mirror && port.features().mirror_version() < 1 {
        let message = "mirror.version is 0: raise it to 1 first";
        let refusal = Refusal::new(ErrorCode::UNSUPPORTED_VERSION, message);
        return encode(request, asked.refused(&refusal));
    }
    let client_id = request.client_id.as_ref().map(|id| id.as_str().to_owned());
    let caller = Caller { address: peer, client_id };
    match ask(port, asked, caller).await {
        Outcome::Answered(response) => encode(request, response),
        Outcome::TimedOut => encode(request, timed_out(request)?),
        Outcome::Dropped => Err(ConnectionError::Unanswered { api_key: request.api_key }),
    }
}

/// What comes of a call.
enum Outcome {
    Answered(ControlResponse),
    TimedOut,
    Dropped,
}

async fn ask(port: &ControlPort, asked: ControlRequest, caller: Caller) -> Outcome {
    let call = async { port.call(asked, caller).await.map_or(Outcome::Dropped, Outcome::Answered) };
    let timer = async {
        glommio::timer::sleep(port.request_timeout()).await;
        Outcome::TimedOut
    };
    or(call, timer).await
}

/// The request has been given away; what it asked for is read again.
fn timed_out(request: &Request) -> Result<ControlResponse, ConnectionError> {
    match decode(request)? {
        Decoded::Ask(asked) => {
            let message = "the control thread of this host was too slow; what became of the \
                           request is unknown";
            Ok(asked.refused(&Refusal::new(ErrorCode::REQUEST_TIMED_OUT, message)))
        }
        Decoded::Answer(response) => Ok(response),
    }
}

//! One connection: requests in, answers out, in order.

use bytes::Bytes;
use futures_lite::AsyncWriteExt;
use glommio::net::TcpStream;
use heliostat_core::serve::{check_request_shape, decode_fetch};
use kafka_protocol::messages::{
    ApiKey, DescribeClusterRequest, DescribeConfigsRequest, ListOffsetsRequest, MetadataRequest,
    OffsetForLeaderEpochRequest, ProduceRequest,
};
use kafka_protocol::protocol::{Decodable, Encodable};

use super::frame::{ConnectionError, Request, encode_response, read_frame, read_request};
use super::service::{CatalogService, Service};
use super::{apis, configs, fetch, net, offsets, produce};

/// Serves until the peer closes, stays silent for too long, or sends what no client does.
pub(super) async fn serve(
    service: &CatalogService,
    mut stream: TcpStream,
) -> Result<(), ConnectionError> {
    net::prepare(&stream, service.config().connections_max_idle)?;
    let length_max = service.config().socket_request_max_bytes;
    while let Some(frame) = read_frame(&mut stream, length_max).await? {
        let request = read_request(frame)?;
        if request.api() == Some(ApiKey::Fetch) {
            check(&service.service, &request)?;
            let body = decode_fetch(request.version, &request.body)
                .map_err(|error| ConnectionError::Request(error.to_string()))?;
            fetch::serve(&service.service, &mut stream, &request, &body).await?;
        } else {
            let response = answer(service, &request)?;
            stream.write_all(&response).await?;
        }
    }
    Ok(())
}

/// Refuses what is not served, and bodies that claim more than they hold.
fn check(service: &Service, request: &Request) -> Result<ApiKey, ConnectionError> {
    let (key, version) = (request.api_key, request.version);
    let served = |api: &ApiKey| {
        let mut ranges = apis::served(service.config().followers);
        ranges.any(|(known, min, max)| known == *api && (min..=max).contains(&version))
    };
    let api = request.api().filter(served).ok_or_else(|| {
        ConnectionError::Request(format!("API key {key} v{version} is not served"))
    })?;
    check_request_shape(api, version, &request.body)
        .map_err(|error| ConnectionError::Request(error.to_string()))?;
    Ok(api)
}

pub(super) fn decode<T: Decodable>(request: &Request) -> Result<T, ConnectionError> {
    T::decode(&mut request.body.clone(), request.version)
        .map_err(|error| ConnectionError::Request(error.to_string()))
}

pub(super) fn encode(request: &Request, body: &impl Encodable) -> Result<Bytes, ConnectionError> {
    encode_response(request, request.version, body)
}

fn answer(service: &CatalogService, request: &Request) -> Result<Bytes, ConnectionError> {
    if request.api() == Some(ApiKey::ApiVersions) {
        let (version, response) = apis::api_versions(&service.service, request.version);
        return encode_response(request, version, &response);
    }
    let version = request.version;
    match check(&service.service, request)? {
        ApiKey::Metadata => {
            let body = decode::<MetadataRequest>(request)?;
            encode(request, &apis::metadata(service, version, &body))
        }
        ApiKey::DescribeCluster => {
            let body = decode::<DescribeClusterRequest>(request)?;
            encode(request, &apis::describe_cluster(service, &body))
        }
        ApiKey::ListOffsets => {
            let body = decode::<ListOffsetsRequest>(request)?;
            encode(request, &offsets::list_offsets(&service.service, version, &body))
        }
        ApiKey::OffsetForLeaderEpoch => {
            let body = decode::<OffsetForLeaderEpochRequest>(request)?;
            encode(request, &offsets::offset_for_leader_epoch(&service.service, &body))
        }
        ApiKey::DescribeConfigs => {
            let body = decode::<DescribeConfigsRequest>(request)?;
            encode(request, &configs::describe(service, version, &body))
        }
        ApiKey::Produce => {
            let body = decode::<ProduceRequest>(request)?;
            let refusal =
                produce::refuse(version, &body, produce::OF_A_MIRROR).ok_or_else(|| {
                    ConnectionError::Request("Produce with acks=0 to read-only topics".to_owned())
                })?;
            encode(request, &refusal)
        }
        other => Err(ConnectionError::Request(format!("{other:?} is not served"))),
    }
}

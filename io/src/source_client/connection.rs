//! One connection to one broker: versions are negotiated first, then one request at a
//! time is asked and answered.

use std::time::Duration;

use bytes::Bytes;
use heliostat_core::protocol::admin::AdminRequest;
use heliostat_core::protocol::{
    Api, ApiRange, ApiVersions, BrokerApis, DecodeError, EncodeError, ErrorCode, FetchPlan,
    RequestId, split_response,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::error::{Cause, SourceError};
use super::host_port::HostPort;
use super::transport::{SocketOptions, Transport, connect};

/// Memory grows in such steps while a response arrives, and not by what its size announces.
const READ_STEP: usize = 64 << 10;

/// A broker's quota may silence us for so long and no longer: the field is the peer's.
const THROTTLE_MAX: Duration = Duration::from_secs(60);

/// Settings of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionOptions {
    pub(crate) client_id: String,
    pub(crate) socket: SocketOptions,
    pub(crate) request_timeout: Duration,
    /// Largest response that is taken, in bytes.
    pub(crate) response_bytes_max: u32,
}

/// A connection on which versions are known and nothing is under way.
pub(crate) struct Connection {
    peer: HostPort,
    transport: Box<dyn Transport>,
    options: ConnectionOptions,
    apis: BrokerApis,
    next_correlation: i32,
    answered: bool,
    silent_until: Instant,
}

impl Connection {
    /// Connects and negotiates.
    pub(crate) async fn open(
        peer: &HostPort,
        options: &ConnectionOptions,
    ) -> Result<Self, SourceError> {
        let failed = |cause| SourceError::Broker { peer: peer.clone(), cause };
        let transport = connect(peer, &options.socket).await.map_err(failed)?;
        let mut it = Self {
            peer: peer.clone(),
            transport,
            options: options.clone(),
            apis: BrokerApis::default(),
            next_correlation: 0,
            answered: false,
            silent_until: Instant::now(),
        };
        it.negotiate().await.map_err(failed)?;
        Ok(it)
    }

    /// What the broker offers.
    pub(super) fn apis(&self) -> BrokerApis {
        self.apis
    }

    async fn negotiate(&mut self) -> Result<(), Cause> {
        let mut version = Api::ApiVersions.ours().max;
        for _ in 0..2 {
            let answer = self
                .exchange(
                    Api::ApiVersions,
                    version,
                    |id| ApiVersions::request(version, id),
                    |body| ApiVersions::decode(version, body),
                )
                .await?;
            match answer.error {
                ErrorCode::NONE => {
                    self.throttle(answer.throttle_ms);
                    self.apis = answer.apis;
                    return Ok(());
                }
                ErrorCode::UNSUPPORTED_VERSION if version > 0 => {
                    version = answer.retry_version().min(version - 1);
                }
                error => return Err(Cause::Answer { api: Api::ApiVersions, error }),
            }
        }
        let error = ErrorCode::UNSUPPORTED_VERSION;
        Err(Cause::Answer { api: Api::ApiVersions, error })
    }

    /// Asks and waits for the answer. After an error the connection is out of step and
    /// must be dropped.
    pub(crate) async fn call<T>(
        &mut self,
        api: Api,
        encode: impl FnOnce(i16, RequestId<'_>) -> Result<Bytes, EncodeError>,
        decode: impl FnOnce(i16, &[u8]) -> Result<(u32, T), DecodeError>,
    ) -> Result<T, SourceError> {
        let outcome = async {
            let version = self.apis.negotiate(api).map_err(|error| Cause::Version { error })?;
            sleep_until(self.silent_until).await;
            let (throttle_ms, answer) = self
                .exchange(api, version, |id| encode(version, id), |body| decode(version, body))
                .await?;
            self.throttle(throttle_ms);
            Ok(answer)
        };
        let outcome: Result<T, Cause> = outcome.await;
        outcome.map_err(|cause| SourceError::Broker { peer: self.peer.clone(), cause })
    }

    /// Asks one of the requests that have one version, and waits for the answer. After an
    /// error the connection is out of step and must be dropped.
    pub(crate) async fn ask<R: AdminRequest>(
        &mut self,
        request: &R,
    ) -> Result<R::Response, SourceError> {
        let outcome = async {
            let ours = ApiRange { min: R::VERSION, max: R::VERSION };
            let version = self.apis.negotiate_within(R::API, ours);
            let version = version.map_err(|error| Cause::Version { error })?;
            sleep_until(self.silent_until).await;
            let (throttle_ms, answer) =
                self.exchange(R::API, version, |id| request.frame(id), R::answer).await?;
            self.throttle(throttle_ms);
            Ok(answer)
        };
        let outcome: Result<_, Cause> = outcome.await;
        outcome.map_err(|cause| SourceError::Broker { peer: self.peer.clone(), cause })
    }

    /// Asks for records, and gives the response as it came, its size left out, with the
    /// version that it has. After an error the connection must be dropped.
    pub(super) async fn fetch(
        &mut self,
        plan: &FetchPlan<'_>,
        all_topics_have_ids: bool,
    ) -> Result<(i16, Vec<u8>), SourceError> {
        let outcome = async {
            let version = self
                .apis
                .fetch_version(all_topics_have_ids)
                .map_err(|error| Cause::Version { error })?;
            let correlation_id = self.next_correlation;
            self.next_correlation = self.next_correlation.wrapping_add(1);
            let id = RequestId { correlation_id, client_id: &self.options.client_id };
            let request = plan.encode(version, id).map_err(|error| Cause::Encode { error })?;
            let deadline = Instant::now() + self.options.request_timeout;
            let frame = self.send_and_receive(Api::Fetch, &request, deadline).await?;
            Ok((version, frame))
        };
        let outcome: Result<_, Cause> = outcome.await;
        outcome.map_err(|cause| SourceError::Broker { peer: self.peer.clone(), cause })
    }

    fn throttle(&mut self, throttle_ms: u32) {
        let wait = Duration::from_millis(throttle_ms.into()).min(THROTTLE_MAX);
        self.silent_until = Instant::now() + wait;
    }

    async fn exchange<T>(
        &mut self,
        api: Api,
        version: i16,
        encode: impl FnOnce(RequestId<'_>) -> Result<Bytes, EncodeError>,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<T, Cause> {
        let correlation_id = self.next_correlation;
        self.next_correlation = self.next_correlation.wrapping_add(1);
        let id = RequestId { correlation_id, client_id: &self.options.client_id };
        let request = encode(id).map_err(|error| Cause::Encode { error })?;

        let deadline = Instant::now() + self.options.request_timeout;
        let frame = self.send_and_receive(api, &request, deadline).await?;
        self.answered = true;
        let broken = |error| Cause::Decode { api, error };
        let flexible = api.response_header_is_flexible(version);
        let (got, body) = split_response(&frame, flexible).map_err(broken)?;
        if got != correlation_id {
            return Err(Cause::Correlation { got, want: correlation_id });
        }
        decode(body).map_err(broken)
    }

    async fn send_and_receive(
        &mut self,
        api: Api,
        request: &[u8],
        deadline: Instant,
    ) -> Result<Vec<u8>, Cause> {
        let after = self.options.request_timeout;
        match timeout_at(deadline, self.transport.write_all(request)).await {
            Ok(Ok(())) => {}
            // What the peer said before it closed explains more than a broken pipe.
            Ok(Err(error)) => return Err(self.broken(api, 0, &error)),
            Err(_) => return Err(Cause::Silent { api, after }),
        }

        let mut received = Vec::with_capacity(4);
        self.receive(api, &mut received, 4, deadline).await?;
        let size = self.frame_size(api, &received)?;
        received.clear();
        self.receive(api, &mut received, size, deadline).await.map_err(|cause| match cause {
            // The size counts as well.
            Cause::Stalled { api, received, announced, after } => {
                Cause::Stalled { api, received: received + 4, announced: announced + 4, after }
            }
            Cause::Silent { api, after } => {
                let announced = u64::try_from(size).unwrap_or(u64::MAX).saturating_add(4);
                Cause::Stalled { api, received: 4, announced, after }
            }
            other => other,
        })?;
        Ok(received)
    }

    /// Reads until `buffer` holds `want` bytes.
    async fn receive(
        &mut self,
        api: Api,
        buffer: &mut Vec<u8>,
        want: usize,
        deadline: Instant,
    ) -> Result<(), Cause> {
        while buffer.len() < want {
            let left = want - buffer.len();
            buffer.reserve(left.min(READ_STEP));
            let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
            let mut limited = (&mut self.transport).take(count(left));
            match timeout_at(deadline, limited.read_buf(buffer)).await {
                Ok(Ok(0)) => return Err(self.closed(api, buffer)),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(self.broken(api, count(buffer.len()), &error)),
                Err(_) => {
                    let (received, announced) = (count(buffer.len()), count(want));
                    let after = self.options.request_timeout;
                    return Err(if buffer.is_empty() {
                        Cause::Silent { api, after }
                    } else {
                        Cause::Stalled { api, received, announced, after }
                    });
                }
            }
        }
        Ok(())
    }

    fn closed(&self, api: Api, received: &[u8]) -> Cause {
        if self.answered || !received.is_empty() {
            let received = u64::try_from(received.len()).unwrap_or(u64::MAX);
            return Cause::Closed { api, received };
        }
        Cause::ClosedAtOnce
    }

    fn broken(&self, api: Api, received: u64, error: &std::io::Error) -> Cause {
        let is_reset = matches!(
            error.kind(),
            std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe
        );
        if is_reset && !self.answered && received == 0 {
            return Cause::ClosedAtOnce;
        }
        Cause::Lost { api, reason: error.to_string().into() }
    }

    /// Size of the response, if these are the first bytes of one.
    fn frame_size(&self, api: Api, head: &[u8]) -> Result<usize, Cause> {
        let head = <[u8; 4]>::try_from(head).unwrap_or_default();
        if !self.answered {
            match head {
                [b'H', b'T', b'T', b'P'] => return Err(Cause::Http),
                // An alert or a handshake record of SSL 3 to TLS 1.3.
                [0x15 | 0x16, 3, 0..=4, _] => return Err(Cause::Tls),
                _ => {}
            }
        }
        let got = i32::from_be_bytes(head);
        let max = self.options.response_bytes_max;
        match u32::try_from(got) {
            Ok(size @ 4..) if size <= max => Ok(usize::try_from(size).unwrap_or(usize::MAX)),
            _ => {
                let error = DecodeError::FrameSize { got: got.into(), min: 4, max: max.into() };
                Err(Cause::Decode { api, error })
            }
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).finish_non_exhaustive()
    }
}

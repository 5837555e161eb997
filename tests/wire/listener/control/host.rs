//! A listener of a control API, with the control thread's end of it in the test's hands.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use heliostat_core::protocol::mirror::{self, Field, MirrorRequest};
use heliostat_core::serve::NodeEndpoint;
use heliostat_io::listener::control::{
    ControlCall, ControlCalls, ControlLimits, ControlRequest, ControlResponse, FeatureLevels,
    MetadataAnswer, MetadataQuery, TopicRef, control_port,
};
use heliostat_io::listener::{Listener, ListenerConfig};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, RequestHeader, TopicName};
use kafka_protocol::protocol::{Encodable, Request};
use std::io::Write;
use tokio::runtime::{Builder, Runtime};

use crate::client::{Client, NODE, PATIENCE, listener_config, text};

/// Level and epoch of the features at first.
pub(super) const EPOCH: i64 = 17;

pub(super) struct Host {
    pub(super) listener: Option<Listener>,
    pub(super) calls: Option<ControlCalls>,
    pub(super) features: Arc<FeatureLevels>,
    runtime: Runtime,
}

impl Host {
    pub(super) fn new() -> Self {
        Self::with(ControlLimits::default(), |_| {})
    }

    pub(super) fn with(limits: ControlLimits, change: impl FnOnce(&mut ListenerConfig)) -> Self {
        let features = Arc::new(FeatureLevels::new(1, EPOCH));
        let (port, calls) = control_port(limits, Arc::clone(&features));
        let mut config = listener_config();
        change(&mut config);
        let listener = Listener::start_control(config, port).expect("loopback");
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        Self { listener: Some(listener), calls: Some(calls), features, runtime }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.listener.as_ref().expect("running").address()
    }

    pub(super) fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// The next call, `None` once the listener is gone.
    pub(super) fn try_next(&mut self) -> Option<ControlCall> {
        let calls = self.calls.as_mut().expect("not dropped");
        let next = async { tokio::time::timeout(PATIENCE, calls.next()).await };
        self.runtime.block_on(next).expect("a call in time")
    }

    pub(super) fn next(&mut self) -> ControlCall {
        self.try_next().expect("a call")
    }

    /// Sends a request and answers it as the control thread; the response.
    pub(super) fn trip<R: Request>(
        &mut self,
        client: &mut Client,
        (version, request): (i16, &R),
        want: ControlRequest,
        answer: ControlResponse,
    ) -> R::Response {
        let id = client.send(version, request);
        let call = self.next();
        assert_eq!(call.request, want, "v{version}");
        assert_eq!(call.caller.client_id.as_deref(), Some("test"));
        assert_eq!(call.caller.address, client.stream.local_addr().expect("connected"));
        assert!(call.answer(answer));
        client.receive::<R>(version, id)
    }

    /// Shows that the connection works and that the control thread got nothing else meanwhile.
    pub(super) fn serves_only(&mut self, client: &mut Client, name: &str) {
        let request = ask_for(name);
        let id = client.send(13, &request);
        let call = self.next();
        assert_eq!(call.request, ControlRequest::Metadata(query(name)));
        assert!(call.answer(ControlResponse::Metadata(Ok(nothing()))));
        assert_eq!(client.receive::<MetadataRequest>(13, id).error_code, 0);
    }
}

/// Metadata of one topic, for version 4 and above.
pub(super) fn ask_for(name: &str) -> MetadataRequest {
    let topic = MetadataRequestTopic::default().with_name(Some(TopicName(text(name))));
    MetadataRequest::default().with_topics(Some(vec![topic]))
}

pub(super) fn query(name: &str) -> MetadataQuery {
    MetadataQuery {
        topics: Some(vec![TopicRef::Name(name.to_owned())]),
        allow_auto_topic_creation: true,
        include_topic_authorized_operations: false,
        include_cluster_authorized_operations: false,
    }
}

pub(super) fn node() -> NodeEndpoint {
    NodeEndpoint { node: NODE, host: "here".into(), port: 9092 }
}

pub(super) fn nothing() -> MetadataAnswer {
    MetadataAnswer {
        brokers: vec![node()],
        cluster_id: "dst".to_owned(),
        controller: NODE,
        topics: Vec::new(),
        authorized_operations: None,
    }
}

/// Correlation ID of requests that are written by hand.
const RAW_ID: i32 = 77;

/// A frame with a flexible header, as the mirrors' APIs and newer versions have it.
pub(super) fn frame(api_key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let header = RequestHeader::default()
        .with_request_api_key(api_key)
        .with_request_api_version(version)
        .with_correlation_id(RAW_ID)
        .with_client_id(Some(text("test")));
    let mut out = BytesMut::new();
    out.put_i32(0);
    header.encode(&mut out, 2).expect("header");
    out.put_slice(body);
    let length = i32::try_from(out.len() - 4).expect("small");
    out[..4].copy_from_slice(&length.to_be_bytes());
    out.to_vec()
}

pub(super) fn send_raw(client: &mut Client, api_key: i16, version: i16, body: &[u8]) {
    client.stream.write_all(&frame(api_key, version, body)).expect("sent");
}

/// Body of the response to a request that was written by hand.
pub(super) fn receive_raw(client: &mut Client) -> Bytes {
    let mut frame = client.frame();
    assert_eq!(frame.get_i32(), RAW_ID);
    assert_eq!(frame.get_u8(), 0, "no tagged fields in the header");
    frame
}

pub(super) fn send_mirror<M: MirrorRequest>(client: &mut Client, request: &M) {
    send_raw(client, M::API_KEY, 0, &mirror::encode(request));
}

pub(super) fn receive_mirror<M: Field>(client: &mut Client) -> M {
    mirror::decode(&receive_raw(client)).expect("the API's own schema")
}

//! The way from connections to the control thread and back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::features::FeatureLevels;
use super::request::ControlRequest;
use super::response::{ControlResponse, Refusal};

/// More than any queue needs, and less than a queue can have.
const QUEUED_REQUESTS_MAX: usize = 1 << 20;

/// How much may wait, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct ControlLimits {
    /// `queued.max.requests`: calls that the control thread has not taken yet. Beyond it
    /// connections read no further. At least 1, at most a million.
    pub queued_requests_max: usize,
    /// From a request's last byte to its answer; after it, the connection answers
    /// REQUEST_TIMED_OUT by itself, or closes where the response has no field for it.
    pub request_timeout: Duration,
}

impl Default for ControlLimits {
    fn default() -> Self {
        Self { queued_requests_max: 500, request_timeout: Duration::from_secs(30) }
    }
}

/// Makes both ends: one for listeners, one for the control thread.
pub fn control_port(
    limits: ControlLimits,
    features: Arc<FeatureLevels>,
) -> (ControlPort, ControlCalls) {
    let (sender, receiver) =
        mpsc::channel(limits.queued_requests_max.clamp(1, QUEUED_REQUESTS_MAX));
    let port = ControlPort { calls: sender, features, request_timeout: limits.request_timeout };
    (port, ControlCalls { calls: receiver })
}

/// The listeners' end.
#[derive(Clone, Debug)]
pub struct ControlPort {
    calls: mpsc::Sender<ControlCall>,
    features: Arc<FeatureLevels>,
    request_timeout: Duration,
}

impl ControlPort {
    pub(super) fn features(&self) -> &FeatureLevels {
        &self.features
    }

    pub(super) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// The control thread's answer, as late as it comes; `None` if it is gone or lets the
    /// call drop. Dropping the future withdraws the call, unless it has been taken.
    pub(super) async fn call(
        &self,
        request: ControlRequest,
        caller: Caller,
    ) -> Option<ControlResponse> {
        let (sender, receiver) = oneshot::channel();
        let call = ControlCall { request, caller, reply: ControlReply(sender) };
        self.calls.send(call).await.ok()?;
        receiver.await.ok()
    }
}

/// The control thread's end. Dropping it ends all connections at their next request.
#[derive(Debug)]
pub struct ControlCalls {
    calls: mpsc::Receiver<ControlCall>,
}

impl ControlCalls {
    /// The next call, in the order of their coming; `None` once all listeners are gone.
    /// Calls that nobody waits for any more, since they timed out or their connection was
    /// ended, are passed over. A future that is dropped loses no call.
    pub async fn next(&mut self) -> Option<ControlCall> {
        loop {
            let call = self.calls.recv().await?;
            if call.reply.is_awaited() {
                return Some(call);
            }
        }
    }

    /// Calls that have not been taken yet, at most
    /// [`ControlLimits::queued_requests_max`]; those that will be passed over included.
    pub fn waiting(&self) -> usize {
        self.calls.len()
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Where from.
    pub address: SocketAddr,
    /// What it calls itself; `None` for null.
    pub client_id: Option<String>,
}

/// A request that waits for its answer. Dropping it closes the connection that asked.
#[derive(Debug)]
pub struct ControlCall {
    /// What is asked.
    pub request: ControlRequest,
    /// By whom.
    pub caller: Caller,
    /// Takes the answer.
    pub reply: ControlReply,
}

impl ControlCall {
    /// Answers; `false` if nobody waits for it any more.
    pub fn answer(self, response: ControlResponse) -> bool {
        self.reply.answer(response)
    }

    /// Refuses the whole request; `false` if nobody waits for it any more.
    pub fn refuse(self, refusal: &Refusal) -> bool {
        let response = self.request.refused(refusal);
        self.reply.answer(response)
    }
}

/// Takes one answer, from any thread.
#[derive(Debug)]
pub struct ControlReply(oneshot::Sender<ControlResponse>);

impl ControlReply {
    /// Answers; `false` if nobody waits for it any more.
    pub fn answer(self, response: ControlResponse) -> bool {
        self.0.send(response).is_ok()
    }

    /// Whether somebody waits for the answer.
    pub fn is_awaited(&self) -> bool {
        !self.0.is_closed()
    }
}

//! One connection's traffic on the shard's thread: requests wait to be sent, answers
//! are received straight into the buffers that the engine offers.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_lite::{AsyncRead, AsyncWrite};
use heliostat_core::engine::{ConnectionId, Shard};

use super::{LowWater, Signal};

/// Between the actions of the engine and the task that owns the socket.
#[derive(Debug, Default)]
pub struct Link {
    outbox: RefCell<VecDeque<Bytes>>,
    closed: Cell<bool>,
    changed: Signal,
    /// What the socket was last told; 0 for nothing, which the kernel takes for 1.
    low_water: Cell<usize>,
}

/// What happened on a connection.
#[derive(Debug)]
pub enum Next {
    /// So many bytes lie in the offered buffer.
    Received(usize),
    /// A request went out.
    Sent,
    /// The engine wants it no more.
    Closed,
    /// The peer or the network ended it.
    Broken(io::Error),
}

impl Link {
    /// Sends `bytes` after what waits already. The engine has one request in flight.
    pub fn send(&self, bytes: Bytes) {
        self.outbox.borrow_mut().push_back(bytes);
        self.changed.raise();
    }

    /// Ends the connection.
    pub fn close(&self) {
        self.closed.set(true);
        self.changed.raise();
    }

    /// There may be a buffer again.
    pub fn wake(&self) {
        self.changed.raise();
    }

    /// Resolves once [`Self::close`] was called.
    pub async fn closed(&self) {
        while !self.closed.get() {
            self.changed.raised().await;
        }
    }

    /// Sends what waits, otherwise receives. Buffers are asked for at the moment when
    /// they are needed, so none is lent while the peer is silent.
    pub async fn next<'a, S, F>(&self, stream: &mut S, shard: F, connection: ConnectionId) -> Next
    where
        S: AsyncRead + AsyncWrite + LowWater + Unpin,
        F: Fn() -> RefMut<'a, Shard>,
    {
        poll_fn(|cx| {
            // Registers this task; what was raised is looked at below.
            while self.changed.poll_raised(cx).is_ready() {}
            if self.closed.get() {
                return Poll::Ready(Next::Closed);
            }
            if !self.outbox.borrow().is_empty() {
                return self.poll_send(stream, cx);
            }
            let mut shard = shard();
            let low_water = shard.low_water(connection);
            let Some(buffer) = shard.read_buffer(connection) else { return Poll::Pending };
            let received = Pin::new(&mut *stream).poll_read(cx, buffer);
            if received.is_pending() && low_water != self.low_water.replace(low_water).max(1) {
                // Refused, it only costs wake-ups.
                if let Err(error) = stream.set_low_water(low_water) {
                    tracing::debug!(%error, "the socket's low water mark was not set");
                }
            }
            received.map(|received| match received {
                Ok(0) => Next::Broken(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the broker closed the connection",
                )),
                Ok(n) => Next::Received(n),
                Err(error) => Next::Broken(error),
            })
        })
        .await
    }

    fn poll_send<S: AsyncWrite + Unpin>(&self, stream: &mut S, cx: &mut Context<'_>) -> Poll<Next> {
        let mut outbox = self.outbox.borrow_mut();
        while let Some(bytes) = outbox.front_mut() {
            match Pin::new(&mut *stream).poll_write(cx, bytes) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Next::Broken(error)),
                Poll::Ready(Ok(n)) => bytes.advance(n),
            }
            if bytes.is_empty() {
                outbox.pop_front();
            }
        }
        Poll::Ready(Next::Sent)
    }
}

//! A client's connection that stays open behind the head of a reply: server-sent events, WebSocket.
//! Whoever serves requests hands the [`Client`] to a [`Feed`], which keeps it for as long as it
//! likes.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::handler::{LocalFuture, Services};
use crate::observe::FlowMetrics;

/// How many bytes of a client that only listens are kept: requests that it sends ahead.
const AHEAD_MAX: usize = 64 * 1024;

/// Why a stream has to end that its client would go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The engine stops, or the address is served no more.
    Engine,
    /// The client's credential has expired.
    Expired,
    /// The client's credential has been revoked.
    Revoked,
}

impl StopReason {
    /// What a client reads of a credential that is valid no more, in a close frame or in the JSON
    /// of a typed event; none where the credential is not the reason.
    #[must_use]
    pub fn detail(self) -> Option<&'static str> {
        match self {
            Self::Engine => None,
            Self::Expired => Some("the credential has expired"),
            Self::Revoked => Some("the credential has been revoked"),
        }
    }

    /// The type of the event that says so: `expired` or `revoked`.
    #[must_use]
    pub fn event(self) -> Option<&'static str> {
        match self {
            Self::Engine => None,
            Self::Expired => Some("expired"),
            Self::Revoked => Some("revoked"),
        }
    }
}

/// A client's connection that stays open behind the head of a reply. Every `poll` that is pending
/// wakes the task when it has to be asked again.
///
/// A client that is dropped without [`Client::poll_finish`] is cut off: it learns that what it got
/// is not all.
pub trait Client {
    /// Reads once and puts what came behind [`Client::input`]. `Ok(0)`: the client has finished, or
    /// given the stream up. While it is pending and no input waits, no buffer is held. Whoever
    /// calls it bounds the input.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// What the client has sent and nobody has consumed; at the beginning, what it had sent behind
    /// the request.
    fn input(&self) -> &[u8];

    /// Drops the first bytes of the input.
    fn consume(&mut self, count: usize);

    /// Writes some of these bytes, at least one. A write that was pending must be repeated with
    /// the same bytes at its front.
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Ready when the socket has taken everything that was written. Reading flushes too.
    fn poll_flush(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// How many bytes of TLS records the socket has taken, where that is known. Together with what
    /// was written it tells whether a slow client makes progress.
    fn records_taken(&self) -> u64 {
        0
    }

    /// Ends the stream properly; nothing may be written behind it. Ready when the client has taken
    /// it all, or has had time for that.
    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ready when the engine stops, the address is served no more, or the client's credential has
    /// expired or been revoked: the feed ends the stream then.
    /// What has not ended when the time for that is over is cut.
    fn poll_stop(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Why [`Client::poll_stop`] is ready.
    fn stop_reason(&self) -> StopReason {
        StopReason::Engine
    }

    /// Whether what is written must be whole chunks of RFC 9112, section 7.1, so that events can
    /// be encoded once with their chunk around them. The last chunk comes from
    /// [`Client::poll_finish`]. Otherwise plain bytes are written.
    fn is_chunked(&self) -> bool;

    /// The address of the client.
    fn peer(&self) -> IpAddr;

    /// The counters of the flow that the stream is of, for the messages on it; this worker alone
    /// writes to them.
    fn metrics(&self) -> Option<&Arc<FlowMetrics>> {
        None
    }
}

/// What goes on with a client's connection when the head of the reply has been written.
pub trait Feed {
    /// Serves the client until one of them ends the stream.
    fn run<'a>(
        self: Box<Self>,
        client: Box<dyn Client>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, ()>;
}

impl fmt::Debug for dyn Feed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Feed")
    }
}

/// Ready when a client that only listens has left. What it sends all the same is kept, up to a
/// bound.
pub fn poll_gone(client: &mut dyn Client, context: &mut Context<'_>) -> Poll<()> {
    while client.input().len() < AHEAD_MAX {
        match ready!(client.poll_fill(context)) {
            Ok(count) if count > 0 => {}
            _ => return Poll::Ready(()),
        }
    }
    // Nothing more is read, so what waits is written here.
    match client.poll_flush(context) {
        Poll::Ready(Err(_)) => Poll::Ready(()),
        _ => Poll::Pending,
    }
}

/// Writes all of these bytes.
///
/// # Errors
/// When the connection has ended.
pub async fn write_all(client: &mut dyn Client, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    poll_fn(|context| {
        while !rest.is_empty() {
            let count = ready!(client.poll_write(context, rest))?;
            rest = rest.get(count..).unwrap_or_default();
        }
        client.poll_flush(context)
    })
    .await
}

//! One request on an upstream connection, up to the head of its reply: the head and what is there
//! of the body go out at once, the rest of the body follows while the reply is awaited.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use message::{Fault, Method};
use net::Connection;
use net::deadline::Deadline;
use net::http1::{HeadError, HeadLimits, ResponseHead};
use tokio::time::Instant;

use crate::bridge::poll_http1_head;
use crate::pipe::{Pipe, PipeError};

/// How much a client may send ahead while it waits for a reply.
const AHEAD_MAX: usize = 64 * 1024;

/// Why there is no reply to relay.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client has left: there is nobody to answer.
    ClientGone,
    /// The client's body is malformed.
    ClientInvalid(&'static str),
    /// The client's body stands still.
    ClientSlow,
    /// No connection could be made.
    Connect(io::Error),
    /// No connection could be made in time.
    ConnectTimeout,
    /// All connections are in use, and too many wait or this one has waited too long.
    QueueFull,
    /// The upstream has refused the request and not acted on it (RFC 9113, section 8.7).
    Refused,
    /// The client wants to switch to WebSocket, which HTTP/2 to the upstream does not carry.
    NoUpgrade,
    /// A limit of the flow stands against it.
    Limited(Box<Fault>),
    /// The connection ended before the reply began.
    Closed(io::Error),
    /// The reply's head is malformed.
    Invalid(HeadError),
    /// The reply did not come in time.
    ReplyTimeout,
}

/// A failure, and whether the request may be sent again.
#[derive(Debug)]
pub(crate) struct Failed {
    pub failure: Failure,
    /// Nothing of the request has been acted on, or acting twice is no harm, and all of it is at
    /// hand.
    pub repeatable: bool,
}

impl Failure {
    /// Whether it speaks against the endpoint.
    pub fn is_upstreams(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::ConnectTimeout
                | Self::Closed(_)
                | Self::Invalid(_)
                | Self::ReplyTimeout
        )
    }
}

/// The client's side while a request is under way.
pub(crate) struct ClientBody<'a> {
    pub connection: &'a mut Connection,
    /// What is left of the request's body.
    pub upload: &'a mut Pipe,
}

/// One request on an upstream connection.
pub(crate) struct Exchange<'a> {
    pub client: ClientBody<'a>,
    pub upstream: &'a mut Connection,
    pub deadline: &'a Deadline,
    /// The head, and the body as far as it was there.
    pub out: &'a [u8],
    pub written: usize,
    pub response: &'a mut ResponseHead,
    /// The method that was sent.
    pub method: &'a Method,
    pub limits: HeadLimits,
    pub body_time: Duration,
    pub response_time: Duration,
    /// The connection takes no more; there may be a reply all the same.
    pub write_error: Option<io::Error>,
    /// What [`Exchange::progress`] was when the deadline was set.
    pub seen_progress: u64,
}

impl Exchange<'_> {
    /// Ready when a head is complete at the front of the upstream's input, interim ones included.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let sent = match self.poll_send(context) {
            Poll::Ready(Err(failure)) => return Poll::Ready(Err(failure)),
            Poll::Ready(Ok(())) => true,
            Poll::Pending => false,
        };
        if let Poll::Ready(result) = self.poll_reply(context) {
            return Poll::Ready(result);
        }
        if sent && has_left(context, self.client.connection) {
            return Poll::Ready(Err(Failure::ClientGone));
        }
        let progress = self.progress() + u64::from(sent);
        if progress != self.seen_progress {
            self.seen_progress = progress;
            let time = if sent {
                self.response_time
            } else {
                self.body_time
            };
            self.deadline.set(Instant::now(), time);
        }
        if self.deadline.poll(context).is_pending() {
            return Poll::Pending;
        }
        let waits_for_client = !sent && self.written == self.out.len();
        Poll::Ready(Err(if waits_for_client {
            Failure::ClientSlow
        } else {
            Failure::ReplyTimeout
        }))
    }

    fn progress(&self) -> u64 {
        self.client.upload.moved + self.written as u64
    }

    /// Ready when the whole request is out, or the connection takes no more of it.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if self.write_error.is_some() {
            return Poll::Ready(Ok(()));
        }
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.upstream.poll_write(context, rest) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => {
                    self.write_error = Some(error);
                    return Poll::Ready(Ok(()));
                }
            }
        }
        let client = &mut self.client;
        if client.upload.is_done() {
            return Poll::Ready(Ok(()));
        }
        match client
            .upload
            .poll(context, client.connection, self.upstream)
        {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(PipeError::Malformed(reason))) => {
                Poll::Ready(Err(Failure::ClientInvalid(reason)))
            }
            Poll::Ready(Err(PipeError::Truncated | PipeError::Source(_))) => {
                Poll::Ready(Err(Failure::ClientGone))
            }
            Poll::Ready(Err(PipeError::Sink(error))) => {
                self.write_error = Some(error);
                Poll::Ready(Ok(()))
            }
        }
    }

    fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let upstream = &mut *self.upstream;
        poll_http1_head(context, upstream, self.response, self.method, self.limits).map_err(
            |failure| match (failure, self.write_error.take()) {
                (Failure::Closed(_), Some(error)) => Failure::Closed(error),
                (failure, _) => failure,
            },
        )
    }
}

/// Whether a client that waits for its reply has closed the connection. Requests that it sends
/// ahead are read up to a bound.
pub(crate) fn has_left(context: &mut Context<'_>, client: &mut Connection) -> bool {
    while client.input.len() < AHEAD_MAX {
        match client.poll_fill(context) {
            Poll::Pending => return false,
            Poll::Ready(Ok(count)) if count > 0 => {}
            Poll::Ready(_) => return true,
        }
    }
    false
}

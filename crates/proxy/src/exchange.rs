//! One request on an upstream connection, up to the head of its reply: the head and what is there
//! of the body go out at once, the rest of the body follows while the reply is awaited.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use message::Method;
use net::Connection;
use net::deadline::Deadline;
use net::http1::{HeadError, HeadLimits, ResponseHead};
use tokio::time::Instant;

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
    /// The connection ended before the reply began.
    Closed(io::Error),
    /// The reply's head is malformed.
    Invalid(HeadError),
    /// The reply did not come in time.
    ReplyTimeout,
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
    pub client: Option<ClientBody<'a>>,
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
        if let Some(client) = &mut self.client
            && sent
            && has_left(context, client.connection)
        {
            return Poll::Ready(Err(Failure::ClientGone));
        }
        let progress = self.progress();
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
        self.client.as_ref().map_or(0, |client| client.upload.moved)
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
        let Some(client) = self
            .client
            .as_mut()
            .filter(|client| !client.upload.is_done())
        else {
            return Poll::Ready(Ok(()));
        };
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
        loop {
            let bytes = self.upstream.input.bytes();
            if !bytes.is_empty() {
                match self.response.parse(bytes, self.method, self.limits) {
                    Err(error) => return Poll::Ready(Err(Failure::Invalid(error))),
                    Ok(true) => return Poll::Ready(Ok(())),
                    Ok(false) => {}
                }
            }
            let error = match self.upstream.poll_fill(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => self.end_of_connection(),
                Poll::Ready(Ok(_)) => continue,
                Poll::Ready(Err(error)) => error,
            };
            if self.upstream.input.is_empty() {
                return Poll::Ready(Err(Failure::Closed(error)));
            }
            let reason = "the connection ended within the head";
            return Poll::Ready(Err(Failure::Invalid(HeadError {
                status: 400,
                reason,
            })));
        }
    }

    fn end_of_connection(&mut self) -> io::Error {
        let closed = || io::Error::new(io::ErrorKind::UnexpectedEof, "closed before a reply");
        self.write_error.take().unwrap_or_else(closed)
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

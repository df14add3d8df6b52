//! The relay: one request and its reply between a client and a back end, whichever versions of HTTP
//! they speak, written once.
//!
//! Each side is a [`Source`] of one body and a [`Sink`] for the other. [`pump`] moves a body from
//! a source to a sink; it is the only loop that does. A [`tap`] looks at a body on its way.
//! [`exchange`] runs the request and its reply over it, [`send`] chooses the connection and repeats
//! what may be repeated. The sides: [`downstream_http1`], [`downstream_http2`] and, for calls of
//! steps, [`collect`]; [`upstream_http1`] and [`upstream_http2`].

pub(crate) mod authorize;
pub(crate) mod collect;
mod content;
pub(crate) mod downstream_http1;
pub(crate) mod downstream_http2;
pub(crate) mod exchange;
pub(crate) mod failure;
pub(crate) mod least_rate;
pub(crate) mod send;
pub(crate) mod stream;
pub(crate) mod tap;
pub(crate) mod upstream_http1;
mod upstream_http2;

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use component::forward::ForwardPlan;
use component::settings::Settings;
use message::{Field, HeadersView, Method};
use net::Connection;
use net::deadline::Deadline;
use net::http1::{ConnectionOptions, End, Framing, HeadLimits, TransferError};
use net::http2::Stream;
use tokio::time::Instant;

use crate::upstream::request_head::Outgoing;
use crate::worker::Worker;
use failure::{ClientGone, Failure};
use least_rate::{ClientShare, LeastRate};

pub(crate) use content::{Content, RequestBody};

/// How much a client may send ahead while it waits for a reply.
const AHEAD_MAX: usize = 64 * 1024;

/// Where a body comes from.
pub(crate) trait Source {
    /// Hands what is there of the body to `take`, with whether it ends behind that. `take` answers
    /// how many bytes it has used; only those are taken. Pending when nothing is there or `take`
    /// is.
    ///
    /// `Ok(0)` of bytes behind which the body goes on says that `take` needs more of them at once.
    /// Only a source without framing can serve that, by reading on: a tunnel's.
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>>;

    /// Whether all of it has been taken.
    fn is_ended(&self) -> bool;

    /// How many bytes have been received or taken; tells progress.
    fn moved(&self) -> u64;
}

/// Where a body goes.
pub(crate) trait Sink {
    /// Accepts some of the bytes. An end counts once all bytes in front of it were accepted.
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        end: End<'_>,
    ) -> Poll<io::Result<usize>>;

    /// Ready when nothing that was accepted waits here.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// How many bytes have gone out; tells progress.
    fn sent(&self) -> u64;
}

/// The side of a body that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// More of the body has to come.
    Source,
    /// What has come has to be taken.
    Sink,
}

/// Moves a body as far as both sides allow now. Ready when all of it has been passed on.
#[inline]
pub(crate) fn pump(
    context: &mut Context<'_>,
    from: &mut impl Source,
    to: &mut impl Sink,
) -> Poll<Result<(), TransferError>> {
    pump_noting(context, from, to, &mut Awaited::Source)
}

/// The same; notes which side is waited for while it is pending.
#[inline]
pub(crate) fn pump_noting(
    context: &mut Context<'_>,
    from: &mut impl Source,
    to: &mut impl Sink,
    awaited: &mut Awaited,
) -> Poll<Result<(), TransferError>> {
    *awaited = Awaited::Sink;
    while !from.is_ended() {
        let mut is_offered = false;
        let taken = from.poll_take(context, |context, bytes, end| {
            is_offered = true;
            to.poll_accept(context, bytes, end)
        });
        if let Poll::Ready(result) = taken {
            result?;
            continue;
        }
        // What has been accepted goes out while the rest is waited for.
        ready!(to.poll_flush(context)).map_err(TransferError::Sink)?;
        if !is_offered {
            *awaited = Awaited::Source;
        }
        return Poll::Pending;
    }
    to.poll_flush(context).map_err(TransferError::Sink)
}

/// The head of a reply as it lies with the side that it came from.
#[derive(Clone, Copy)]
pub(crate) struct ReplyHead<'a> {
    pub status: u16,
    /// The reason phrase of HTTP/1.1.
    pub reason: Option<&'a [u8]>,
    pub fields: HeadersView<'a>,
    /// What an HTTP/1.1 head says about its connection, and the bytes that its spans lie in.
    pub connection: Option<(&'a ConnectionOptions, &'a [u8])>,
    /// How the end of the body is known. `UntilClose` also stands for a body over HTTP/2 whose
    /// length nobody has said.
    pub framing: Framing,
}

impl ReplyHead<'_> {
    /// Whether another head follows (RFC 9110, section 15.2).
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// Whether nobody knows where the body ends.
    pub fn is_open_ended(&self) -> bool {
        matches!(self.framing, Framing::Chunked | Framing::UntilClose)
    }
}

/// How a reply's body goes to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Download {
    /// The client expects none.
    Nothing,
    /// Its content.
    Content,
    /// Byte for byte as it came, chunk framing included.
    Raw,
}

/// The side that asked: a client's connection or stream, or a step.
pub(crate) trait Downstream: Source + Sink {
    /// The request as it came, or as a flow has made it.
    fn request(&self) -> Outgoing<'_>;

    /// Whether the request can be sent once more.
    fn can_rewind(&self) -> bool;

    /// Goes back to the beginning of the request's body.
    fn rewind(&mut self);

    /// The head of the final reply is there: what has been kept of the request for another attempt
    /// is dropped, and a limit on the time until then ends.
    fn answered(&mut self);

    /// Whether the client has sent nothing that could be passed on.
    fn is_starving(&self) -> bool;

    /// How many bytes of its body the client has sent that were passed on.
    fn received(&self) -> u64;

    /// How many bytes of the reply the client's connection has taken.
    fn delivered(&self) -> u64 {
        self.sent()
    }

    /// Passes an interim reply on, where the client can understand it.
    fn interim(&mut self, head: &ReplyHead<'_>, plan: &ForwardPlan);

    /// Begins the reply: the head is accepted, its body follows through [`Sink`].
    fn begin_reply(
        &mut self,
        head: &ReplyHead<'_>,
        plan: &ForwardPlan,
    ) -> Result<Download, ClientGone>;

    /// Whether a write is a system call of its own. Streams share those of their connection.
    #[inline]
    fn writes_alone(&self) -> bool {
        false
    }

    /// Takes back a reply that has begun. False when some of it may have gone out.
    fn withdraw_reply(&mut self) -> bool;

    /// Whether the client has left, as far as that can be seen now. While its body is still being
    /// read that shows in the reading, over HTTP/1.1.
    fn poll_disconnected(&mut self, context: &mut Context<'_>, is_upload_over: bool) -> bool;

    /// Bounds whatever the request waits for.
    fn deadline(&self) -> &Deadline;

    /// Takes a buffer back that is needed no more.
    fn recycle(&self, buffer: Vec<u8>);

    /// The whole request is with the upstream's connection.
    #[inline]
    fn request_sent(&mut self) {}
}

/// A downstream that belongs to a worker, which finds it a connection.
pub(crate) trait Requester: Downstream {
    /// The path that `balance: hash` goes by.
    fn path(&self) -> &[u8];

    /// What a wait for a connection goes by.
    fn waiting(&mut self) -> Waiting<'_>;

    fn worker(&self) -> &Rc<Worker>;

    fn settings(&self) -> &Settings;

    /// The whole body of the request, when it is in memory.
    fn content(&self) -> Option<Bytes>;
}

/// The parts of a downstream that a wait for a connection goes by.
pub(crate) struct Waiting<'a> {
    pub deadline: &'a Deadline,
    pub client: ClientWatch<'a>,
}

/// Watches a client while it waits for something else than its connection.
pub(crate) enum ClientWatch<'a> {
    Http1(&'a mut Connection),
    Http2(&'a Stream),
    /// There is none, or it is watched elsewhere.
    Nobody,
}

impl ClientWatch<'_> {
    /// Whether the client has closed its connection or reset its stream. What an HTTP/1.1 client
    /// sends ahead is read up to a bound.
    pub fn poll_disconnected(&mut self, context: &mut Context<'_>) -> bool {
        match self {
            Self::Http1(connection) => has_left(context, connection),
            Self::Http2(stream) => stream.fate(context).is_some(),
            Self::Nobody => false,
        }
    }
}

/// Whether a client that waits for its reply has closed the connection. Requests that it sends
/// ahead are read up to a bound.
pub(crate) fn has_left(context: &mut Context<'_>, client: &mut Connection) -> bool {
    while client.input.len() < AHEAD_MAX {
        match client.poll_watch(context) {
            Poll::Pending => return false,
            Poll::Ready(Ok(count)) if count > 0 => {}
            Poll::Ready(_) => return true,
        }
    }
    false
}

/// The side that answers: one request on a connection, or a stream among others.
pub(crate) trait UpstreamExchange: Source + Sink {
    /// Ready when a head is there, an interim one included: see [`UpstreamExchange::head`].
    fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        method: &Method,
        limits: HeadLimits,
    ) -> Poll<Result<(), Failure>>;

    /// The head that is there.
    fn head(&self) -> ReplyHead<'_>;

    /// Drops an interim head.
    fn skip_interim(&mut self);

    /// Whether the body may be here in a moment, of which nothing is here yet: waiting for it costs
    /// the client no time to speak of, and head and body are one write.
    #[inline]
    fn may_follow_soon(&self) -> bool {
        false
    }

    /// Takes the final head; what follows is the body.
    fn begin_body(&mut self, limits: HeadLimits, is_raw: bool);

    /// Ready when a reply without a body is over. Over HTTP/2 its end may come behind the head, in
    /// a frame of its own: giving the stream up before would tell the back end that nobody wants
    /// the reply, and servers that count resets end the connection for it.
    #[inline]
    fn poll_end(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// The whole request is out: the buffer that its head was written into is free.
    fn request_sent(&mut self) -> Option<Vec<u8>>;

    /// Nothing more of the request can be sent. There may be a reply all the same.
    fn fail_request(&mut self, error: io::Error);

    /// Whether nothing of the request can have been acted on.
    fn is_untouched(&self, failure: &Failure) -> bool;
}

/// The time-outs of one exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// The longest that a body may stand still.
    pub body: Duration,
    /// The longest from the request's end to the head of the reply.
    pub response: Duration,
    /// The same as `body` for bodies that go on for as long as they like.
    pub stream: Duration,
    /// The least bytes a second of a client that is waited for; 0 for none.
    pub rate: u64,
}

impl Times {
    /// Those of a plan, where it says so, else the engine's.
    pub fn of(plan: &ForwardPlan, settings: &Settings) -> Self {
        let (own, engine) = (&plan.timeouts, &settings.timeouts);
        Self {
            body: own.body.unwrap_or(engine.body),
            response: own.response.unwrap_or(engine.response),
            stream: engine.stream,
            rate: settings.limits.min_body_rate,
        }
    }

    /// The body may go on for as long as it likes, with nothing moving for long.
    pub fn go_on(&mut self) {
        self.body = self.stream;
        self.rate = 0;
    }
}

/// Moves a deadline on whenever something has moved.
#[derive(Debug)]
pub(crate) struct Progress {
    seen: Option<u64>,
    /// When the exchange began, while that is still now.
    started: Option<Instant>,
    client: LeastRate,
}

impl Progress {
    pub fn new(started: Option<Instant>) -> Self {
        Self {
            seen: None,
            started,
            client: LeastRate::default(),
        }
    }

    /// Whether it is the client that is waited for, as far as the least rate counts that.
    pub fn awaits_client(&self) -> bool {
        self.client.is_awaited()
    }

    /// Another time holds from here on.
    pub fn restart(&mut self) {
        self.seen = None;
    }

    /// Ready when nothing has moved for this time.
    #[inline]
    pub fn poll(
        &mut self,
        context: &mut Context<'_>,
        deadline: &Deadline,
        moved: u64,
        time: Duration,
    ) -> Poll<()> {
        self.poll_client(context, deadline, moved, time, ClientShare::NONE)
    }

    /// The same, and ready too when the client is slower than the least rate.
    #[inline]
    pub fn poll_client(
        &mut self,
        context: &mut Context<'_>,
        deadline: &Deadline,
        moved: u64,
        time: Duration,
        client: ClientShare,
    ) -> Poll<()> {
        if self.seen != Some(moved) {
            self.seen = Some(moved);
            let now = self.started.take().unwrap_or_else(Instant::now);
            deadline.set(now, self.client.allow(now, time, client));
        }
        deadline.poll(context)
    }
}

/// Whether a message of this type may go on for as long as it likes, with nothing moving for long:
/// an event stream, or a call of gRPC or Connect, which has a deadline of its own.
pub(crate) fn is_stream(fields: HeadersView<'_>) -> bool {
    let starts = |value: &[u8], name: &[u8]| {
        let start = value.get(..name.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    fields.first(Field::ContentType).is_some_and(|value| {
        starts(value, b"text/event-stream")
            || starts(value, b"application/grpc")
            || starts(value, b"application/connect+")
    })
}

#[cfg(test)]
pub(crate) mod tests;

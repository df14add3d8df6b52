//! Relays one exchange where the client or the upstream, or both, speak HTTP/2: bodies go piece by
//! piece from one side's buffers into the other's, as fast as the slower one takes them.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use message::{Field, Headers, HeadersView, Method};
use net::Connection;
use net::deadline::Deadline;
use net::http1::{BodyDecoder, Framing, HeadError, HeadLimits, Piece, ResponseHead};
use net::http2::{Fields, Head, Stream, StreamError};
use tokio::time::Instant;

use crate::exchange::{Failed, Failure, has_left};
use crate::pipe::PipeError;
use crate::worker::Worker;

/// How many bytes may wait for an HTTP/1.1 connection to take them.
const STAGED_MAX: usize = 64 * 1024;

/// One side of an exchange.
pub(crate) enum Side<'a> {
    /// A connection of its own.
    Http1(Http1Side<'a>),
    /// A stream among others.
    Http2(&'a Stream),
}

/// An HTTP/1.1 connection as one side of an exchange.
pub(crate) struct Http1Side<'a> {
    pub connection: &'a mut Connection,
    /// Reads the body that comes from here.
    pub decoder: BodyDecoder,
    /// How many bytes at the front of the input are content that nobody has taken.
    ready: usize,
    /// What is to be written, of which so many bytes have been.
    pub staged: Vec<u8>,
    written: usize,
    /// How many bytes have been written in all.
    sent: u64,
    /// Whether the body that goes out is sent in chunks (RFC 9112, section 7.1).
    pub chunked: bool,
}

/// One direction.
#[derive(Clone, Default)]
pub(crate) struct Flow {
    /// Whether all of it has been passed on.
    pub finished: bool,
    /// What has been taken from the source and not been passed on.
    pub at_hand: Bytes,
    /// Whether everything has been taken from the source.
    pub taken: bool,
    /// What follows behind the body, once everything has been taken.
    pub trailers: Option<Fields>,
    /// How many bytes have been passed on.
    pub moved: u64,
    /// How many of them were not at hand from the beginning.
    pub drawn: u64,
}

impl Flow {
    /// A direction of which this is at hand; `taken` tells that it is all.
    pub fn begin(at_hand: Bytes, taken: bool, trailers: Option<Fields>) -> Self {
        Self {
            at_hand,
            taken,
            trailers,
            ..Self::default()
        }
    }

    /// Whether nothing is to be sent at all.
    pub fn is_nothing(&self) -> bool {
        self.taken && self.at_hand.is_empty() && self.trailers.is_none()
    }
}

impl<'a> Http1Side<'a> {
    /// A side that sends what is staged, and from which a body comes that the decoder knows.
    pub fn new(connection: &'a mut Connection, decoder: BodyDecoder, staged: Vec<u8>) -> Self {
        Self {
            connection,
            decoder,
            ready: 0,
            staged,
            written: 0,
            sent: 0,
            chunked: false,
        }
    }

    /// Takes what has been staged and not been written.
    pub fn take_staged(&mut self) -> Vec<u8> {
        let mut staged = std::mem::take(&mut self.staged);
        staged.drain(..std::mem::take(&mut self.written));
        staged
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self
            .staged
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            let count = ready!(self.connection.poll_write(context, rest))?;
            self.written += count;
            self.sent += count as u64;
        }
        Poll::Ready(Ok(()))
    }

    fn stage(&mut self, bytes: &[u8], last: bool) -> usize {
        if self.written == self.staged.len() {
            self.staged.clear();
            self.written = 0;
        }
        let room = STAGED_MAX.saturating_sub(self.staged.len());
        let count = bytes.len().min(room);
        let piece = bytes.get(..count).unwrap_or_default();
        if self.chunked && count > 0 {
            self.staged
                .extend_from_slice(format!("{count:x}\r\n").as_bytes());
        }
        self.staged.extend_from_slice(piece);
        if self.chunked && count > 0 {
            self.staged.extend_from_slice(b"\r\n");
        }
        if self.chunked && last && count == bytes.len() {
            self.staged.extend_from_slice(b"0\r\n\r\n");
        }
        count
    }

    fn stage_trailers(&mut self, trailers: &Fields) {
        if !self.chunked {
            return;
        }
        self.staged.extend_from_slice(b"0\r\n");
        for (field, name, value) in trailers.view().iter() {
            if !field.is_framing() && !field.is_hop_by_hop() {
                crate::request_head::line(&mut self.staged, name, &[value]);
            }
        }
        self.staged.extend_from_slice(b"\r\n");
    }

    /// Content at the front of the input, and whether the body ends behind it.
    fn poll_content(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, PipeError>> {
        loop {
            if self.ready > 0 || self.decoder.is_done() {
                return Poll::Ready(Ok(self.decoder.is_done()));
            }
            let piece = self.decoder.next(self.connection.input.bytes());
            match piece.map_err(|error| PipeError::Malformed(error.0))? {
                Piece::Data(count) => self.ready = count,
                Piece::Overhead(count) | Piece::Skip(count) => {
                    self.connection.input.consume(count);
                }
                Piece::End => {}
                Piece::NeedMore => {
                    let count = ready!(self.connection.poll_fill(context));
                    if count.map_err(PipeError::Source)? == 0 {
                        return Poll::Ready(match self.decoder.may_end_with_connection() {
                            true => Ok(true),
                            false => Err(PipeError::Truncated),
                        });
                    }
                }
            }
        }
    }
}

impl Side<'_> {
    /// Ready when everything staged has been written.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), PipeError>> {
        match self {
            Self::Http1(side) => side.poll_flush(context).map_err(PipeError::Sink),
            Self::Http2(_) => Poll::Ready(Ok(())),
        }
    }

    /// Takes some of the bytes; how many.
    fn accept(&mut self, bytes: &[u8], last: bool) -> Result<usize, PipeError> {
        match self {
            Self::Http1(side) => Ok(side.stage(bytes, last)),
            Self::Http2(stream) => stream.send(bytes, last).map_err(|_| sink_closed()),
        }
    }

    /// Pending, or why there will never be room.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<(), PipeError>> {
        match self {
            Self::Http1(side) => side.poll_flush(context).map_err(PipeError::Sink),
            Self::Http2(stream) => match stream.fate(context) {
                Some(_) => Poll::Ready(Err(sink_closed())),
                None if stream.capacity() > 0 => Poll::Ready(Ok(())),
                None => Poll::Pending,
            },
        }
    }

    fn accept_trailers(&mut self, trailers: &Fields) -> Result<(), PipeError> {
        match self {
            Self::Http1(side) => {
                side.stage_trailers(trailers);
                Ok(())
            }
            Self::Http2(stream) => stream
                .send_trailers(trailers.view().iter())
                .map_err(|_| sink_closed()),
        }
    }
}

fn sink_closed() -> PipeError {
    PipeError::Sink(io::ErrorKind::BrokenPipe.into())
}

pub(crate) fn source_error(error: StreamError) -> PipeError {
    PipeError::Source(match error {
        StreamError::Reset(code) => {
            io::Error::new(io::ErrorKind::ConnectionReset, code.to_string())
        }
        StreamError::TooLarge => io::Error::other("header fields are above the limits"),
        StreamError::Closed => io::ErrorKind::UnexpectedEof.into(),
    })
}

/// Passes on what can be passed on now. Ready when all has been. Without a source, what is at hand
/// is all.
pub(crate) fn pump(
    context: &mut Context<'_>,
    from: Option<&mut Side<'_>>,
    to: &mut Side<'_>,
    flow: &mut Flow,
) -> Poll<Result<(), PipeError>> {
    let mut from = from;
    loop {
        // Together with what is staged: the head and the beginning of the body are one write.
        while !flow.at_hand.is_empty() {
            let last = flow.taken && flow.trailers.is_none();
            let count = to.accept(&flow.at_hand, last)?;
            flow.at_hand.advance(count);
            flow.moved += count as u64;
            if count == 0 {
                break;
            }
        }
        ready!(to.poll_flush(context))?;
        if !flow.at_hand.is_empty() {
            ready!(to.poll_room(context))?;
            continue;
        }
        if flow.taken {
            if let Some(trailers) = flow.trailers.take() {
                to.accept_trailers(&trailers)?;
                continue;
            }
            flow.finished = true;
            return Poll::Ready(Ok(()));
        }
        let Some(from) = &mut from else {
            flow.taken = true;
            continue;
        };
        let (count, all) = match from {
            Side::Http1(side) => ready!(take_http1(context, side, to, flow))?,
            Side::Http2(stream) => ready!(take_http2(context, stream, to, flow))?,
        };
        flow.moved += count as u64;
        flow.drawn += count as u64;
        if !all {
            ready!(to.poll_room(context))?;
        }
    }
}

/// How much was taken, and whether that was all there is.
type Taken = (usize, bool);

fn take_http1(
    context: &mut Context<'_>,
    side: &mut Http1Side<'_>,
    to: &mut Side<'_>,
    flow: &mut Flow,
) -> Poll<Result<Taken, PipeError>> {
    let last = ready!(side.poll_content(context))?;
    let bytes = side
        .connection
        .input
        .bytes()
        .get(..side.ready)
        .unwrap_or_default();
    let count = to.accept(bytes, last)?;
    side.connection.input.consume(count);
    side.ready -= count;
    flow.taken = last && side.ready == 0;
    Poll::Ready(Ok((count, side.ready == 0)))
}

fn take_http2(
    context: &mut Context<'_>,
    stream: &Stream,
    to: &mut Side<'_>,
    flow: &mut Flow,
) -> Poll<Result<Taken, PipeError>> {
    let (waiting, end) = stream.read(|bytes, end| (0, (bytes.len(), end)));
    if end && flow.trailers.is_none() {
        flow.trailers = stream.take_trailers();
    }
    if waiting == 0 && !end {
        return match stream.fate(context) {
            Some(error) => Poll::Ready(Err(source_error(error))),
            None => Poll::Pending,
        };
    }
    let last = end && flow.trailers.is_none();
    let count = stream.read(|bytes, _| match to.accept(bytes, last) {
        Ok(count) => (count, Ok(count)),
        Err(error) => (0, Err(error)),
    })?;
    flow.taken = end && count == waiting;
    Poll::Ready(Ok((count, count == waiting)))
}

/// Whether a message of this type may go on for as long as it likes, with nothing moving for long:
/// an event stream, or a call of gRPC, which has a deadline of its own.
pub(crate) fn is_stream(fields: HeadersView<'_>) -> bool {
    let starts = |value: &[u8], name: &[u8]| {
        let start = value.get(..name.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    fields.first(Field::ContentType).is_some_and(|value| {
        starts(value, b"text/event-stream") || starts(value, b"application/grpc")
    })
}

/// The head of a reply that has arrived.
pub(crate) enum ReplyHead {
    /// At the front of the upstream's input, read into [`Bridge::response`].
    Http1,
    /// Whole.
    Http2(Head),
}

/// One exchange between two sides.
pub(crate) struct Bridge<'a> {
    pub client: Option<Side<'a>>,
    pub upstream: Side<'a>,
    pub up: Flow,
    pub down: Flow,
    pub deadline: &'a Deadline,
    pub response: &'a mut ResponseHead,
    /// The method that was sent.
    pub method: &'a Method,
    pub limits: HeadLimits,
    pub body_time: Duration,
    pub response_time: Duration,
    /// The upstream takes no more of the request; there may be a reply all the same.
    pub upload_failed: Option<io::Error>,
    /// What [`Bridge::progress`] was when the deadline was set.
    pub seen_progress: u64,
}

/// Why a reply stops in the middle.
#[derive(Debug)]
pub(crate) enum Break {
    /// The client has left.
    ClientGone,
    /// The client's body is malformed.
    ClientInvalid(&'static str),
    /// The upstream's reply broke off.
    Upstream(PipeError),
    /// Nothing has moved for too long.
    Idle,
    /// The engine stops.
    Stopped,
}

impl Break {
    /// Tells the log, loudly when it is not the client's.
    pub fn log(&self) {
        match self {
            Self::ClientGone => tracing::debug!(target: "proxy", "the client left"),
            Self::ClientInvalid(cause) => {
                tracing::debug!(target: "proxy", cause, "the client's body is malformed");
            }
            Self::Upstream(cause) => {
                tracing::warn!(target: "proxy", %cause, "the back end's reply broke off");
            }
            Self::Stopped => tracing::debug!(target: "proxy", "a stream is cut by the stop"),
            Self::Idle => tracing::warn!(target: "proxy", "a reply stood still for too long"),
        }
    }
}

impl Bridge<'_> {
    /// What a failure means to the request: it may be sent again when all of it is at hand, and
    /// nothing of it has gone out or doing it twice is no harm (RFC 9110, section 9.2.2).
    pub fn failed(&self, failure: Failure) -> Failed {
        let nothing_sent = match &self.upstream {
            Side::Http1(side) => side.sent == 0 && self.up.moved == 0,
            Side::Http2(_) => matches!(failure, Failure::Refused),
        };
        Failed {
            repeatable: self.up.drawn == 0 && (nothing_sent || self.method.is_idempotent()),
            failure,
        }
    }

    /// The fields of the head of an HTTP/1.1 reply.
    pub fn http1_headers(&self) -> Headers {
        match &self.upstream {
            Side::Http1(side) => {
                let bytes = side.connection.input.bytes();
                let head = bytes.get(..self.response.length).unwrap_or_default();
                self.response.headers(head).to_owned()
            }
            Side::Http2(_) => Headers::new(),
        }
    }

    /// Takes the head of an HTTP/1.1 reply off the input.
    pub fn consume_head(&mut self) {
        if let Side::Http1(side) = &mut self.upstream {
            side.connection.input.consume(self.response.length);
            self.response.length = 0;
        }
    }

    /// Whether an HTTP/1.1 upstream can be used again behind this reply, and how long it says it
    /// keeps the connection.
    pub fn keeps(&self) -> Option<Option<Duration>> {
        match &self.upstream {
            Side::Http1(side) if self.response.keeps_alive() => {
                Some(self.response.keep_alive_time(side.connection.input.bytes()))
            }
            _ => None,
        }
    }

    /// The head has been passed on: what follows is the body.
    pub fn begin_download(&mut self) {
        self.consume_head();
        // Another time holds from here on.
        self.seen_progress = u64::MAX;
        if let Side::Http1(side) = &mut self.upstream {
            side.decoder = BodyDecoder::new(self.response.framing, self.limits);
        }
    }

    /// How many bytes of the body the head of the reply has announced, as far as it has.
    pub fn announced(&self) -> u64 {
        match (&self.upstream, self.response.framing) {
            (Side::Http1(_), Framing::Length(length)) => length,
            _ => 0,
        }
    }

    /// Waits for the head of a reply, interim ones included, and holds no buffer meanwhile once the
    /// request has been written.
    pub async fn reply(&mut self, worker: &Worker) -> Result<ReplyHead, Failure> {
        poll_fn(|context| {
            let reply = self.poll_reply(context);
            if let Side::Http1(side) = &mut self.upstream
                && self.up.finished
            {
                side.written = 0;
                worker.return_scratch(std::mem::take(&mut side.staged));
            }
            reply
        })
        .await
    }

    /// Ready when the head of a reply is there, interim ones included.
    pub fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<ReplyHead, Failure>> {
        if let Err(stopped) = self.poll_upload(context) {
            return Poll::Ready(Err(match stopped {
                Break::ClientInvalid(reason) => Failure::ClientInvalid(reason),
                _ => Failure::ClientGone,
            }));
        }
        if let Poll::Ready(result) = self.poll_head(context) {
            return Poll::Ready(result);
        }
        if self.client_has_left(context) {
            return Poll::Ready(Err(Failure::ClientGone));
        }
        let sent = self.up.finished || self.upload_failed.is_some();
        let time = if sent {
            self.response_time
        } else {
            self.body_time
        };
        ready!(self.poll_deadline(context, time));
        Poll::Ready(Err(if !sent && self.waits_for_client() {
            Failure::ClientSlow
        } else {
            Failure::ReplyTimeout
        }))
    }

    /// Ready when the whole reply has been passed on.
    pub fn poll_relay(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Break>> {
        if let Some(client) = &mut self.client
            && let Poll::Ready(result) =
                pump(context, Some(&mut self.upstream), client, &mut self.down)
        {
            return Poll::Ready(result.map_err(|error| match error {
                PipeError::Sink(_) => Break::ClientGone,
                error => Break::Upstream(error),
            }));
        }
        if let Err(stopped) = self.poll_upload(context) {
            return Poll::Ready(Err(stopped));
        }
        if self.client_has_left(context) {
            return Poll::Ready(Err(Break::ClientGone));
        }
        self.poll_deadline(context, self.body_time)
            .map(|()| Err(Break::Idle))
    }

    /// Reads the body of the reply into memory. Ready when it is there, or is larger than `max`.
    pub fn poll_collect(
        &mut self,
        context: &mut Context<'_>,
        content: &mut Vec<u8>,
        max: u64,
    ) -> Poll<Result<(), Break>> {
        loop {
            let result = match &mut self.upstream {
                Side::Http1(side) => collect_http1(context, side, content),
                Side::Http2(stream) => collect_http2(context, stream, content),
            };
            match result {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Break::Upstream(error))),
                Poll::Ready(Ok(true)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(false)) if content.len() as u64 > max => {
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(false)) => self.down.moved = content.len() as u64,
                Poll::Pending => break,
            }
        }
        self.poll_deadline(context, self.body_time)
            .map(|()| Err(Break::Idle))
    }

    /// Ready when nothing has moved for this time.
    fn poll_deadline(&mut self, context: &mut Context<'_>, time: Duration) -> Poll<()> {
        let progress = self.progress();
        if progress != self.seen_progress {
            self.seen_progress = progress;
            self.deadline.set(Instant::now(), time);
        }
        self.deadline.poll(context)
    }

    fn progress(&self) -> u64 {
        // The end counts too: from there on it is the upstream that is waited for.
        let ended = u64::from(self.up.finished) + u64::from(self.upload_failed.is_some());
        let staged = match &self.upstream {
            Side::Http1(side) => side.sent,
            Side::Http2(_) => 0,
        };
        self.up.moved + self.down.moved + staged + ended
    }

    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), Break> {
        if self.up.finished || self.upload_failed.is_some() {
            return Ok(());
        }
        let client = self.client.as_mut();
        match pump(context, client, &mut self.upstream, &mut self.up) {
            Poll::Pending | Poll::Ready(Ok(())) => Ok(()),
            Poll::Ready(Err(PipeError::Malformed(reason))) => Err(Break::ClientInvalid(reason)),
            Poll::Ready(Err(PipeError::Truncated | PipeError::Source(_))) => Err(Break::ClientGone),
            Poll::Ready(Err(PipeError::Sink(error))) => {
                self.upload_failed = Some(error);
                Ok(())
            }
        }
    }

    /// Whether nothing more can be sent because the client has sent no more.
    fn waits_for_client(&self) -> bool {
        let is_flushed = match &self.upstream {
            Side::Http1(side) => side.written == side.staged.len(),
            Side::Http2(_) => true,
        };
        let has_nothing = match &self.client {
            Some(Side::Http1(side)) => side.ready == 0,
            Some(Side::Http2(stream)) => stream.read(|bytes, _| (0, bytes.is_empty())),
            None => false,
        };
        is_flushed && has_nothing && self.up.at_hand.is_empty()
    }

    fn client_has_left(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.client {
            Some(Side::Http2(stream)) => stream.fate(context).is_some(),
            Some(Side::Http1(side)) if self.up.finished || self.upload_failed.is_some() => {
                has_left(context, side.connection)
            }
            _ => false,
        }
    }

    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<ReplyHead, Failure>> {
        match &mut self.upstream {
            Side::Http2(stream) => {
                let head = ready!(stream.poll_head(context));
                Poll::Ready(match head {
                    Ok(head) => Ok(ReplyHead::Http2(head)),
                    Err(StreamError::Reset(net::http2::Code::REFUSED)) => Err(Failure::Refused),
                    Err(StreamError::TooLarge) => Err(Failure::Invalid(HeadError {
                        status: 431,
                        reason: "the head is too large",
                    })),
                    Err(error) => Err(Failure::Closed(match source_error(error) {
                        PipeError::Source(error) => error,
                        _ => io::ErrorKind::ConnectionReset.into(),
                    })),
                })
            }
            Side::Http1(side) => {
                let connection = &mut *side.connection;
                poll_http1_head(context, connection, self.response, self.method, self.limits)
                    .map_err(|failure| match (failure, self.upload_failed.take()) {
                        (Failure::Closed(_), Some(error)) => Failure::Closed(error),
                        (failure, _) => failure,
                    })
                    .map_ok(|()| ReplyHead::Http1)
            }
        }
    }
}

/// Ready when a head is complete at the front of the input.
pub(crate) fn poll_http1_head(
    context: &mut Context<'_>,
    upstream: &mut Connection,
    response: &mut ResponseHead,
    method: &Method,
    limits: HeadLimits,
) -> Poll<Result<(), Failure>> {
    loop {
        let bytes = upstream.input.bytes();
        if !bytes.is_empty() {
            match response.parse(bytes, method, limits) {
                Err(error) => return Poll::Ready(Err(Failure::Invalid(error))),
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => {}
            }
        }
        let error = match ready!(upstream.poll_fill(context)) {
            Ok(0) => io::Error::new(io::ErrorKind::UnexpectedEof, "closed before a reply"),
            Ok(_) => continue,
            Err(error) => error,
        };
        if upstream.input.is_empty() {
            return Poll::Ready(Err(Failure::Closed(error)));
        }
        let reason = "the connection ended within the head";
        return Poll::Ready(Err(Failure::Invalid(HeadError {
            status: 400,
            reason,
        })));
    }
}

/// Takes what is there of a body. True at its end.
fn collect_http1(
    context: &mut Context<'_>,
    side: &mut Http1Side<'_>,
    content: &mut Vec<u8>,
) -> Poll<Result<bool, PipeError>> {
    let last = ready!(side.poll_content(context))?;
    let count = std::mem::take(&mut side.ready);
    let input = &mut side.connection.input;
    content.extend_from_slice(input.bytes().get(..count).unwrap_or_default());
    input.consume(count);
    Poll::Ready(Ok(last))
}

fn collect_http2(
    context: &mut Context<'_>,
    stream: &Stream,
    content: &mut Vec<u8>,
) -> Poll<Result<bool, PipeError>> {
    let (count, end) = stream.read(|bytes, end| {
        content.extend_from_slice(bytes);
        (bytes.len(), (bytes.len(), end))
    });
    if end || count > 0 {
        return Poll::Ready(Ok(end));
    }
    match stream.fate(context) {
        Some(error) => Poll::Ready(Err(source_error(error))),
        None => Poll::Pending,
    }
}

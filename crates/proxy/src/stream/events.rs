//! An event stream of a back end on its way to its client (WHATWG HTML, section 9.2): every piece
//! goes on as soon as it comes, and events are counted as their bytes pass.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use component::handler::{LocalFuture, Services};
use component::observe::{Counter, FlowMetrics};
use component::stream::{Client, Feed, StopReason, poll_gone};
use message::{Field, HeadersView};
use net::Output;
use net::deadline::Deadline;
use net::http1::{BodyWriter, ClientExchange, End, ReadError, TransferError};
use net::http2::Stream;
use tokio::time::Instant;

use crate::relay::failure::{Break, Failure};
use crate::relay::stream::StreamReader;
use crate::relay::tap::{Rest, Tap, TapState, Tapped};
use crate::relay::{self, Sink, Source as _, pump};
use crate::stream::event_scanner::EventScanner;
use crate::stream::gate::{Gate, Verdict};
use crate::stream::{OpenStream, Streams};
use crate::upstream::Lease;
use crate::worker::Worker;

/// How long a client may take to read why its stream ends.
const TELL_TIME: Duration = Duration::from_secs(1);

/// What a stream keeps for the next piece while it is quiet.
const SPARE_MAX: usize = 256;

/// Counts an event stream of a back end among those of its flow.
pub(crate) fn open(streams: Streams<'_>, is_coded: bool) -> Result<OpenStream, Failure> {
    if is_coded && streams.counts_messages() {
        return Err(Failure::invalid(
            "an event stream with a content coding cannot be counted",
        ));
    }
    let open = streams.open();
    open.map_err(|fault| Failure::Limited(Box::new(fault)))
}

/// Whether an event stream can be left to a task of its own: the whole request has been sent.
pub(crate) fn check_upload(is_done: bool, streams: Streams<'_>) -> Result<bool, Failure> {
    if !is_done && streams.counts_messages() {
        let reason = "the events have begun before the request was whole";
        return Err(Failure::ClientInvalid(reason));
    }
    Ok(is_done)
}

/// Whether the content is in another form than the client's, such as compressed.
pub(crate) fn is_coded(fields: HeadersView<'_>) -> bool {
    let coding = fields.get("content-encoding");
    coding.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity"))
}

/// Whether this is the type of an event stream.
pub(crate) fn are_events(fields: HeadersView<'_>) -> bool {
    let value = fields.first(Field::ContentType).unwrap_or_default();
    let essence = value.split(|&byte| byte == b';').next();
    let essence = essence.unwrap_or_default().trim_ascii();
    essence.eq_ignore_ascii_case(b"text/event-stream")
}

/// Where an event stream comes from: the body of a reply whose head has been taken.
pub(crate) enum Source {
    Http1(Box<ClientExchange>),
    Http2(Stream, StreamReader),
}

impl relay::Source for Source {
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        match self {
            Self::Http1(exchange) => exchange.poll_take(context, take),
            Self::Http2(stream, reader) => reader.poll_take(context, stream, take),
        }
    }

    fn is_ended(&self) -> bool {
        match self {
            Self::Http1(exchange) => exchange.reader().is_ended(),
            Self::Http2(_, reader) => reader.is_ended(),
        }
    }

    fn moved(&self) -> u64 {
        match self {
            Self::Http1(exchange) => exchange.reader().moved(),
            Self::Http2(_, reader) => reader.taken(),
        }
    }
}

/// An event stream on its way.
pub(crate) struct Events {
    source: Source,
    /// The exchange with the endpoint, which lasts as long.
    pub lease: Option<Lease>,
    scanner: EventScanner,
    /// Whether its events can be told apart: its content has no coding.
    counts: bool,
    gate: Gate,
    tap: TapState<OverLimit>,
    metrics: Arc<FlowMetrics>,
    /// What the client is to be written.
    writer: BodyWriter,
    /// Why there is no more of it, while what came before still goes out.
    broken: Option<ReadError>,
    /// Bounds how long nothing moves, then how long it goes on when the engine stops.
    deadline: Deadline,
    idle_time: Duration,
    stop_time: Duration,
    is_stopping: bool,
    seen_progress: u64,
}

impl Events {
    /// An event stream whose head has been written. `is_coded` tells that its content is in
    /// another form than the client's, such as compressed.
    pub fn new(source: Source, is_coded: bool, worker: &Worker, streams: Streams<'_>) -> Self {
        let timeouts = worker.settings().timeouts;
        Self {
            source,
            lease: None,
            scanner: EventScanner::default(),
            counts: !is_coded,
            gate: Gate::new(streams.limits, &worker.deadlines),
            tap: TapState::default(),
            metrics: Arc::clone(streams.metrics),
            writer: BodyWriter::new(Vec::new()),
            broken: None,
            deadline: worker.deadlines.add(),
            idle_time: timeouts.stream,
            stop_time: timeouts.drain / 2,
            is_stopping: false,
            seen_progress: u64::MAX,
        }
    }

    async fn serve(mut self: Box<Self>, mut client: Box<dyn Client>) {
        self.writer.set_chunked(client.is_chunked());
        let result = poll_fn(|context| self.poll(context, &mut *client)).await;
        if let Err(cut) = result {
            if matches!(cut, Break::Stopped) && Box::pin(self.tell(&mut *client)).await {
                // The client knows why there is no more.
                let _ = poll_fn(|context| client.poll_finish(context)).await;
            }
            // Otherwise without its last chunk, so that the client knows that it is not all.
            return cut.log();
        }
        // A client that has left needs no end.
        let _ = poll_fn(|context| client.poll_finish(context)).await;
        let Self { source, lease, .. } = *self;
        if let (Source::Http1(exchange), Some(lease)) = (source, lease)
            && let Some(released) = exchange.release()
        {
            lease.keep(released, Instant::now());
        }
    }

    /// Tells the client by an event of our own that its credential is valid no more, where one can
    /// be put: between two events, in a stream that is not coded. Whether it has been told.
    async fn tell(&mut self, client: &mut dyn Client) -> bool {
        let reason = client.stop_reason();
        let (Some(event), Some(detail)) = (reason.event(), reason.detail()) else {
            return false;
        };
        if !self.counts || !self.scanner.is_between() || !self.tap.is_drained() {
            return false;
        }
        let text = format!("event: {event}\ndata: {{\"detail\":\"{detail}\"}}\n\n");
        let (mut rest, deadline) = (text.as_bytes(), &self.deadline);
        deadline.set(Instant::now(), TELL_TIME);
        let mut to = ClientSink {
            writer: &mut self.writer,
            client,
        };
        poll_fn(|context| {
            loop {
                let polled = match rest {
                    [] => to.poll_flush(context).map_ok(|()| 0),
                    rest => to.poll_accept(context, rest, End::More),
                };
                match polled {
                    Poll::Pending => return deadline.poll(context).map(|()| false),
                    Poll::Ready(Err(_)) => return Poll::Ready(false),
                    Poll::Ready(Ok(_)) if rest.is_empty() => return Poll::Ready(true),
                    Poll::Ready(Ok(count)) => rest = rest.get(count..).unwrap_or_default(),
                }
            }
        })
        .await
    }

    /// Ready when all has been passed on, or why not all will be.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        client: &mut dyn Client,
    ) -> Poll<Result<(), Break>> {
        if let Poll::Ready(result) = self.poll_pass(context, client) {
            return Poll::Ready(result);
        }
        // A quiet stream holds no buffer.
        self.writer.shrink(SPARE_MAX);
        if poll_gone(client, context).is_ready() {
            return Poll::Ready(Err(Break::ClientGone));
        }
        if !self.is_stopping && client.poll_stop(context).is_ready() {
            // It may be about to end by itself, as any reply that is under way.
            self.is_stopping = true;
            let time = match client.stop_reason() {
                StopReason::Engine => self.stop_time,
                StopReason::Expired | StopReason::Revoked => Duration::ZERO,
            };
            self.deadline.set(Instant::now(), time);
        }
        let moved = self.source.moved() + self.writer.sent() + client.records_taken();
        if moved != self.seen_progress && !self.is_stopping {
            self.seen_progress = moved;
            self.deadline.set(Instant::now(), self.idle_time);
        }
        ready!(self.deadline.poll(context));
        Poll::Ready(Err(match self.is_stopping {
            true => Break::Stopped,
            false => Break::Idle,
        }))
    }

    /// Lets pass what can pass now.
    fn poll_pass(
        &mut self,
        context: &mut Context<'_>,
        client: &mut dyn Client,
    ) -> Poll<Result<(), Break>> {
        let mut to = ClientSink {
            writer: &mut self.writer,
            client,
        };
        if self.broken.is_none() {
            let mut events = EventTap {
                scanner: &mut self.scanner,
                gate: &mut self.gate,
                counter: &self.metrics.messages_down,
            };
            let pumped = match self.counts {
                true => {
                    let mut from = Tapped::new(&mut self.source, &mut events, &mut self.tap);
                    pump(context, &mut from, &mut to)
                }
                false => pump(context, &mut self.source, &mut to),
            };
            match ready!(pumped) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(TransferError::Sink(_)) => return Poll::Ready(Err(Break::ClientGone)),
                Err(TransferError::Source(error)) => self.broken = Some(error),
            }
        }
        let flushed = ready!(to.poll_flush(context)).map_err(|_| Break::ClientGone);
        Poll::Ready(
            flushed.and(
                self.broken
                    .take()
                    .map_or(Ok(()), |error| Err(Break::Upstream(error))),
            ),
        )
    }
}

/// Counts the events, and stops before one that is above the limit.
struct EventTap<'a> {
    scanner: &'a mut EventScanner,
    gate: &'a mut Gate,
    counter: &'a Counter,
}

/// An event is above the limit, and the limit ends the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OverLimit;

impl Tap for EventTap<'_> {
    type Stop = OverLimit;

    fn look(&mut self, bytes: &[u8]) -> (usize, Rest<OverLimit>) {
        let (gate, counter) = (&mut *self.gate, self.counter);
        let pass = || match gate.ask() {
            Verdict::Pass => {
                counter.add(1);
                Ok(())
            }
            Verdict::Wait => Err(Rest::Wait),
            Verdict::Close => Err(Rest::Stop(OverLimit)),
        };
        match self.scanner.scan(bytes, pass) {
            Ok(()) => (bytes.len(), Rest::More),
            Err(stopped) => stopped,
        }
    }

    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.gate.poll(context)
    }
}

/// A client that gets an event stream, in chunks where it needs them. The last chunk is
/// [`Client::poll_finish`]'s.
struct ClientSink<'a> {
    writer: &'a mut BodyWriter,
    client: &'a mut dyn Client,
}

impl Sink for ClientSink<'_> {
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        _: End<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut output = ClientOutput(&mut *self.client);
        self.writer
            .poll_accept(context, &mut output, bytes, End::More)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut output = ClientOutput(&mut *self.client);
        self.writer.poll_flush(context, &mut output)
    }

    fn sent(&self) -> u64 {
        self.writer.sent()
    }
}

struct ClientOutput<'a>(&'a mut dyn Client);

impl Output for ClientOutput<'_> {
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, bytes)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(context)
    }
}

impl Feed for Events {
    fn run<'a>(
        self: Box<Self>,
        client: Box<dyn Client>,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, ()> {
        Box::pin(self.serve(client))
    }
}

#[cfg(test)]
mod tests;

//! An event stream of a back end on its way to its client (WHATWG HTML, section 9.2): every piece
//! goes on as soon as it comes, and events are counted as their bytes pass.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use component::handler::{LocalFuture, Services};
use component::observe::FlowMetrics;
use component::stream::{Client, Feed, poll_gone};
use message::{Field, HeadersView};
use net::deadline::Deadline;
use net::http1::{ClientExchange, End, TransferError};
use net::http2::Stream;
use tokio::time::Instant;

use crate::relay::failure::{Break, Failure};
use crate::relay::stream::StreamReader;
use crate::relay::{self, Source as _};
use crate::stream::event_scanner::EventScanner;
use crate::stream::gate::{Gate, Verdict};
use crate::stream::{OpenStream, Streams};
use crate::upstream::Lease;
use crate::worker::Worker;

/// How many bytes may wait for the client to take them.
const STAGED_MAX: usize = 64 * 1024;
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
    metrics: Arc<FlowMetrics>,
    /// What is to be written.
    staged: Vec<u8>,
    written: usize,
    has_ended: bool,
    /// Whether an event above the limit has ended it.
    is_over: bool,
    /// Bounds how long nothing moves, then how long it goes on when the engine stops.
    deadline: Deadline,
    idle_time: Duration,
    stop_time: Duration,
    is_stopping: bool,
    moved: u64,
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
            gate: Gate::new(streams.limits, worker),
            metrics: Arc::clone(streams.metrics),
            staged: Vec::new(),
            written: 0,
            has_ended: false,
            is_over: false,
            deadline: worker.deadlines.add(),
            idle_time: timeouts.stream,
            stop_time: timeouts.drain / 2,
            is_stopping: false,
            moved: 0,
            seen_progress: u64::MAX,
        }
    }

    async fn serve(mut self: Box<Self>, mut client: Box<dyn Client>) {
        let result = poll_fn(|context| self.poll(context, &mut *client)).await;
        if let Err(cut) = result {
            // Without its last chunk, so that the client knows that it is not all.
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

    /// Ready when all has been passed on, or why not all will be.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        client: &mut dyn Client,
    ) -> Poll<Result<(), Break>> {
        if let Poll::Ready(result) = self.poll_pass(context, client) {
            return Poll::Ready(result);
        }
        if poll_gone(client, context).is_ready() {
            return Poll::Ready(Err(Break::ClientGone));
        }
        if !self.is_stopping && client.poll_stop(context).is_ready() {
            // It may be about to end by itself, as any reply that is under way.
            self.is_stopping = true;
            self.deadline.set(Instant::now(), self.stop_time);
        }
        if self.moved != self.seen_progress && !self.is_stopping {
            self.seen_progress = self.moved;
            self.deadline.set(Instant::now(), self.idle_time);
        }
        ready!(self.deadline.poll(context));
        Poll::Ready(Err(match self.is_stopping {
            true => Break::Stopped,
            false => Break::Idle,
        }))
    }

    fn poll_pass(
        &mut self,
        context: &mut Context<'_>,
        client: &mut dyn Client,
    ) -> Poll<Result<(), Break>> {
        loop {
            ready!(self.poll_flush(context, client)).map_err(|_| Break::ClientGone)?;
            if self.has_ended {
                return Poll::Ready(Ok(()));
            }
            let mut verdict = Verdict::Pass;
            let (scanner, gate, staged) = (&mut self.scanner, &mut self.gate, &mut self.staged);
            let (metrics, is_chunked) = (&*self.metrics, client.is_chunked());
            let counts = self.counts;
            let result = self.source.poll_take(context, |_, content, _| {
                let content = content.get(..STAGED_MAX).unwrap_or(content);
                let mut count = content.len();
                if counts {
                    let pass = || match gate.ask() {
                        Verdict::Pass => {
                            metrics.messages_down.add(1);
                            Ok(())
                        }
                        other => Err(other),
                    };
                    if let Err((at, why)) = scanner.scan(content, pass) {
                        (count, verdict) = (at, why);
                    }
                }
                stage(content.get(..count).unwrap_or_default(), is_chunked, staged);
                Poll::Ready(Ok(count))
            });
            match result {
                Poll::Ready(Ok(())) => self.has_ended = self.source.is_ended(),
                Poll::Ready(Err(TransferError::Source(error))) => {
                    return Poll::Ready(Err(Break::Upstream(error)));
                }
                Poll::Ready(Err(TransferError::Sink(_))) => {
                    return Poll::Ready(Err(Break::ClientGone));
                }
                Poll::Pending => {
                    self.rest();
                    return Poll::Pending;
                }
            }
            self.moved = self.moved.wrapping_add(self.staged.len() as u64);
            match verdict {
                Verdict::Pass => {}
                Verdict::Close => {
                    self.is_over = true;
                    self.has_ended = true;
                }
                Verdict::Wait => {
                    ready!(self.poll_flush(context, client)).map_err(|_| Break::ClientGone)?;
                    ready!(self.gate.poll(context));
                }
            }
        }
    }

    fn poll_flush(
        &mut self,
        context: &mut Context<'_>,
        client: &mut dyn Client,
    ) -> Poll<io::Result<()>> {
        while let Some(rest) = self
            .staged
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            let count = ready!(client.poll_write(context, rest))?;
            self.written += count;
            self.moved = self.moved.wrapping_add(count as u64);
        }
        self.staged.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Gives memory back that a quiet stream has no need of.
    fn rest(&mut self) {
        if self.staged.is_empty() && self.staged.capacity() > SPARE_MAX {
            self.staged = Vec::new();
        }
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

fn stage(content: &[u8], is_chunked: bool, staged: &mut Vec<u8>) {
    if content.is_empty() {
        return;
    }
    if is_chunked {
        staged.extend_from_slice(format!("{:x}\r\n", content.len()).as_bytes());
    }
    staged.extend_from_slice(content);
    if is_chunked {
        staged.extend_from_slice(b"\r\n");
    }
}

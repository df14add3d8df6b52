//! A stream of a client's HTTP/2 connection behind the head of a reply that goes on.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use component::access::Validity;
use component::observe::FlowMetrics;
use component::stream::{Client, StopReason};
use net::Buffer;
use net::deadline::Deadline;
use net::http2::{Code, Stream};
use tokio::time::Instant;

use crate::stream::{self, OpenStream, set_expiry};
use crate::worker::{Listener, Worker};

/// How long the end of a request is waited for whose reply has ended.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// One stream of a client's HTTP/2 connection that stays open.
pub(crate) struct Http2Client {
    stream: Stream,
    worker: Rc<Worker>,
    listener: Rc<Listener>,
    /// Tells when the engine stops, and bounds the end.
    deadline: Deadline,
    /// What has been taken off the stream and not been consumed.
    input: Buffer,
    peer: IpAddr,
    /// Whether the last frame has been written.
    has_ended: bool,
    metrics: Arc<FlowMetrics>,
    /// How long the client's credential lets it go on.
    validity: Option<Arc<Validity>>,
}

impl Http2Client {
    pub fn new(
        (worker, listener): (Rc<Worker>, Rc<Listener>),
        (stream, deadline): (Stream, Deadline),
        peer: IpAddr,
        open: &OpenStream,
    ) -> Self {
        set_expiry(&deadline, open);
        Self {
            stream,
            worker,
            listener,
            deadline,
            input: Buffer::default(),
            peer,
            has_ended: false,
            metrics: Arc::clone(&open.metrics),
            validity: open.validity.clone(),
        }
    }
}

impl Client for Http2Client {
    /// The end of the request's body does not finish the client: it has asked, and listens.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let input = &mut self.input;
        let count = self.stream.read(|bytes, _| {
            if bytes.is_empty() {
                return (0, 0);
            }
            let space = input.space();
            let count = bytes.len().min(space.len());
            for (to, from) in space.iter_mut().zip(bytes) {
                *to = *from;
            }
            input.filled(count);
            (count, count)
        });
        if count > 0 {
            return Poll::Ready(Ok(count));
        }
        self.input.release();
        match self.stream.fate(context) {
            Some(_) => Poll::Ready(Ok(0)),
            None => Poll::Pending,
        }
    }

    fn input(&self) -> &[u8] {
        self.input.bytes()
    }

    fn consume(&mut self, count: usize) {
        self.input.consume(count);
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let closed = || Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        if self.stream.fate(context).is_some() {
            return closed();
        }
        match self.stream.send(bytes, false) {
            Err(_) => closed(),
            Ok(0) => Poll::Pending,
            Ok(count) => Poll::Ready(Ok(count)),
        }
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_ended {
            let sent = self.stream.send(&[], true);
            sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            self.has_ended = true;
            self.deadline.set(Instant::now(), LINGER_TIME);
        }
        // A stream that is reset under the hands of a client that was just about to end it is an
        // error to many.
        let is_whole = self.stream.read(|bytes, end| (bytes.len(), end));
        if !is_whole && self.stream.fate(context).is_none() {
            ready!(self.deadline.poll(context));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_stop(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let owners = (&*self.worker, &*self.listener);
        let until = (&self.deadline, self.validity.as_ref());
        stream::poll_stop(owners, until, context)
    }

    fn stop_reason(&self) -> StopReason {
        stream::stop_reason((&self.worker, &self.listener), self.validity.as_ref())
    }

    fn is_chunked(&self) -> bool {
        false
    }

    fn peer(&self) -> IpAddr {
        self.peer
    }

    fn metrics(&self) -> Option<&Arc<FlowMetrics>> {
        Some(&self.metrics)
    }
}

impl Drop for Http2Client {
    fn drop(&mut self) {
        if !self.has_ended {
            // What was sent is not all there was.
            self.stream.reset(Code::INTERNAL);
        }
    }
}

//! A client's HTTP/1.1 connection behind the head of a reply that goes on: what a feed writes to
//! and reads from.

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use component::access::Validity;
use component::observe::FlowMetrics;
use component::stream::{Client, StopReason};
use net::Connection;
use net::deadline::Deadline;
use tokio::time::Instant;

use crate::client::linger;
use crate::stream::{self, OpenStream, set_expiry};
use crate::worker::{Listener, Worker};

/// What ends a body in chunks (RFC 9112, section 7.1).
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// How a stream goes to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In chunks. When `keeps`, the connection takes another request behind the last one.
    Chunked { keeps: bool },
    /// As it is, in another protocol.
    Plain,
    /// As it is, until the connection ends (HTTP/1.0). One that is cut is reset, for its end would
    /// tell the client that it has all.
    UntilClose,
}

/// Where a connection is put that takes another request.
#[derive(Default)]
pub(crate) struct Returned(Cell<Option<Box<Free>>>);

/// A connection that takes another request, and where it came in.
pub(crate) type Free = (Connection, Rc<Listener>);

impl Returned {
    /// The connection, when the stream has ended so.
    pub fn take(&self) -> Option<Box<Free>> {
        self.0.take()
    }
}

/// A client's HTTP/1.1 connection that stays open.
pub(crate) struct Http1Client {
    /// There until it is given back.
    connection: Option<Connection>,
    worker: Rc<Worker>,
    listener: Rc<Listener>,
    /// Tells when the engine stops, and bounds the end.
    deadline: Deadline,
    way: Way,
    ending: Ending,
    /// Whether what the client sent has been taken for something else than the next request.
    has_consumed: bool,
    returned: Rc<Returned>,
    metrics: Arc<FlowMetrics>,
    /// How long the client's credential lets it go on.
    validity: Option<Arc<Validity>>,
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    NotBegun,
    /// So much of the last chunk has been written.
    LastChunk(usize),
    Finish,
    /// What the client still sends is dropped.
    Linger,
    Done,
}

impl Http1Client {
    pub fn new(
        (worker, listener): (Rc<Worker>, Rc<Listener>),
        (connection, deadline): (Connection, Deadline),
        way: Way,
        open: &OpenStream,
    ) -> Self {
        set_expiry(&deadline, open);
        Self {
            connection: Some(connection),
            worker,
            listener,
            deadline,
            way,
            ending: Ending::NotBegun,
            has_consumed: false,
            returned: Rc::default(),
            metrics: Arc::clone(&open.metrics),
            validity: open.validity.clone(),
        }
    }

    /// Where the connection will be when it takes another request.
    pub fn returned(&self) -> Rc<Returned> {
        Rc::clone(&self.returned)
    }

    fn takes_another(&self) -> bool {
        self.way == Way::Chunked { keeps: true }
            && !self.has_consumed
            && !self.worker.is_draining()
            && !self.listener.is_closed()
    }

    fn begin_end(&mut self) -> Ending {
        let time = self.worker.settings().timeouts.body;
        self.deadline.set(Instant::now(), time);
        match self.way {
            Way::Chunked { .. } => Ending::LastChunk(0),
            Way::Plain | Way::UntilClose => Ending::Finish,
        }
    }
}

impl Client for Http1Client {
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match &mut self.connection {
            Some(connection) => connection.poll_fill(context),
            None => Poll::Ready(Ok(0)),
        }
    }

    fn input(&self) -> &[u8] {
        let connection = self.connection.as_ref();
        connection.map_or(&[], |connection| connection.input.bytes())
    }

    fn consume(&mut self, count: usize) {
        self.has_consumed |= count > 0;
        if let Some(connection) = &mut self.connection {
            connection.input.consume(count);
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.connection {
            Some(connection) if self.ending == Ending::NotBegun => {
                connection.poll_write(context, bytes)
            }
            _ => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.connection {
            Some(connection) => connection.poll_flush(context),
            None => Poll::Ready(Ok(())),
        }
    }

    fn records_taken(&self) -> u64 {
        let connection = self.connection.as_ref();
        connection.map_or(0, Connection::records_taken)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let takes_another = self.takes_another();
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(Ok(()));
            };
            self.ending = match self.ending {
                Ending::NotBegun => self.begin_end(),
                Ending::LastChunk(written) => {
                    let rest = LAST_CHUNK.get(written..).unwrap_or_default();
                    match connection.poll_write(context, rest) {
                        Poll::Ready(Ok(count)) if count < rest.len() => {
                            Ending::LastChunk(written + count)
                        }
                        Poll::Ready(Ok(_)) if takes_another => Ending::Done,
                        Poll::Ready(Ok(_)) => Ending::Finish,
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => {
                            ready!(self.deadline.poll(context));
                            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                        }
                    }
                }
                Ending::Finish => {
                    match connection.poll_finish(context) {
                        Poll::Ready(result) => result?,
                        Poll::Pending => {
                            ready!(self.deadline.poll(context));
                            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                        }
                    }
                    linger::begin(&self.deadline);
                    Ending::Linger
                }
                Ending::Linger => {
                    let (deadline, worker) = (&self.deadline, &self.worker);
                    ready!(linger::poll(connection, deadline, worker, context));
                    Ending::Done
                }
                Ending::Done => return Poll::Ready(Ok(())),
            };
        }
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
        matches!(self.way, Way::Chunked { .. })
    }

    fn peer(&self) -> IpAddr {
        let connection = self.connection.as_ref();
        connection.map_or(IpAddr::from([0, 0, 0, 0]), Connection::peer)
    }

    fn metrics(&self) -> Option<&Arc<FlowMetrics>> {
        Some(&self.metrics)
    }
}

impl Drop for Http1Client {
    fn drop(&mut self) {
        if self.way == Way::UntilClose
            && self.ending == Ending::NotBegun
            && let Some(connection) = self.connection.take()
        {
            connection.abort();
        }
        if self.ending == Ending::Done
            && self.takes_another()
            && let Some(connection) = self.connection.take()
        {
            let listener = Rc::clone(&self.listener);
            self.returned.0.set(Some(Box::new((connection, listener))));
        }
    }
}

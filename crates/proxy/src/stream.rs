//! Replies that go on: their head is written, the session ends, and a small task runs the feed with
//! the client's connection. A quiet stream holds no buffer and no session.

mod byte_stream;
mod direction;
mod event_scanner;
pub(crate) mod events;
mod frames;
mod gate;
pub(crate) mod h1_client;
pub(crate) mod h2_client;
pub(crate) mod tunnel;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use component::access::{Caller as Identity, Validity, revocations};
use component::limits::{Admission, Held};
use component::observe::FlowMetrics;
use component::stream::{Client, Feed, StopReason};
use component::stream_limits::{StreamLimits, StreamPlace};
use message::{Fault, Kind, Method, Origin, Reply};
use net::Connection;
use net::deadline::Deadline;
use net::http1::{BodyDecoder, Version};
use tokio::time::Instant;

use crate::call::Caller;
use crate::client::response_head::{self, ClientSide};
use crate::client::session::{After, Served, Session};
use crate::relay::failure::Failure;
use crate::router::ForwardTargets;
use crate::stream::h1_client::{Http1Client, Returned, Way};
use crate::stream::h2_client::Http2Client;
use crate::worker::{Guest, Listener, Worker};

/// Ready when a client's stream has to end: the worker stops, the address is served no more, the
/// credential that has opened it is revoked, or the deadline is set, to the time when that expires,
/// and is over.
pub(crate) fn poll_stop(
    (worker, listener): (&Worker, &Listener),
    (deadline, validity): (&Deadline, Option<&Arc<Validity>>),
    context: &mut Context<'_>,
) -> Poll<()> {
    if worker.is_draining() || listener.is_closed() {
        return Poll::Ready(());
    }
    if validity.is_some_and(|it| it.is_revoked()) {
        return Poll::Ready(());
    }
    // It wakes also when the worker has something to tell.
    deadline.poll(context)
}

/// Why [`poll_stop`] is ready.
pub(crate) fn stop_reason(
    (worker, listener): (&Worker, &Listener),
    validity: Option<&Arc<Validity>>,
) -> StopReason {
    if worker.is_draining() || listener.is_closed() {
        return StopReason::Engine;
    }
    match validity.is_some_and(|it| it.is_revoked()) {
        true => StopReason::Revoked,
        false => StopReason::Expired,
    }
}

thread_local! {
    /// How many streams of this worker end when a credential is revoked.
    static REVOCABLE: Cell<usize> = const { Cell::new(0) };
}

/// How soon streams look again after some of them have been revoked: all tasks of the worker that
/// have a deadline are woken.
const COALESCE: Duration = Duration::from_millis(200);

/// Has the streams of a worker look whether they have been revoked, for ever.
pub(crate) async fn end_revoked(worker: Rc<Worker>) {
    let mut revocations = revocations();
    while revocations.changed().await.is_ok() {
        if REVOCABLE.get() > 0 {
            worker.deadlines.wake_all();
            tokio::time::sleep(COALESCE).await;
        }
    }
}

/// What is known of a flow's streams.
#[derive(Clone, Copy)]
pub(crate) struct Streams<'a> {
    pub metrics: &'a Arc<FlowMetrics>,
    pub limits: Option<&'a Arc<StreamLimits>>,
    /// Who calls, where there is a door.
    pub caller: Option<&'a Identity>,
    /// The plan of the caller, where the door has found one.
    pub admission: Option<&'a Admission>,
}

impl Streams<'_> {
    /// Whether one more stream may be opened now.
    ///
    /// # Errors
    /// When there are too many.
    pub fn check_room(self) -> Result<(), Failure> {
        let room = self.admission.map_or(Ok(()), Admission::check_connect);
        room.map_err(|fault| Failure::Limited(Box::new(fault)))?;
        let limits = self.limits.filter(|limits| limits.is_full());
        match limits.map(StreamLimits::enter) {
            Some(Err(fault)) => Err(Failure::Limited(Box::new(fault))),
            _ => Ok(()),
        }
    }

    /// Whether messages are limited, so that each must be counted.
    pub fn counts_messages(self) -> bool {
        let limits = self.limits.and_then(|limits| limits.messages());
        limits.is_some()
    }

    /// Counts one more stream.
    ///
    /// # Errors
    /// When there are too many.
    pub fn open(self) -> Result<OpenStream, Fault> {
        let place = self.limits.map(StreamLimits::enter).transpose()?;
        let held = self.admission.map(Admission::connect).transpose()?;
        let validity = self.caller.and_then(Identity::validity);
        if validity.is_some() {
            REVOCABLE.set(REVOCABLE.get() + 1);
        }
        self.metrics.streams_opened.add(1);
        Ok(OpenStream {
            metrics: Arc::clone(self.metrics),
            validity,
            _place: place,
            _held: held.flatten().map(Box::new),
        })
    }
}

/// Sets the deadline of a stream to the time when its caller's credential expires; without one it
/// only wakes when the worker has something to tell.
pub(crate) fn set_expiry(deadline: &Deadline, open: &OpenStream) {
    deadline.lift();
    deadline.clear();
    if let Some(at) = open.validity.as_ref().and_then(|it| it.expires()) {
        deadline.set(instant_of(at), Duration::ZERO);
    }
}

/// The time of a clock that only goes forward, for one of the wall clock as it is now.
fn instant_of(seconds: u64) -> Instant {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let left = Duration::from_secs(seconds).saturating_sub(now.unwrap_or_default());
    // Nobody waits longer than a year, and a clock can end.
    Instant::now() + left.min(Duration::from_secs(366 * 24 * 3600))
}

/// Counts a stream for as long as it lives.
pub(crate) struct OpenStream {
    pub metrics: Arc<FlowMetrics>,
    /// How long the caller's credential lets it go on.
    pub validity: Option<Arc<Validity>>,
    _place: Option<StreamPlace>,
    /// The place among the caller's own.
    _held: Option<Box<Held>>,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.metrics.streams_closed.add(1);
        if self.validity.is_some() {
            REVOCABLE.set(REVOCABLE.get() - 1);
        }
    }
}

/// A stream whose head has been written.
pub(crate) struct Begun {
    pub feed: Box<dyn Feed>,
    pub caller: Caller,
    pub open: OpenStream,
}

/// A stream that takes the place of a session.
pub(crate) struct HandOver {
    client: Box<Http1Client>,
    begun: Begun,
}

impl HandOver {
    pub fn new(
        owners: (Rc<Worker>, Rc<Listener>),
        connection: (Connection, Deadline),
        (begun, way): (Begun, Way),
    ) -> Self {
        let client = Box::new(Http1Client::new(owners, connection, way, &begun.open));
        Self { client, begun }
    }

    /// Runs it in a task of its own.
    pub fn start(self, guest: Guest) {
        tokio::task::spawn_local(self.run(guest));
    }

    /// Runs it to its end.
    fn run(self, guest: Guest) -> impl Future<Output = ()> {
        let returned = self.client.returned();
        run_http1(self.begun, self.client, returned, guest)
    }
}

async fn run_http1(begun: Begun, client: Box<dyn Client>, returned: Rc<Returned>, guest: Guest) {
    let Begun { feed, caller, open } = begun;
    feed.run(client, &caller).await;
    drop(open);
    if let Some(connection) = returned.take() {
        let (connection, listener) = *connection;
        let session = Session::new(Rc::clone(&caller.worker), listener, connection);
        tokio::task::spawn_local(serve(session, guest));
    }
}

/// Serves a connection by a session, then by what takes its place.
async fn serve(session: Session, guest: Guest) {
    if let Some(next) = session.run().await {
        next.start(guest);
    }
}

/// Runs a stream over HTTP/2 in a task of its own.
pub(crate) fn start_http2(begun: Begun, client: Http2Client) {
    tokio::task::spawn_local(run_http2(begun, client));
}

/// No `async fn`, which would have room for the client besides its box.
fn run_http2(begun: Begun, client: Http2Client) -> impl Future<Output = ()> {
    let client: Box<dyn Client> = Box::new(client);
    async move {
        let Begun { feed, caller, open } = begun;
        feed.run(client, &caller).await;
        drop(open);
    }
}

/// Writes the head of a reply that goes on. HEAD gets nothing else.
pub(crate) async fn begin(
    session: &mut Session,
    (mut reply, feed): (Reply, Box<dyn Feed>),
    streams: Streams<'_>,
    forwards: &Rc<ForwardTargets>,
    body: &mut BodyDecoder,
) -> Served {
    let version = session.head.version;
    if let Err(fault) = check(&reply, version == Version::Http11) {
        return session.answer_fault(&fault, !body.is_done()).await;
    }
    let open = match streams.open() {
        Ok(open) => open,
        Err(fault) => return session.answer(&fault.to_reply(), body).await,
    };
    let whole = session.discard(body);
    let is_head = session.head.method == Method::Head;
    let closes = !whole || version == Version::Http10 || session.closes_after_this();
    // After a switch of protocols no page reads a reply.
    if let Some(fields) = session
        .reply_fields
        .as_ref()
        .filter(|_| reply.status != 101)
    {
        fields.put_into(&mut reply.headers);
    }
    let mut out = session.worker.take_scratch();
    let (now, date) = (session.now, &session.worker.date);
    let write_date = |out: &mut Vec<u8>| date.append(now, out);
    response_head::write_stream(&reply, ClientSide { version, closes }, write_date, &mut out);
    let written = session.write_all(&out).await;
    session.worker.return_scratch(out);
    let status = reply.status;
    if written.is_err() || is_head {
        return session.after_reply(status, closes, written);
    }
    let caller = Caller::admitted(&session.worker, forwards, streams.admission);
    let way = match (status, version) {
        (101, _) => Way::Plain,
        (_, Version::Http10) => Way::UntilClose,
        _ => Way::Chunked { keeps: !closes },
    };
    session.hand_over(status, (Begun { feed, caller, open }, way))
}

/// A reply that goes on has a status that lets it. Only HTTP/1.1 switches protocols: WebSocket over
/// HTTP/2 (RFC 8441) is not offered to clients.
pub(crate) fn check(reply: &Reply, may_switch: bool) -> Result<(), Fault> {
    match reply.status {
        101 if may_switch => Ok(()),
        101 => {
            let detail = "protocols are switched over HTTP/1.1 only";
            Err(Fault::invalid(detail).with_status(501))
        }
        204 | 304 | ..200 | 600.. => {
            let detail = "the reply cannot go on";
            let fault = Fault::new(Kind::Internal, Origin::Engine, detail);
            Err(fault.with_cause(format_args!("its status is {}", reply.status)))
        }
        _ => Ok(()),
    }
}

/// The status of a stream's reply, and that its connection belongs to somebody else now.
pub(crate) fn handed_over(status: u16) -> Served {
    Served {
        status,
        after: After::HandOver,
        received: 0,
    }
}

#[cfg(test)]
mod tests;

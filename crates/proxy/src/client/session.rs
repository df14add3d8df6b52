//! One client connection: reads request heads one by one, finds each one's route and has it
//! served, until either side ends the connection.

mod entrance;

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use component::access::Admitted;
use component::limits::Admission;
use component::settings::Settings;
use message::{Fault, Reply};
use net::Connection;
use net::deadline::Deadline;
use net::http1::{BodyDecoder, HeadError, HeadLimits, Piece, RequestHead, Version};
use tokio::time::Instant;

use crate::call;
use crate::call::Caller;
use crate::client::added_fields::AddedFields;
use crate::client::door::{self, BodyDoor, Stripped, TurnedAway};
use crate::client::edge::{self, ReplyFields};
use crate::client::forward;
use crate::client::gate::Refusal;
use crate::client::handle;
use crate::client::linger;
use crate::client::rescue;
use crate::client::response_head::{self, ClientSide};
use crate::observe::AccessEntry;
use crate::relay::Progress;
use crate::relay::downstream_http1::RequestSource;
use crate::relay::exchange::EventStream;
use crate::relay::failure::Failure;
use crate::relay::least_rate::ClientShare;
use crate::router::{Captures, Found, Route, Target};
use crate::stream::events::Events;
use crate::stream::h1_client::Way;
use crate::stream::{self, Begun, HandOver, Streams};
use crate::upstream::Lease;
use crate::upstream::request_head;
use crate::worker::{Listener, Worker};

/// How long a connection whose address is served no more waits for its first request.
const FIRST_REQUEST_TIME: Duration = Duration::from_millis(250);

/// How many requests that lie behind each other in the input are served before others have their
/// turn: what a client has pipelined could be hundreds.
const PIPELINED_IN_A_ROW: u8 = 8;

/// One client connection.
pub(crate) struct Session {
    pub worker: Rc<Worker>,
    pub listener: Rc<Listener>,
    pub client: Connection,
    /// Bounds whatever the session waits for.
    pub deadline: Deadline,
    /// The head of the request that is being served.
    pub head: RequestHead,
    /// When the last thing happened that needed a clock.
    pub now: Instant,
    pub settings: Rc<Settings>,
    /// What replies to the request get, where its listener or route says so.
    pub reply_fields: Option<Box<ReplyFields>>,
    head_started: bool,
    first_request: FirstRequest,
    captures: Captures,
    /// Fields of the caller's rate limits and of the door for the reply.
    pub added_fields: Option<Box<AddedFields>>,
    /// What takes the connection over.
    stream: Option<Box<(Begun, Way)>>,
}

/// The first request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstRequest {
    Awaited,
    /// Idle, and the listener is closed: a request is still accepted for a short grace period.
    Late,
    Served,
}

/// How a request ended.
pub(crate) struct Served {
    /// The status of the reply, 0 when the client left before there was one.
    pub status: u16,
    pub after: After,
    /// Bytes of the reply's body, framing included.
    pub received: u64,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It takes another request.
    Keep,
    /// We close it, once the client has had time to read the reply.
    Close,
    /// It is of no more use.
    Gone,
    /// It is reset, for its end would tell the client that a reply cut short was whole.
    Abort,
    /// A stream takes it over.
    HandOver,
}

/// Why there is no further request.
enum NoHead {
    /// The client has closed, or been idle too long, or we are stopping.
    Quiet,
    /// The head is refused.
    Refused(HeadError),
}

impl Session {
    pub fn new(worker: Rc<Worker>, listener: Rc<Listener>, client: Connection) -> Self {
        let deadline = worker.deadlines.add();
        let settings = listener.settings();
        Self {
            worker,
            listener,
            client,
            deadline,
            head: RequestHead::default(),
            now: Instant::now(),
            settings,
            reply_fields: None,
            head_started: false,
            first_request: FirstRequest::Awaited,
            captures: Captures::new(),
            added_fields: None,
            stream: None,
        }
    }

    /// Serves the connection to its end, or until a stream takes it over.
    ///
    /// No `async fn`, which would have room for the session twice.
    pub fn run(self) -> impl Future<Output = Option<HandOver>> {
        let mut session = self;
        async move {
            let mut in_a_row = 0;
            loop {
                if !session.client.input.is_empty() {
                    in_a_row += 1;
                    if in_a_row >= PIPELINED_IN_A_ROW {
                        in_a_row = 0;
                        component::long_work::yield_now().await;
                    }
                }
                session.head_started = false;
                let idle = session.settings.timeouts.idle;
                session.deadline.set(session.now, idle);
                match poll_fn(|context| session.poll_head(context)).await {
                    Ok(()) => {}
                    Err(NoHead::Quiet) => return None,
                    Err(NoHead::Refused(error)) => {
                        session.refuse(error).await;
                        session.linger().await;
                        return None;
                    }
                }
                match session.serve_one().await {
                    After::Keep => {}
                    After::Close => {
                        session.linger().await;
                        return None;
                    }
                    After::Gone => return None,
                    After::Abort => {
                        session.client.abort();
                        return None;
                    }
                    After::HandOver => {
                        let begun = *session.stream?;
                        let owners = (session.worker, session.listener);
                        let connection = (session.client, session.deadline);
                        return Some(HandOver::new(owners, connection, begun));
                    }
                }
            }
        }
    }

    /// Ready when a whole head lies at the front of the input.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoHead>> {
        loop {
            if !self.client.input.is_empty() {
                let limits = self.head_limits();
                match self.head.parse(self.client.input.bytes(), limits) {
                    Err(error) => return Poll::Ready(Err(NoHead::Refused(error))),
                    Ok(true) => return Poll::Ready(Ok(())),
                    Ok(false) => self.start_head(),
                }
            } else if self.worker.is_draining() || self.listener.is_closed() {
                match self.first_request {
                    FirstRequest::Served => return Poll::Ready(Err(NoHead::Quiet)),
                    FirstRequest::Awaited => self.await_first_request(),
                    FirstRequest::Late => {}
                }
            }
            match self.client.poll_fill(context) {
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) => return Poll::Ready(Err(NoHead::Quiet)),
                Poll::Pending => {
                    ready!(self.deadline.poll(context));
                    let late = HeadError {
                        status: 408,
                        reason: "the head did not arrive in time",
                    };
                    let late = if self.head_started {
                        NoHead::Refused(late)
                    } else {
                        NoHead::Quiet
                    };
                    return Poll::Ready(Err(late));
                }
            }
        }
    }

    /// The address is served no more, but the first request of a client that has just connected may
    /// be on its way.
    fn await_first_request(&mut self) {
        self.first_request = FirstRequest::Late;
        self.deadline.set(Instant::now(), FIRST_REQUEST_TIME);
    }

    fn start_head(&mut self) {
        if !self.head_started {
            self.head_started = true;
            self.deadline
                .set(Instant::now(), self.settings.timeouts.head);
        }
    }

    async fn refuse(&mut self, error: HeadError) {
        let class = usize::from(error.status / 100);
        if let Some(counter) = self.worker.metrics.rejected.get(class) {
            counter.add(1);
        }
        tracing::debug!(target: "proxy", peer = %self.client.peer(), error.reason, "refused");
        self.head.connection.close = true;
        let table = self.listener.table();
        self.reply_fields = edge::of_refused(&table, None, self.client.is_tls());
        let _ = self
            .reply(&rescue::fault_of_head(error).to_reply(), true)
            .await;
    }

    /// Routes and serves the request whose head lies at the front of the input.
    async fn serve_one(&mut self) -> After {
        self.first_request = FirstRequest::Served;
        self.settings = self.listener.settings();
        let started = Instant::now();
        self.now = started;
        let bytes = self.client.input.bytes();
        let path = self.head.path(bytes);
        let normal = normalize(path);
        let table = self.listener.table();
        let routed = normal.as_deref().unwrap_or(path);
        let found = table.find(&self.head.method, routed, &mut self.captures);
        self.reply_fields = None;
        let (found, answer) = match table.edge() {
            None => (found, None),
            Some(edge) => {
                let asked = self.asked(routed);
                let entered = edge::enter((&table, edge), found, asked);
                self.reply_fields = entered.fields;
                (entered.found, entered.answer)
            }
        };
        let log = self.access_line();
        let (flow, served) = match found {
            Found::Route(route) => {
                let counted = route.metrics.start();
                let served = match answer {
                    Some(reply) => self.answer_at_edge(&reply).await,
                    None => self.serve_route(&route, normal).await,
                };
                let elapsed = (self.now - started).as_micros() as u64;
                counted.finish(served.status, elapsed);
                (Some(route), served)
            }
            found => (None, self.no_route(found).await),
        };
        if let Some((client, method, mut target)) = log {
            if let Some(masked) = door::masked(&target, flow.as_deref(), &table) {
                target = masked;
            }
            let flow = flow.as_ref().map(|route| &*route.flow);
            self.log(flow, client, (&method, &target), started, &served);
        }
        served.after
    }

    async fn serve_route(&mut self, route: &Rc<Route>, path: Option<Vec<u8>>) -> Served {
        let mut admitted = match &route.door {
            None => None,
            Some(door) => {
                let judged = match self.recall(door) {
                    Some(judged) => judged.map(Some),
                    None => Box::pin(self.judge(door, route, path.as_ref())).await,
                };
                match judged {
                    // On the heap: an open route has none, and every connection would pay for it.
                    Ok(admitted) => admitted.map(Box::new),
                    Err(TurnedAway::Reply(reply)) => {
                        return Box::pin(self.answer_at_edge(&reply)).await;
                    }
                    Err(TurnedAway::Gone) => {
                        return Box::pin(self.turn_away(Refusal::Gone)).await;
                    }
                }
            }
        };
        let (mut admission, mut limits) = (None, None);
        // Those whom the door judges by their bodies count when they are known.
        let is_known = admitted.is_some() || route.door.is_none();
        if let Some(gate) = route.gate.as_ref().filter(|_| is_known) {
            let passed = match self.enter(gate, admitted.as_deref()) {
                Some(Ok(entered)) if entered.wait.is_zero() => {
                    Ok(entered.finish(self.now.into_std()))
                }
                // On the heap, as all that few requests need: every connection would pay for it.
                entered => {
                    let asked = (&**route, path.as_deref(), admitted.as_deref());
                    Box::pin(self.pass(gate, entered, asked)).await
                }
            };
            match passed {
                Ok(passed) => (limits, admission) = (passed.fields, passed.admission),
                Err(refusal) => return Box::pin(self.turn_away(refusal)).await,
            }
        }
        let added_fields = AddedFields::of(limits, admitted.as_deref_mut());
        if added_fields.is_some() || self.added_fields.is_some() {
            self.added_fields = added_fields;
        }
        self.serve_admitted(route, path, (admitted, admission.as_ref()))
            .await
    }

    /// Answers a request that does not pass the gate.
    async fn turn_away(&mut self, refusal: Refusal) -> Served {
        let Refusal::Fault(fault) = refusal else {
            return Served {
                status: 0,
                after: After::Gone,
                received: 0,
            };
        };
        call::log_fault(&fault);
        let mut body = self.take_head();
        self.answer(&fault.to_reply(), &mut body).await
    }

    async fn serve_admitted(
        &mut self,
        route: &Rc<Route>,
        path: Option<Vec<u8>>,
        (admitted, admission): (Option<Box<Admitted>>, Option<&Admission>),
    ) -> Served {
        let caller = admitted.as_ref().map(|it| &*it.caller);
        let mut door = BodyDoor::of(route, admitted.is_some());
        match &route.target {
            Target::Forward(_) if door.reads_body() => {
                let reply = door::undecided().to_reply();
                Box::pin(self.answer_at_edge(&reply)).await
            }
            Target::Forward(target) => {
                let rest = self
                    .captures
                    .last()
                    .copied()
                    .filter(|_| target.plan.appends_rest);
                let time = target.plan.timeouts.total;
                let streams = Streams {
                    metrics: &route.metrics,
                    limits: target.plan.streams.as_ref(),
                    caller,
                    admission,
                };
                let bytes = self.client.input.bytes();
                let query = self.head.query(bytes);
                let head = bytes.get(..self.head.length).unwrap_or_default();
                let fields = self.head.headers(head);
                let stripped = Stripped::of(admitted.as_deref(), query, fields);
                let source = RequestSource::Client {
                    rest,
                    path,
                    stripped,
                };
                forward::forward(self, target, source, time, streams).await
            }
            Target::Handle {
                handler,
                body_max,
                forwards,
            } => {
                let mut request = handle::take_request(self, route, path);
                if let Some(admitted) = &admitted {
                    admitted.enter(&mut request);
                }
                let streams = Streams {
                    metrics: &route.metrics,
                    limits: handler.stream_limits(),
                    caller,
                    admission,
                };
                let to = (handler, *body_max, forwards);
                let served = handle::handle(self, request, &mut door, to, streams).await;
                door.settle(served.status);
                served
            }
        }
    }

    async fn answer_at_edge(&mut self, reply: &Reply) -> Served {
        let mut upload = self.take_head();
        self.answer(reply, &mut upload).await
    }

    async fn no_route(&mut self, found: Found) -> Served {
        if matches!(found, Found::Ambiguous) {
            let path = self.head.path(self.client.input.bytes());
            edge::audit_path(self.asked(path));
        }
        let reply = rescue::unrouted(&found);
        let rejected = self.worker.metrics.rejected.get(4);
        if let Some(counter) = rejected.filter(|_| reply.status >= 400) {
            counter.add(1);
        }
        self.answer_at_edge(&reply).await
    }

    /// Takes the head off the input. What follows is the body.
    pub fn take_head(&mut self) -> BodyDecoder {
        self.client.input.consume(self.head.length);
        self.head.length = 0;
        BodyDecoder::new(self.head.framing, self.head_limits())
    }

    /// The parameters of the path that has been routed.
    pub fn captures(&self) -> &[(u32, u32)] {
        &self.captures
    }

    /// Whether the connection ends behind the reply to the current request.
    pub fn closes_after_this(&self) -> bool {
        !self.head.keeps_alive() || self.worker.is_draining() || self.listener.is_closed()
    }

    pub fn head_limits(&self) -> HeadLimits {
        forward::head_limits(&self.settings.limits)
    }

    /// Answers instead of relaying, when the body has not been touched yet.
    pub async fn fail(&mut self, failure: Failure) -> Served {
        self.answer_failure(failure, true).await
    }

    /// Answers instead of relaying. The connection closes when the body is not all there.
    pub async fn answer_failure(&mut self, failure: Failure, closes: bool) -> Served {
        let Some(fault) = rescue::fault_of(failure) else {
            self.now = Instant::now();
            return Served {
                status: 0,
                after: After::Gone,
                received: 0,
            };
        };
        call::log_fault(&fault);
        self.answer_fault(&fault, closes).await
    }

    /// Tells the client about a fault.
    pub async fn answer_fault(&mut self, fault: &Fault, closes: bool) -> Served {
        self.answer_reply(&fault.to_reply(), closes).await
    }

    /// Sends a reply of our own. When the request's body is not all there the connection ends,
    /// for nobody will read the rest.
    pub async fn answer(&mut self, reply: &Reply, body: &mut BodyDecoder) -> Served {
        let closes = !self.discard(body) || self.closes_after_this();
        let sent = self.reply(reply, closes).await;
        self.after_reply(reply.status, closes, sent)
    }

    /// Leaves the connection to a stream.
    pub fn hand_over(&mut self, status: u16, begun: (Begun, Way)) -> Served {
        self.now = Instant::now();
        self.stream = Some(Box::new(begun));
        stream::handed_over(status)
    }

    /// Leaves the connection to an event stream of a back end.
    pub fn go_on(
        &mut self,
        mut events: Events,
        stream: EventStream,
        closes: bool,
        lease: Lease,
    ) -> Served {
        let EventStream { status, open, .. } = stream;
        events.lease = Some(lease);
        let begun = Begun {
            feed: Box::new(events),
            caller: Caller::new(&self.worker, &Rc::default()),
            open,
        };
        let way = match self.head.version {
            Version::Http11 => Way::Chunked { keeps: !closes },
            Version::Http10 => Way::UntilClose,
        };
        self.hand_over(status, (begun, way))
    }

    /// Sends a reply of our own to a request whose body is of no more interest.
    pub async fn answer_reply(&mut self, reply: &Reply, closes: bool) -> Served {
        let closes = closes || self.closes_after_this();
        let sent = self.reply(reply, closes).await;
        self.after_reply(reply.status, closes, sent)
    }

    pub fn after_reply(&mut self, status: u16, closes: bool, sent: io::Result<()>) -> Served {
        self.now = Instant::now();
        let after = match (sent, closes) {
            (Err(_), _) => After::Gone,
            (Ok(()), true) => After::Close,
            (Ok(()), false) => After::Keep,
        };
        Served {
            status,
            after,
            received: 0,
        }
    }

    /// Drops what has been read of a body. True when that was all of it.
    pub fn discard(&mut self, body: &mut BodyDecoder) -> bool {
        loop {
            match body.next(self.client.input.bytes()) {
                Ok(Piece::End) => return true,
                Ok(
                    Piece::Data(count)
                    | Piece::Overhead(count)
                    | Piece::Skip(count)
                    | Piece::Trailers(count),
                ) => {
                    self.client.input.consume(count);
                }
                Ok(Piece::NeedMore) | Err(_) => return false,
            }
        }
    }

    async fn reply(&mut self, reply: &Reply, closes: bool) -> io::Result<()> {
        let edited = self.reply_fields.as_ref().map(|it| it.put_on(reply));
        let reply = edited.as_ref().unwrap_or(reply);
        let mut out = self.worker.take_scratch();
        let client = ClientSide {
            version: self.head.version,
            closes,
        };
        let (now, date) = (self.now, &self.worker.date);
        let write_date = |out: &mut Vec<u8>| date.append(now, out);
        response_head::write_own(reply, &self.head.method, client, write_date, &mut out);
        let result = self.write_all(&out).await;
        self.worker.return_scratch(out);
        result
    }

    /// Writes all of this to the client, who may not stand still for longer than a body may.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        let mut progress = Progress::new(None);
        poll_fn(|context| {
            while !rest.is_empty() {
                match self.client.poll_write(context, rest) {
                    Poll::Ready(Ok(count)) => rest = rest.get(count..).unwrap_or_default(),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => break,
                }
            }
            if rest.is_empty()
                && let Poll::Ready(result) = self.client.poll_flush(context)
            {
                return Poll::Ready(result);
            }
            let written = (bytes.len() - rest.len()) as u64;
            let moved = written + self.client.records_taken();
            let client = ClientShare {
                moved: self.client.delivered(written),
                is_awaited: true,
                rate: self.settings.limits.min_body_rate,
            };
            let time = self.settings.timeouts.body;
            ready!(progress.poll_client(context, &self.deadline, moved, time, client));
            Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        })
        .await
    }

    /// Says that nothing more comes, and waits for the client to have read it all.
    async fn linger(mut self) {
        let mut is_finished = false;
        linger::begin(&self.deadline);
        poll_fn(|context| {
            let owners = (&self.deadline, &*self.worker);
            linger::poll_end(&mut self.client, &mut is_finished, owners, context)
        })
        .await;
    }

    /// Client, method and target, kept for the access log when there is one.
    fn access_line(&self) -> Option<(IpAddr, String, String)> {
        if !self.settings.access_log || self.worker.engine.access_log.is_none() {
            return None;
        }
        let bytes = self.client.input.bytes();
        let mut target = String::from_utf8_lossy(self.head.path(bytes)).into_owned();
        if let Some(query) = self.head.query(bytes) {
            target.push('?');
            target.push_str(&String::from_utf8_lossy(query));
        }
        let proxies = self.settings.trusted_proxies.as_deref();
        let (client, _) =
            request_head::client(proxies, self.client.peer(), self.head.headers(bytes));
        Some((client, self.head.method.to_string(), target))
    }

    fn log(
        &self,
        flow: Option<&str>,
        client: IpAddr,
        (method, target): (&str, &str),
        started: Instant,
        served: &Served,
    ) {
        if let Some(log) = &self.worker.engine.access_log {
            log.log(&AccessEntry {
                flow,
                peer: client,
                method,
                target,
                status: served.status,
                microseconds: (self.now - started).as_micros() as u64,
                received: served.received,
            });
        }
    }
}

/// The path with escapes of unreserved characters undone (RFC 3986, section 6.2.2.2): `/%61` and
/// `/a` are one path, so they must find one route. None when it is that already.
pub(crate) fn normalize(path: &[u8]) -> Option<Vec<u8>> {
    let first = path.iter().position(|&byte| byte == b'%')?;
    let mut normal = path.get(..first)?.to_vec();
    let mut at = first;
    while let Some(&byte) = path.get(at) {
        let escaped = (byte == b'%').then(|| path.get(at + 1..at + 3)).flatten();
        let escaped = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(plain) if plain.is_ascii_alphanumeric() || b"-._~".contains(&plain) => {
                normal.push(plain);
                at += 3;
            }
            _ => {
                normal.push(byte);
                at += 1;
            }
        }
    }
    (normal != path).then_some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each open connection holds one.
    #[test]
    fn a_session_is_small() {
        fn size<F>(_: impl FnOnce(Session) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(Session::run);
        assert!(size <= 3072, "{size}");
    }

    #[test]
    fn only_escapes_that_change_nothing_are_undone() {
        let cases = [
            ("/plain", None),
            ("/a%20b", None),
            ("/a%2Fb", None),
            ("/%61dmin", Some("/admin")),
            ("/%7Euser/%5f%2d%20", Some("/~user/_-%20")),
        ];
        for (path, expected) in cases {
            let normal = normalize(path.as_bytes());
            assert_eq!(normal.as_deref(), expected.map(str::as_bytes), "{path}");
        }
    }
}

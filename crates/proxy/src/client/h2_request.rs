//! One request of an HTTP/2 connection: its head is checked and routed as one of HTTP/1.1 is, then
//! it is forwarded or becomes a message.

mod entrance;

use std::cell::Cell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use component::access::Admitted;
use component::handler::{Handler, Outcome};
use component::limits::Admission;
use component::settings::Settings;
use component::stream::Feed;
use message::memory::{self, Collected, Exhausted};
use message::{Body, ClientCertificate, Fault, Field, Method, Reply, Request};
use net::deadline::Deadline;
use net::http1::{Framing, is_host, is_path, is_target};
use net::http2::{Code, Head, Stream};
use tokio::time::Instant;

use crate::background;
use crate::call::{Caller, log_fault};
use crate::client::added_fields::{self, AddedFields};
use crate::client::door::{self, BodyDoor, Stripped, TurnedAway};
use crate::client::edge::{self, ReplyFields};
use crate::client::gate::Refusal;
use crate::client::rescue;
use crate::client::response_head;
use crate::client::session::normalize;
use crate::memory::{hold, no_room};
use crate::observe::AccessEntry;
use crate::relay::downstream_http2::{Http2Downstream, Inbound};
use crate::relay::exchange::{EventStream, Relayed};
use crate::relay::failure::{Break, Failure};
use crate::relay::least_rate::{ClientShare, LeastRate};
use crate::relay::send::{self, Order, send};
use crate::relay::{Content, Progress};
use crate::router::{Captures, ForwardTargets, Found, Route, Target};
use crate::stream::events::Events;
use crate::stream::h2_client::Http2Client;
use crate::stream::{self, Begun, Streams};
use crate::upstream::Lease;
use crate::upstream::request_head::{self, CameBy, ForwardTarget, Outgoing, SentBy};
use crate::worker::{Listener, Worker};

/// How long the end of a request is waited for that has been answered. Time bounds it, not bytes,
/// as over HTTP/1.1 (`linger`), but less of it: a client of HTTP/2 is told to stop.
const LINGER_TIME: Duration = Duration::from_secs(2);

/// Where a connection comes from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub peer: IpAddr,
    /// Whether it is encrypted.
    pub is_secure: bool,
    /// The certificate that its client has shown.
    pub certificate: Option<Arc<ClientCertificate>>,
}

/// One request of an HTTP/2 connection.
pub(crate) struct StreamSession {
    pub worker: Rc<Worker>,
    listener: Rc<Listener>,
    pub stream: Stream,
    pub origin: Origin,
    /// Bounds whatever the request waits for.
    pub deadline: Deadline,
    /// When the last thing happened that needed a clock.
    pub now: Instant,
    pub settings: Rc<Settings>,
    /// What replies get, where the listener or the route says so.
    pub reply_fields: Option<Box<ReplyFields>>,
    captures: Captures,
    /// Fields of the caller's rate limits and of the door for the reply.
    pub added_fields: Option<Box<AddedFields>>,
    /// What takes the stream over.
    pub begun: Cell<Option<Box<Begun>>>,
}

/// How a request ended.
#[derive(Clone, Copy)]
pub(crate) struct Served {
    /// The status of the reply, 0 when the client left before there was one.
    pub status: u16,
    /// Bytes of the reply's body.
    pub received: u64,
}

impl Served {
    /// There is nobody to answer.
    pub const GONE: Self = Self {
        status: 0,
        received: 0,
    };
}

/// Path and query of a request.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a [u8],
    query: Option<&'a [u8]>,
}

impl StreamSession {
    pub fn new(worker: Rc<Worker>, listener: Rc<Listener>, stream: Stream, origin: Origin) -> Self {
        Self {
            deadline: worker.deadlines.add(),
            settings: listener.settings(),
            reply_fields: None,
            now: Instant::now(),
            captures: Captures::new(),
            added_fields: None,
            begun: Cell::default(),
            worker,
            listener,
            stream,
            origin,
        }
    }

    /// Serves the request to its end.
    pub async fn run(mut self) {
        let Some(head) = self.stream.take_head() else {
            return;
        };
        let started = self.now;
        let method = Method::from_token(head.method());
        let (flow, served) = match check(&head) {
            Ok(place) => self.route(&head, &method, place, started).await,
            Err(fault) => {
                self.reject(fault.status);
                let table = self.listener.table();
                let (fields, is_secure) = (head.fields.view(), self.origin.is_secure);
                self.reply_fields = edge::of_refused(&table, Some(fields), is_secure);
                (None, self.answer_fault(&fault, &method).await)
            }
        };
        self.log(flow.as_deref(), &method, &head, started, served);
        let is_end = head.is_end();
        self.stream.recycle(head);
        if let Some(begun) = self.begun.take() {
            let owners = (self.worker, self.listener);
            let (peer, stream) = (self.origin.peer, (self.stream, self.deadline));
            let client = Http2Client::new(owners, stream, peer, &begun.open);
            return stream::start_http2(*begun, client);
        }
        if !is_end && served.status != 0 {
            self.linger().await;
        }
    }

    /// Waits a little for the end of a request that has been answered, and drops what comes of it:
    /// `NO_ERROR` tells the client to stop (RFC 9113, section 8.1), but to many, curl 7 among them,
    /// a reset that comes close behind a reply is an error instead of the reply.
    async fn linger(&self) {
        let mut is_waiting = false;
        poll_fn(|context| {
            let is_ended = self.stream.read(|bytes, end| (bytes.len(), end));
            if is_ended || self.stream.fate(context).is_some() {
                return Poll::Ready(());
            }
            // Most requests have ended by now and need no clock.
            if !std::mem::replace(&mut is_waiting, true) {
                self.deadline.set(Instant::now(), LINGER_TIME);
            }
            self.deadline.poll(context)
        })
        .await;
    }

    async fn route(
        &mut self,
        head: &Head,
        method: &Method,
        place: Place<'_>,
        started: Instant,
    ) -> (Option<Rc<Route>>, Served) {
        let normal = normalize(place.path);
        let path = normal.as_deref().unwrap_or(place.path);
        let place = Place { path, ..place };
        let table = self.listener.table();
        let found = table.find(method, path, &mut self.captures);
        let (found, answer) = match table.edge() {
            None => (found, None),
            Some(edge) => {
                let asked = self.asked(head, method, place);
                let entered = edge::enter((&table, edge), found, asked);
                self.reply_fields = entered.fields;
                (entered.found, entered.answer)
            }
        };
        match found {
            Found::Route(route) => {
                let counted = route.metrics.start();
                let served = match answer {
                    Some(reply) => self.answer(&reply, method).await,
                    None => self.serve(&route, head, method, place).await,
                };
                let elapsed = (self.now - started).as_micros() as u64;
                counted.finish(served.status, elapsed);
                (Some(route), served)
            }
            found => {
                if matches!(found, Found::Ambiguous) {
                    edge::audit_path(self.asked(head, method, place));
                }
                let reply = rescue::unrouted(&found);
                if reply.status >= 400 {
                    self.reject(reply.status);
                }
                (None, self.answer(&reply, method).await)
            }
        }
    }

    async fn serve(
        &mut self,
        route: &Rc<Route>,
        head: &Head,
        method: &Method,
        place: Place<'_>,
    ) -> Served {
        let mut admitted = match &route.door {
            None => None,
            Some(door) => {
                let judged = Box::pin(self.judge(door, route, head, method, place)).await;
                match judged {
                    Ok(admitted) => admitted,
                    Err(TurnedAway::Reply(reply)) => return self.answer(&reply, method).await,
                    Err(TurnedAway::Gone) => return Served::GONE,
                }
            }
        };
        let (mut admission, mut limits) = (None, None);
        // Those whom the door judges by their bodies count when they are known.
        let is_known = admitted.is_some() || route.door.is_none();
        if let Some(gate) = route.gate.as_ref().filter(|_| is_known) {
            let asked = (method, place, admitted.as_ref());
            match Box::pin(self.enter(gate, route, head, asked)).await {
                Ok(passed) => (limits, admission) = (passed.fields, passed.admission),
                Err(Refusal::Gone) => return Served::GONE,
                Err(Refusal::Fault(fault)) => {
                    log_fault(&fault);
                    return self.answer_fault(&fault, method).await;
                }
            }
        }
        self.added_fields = AddedFields::of(limits, admitted.as_mut());
        let cleared = (admitted, admission.as_ref());
        self.serve_admitted(route, head, (method, place), cleared)
            .await
    }

    async fn serve_admitted(
        &mut self,
        route: &Rc<Route>,
        head: &Head,
        (method, place): (&Method, Place<'_>),
        (admitted, admission): (Option<Admitted>, Option<&Admission>),
    ) -> Served {
        let caller = admitted.as_ref().map(|it| &*it.caller);
        let mut door = BodyDoor::of(route, admitted.is_some());
        match &route.target {
            Target::Forward(_) if door.reads_body() => {
                self.answer(&door::undecided().to_reply(), method).await
            }
            Target::Forward(target) => {
                let streams = Streams {
                    metrics: &route.metrics,
                    limits: target.plan.streams.as_ref(),
                    caller,
                    admission,
                };
                self.forward_client(target, (head, method, place), admitted.as_ref(), streams)
                    .await
            }
            Target::Handle {
                handler,
                body_max,
                forwards,
            } => {
                let mut request = self.take_request(route, head, method, place);
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
                let served = self.handle((request, head), &mut door, to, streams).await;
                door.settle(served.status);
                served
            }
        }
    }

    /// Forwards a request as its client has sent it.
    async fn forward_client(
        &mut self,
        target: &Rc<ForwardTarget>,
        (head, method, place): (&Head, &Method, Place<'_>),
        admitted: Option<&Admitted>,
        streams: Streams<'_>,
    ) -> Served {
        let last = self.captures.last().copied();
        let rest = last.filter(|_| target.plan.appends_rest);
        let rest = rest.and_then(|(start, end)| place.path.get(start as usize..end as usize));
        // A clone, since the request is served by all of this session.
        let settings = Rc::clone(&self.settings);
        let stripped = Stripped::of(admitted, place.query, head.fields.view());
        let query = stripped.as_ref().and_then(|it| it.query.as_ref());
        let outgoing = Outgoing {
            method,
            query: match query {
                None => place.query,
                Some(query) => query.as_deref().map(str::as_bytes),
            },
            rest,
            headers: head.fields.view(),
            connection: None,
            framing: framing(head),
            upgrades: false,
            peer: self.origin.peer,
            sent_by: SentBy::Peer(settings.trusted_proxies.as_deref()),
            is_secure: self.origin.is_secure,
            came_by: CameBy::Http2,
            strip: stripped.as_ref().map_or(&[], |it| &it.lines),
            identity_field: settings.identity_field.as_deref(),
            caller: None,
        };
        let time = target.plan.timeouts.total;
        let inbound = Inbound {
            request: outgoing,
            path: place.path,
            content: None,
        };
        self.forward(target, inbound, time, streams).await
    }

    /// Serves a request through a handler. No `async fn`, which would have room for the request
    /// twice.
    fn handle<'a>(
        &'a mut self,
        (mut request, head): (Request, &'a Head),
        door: &'a mut BodyDoor<'_>,
        (handler, body_max, forwards): (&'a Arc<dyn Handler>, u64, &'a Rc<ForwardTargets>),
        streams: Streams<'a>,
    ) -> impl Future<Output = Served> {
        let method = request.method.clone();
        async move {
            if head.is_end() {
                request.body = Body::Empty;
            } else if handler.reads_body() || door.reads_body() {
                match self.read_body(head, body_max).await {
                    Ok(body) => request.body = body,
                    Err(failure) => return self.fail_body(failure, &method).await,
                }
            }
            let worker = Rc::clone(&self.worker);
            let stream = &self.stream;
            let mut has_left = |context: &mut Context<'_>| stream.fate(context).is_some();
            if door.reads_body() {
                match door.pass(&mut request, &worker, &mut has_left).await {
                    Ok(limits) => self.added_fields = AddedFields::of(limits, None),
                    Err(TurnedAway::Reply(reply)) => return self.answer(&reply, &method).await,
                    Err(TurnedAway::Gone) => return Served::GONE,
                }
            }
            let streams = Streams {
                admission: door.admission().or(streams.admission),
                ..streams
            };
            let caller = Caller::admitted(&worker, forwards, streams.admission);
            let settlement = door.settlement();
            let outcome = background::run(&caller, handler, request, settlement, has_left).await;
            self.now = Instant::now();
            match outcome {
                None => Served::GONE,
                Some(Ok(Outcome::Reply(mut reply))) => {
                    added_fields::add(self.added_fields.as_deref(), &mut reply);
                    match hold(&reply, 1) {
                        Ok(_room) => self.answer(&reply, &method).await,
                        Err(fault) => self.answer_fault(&fault, &method).await,
                    }
                }
                Some(Ok(Outcome::Forward(plan, request, time))) => {
                    let target = forwards.get(&plan, &worker.upstreams);
                    let sent = (&*request, head);
                    self.forward_message(&target, sent, time, streams).await
                }
                Some(Ok(Outcome::Stream(mut reply, feed))) => {
                    added_fields::add(self.added_fields.as_deref(), &mut reply);
                    self.begin_stream(&method, (reply, feed), streams, forwards)
                        .await
                }
                Some(Err(fault)) => {
                    log_fault(&fault);
                    self.answer_fault(&fault, &method).await
                }
            }
        }
    }

    async fn forward_message(
        &mut self,
        target: &ForwardTarget,
        (request, head): (&Request, &Head),
        time: Option<Duration>,
        streams: Streams<'_>,
    ) -> Served {
        // A clone, since the request is served by all of this session.
        let settings = Rc::clone(&self.settings);
        let inbound = Inbound {
            request: Outgoing {
                came_by: CameBy::Http2,
                identity_field: settings.identity_field.as_deref(),
                ..Outgoing::of_message(request, framing(head))
            },
            path: request.path.as_bytes(),
            content: Content::of(&request.body),
        };
        self.forward(target, inbound, time, streams).await
    }

    /// Forwards one request and relays the reply, whose head must come within `time`.
    async fn forward(
        &mut self,
        target: &ForwardTarget,
        inbound: Inbound<'_>,
        time: Option<Duration>,
        streams: Streams<'_>,
    ) -> Served {
        let method = inbound.request.method;
        if target.plan.websocket {
            return self.answer(&rescue::upgrade_required(), method).await;
        }
        if let Some(time) = time {
            self.deadline.cap(self.now, time);
        }
        let order = Order {
            target,
            method: target.plan.method.as_ref().unwrap_or(method),
            streams: Some(streams),
            upgrades: false,
            repeats: false,
            now: self.now,
        };
        let mut down = Http2Downstream::new(self, inbound);
        let result = send(&mut down, order).await;
        let received = down.replied();
        self.deadline.lift();
        self.now = Instant::now();
        match result {
            Err(failure) => self.fail(failure, method).await,
            Ok(send::Outcome::Relayed(relayed)) => self.end(&relayed, received).await,
            Ok(send::Outcome::EventStream(stream, source, lease)) => {
                let events = Events::new(source, stream.is_coded, &self.worker, streams);
                self.go_on(events, stream, lease)
            }
            // Not asked for, so never granted.
            Ok(send::Outcome::Switched(..)) => Served::GONE,
        }
    }

    /// What a reply that has been relayed means to the client: one that stops in the middle resets
    /// the stream.
    async fn end(&self, relayed: &Relayed, received: u64) -> Served {
        let status = relayed.status;
        let Some(cut) = &relayed.cut else {
            return Served { status, received };
        };
        cut.log();
        if !matches!(cut, Break::ClientGone) {
            // The head and what has come of the body go out first: many clients throw away what
            // arrives together with a reset.
            tokio::task::yield_now().await;
            self.stream.reset(Code::INTERNAL);
        }
        Served { status, received }
    }

    /// Sends the head of a reply that goes on. HEAD gets nothing else.
    async fn begin_stream(
        &mut self,
        method: &Method,
        (mut reply, feed): (Reply, Box<dyn Feed>),
        streams: Streams<'_>,
        forwards: &Rc<ForwardTargets>,
    ) -> Served {
        let opened = stream::check(&reply, false).and_then(|()| streams.open());
        let open = match opened {
            Ok(open) => open,
            Err(fault) => return self.answer_fault(&fault, method).await,
        };
        let (now, date) = (self.now, &self.worker.date);
        if let Some(fields) = &self.reply_fields {
            fields.put_into(&mut reply.headers);
        }
        let fields = response_head::own_fields(&reply, true, |out| date.append(now, out));
        let is_head = *method == Method::Head;
        let sent = self
            .stream
            .respond(reply.status, fields.view().iter(), is_head);
        if sent.is_err() {
            return Served::GONE;
        }
        if !is_head {
            let caller = Caller::admitted(&self.worker, forwards, streams.admission);
            let begun = Begun { feed, caller, open };
            self.begun.set(Some(Box::new(begun)));
        }
        Served {
            status: reply.status,
            received: 0,
        }
    }

    /// Reads the whole body, at most `max` bytes of it.
    async fn read_body(&mut self, head: &Head, max: u64) -> Result<Body, BodyFailure> {
        let length = head.content_length().unwrap_or_default();
        if length > max || memory::bodies().never_has(length) {
            return Err(BodyFailure::TooLarge);
        }
        memory::bodies()
            .check(length)
            .map_err(BodyFailure::Refused)?;
        let expects = head.fields.view().first(Field::Expect).is_some();
        let is_there = self.stream.read(|bytes, end| (0, end || !bytes.is_empty()));
        if expects && !is_there {
            // A stream that is over is noticed below.
            let _ = self.stream.respond(100, std::iter::empty(), false);
        }
        let mut content = Collected::default();
        let (stream, deadline) = (&self.stream, &self.deadline);
        let time = self.settings.timeouts.body;
        let mut rate = LeastRate::default();
        let mut wait_on = |moved: usize| {
            let client = ClientShare {
                moved: moved as u64,
                is_awaited: true,
                rate: self.settings.limits.min_body_rate,
            };
            let now = Instant::now();
            deadline.set(now, rate.allow(now, time, client));
        };
        wait_on(0);
        poll_fn(|context| {
            let before = content.len();
            let end = stream.read(|bytes, end| {
                let room = content.extend(bytes);
                (bytes.len(), room.map(|()| end))
            });
            let end = match end {
                Ok(end) => end,
                Err(exhausted) => return Poll::Ready(Err(BodyFailure::Refused(exhausted))),
            };
            if content.len() as u64 > max {
                return Poll::Ready(Err(BodyFailure::TooLarge));
            }
            if end {
                return Poll::Ready(Ok(()));
            }
            if stream.fate(context).is_some() {
                return Poll::Ready(Err(BodyFailure::Failure(Failure::ClientGone)));
            }
            if content.len() > before {
                wait_on(content.len());
            }
            ready!(deadline.poll(context));
            Poll::Ready(Err(BodyFailure::Failure(Failure::ClientSlow)))
        })
        .await?;
        Ok(Body::from(content.into_bytes()))
    }

    async fn fail_body(&mut self, failure: BodyFailure, method: &Method) -> Served {
        match failure {
            BodyFailure::TooLarge => {
                let fault = Fault::invalid("the request body is too large").with_status(413);
                self.answer_fault(&fault, method).await
            }
            BodyFailure::Refused(exhausted) => self.answer_fault(&no_room(exhausted), method).await,
            BodyFailure::Failure(failure) => self.fail(failure, method).await,
        }
    }

    /// Answers instead of relaying.
    pub async fn fail(&mut self, failure: Failure, method: &Method) -> Served {
        let Some(fault) = rescue::fault_of(failure) else {
            self.now = Instant::now();
            return Served::GONE;
        };
        log_fault(&fault);
        self.answer_fault(&fault, method).await
    }

    /// Leaves the stream to an event stream of a back end.
    fn go_on(&self, mut events: Events, stream: EventStream, lease: Lease) -> Served {
        let EventStream { status, open, .. } = stream;
        events.lease = Some(lease);
        let caller = Caller::new(&self.worker, &Rc::default());
        self.begun.set(Some(Box::new(Begun {
            feed: Box::new(events),
            caller,
            open,
        })));
        let received = 0;
        Served { status, received }
    }

    async fn answer_fault(&mut self, fault: &Fault, method: &Method) -> Served {
        self.answer(&fault.to_reply(), method).await
    }

    /// Sends a reply of our own.
    pub async fn answer(&mut self, reply: &Reply, method: &Method) -> Served {
        let sent = self.send_reply(reply, method).await;
        self.now = Instant::now();
        match sent {
            Some(()) => Served {
                status: reply.status,
                received: 0,
            },
            None => Served::GONE,
        }
    }

    async fn send_reply(&mut self, reply: &Reply, method: &Method) -> Option<()> {
        let edited = self.reply_fields.as_ref().map(|it| it.put_on(reply));
        let reply = edited.as_ref().unwrap_or(reply);
        let now = self.now;
        let date = |out: &mut Vec<u8>| self.worker.date.append(now, out);
        let head = response_head::own_fields(reply, false, date);
        let mut content = reply.body.as_bytes();
        if matches!(reply.status, 204 | 304) || *method == Method::Head {
            content = &[];
        }
        let end = content.is_empty();
        self.stream
            .respond(reply.status, head.view().iter(), end)
            .ok()?;
        let (stream, deadline) = (&self.stream, &self.deadline);
        let (time, rate) = (
            self.settings.timeouts.body,
            self.settings.limits.min_body_rate,
        );
        let mut progress = Progress::new(None);
        let mut moved = 0;
        poll_fn(|context| {
            while !content.is_empty() {
                match stream.send(content, true) {
                    Err(_) => return Poll::Ready(None),
                    Ok(0) => {
                        if stream.fate(context).is_some() {
                            return Poll::Ready(None);
                        }
                        let client = ClientShare {
                            moved,
                            is_awaited: true,
                            rate,
                        };
                        let late = progress.poll_client(context, deadline, moved, time, client);
                        return late.map(|()| None);
                    }
                    Ok(count) => {
                        content = content.get(count..).unwrap_or_default();
                        moved += count as u64;
                    }
                }
            }
            Poll::Ready(Some(()))
        })
        .await
    }

    fn reject(&self, status: u16) {
        let class = usize::from(status / 100);
        if let Some(counter) = self.worker.metrics.rejected.get(class) {
            counter.add(1);
        }
    }

    fn log(
        &self,
        route: Option<&Route>,
        method: &Method,
        head: &Head,
        started: Instant,
        served: Served,
    ) {
        if !self.settings.access_log {
            return;
        }
        if let Some(log) = &self.worker.engine.access_log {
            let proxies = self.settings.trusted_proxies.as_deref();
            let target = String::from_utf8_lossy(head.path());
            let masked = door::masked(&target, route, &self.listener.table());
            log.log(&AccessEntry {
                flow: route.map(|route| &*route.flow),
                peer: request_head::client(proxies, self.origin.peer, head.fields.view()).0,
                method: method.as_str(),
                target: masked.as_deref().unwrap_or(&target),
                status: served.status,
                microseconds: (self.now - started).as_micros() as u64,
                received: served.received,
            });
        }
    }
}

enum BodyFailure {
    TooLarge,
    /// There is no memory left for it.
    Refused(Exhausted),
    Failure(Failure),
}

/// How the body of a request goes on over HTTP/1.1.
fn framing(head: &Head) -> Framing {
    match head.content_length() {
        _ if head.is_end() => Framing::None,
        Some(length) => Framing::Length(length),
        None => Framing::Chunked,
    }
}

/// Refuses what is refused of HTTP/1.1 too: what another implementation could read differently.
fn check(head: &Head) -> Result<Place<'_>, Fault> {
    if head.is_too_large() {
        return Err(Fault::invalid("the head is too large").with_status(431));
    }
    if head.method() == b"CONNECT" {
        return Err(Fault::invalid("the method is not supported").with_status(501));
    }
    // A proxy in between that adds or removes TLS may keep the client's scheme. It is not believed.
    if !matches!(head.scheme(), b"https" | b"http") {
        return Err(Fault::invalid("the scheme is neither http nor https"));
    }
    if !is_host(head.authority()) {
        return Err(Fault::invalid("malformed or missing authority"));
    }
    let target = head.path();
    let (path, query) = match query_start(target) {
        Some(at) => (target.get(..at).unwrap_or_default(), target.get(at + 1..)),
        None => (target, None),
    };
    let path_fits = is_path(path) || path == b"*";
    if !path_fits || !query.is_none_or(is_target) {
        return Err(Fault::invalid("malformed request target"));
    }
    let expectation = head.fields.view().first(Field::Expect);
    if !expectation.is_none_or(|value| value.eq_ignore_ascii_case(b"100-continue")) {
        return Err(Fault::invalid("the expectation is not supported").with_status(417));
    }
    Ok(Place { path, query })
}

/// Where the query begins.
fn query_start(target: &[u8]) -> Option<usize> {
    target.iter().position(|&byte| byte == b'?')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each stream of each connection holds one.
    #[test]
    fn a_request_is_small() {
        fn size<F>(_: impl FnOnce(StreamSession) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(StreamSession::run);
        assert!(size <= 4736, "{size}");
    }
}

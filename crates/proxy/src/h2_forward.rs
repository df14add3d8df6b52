//! Forwarding a request that came by HTTP/2, to an upstream that speaks either version.

use std::future::poll_fn;
use std::time::Duration;

use message::Method;
use net::Connection;
use net::deadline::Deadline;
use net::http1::{BodyDecoder, Framing, HeadError, ResponseHead};
use net::http2::{Code, Link, RequestLine, Stream};
use tokio::time::Instant;

use crate::bridge::{Break, Bridge, Flow, Http1Side, ReplyHead, Side, is_stream};
use crate::events::{self, Done, Events};
use crate::exchange::{Failed, Failure};
use crate::forward::{INTERIM_MAX, balance_key, head_limits};
use crate::h2_request::{Served, StreamSession};
use crate::request_head::{self, ForwardTarget, Http2Head, Outgoing};
use crate::rescue;
use crate::response_head::{ClientVersion, needs_date, passes_interim, relayed_fields};
use crate::stream::{OpenStream, Streams};
use crate::upstream::{Attempt, Lease, Lent, Line, Patience};

/// Forwards one request and relays the reply, whose head must come within `time`.
pub(crate) async fn forward(
    session: &mut StreamSession,
    target: &ForwardTarget,
    (request, path, upload): (Outgoing<'_>, &[u8], Flow),
    time: Option<Duration>,
    streams: Streams<'_>,
) -> Served {
    if target.plan.websocket {
        let reply = rescue::upgrade_required();
        return session.answer(&reply, request.method).await;
    }
    if let Some(time) = time {
        session.deadline.cap(session.now, time);
    }
    let key = balance_key(&target.plan.upstream.balance, path, &request);
    let mut request = request;
    if upload.is_nothing() {
        // Its end came in a frame of its own, which HTTP/1.1 has no need to know.
        request.framing = Framing::None;
    }
    let mut attempt = Attempt::new(key);
    let result = send(session, (target, request), &mut attempt, &upload, streams).await;
    session.deadline.lift();
    session.now = Instant::now();
    match result {
        Ok(served) => served,
        Err(failure) => session.fail(failure, request.method).await,
    }
}

async fn send(
    session: &StreamSession,
    (target, request): (&ForwardTarget, Outgoing<'_>),
    attempt: &mut Attempt,
    upload: &Flow,
    streams: Streams<'_>,
) -> Result<Served, Failure> {
    let connect = target.plan.timeouts.connect;
    let method = target.plan.method.as_ref().unwrap_or(request.method);
    let exchange = Exchange {
        session,
        target,
        request,
        method,
        streams,
    };
    loop {
        let patience = Patience {
            worker: &session.worker,
            deadline: &session.deadline,
            connect: connect.unwrap_or(session.settings.timeouts.connect),
        };
        let Lent {
            line,
            reused,
            lease,
        } = target.upstream.lend(session.now, attempt, patience).await?;
        let upload = upload.clone();
        let result = match line {
            Line::Http1(connection) => exchange.over_http1(connection, &lease, upload).await,
            Line::Http2(link) => exchange.over_http2(&link, &lease, upload).await,
        };
        match result {
            Ok(Done::Served(served)) => return Ok(served),
            Ok(Done::Events(begun)) => return Ok(session.go_on(*begun, lease)),
            Err(failed) => target
                .upstream
                .after_failure(failed, reused, lease, attempt)?,
        }
        session.worker.metrics.upstream_retries.add(1);
    }
}

/// Whether a connection that carries many requests has let one wait too long for its reply. That a
/// flow's own time was over says nothing.
pub(crate) fn is_dead<T>(result: &Result<T, Failed>, deadline: &Deadline) -> bool {
    let timed_out = |failed: &Failed| matches!(failed.failure, Failure::ReplyTimeout);
    result.as_ref().err().is_some_and(timed_out) && !deadline.is_over()
}

/// One request and where it goes.
struct Exchange<'a> {
    session: &'a StreamSession,
    target: &'a ForwardTarget,
    request: Outgoing<'a>,
    /// The method that is sent.
    method: &'a Method,
    streams: Streams<'a>,
}

/// A reply that has been relayed.
struct Relayed {
    served: Served,
    /// Whether an HTTP/1.1 connection can be used again, and how long the other side keeps it.
    keeps: Option<Option<Duration>>,
    /// When it is an event stream whose head has been sent.
    goes_on: Option<GoesOn>,
}

/// An event stream whose head has been sent.
struct GoesOn {
    is_coded: bool,
    open: OpenStream,
}

impl<'a> Exchange<'a> {
    async fn over_http1(
        &self,
        mut connection: Connection,
        lease: &Lease,
        upload: Flow,
    ) -> Result<Done<Served>, Failed> {
        let worker = &self.session.worker;
        let limits = head_limits(&self.session.settings.limits);
        let mut out = worker.take_scratch();
        request_head::write(self.target, &self.request, &mut out);
        let none = BodyDecoder::new(Framing::None, limits);
        let mut side = Http1Side::new(&mut connection, none, out);
        side.chunked = self.request.framing == Framing::Chunked;
        let mut response = ResponseHead::default();
        let mut bridge = self.bridge(Side::Http1(side), upload, &mut response);
        let result = self.receive(&mut bridge, lease).await;
        let uploaded = bridge.up.finished && bridge.upload_failed.is_none();
        if let Side::Http1(side) = bridge.upstream {
            worker.return_scratch(side.staged);
        }
        let relayed = result?;
        if let Some(goes_on) = relayed.goes_on {
            let decoder = BodyDecoder::new(response.framing, limits);
            let source = events::Source::http1(connection, decoder, relayed.keeps);
            return Ok(self.go_on(source, goes_on, relayed.served.status));
        }
        if let Some(promised) = relayed.keeps.filter(|_| uploaded) {
            lease.endpoint().keep(connection, Instant::now(), promised);
        }
        Ok(Done::Served(relayed.served))
    }

    async fn over_http2(
        &self,
        link: &Link,
        lease: &Lease,
        upload: Flow,
    ) -> Result<Done<Served>, Failed> {
        let mut head = Http2Head::default();
        request_head::write_http2(self.target, &self.request, &mut head);
        let upstream = open(link, self.target, self.method, &head, &upload)?;
        let mut response = ResponseHead::default();
        let mut bridge = self.bridge(Side::Http2(&upstream), upload, &mut response);
        let result = self.receive(&mut bridge, lease).await;
        if is_dead(&result, &self.session.deadline) {
            // It may be dead: nobody else shall wait for it.
            link.go_away();
        }
        let relayed = result?;
        Ok(match relayed.goes_on {
            Some(goes_on) => {
                let source = events::Source::Http2(upstream);
                self.go_on(source, goes_on, relayed.served.status)
            }
            None => Done::Served(relayed.served),
        })
    }

    fn go_on(&self, source: events::Source, goes_on: GoesOn, status: u16) -> Done<Served> {
        let GoesOn { is_coded, open } = goes_on;
        let events = Events::new(source, is_coded, &self.session.worker, self.streams);
        Done::Events(Box::new(events::Begun {
            events,
            open,
            status,
            closes: false,
        }))
    }

    fn bridge<'b>(
        &'b self,
        upstream: Side<'b>,
        up: Flow,
        response: &'b mut ResponseHead,
    ) -> Bridge<'b> {
        let timeouts = &self.session.settings.timeouts;
        let own = &self.target.plan.timeouts;
        Bridge {
            client: Some(Side::Http2(&self.session.stream)),
            upstream,
            up,
            down: Flow::default(),
            deadline: &self.session.deadline,
            response,
            method: self.method,
            limits: head_limits(&self.session.settings.limits),
            body_time: match is_stream(self.request.headers) {
                true => timeouts.stream,
                false => own.body.unwrap_or(timeouts.body),
            },
            response_time: own.response.unwrap_or(timeouts.response),
            upload_failed: None,
            seen_progress: u64::MAX,
        }
    }

    /// Waits for the reply and relays it, interim ones first.
    async fn receive(&self, bridge: &mut Bridge<'_>, lease: &Lease) -> Result<Relayed, Failed> {
        for _ in 0..INTERIM_MAX {
            let head = bridge.reply(&self.session.worker).await;
            let head = head.map_err(|failure| bridge.failed(failure))?;
            let status = match &head {
                ReplyHead::Http1 => bridge.response.status,
                ReplyHead::Http2(head) => head.status(),
            };
            if (100..200).contains(&status) && status != 101 {
                if passes_interim(status, ClientVersion::Http2, &self.target.plan) {
                    // A client that has left is noticed at the next poll.
                    let _ = self.send_head(bridge, &head, status, false);
                }
                bridge.consume_head();
                continue;
            }
            lease.succeed();
            bridge.deadline.lift();
            if status == 101 {
                return Err(bridge.failed(invalid("the connection was switched unasked")));
            }
            if let Some(relayed) = self.begin_events(bridge, &head, status)? {
                return Ok(relayed);
            }
            return Ok(self.relay(bridge, head, status).await);
        }
        Err(bridge.failed(invalid("too many interim replies")))
    }

    /// Sends the head of a reply to the client. Fails when the client has left.
    fn send_head(
        &self,
        bridge: &Bridge<'_>,
        head: &ReplyHead,
        status: u16,
        end: bool,
    ) -> Option<()> {
        let edits = &self.target.plan.reply_fields;
        let stream = &self.session.stream;
        let dated = |fields| {
            let date = &self.session.worker.date;
            needs_date(status, fields, edits).then(|| date.text(Instant::now()))
        };
        let sent = match (head, &bridge.upstream) {
            (ReplyHead::Http2(head), _) => {
                let fields = head.fields.view();
                let date = dated(fields);
                let fields = relayed_fields(fields, None, edits, date.as_deref());
                stream.respond(status, fields, end)
            }
            (ReplyHead::Http1, Side::Http1(side)) => {
                let bytes = side.connection.input.bytes();
                let response = &*bridge.response;
                let listed = Some((&response.connection, bytes));
                let fields = response.headers(bytes);
                let date = dated(fields);
                let fields = relayed_fields(fields, listed, edits, date.as_deref());
                stream.respond(status, fields, end)
            }
            // invariant: only an HTTP/1.1 side has such a head.
            (ReplyHead::Http1, Side::Http2(_)) => return None,
        };
        sent.ok()
    }

    /// Sends the head of a reply when it is an event stream that can be left to a task of its own.
    fn begin_events(
        &self,
        bridge: &mut Bridge<'_>,
        head: &ReplyHead,
        status: u16,
    ) -> Result<Option<Relayed>, Failed> {
        let Some(is_coded) = self.is_coded_stream(bridge, head) else {
            return Ok(None);
        };
        let is_sent = bridge.up.finished && bridge.upload_failed.is_none();
        let whole = events::check_upload(is_sent, self.streams);
        if !whole.map_err(|failure| bridge.failed(failure))? {
            return Ok(None);
        }
        let open = events::open(self.streams, is_coded);
        let open = open.map_err(|failure| bridge.failed(failure))?;
        if self.send_head(bridge, head, status, false).is_none() {
            return Ok(Some(Relayed::gone()));
        }
        let keeps = match head {
            ReplyHead::Http1 => bridge.keeps(),
            ReplyHead::Http2(_) => None,
        };
        bridge.consume_head();
        let received = 0;
        Ok(Some(Relayed {
            served: Served { status, received },
            keeps,
            goes_on: Some(GoesOn { is_coded, open }),
        }))
    }

    /// Whether the content of a reply has a coding, when it is an event stream whose end nobody
    /// knows.
    fn is_coded_stream(&self, bridge: &Bridge<'_>, head: &ReplyHead) -> Option<bool> {
        if *self.request.method == Method::Head || *self.method == Method::Head {
            return None;
        }
        match (head, &bridge.upstream) {
            (ReplyHead::Http2(head), _) => {
                let ends = head.is_end() || head.content_length().is_some();
                let fields = head.fields.view();
                (!ends && events::are_events(fields)).then(|| events::is_coded(fields))
            }
            (ReplyHead::Http1, Side::Http1(side)) => {
                let response = &*bridge.response;
                let goes_on = matches!(response.framing, Framing::Chunked | Framing::UntilClose);
                let fields = response.headers(side.connection.input.bytes());
                (goes_on && response.is_event_stream).then(|| events::is_coded(fields))
            }
            (ReplyHead::Http1, Side::Http2(_)) => None,
        }
    }

    async fn relay(&self, bridge: &mut Bridge<'_>, head: ReplyHead, status: u16) -> Relayed {
        // A reply to another method than the client's has a body where the client expects none.
        let unwanted = *self.request.method == Method::Head;
        let has_none = match &head {
            ReplyHead::Http1 => {
                matches!(bridge.response.framing, Framing::None | Framing::Length(0))
            }
            ReplyHead::Http2(head) => head.is_end(),
        };
        let end = has_none || unwanted;
        if self.send_head(bridge, &head, status, end).is_none() {
            return Relayed::gone();
        }
        let streams = match &head {
            ReplyHead::Http1 => bridge.response.is_event_stream,
            ReplyHead::Http2(head) => is_stream(head.fields.view()),
        };
        if streams {
            bridge.body_time = self.session.settings.timeouts.stream;
        }
        let keeps = match head {
            ReplyHead::Http1 => bridge.keeps().filter(|_| has_none || !unwanted),
            ReplyHead::Http2(head) => {
                if let Side::Http2(stream) = &bridge.upstream {
                    stream.recycle(head);
                }
                None
            }
        };
        bridge.begin_download();
        bridge.down.finished = end;
        if !end && let Err(stopped) = poll_fn(|context| bridge.poll_relay(context)).await {
            return self.cut(bridge, status, stopped);
        }
        Relayed {
            served: Served {
                status,
                received: bridge.down.moved,
            },
            keeps,
            goes_on: None,
        }
    }

    /// A reply that stops in the middle is told by resetting the stream.
    fn cut(&self, bridge: &Bridge<'_>, status: u16, stopped: Break) -> Relayed {
        stopped.log();
        if !matches!(stopped, Break::ClientGone) {
            self.session.stream.reset(Code::INTERNAL);
        }
        let received = bridge.down.moved;
        Relayed {
            served: Served { status, received },
            keeps: None,
            goes_on: None,
        }
    }
}

impl Relayed {
    fn gone() -> Self {
        Self {
            served: Served::GONE,
            keeps: None,
            goes_on: None,
        }
    }
}

/// Opens a stream to the upstream.
pub(crate) fn open(
    link: &Link,
    target: &ForwardTarget,
    method: &Method,
    head: &Http2Head,
    upload: &Flow,
) -> Result<Stream, Failed> {
    let is_secure = target.plan.upstream.tls.is_some();
    let line = RequestLine {
        method: method.as_str().as_bytes(),
        scheme: if is_secure { b"https" } else { b"http" },
        authority: &head.authority,
        path: &head.path,
    };
    let fields = head.fields.view().iter();
    link.open(line, fields, upload.is_nothing())
        .map_err(|_| Failed {
            failure: Failure::Refused,
            repeatable: true,
        })
}

pub(crate) fn invalid(reason: &'static str) -> Failure {
    Failure::Invalid(HeadError {
        status: 400,
        reason,
    })
}

//! The forward path: a request goes to the upstream, its reply to the client, neither collected.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use component::upstream::{Balance, HashKey};
use message::{Body, Method, Request};
use net::Connection;
use net::http1::{BodyDecoder, Framing, HeadError, HeadLimits};
use tokio::time::Instant;

use crate::bridge::Break;
use crate::events::{self, Begun as EventsBegun, Done, Events};
use crate::exchange::{ClientBody, Exchange, Failed, Failure, has_left};
use crate::h1_to_h2;
use crate::pipe::{Encoding, Pipe, PipeError};
use crate::request_head::{self, CameBy, ForwardTarget, Outgoing};
use crate::rescue;
use crate::response_head::{self, ClientSide, ClientVersion, encoding_for, passes_interim};
use crate::session::{After, Served, Session};
use crate::stream::Streams;
use crate::tunnel;
use crate::upstream::{self, Attempt, Lease, Lent, Line, Patience};

/// How many bytes of a body go out together with the head.
const WITH_HEAD_MAX: usize = 32 * 1024;
/// How many bytes of a body are kept at hand, so that the request can be sent again.
pub(crate) const AT_HAND_MAX: usize = 32 * 1024;
/// How many interim replies one request may have.
pub(crate) const INTERIM_MAX: usize = 32;

/// Where the request comes from.
pub(crate) enum Source {
    /// Head and body as they lie in the client's buffer; the place of what `*` matched.
    Client {
        rest: Option<(u32, u32)>,
        /// The path, when it is not the one in the buffer.
        path: Option<Vec<u8>>,
    },
    /// A message from the message path, whose head has been taken off the buffer.
    Message(Box<Request>),
}

/// Forwards one request and relays the reply, whose head must come within `time`.
pub(crate) async fn forward(
    session: &mut Session,
    target: &Rc<ForwardTarget>,
    source: Source,
    time: Option<Duration>,
    streams: Streams<'_>,
) -> Served {
    if target.plan.websocket && !session.head.upgrades_to_websocket {
        return ask_for_upgrade(session, &source).await;
    }
    if let Some(time) = time {
        session.deadline.cap(session.now, time);
    }
    let mut out = session.worker.take_scratch();
    let method = target
        .plan
        .method
        .clone()
        .unwrap_or_else(|| session.head.method.clone());
    let served = match prepare(session, target, source, &mut out) {
        Err(failure) => session.fail(failure).await,
        Ok(mut prepared) => {
            let to = (&**target, &method);
            match send(session, to, &mut prepared, &mut out, streams).await {
                Err(failure) => session.fail_within(failure, &mut prepared.upload).await,
                Ok(served) => served,
            }
        }
    };
    session.worker.return_scratch(out);
    session.deadline.lift();
    served
}

async fn ask_for_upgrade(session: &mut Session, source: &Source) -> Served {
    let reply = rescue::upgrade_required();
    match source {
        Source::Client { .. } => {
            let mut body = session.take_head();
            session.answer(&reply, &mut body).await
        }
        Source::Message(request) => session.answer_reply(&reply, request.body.is_unread()).await,
    }
}

/// A request whose head has been written.
struct Prepared {
    /// What remains of its body.
    upload: Pipe,
    /// What it is hashed to, where the balance is by hash.
    key: u64,
}

/// Writes the head and as much of the body as is there.
fn prepare(
    session: &mut Session,
    target: &ForwardTarget,
    source: Source,
    out: &mut Vec<u8>,
) -> Result<Prepared, Failure> {
    let limits = session.head_limits();
    let head = &session.head;
    let bytes = session.client.input.bytes();
    let peer = session.client.peer();
    let (framing, key) = match source {
        Source::Client { rest, path } => {
            let path = path.as_deref().unwrap_or_else(|| head.path(bytes));
            let rest = rest.and_then(|(start, end)| path.get(start as usize..end as usize));
            let outgoing = Outgoing {
                method: &head.method,
                query: head.query(bytes),
                rest,
                headers: head.headers(bytes),
                connection: Some((&head.connection, bytes)),
                framing: head.framing,
                upgrades: head.upgrades_to_websocket,
                peer,
                is_secure: session.client.is_tls(),
                came_by: CameBy::Http1,
            };
            let key = balance_key(&target.plan.upstream.balance, path, &outgoing);
            request_head::write(target, &outgoing, out);
            let length = head.length;
            session.client.input.consume(length);
            (session.head.framing, key)
        }
        Source::Message(request) => write_message(session, target, &request, out),
    };
    let mut upload = Pipe::new(framing, Encoding::AsIs, limits);
    match upload.take_into(&mut session.client.input, out, WITH_HEAD_MAX) {
        Ok(()) => Ok(Prepared { upload, key }),
        Err(PipeError::Malformed(reason)) => Err(Failure::ClientInvalid(reason)),
        Err(_) => Err(Failure::ClientGone),
    }
}

/// What decides about the endpoint where the balance is by hash.
pub(crate) fn balance_key(balance: &Balance, path: &[u8], request: &Outgoing<'_>) -> u64 {
    let Balance::Hash(key) = balance else {
        return 0;
    };
    let client = || request.peer.to_string().into_bytes();
    match key {
        HashKey::Client => upstream::hash(&client()),
        HashKey::Path => upstream::hash(path),
        HashKey::Header(name) => match request.headers.get(name) {
            Some(value) => upstream::hash(value),
            None => upstream::hash(&client()),
        },
    }
}

/// Writes a message's head, and its body when it is in memory. Returns the framing of what is
/// still to come from the client, and the key for the balance.
fn write_message(
    session: &Session,
    target: &ForwardTarget,
    request: &Request,
    out: &mut Vec<u8>,
) -> (Framing, u64) {
    let framing = match &request.body {
        Body::Unread => session.head.framing,
        Body::Empty => Framing::None,
        Body::Bytes(bytes) => Framing::Length(bytes.len() as u64),
    };
    let outgoing = Outgoing {
        upgrades: session.head.upgrades_to_websocket && framing == Framing::None,
        ..Outgoing::of_message(request, framing)
    };
    let key = balance_key(
        &target.plan.upstream.balance,
        request.path.as_bytes(),
        &outgoing,
    );
    request_head::write(target, &outgoing, out);
    out.extend_from_slice(request.body.as_bytes());
    if request.body.is_unread() {
        (framing, key)
    } else {
        (Framing::None, key)
    }
}

/// Sends the request and relays the reply. A kept connection that turns out closed is replaced, and
/// a request that an endpoint fails goes to another one, when repeating it is safe: nothing of it
/// has been written, or its method is idempotent and all of it is still at hand (RFC 9110, section
/// 9.2.2; RFC 9112, section 9.3.1).
async fn send(
    session: &mut Session,
    (target, method): (&ForwardTarget, &Method),
    prepared: &mut Prepared,
    out: &mut Vec<u8>,
    streams: Streams<'_>,
) -> Result<Served, Failure> {
    let upgrades = session.head.upgrades_to_websocket;
    if upgrades {
        streams.check_room()?;
    }
    let upload = &mut prepared.upload;
    let uploaded = upload.moved;
    let mut attempt = Attempt::new(prepared.key).for_upgrade(upgrades);
    let connect = target.plan.timeouts.connect;
    loop {
        let patience = Patience {
            worker: &session.worker,
            deadline: &session.deadline,
            connect: connect.unwrap_or(session.settings.timeouts.connect),
        };
        let lending = target.upstream.lend(session.now, &mut attempt, patience);
        let Lent {
            line,
            reused,
            lease,
        } = lending.await?;
        let failed = match line {
            Line::Http1(mut connection) => {
                let (result, written) =
                    reply_head(session, target, method, out, upload, &mut connection).await;
                let Err(failure) = result else {
                    lease.succeed();
                    session.deadline.lift();
                    let line = (connection, lease);
                    let to = (target, method);
                    return Ok(relay(session, to, line, upload, out, streams).await);
                };
                let at_hand = upload.moved == uploaded;
                Failed {
                    failure,
                    repeatable: at_hand && (written == 0 || method.is_idempotent()),
                }
            }
            Line::Http2(link) => {
                // Boxed, for every session would carry its room.
                let to = (target, method);
                let work = h1_to_h2::forward(session, to, (&link, &lease), out, streams);
                match Box::pin(work).await {
                    Ok(Done::Served(served)) => return Ok(served),
                    Ok(Done::Events(begun)) => return Ok(session.go_on(*begun, lease)),
                    Err(failed) => failed,
                }
            }
        };
        target
            .upstream
            .after_failure(failed, reused, lease, &mut attempt)?;
        session.worker.metrics.upstream_retries.add(1);
    }
}

/// Sends and waits, passing interim replies on. Also tells how much of `out` was written.
async fn reply_head(
    session: &mut Session,
    target: &ForwardTarget,
    method: &Method,
    out: &[u8],
    upload: &mut Pipe,
    upstream: &mut Connection,
) -> (Result<(), Failure>, usize) {
    let timeouts = &target.plan.timeouts;
    let body_time = timeouts.body.unwrap_or(session.settings.timeouts.body);
    let response_time = timeouts
        .response
        .unwrap_or(session.settings.timeouts.response);
    let whole = upload.is_done();
    session
        .deadline
        .set(session.now, if whole { response_time } else { body_time });
    let mut written = 0;
    for _ in 0..INTERIM_MAX {
        let limits = session.head_limits();
        let seen_progress = upload.moved;
        let mut exchange = Exchange {
            client: ClientBody {
                connection: &mut session.client,
                upload,
            },
            upstream,
            deadline: &session.deadline,
            out,
            written,
            response: &mut session.response,
            method,
            limits,
            body_time,
            response_time,
            write_error: None,
            seen_progress,
        };
        let result = poll_fn(|context| exchange.poll(context)).await;
        written = exchange.written;
        if result.is_err() || !session.response.is_interim() {
            return (result, written);
        }
        if let Err(failure) = interim(session, target, upstream).await {
            return (Err(failure), written);
        }
    }
    (Err(invalid("too many interim replies")), written)
}

/// Passes an interim reply on, where the client can understand it (RFC 9110, section 15.2).
async fn interim(
    session: &mut Session,
    target: &ForwardTarget,
    upstream: &mut Connection,
) -> Result<(), Failure> {
    let length = session.response.length;
    let client = ClientVersion::Http1(session.head.version);
    if passes_interim(session.response.status, client, &target.plan) {
        let mut out = Vec::with_capacity(length);
        let client = ClientSide {
            version: session.head.version,
            closes: false,
        };
        let edits = component::forward::FieldEdits::default();
        response_head::write_relayed(
            &session.response,
            upstream.input.bytes(),
            client,
            &edits,
            |_| {},
            &mut out,
        );
        session
            .write_all(&out)
            .await
            .map_err(|_| Failure::ClientGone)?;
    }
    upstream.input.consume(length);
    Ok(())
}

/// Relays the reply whose head lies at the front of the upstream's input.
async fn relay(
    session: &mut Session,
    (target, method): (&ForwardTarget, &Method),
    (upstream, lease): (Connection, Lease),
    upload: &mut Pipe,
    out: &mut Vec<u8>,
    streams: Streams<'_>,
) -> Served {
    if session.response.status == 101 {
        if session.head.upgrades_to_websocket {
            let line = (upstream, lease);
            return tunnel::begin(session, target, line, out, streams).await;
        }
        return session
            .fail_within(invalid("the connection was switched unasked"), upload)
            .await;
    }
    if session.response.is_event_stream && goes_on(session, method) {
        let result = match events::check_upload(upload.is_done(), streams) {
            Ok(true) => begin_events(session, target, (upstream, lease), out, streams).await,
            Ok(false) => {
                // What remains of the request goes on beside the reply.
                return relay_body(session, (target, method), (upstream, lease), upload, out).await;
            }
            Err(failure) => Err(failure),
        };
        return match result {
            Ok(served) => served,
            Err(failure) => session.fail_within(failure, upload).await,
        };
    }
    relay_body(session, (target, method), (upstream, lease), upload, out).await
}

/// Whether the reply is one whose end nobody knows.
fn goes_on(session: &Session, method: &Method) -> bool {
    let framing = session.response.framing;
    matches!(framing, Framing::Chunked | Framing::UntilClose)
        && session.head.method != Method::Head
        && *method != Method::Head
}

/// Writes the head of an event stream and leaves the rest to a task of its own.
async fn begin_events(
    session: &mut Session,
    target: &ForwardTarget,
    (mut upstream, lease): (Connection, Lease),
    out: &mut Vec<u8>,
    streams: Streams<'_>,
) -> Result<Served, Failure> {
    let response = &session.response;
    let version = session.head.version;
    let bytes = upstream.input.bytes();
    let is_coded = events::is_coded(response.headers(bytes));
    let open = events::open(streams, is_coded)?;
    let (_, ends) = encoding_for(response.framing, version);
    let closes = ends || session.closes_after_this();
    let client = ClientSide { version, closes };
    out.clear();
    let (now, date) = (session.now, &session.worker.date);
    let write_date = |out: &mut Vec<u8>| date.append(now, out);
    let edits = &target.plan.reply_fields;
    response_head::write_relayed(response, bytes, client, edits, write_date, out);
    let promised = response.keep_alive_time(bytes);
    let keeps = response.keeps_alive().then_some(promised);
    upstream.input.consume(response.length);
    let (status, decoder) = (
        response.status,
        BodyDecoder::new(response.framing, session.head_limits()),
    );
    if session.write_all(out).await.is_err() {
        return Err(Failure::ClientGone);
    }
    let source = events::Source::http1(upstream, decoder, keeps);
    let events = Events::new(source, is_coded, &session.worker, streams);
    let begun = EventsBegun {
        events,
        open,
        status,
        closes,
    };
    Ok(session.go_on(begun, lease))
}

/// Relays a reply whose body ends before the client asks again.
async fn relay_body(
    session: &mut Session,
    (target, method): (&ForwardTarget, &Method),
    (mut upstream, lease): (Connection, Lease),
    upload: &mut Pipe,
    out: &mut Vec<u8>,
) -> Served {
    let reply = match begin_reply(session, target, method, &mut upstream, out) {
        Ok(reply) => reply,
        Err(failure) => return session.fail_within(failure, upload).await,
    };
    let mut relay = Relay {
        download: reply.download,
        upload,
        upstream: &mut upstream,
        out_at: 0,
        upload_failed: false,
        idle_time: reply.idle_time,
        seen_progress: 0,
    };
    let result = poll_fn(|context| relay.poll(context, session, out)).await;
    let (received, upload_failed) = (relay.download.moved, relay.upload_failed);
    let uploaded = upload.is_done() && !upload_failed;
    session.now = Instant::now();
    let after = match result {
        Err(cut) => {
            cut.log();
            After::Gone
        }
        Ok(()) => {
            if reply.keeps_upstream && uploaded {
                lease.endpoint().keep(upstream, session.now, reply.promised);
            }
            if reply.closes || !uploaded {
                After::Close
            } else {
                After::Keep
            }
        }
    };
    Served {
        status: session.response.status,
        after,
        received,
    }
}

/// What is known of a reply when its head has been rewritten.
struct ReplyStart {
    download: Pipe,
    closes: bool,
    keeps_upstream: bool,
    promised: Option<Duration>,
    idle_time: Duration,
}

/// Rewrites the reply's head, and puts what is there of its body behind it.
fn begin_reply(
    session: &Session,
    target: &ForwardTarget,
    method: &Method,
    upstream: &mut Connection,
    out: &mut Vec<u8>,
) -> Result<ReplyStart, Failure> {
    let response = &session.response;
    let version = session.head.version;
    // A reply to another method than the client's has a body where the client expects none.
    let unwanted = session.head.method == Method::Head && *method != Method::Head;
    let (encoding, ends) = encoding_for(response.framing, version);
    let closes = ends || session.closes_after_this();
    out.clear();
    let bytes = upstream.input.bytes();
    let client = ClientSide { version, closes };
    let (now, date) = (session.now, &session.worker.date);
    let write_date = |out: &mut Vec<u8>| date.append(now, out);
    let edits = &target.plan.reply_fields;
    response_head::write_relayed(response, bytes, client, edits, write_date, out);
    let promised = response.keep_alive_time(bytes);
    let timeouts = &session.settings.timeouts;
    let idle_time = match response.is_event_stream {
        true => timeouts.stream,
        false => target.plan.timeouts.body.unwrap_or(timeouts.body),
    };
    upstream.input.consume(response.length);
    let framing = if unwanted {
        Framing::None
    } else {
        response.framing
    };
    let mut download = Pipe::new(framing, encoding, session.head_limits());
    match download.take_into(&mut upstream.input, out, WITH_HEAD_MAX) {
        Ok(()) => {}
        Err(PipeError::Malformed(reason)) => return Err(invalid(reason)),
        Err(_) => return Err(invalid("the body ended too early")),
    }
    let keeps_upstream = response.keeps_alive() && !unwanted;
    Ok(ReplyStart {
        download,
        closes,
        keeps_upstream,
        promised,
        idle_time,
    })
}

fn invalid(reason: &'static str) -> Failure {
    Failure::Invalid(HeadError {
        status: 400,
        reason,
    })
}

/// The relaying of a reply's head and body, and of what remains of the request's body.
struct Relay<'a> {
    download: Pipe,
    upload: &'a mut Pipe,
    upstream: &'a mut Connection,
    out_at: usize,
    upload_failed: bool,
    idle_time: Duration,
    seen_progress: u64,
}

impl Relay<'_> {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        session: &mut Session,
        out: &[u8],
    ) -> Poll<Result<(), Break>> {
        if let Poll::Ready(result) = self.poll_download(context, &mut session.client, out) {
            return Poll::Ready(result);
        }
        if self.upload.is_done() || self.upload_failed {
            if has_left(context, &mut session.client) {
                return Poll::Ready(Err(Break::ClientGone));
            }
        } else if let Some(cut) = self.poll_upload(context, &mut session.client) {
            return Poll::Ready(Err(cut));
        }
        let progress = self.download.moved + self.upload.moved + self.out_at as u64;
        if progress != self.seen_progress {
            self.seen_progress = progress;
            session.deadline.set(Instant::now(), self.idle_time);
        }
        session.deadline.poll(context).map(|()| Err(Break::Idle))
    }

    fn poll_download(
        &mut self,
        context: &mut Context<'_>,
        client: &mut Connection,
        out: &[u8],
    ) -> Poll<Result<(), Break>> {
        while let Some(rest) = out.get(self.out_at..).filter(|rest| !rest.is_empty()) {
            match client.poll_write(context, rest) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count)) => self.out_at += count,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Break::ClientGone)),
            }
        }
        if self.download.is_done() {
            return Poll::Ready(Ok(()));
        }
        self.download
            .poll(context, self.upstream, client)
            .map_err(|error| match error {
                PipeError::Sink(_) => Break::ClientGone,
                error => Break::Upstream(error),
            })
    }

    fn poll_upload(&mut self, context: &mut Context<'_>, client: &mut Connection) -> Option<Break> {
        match self.upload.poll(context, client, self.upstream) {
            Poll::Pending | Poll::Ready(Ok(())) => None,
            Poll::Ready(Err(PipeError::Malformed(reason))) => Some(Break::ClientInvalid(reason)),
            Poll::Ready(Err(PipeError::Truncated | PipeError::Source(_))) => {
                Some(Break::ClientGone)
            }
            Poll::Ready(Err(PipeError::Sink(_))) => {
                // The upstream takes no more of the request; its reply goes on.
                self.upload_failed = true;
                None
            }
        }
    }
}

/// The limits of heads as `net` wants them.
pub(crate) fn head_limits(limits: &component::settings::Limits) -> HeadLimits {
    HeadLimits {
        bytes: limits.head,
        fields: limits.fields,
    }
}

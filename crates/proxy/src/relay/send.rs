//! Sends a request to an upstream: borrows a connection, runs the exchange over it, and repeats
//! what has failed where that is safe.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use component::identity::Identity;
use component::upstream::{Balance, HashKey};
use message::{Fault, Kind, Method, Origin};
use net::Connection;
use net::http1::Framing;
use net::http2::{Link, RequestLine};
use tokio::time::Instant;

use super::authorize::{self, Answered, Authorization};
use super::exchange::{EventStream, Exchange, Relayed, Reply, Terms};
use super::failure::{Failed, Failure};
use super::upstream_http1::Http1Upstream;
use super::upstream_http2::Http2Upstream;
use super::{Progress, Requester, Times, UpstreamExchange, Waiting, is_stream};
use crate::stream::Streams;
use crate::stream::events;
use crate::upstream::request_head::{self, CameBy, ForwardTarget, Lines as _, Outgoing};
use crate::upstream::{self, Attempt, Lease, Lent, Line, Patience, Upstream};

/// How long after it was lent a kept connection may have been closed under a request: what is
/// closed later has been closed upon the request.
const RACE_TIME: Duration = Duration::from_secs(1);

/// What a request asks of the relay.
#[derive(Clone, Copy)]
pub(crate) struct Order<'a> {
    pub target: &'a ForwardTarget,
    /// The method that is sent.
    pub method: &'a Method,
    /// The flow's streams, where an event stream can be left to a task of its own.
    pub streams: Option<Streams<'a>>,
    /// Whether the client has asked to go on with another protocol.
    pub upgrades: bool,
    /// Whether the receiver recognises a repeated request, see [`handler::Call::repeats`].
    ///
    /// [`handler::Call::repeats`]: component::handler::Call::repeats
    pub repeats: bool,
    /// When the request came, if that is still now.
    pub now: Instant,
}

/// How a request has ended.
pub(crate) enum Outcome {
    /// Its reply has been relayed, or has been cut.
    Relayed(Relayed),
    /// Its reply is an event stream whose head has been sent.
    EventStream(EventStream, events::Source, Lease),
    /// Its reply is `101`: head and connection.
    Switched(Box<Http1Upstream>, Lease),
}

/// Sends the request and relays its reply. A kept connection that turns out closed is replaced,
/// and a request that an endpoint fails goes to another one, when repeating it is safe: nothing of
/// it has been acted on, or its method is idempotent, and all of it is still at hand (RFC 9110,
/// section 9.2.2; RFC 9112, section 9.3.1).
///
/// No `async fn`, which would have room for the order twice.
pub(crate) fn send<D: Requester>(
    down: &mut D,
    mut order: Order<'_>,
) -> impl Future<Output = Result<Outcome, Failure>> {
    let target = order.target;
    async move {
        let key = match &target.plan.upstream.balance {
            Balance::Hash(key) => balance_key(key, down.path(), &down.request()),
            _ => 0,
        };
        let mut authorization = match &target.authorizer {
            None => None,
            // Boxed, for few targets have one.
            Some(authorizer) => {
                let authorization = Box::pin(authorizer.begin(down, order)).await?;
                // The back end's time begins behind it.
                order.now = Instant::now();
                Some(authorization)
            }
        };
        let identity = identity(down, &order)?;
        let mut attempt = Attempt::new(key).for_upgrade(order.upgrades);
        loop {
            let Lent {
                line,
                reused,
                lease,
                now,
            } = lend(down, &order, &mut attempt).await?;
            let sent = Sent {
                order: &order,
                authorization: authorization.as_deref(),
                identity: identity.as_deref(),
                now,
            };
            let unanswered = match line {
                Line::Http1(connection) => match over_http1(down, &sent, connection, lease).await {
                    Ok(outcome) => return Ok(outcome),
                    Err(unanswered) => unanswered,
                },
                // Boxed, for every session would carry its room.
                Line::Http2(link) => match Box::pin(over_http2(down, &sent, link, lease)).await {
                    Ok(outcome) => return Ok(outcome),
                    Err(unanswered) => unanswered,
                },
            };
            let (failed, lease) = match unanswered {
                Unanswered::Failed(failed, lease) => (failed, lease),
                Unanswered::Renewed(renewed) => {
                    authorization = Some(renewed);
                    down.rewind();
                    order.now = Instant::now();
                    continue;
                }
            };
            if down.deadline().is_over() {
                // The flow's own time has ended it.
                lease.gave_up();
            }
            attempt.repeats = order.repeats && sent.now.elapsed() < RACE_TIME;
            target
                .upstream
                .after_failure(failed, reused, lease, &mut attempt)?;
            down.rewind();
            order.now = Instant::now();
            down.worker().metrics.upstream_retries.add(1);
        }
    }
}

/// Borrows a connection: an idle one at once.
#[inline]
async fn lend<D: Requester>(
    down: &mut D,
    order: &Order<'_>,
    attempt: &mut Attempt,
) -> Result<Lent, Failure> {
    let connect = order.target.plan.timeouts.connect;
    let connect = connect.unwrap_or(down.settings().timeouts.connect);
    let upstream = &order.target.upstream;
    match upstream.take_idle(order.now, attempt, connect)? {
        Ok(lent) => Ok(lent),
        // Boxed, for it is rare and large, and every session would carry it.
        Err(lease) => Box::pin(wait(down, upstream, lease, attempt, connect)).await,
    }
}

/// Waits for a connection, unless the client leaves meanwhile.
async fn wait<D: Requester>(
    down: &mut D,
    upstream: &Rc<Upstream>,
    lease: Lease,
    attempt: &mut Attempt,
    connect: Duration,
) -> Result<Lent, Failure> {
    let Waiting {
        deadline,
        mut client,
    } = down.waiting();
    let patience = Patience { deadline, connect };
    let mut waiting = pin!(upstream.wait(lease, attempt, patience));
    poll_fn(|context| match waiting.as_mut().poll(context) {
        Poll::Ready(lent) => Poll::Ready(lent),
        Poll::Pending if client.poll_disconnected(context) => Poll::Ready(Err(Failure::ClientGone)),
        Poll::Pending => Poll::Pending,
    })
    .await
}

fn terms<'a, D: Requester>(down: &D, order: &Order<'a>) -> Terms<'a> {
    let Order { target, method, .. } = *order;
    Terms {
        plan: &target.plan,
        method,
        times: Times::of(&target.plan, down.settings()),
        limits: crate::client::forward::head_limits(&down.settings().limits),
        streams: order.streams,
        upgrades: order.upgrades,
    }
}

/// An attempt to send a request.
struct Sent<'a> {
    order: &'a Order<'a>,
    authorization: Option<&'a Authorization>,
    /// The value of the identity header.
    identity: Option<&'a str>,
    now: Instant,
}

impl<'a> Sent<'a> {
    /// Name and value of the identity header.
    fn identity(&self) -> Option<(&'a str, &'a str)> {
        let identity = self.order.target.plan.identity.as_ref()?;
        Some((identity.field().name(), self.identity?))
    }
}

/// The value of the identity header, where the target gets one.
#[inline]
fn identity<D: Requester>(down: &D, order: &Order<'_>) -> Result<Option<Arc<str>>, Failure> {
    match &order.target.plan.identity {
        None => Ok(None),
        Some(identity) => token(&**identity, down, order).map(Some),
    }
}

/// The token that says who has sent a request. Without one the request is not sent.
#[cold]
fn token<D: Requester>(
    identity: &dyn Identity,
    down: &D,
    order: &Order<'_>,
) -> Result<Arc<str>, Failure> {
    let of_session = order.streams.and_then(|it| it.caller);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let token = match down.request().caller.or(of_session) {
        Some(caller) => identity.token(caller, now),
        None => {
            let detail = "nobody is known who has sent the message";
            Err(Fault::new(Kind::Forbidden, Origin::Client, detail))
        }
    };
    token.map_err(|fault| Failure::Limited(Box::new(fault)))
}

/// An attempt that has no outcome.
enum Unanswered {
    Failed(Failed, Lease),
    /// The credentials were refused: the request is sent again with these.
    Renewed(Box<Authorization>),
}

type Attempted = Result<Outcome, Unanswered>;

/// Runs an exchange, by way of the authorizer where the request has credentials.
async fn run<D: Requester, U: UpstreamExchange>(
    exchange: &mut Exchange<'_, D, U>,
    sent: &Sent<'_>,
    lease: &Lease,
) -> Result<Answered, Failed> {
    match (sent.authorization, &sent.order.target.authorizer) {
        (Some(authorization), Some(authorizer)) => {
            let answered = || lease.answered();
            // Boxed, for few requests have one.
            Box::pin(authorizer.run(exchange, *sent.order, authorization, answered)).await
        }
        _ => {
            let reply = exchange.run(|| lease.answered()).await;
            reply.map(Answered::Reply)
        }
    }
}

/// Writes the head of a request. Not within [`over_http1`], which would keep what it is written
/// from until the reply has come.
#[inline]
fn begin_http1<D: Requester>(
    down: &D,
    sent: &Sent<'_>,
    connection: Box<Connection>,
) -> Http1Upstream {
    let worker = down.worker();
    let mut head = worker.take_scratch();
    let request = down.request();
    request_head::write(sent.order.target, &request, &mut head);
    if let Some(authorization) = sent.authorization {
        authorize::add_lines(&mut head, authorization);
    }
    if let Some(identity) = sent.identity() {
        authorize::add_line(&mut head, identity);
    }
    let is_chunked = request.framing == Framing::Chunked;
    Http1Upstream::begin(connection, head, is_chunked, worker.take_reply_head())
}

/// Sends the request over an HTTP/1.1 connection and relays its reply.
///
/// No `async fn`, which would have room for the lease twice.
fn over_http1<D: Requester>(
    down: &mut D,
    sent: &Sent<'_>,
    connection: Box<Connection>,
    lease: Lease,
) -> impl Future<Output = Attempted> {
    let order = sent.order;
    async move {
        let worker = Rc::clone(down.worker());
        let mut up = begin_http1(down, sent, connection);
        let terms = terms(down, order);
        let mut exchange = Exchange::new(down, &mut up, terms, Progress::new(Some(sent.now)));
        let reply = run(&mut exchange, sent, &lease).await;
        match reply {
            Err(failed) => {
                worker.return_reply_head(up.head);
                Err(Unanswered::Failed(failed, lease))
            }
            Ok(Answered::Renewed(renewed)) => {
                worker.return_reply_head(up.head);
                Err(Unanswered::Renewed(renewed))
            }
            Ok(Answered::Reply(Reply::Switched)) => Ok(Outcome::Switched(Box::new(up), lease)),
            Ok(Answered::Reply(Reply::EventStream(stream))) => {
                let source = events::Source::Http1(Box::new(up.exchange));
                Ok(Outcome::EventStream(stream, source, lease))
            }
            Ok(Answered::Reply(Reply::Relayed(mut relayed))) => {
                worker.return_reply_head(up.head);
                if relayed.cut.is_none()
                    && let Some(released) = up.exchange.release()
                {
                    let now = Instant::now();
                    relayed.ended = Some(now);
                    lease.keep(released, now);
                }
                Ok(Outcome::Relayed(relayed))
            }
        }
    }
}

async fn over_http2<D: Requester>(
    down: &mut D,
    sent: &Sent<'_>,
    link: Link,
    lease: Lease,
) -> Attempted {
    let order = sent.order;
    let worker = Rc::clone(down.worker());
    let (head, is_long, has_body) = {
        let request = down.request();
        let is_long = request.came_by == CameBy::Http2 && is_stream(request.headers);
        let has_body = !matches!(request.framing, Framing::None | Framing::Length(0));
        let mut head = worker.take_http2_head();
        request_head::write_http2(order.target, &request, &mut head);
        if let Some(authorization) = sent.authorization {
            authorize::add_fields(&mut head, authorization);
        }
        if let Some((name, value)) = sent.identity() {
            head.fields.line(name.as_bytes(), value.as_bytes());
        }
        (head, is_long, has_body)
    };
    let is_secure = order.target.plan.upstream.tls.is_some();
    let line = RequestLine {
        method: order.method.as_str().as_bytes(),
        scheme: if is_secure { b"https" } else { b"http" },
        authority: &head.authority,
        path: &head.path,
    };
    let opened = Http2Upstream::open(&link, line, &head.fields, has_body, down).await;
    worker.return_http2_head(head);
    let mut up = match opened {
        Ok(up) => up,
        Err(failed) => return Err(Unanswered::Failed(failed, lease)),
    };
    let mut terms = terms(down, order);
    if is_long {
        terms.times.go_on();
    }
    let mut exchange = Exchange::new(down, &mut up, terms, Progress::new(Some(sent.now)));
    let reply = run(&mut exchange, sent, &lease).await;
    match reply {
        Err(failed) => {
            // A reply that is late by the back end's own time, not the flow's, may mean that the
            // connection is dead, which others would wait for too.
            let is_late = matches!(failed.failure, Failure::ReplyTimeout);
            if is_late && !down.deadline().is_over() {
                link.suspect();
            }
            Err(Unanswered::Failed(failed, lease))
        }
        Ok(Answered::Renewed(renewed)) => Err(Unanswered::Renewed(renewed)),
        Ok(Answered::Reply(Reply::Switched)) => {
            let failure = Failure::invalid("protocols are not switched over HTTP/2");
            Err(Unanswered::Failed(failure.finally(), lease))
        }
        Ok(Answered::Reply(Reply::EventStream(stream))) => {
            let source = events::Source::Http2(up.stream, up.reader);
            Ok(Outcome::EventStream(stream, source, lease))
        }
        Ok(Answered::Reply(Reply::Relayed(relayed))) => Ok(Outcome::Relayed(relayed)),
    }
}

/// What decides about the endpoint where the balance is by hash.
fn balance_key(key: &HashKey, path: &[u8], request: &Outgoing<'_>) -> u64 {
    let client = || request.client().to_string().into_bytes();
    match key {
        HashKey::Client => upstream::hash(&client()),
        HashKey::Path => upstream::hash(path),
        HashKey::Header(name) => match request.headers.get(name) {
            Some(value) => upstream::hash(value),
            None => upstream::hash(&client()),
        },
    }
}

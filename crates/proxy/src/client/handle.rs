//! The message path: the body is read into memory when the handler wants it, the handler runs, and
//! its reply is written or its message forwarded.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use component::handler::{Handler, Outcome};
use message::memory::{self, Collected};
use message::{Body, Fault, Request};
use net::budget::{self, Budget};
use net::http1::{BodyDecoder, Framing, Piece};
use tokio::time::Instant;

use crate::background;
use crate::call::{Caller, log_fault};
use crate::client::added_fields::{self, AddedFields};
use crate::client::door::{BodyDoor, TurnedAway};
use crate::client::forward;
use crate::client::session::{After, Served, Session};
use crate::memory::{hold, no_room};
use crate::relay::downstream_http1::RequestSource;
use crate::relay::failure::Failure;
use crate::relay::has_left;
use crate::relay::least_rate::{ClientShare, LeastRate};
use crate::router::{ForwardTargets, Route};
use crate::stream::{self, Streams};
use crate::upstream::request_head::take_fields;

/// The client has disconnected.
const GONE: Served = Served {
    status: 0,
    after: After::Gone,
    received: 0,
};

/// Serves one request through a handler, when its door lets it in.
///
/// No `async fn`, which would have room for the request twice.
pub(crate) fn handle<'a>(
    session: &'a mut Session,
    mut request: Request,
    door: &'a mut BodyDoor<'_>,
    (handler, body_max, forwards): (&'a Arc<dyn Handler>, u64, &'a Rc<ForwardTargets>),
    streams: Streams<'a>,
) -> impl Future<Output = Served> {
    let mut body = session.take_head();
    async move {
        if handler.reads_body() || door.reads_body() {
            match read_body(session, &mut body, body_max).await {
                Ok(content) => request.body = content,
                Err(failed) => return Box::pin(refuse(session, failed)).await,
            }
        } else if body.is_done() {
            request.body = Body::Empty;
        }
        let worker = Rc::clone(&session.worker);
        let watches = body.is_done();
        let mut has_left = |it: &mut Context<'_>| watches && has_left(it, &mut session.client);
        if door.reads_body() {
            match door.pass(&mut request, &worker, &mut has_left).await {
                Ok(limits) => session.added_fields = AddedFields::of(limits, None),
                Err(TurnedAway::Reply(reply)) => return session.answer(&reply, &mut body).await,
                Err(TurnedAway::Gone) => return GONE,
            }
        }
        let streams = Streams {
            admission: door.admission().or(streams.admission),
            ..streams
        };
        let caller = Caller::admitted(&worker, forwards, streams.admission);
        let settlement = door.settlement();
        let outcome = background::run(&caller, handler, request, settlement, has_left).await;
        session.now = Instant::now();
        match outcome {
            None => GONE,
            // The body is copied behind the head.
            Some(Ok(Outcome::Reply(mut reply))) => {
                added_fields::add(session.added_fields.as_deref(), &mut reply);
                match hold(&reply, 2) {
                    Ok(_room) => session.answer(&reply, &mut body).await,
                    Err(fault) => session.answer(&fault.to_reply(), &mut body).await,
                }
            }
            Some(Ok(Outcome::Forward(plan, request, time))) => {
                drop_unread(session, &request, &mut body);
                let target = forwards.get(&plan, &worker.upstreams);
                let source = RequestSource::Message(request);
                // On the heap, or every session would have room for it twice.
                Box::pin(forward::forward(session, &target, source, time, streams)).await
            }
            Some(Ok(Outcome::Stream(mut reply, feed))) => {
                added_fields::add(session.added_fields.as_deref(), &mut reply);
                Box::pin(stream::begin(
                    session,
                    (reply, feed),
                    streams,
                    forwards,
                    &mut body,
                ))
                .await
            }
            Some(Err(fault)) => {
                log_fault(&fault);
                session.answer(&fault.to_reply(), &mut body).await
            }
        }
    }
}

/// Ends the connection when the client is still sending a body that nobody reads: the rest of it
/// would be read as the next request.
fn drop_unread(session: &mut Session, request: &Request, body: &mut BodyDecoder) {
    if !request.body.is_unread() && !session.discard(body) {
        session.head.connection.close = true;
    }
}

/// Copies the head out of the buffer.
pub(crate) fn take_request(session: &Session, route: &Route, path: Option<Vec<u8>>) -> Request {
    let bytes = session.client.input.bytes();
    let head = &session.head;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let path = path.map_or_else(|| text(head.path(bytes)), |path| text(&path));
    let captures = route.parameters.iter().zip(session.captures());
    let parameters = captures
        .map(|(name, (start, end))| {
            let value = path.get(*start as usize..*end as usize).unwrap_or_default();
            (name.clone(), value.to_owned())
        })
        .collect();
    let head_bytes = bytes.get(..head.length).unwrap_or_default();
    let client = &session.client;
    let fields = head.headers(head_bytes);
    let taken = take_fields(
        &session.settings,
        client.peer(),
        fields,
        client.certificate(),
    );
    Request {
        method: head.method.clone(),
        query: head.query(bytes).map(text),
        parameters,
        headers: taken.headers,
        body: Body::Unread,
        peer: taken.peer,
        proxy: taken.proxy,
        is_secure: client.is_tls(),
        certificate: taken.certificate,
        caller: None,
        path,
    }
}

/// Why there is no body.
enum Failed {
    Fault(Fault),
    Failure(Failure),
}

async fn refuse(session: &mut Session, failed: Failed) -> Served {
    match failed {
        Failed::Fault(fault) => session.answer_fault(&fault, true).await,
        Failed::Failure(failure) => session.fail(failure).await,
    }
}

/// Reads the whole body, at most `max` bytes of it.
async fn read_body(
    session: &mut Session,
    body: &mut BodyDecoder,
    max: u64,
) -> Result<Body, Failed> {
    let too_large =
        || Failed::Fault(Fault::invalid("the request body is too large").with_status(413));
    if let Framing::Length(length) = session.head.framing {
        if length > max || memory::bodies().never_has(length) {
            return Err(too_large());
        }
        let room = memory::bodies().check(length);
        room.map_err(|exhausted| Failed::Fault(no_room(exhausted)))?;
    }
    if session.head.expects_continue && session.client.input.is_empty() {
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
        let written = session.write_all(interim).await;
        written.map_err(|_| Failed::Failure(Failure::ClientGone))?;
    }
    let mut content = Collected::default();
    let mut from_client = FromClient::default();
    let mut waited = false;
    let mut budget = Budget::default();
    loop {
        match take_piece(session, body, &mut content)? {
            Step::Done => return Ok(Body::from(content.into_bytes())),
            Step::Again if content.len() as u64 > max => return Err(too_large()),
            Step::Again => {
                budget.spend(budget::PIECE);
                budget.yield_if_spent().await;
            }
            Step::Read => {
                if !waited {
                    waited = true;
                    content.reserve(expected_size(session.head.framing, max));
                }
                let filled = fill(session, &mut from_client).await;
                filled.map_err(Failed::Failure)?;
            }
        }
    }
}

enum Step {
    Done,
    Again,
    Read,
}

fn take_piece(
    session: &mut Session,
    body: &mut BodyDecoder,
    content: &mut Collected,
) -> Result<Step, Failed> {
    let input = &mut session.client.input;
    let piece = body
        .next(input.bytes())
        .map_err(|error| Failed::Failure(Failure::ClientInvalid(error.0)))?;
    Ok(match piece {
        Piece::End => Step::Done,
        Piece::NeedMore => Step::Read,
        Piece::Data(count) => {
            content
                .extend(input.bytes().get(..count).unwrap_or_default())
                .map_err(|exhausted| Failed::Fault(no_room(exhausted)))?;
            input.consume(count);
            Step::Again
        }
        Piece::Overhead(count) | Piece::Skip(count) | Piece::Trailers(count) => {
            input.consume(count);
            Step::Again
        }
    })
}

fn expected_size(framing: Framing, max: u64) -> usize {
    match framing {
        Framing::Length(length) => length.min(max) as usize,
        _ => 0,
    }
}

/// What has been read of a body from its client.
#[derive(Default)]
struct FromClient {
    bytes: u64,
    rate: LeastRate,
}

/// Reads once from the client, who may neither stand still for too long nor be too slow.
async fn fill(session: &mut Session, from_client: &mut FromClient) -> Result<(), Failure> {
    let client = ClientShare {
        moved: from_client.bytes,
        is_awaited: true,
        rate: session.settings.limits.min_body_rate,
    };
    let (now, time) = (Instant::now(), session.settings.timeouts.body);
    let time = from_client.rate.allow(now, time, client);
    session.deadline.set(now, time);
    poll_fn(|context| match session.client.poll_fill(context) {
        Poll::Ready(Ok(count)) if count > 0 => {
            from_client.bytes += count as u64;
            Poll::Ready(Ok(()))
        }
        Poll::Ready(_) => Poll::Ready(Err(Failure::ClientGone)),
        Poll::Pending => session
            .deadline
            .poll(context)
            .map(|()| Err(Failure::ClientSlow)),
    })
    .await
}

//! The forward path over HTTP/1.1: a request goes to the upstream, its reply to the client, neither
//! collected.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use message::Method;
use net::http1::HeadLimits;
use tokio::time::Instant;

use crate::client::rescue;
use crate::client::session::{After, Served, Session};
use crate::relay::Downstream as _;
use crate::relay::downstream_http1::{Http1Downstream, RequestSource};
use crate::relay::exchange::{EventStream, Relayed};
use crate::relay::failure::{Break, Failure};
use crate::relay::send::{Order, Outcome, send};
use crate::stream::Streams;
use crate::stream::events::{self, Events};
use crate::stream::tunnel;
use crate::upstream::Lease;
use crate::upstream::request_head::ForwardTarget;

/// Forwards one request and relays the reply, whose head must come within `time`.
pub(crate) async fn forward(
    session: &mut Session,
    target: &Rc<ForwardTarget>,
    source: RequestSource,
    time: Option<Duration>,
    streams: Streams<'_>,
) -> Served {
    let upgrades = session.head.upgrades_to_websocket;
    if target.plan.websocket && !upgrades {
        return ask_for_upgrade(session, &source).await;
    }
    if let Some(time) = time {
        session.deadline.cap(session.now, time);
    }
    let method = sent_method(session, target, &source);
    let order = Order {
        target,
        method: &method,
        streams: Some(streams),
        upgrades,
        repeats: false,
        now: session.now,
    };
    let mut down = Http1Downstream::new(session, source);
    let result = match check_room(upgrades, streams) {
        Ok(()) => send(&mut down, order).await,
        Err(failure) => Err(failure),
    };
    // What the client is told now has a time of its own.
    down.deadline().lift();
    if !matches!(result, Ok(Outcome::Relayed(_))) && down.finish_interim().await.is_err() {
        return session.after_reply(0, true, Err(io::ErrorKind::BrokenPipe.into()));
    }
    match result {
        Err(failure) => {
            let closes = !down.discard();
            session.answer_failure(failure, closes).await
        }
        Ok(Outcome::Relayed(relayed)) => {
            down.finish();
            end(down, &relayed)
        }
        Ok(Outcome::EventStream(stream, source, lease)) => {
            down.finish();
            // Boxed, for it is rare and large, and every session would carry its room.
            Box::pin(begin_events(down, stream, source, lease, streams)).await
        }
        Ok(Outcome::Switched(up, lease)) => {
            Box::pin(tunnel::begin(session, target, (*up, lease), streams)).await
        }
    }
}

async fn ask_for_upgrade(session: &mut Session, source: &RequestSource) -> Served {
    let reply = rescue::upgrade_required();
    match source {
        RequestSource::Client { .. } => {
            let mut body = session.take_head();
            session.answer(&reply, &mut body).await
        }
        RequestSource::Message(request) => {
            session.answer_reply(&reply, request.body.is_unread()).await
        }
    }
}

fn sent_method(session: &Session, target: &ForwardTarget, source: &RequestSource) -> Method {
    let own = || match source {
        RequestSource::Client { .. } => session.head.method.clone(),
        RequestSource::Message(request) => request.method.clone(),
    };
    target.plan.method.clone().unwrap_or_else(own)
}

/// A request to switch protocols needs room for one more stream.
fn check_room(upgrades: bool, streams: Streams<'_>) -> Result<(), Failure> {
    match upgrades {
        true => streams.check_room(),
        false => Ok(()),
    }
}

/// What becomes of the client's connection behind a reply that has been relayed.
fn end(mut down: Http1Downstream<'_>, relayed: &Relayed) -> Served {
    let received = down.replied();
    let is_whole = down.discard();
    let (closes, ends_with_connection) = (down.closes, down.ends_with_connection);
    let session = down.into_session();
    session.now = relayed.ended.unwrap_or_else(Instant::now);
    let after = match &relayed.cut {
        Some(cut) => {
            cut.log();
            match ends_with_connection && !matches!(cut, Break::ClientGone) {
                // A FIN would tell the client that it has all of the body.
                true => After::Abort,
                false => After::Gone,
            }
        }
        None if closes || !is_whole => After::Close,
        None => After::Keep,
    };
    Served {
        status: relayed.status,
        after,
        received,
    }
}

/// Leaves the client's connection to an event stream, once the head of the reply is out.
async fn begin_events(
    mut down: Http1Downstream<'_>,
    stream: EventStream,
    source: events::Source,
    lease: Lease,
    streams: Streams<'_>,
) -> Served {
    let closes = down.closes;
    let flushed = down.flush().await;
    let session = down.into_session();
    if flushed.is_err() {
        return session.after_reply(0, true, flushed);
    }
    let events = Events::new(source, stream.is_coded, &session.worker, streams);
    session.go_on(events, stream, closes, lease)
}

/// The limits of heads as `net` wants them.
pub(crate) fn head_limits(limits: &component::settings::Limits) -> HeadLimits {
    HeadLimits {
        bytes: limits.head,
        fields: limits.fields,
    }
}

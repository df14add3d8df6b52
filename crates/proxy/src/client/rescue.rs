//! Turns what went wrong into what the client reads. Nothing of the inside is told.

use std::time::Duration;

use message::{Fault, Kind, Origin, Reply, Retry};
use net::http1::HeadError;

use crate::relay::failure::Failure;
use crate::router::Found;

/// The fault behind a failure to get a reply; none when there is nobody to tell.
pub(crate) fn fault_of(failure: Failure) -> Option<Fault> {
    let upstream = |kind, detail: &'static str| Fault::new(kind, Origin::Upstream, detail);
    Some(match failure {
        Failure::ClientGone => return None,
        Failure::ClientInvalid(reason) => Fault::invalid(reason),
        Failure::ClientSlow => Fault::new(
            Kind::Timeout,
            Origin::Client,
            "the request body did not arrive in time",
        )
        .with_status(408),
        // The files have named the system, and its name leads where it must not.
        Failure::Connect(error) if net::egress::is_refusal(&error) => {
            upstream(Kind::Forbidden, "the back end may not be called")
                .with_status(502)
                .with_cause(error)
        }
        Failure::Connect(error) => upstream(Kind::Connection, "the back end cannot be reached")
            .with_retry(Retry::Yes)
            .with_cause(error),
        Failure::ConnectTimeout => {
            upstream(Kind::Timeout, "the back end cannot be reached in time").with_retry(Retry::Yes)
        }
        Failure::QueueFull => upstream(Kind::Unavailable, "the back end is busy")
            .with_retry(Retry::Yes)
            .with_retry_after(Duration::from_secs(1)),
        Failure::NoUpgrade => upstream(
            Kind::Connection,
            "the back end is reached by HTTP/2, which carries no upgrade",
        )
        .with_cause("say `protocols: [http/1.1]` for this target"),
        Failure::Limited(fault) => *fault,
        Failure::Refused => upstream(Kind::Unavailable, "the back end refused the request")
            .with_retry(Retry::Yes)
            .with_retry_after(Duration::from_secs(1)),
        Failure::Closed(error) => upstream(
            Kind::Connection,
            "the back end closed the connection without a reply",
        )
        .with_retry(Retry::IfRepeatable)
        .with_cause(error),
        Failure::Reset(error) => upstream(Kind::Connection, "the back end broke the request off")
            .with_retry(Retry::IfRepeatable)
            .with_cause(error),
        Failure::Invalid(error) => {
            upstream(Kind::Connection, "the back end sent a malformed reply")
                .with_retry(Retry::IfRepeatable)
                .with_cause(error.reason)
        }
        Failure::ReplyTimeout => upstream(Kind::Timeout, "the back end did not answer in time")
            .with_retry(Retry::IfRepeatable),
    })
}

/// The reply to a request that no route takes. `OPTIONS *` gets 204, a "ping" of the server; which
/// methods there are depends on the path, so it names none.
pub(crate) fn unrouted(found: &Found) -> Reply {
    let refused = |status, detail| Fault::invalid(detail).with_status(status).to_reply();
    match found {
        Found::Server => Reply::new(204),
        Found::OtherMethods(methods) => {
            let mut reply = refused(405, "the method is not allowed here");
            reply.headers.append("Allow", methods);
            reply
        }
        Found::Ambiguous => refused(400, "the path can be read in more than one way"),
        // invariant: nobody asks for the reply to a request that a route takes.
        Found::Nothing | Found::Route(_) => refused(404, "there is nothing at this path"),
    }
}

/// The reply to a request that is no WebSocket handshake where only those are forwarded (RFC 9110,
/// section 15.5.22).
pub(crate) fn upgrade_required() -> Reply {
    let fault = Fault::invalid("this address speaks WebSocket only").with_status(426);
    let mut reply = fault.to_reply();
    reply.headers.append("Upgrade", "websocket");
    reply
}

/// The fault behind a request head that is refused.
pub(crate) fn fault_of_head(error: HeadError) -> Fault {
    Fault::invalid(error.reason).with_status(error.status)
}

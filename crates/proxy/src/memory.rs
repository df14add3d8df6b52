//! The budget of memory for bodies ([`message::memory`]) at the places where bodies are held: those
//! of requests and of calls' replies while they are collected, and replies until they are written.

use std::time::Duration;

use component::once_per_second::OncePerSecond;
use message::memory::{self, Exhausted, Reservation};
use message::{Fault, Kind, Origin, Reply, Retry};

/// How long a client should wait before it asks again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

static REFUSALS: OncePerSecond = OncePerSecond::new();

/// The fault of a request's body for which there is no room (503): nobody has acted on the request.
pub(crate) fn no_room(exhausted: Exhausted) -> Fault {
    no_room_for_reply(exhausted)
        .with_retry(Retry::Yes)
        .with_retry_after(RETRY_AFTER)
}

/// The fault of a reply for which there is no room (503). Whoever made it has acted on the request,
/// so it is no reason to repeat one that must not come twice. The log is told once a second.
pub(crate) fn no_room_for_reply(_: Exhausted) -> Fault {
    if let Some(count) = REFUSALS.pass() {
        let (used, limit) = (memory::bodies().used(), memory::bodies().limit());
        tracing::warn!(
            target: "proxy", count, used, limit,
            "bodies are refused: limits.body_memory is used up"
        );
    }
    let detail = "there is no memory left for the body";
    Fault::new(Kind::Unavailable, Origin::Engine, detail)
        .with_status(503)
        .with_retry(Retry::IfRepeatable)
}

/// Room for a reply while it is written, of which there are so many copies.
pub(crate) fn hold(reply: &Reply, copies: usize) -> Result<Option<Reservation>, Fault> {
    let size = reply.body.as_bytes().len();
    if size <= memory::FREE {
        return Ok(None);
    }
    let reserved = memory::bodies().reserve(size * copies);
    reserved.map_err(no_room_for_reply)
}

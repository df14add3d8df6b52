//! Tickets: how browsers whose `EventSource` and `WebSocket` set no header fields get past a door.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use message::{Fault, HeadersView, Reply, Request};

use crate::access::{Door, RequestHead, decode_parameter, parameter_name};
use crate::cookies;
use crate::handler::{Handler, LocalFuture, Outcome, Services};

/// The parameter of the query that carries a ticket.
pub const TICKET_PARAMETER: &str = "ticket";
/// The cookie by which a page comes again whose ticket has been used.
pub const TICKET_COOKIE: &str = "intertie-ticket";
/// Whether some door of this process takes tickets, or has taken them before a reload: browsers may
/// have [`TICKET_COOKIE`] then.
static ARE_IN_USE: AtomicBool = AtomicBool::new(false);
/// What stands behind the path for which a ticket is given.
const SUFFIX: &str = "/ticket";

/// What the tickets of a door open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketTarget {
    /// One path behind the door: the one that the ticket was asked for.
    Path,
    /// Both `BASE/sse` and `BASE/ws` of a topic.
    Topic(Arc<str>),
}

impl TicketTarget {
    /// The path that a ticket must be bound to so that it opens this one.
    #[must_use]
    pub fn of<'a>(&self, path: &'a str) -> Option<&'a str> {
        match self {
            Self::Path => Some(path),
            Self::Topic(base) => {
                let behind = path.strip_prefix(&**base)?;
                matches!(behind, "/sse" | "/ws").then(|| path.get(..base.len()))?
            }
        }
    }
}

/// Gives tickets for the address whose path stands before `/ticket` to whom the door would let in.
pub struct TicketHandler {
    /// The door.
    pub door: Arc<dyn Door>,
    /// Whether whoever may not come in is told that there is nothing.
    pub hides: bool,
}

impl Handler for TicketHandler {
    fn reads_body(&self) -> bool {
        false
    }

    fn secret_parameters(&self) -> Vec<Arc<str>> {
        self.door.secret_parameters().to_vec()
    }

    fn handle<'a>(
        &'a self,
        mut request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            // As the door will see the request that comes with the ticket.
            request.method = message::Method::Get;
            if let Some(path) = request.path.strip_suffix(SUFFIX) {
                request.path = path.to_owned();
            }
            match self.door.ticket(RequestHead::of(&request), services).await {
                // As paths are answered that do not exist.
                Err(reply) if self.hides && reply.status == 403 => {
                    Err(Fault::invalid("there is nothing at this path").with_status(404))
                }
                Ok(reply) | Err(reply) => Ok(Outcome::Reply(*reply)),
            }
        })
    }
}

/// The tickets of a query, decoded.
pub fn tickets_of(query: &str) -> impl Iterator<Item = String> {
    let parts = query.split('&');
    let parts = parts.filter(|part| parameter_name(part) == TICKET_PARAMETER);
    parts.map(|part| decode_parameter(part.split_once('=').map_or("", |(_, value)| value)))
}

/// Notes that a door takes tickets: from here on no flow forwards their cookie.
pub fn note_ticket_door() {
    ARE_IN_USE.store(true, Ordering::Relaxed);
}

/// Whether a request with these fields has the cookie of a ticket, which is for doors alone.
/// Browsers send it to every path below the one that it was set for, so other flows may get it.
/// This is one load while no door takes tickets.
#[must_use]
pub fn has_ticket_cookie(headers: HeadersView<'_>) -> bool {
    ARE_IN_USE.load(Ordering::Relaxed)
        && cookies::pairs(headers).any(|(name, _)| name == TICKET_COOKIE.as_bytes())
}

/// Takes the cookie of a ticket out of a request that its door has let in.
pub fn drop_ticket_cookie(request: &mut Request) {
    if has_ticket_cookie(request.headers.view()) {
        request.headers = cookies::without(&request.headers, TICKET_COOKIE);
    }
}

/// The reply of a door that gives no tickets.
pub(super) fn none_here() -> Box<Reply> {
    let fault = Fault::invalid("tickets are not given for this").with_status(403);
    Box::new(fault.to_reply())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_of_a_topic_is_for_its_two_addresses() {
        let topic = TicketTarget::Topic("/topics/prices".into());
        for (path, expected) in [
            ("/topics/prices/sse", Some("/topics/prices")),
            ("/topics/prices/ws", Some("/topics/prices")),
            ("/topics/prices", None),
            ("/topics/prices/ticket", None),
            ("/topics/prices/sse/", None),
            ("/topics/prices2/sse", None),
            ("/topics/sse", None),
        ] {
            assert_eq!(topic.of(path), expected, "{path}");
        }
        assert_eq!(TicketTarget::Path.of("/a/b"), Some("/a/b"));
    }

    #[test]
    fn tickets_are_found_however_the_name_is_spelt() {
        let found: Vec<String> = tickets_of("a=1&ticket=x%2D&t%69cket=y&tickets=z").collect();
        assert_eq!(found, ["x-", "y"]);
    }
}

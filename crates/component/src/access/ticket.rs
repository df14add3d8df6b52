//! Tickets: how browsers whose `EventSource` and `WebSocket` set no header fields get past a door.

use std::sync::Arc;

use message::{Fault, Reply, Request};

use crate::access::{Door, RequestHead, decode_parameter, parameter_name};
use crate::handler::{Handler, LocalFuture, Outcome, Services};

/// The parameter of the query that carries a ticket.
pub const TICKET_PARAMETER: &str = "ticket";
/// The cookie by which a page comes again whose ticket has been used.
pub const TICKET_COOKIE: &str = "intertie-ticket";
/// What stands behind the path for which a ticket is given.
const SUFFIX: &str = "/ticket";

/// The addresses behind one door that take tickets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketScope {
    /// Whatever path leads to the door: a ticket is for one of them.
    Path,
    /// `BASE/sse` and `BASE/ws` of a topic: a ticket is for both.
    Topic(Arc<str>),
}

impl TicketScope {
    /// The path for which a ticket has to be so that it opens this one.
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

/// The values of a cookie of this name, in the order of the request: browsers send that of the
/// longest path first (RFC 6265, section 5.4).
pub fn cookies_of<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    name: &'a str,
) -> impl Iterator<Item = &'a [u8]> {
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let (found, value) = pair.trim_ascii().split_at_checked(name.len())?;
        (found == name.as_bytes()).then(|| value.strip_prefix(b"="))?
    })
}

/// Whether this is the name of the field with cookies.
#[must_use]
pub fn is_cookie(field: &[u8]) -> bool {
    field.eq_ignore_ascii_case(b"cookie")
}

/// The reply of a door that gives no tickets.
pub(super) fn none_here() -> Box<Reply> {
    let fault = Fault::invalid("tickets are not given for this").with_status(403);
    Box::new(fault.to_reply())
}

#[cfg(test)]
mod tests {
    use message::Headers;

    use super::*;
    use crate::access::without_cookie;

    #[test]
    fn a_ticket_of_a_topic_is_for_its_two_addresses() {
        let topic = TicketScope::Topic("/topics/prices".into());
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
        assert_eq!(TicketScope::Path.of("/a/b"), Some("/a/b"));
    }

    #[test]
    fn only_the_cookie_of_the_name_is_found_and_removed() {
        let mut headers = Headers::new();
        headers.append(
            "Cookie",
            "a=1; intertie-ticket=x; intertie-tickets=3;b=\"q\"",
        );
        headers.append("cookie", "intertie-ticket=y=");
        let lines: Vec<Vec<u8>> = headers.view().iter().map(|it| it.2.to_vec()).collect();
        let found: Vec<&[u8]> =
            cookies_of(lines.iter().map(Vec::as_slice), TICKET_COOKIE).collect();
        assert_eq!(found, [&b"x"[..], b"y="]);
        let headers = without_cookie(&headers, TICKET_COOKIE);
        let left: Vec<Vec<u8>> = headers.view().iter().map(|it| it.2.to_vec()).collect();
        assert_eq!(left, [b"a=1; intertie-tickets=3; b=\"q\"".to_vec()]);
    }

    #[test]
    fn tickets_are_found_however_the_name_is_spelt() {
        let found: Vec<String> = tickets_of("a=1&ticket=x%2D&t%69cket=y&tickets=z").collect();
        assert_eq!(found, ["x-", "y"]);
    }
}

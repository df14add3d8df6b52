//! Header fields that a reply gets beside its own: what is left of the caller's rate limits, and
//! those of the door, such as the cookie that follows a ticket.

use component::access::{Admitted, CACHE_FIELD, ReplyField, SUBPROTOCOL_FIELD, is_kept_private};
use message::{HeadersView, RateLimit, Reply};

/// The fields that are added to one reply: of limits, where these say so (`headers: true`), and of
/// a door that has taken a ticket, a credential of the query or one among subprotocols. Other
/// requests have none of this.
#[derive(Debug)]
pub(crate) struct AddedFields {
    limits: Option<Box<RateLimit>>,
    door: Vec<ReplyField>,
}

/// The names of the fields of limits as HTTP/2 has them.
const LIMIT_FIELDS: [&str; 2] = ["ratelimit-policy", "ratelimit"];

impl AddedFields {
    /// Those of the limits and of the door, if there are any. Takes the door's out of `admitted`.
    pub fn of(
        limits: Option<Box<RateLimit>>,
        admitted: Option<&mut Admitted>,
    ) -> Option<Box<Self>> {
        let door = admitted.map(|it| std::mem::take(&mut it.reply_fields));
        let door = door.unwrap_or_default();
        let is_any = limits.is_some() || !door.is_empty();
        is_any.then(|| Box::new(Self { limits, door }))
    }

    /// The fields of a reply that has these already, each with its usual name and that in lower
    /// case. A subprotocol of WebSocket that the reply chooses counts, and what it says that is as
    /// strict about caches.
    pub fn fields(
        &self,
        reply: HeadersView<'_>,
    ) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        // Nearly all have limits alone.
        let is_any = !self.door.is_empty();
        let has_protocol = is_any && reply.get(SUBPROTOCOL_FIELD).is_some();
        let is_private = is_any && is_kept_private(reply);
        let is_new = move |name| match name {
            SUBPROTOCOL_FIELD => !has_protocol,
            CACHE_FIELD => !is_private,
            _ => true,
        };
        let limits = self.limits.iter();
        let limits = limits.flat_map(|it| LIMIT_FIELDS.into_iter().zip(it.fields()));
        let limits = limits.map(|(lower, (name, value))| (name, lower, value));
        let door = self.door.iter();
        let door = door.filter(move |(name, _)| is_new(*name));
        limits.chain(door.map(|(name, value)| (*name, *name, value.as_str())))
    }
}

/// Adds them to a reply of the engine.
pub(crate) fn add(added: Option<&AddedFields>, reply: &mut Reply) {
    let Some(added) = added else {
        return;
    };
    let fields: Vec<_> = added.fields(reply.headers.view()).collect();
    for (name, _, value) in fields {
        reply.headers.append(name, value);
    }
}

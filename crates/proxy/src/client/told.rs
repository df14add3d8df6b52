//! What a reply gets beside its own fields: what is left of the caller's limits, and what the door
//! has to say.

use component::access::{Admitted, ReplyField, SUBPROTOCOL_FIELD};
use message::{RateLimit, Reply};

/// The fields of one reply. Nearly no request has any.
#[derive(Debug)]
pub(crate) struct Told {
    limits: Option<Box<RateLimit>>,
    door: Vec<ReplyField>,
}

/// The names of the fields of limits as HTTP/2 has them.
const LIMIT_FIELDS: [&str; 2] = ["ratelimit-policy", "ratelimit"];

impl Told {
    /// What the limits and the door tell, if that is anything. Taken out of `admitted`.
    pub fn of(
        limits: Option<Box<RateLimit>>,
        admitted: Option<&mut Admitted>,
    ) -> Option<Box<Self>> {
        let door = admitted.map(|it| std::mem::take(&mut it.reply_fields));
        let door = door.unwrap_or_default();
        let is_any = limits.is_some() || !door.is_empty();
        is_any.then(|| Box::new(Self { limits, door }))
    }

    /// The fields, each with its usual name and that in lower case. `has_protocol` is whether the
    /// reply chooses a subprotocol of WebSocket already.
    pub fn fields(
        &self,
        has_protocol: bool,
    ) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        let limits = self.limits.iter();
        let limits = limits.flat_map(|it| LIMIT_FIELDS.into_iter().zip(it.fields()));
        let limits = limits.map(|(lower, (name, value))| (name, lower, value));
        let door = self.door.iter();
        let door = door.filter(move |(name, _)| !(has_protocol && *name == SUBPROTOCOL_FIELD));
        limits.chain(door.map(|(name, value)| (*name, *name, value.as_str())))
    }
}

/// Adds it to a reply of our own.
pub(crate) fn tell(told: Option<&Told>, reply: &mut Reply) {
    let Some(told) = told else {
        return;
    };
    let has_protocol = reply.headers.get(SUBPROTOCOL_FIELD).is_some();
    for (name, _, value) in told.fields(has_protocol) {
        reply.headers.append(name, value);
    }
}

//! How a step asks something outside of the process that is no HTTP system: first whoever stands in
//! for it, as tests do.

use std::sync::Arc;

use expr::Value;
use message::{Fault, Reply};

use crate::content::Content;
use crate::exchange::Exchange;
use crate::handler::{Outbound, Services};

/// What whoever stands in says; `None` when nobody does and the step goes to the real thing. `sent`
/// makes what it is shown as the body.
pub async fn stand_in(
    (verb, connection): (&str, &str),
    sent: impl FnOnce() -> Value,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Option<Result<Reply, Fault>> {
    if !services.stands_in() {
        return None;
    }
    let step = Arc::clone(&exchange.at);
    let outbound = Outbound {
        verb,
        step: &step,
        connection,
    };
    let own = std::mem::replace(&mut exchange.content, Content::of_value(sent()));
    let answer = services.stand_in(outbound, exchange);
    exchange.content = own;
    match answer {
        Some(answer) => Some(answer.await),
        None => None,
    }
}

/// The failure that a reply is which is no success.
pub fn failure(reply: &Reply) -> Option<Fault> {
    (!(200..300).contains(&reply.status)).then(|| Fault::of_status(reply.status))
}

/// The body of a reply as a value; the exchange stays as it was.
///
/// # Errors
/// `connection` when it is not what its media type says.
pub fn body_of(reply: Reply, exchange: &mut Exchange) -> Result<Value, Fault> {
    let (content, head) = (exchange.content.clone(), exchange.reply.take());
    exchange.take_over(reply);
    let body = exchange.value().cloned();
    (exchange.content, exchange.reply) = (content, head);
    body
}

//! How a step asks the other system. There are no drivers yet, so only a test can answer.

use std::sync::Arc;

use component::content::Content;
use component::exchange::Exchange;
use component::handler::{Outbound, Services};
use expr::Value;
use message::{Fault, Kind, Origin, Reply};

/// Asks whoever stands in for the other system. `sent` is what it is shown as the body.
///
/// # Errors
/// What the other system says, and a fault of our own when nobody stands in for it.
pub(crate) async fn ask(
    (verb, connection): (&str, &str),
    sent: Value,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Reply, Fault> {
    let step = Arc::clone(&exchange.at);
    let outbound = Outbound {
        verb,
        step: &step,
        connection,
    };
    let own = std::mem::replace(&mut exchange.content, Content::of_value(sent));
    let answer = services.stand_in(outbound, exchange);
    exchange.content = own;
    match answer {
        Some(answer) => answer.await,
        None => Err(Fault::new(
            Kind::Internal,
            Origin::Engine,
            "this build has no driver",
        )),
    }
}

/// What whoever stands in for the other system says; `None` when nobody does, and the step has to
/// ask the system itself. `sent` is what it is shown as the body.
pub(crate) async fn stood_in(
    (verb, connection): (&str, &str),
    sent: Value,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Option<Result<Reply, Fault>> {
    let step = Arc::clone(&exchange.at);
    let outbound = Outbound {
        verb,
        step: &step,
        connection,
    };
    let own = std::mem::replace(&mut exchange.content, Content::of_value(sent));
    let answer = services.stand_in(outbound, exchange);
    exchange.content = own;
    match answer {
        Some(answer) => Some(answer.await),
        None => None,
    }
}

/// The failure that a reply is which is no success.
pub(crate) fn failure(reply: &Reply) -> Option<Fault> {
    (!(200..300).contains(&reply.status)).then(|| Fault::of_status(reply.status))
}

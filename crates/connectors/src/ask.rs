//! How a step asks the other system: first whoever stands in for it, as tests do, then its driver.

pub(crate) use component::outside::{body_of, failure, stand_in};

use component::exchange::Exchange;
use component::handler::Services;
use expr::Value;
use message::{Fault, Kind, Origin, Reply};

/// Asks whoever stands in for the other system. `sent` is what it is shown as the body.
///
/// # Errors
/// What the other system says, and a fault of our own when nobody stands in for it.
pub(crate) async fn ask(
    of: (&str, &str),
    sent: Value,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Reply, Fault> {
    let answer = stand_in(of, || sent, exchange, services).await;
    answer.unwrap_or_else(|| Err(no_driver()))
}

/// The fault of a build without the driver. Its flows are refused before that.
pub(crate) fn no_driver() -> Fault {
    let detail = "this build has no driver";
    Fault::new(Kind::Internal, Origin::Engine, detail)
}

//! The failure of a step for whose answer the budget of memory for bodies ([`message::memory`])
//! has no room.

use std::time::Duration;

use message::{Fault, Kind, Origin, Retry};

/// `unavailable`, in the words of what has no room. What was asked for may have been done.
pub(crate) fn no_room(detail: &'static str) -> Fault {
    Fault::new(Kind::Unavailable, Origin::Engine, detail)
        .with_status(503)
        .with_retry(Retry::IfRepeatable)
        .with_retry_after(Duration::from_secs(1))
        .with_cause("`limits.body_memory` is used up")
}

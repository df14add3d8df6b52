//! What replies tell of limits: `RateLimit-Policy` and `RateLimit` of
//! draft-ietf-httpapi-ratelimit-headers-10, as structured fields (RFC 9651).

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use message::RateLimit;

use super::limiter::Limiter;
use super::table::CallerHash;

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Requests,
    Events,
    Bytes,
}

/// The name of one window of a limit: that of the limit, and behind the first one its number.
pub(crate) fn policy_name(name: &str, limiter: &Limiter, window: usize) -> String {
    match window {
        0 => name.to_owned(),
        _ if limiter.windows().count() == 1 => name.to_owned(),
        at => format!("{name}-{}", at + 1),
    }
}

/// Adds what a limit allows a caller, and what is left of it. Names are those of plans and
/// throttles: letters, digits, `-` and `_`, so that nothing has to be escaped.
pub(crate) fn tell(
    told: &mut RateLimit,
    (name, unit): (&str, Unit),
    (limiter, caller): (&Limiter, CallerHash),
    now: Instant,
) {
    for (at, (window, left)) in limiter.windows().zip(limiter.left(caller, now)).enumerate() {
        let name = policy_name(name, limiter, at);
        for text in [&mut told.policy, &mut told.left] {
            if !text.is_empty() {
                text.push_str(", ");
            }
        }
        // Writing to a text does not fail.
        let _ = write!(told.policy, "\"{name}\";q={}", window.count);
        match unit {
            Unit::Requests => {}
            Unit::Events => told.policy.push_str(";qu=\"events\""),
            Unit::Bytes => told.policy.push_str(";qu=\"content-bytes\""),
        }
        let _ = write!(told.policy, ";w={}", seconds(window.per));
        let _ = write!(
            told.left,
            "\"{name}\";r={};t={}",
            left.units,
            seconds(left.full_in)
        );
    }
}

/// Whole seconds, rounded up: whoever comes then must not be too early.
fn seconds(time: Duration) -> u128 {
    time.as_millis().div_ceil(1000)
}

//! The least rate of a client that sends a body or takes a reply. A deadline that each byte moves
//! on alone would let one byte every 29 seconds hold a connection, a task and a body for ever.
//!
//! A client has a credit of time, as much as a body may stand still (`timeouts.body`). Waiting for
//! it uses the credit up, and each byte that moves gives some back, up to the same bound: so the
//! rate is judged over that time, and bytes of long ago do not count. Time in which somebody else
//! is waited for costs nothing.

use std::time::Duration;

use tokio::time::Instant;

/// What a client has done, and whether it is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientShare {
    /// Bytes that it has sent or taken so far.
    pub moved: u64,
    pub is_awaited: bool,
    /// The least bytes a second; 0 for none.
    pub rate: u64,
}

impl ClientShare {
    /// No client is waited for.
    pub const NONE: Self = Self {
        moved: 0,
        is_awaited: false,
        rate: 0,
    };
}

/// How much longer a client may be waited for.
#[derive(Debug, Default)]
pub(crate) struct LeastRate {
    /// None before it has been waited for.
    credit: Option<Duration>,
    /// Since when it is waited for.
    since: Option<Instant>,
    /// The bytes that have been credited.
    seen: u64,
}

impl LeastRate {
    /// How long may be waited from now on, when nothing may stand still for longer than `time`.
    pub fn allow(&mut self, now: Instant, time: Duration, client: ClientShare) -> Duration {
        let waited = self
            .since
            .take()
            .map(|since| now.saturating_duration_since(since));
        if client.rate == 0 {
            return time;
        }
        let bytes = client.moved.saturating_sub(self.seen);
        self.seen = client.moved;
        let earned = Duration::from_micros(bytes.saturating_mul(1_000_000) / client.rate);
        let credit = self.credit.unwrap_or(time);
        let credit = credit.saturating_sub(waited.unwrap_or_default());
        let credit = credit.saturating_add(earned).min(time);
        self.credit = Some(credit);
        if !client.is_awaited {
            return time;
        }
        self.since = Some(now);
        credit
    }

    /// Whether the client is waited for.
    pub fn is_awaited(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(30);
    const RATE: u64 = 256;

    /// How many seconds a client is served that moves `bytes` every `pause` seconds, up to a day.
    fn served(bytes: u64, pause: u64, rate: u64, awaited: impl Fn(u64) -> bool) -> u64 {
        let (start, mut least) = (Instant::now(), LeastRate::default());
        let mut moved = 0;
        for round in 0..86_400 / pause {
            let at = start + Duration::from_secs(round * pause);
            let is_awaited = awaited(round);
            let client = ClientShare {
                moved,
                is_awaited,
                rate,
            };
            if least.allow(at, TIME, client) < Duration::from_secs(pause) {
                return round * pause;
            }
            moved += bytes;
        }
        86_400
    }

    #[test]
    fn a_client_that_drips_is_given_up_after_the_time_for_which_a_body_may_stand_still() {
        assert_eq!(served(1, 29, RATE, |_| true), 29);
        assert_eq!(served(1, 1, RATE, |_| true), 30);
        assert_eq!(served(128, 1, RATE, |_| true), 59);
    }

    #[test]
    fn a_client_that_keeps_the_rate_is_served_for_ever() {
        assert_eq!(served(256, 1, RATE, |_| true), 86_400);
        assert_eq!(served(256 * 29, 29, RATE, |_| true), 86_400);
    }

    #[test]
    fn bytes_of_long_ago_do_not_count() {
        let (start, mut least) = (Instant::now(), LeastRate::default());
        let client = |moved| ClientShare {
            moved,
            is_awaited: true,
            rate: RATE,
        };
        assert_eq!(least.allow(start, TIME, client(0)), TIME);
        assert_eq!(least.allow(start, TIME, client(1 << 30)), TIME);
        let left = least.allow(start + TIME / 2, TIME, client((1 << 30) + 1));
        assert_eq!(left.as_secs(), TIME.as_secs() / 2);
    }

    #[test]
    fn waiting_for_somebody_else_costs_a_client_nothing() {
        assert_eq!(served(1, 29, RATE, |_| false), 86_400);
        // Every fourth pause is the client's: 7 s of 28, for which it moves too little.
        let shared = served(1, 7, RATE, |round| round % 4 == 0);
        assert_eq!(shared, 4 * 28);
    }

    #[test]
    fn without_a_rate_only_standing_still_counts() {
        assert_eq!(served(1, 29, 0, |_| true), 86_400);
    }
}

//! Further tries of a step that failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use message::Fault;

use super::policy::RetryPolicy;
use crate::state::{Measure, State};

/// Whether and when a step that failed is tried again.
pub struct Retry {
    /// After which failures, how often and when.
    pub policy: RetryPolicy,
    /// Whether of these only the ones after which it is safe: the other side has certainly not
    /// acted on what it was sent, or may get it twice. So it is unless the file names failures.
    pub only_safe: bool,
    /// How often it has been done.
    pub counts: Arc<RetryCounts>,
}

/// How often further tries have been made, and given up.
#[derive(Default)]
pub struct RetryCounts {
    tries: AtomicU64,
    given_up: AtomicU64,
}

impl State for RetryCounts {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        vec![
            Measure::count("retries_total", "Further tries of a step.", &self.tries),
            Measure::count(
                "retries_given_up_total",
                "Times that a step failed although it was tried again.",
                &self.given_up,
            ),
        ]
    }
}

impl Retry {
    /// How long to wait before the next try after this many failures; `None` when there is none.
    /// A `Retry-After` of the other side is heeded; when it asks for more than the longest delay,
    /// there is no further try. `is_safe` is whether a further try does no harm.
    pub fn wait(&self, failed: u32, fault: &Fault, is_safe: bool, random: f64) -> Option<Duration> {
        if !self.policy.fits(fault) || (self.only_safe && !is_safe) {
            return None;
        }
        let asked = fault.retry_after.unwrap_or_default();
        let is_too_long = asked > self.policy.backoff.delay_max;
        let delay = self.policy.delay_after(failed, fault, random);
        let delay = delay.filter(|_| !is_too_long);
        let count = match delay {
            Some(_) => &self.counts.tries,
            None => &self.counts.given_up,
        };
        count.fetch_add(1, Ordering::Relaxed);
        delay
    }
}

#[cfg(test)]
mod tests {
    use message::{Kind, Origin};

    use super::super::policy::Backoff;
    use super::*;
    use crate::failure::Matcher;

    fn retry() -> Retry {
        Retry {
            policy: RetryPolicy {
                on: vec![Matcher::Kind(Kind::Timeout), Matcher::Class(5)],
                times: 3,
                backoff: Backoff {
                    jitter: 0.5,
                    ..Backoff::doubling(Duration::from_millis(100), Duration::from_millis(300))
                },
            },
            only_safe: true,
            counts: Arc::default(),
        }
    }

    #[test]
    fn waits_grow_up_to_the_longest() {
        let fault = Fault::new(Kind::Timeout, Origin::Upstream, "");
        let waits = [1, 2, 3, 4].map(|failed| retry().wait(failed, &fault, true, 0.0));
        let milliseconds = |number| Some(Duration::from_millis(number));
        let expected = [
            milliseconds(100),
            milliseconds(200),
            milliseconds(300),
            None,
        ];
        assert_eq!(waits, expected);
        assert_eq!(
            retry().wait(1, &fault, true, 0.999999),
            Some(Duration::from_nanos(50_000_050))
        );
    }

    #[test]
    fn only_the_failures_it_is_for_are_tried_again() {
        let missing = Fault::of_status(404);
        assert_eq!(retry().wait(1, &missing, true, 0.0), None);
        assert!(retry().wait(1, &Fault::of_status(503), true, 0.0).is_some());
    }

    #[test]
    fn what_may_have_had_an_effect_is_repeated_only_where_the_file_names_it() {
        let fault = Fault::of_status(503);
        assert_eq!(retry().wait(1, &fault, false, 0.0), None);
        let named = Retry {
            only_safe: false,
            ..retry()
        };
        assert!(named.wait(1, &fault, false, 0.0).is_some());
    }

    #[test]
    fn the_other_side_may_ask_for_a_longer_wait() {
        let asked = |time| {
            let fault = Fault::of_status(503).with_retry_after(Duration::from_millis(time));
            retry().wait(1, &fault, true, 0.0)
        };
        assert_eq!(asked(250), Some(Duration::from_millis(250)));
        assert_eq!(asked(301), None);
    }
}

//! When an endpoint is tried again, and how often it is asked at all.

use std::time::Duration;

use component::resilience::Backoff;

use super::Throttle;

/// The delay after so many failures, 1 or more, in microseconds. The other side may ask for a
/// longer one, within the longest.
pub(super) fn delay_after(backoff: &Backoff, failed: u32, asked: Option<u64>, random: f64) -> u64 {
    let delay = microseconds(backoff.delay_after(failed, random));
    delay.max(
        asked
            .unwrap_or_default()
            .min(microseconds(backoff.delay_max)),
    )
}

/// A time on the machine's clock.
pub(super) fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// When requests may be made (the generic cell rate algorithm, ITU-T I.371, annex A).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Throttled {
    /// When the next one would come if they came evenly.
    next: u64,
}

impl Throttled {
    /// When a request may be made that may not be made now.
    pub fn wait(&self, throttle: Option<Throttle>, now: u64) -> Option<u64> {
        let throttle = throttle?;
        let ahead = interval(throttle) * (throttle.burst - 1);
        let at = self.next.saturating_sub(ahead);
        (now < at).then_some(at)
    }

    /// Notes that a request is made.
    pub fn take(&mut self, throttle: Option<Throttle>, now: u64) {
        if let Some(throttle) = throttle {
            self.next = self.next.max(now) + interval(throttle);
        }
    }
}

fn interval(throttle: Throttle) -> u64 {
    throttle.per / throttle.requests.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_side_may_ask_for_a_longer_delay_within_bounds() {
        let backoff = Backoff::doubling(Duration::from_micros(100), Duration::from_micros(1000));
        let delay = |failed, asked| delay_after(&backoff, failed, asked, 0.0);
        assert_eq!(delay(1, Some(500)), 500);
        assert_eq!(delay(1, Some(5000)), 1000);
        assert_eq!(delay(2, Some(50)), 200);
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_evenly() {
        let throttle = Some(Throttle {
            requests: 10,
            per: 1000,
            burst: 3,
        });
        let mut throttled = Throttled::default();
        let mut now = 5000;
        let mut made = Vec::new();
        while made.len() < 6 {
            match throttled.wait(throttle, now) {
                Some(at) => now = at,
                None => {
                    throttled.take(throttle, now);
                    made.push(now);
                }
            }
        }
        assert_eq!(made, [5000, 5000, 5000, 5100, 5200, 5300]);
        assert_eq!(throttled.wait(None, 0), None);
    }
}

//! When an endpoint is tried again, and how often it is asked at all.

use super::Throttle;

/// The waits between tries, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Backoff {
    pub delay: u64,
    pub factor: f64,
    pub delay_max: u64,
    /// The part of each wait that is left to chance, from 0 to 1.
    pub jitter: f64,
}

impl Backoff {
    /// The wait after so many failures, 1 or more. The other side may ask for a longer one, within
    /// `delay_max`.
    pub fn wait(&self, failed: u32, asked: Option<u64>, random: f64) -> u64 {
        let growth = self.factor.powi(failed.saturating_sub(1).min(64) as i32);
        let full = (self.delay as f64 * growth).min(self.delay_max as f64);
        let wait = (full * (1.0 - self.jitter * random)) as u64;
        wait.max(asked.unwrap_or_default().min(self.delay_max))
    }
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
    fn waits_grow_to_the_longest_and_jitter_shortens_them() {
        let backoff = Backoff {
            delay: 100,
            factor: 3.0,
            delay_max: 1000,
            jitter: 0.5,
        };
        let waits = [1, 2, 3, 4, 400].map(|failed| backoff.wait(failed, None, 0.0));
        assert_eq!(waits, [100, 300, 900, 1000, 1000]);
        assert_eq!(backoff.wait(2, None, 1.0), 150);
        assert_eq!(backoff.wait(1, Some(500), 0.0), 500);
        assert_eq!(backoff.wait(1, Some(5000), 0.0), 1000, "within bounds");
        assert_eq!(backoff.wait(2, Some(50), 0.0), 300);
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

//! How often a step is tried: so many times in a period, the rest waits in a bounded queue or is
//! refused. The generic cell rate algorithm (ITU-T I.371, annex A).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use message::{Fault, Kind, Origin};

use crate::handler::Services;
use crate::state::{Measure, State};

/// How often, and what happens to the rest.
#[derive(Clone, Copy, Debug)]
pub struct ThrottleSettings {
    /// How many in a period.
    pub requests: u32,
    /// The period.
    pub per: Duration,
    /// How many of them may come at once.
    pub burst: u32,
    /// How many may wait for their turn.
    pub queue: u32,
    /// The longest that one waits.
    pub wait: Duration,
}

/// How often tries are made. All workers share it.
pub struct Throttle {
    settings: ThrottleSettings,
    /// When the next try would come if they came evenly.
    next: Mutex<Option<Instant>>,
    delayed: AtomicU64,
    refused: AtomicU64,
}

impl Throttle {
    /// One that nobody has passed.
    pub fn new(settings: ThrottleSettings) -> Self {
        Self {
            settings,
            next: Mutex::new(None),
            delayed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// `limited`, with the time after which there is one, when the wait or the queue is too long.
    pub async fn pass(&self, services: &dyn Services) -> Result<(), Fault> {
        let wait = self.reserve(services.now())?;
        if !wait.is_zero() {
            services.sleep(wait).await;
        }
        Ok(())
    }

    /// The time until the turn that this takes.
    fn reserve(&self, now: Instant) -> Result<Duration, Fault> {
        let ThrottleSettings {
            requests,
            per,
            burst,
            queue,
            wait: wait_max,
        } = self.settings;
        let interval = per / requests.max(1);
        let ahead = interval * burst.saturating_sub(1);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = next.map_or(now, |next| next.max(now));
        let wait = at.saturating_duration_since(now).saturating_sub(ahead);
        // Whoever waits is one of those whose turns lie between now and this one.
        let waiting = wait.as_nanos().div_ceil(interval.as_nanos().max(1));
        if !wait.is_zero() && (waiting > u128::from(queue) || wait > wait_max) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let free = wait
                .saturating_sub(interval * queue)
                .max(interval.min(wait));
            let fault = Fault::new(Kind::Limited, Origin::Engine, "too many requests");
            return Err(fault.with_retry_after(free));
        }
        if !wait.is_zero() {
            self.delayed.fetch_add(1, Ordering::Relaxed);
        }
        *next = Some(at + interval);
        Ok(wait)
    }
}

impl State for Throttle {
    fn measures(&self, now: Instant) -> Vec<Measure> {
        let interval = self.settings.per / self.settings.requests.max(1);
        let ahead = interval * self.settings.burst.saturating_sub(1);
        let next = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
        let behind = behind.saturating_sub(ahead + interval);
        let waiting = behind.as_nanos().div_ceil(interval.as_nanos().max(1));
        let delayed = self.delayed.load(Ordering::Relaxed);
        let refused = self.refused.load(Ordering::Relaxed);
        let measure = |name, help, value| Measure { name, help, value };
        vec![
            measure(
                "throttle_waiting",
                "Tries that wait for their turn.",
                waiting as f64,
            ),
            measure(
                "throttle_delayed_total",
                "Tries that had to wait.",
                delayed as f64,
            ),
            measure("throttle_refused_total", "Tries refused.", refused as f64),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle(burst: u32, queue: u32) -> Throttle {
        Throttle::new(ThrottleSettings {
            requests: 10,
            per: Duration::from_secs(1),
            burst,
            queue,
            wait: Duration::from_secs(60),
        })
    }

    fn waits(throttle: &Throttle, now: Instant, count: usize) -> Vec<Option<u64>> {
        let wait = |_| {
            let wait = throttle.reserve(now).ok()?;
            Some(wait.as_millis() as u64)
        };
        (0..count).map(wait).collect()
    }

    #[test]
    fn a_burst_passes_then_turns_come_evenly_then_the_rest_is_refused() {
        let (throttle, now) = (throttle(3, 2), Instant::now());
        let expected = [Some(0), Some(0), Some(0), Some(100), Some(200), None, None];
        assert_eq!(waits(&throttle, now, 7), expected);
        let later = now + Duration::from_millis(100);
        assert_eq!(waits(&throttle, later, 2), [Some(200), None]);
        let idle = now + Duration::from_secs(10);
        assert_eq!(
            waits(&throttle, idle, 4),
            [Some(0), Some(0), Some(0), Some(100)]
        );
    }

    #[test]
    fn a_refusal_says_when_to_come_back() {
        let (throttle, now) = (throttle(1, 0), Instant::now());
        assert_eq!(waits(&throttle, now, 1), [Some(0)]);
        let fault = throttle.reserve(now).unwrap_err();
        assert_eq!((fault.name(), fault.status), ("limited", 429));
        assert_eq!(fault.retry_after, Some(Duration::from_millis(100)));
    }
}

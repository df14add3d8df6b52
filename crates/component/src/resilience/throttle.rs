//! How often a step is tried: so many times in a period, the rest waits in a bounded queue or is
//! refused. The generic cell rate algorithm (ITU-T I.371, annex A).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use message::{Fault, Kind, Origin, Retry};

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
    /// How many may wait.
    pub queue: u32,
    /// The longest wait.
    pub wait: Duration,
}

/// How often tries are made. All workers share it.
pub struct Throttle {
    settings: ThrottleSettings,
    schedule: Mutex<Schedule>,
    delayed: AtomicU64,
    refused: AtomicU64,
}

#[derive(Default)]
struct Schedule {
    /// When the next try would come if they came evenly.
    next: Option<Instant>,
    /// Reserved times before that whose tries have been dropped.
    given_back: BTreeSet<Instant>,
}

/// A reserved time. Dropped while it is waited for, it is given back.
struct Reservation<'a> {
    throttle: &'a Throttle,
    at: Instant,
    wait: Duration,
    is_used: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            self.throttle.give_back(self.at);
        }
    }
}

impl Throttle {
    /// One that nobody has passed.
    pub fn new(settings: ThrottleSettings) -> Self {
        Self {
            settings,
            schedule: Mutex::default(),
            delayed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Waits until a try may be made.
    ///
    /// # Errors
    /// `limited`, with the time after which there is one, when the wait or the queue is too long.
    pub async fn pass(&self, services: &dyn Services) -> Result<(), Fault> {
        let mut reservation = self.reserve(services.now())?;
        if !reservation.wait.is_zero() {
            services.sleep(reservation.wait).await;
        }
        reservation.is_used = true;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interval(&self) -> Duration {
        self.settings.per / self.settings.requests.max(1)
    }

    /// Reserves a time, and says how long it is until then.
    fn reserve(&self, now: Instant) -> Result<Reservation<'_>, Fault> {
        let ThrottleSettings {
            burst,
            queue,
            wait: wait_max,
            ..
        } = self.settings;
        let interval = self.interval();
        let ahead = interval * burst.saturating_sub(1);
        let mut schedule = self.lock();
        schedule.given_back = schedule.given_back.split_off(&now);
        let returned = schedule.given_back.first().copied();
        let at = returned.unwrap_or_else(|| schedule.next.map_or(now, |next| next.max(now)));
        let wait = at.saturating_duration_since(now).saturating_sub(ahead);
        // Whoever waits is one of those whose times lie between now and this one.
        let waiting = wait.as_nanos().div_ceil(interval.as_nanos().max(1));
        if !wait.is_zero() && (waiting > u128::from(queue) || wait > wait_max) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let free = wait
                .saturating_sub(interval * queue)
                .max(interval.min(wait));
            let fault = Fault::new(Kind::Limited, Origin::Engine, "too many requests");
            return Err(fault.with_retry(Retry::Yes).with_retry_after(free));
        }
        if !wait.is_zero() {
            self.delayed.fetch_add(1, Ordering::Relaxed);
        }
        match returned {
            Some(_) => {
                schedule.given_back.pop_first();
            }
            None => schedule.next = Some(at + interval),
        }
        Ok(Reservation {
            throttle: self,
            at,
            wait,
            is_used: false,
        })
    }

    /// Makes a reserved time free for another try.
    fn give_back(&self, at: Instant) {
        let mut schedule = self.lock();
        schedule.given_back.insert(at);
        // Those at the end have never been taken.
        while let Some(last) = schedule.given_back.last().copied()
            && schedule.next == Some(last + self.interval())
        {
            schedule.given_back.pop_last();
            schedule.next = Some(last);
        }
    }
}

impl State for Throttle {
    fn measures(&self, now: Instant) -> Vec<Measure> {
        let interval = self.interval();
        let ahead = interval * self.settings.burst.saturating_sub(1);
        let schedule = self.lock();
        let behind = schedule
            .next
            .map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
        let behind = behind.saturating_sub(ahead + interval);
        let waiting = behind.as_nanos().div_ceil(interval.as_nanos().max(1));
        let returned = schedule.given_back.range(now + ahead..).count();
        let waiting = waiting.saturating_sub(returned as u128);
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
            let mut reservation = throttle.reserve(now).ok()?;
            reservation.is_used = true;
            Some(reservation.wait.as_millis() as u64)
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
        let fault = throttle.reserve(now).err().unwrap();
        assert_eq!((fault.name(), fault.status), ("limited", 429));
        assert_eq!(fault.retry_after, Some(Duration::from_millis(100)));
    }

    #[test]
    fn turns_of_those_who_leave_are_taken_by_others() {
        let (throttle, now) = (throttle(1, 3), Instant::now());
        assert_eq!(waits(&throttle, now, 1), [Some(0)]);
        let mut reservations: Vec<_> = (0..3).map(|_| throttle.reserve(now).unwrap()).collect();
        assert_eq!(waits(&throttle, now, 1), [None]);
        drop(reservations.remove(1));
        assert_eq!(waits(&throttle, now, 2), [Some(200), None]);
        drop(reservations);
        let later = now + Duration::from_millis(50);
        assert_eq!(waits(&throttle, later, 3), [Some(50), Some(250), None]);
    }

    #[test]
    fn a_turn_that_is_given_back_late_is_gone() {
        let (throttle, now) = (throttle(1, 3), Instant::now());
        assert_eq!(waits(&throttle, now, 1), [Some(0)]);
        let first = throttle.reserve(now).unwrap();
        assert_eq!(waits(&throttle, now, 1), [Some(200)]);
        drop(first);
        let later = now + Duration::from_millis(150);
        assert_eq!(waits(&throttle, later, 1), [Some(150)]);
    }
}

//! A fixed rate: requests become due at instants that do not depend on replies, and latency counts
//! from there, so that a slow reply delays no other request's clock (coordinated omission).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// How often due requests are looked for. This is a thread's sleep, for tokio's own timers are too
/// coarse (one millisecond).
const TICK: Duration = Duration::from_micros(50);
/// How long the pace may sleep when requests are rare.
const TICK_MAX: Duration = Duration::from_millis(50);

/// Requests that are due.
pub(super) struct Pace {
    interval: Duration,
    due: Mutex<VecDeque<Instant>>,
    count: Semaphore,
}

impl Pace {
    /// So many requests a second.
    pub fn new(rate: f64) -> Self {
        Self {
            interval: Duration::from_secs_f64(1.0 / rate.max(1e-3)),
            due: Mutex::new(VecDeque::new()),
            count: Semaphore::new(0),
        }
    }

    fn due(&self) -> MutexGuard<'_, VecDeque<Instant>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next request, and returns when it was due.
    pub async fn next(&self) -> Instant {
        if let Ok(permit) = self.count.acquire().await {
            permit.forget();
        }
        self.due().pop_front().unwrap_or_else(Instant::now)
    }

    /// How many requests are due and not taken.
    pub fn waiting(&self) -> u64 {
        self.due().len() as u64
    }

    /// Makes requests due until told to stop.
    pub fn run(&self, is_over: impl Fn() -> bool) {
        let mut next = Instant::now();
        while !is_over() {
            let now = Instant::now();
            let mut count = 0;
            while next <= now {
                self.due().push_back(next);
                next += self.interval;
                count += 1;
            }
            self.count.add_permits(count);
            let wait = next.saturating_duration_since(Instant::now());
            thread::sleep(wait.clamp(TICK, TICK_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn requests_become_due_at_their_distance() {
        let pace = Arc::new(Pace::new(1000.0));
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = {
            let (pace, is_over) = (Arc::clone(&pace), Arc::clone(&is_over));
            thread::spawn(move || pace.run(|| is_over.load(Ordering::Relaxed)))
        };
        let first = pace.next().await;
        let (second, third) = (pace.next().await, pace.next().await);
        is_over.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        assert_eq!(second - first, Duration::from_millis(1));
        assert_eq!(third - second, Duration::from_millis(1));
    }
}

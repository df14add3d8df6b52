//! How many tries of a step there are at a time; a bounded number of others waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use message::{Fault, Kind, Origin, Retry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::handler::{Services, within};
use crate::state::{Measure, State};

/// How many may be within and wait.
#[derive(Clone, Copy, Debug)]
pub struct BulkheadSettings {
    /// How many at a time, of all workers together.
    pub concurrent: usize,
    /// How many may wait.
    pub queue: usize,
    /// The longest wait.
    pub wait: Duration,
}

/// How many tries there are at a time. All workers share it.
pub struct Bulkhead {
    settings: BulkheadSettings,
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    refused: AtomicU64,
}

/// One of those within, until it is dropped.
pub type Permit = OwnedSemaphorePermit;

/// One that waits, for as long as this lives.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Bulkhead {
    /// One that nobody is in.
    pub fn new(settings: BulkheadSettings) -> Self {
        Self {
            settings,
            places: Arc::new(Semaphore::new(
                settings.concurrent.min(Semaphore::MAX_PERMITS),
            )),
            waiting: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Takes a place, which is free again when what this gives is dropped.
    ///
    /// # Errors
    /// `unavailable` when there is none in time, or too many wait already.
    pub async fn enter(&self, services: &dyn Services) -> Result<Permit, Fault> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.settings.queue {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(self.refuse("too many are waiting"));
        }
        let _waiting = Waiting(&self.waiting);
        let place = Arc::clone(&self.places).acquire_owned();
        match within(self.settings.wait, services, place).await {
            Some(Ok(place)) => Ok(place),
            Some(Err(_)) | None => Err(self.refuse("no place became free in time")),
        }
    }

    fn refuse(&self, why: &'static str) -> Fault {
        self.refused.fetch_add(1, Ordering::Relaxed);
        Fault::new(
            Kind::Unavailable,
            Origin::Engine,
            "too many requests at a time",
        )
        .with_retry(Retry::Yes)
        .with_retry_after(Duration::from_secs(1))
        .with_cause(why)
    }
}

impl State for Bulkhead {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let within = self.settings.concurrent - self.places.available_permits();
        let waiting = self.waiting.load(Ordering::Relaxed);
        let refused = self.refused.load(Ordering::Relaxed);
        let measure = |name, help, value| Measure { name, help, value };
        vec![
            measure("bulkhead_running", "Tries under way.", within as f64),
            measure(
                "bulkhead_waiting",
                "Tries that wait for a place.",
                waiting as f64,
            ),
            measure(
                "bulkhead_refused_total",
                "Tries without a place.",
                refused as f64,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeServices, poll_once};

    #[test]
    fn a_bounded_number_waits_for_places() {
        let services = FakeServices::default();
        let bulkhead = Bulkhead::new(BulkheadSettings {
            concurrent: 1,
            queue: 1,
            wait: Duration::from_secs(1),
        });
        let first = poll_once(&mut Box::pin(bulkhead.enter(&services)))
            .unwrap()
            .unwrap();
        let mut second = Box::pin(bulkhead.enter(&services));
        assert!(poll_once(&mut second).is_none());
        let third = poll_once(&mut Box::pin(bulkhead.enter(&services))).unwrap();
        assert_eq!(third.unwrap_err().name(), "unavailable");
        drop(first);
        assert!(poll_once(&mut second).unwrap().is_ok());
        assert_eq!(bulkhead.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nobody_waits_longer_than_allowed() {
        let services = FakeServices::default();
        let bulkhead = Bulkhead::new(BulkheadSettings {
            concurrent: 1,
            queue: 1,
            wait: Duration::from_secs(1),
        });
        let _first = poll_once(&mut Box::pin(bulkhead.enter(&services)))
            .unwrap()
            .unwrap();
        let mut second = Box::pin(bulkhead.enter(&services));
        assert!(poll_once(&mut second).is_none());
        services.pass(Duration::from_secs(1));
        assert_eq!(poll_once(&mut second).unwrap().unwrap_err().status, 503);
    }
}

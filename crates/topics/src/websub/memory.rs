//! What is known of a subscription, by the source and by all workers that its hub calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use component::handler::Services;
use component::state::{Measure, State};
use tokio::sync::{Notify, OnceCell};
use websub::deliveries::Deliveries;
use websub::hub::Moment;
use websub::signature::Secret;
use websub::subscriber::Subscriber;

/// What is known of a subscription. It outlives a reload that leaves it the same one.
#[derive(Default)]
pub(super) struct Memory {
    /// Set once, with what was on the disk.
    pub known: OnceCell<Known>,
    /// Wakes the source: the hub has said something.
    pub woken: Notify,
    pub counts: Counts,
    base: OnceLock<Instant>,
    /// When the lease ends, in milliseconds since 1970; 0 without one.
    pub ends: AtomicU64,
    /// The same for the start, to tell how old the process's knowledge is.
    is_failing: AtomicBool,
}

/// What there is from the start.
pub(super) struct Known {
    /// The last segment of the callback.
    pub token: String,
    /// What deliveries are signed with.
    pub secret: Secret,
    inner: Mutex<Inner>,
}

/// What changes.
pub(super) struct Inner {
    pub subscriber: Subscriber,
    pub deliveries: Deliveries,
}

impl Known {
    pub fn new(token: String, secret: Secret, inner: Inner) -> Self {
        Self {
            token,
            secret,
            inner: Mutex::new(inner),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often what has happened.
#[derive(Default)]
pub(super) struct Counts {
    pub events: AtomicU64,
    pub repeated: AtomicU64,
    pub unsigned: AtomicU64,
    pub failed: AtomicU64,
    pub requests: AtomicU64,
    pub request_failures: AtomicU64,
    pub denied: AtomicU64,
    pub refused: AtomicU64,
}

/// Counts one.
pub(super) fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Memory {
    /// What time it is.
    pub fn moment(&self, services: &dyn Services) -> Moment {
        let now = services.now();
        let base = *self.base.get_or_init(|| now);
        Moment {
            wall: services.wall(),
            at: now.saturating_duration_since(base),
        }
    }

    /// Notes whether something fails; whether that is news.
    pub fn set_failing(&self, is_failing: bool) -> bool {
        self.is_failing.swap(is_failing, Ordering::Relaxed) != is_failing
    }
}

impl State for Memory {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let counts = &self.counts;
        let ends = self.ends.load(Ordering::Relaxed) as f64 / 1000.0;
        vec![
            Measure::count(
                "websub_events_total",
                "Deliveries whose flow has succeeded.",
                &counts.events,
            ),
            Measure::count(
                "websub_repeated_total",
                "Deliveries that had been dealt with before.",
                &counts.repeated,
            ),
            Measure::count(
                "websub_unsigned_total",
                "Deliveries that were ignored, since they were not signed as they should be.",
                &counts.unsigned,
            ),
            Measure::count(
                "websub_failed_total",
                "Deliveries whose flow has failed: the hub is told so.",
                &counts.failed,
            ),
            Measure::count(
                "websub_requests_total",
                "Requests to hubs for a subscription or its end.",
                &counts.requests,
            ),
            Measure::count(
                "websub_request_failures_total",
                "Attempts to subscribe that failed: no hub found, refused, or not verified.",
                &counts.request_failures,
            ),
            Measure::count(
                "websub_denied_total",
                "Subscriptions that hubs have denied.",
                &counts.denied,
            ),
            Measure::count(
                "websub_refused_verifications_total",
                "Verifications of something that was not asked for.",
                &counts.refused,
            ),
            Measure {
                name: "websub_lease_end",
                help: "When the subscription ends, in seconds since 1970; 0 without one.",
                value: ends,
            },
        ]
    }
}

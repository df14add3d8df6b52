//! The subscriptions to the hub of one topic, and the drivers that deliver to them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use component::egress::Origins;
use component::resources::Share;
use component::state::{Measure, State, StateKey, States};
use websub::signature::Secret;
use websub::url::Url;

use crate::log::Log;
use crate::topic::Topic;
use crate::webhooks::hub::{
    Arrival, Arrivals, EndpointGroup, EndpointKind, EndpointPlan, EndpointState, is_here,
};

/// A subscription that is delivered to.
pub(crate) struct Subscribed {
    /// The topic as the subscriber has named it.
    pub topic: Arc<str>,
    pub callback: Url,
    pub secret: Option<Secret>,
    /// Which state of the subscription this is.
    pub version: u64,
    /// How far it has come; the same over renewals.
    pub state: Arc<EndpointState>,
}

/// How callbacks are asked.
#[derive(Clone)]
pub(crate) struct Access {
    pub origins: Origins,
    pub timeout: std::time::Duration,
}

/// Makes what a driver needs of a subscription.
pub(crate) type Make = Arc<dyn Fn(&Arc<Subscribed>) -> Arc<EndpointPlan> + Send + Sync>;

/// A driver, which has its share of the subscriptions.
struct Seat {
    share: Share,
    arrivals: Arc<Arrivals>,
    make: Make,
}

#[derive(Default)]
struct Inner {
    all: HashMap<Arc<str>, Arc<Subscribed>>,
    seats: Vec<Seat>,
    access: Option<Access>,
    /// The log of the topic, once a plan with it is about to be served.
    log: Option<Arc<Log>>,
}

/// The subscriptions to the hub of one topic, whichever plan is served.
pub(crate) struct Subscriptions {
    pub name: Arc<str>,
    /// Whether those of earlier runs are there.
    pub loaded: tokio::sync::OnceCell<()>,
    pub group: Arc<EndpointGroup>,
    pub verifications: AtomicU64,
    pub unverified: AtomicU64,
    pub denied: AtomicU64,
    pub fetches: AtomicU64,
    pub fetch_failures: AtomicU64,
    inner: Mutex<Inner>,
}

/// Counts one.
pub(super) fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Subscriptions {
    /// Those of this topic.
    pub fn of(topic: &Topic, states: &States) -> Arc<Self> {
        let key = StateKey {
            flow: Arc::clone(topic.name()),
            step: "websub".into(),
            kind: "websub hub",
            settings: String::new(),
        };
        states.get(key, || Self {
            name: Arc::clone(topic.name()),
            loaded: tokio::sync::OnceCell::new(),
            group: EndpointGroup::new((topic.name(), topic.slot()), EndpointKind::Hub),
            verifications: AtomicU64::default(),
            unverified: AtomicU64::default(),
            denied: AtomicU64::default(),
            fetches: AtomicU64::default(),
            fetch_failures: AtomicU64::default(),
            inner: Mutex::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How callbacks are asked from here on. The subscriptions that do not call the topic this.
    pub fn adopt(&self, access: Access, url: &Arc<str>) -> Vec<Arc<Subscribed>> {
        let mut inner = self.inner();
        inner.access = Some(access);
        let all = inner.all.values();
        all.filter(|it| it.topic != *url).map(Arc::clone).collect()
    }

    /// The topic has this log; a later one takes the place of an earlier one when it is `newer`.
    pub fn set_log(&self, log: &Arc<Log>, newer: bool) {
        let mut inner = self.inner();
        if newer || inner.log.is_none() {
            inner.log = Some(Arc::clone(log));
        }
    }

    /// The log of the topic.
    pub fn log(&self) -> Option<Arc<Log>> {
        self.inner().log.clone()
    }

    /// How callbacks are asked.
    pub fn access(&self) -> Option<Access> {
        self.inner().access.clone()
    }

    /// The subscription of a callback.
    pub fn get(&self, callback: &str) -> Option<Arc<Subscribed>> {
        self.inner().all.get(callback).map(Arc::clone)
    }

    /// Notes a subscription; [`Self::deliver`] has it delivered to.
    pub fn insert(&self, subscribed: &Arc<Subscribed>) {
        let callback = Arc::clone(subscribed.callback.text());
        self.inner().all.insert(callback, Arc::clone(subscribed));
    }

    /// Has a subscription delivered to, as it is now.
    pub fn deliver(&self, subscribed: &Arc<Subscribed>) {
        let inner = self.inner();
        let is_it = inner.all.get(subscribed.callback.text());
        if is_it.is_none_or(|it| !Arc::ptr_eq(it, subscribed)) {
            // It has ended meanwhile, or is another one.
            return;
        }
        for seat in inner.seats.iter().filter(|it| it.has(subscribed)) {
            seat.arrivals.push(Arrival::Put((seat.make)(subscribed)));
        }
    }

    /// Ends a subscription.
    pub fn remove(&self, callback: &str) -> Option<Arc<Subscribed>> {
        let mut inner = self.inner();
        let removed = inner.all.remove(callback)?;
        for seat in inner.seats.iter().filter(|it| it.has(&removed)) {
            let name = Arc::clone(&removed.state.name);
            seat.arrivals.push(Arrival::Remove(name));
        }
        Some(removed)
    }

    /// Lets a driver deliver to its share of them, until what is returned is dropped.
    pub fn attach(
        self: &Arc<Self>,
        share: Share,
        arrivals: &Arc<Arrivals>,
        make: Make,
    ) -> Attached {
        let seat = Seat {
            share,
            arrivals: Arc::clone(arrivals),
            make,
        };
        let mut inner = self.inner();
        for subscribed in inner.all.values().filter(|it| seat.has(it)) {
            arrivals.push(Arrival::Put((seat.make)(subscribed)));
        }
        inner.seats.push(seat);
        Attached {
            subscriptions: Arc::clone(self),
            arrivals: Arc::clone(arrivals),
        }
    }
}

impl Seat {
    fn has(&self, subscribed: &Subscribed) -> bool {
        is_here(&subscribed.state, self.share)
    }
}

/// A driver gets subscriptions as long as this is there.
pub(crate) struct Attached {
    subscriptions: Arc<Subscriptions>,
    arrivals: Arc<Arrivals>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut inner = self.subscriptions.inner();
        inner
            .seats
            .retain(|it| !Arc::ptr_eq(&it.arrivals, &self.arrivals));
    }
}

impl State for Subscriptions {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let counts = &self.group.counts;
        vec![
            Measure {
                name: "websub_hub_subscriptions",
                help: "Subscriptions to the topic's hub.",
                value: self.inner().all.len() as f64,
            },
            Measure::count(
                "websub_hub_delivered_total",
                "Deliveries that subscribers have taken.",
                &counts.delivered,
            ),
            Measure::count(
                "websub_hub_failed_total",
                "Deliveries that failed: no connection, time-outs, 410, 5xx, 408, 429 and \
                 redirects. All but those to which 410 was the answer are retried.",
                &counts.failed,
            ),
            Measure::count(
                "websub_hub_refused_total",
                "Deliveries that subscribers have refused with another 4xx.",
                &counts.refused,
            ),
            Measure::count(
                "websub_hub_dropped_total",
                "Content that a subscriber has refused as often as it is asked.",
                &counts.dead_letters,
            ),
            Measure::count(
                "websub_hub_missed_total",
                "Content that was not kept any more when a subscriber could have got it.",
                &counts.gaps,
            ),
            Measure::count(
                "websub_hub_verifications_total",
                "Callbacks that were asked whether a request is meant.",
                &self.verifications,
            ),
            Measure::count(
                "websub_hub_unverified_total",
                "Callbacks that have not confirmed it.",
                &self.unverified,
            ),
            Measure::count(
                "websub_hub_denied_total",
                "Subscriptions that the hub has denied.",
                &self.denied,
            ),
            Measure::count(
                "websub_hub_fetches_total",
                "Fetches of the topic's content after pings.",
                &self.fetches,
            ),
            Measure::count(
                "websub_hub_fetch_failures_total",
                "Fetches that have failed.",
                &self.fetch_failures,
            ),
        ]
    }
}

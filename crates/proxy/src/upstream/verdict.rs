//! What exchanges say about endpoints. A [`Lease`] ends in one of four ways: the endpoint has
//! answered, it has failed, we gave up for a reason of our own, or the exchange was cancelled,
//! which is what dropping the lease means. The last two say nothing about the endpoint.

use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use component::upstream::UpstreamPlan;
use net::http1::Released;
use tokio::time::Instant;

use super::{Member, Upstream};
use crate::relay::failure::Failure;

/// The longest that an endpoint is left out, in multiples of the configured time.
const EJECT_GROWTH_MAX: u32 = 10;

/// The status that goes with a head above our own limits (RFC 6585, section 5).
const FIELDS_TOO_LARGE: u16 = 431;

/// What is known of an endpoint's health.
#[derive(Default)]
pub(super) struct Health {
    /// Failures in a row.
    failures: Cell<u32>,
    /// While this lies ahead the endpoint is left out; once it has passed, one request tries it.
    ejected_until: Cell<Option<Instant>>,
    /// How often in a row it has been left out.
    ejections: Cell<u32>,
    /// The trial that is under way.
    trial: Cell<Option<u32>>,
    /// The number of the last trial.
    last_trial: Cell<u32>,
    /// Whether the active check has found it down; shared by all workers.
    down: Arc<AtomicBool>,
}

/// How an endpoint has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// No connection could be made.
    Connect,
    /// The connection ended before the reply began.
    Closed,
    /// The reply was malformed.
    Invalid,
    /// The reply did not come in time.
    Timeout,
}

/// One exchange with one endpoint. Dropping it says nothing about the endpoint.
pub(crate) struct Lease {
    upstream: Rc<Upstream>,
    at: usize,
    /// When this exchange is the one that tries an endpoint that was left out.
    trial: Option<u32>,
    /// The first verdict stands.
    has_verdict: Cell<bool>,
}

impl FailureKind {
    /// What a failure says about the endpoint, if anything.
    pub fn of(failure: &Failure) -> Option<Self> {
        match failure {
            // We have no descriptor for a connection, to this endpoint as to any other.
            Failure::Connect(error) if error.kind() == ErrorKind::QuotaExceeded => None,
            Failure::Connect(_) | Failure::ConnectTimeout => Some(Self::Connect),
            Failure::Closed(_) | Failure::Reset(_) => Some(Self::Closed),
            // A head above our limits is well-formed: others may take it.
            Failure::Invalid(error) if error.status == FIELDS_TOO_LARGE => None,
            Failure::Invalid(_) => Some(Self::Invalid),
            Failure::ReplyTimeout => Some(Self::Timeout),
            Failure::ClientGone
            | Failure::ClientInvalid(_)
            | Failure::ClientSlow
            | Failure::QueueFull
            | Failure::Refused
            | Failure::NoUpgrade
            | Failure::Limited(_) => None,
        }
    }
}

impl Health {
    pub fn new(down: Arc<AtomicBool>) -> Self {
        Self {
            down,
            ..Self::default()
        }
    }

    pub fn is_well(&self, now: Instant) -> bool {
        if self.down.load(Ordering::Relaxed) {
            return false;
        }
        self.ejected_until
            .get()
            .is_none_or(|until| until <= now && self.trial.get().is_none())
    }

    /// A request goes to the endpoint: as a trial, when the endpoint was left out.
    fn begin(&self, now: Instant) -> Option<u32> {
        let is_due = self.ejected_until.get().is_some_and(|until| until <= now);
        if !is_due || self.trial.get().is_some() {
            return None;
        }
        let number = self.last_trial.get().wrapping_add(1);
        self.last_trial.set(number);
        self.trial.set(Some(number));
        Some(number)
    }

    fn succeed(&self) {
        if self.failures.get() == 0 && self.ejected_until.get().is_none() {
            return;
        }
        self.failures.set(0);
        self.ejections.set(0);
        self.ejected_until.set(None);
        self.trial.set(None);
    }

    /// Says whether the endpoint is left out from now on.
    pub(super) fn fail(&self, now: Instant, plan: &UpstreamPlan) -> bool {
        let failures = self.failures.get().saturating_add(1);
        self.failures.set(failures);
        let was_trying = self.trial.take().is_some();
        if plan.endpoints.len() < 2 || (failures < plan.eject.failures && !was_trying) {
            return false;
        }
        if self.ejected_until.get().is_some_and(|until| until > now) {
            return false;
        }
        let ejections = (self.ejections.get() + 1).min(EJECT_GROWTH_MAX);
        self.ejections.set(ejections);
        self.ejected_until
            .set(Some(now + plan.eject.time * ejections));
        true
    }

    /// A trial has ended without a verdict: the next request is one.
    fn end_trial(&self, number: u32) {
        if self.trial.get() == Some(number) {
            self.trial.set(None);
        }
    }
}

impl Upstream {
    /// Counts a failure of an endpoint.
    pub(super) fn fail(&self, at: usize, now: Instant) {
        let failed = |member: &Member| member.health.fail(now, &self.plan);
        if !self.members.get(at).is_some_and(failed) {
            return;
        }
        self.metrics.upstream_ejections.add(1);
        let upstream = &*self.plan.name;
        let endpoint = self.plan.endpoints.get(at);
        let host = endpoint.map(|it| format!("{}:{}", it.host, it.port));
        tracing::warn!(target: "proxy", upstream, host, "an endpoint is left out");
    }

    /// Tells the pool which endpoints are well, for those who wait.
    pub(super) fn note_health(&self, now: Instant) {
        if self.members.len() < 2 {
            return;
        }
        let mut pool = self.pool.borrow_mut();
        for (at, member) in self.members.iter().enumerate() {
            pool.set_well(at, member.health.is_well(now), now);
        }
    }
}

impl Lease {
    /// A request goes to an endpoint.
    #[inline]
    pub(super) fn begin(upstream: &Rc<Upstream>, at: usize, now: Instant) -> Self {
        let member = upstream.members.get(at);
        let trial = member.and_then(|member| {
            member.in_flight.set(member.in_flight.get() + 1);
            member.health.begin(now)
        });
        Self {
            upstream: Rc::clone(upstream),
            at,
            trial,
            has_verdict: Cell::new(false),
        }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn health(&self) -> Option<&Health> {
        self.upstream.members.get(self.at).map(|it| &it.health)
    }

    /// Gives a connection back whose exchange has ended cleanly.
    #[inline]
    pub fn keep(&self, released: Released, now: Instant) {
        self.upstream.keep(self.at, released, now);
    }

    /// The head of the final reply is there. Counts at once, however long the body takes.
    #[inline]
    pub fn answered(&self) {
        if !self.has_verdict.replace(true)
            && let Some(health) = self.health()
        {
            health.succeed();
        }
    }

    /// The exchange has failed in a way that speaks against the endpoint.
    pub(super) fn failed(&self, kind: FailureKind) {
        if !self.has_verdict.replace(true) {
            let upstream = &*self.upstream.plan.name;
            tracing::debug!(target: "proxy", upstream, ?kind, "an endpoint has failed a request");
            self.upstream.fail(self.at, Instant::now());
        }
    }

    /// We end the exchange for a reason of our own: the time or another limit of the flow.
    pub fn gave_up(&self) {
        self.has_verdict.set(true);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(member) = self.upstream.members.get(self.at) else {
            return;
        };
        member.in_flight.set(member.in_flight.get() - 1);
        if let Some(number) = self.trial {
            member.health.end_trial(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_lack_of_descriptors_says_nothing_about_an_endpoint() {
        let of = |kind: ErrorKind| FailureKind::of(&Failure::Connect(kind.into()));
        assert_eq!(of(ErrorKind::QuotaExceeded), None);
        assert_eq!(of(ErrorKind::ConnectionRefused), Some(FailureKind::Connect));
    }
}

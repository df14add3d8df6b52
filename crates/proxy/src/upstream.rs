//! Another system as one worker sees it: its endpoints, which of them are well, and connections
//! lent out for one exchange at a time.

mod balance;
pub(crate) mod h2_driver;
pub(crate) mod health;
mod lend;
mod origins;
pub(crate) mod request_head;
#[cfg(test)]
mod tests;
pub(crate) mod upstreams;
mod verdict;

use std::cell::{Cell, Ref, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use component::observe::WorkerMetrics;
use component::once_per_second::OncePerSecond;
use component::settings::Settings;
use component::upstream::{ConnectionLimits, UpstreamPlan};
use net::Connection;
use net::deadline::Deadlines;
use net::endpoint::{ConnectionPool, Endpoint};
use net::http1::Released;
use net::http2::Link;
use net::pool::{Demand, EndpointSetup, Permits, PoolLimits, QueueCount};
use tokio::time::Instant;

use crate::relay::failure::{Failed, Failure};
pub(crate) use balance::hash;
pub(crate) use lend::Patience;
pub(crate) use verdict::Lease;
use verdict::{FailureKind, Health};

/// How often a request is sent again that an upstream has refused unread.
const REFUSALS_MAX: u32 = 3;

/// Another system as one worker sees it.
pub(crate) struct Upstream {
    /// What flow files say of it. Of the limits on connections, `connections` holds instead.
    pub plan: Arc<UpstreamPlan>,
    /// The limits on connections, which a reload changes in place.
    connections: Cell<ConnectionLimits>,
    settings: RefCell<Settings>,
    members: Vec<Member>,
    next: Cell<usize>,
    pool: RefCell<ConnectionPool>,
    /// Whether there is a task that looks after the pool when it is woken.
    is_tended: Cell<bool>,
    deadlines: Deadlines,
    metrics: Arc<WorkerMetrics>,
}

/// One endpoint and how it has been lately.
pub(crate) struct Member {
    pub endpoint: Rc<Endpoint>,
    permits: Arc<Permits>,
    /// Of its address, for balancing by hash.
    id: u64,
    in_flight: Cell<u32>,
    health: Health,
}

/// What an [`Upstream`] is made of.
pub(crate) struct UpstreamSetup<'a> {
    pub plan: &'a Arc<UpstreamPlan>,
    pub settings: Settings,
    pub endpoints: Vec<MemberSetup>,
    /// Requests of all workers that wait for a connection.
    pub queue: Arc<QueueCount>,
    pub deadlines: &'a Deadlines,
    pub metrics: &'a Arc<WorkerMetrics>,
}

/// What a [`Member`] is made of.
pub(crate) struct MemberSetup {
    pub endpoint: Endpoint,
    /// Whether the active check has found it down; shared by all workers.
    pub down: Arc<AtomicBool>,
    /// Its connections of all workers.
    pub permits: Arc<Permits>,
    pub may_h1: bool,
    pub may_h2: bool,
}

/// What one exchange goes over.
pub(crate) enum Line {
    /// A connection of its own.
    Http1(Box<Connection>),
    /// A stream, to be opened at once, of a connection that others use too.
    Http2(Link),
}

/// A line lent for one exchange.
pub(crate) struct Lent {
    pub line: Line,
    /// Whether it has served others before.
    pub reused: bool,
    pub lease: Lease,
    /// The time when it was lent, which may be long after it was asked for.
    pub now: Instant,
}

/// What one request has tried so far.
#[derive(Default)]
pub(crate) struct Attempt {
    /// Decides about the endpoint where the balance is by hash.
    key: u64,
    /// Endpoints that have failed.
    avoid: Vec<usize>,
    /// Whether only a new connection will do.
    fresh: bool,
    /// How often the request has been refused unread.
    refusals: u32,
    /// Whether only HTTP/1.1 will do: the request asks for another protocol.
    upgrades: bool,
    /// Whether the request may be sent again, whatever its method, when its kept connection turns
    /// out to be closed.
    pub repeats: bool,
    /// Until when it waits for a connection, however often.
    queue_until: Option<Instant>,
}

impl Attempt {
    /// The same for a request that asks for another protocol, which only HTTP/1.1 carries.
    pub fn for_upgrade(self, upgrades: bool) -> Self {
        Self { upgrades, ..self }
    }

    /// Nothing tried yet. `key` decides where the balance is by hash.
    pub fn new(key: u64) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

    fn demand(&self) -> Demand {
        match (self.fresh, self.upgrades) {
            (false, false) => Demand::Any,
            (true, false) => Demand::Fresh,
            (false, true) => Demand::Exclusive,
            (true, true) => Demand::FreshExclusive,
        }
    }
}

impl Upstream {
    pub fn new(setup: UpstreamSetup<'_>) -> Self {
        let endpoints = setup.endpoints.iter().map(|it| EndpointSetup {
            permits: Arc::clone(&it.permits),
            may_h2: it.may_h2,
            may_h1: it.may_h1,
        });
        let connections = setup.plan.connections;
        let limits = pool_limits(&setup.settings, &connections);
        let pool = ConnectionPool::new(endpoints.collect(), limits, setup.queue);
        let members = setup.endpoints.into_iter().zip(&setup.plan.endpoints);
        let members = members.map(|(it, plan)| Member {
            endpoint: Rc::new(it.endpoint),
            permits: it.permits,
            id: balance::endpoint_id(&plan.host, plan.port),
            in_flight: Cell::new(0),
            health: Health::new(it.down),
        });
        Self {
            plan: Arc::clone(setup.plan),
            connections: Cell::new(connections),
            settings: RefCell::new(setup.settings),
            members: members.collect(),
            next: Cell::new(0),
            pool: RefCell::new(pool),
            is_tended: Cell::new(false),
            deadlines: setup.deadlines.clone(),
            metrics: Arc::clone(setup.metrics),
        }
    }

    /// The endpoints.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Takes new settings over, and new limits on connections: they hold at once, also for the
    /// connections that are open.
    pub fn update(&self, settings: &Settings, connections: &ConnectionLimits) {
        let before = self.settings.replace(settings.clone());
        if self.plan.egress.is_guarded() && before.egress != settings.egress {
            self.guard_anew(settings);
        }
        self.connections.set(*connections);
        let limits = pool_limits(settings, connections);
        self.pool.borrow_mut().set_limits(limits);
        for member in &self.members {
            member.permits.set_limit(connections.limit);
            member.endpoint.set_resolve(connections.resolve);
        }
    }

    /// Has the guard go by another policy, also for the connections that there are.
    fn guard_anew(&self, settings: &Settings) {
        let guard = upstreams::guard(&self.plan, settings);
        let mut pool = self.pool.borrow_mut();
        for (at, member) in self.members.iter().enumerate() {
            member.endpoint.set_guard(guard.clone());
            pool.retire(at, |peer| member.endpoint.lacks(peer));
        }
    }

    /// The settings that hold now.
    pub fn settings(&self) -> Ref<'_, Settings> {
        self.settings.borrow()
    }

    /// The limits on connections that hold now.
    pub fn connections(&self) -> ConnectionLimits {
        self.connections.get()
    }

    /// Closes connections that are idle for too long, dead, or wanted elsewhere.
    pub fn prune(self: &Rc<Self>, now: Instant) {
        self.note_health(now);
        let mut pool = self.pool.borrow_mut();
        pool.prune(now);
        for (at, member) in self.members.iter().enumerate() {
            // Those that were in use when the addresses changed have come back since.
            pool.retire(at, |peer| member.endpoint.lacks(peer));
        }
        drop(pool);
        self.start_connects();
    }

    /// Whether there are no connections, and nobody waits for one.
    pub fn is_unused(&self) -> bool {
        self.pool.borrow().is_unused()
    }

    /// Ends all connections: nothing is known of them any more.
    pub fn forget_connections(&self) {
        let mut pool = self.pool.borrow_mut();
        for at in 0..self.members.len() {
            pool.forget_all(at);
        }
    }

    /// Takes a connection back whose exchange has ended cleanly: the one way into the pool.
    #[inline]
    fn keep(self: &Rc<Self>, at: usize, released: Released, now: Instant) {
        let endpoint = self.members.get(at).map(|member| &member.endpoint);
        if endpoint.is_some_and(|endpoint| endpoint.lacks(released.peer())) {
            // Its address has gone while it was in use.
            drop(released);
            return self.start_connects();
        }
        self.pool.borrow_mut().keep(at, released, now);
    }

    /// How many exchanges with an endpoint are counted, and how many connections to it that are not
    /// idle; those of HTTP/2 never are.
    #[cfg(test)]
    pub fn under_way(&self, at: usize) -> (u32, usize) {
        let member = &self.members[at];
        (
            member.in_flight.get(),
            member.permits.used() - self.idle(at),
        )
    }

    /// How many idle connections of HTTP/1.1 there are to an endpoint.
    #[cfg(test)]
    pub fn idle(&self, at: usize) -> usize {
        self.pool.borrow().idle_count(at)
    }

    /// Whether a request that has failed may go to another endpoint.
    fn allows_another(&self, attempt: &Attempt) -> bool {
        attempt.avoid.len() < self.members.len()
            && attempt.avoid.len() <= self.plan.retries as usize
    }

    /// Decides what follows a failed exchange: another attempt, or the failure.
    pub fn after_failure(
        &self,
        failed: Failed,
        reused: bool,
        lease: Lease,
        attempt: &mut Attempt,
    ) -> Result<(), Failure> {
        let Failed {
            failure,
            repeatable,
        } = failed;
        if matches!(failure, Failure::Closed(_)) {
            self.pool.borrow_mut().forget_idle(lease.at());
        }
        match &failure {
            // A kept connection may have been closed at any time.
            Failure::Closed(_) if reused && (repeatable || attempt.repeats) => {
                attempt.fresh = true;
                return Ok(());
            }
            Failure::Refused if repeatable && attempt.refusals < REFUSALS_MAX => {
                attempt.refusals += 1;
                return Ok(());
            }
            _ => {}
        }
        let Some(kind) = FailureKind::of(&failure) else {
            lease.gave_up();
            return Err(failure);
        };
        lease.failed(kind);
        if repeatable && kind != FailureKind::Timeout {
            attempt.avoid.push(lease.at());
            // The idle connections of another endpoint are as good as new ones.
            attempt.fresh = false;
            if self.allows_another(attempt) {
                return Ok(());
            }
        }
        Err(failure)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.forget_connections();
        // So that the task that looks after the pool ends.
        self.pool.borrow().waker().wake();
    }
}

/// Counts and logs that the egress guard has refused something.
#[cold]
pub(crate) fn note_refusal(metrics: &WorkerMetrics, reason: &dyn fmt::Display) {
    static REFUSALS: OncePerSecond = OncePerSecond::new();
    metrics.egress_refused.add(1);
    if let Some(count) = REFUSALS.pass() {
        tracing::warn!(target: "proxy", %reason, count, "refused by the egress guard");
    }
}

fn pool_limits(settings: &Settings, connections: &ConnectionLimits) -> PoolLimits {
    PoolLimits {
        idle_count: settings.limits.upstream_idle,
        idle_time: settings.timeouts.upstream_idle,
        queue: connections.queue,
        queue_time: connections.queue_time,
    }
}

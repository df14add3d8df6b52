//! Another system as one worker sees it: its endpoints, which of them are well, and connections
//! lent out for one exchange at a time.

use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::future::poll_fn;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use component::observe::WorkerMetrics;
use component::tls::Protocol;
use component::upstream::{Balance, UpstreamPlan};
use net::Connection;
use net::deadline::Deadline;
use net::endpoint::{Connected, Endpoint};
use net::http2::Link;
use net::queue::Queue;
use tokio::time::Instant;

use crate::exchange::{Failed, Failure};
use crate::h2_driver;
use crate::worker::Worker;

/// The longest that an endpoint is left out, in multiples of the configured time.
const EJECT_GROWTH_MAX: u32 = 10;

/// How often a request is sent again that an upstream has refused unread.
const REFUSALS_MAX: u32 = 3;

/// Another system as one worker sees it.
pub(crate) struct Upstream {
    /// What flow files say of it.
    pub plan: Arc<UpstreamPlan>,
    members: Vec<Member>,
    next: Cell<usize>,
    queue: Rc<Queue>,
    /// How many requests of this worker may wait for a connection.
    queue_max: usize,
    metrics: Arc<WorkerMetrics>,
}

/// One endpoint and how it has been lately.
pub(crate) struct Member {
    pub endpoint: Endpoint,
    in_flight: Cell<u32>,
    health: Health,
}

/// What is known of an endpoint's health.
#[derive(Default)]
pub(crate) struct Health {
    /// Failures in a row.
    failures: Cell<u32>,
    /// While this lies ahead the endpoint is left out; once it has passed, one request tries it.
    ejected_until: Cell<Option<Instant>>,
    /// How often in a row it has been left out.
    ejections: Cell<u32>,
    /// Whether a request is trying it.
    trying: Cell<bool>,
    /// Whether the active check has found it down; shared by all workers.
    pub down: Arc<AtomicBool>,
}

/// What one exchange goes over.
pub(crate) enum Line {
    /// A connection of its own.
    Http1(Connection),
    /// A stream, to be opened at once, of a connection that others use too.
    Http2(Link),
}

/// A line lent for one exchange.
pub(crate) struct Lent {
    pub line: Line,
    /// Whether it has served others before.
    pub reused: bool,
    pub lease: Lease,
}

/// One exchange with one endpoint. It counts as failed unless it is said to have succeeded.
pub(crate) struct Lease {
    upstream: Rc<Upstream>,
    at: usize,
    verdict: Cell<Option<bool>>,
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
}

/// How long a request waits for a connection.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub worker: &'a Worker,
    pub deadline: &'a Deadline,
    pub connect: Duration,
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
}

impl Upstream {
    pub fn new(
        plan: &Arc<UpstreamPlan>,
        endpoints: Vec<(Endpoint, Arc<AtomicBool>)>,
        (queue, queue_max): (Rc<Queue>, usize),
        metrics: &Arc<WorkerMetrics>,
    ) -> Self {
        let members = endpoints.into_iter().map(|(endpoint, down)| Member {
            endpoint,
            in_flight: Cell::new(0),
            health: Health {
                down,
                ..Health::default()
            },
        });
        Self {
            plan: Arc::clone(plan),
            members: members.collect(),
            next: Cell::new(0),
            queue,
            queue_max,
            metrics: Arc::clone(metrics),
        }
    }

    /// The endpoints.
    pub fn members(&self) -> &[Member] {
        &self.members
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
            lease.endpoint().forget_idle();
        }
        match failure {
            // A kept connection may have been closed at any time.
            Failure::Closed(_) if reused && repeatable => {
                lease.spare();
                attempt.fresh = true;
                Ok(())
            }
            Failure::Refused if repeatable && attempt.refusals < REFUSALS_MAX => {
                lease.spare();
                attempt.refusals += 1;
                Ok(())
            }
            Failure::Closed(_) | Failure::Invalid(_) if repeatable => {
                lease.avoid(attempt);
                if self.allows_another(attempt) {
                    Ok(())
                } else {
                    Err(failure)
                }
            }
            failure => {
                if !failure.is_upstreams() {
                    lease.spare();
                }
                Err(failure)
            }
        }
    }

    /// Lends a connection, an idle one where there is one. Endpoints that cannot be reached are
    /// passed over as long as the attempt allows.
    pub async fn lend(
        self: &Rc<Self>,
        now: Instant,
        attempt: &mut Attempt,
        patience: Patience<'_>,
    ) -> Result<Lent, Failure> {
        if attempt.upgrades && !self.plan.protocols.contains(&Protocol::Http1) {
            return Err(Failure::NoUpgrade);
        }
        let mut must_wait = !self.queue.is_empty();
        loop {
            if must_wait {
                let metrics = &patience.worker.metrics;
                self.wait(patience)
                    .await
                    .inspect_err(|_| metrics.upstream_queue_refusals.add(1))?;
            }
            let lease = self.choose(now, attempt);
            let at = lease.at;
            match lend_from(lease, now, attempt, patience).await {
                Ok(Some(lent)) => return Ok(lent),
                Ok(None) => must_wait = true,
                Err(failure) => {
                    attempt.avoid.push(at);
                    if !self.allows_another(attempt) {
                        return Err(failure);
                    }
                    patience.worker.metrics.upstream_retries.add(1);
                    must_wait = false;
                }
            }
        }
    }

    /// Waits until a connection is free.
    async fn wait(&self, patience: Patience<'_>) -> Result<(), Failure> {
        if self.queue.len() >= self.queue_max {
            return Err(Failure::QueueFull);
        }
        let mut ticket = self.queue.join();
        let deadline = patience.deadline;
        deadline.set(Instant::now(), self.plan.connections.queue_time);
        poll_fn(|context| {
            if ticket.poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let over = || match deadline.is_over() {
                true => Failure::ReplyTimeout,
                false => Failure::QueueFull,
            };
            deadline.poll(context).map(|()| Err(over()))
        })
        .await
    }

    /// Chooses an endpoint: one that is well, has room and has not failed this request; when there
    /// is none, less will do.
    fn choose(self: &Rc<Self>, now: Instant, attempt: &Attempt) -> Lease {
        let at = match self.members.len() {
            1 => 0,
            _ => self.choose_among(now, attempt),
        };
        if let Some(member) = self.members.get(at) {
            member.in_flight.set(member.in_flight.get() + 1);
            member.health.begin(now);
        }
        Lease {
            upstream: Rc::clone(self),
            at,
            verdict: Cell::new(None),
        }
    }

    fn choose_among(&self, now: Instant, attempt: &Attempt) -> usize {
        let untried = |at: &usize| !attempt.avoid.contains(at);
        let well = |at: &usize| {
            self.members
                .get(*at)
                .is_some_and(|it| it.health.is_well(now))
        };
        let room = |at: &usize| {
            self.members
                .get(*at)
                .is_some_and(|it| it.endpoint.has_room())
        };
        let all = || 0..self.members.len();
        self.pick(
            all().filter(|at| untried(at) && well(at) && room(at)),
            attempt.key,
        )
        .or_else(|| self.pick(all().filter(|at| untried(at) && well(at)), attempt.key))
        .or_else(|| self.pick(all().filter(untried), attempt.key))
        .or_else(|| self.pick(all(), attempt.key))
        .unwrap_or(0)
    }

    fn pick(&self, candidates: impl Iterator<Item = usize> + Clone, key: u64) -> Option<usize> {
        match &self.plan.balance {
            Balance::RoundRobin => {
                let next = self.next.get();
                let chosen = candidates
                    .clone()
                    .find(|at| *at >= next)
                    .or_else(|| candidates.clone().next())?;
                self.next.set(chosen + 1);
                Some(chosen)
            }
            Balance::LeastRequests => {
                // Among equals the next in turn, so that idle endpoints share the work.
                let next = self.next.get();
                let count = self.members.len().max(1);
                let chosen = candidates.min_by_key(|at| {
                    let load = self.members.get(*at).map_or(0, |it| it.in_flight.get());
                    (load, (at + count - next % count) % count)
                })?;
                self.next.set(chosen + 1);
                Some(chosen)
            }
            Balance::Hash(_) => candidates.max_by_key(|at| weight(key, *at)),
        }
    }
}

/// Lends a connection to the leased endpoint; none when all are in use.
async fn lend_from(
    lease: Lease,
    now: Instant,
    attempt: &Attempt,
    patience: Patience<'_>,
) -> Result<Option<Lent>, Failure> {
    let metrics = &patience.worker.metrics;
    let endpoint = lease.endpoint();
    let kept = if attempt.fresh || endpoint.must_resolve(now) {
        None
    } else {
        let link = endpoint.link().filter(|_| !attempt.upgrades);
        let link = link.map(Line::Http2);
        link.or_else(|| endpoint.take_idle(now).map(Line::Http1))
    };
    if let Some(line) = kept {
        metrics.upstream_reuses.add(1);
        return Ok(Some(Lent {
            line,
            reused: true,
            lease,
        }));
    }
    if endpoint.will_have_link() && !attempt.upgrades {
        lease.spare();
        return Ok(None);
    }
    let Some(permit) = endpoint.permit() else {
        lease.spare();
        return Ok(None);
    };
    let limits = h2_driver::http2_limits(&patience.worker.settings());
    let connecting = endpoint.connect(permit, limits, attempt.upgrades);
    let connected = within(connecting, patience.deadline, patience.connect).await;
    let counter = match &connected {
        Ok(_) => &metrics.upstream_connects,
        Err(_) => &metrics.upstream_connect_failures,
    };
    counter.add(1);
    let line = match connected? {
        Connected::Http1(connection) => Line::Http1(connection),
        Connected::Http2(link, driver) => {
            h2_driver::spawn(driver, patience.worker);
            Line::Http2(link)
        }
    };
    Ok(Some(Lent {
        line,
        reused: false,
        lease,
    }))
}

/// The weight of an endpoint for a key (rendezvous hashing).
fn weight(key: u64, at: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, at).hash(&mut hasher);
    hasher.finish()
}

/// What a request is hashed to where the balance is by hash.
pub(crate) fn hash(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Health {
    fn is_well(&self, now: Instant) -> bool {
        if self.down.load(Ordering::Relaxed) {
            return false;
        }
        self.ejected_until
            .get()
            .is_none_or(|until| until <= now && !self.trying.get())
    }

    /// A request goes to the endpoint.
    fn begin(&self, now: Instant) {
        if self.ejected_until.get().is_some_and(|until| until <= now) {
            self.trying.set(true);
        }
    }

    fn succeed(&self) {
        self.failures.set(0);
        self.ejections.set(0);
        self.ejected_until.set(None);
        self.trying.set(false);
    }

    /// Says whether the endpoint is left out from now on.
    fn fail(&self, now: Instant, plan: &UpstreamPlan) -> bool {
        let failures = self.failures.get().saturating_add(1);
        self.failures.set(failures);
        let was_trying = self.trying.replace(false);
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
}

impl Lease {
    fn member(&self) -> &Member {
        // invariant: leases are made by `choose`, for an endpoint that there is.
        &self.upstream.members[self.at]
    }

    /// The endpoint that the exchange is with.
    pub fn endpoint(&self) -> &Endpoint {
        &self.member().endpoint
    }

    /// The endpoint has answered.
    #[inline]
    pub fn succeed(&self) {
        self.verdict.set(Some(true));
    }

    /// The exchange says nothing about the endpoint.
    pub fn spare(&self) {
        self.verdict.set(Some(false));
    }

    /// The request may go to another endpoint instead.
    fn avoid(self, attempt: &mut Attempt) {
        attempt.avoid.push(self.at);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let member = self.member();
        member.in_flight.set(member.in_flight.get() - 1);
        let health = &member.health;
        match self.verdict.get() {
            Some(true) if health.failures.get() == 0 && !health.trying.get() => {}
            Some(true) => health.succeed(),
            Some(false) => health.trying.set(false),
            None => {
                if health.fail(Instant::now(), &self.upstream.plan) {
                    self.upstream.metrics.upstream_ejections.add(1);
                    let plan = &self.upstream.plan;
                    let (upstream, at) = (&*plan.name, self.at);
                    let host = plan
                        .endpoints
                        .get(at)
                        .map(|it| format!("{}:{}", it.host, it.port));
                    tracing::warn!(target: "proxy", upstream, host, "an endpoint is left out");
                }
            }
        }
    }
}

/// Makes a connection within this time.
async fn within(
    connecting: impl Future<Output = std::io::Result<Connected>>,
    deadline: &Deadline,
    time: Duration,
) -> Result<Connected, Failure> {
    deadline.set(Instant::now(), time);
    // Boxed, for it is rare and large, and every session would carry it.
    let mut connecting = Box::pin(connecting);
    poll_fn(|context| {
        if let Poll::Ready(result) = connecting.as_mut().poll(context) {
            return Poll::Ready(result.map_err(Failure::Connect));
        }
        deadline
            .poll(context)
            .map(|()| Err(Failure::ConnectTimeout))
    })
    .await
}

//! Lending a connection: what is idle at once; otherwise the request waits in the pool, and tasks
//! of their own make the connections that it asks for. The wait may be dropped at any time.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use component::tls::Protocol;
use component::vital::vital;
use net::Connection;
use net::deadline::Deadline;
use net::endpoint::{Http2Setup, NewConnection};
use net::http2::Link;
use net::pool::{Connect, ConnectError, Connected, Grant, Idle, Join, Permit};
use tokio::time::Instant;

use super::verdict::Lease;
use super::{Attempt, Lent, Line, Upstream};
use crate::relay::failure::Failure;
use crate::upstream::h2_driver;

/// How long a request waits for a connection.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub deadline: &'a Deadline,
    pub connect: Duration,
}

/// Why a wait has ended without a connection.
enum WaitError {
    /// No connection could be made to this endpoint; another one may do.
    Connect(usize, Failure),
    /// There is none to be had.
    GivenUp(Failure),
}

/// A waiter of the pool. Dropping it passes on what it was granted and has not taken.
struct Ticket<'a> {
    upstream: &'a Rc<Upstream>,
    id: u64,
}

/// A connection being made; it is reported as failed when its task is dropped.
struct Making {
    upstream: Rc<Upstream>,
    at: usize,
    is_exclusive: bool,
    outcome: Option<Connected<Box<Connection>, Link>>,
}

impl Upstream {
    /// Lends an idle connection, or chooses an endpoint to [wait](Self::wait) for. Endpoints that
    /// cannot be reached are passed over as long as the attempt allows.
    #[inline]
    pub fn take_idle(
        self: &Rc<Self>,
        now: Instant,
        attempt: &mut Attempt,
        connect: Duration,
    ) -> Result<Result<Lent, Lease>, Failure> {
        if attempt.upgrades && !self.plan.protocols.contains(&Protocol::Http1) {
            return Err(Failure::NoUpgrade);
        }
        let lease = self.choose(now, attempt);
        let at = lease.at();
        self.refresh_addresses(at, now, connect);
        let idle = self.pool.borrow_mut().take(at, attempt.demand(), now);
        let Some(idle) = idle else {
            return Ok(Err(lease));
        };
        self.metrics.upstream_reuses.add(1);
        Ok(Ok(Lent {
            line: match idle {
                Idle::Connection(connection) => Line::Http1(connection),
                Idle::Stream(link) => Line::Http2(link),
            },
            reused: true,
            lease,
            now,
        }))
    }

    /// Waits for a connection to the endpoint of this lease, then to others.
    pub async fn wait(
        self: &Rc<Self>,
        lease: Lease,
        attempt: &mut Attempt,
        patience: Patience<'_>,
    ) -> Result<Lent, Failure> {
        let mut lease = lease;
        loop {
            let (at, failure) = match self.wait_once(lease, attempt, patience).await {
                Ok(lent) => return Ok(lent),
                Err(WaitError::Connect(at, failure)) => (at, failure),
                Err(WaitError::GivenUp(failure)) => {
                    if matches!(failure, Failure::QueueFull) {
                        self.metrics.upstream_queue_refusals.add(1);
                    }
                    return Err(failure);
                }
            };
            attempt.avoid.push(at);
            attempt.fresh = false;
            if !self.allows_another(attempt) {
                return Err(failure);
            }
            self.metrics.upstream_retries.add(1);
            lease = self.choose(Instant::now(), attempt);
        }
    }

    async fn wait_once(
        self: &Rc<Self>,
        lease: Lease,
        attempt: &mut Attempt,
        patience: Patience<'_>,
    ) -> Result<Lent, WaitError> {
        let now = Instant::now();
        self.tend();
        self.note_health(now);
        let join = Join {
            demand: attempt.demand(),
            at: lease.at(),
            avoid: attempt.avoid.clone(),
            connect: patience.connect,
        };
        let joined = self.pool.borrow_mut().join(join, now);
        let id = joined.ok_or(WaitError::GivenUp(Failure::QueueFull))?;
        let ticket = Ticket { upstream: self, id };
        self.start_connects();
        let queue_time = self.connections.get().queue_time;
        let queue_until = *attempt.queue_until.get_or_insert(now + queue_time);
        let mut wait = Wait {
            ticket: &ticket,
            patience,
            queue_until,
            was_bound: None,
            lease: Some(lease),
        };
        let grant = poll_fn(|context| wait.poll(context)).await?;
        self.lent(grant, wait.lease)
    }

    fn lent(
        self: &Rc<Self>,
        grant: Grant<Box<Connection>, Link>,
        lease: Option<Lease>,
    ) -> Result<Lent, WaitError> {
        let (at, line, reused) = match grant {
            Grant::Connection {
                at,
                connection,
                kept_until,
            } => (at, Line::Http1(connection), kept_until.is_some()),
            Grant::Stream { at, link, is_new } => (at, Line::Http2(link), !is_new),
            Grant::Failed { at, error } => {
                return Err(WaitError::Connect(at, connect_failure(error)));
            }
            Grant::QueueFull => return Err(WaitError::GivenUp(Failure::QueueFull)),
        };
        if reused {
            self.metrics.upstream_reuses.add(1);
        }
        let now = Instant::now();
        let lease = lease.filter(|lease| lease.at() == at);
        let lease = lease.unwrap_or_else(|| Lease::begin(self, at, now));
        Ok(Lent {
            line,
            reused,
            lease,
            now,
        })
    }

    /// Starts the task that looks after the pool when it is woken.
    fn tend(self: &Rc<Self>) {
        if self.is_tended.replace(true) {
            return;
        }
        let upstream = Rc::downgrade(self);
        let waker = Arc::clone(self.pool.borrow().waker());
        tokio::task::spawn_local(vital("connections to an upstream", async move {
            let mut look_at = None;
            loop {
                let woken = poll_fn(|context| waker.poll(context));
                match look_at {
                    Some(time) => drop(tokio::time::timeout_at(time, woken).await),
                    None => woken.await,
                }
                let Some(upstream) = upstream.upgrade() else {
                    return;
                };
                let mut pool = upstream.pool.borrow_mut();
                pool.on_wake(Instant::now());
                look_at = pool.look_at();
                drop(pool);
                upstream.start_connects();
            }
        }));
    }

    /// Makes the connections that the pool has ordered.
    pub(super) fn start_connects(self: &Rc<Self>) {
        let orders = self.pool.borrow_mut().take_connects();
        for order in orders {
            tokio::task::spawn_local(Rc::clone(self).connect(order));
        }
    }

    async fn connect(self: Rc<Self>, order: Connect) {
        let Connect {
            at,
            is_exclusive,
            permit,
            time,
        } = order;
        let mut making = Making {
            upstream: Rc::clone(&self),
            at,
            is_exclusive,
            outcome: None,
        };
        let connecting = self.new_connection(at, is_exclusive, permit);
        let connected = tokio::time::timeout(time, connecting).await;
        let outcome = match connected {
            Ok(Ok(NewConnection::Http1(connection))) => Connected::Http1(connection),
            Ok(Ok(NewConnection::Http2 {
                link,
                driver,
                permit,
                peer,
            })) => {
                h2_driver::spawn(driver, &self.settings.borrow(), &self.deadlines);
                Connected::Http2 { link, permit, peer }
            }
            Ok(Err(error)) => Connected::Failed(ConnectError::Io(Arc::new(error))),
            Err(_) => Connected::Failed(ConnectError::TimedOut),
        };
        match &outcome {
            Connected::Failed(error) => {
                self.metrics.upstream_connect_failures.add(1);
                if let ConnectError::Io(error) = error
                    && net::egress::is_refusal(error)
                {
                    super::note_refusal(&self.metrics, error);
                }
                // Once, however many wait for this connection.
                self.fail(at, Instant::now());
            }
            _ => self.metrics.upstream_connects.add(1),
        }
        making.outcome = Some(outcome);
        drop(making);
        self.start_connects();
    }

    async fn new_connection(
        &self,
        at: usize,
        is_exclusive: bool,
        permit: Permit,
    ) -> io::Result<NewConnection> {
        let Some(member) = self.members.get(at) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let setup = Http2Setup {
            limits: h2_driver::http2_limits(&self.settings.borrow()),
            freed: Rc::clone(self.pool.borrow().freed()),
        };
        member.endpoint.connect(permit, setup, is_exclusive).await
    }

    /// Looks an endpoint's name up in the background when its addresses are old. No request waits
    /// for that, and connections to addresses that are gone are retired after it.
    #[inline]
    fn refresh_addresses(self: &Rc<Self>, at: usize, now: Instant, time: Duration) {
        let Some(member) = self.members.get(at) else {
            return;
        };
        if !member.endpoint.must_look_up(now) {
            return;
        }
        let (upstream, endpoint) = (Rc::clone(self), Rc::clone(&member.endpoint));
        tokio::task::spawn_local(async move {
            if let Ok(Ok(())) = tokio::time::timeout(time, endpoint.look_up()).await {
                let mut pool = upstream.pool.borrow_mut();
                pool.retire(at, |peer| endpoint.lacks(peer));
            }
        });
    }
}

/// A request that waits in the pool.
struct Wait<'a> {
    ticket: &'a Ticket<'a>,
    patience: Patience<'a>,
    queue_until: Instant,
    /// What the deadline stands for: a connection to this endpoint, or a permit of any.
    was_bound: Option<Option<usize>>,
    /// Of the endpoint that was chosen first, while a connection to it is being made: a request
    /// that waits for a permit is in flight nowhere, and tries nothing.
    lease: Option<Lease>,
}

impl Wait<'_> {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Grant<Box<Connection>, Link>, WaitError>> {
        let Ticket { upstream, id } = self.ticket;
        let mut pool = upstream.pool.borrow_mut();
        if let Poll::Ready(grant) = pool.poll(*id, context) {
            return Poll::Ready(Ok(grant));
        }
        let bound = pool.bound_to(*id);
        drop(pool);
        let deadline = self.patience.deadline;
        if self.was_bound.replace(bound) != Some(bound) {
            let now = Instant::now();
            let time = match bound {
                None => {
                    self.lease = None;
                    self.queue_until.saturating_duration_since(now)
                }
                Some(_) => self.patience.connect,
            };
            deadline.set(now, time);
        }
        deadline.poll(context).map(|()| Err(self.over(bound)))
    }

    fn over(&self, bound: Option<usize>) -> WaitError {
        match (self.patience.deadline.is_over(), bound) {
            // The time of the whole exchange.
            (true, _) => WaitError::GivenUp(Failure::ReplyTimeout),
            (false, None) => WaitError::GivenUp(Failure::QueueFull),
            (false, Some(at)) => WaitError::Connect(at, Failure::ConnectTimeout),
        }
    }
}

fn connect_failure(error: ConnectError) -> Failure {
    match error {
        ConnectError::TimedOut => Failure::ConnectTimeout,
        ConnectError::Io(error) => Failure::Connect(io::Error::new(error.kind(), error)),
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut pool = self.upstream.pool.borrow_mut();
        pool.cancel(self.id, Instant::now());
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        let outcome = outcome.unwrap_or(Connected::Failed(ConnectError::TimedOut));
        let mut pool = self.upstream.pool.borrow_mut();
        pool.connected(self.at, self.is_exclusive, outcome, Instant::now());
    }
}

//! Which request gets which connection: the pool of one worker's connections to one upstream, as a
//! state machine without input or output.
//!
//! A request takes what is idle at once ([`Pool::take`]) or becomes a waiter ([`Pool::join`]). What
//! is freed or newly made goes to the first waiter that it fits, by name: it cannot be lost to a
//! newcomer, and a waiter that leaves passes it on. Connections are made for waiters, not by them
//! ([`Pool::take_connects`]): one whose waiter was served otherwise serves the next.
//!
//! A waiter is *bound* to an endpoint while a connection to it is being made, and *queued* while it
//! needs a permit ([`Permits`]) that nobody can give. Only the queue of a configured limit is
//! bounded by that limit's `queue`.

mod handover;
mod permits;
mod settle;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use crate::http1::Released;
use crate::stream_observer::StreamObserver;
pub use permits::{Permit, Permits, PoolWaker, QueueCount};
use permits::{QueueSlot, Registration};

/// How many requests of one worker wait for connections that are being made to one upstream.
const BOUND_MAX: usize = 10_000;

/// A connection for one request at a time.
pub trait Pooled {
    /// Whether the other side has closed it or sent something unasked.
    fn is_stale(&mut self) -> bool;
    /// The address of the other side.
    fn peer(&self) -> IpAddr;
}

/// A connection that serves many requests at a time, each on a stream of its own.
pub trait Multiplexed: Clone {
    /// How many more streams can be opened now.
    fn room(&self) -> usize;
    /// Whether no stream will ever be opened on it again.
    fn is_finished(&self) -> bool;
    /// Whether none is opened until the other side gives a sign of life.
    fn is_suspected(&self) -> bool;
    /// Whether no stream is open.
    fn is_idle(&self) -> bool;
    /// Whether both are the same connection.
    fn is_same(&self, other: &Self) -> bool;
    /// Ends it once its streams have ended.
    fn go_away(&self);
    /// Frees memory that an idle one can do without.
    fn trim(&self) {}
}

/// What a request can be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// A stream, or a connection of its own.
    Any,
    /// Only what has not been used yet, since what was kept may be closed already.
    Fresh,
    /// An HTTP/1.1 connection of its own, for an upgrade.
    Exclusive,
    /// A new HTTP/1.1 connection.
    FreshExclusive,
}

impl Demand {
    fn takes_stream(self) -> bool {
        matches!(self, Self::Any | Self::Fresh)
    }

    fn takes_used(self) -> bool {
        matches!(self, Self::Any | Self::Exclusive)
    }
}

/// What a pool needs to know of an endpoint.
pub struct EndpointSetup {
    /// Its permits, shared by all workers.
    pub permits: Arc<Permits>,
    /// Whether a connection may turn out to speak HTTP/2.
    pub may_h2: bool,
    /// Whether a connection may speak HTTP/1.1.
    pub may_h1: bool,
}

/// What bounds a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// How many idle connections are kept to each endpoint.
    pub idle_count: usize,
    /// For how long.
    pub idle_time: Duration,
    /// How many requests of all workers may wait for a permit.
    pub queue: usize,
    /// For how long.
    pub queue_time: Duration,
}

/// A request that nothing idle fits.
pub struct Join {
    /// What it needs.
    pub demand: Demand,
    /// The endpoint chosen for it.
    pub at: usize,
    /// Endpoints that have failed it.
    pub avoid: Vec<usize>,
    /// How long making a connection for it may take.
    pub connect: Duration,
}

/// What a waiter gets.
#[derive(Debug)]
pub enum Grant<C, L> {
    /// A connection of its own.
    Connection {
        /// The endpoint.
        at: usize,
        /// The connection.
        connection: C,
        /// Until when it may be kept; nothing for a new one.
        kept_until: Option<Instant>,
    },
    /// Room for one stream, to be opened at once.
    Stream {
        /// The endpoint.
        at: usize,
        /// The connection.
        link: L,
        /// Whether it was made for this waiter.
        is_new: bool,
    },
    /// The connection that it waited for could not be made.
    Failed {
        /// The endpoint.
        at: usize,
        /// Why.
        error: ConnectError,
    },
    /// It needs a permit, and as many wait for one as may.
    QueueFull,
}

/// Why a connection could not be made; reported to all who waited for it.
#[derive(Clone, Debug)]
pub enum ConnectError {
    /// The endpoint could not be reached.
    Io(Arc<io::Error>),
    /// It took too long.
    TimedOut,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(formatter),
            Self::TimedOut => formatter.write_str("connecting has taken too long"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// An order to make a connection; [`Pool::connected`] reports how it went.
#[derive(Debug)]
pub struct Connect {
    /// The endpoint.
    pub at: usize,
    /// Whether it must speak HTTP/1.1 although the endpoint may speak HTTP/2 too.
    pub is_exclusive: bool,
    /// The right to it.
    pub permit: Permit,
    /// How long it may take.
    pub time: Duration,
}

/// How making a connection has ended.
#[derive(Debug)]
pub enum Connected<C, L> {
    /// It speaks HTTP/1.1, and holds its permit itself.
    Http1(C),
    /// It speaks HTTP/2.
    Http2 {
        /// The connection.
        link: L,
        /// Its permit, which the pool gives back as soon as the connection takes no more streams.
        permit: Permit,
        /// The address of the other side.
        peer: IpAddr,
    },
    /// There is none.
    Failed(ConnectError),
}

/// What a request that need not wait gets.
#[derive(Debug)]
pub enum Idle<C, L> {
    /// A connection of its own.
    Connection(C),
    /// Room for one stream, to be opened at once.
    Stream(L),
}

/// One worker's connections to one upstream, and the requests that wait for them.
pub struct Pool<C, L> {
    members: Vec<Member<C, L>>,
    limits: PoolLimits,
    /// In the order in which they came.
    waiters: BTreeMap<u64, Waiter>,
    granted: BTreeMap<u64, Grant<C, L>>,
    next_waiter: u64,
    /// How many of the waiters need a permit.
    queued: usize,
    queue: Arc<QueueCount>,
    connects: Vec<Connect>,
    waker: Arc<PoolWaker>,
    /// Called by links whose streams end.
    freed: Rc<StreamObserver>,
    /// When it has to be looked after without having been woken.
    look_at: Option<Instant>,
}

/// The connections to one endpoint.
struct Member<C, L> {
    permits: Arc<Permits>,
    idle: Vec<Kept<C>>,
    links: Vec<KeptLink<L>>,
    may_h2: bool,
    may_h1: bool,
    /// Whether the last connection spoke HTTP/2, once there was one.
    spoke_h2: Option<bool>,
    /// Whether it has not been left out.
    is_well: bool,
    /// Connections being made, and who waits for them: those that may speak HTTP/2, and those
    /// that may not.
    lanes: [Lane; 2],
    /// When the last connection was made, or given up for another worker: those that are left stay
    /// for a while.
    held_since: Option<Instant>,
    /// When the last order for a connection was given, and how long the last connection took.
    ordered_at: Option<Instant>,
    connect_time: Duration,
}

#[derive(Clone, Copy, Default)]
struct Lane {
    connects: usize,
    waiters: usize,
}

/// Connections that speak what the endpoint prefers.
const SHARED: usize = 0;
/// Connections that must speak HTTP/1.1 to an endpoint that may speak both.
const EXCLUSIVE: usize = 1;

struct Kept<C> {
    connection: C,
    since: Instant,
    until: Instant,
}

struct KeptLink<L> {
    link: L,
    peer: IpAddr,
    /// Beside the connection, not in it: it is given back when the link takes no more streams,
    /// however long the last ones go on.
    /// None while it is suspected to be dead: a new connection may take its place.
    permit: Option<Permit>,
    /// Streams that have been granted and not been opened.
    reserved: usize,
    /// Since when nothing is under way on it, as far as somebody has looked.
    idle_since: Option<Instant>,
    is_trimmed: bool,
    /// Since when no stream is opened on it, so that another worker can have its permit once the
    /// open ones have ended.
    draining_since: Option<Instant>,
}

struct Waiter {
    demand: Demand,
    avoid: Vec<usize>,
    connect: Duration,
    phase: Phase,
    /// Counts against the queue of the limit.
    slot: Option<QueueSlot>,
    waker: Option<Waker>,
}

enum Phase {
    /// Waits for a connection to this endpoint that is being made.
    Bound(usize),
    /// Waits for a permit of one of these endpoints, or for what is freed there.
    Queued {
        candidates: Vec<usize>,
        registration: Arc<Registration>,
    },
}

impl Waiter {
    fn is_at(&self, at: usize) -> bool {
        match &self.phase {
            Phase::Bound(bound) => *bound == at,
            Phase::Queued { candidates, .. } => candidates.contains(&at),
        }
    }
}

impl<L: Multiplexed> KeptLink<L> {
    fn has_room(&self) -> bool {
        self.draining_since.is_none() && self.link.room() > self.reserved
    }

    fn is_idle(&self) -> bool {
        self.reserved == 0 && self.link.is_idle()
    }
}

impl<C, L> Member<C, L> {
    fn lane_of(&self, demand: Demand) -> usize {
        match self.may_h2 && !demand.takes_stream() {
            true => EXCLUSIVE,
            false => SHARED,
        }
    }

    /// Whether one connection is expected to serve all who wait.
    fn expects_h2(&self) -> bool {
        self.may_h2 && (self.spoke_h2 != Some(false) || !self.may_h1)
    }

    /// How many connections have to be made for those who wait.
    fn needed(&self, lane: usize) -> usize {
        let waiters = self.lanes[lane].waiters;
        match lane == SHARED && self.expects_h2() {
            true => waiters.min(1),
            false => waiters,
        }
    }

    fn has_bound(&self) -> bool {
        self.lanes.iter().any(|lane| lane.waiters > 0)
    }
}

impl<C: Pooled, L: Multiplexed> Pool<C, L> {
    /// A pool without connections. `queue` counts those of all workers who wait for a permit.
    pub fn new(setups: Vec<EndpointSetup>, limits: PoolLimits, queue: Arc<QueueCount>) -> Self {
        let waker = Arc::<PoolWaker>::default();
        let members = setups.into_iter().map(|setup| {
            setup.permits.add_pool(&waker);
            Member {
                permits: setup.permits,
                idle: Vec::new(),
                links: Vec::new(),
                may_h2: setup.may_h2,
                may_h1: setup.may_h1,
                spoke_h2: None,
                is_well: true,
                lanes: [Lane::default(); 2],
                held_since: None,
                ordered_at: None,
                connect_time: Duration::ZERO,
            }
        });
        Self {
            members: members.collect(),
            limits,
            waiters: BTreeMap::new(),
            granted: BTreeMap::new(),
            next_waiter: 0,
            queued: 0,
            queue,
            connects: Vec::new(),
            freed: Rc::new(StreamObserver::waking(&waker)),
            waker,
            look_at: None,
        }
    }

    /// Wakes who shall call [`Pool::on_wake`].
    pub fn waker(&self) -> &Arc<PoolWaker> {
        &self.waker
    }

    /// Is to be called by links of this pool when a stream ends or the link goes away.
    pub fn freed(&self) -> &Rc<StreamObserver> {
        &self.freed
    }

    /// Changes what bounds it from now on. The permits' limits are set apart.
    pub fn set_limits(&mut self, limits: PoolLimits) {
        self.limits = limits;
    }

    /// Something idle that fits. Waiters are not robbed: what fits one of them is never idle.
    #[inline]
    pub fn take(&mut self, at: usize, demand: Demand, now: Instant) -> Option<Idle<C, L>> {
        if !demand.takes_used() {
            return None;
        }
        let has_waiters = self.queued > 0;
        let member = self.members.get_mut(at)?;
        if demand.takes_stream() && !member.links.is_empty() && !has_waiters && !member.has_bound()
        {
            let mut links = member.links.iter_mut();
            if let Some(kept) = links.find(|kept| kept.has_room()) {
                kept.idle_since = None;
                return Some(Idle::Stream(kept.link.clone()));
            }
        }
        while let Some(mut kept) = member.idle.pop() {
            if kept.until > now && !kept.connection.is_stale() {
                return Some(Idle::Connection(kept.connection));
            }
        }
        None
    }

    /// Whether a request could be sent now: on what is idle, or on a new connection.
    pub fn has_room(&self, at: usize) -> bool {
        self.members.get(at).is_some_and(|member| {
            let has_link = || member.links.iter().any(KeptLink::has_room);
            !member.idle.is_empty() || member.permits.has_free() || has_link()
        })
    }

    /// Makes the request a waiter and starts what it needs. None when too many wait already.
    pub fn join(&mut self, join: Join, now: Instant) -> Option<u64> {
        let member = self.members.get_mut(join.at)?;
        if self.waiters.len() - self.queued >= BOUND_MAX {
            return None;
        }
        let lane = member.lane_of(join.demand);
        member.lanes[lane].waiters += 1;
        let id = self.next_waiter;
        self.next_waiter += 1;
        let waiter = Waiter {
            demand: join.demand,
            avoid: join.avoid,
            connect: join.connect,
            phase: Phase::Bound(join.at),
            slot: None,
            waker: None,
        };
        self.waiters.insert(id, waiter);
        self.serve(join.at, now);
        self.ensure_connects(join.at, now);
        self.note_wanted();
        Some(id)
    }

    /// Ready with what the waiter gets. A stream must be opened before anything else is done.
    pub fn poll(&mut self, id: u64, context: &Context<'_>) -> Poll<Grant<C, L>> {
        if let Some(grant) = self.granted.remove(&id) {
            if let Grant::Stream { at, link, .. } = &grant {
                self.unreserve(*at, link);
            }
            return Poll::Ready(grant);
        }
        if let Some(waiter) = self.waiters.get_mut(&id) {
            let waker = context.waker();
            if !waiter.waker.as_ref().is_some_and(|it| it.will_wake(waker)) {
                waiter.waker = Some(waker.clone());
            }
        }
        Poll::Pending
    }

    /// The endpoint to which a connection is being made for the waiter; none while it needs a
    /// permit.
    pub fn bound_to(&self, id: u64) -> Option<usize> {
        match self.waiters.get(&id)?.phase {
            Phase::Bound(at) => Some(at),
            Phase::Queued { .. } => None,
        }
    }

    /// The waiter has left. What it was granted goes to the next.
    pub fn cancel(&mut self, id: u64, now: Instant) {
        match self.granted.remove(&id) {
            Some(Grant::Connection {
                at,
                mut connection,
                kept_until,
            }) => {
                if !connection.is_stale() {
                    self.put(at, connection, kept_until, now);
                }
            }
            Some(Grant::Stream { at, link, .. }) => {
                self.unreserve(at, &link);
                self.serve(at, now);
                self.yield_idle(at, now);
            }
            Some(Grant::Failed { .. } | Grant::QueueFull) => {}
            None => drop(self.remove_waiter(id)),
        }
        self.note_wanted();
    }

    /// Takes a connection back whose exchange has ended cleanly.
    #[inline]
    pub fn keep(&mut self, at: usize, released: Released<C>, now: Instant) {
        let Released {
            transport: connection,
            promised,
        } = released;
        let idle_time = self.limits.idle_time;
        // One second less than promised: the other side's clock began earlier.
        let time = promised.map_or(idle_time, |promised| {
            promised
                .saturating_sub(Duration::from_secs(1))
                .min(idle_time)
        });
        self.put(at, connection, Some(now + time), now);
    }

    /// The connections to be made now.
    #[must_use]
    pub fn take_connects(&mut self) -> Vec<Connect> {
        std::mem::take(&mut self.connects)
    }

    /// How many idle connections for one request at a time there are.
    pub fn idle_count(&self, at: usize) -> usize {
        self.members.get(at).map_or(0, |member| member.idle.len())
    }

    /// Whether there are no connections, and nobody waits.
    pub fn is_unused(&self) -> bool {
        let is_unused = |it: &Member<C, L>| {
            it.idle.is_empty() && it.links.is_empty() && it.lanes.iter().all(|it| it.connects == 0)
        };
        self.waiters.is_empty() && self.granted.is_empty() && self.members.iter().all(is_unused)
    }
}

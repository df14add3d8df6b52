//! Pools of two workers under seeded random schedules. `POOL_SCHEDULES` runs more of them;
//! a failure names its seed, and `POOL_SEED` runs that one alone.

mod contended;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::permits::NextInLine;
use super::*;

const SCHEDULES: u64 = 100_000;
const STEPS: u64 = 30;
const IDLE_TIME: Duration = Duration::from_secs(5);
/// With it the longest tenure is 100 ms.
const QUEUE_TIME: Duration = Duration::from_millis(400);
const TENURE: Duration = Duration::from_millis(100);
const IDLE_HOLD: Duration = Duration::from_millis(10);

/// Counts itself and holds its permit, as a connection does.
struct FakeConnection {
    alive: Rc<Cell<usize>>,
    is_stale: Rc<Cell<bool>>,
    _permit: Permit,
}

impl FakeConnection {
    /// One more of those that are alive.
    fn open(alive: &Rc<Cell<usize>>, permit: Permit) -> Self {
        alive.set(alive.get() + 1);
        Self {
            alive: Rc::clone(alive),
            is_stale: Rc::default(),
            _permit: permit,
        }
    }
}

impl Drop for FakeConnection {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

impl Pooled for FakeConnection {
    fn is_stale(&mut self) -> bool {
        self.is_stale.get()
    }

    fn peer(&self) -> IpAddr {
        [127, 0, 0, 1].into()
    }
}

#[derive(Clone)]
struct FakeLink(Rc<FakeLinkState>);

struct FakeLinkState {
    streams_max: usize,
    open: Cell<usize>,
    is_going: Cell<bool>,
    is_suspected: Cell<bool>,
    freed: Rc<StreamObserver>,
}

impl FakeLink {
    /// What a pool is told of a new link, on which so many streams may be open.
    fn connected(
        pool: &FakePool,
        streams_max: usize,
        permit: Permit,
    ) -> Connected<FakeConnection, Self> {
        let state = FakeLinkState {
            streams_max,
            open: Cell::new(0),
            is_going: Cell::new(false),
            is_suspected: Cell::new(false),
            freed: Rc::clone(pool.freed()),
        };
        Connected::Http2 {
            link: Self(Rc::new(state)),
            permit,
            peer: [127, 0, 0, 1].into(),
        }
    }

    fn end_stream(&self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.freed.stream_ended();
    }
}

impl Multiplexed for FakeLink {
    fn room(&self) -> usize {
        match self.0.is_going.get() || self.0.is_suspected.get() {
            true => 0,
            false => self.0.streams_max - self.0.open.get(),
        }
    }

    fn is_finished(&self) -> bool {
        self.0.is_going.get()
    }

    fn is_suspected(&self) -> bool {
        self.0.is_suspected.get()
    }

    fn is_idle(&self) -> bool {
        self.0.open.get() == 0
    }

    fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    fn go_away(&self) {
        self.0.is_going.set(true);
        self.0.freed.capacity_changed();
    }
}

type FakePool = Pool<FakeConnection, FakeLink>;

/// What a request has been lent.
enum Lent {
    Connection(usize, FakeConnection),
    Stream(FakeLink),
}

struct Worker {
    pool: FakePool,
    waiting: Vec<u64>,
    /// What each waiter needs.
    demands: BTreeMap<u64, Demand>,
    /// Those whose grant has been found to be fair.
    checked: BTreeSet<u64>,
    lent: Vec<Lent>,
    connects: Vec<Connect>,
}

struct World {
    random: Rng,
    now: Instant,
    workers: Vec<Worker>,
    permits: Vec<Arc<Permits>>,
    limits: Vec<Option<usize>>,
    /// The most connections that there may be: above the limit while a lowered one is not reached.
    most: Vec<usize>,
    queue: Arc<QueueCount>,
    queue_max: usize,
    may_h2: bool,
    alive: Vec<Rc<Cell<usize>>>,
    idle_ones: Vec<Rc<Cell<bool>>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let endpoints = random.usize(1..=2);
        let may_h2 = random.bool();
        let may_h1 = !may_h2 || random.u8(..4) > 0;
        let limits: Vec<_> = (0..endpoints).map(|_| limit(&mut random)).collect();
        let permits: Vec<_> = limits.iter().map(|limit| Permits::new(*limit)).collect();
        let queue = Arc::<QueueCount>::default();
        let queue_max = random.usize(1..=6);
        let pool_limits = PoolLimits {
            idle_count: random.usize(1..=3),
            idle_time: IDLE_TIME,
            queue: queue_max,
            queue_time: QUEUE_TIME,
        };
        let worker = |_| {
            let setup = |permits: &Arc<Permits>| EndpointSetup {
                permits: Arc::clone(permits),
                may_h2,
                may_h1,
            };
            Worker {
                pool: Pool::new(
                    permits.iter().map(setup).collect(),
                    pool_limits,
                    Arc::clone(&queue),
                ),
                waiting: Vec::new(),
                demands: BTreeMap::new(),
                checked: BTreeSet::new(),
                lent: Vec::new(),
                connects: Vec::new(),
            }
        };
        Self {
            random,
            now: Instant::now(),
            workers: (0..2).map(worker).collect(),
            most: limits.iter().map(|it| it.unwrap_or(usize::MAX)).collect(),
            limits,
            alive: permits.iter().map(|_| Rc::default()).collect(),
            permits,
            queue,
            queue_max,
            may_h2,
            idle_ones: Vec::new(),
        }
    }

    fn step(&mut self) {
        let at = self.random.usize(..2);
        if self.random.u8(..4) == 0 {
            self.now += Duration::from_millis(4);
        }
        match self.random.u8(..20) {
            0..=5 => self.request(at),
            6..=8 => self.receive(at),
            9 => self.cancel(at),
            10..=13 => self.end_exchange(at),
            14..=16 => self.finish_connect(at),
            17 => self.wake(at),
            18 => self.disturb(at),
            _ => self.prune(at),
        }
    }

    fn request(&mut self, worker: usize) {
        let demands = [
            Demand::Any,
            Demand::Any,
            Demand::Any,
            Demand::Fresh,
            Demand::Exclusive,
            Demand::FreshExclusive,
        ];
        let demand = demands[self.random.usize(..demands.len())];
        let own = &mut self.workers[worker];
        let may_h1 = own.pool.members[0].may_h1;
        let demand = if may_h1 { demand } else { Demand::Any };
        let count = self.permits.len();
        let first = self.random.usize(..count);
        let by_turn = (0..count).map(|at| (first + at) % count);
        let with_room = by_turn.clone().find(|at| own.pool.has_room(*at));
        let at = with_room.unwrap_or(first);
        match own.pool.take(at, demand, self.now) {
            Some(Idle::Connection(connection)) => {
                own.lent.push(Lent::Connection(at, connection));
            }
            Some(Idle::Stream(link)) => own.open(link),
            None => {
                let join = Join {
                    demand,
                    at,
                    avoid: Vec::new(),
                    connect: Duration::from_secs(1),
                };
                let id = own.pool.join(join, self.now).unwrap();
                own.waiting.push(id);
                own.demands.insert(id, demand);
            }
        }
        own.collect();
    }

    /// A waiter looks what it has been granted.
    fn receive(&mut self, worker: usize) {
        let own = &mut self.workers[worker];
        if !own.waiting.is_empty() {
            let index = self.random.usize(..own.waiting.len());
            own.receive(index);
        }
    }

    fn cancel(&mut self, worker: usize) {
        let own = &mut self.workers[worker];
        if !own.waiting.is_empty() {
            let index = self.random.usize(..own.waiting.len());
            let id = own.waiting.swap_remove(index);
            own.pool.cancel(id, self.now);
            own.collect();
        }
    }

    fn end_exchange(&mut self, worker: usize) {
        let own = &mut self.workers[worker];
        if own.lent.is_empty() {
            return;
        }
        let index = self.random.usize(..own.lent.len());
        match own.lent.swap_remove(index) {
            Lent::Stream(link) => link.end_stream(),
            Lent::Connection(_, connection) if self.random.u8(..4) == 0 => drop(connection),
            Lent::Connection(at, connection) => {
                if self.random.u8(..4) == 0 {
                    self.idle_ones.push(Rc::clone(&connection.is_stale));
                }
                own.pool.keep(at, released(connection), self.now);
            }
        }
        own.collect();
    }

    fn finish_connect(&mut self, worker: usize) {
        let own = &mut self.workers[worker];
        if own.connects.is_empty() {
            return;
        }
        let index = self.random.usize(..own.connects.len());
        let Connect {
            at,
            is_exclusive,
            permit,
            ..
        } = own.connects.swap_remove(index);
        let may_h1 = own.pool.members[at].may_h1;
        let connected = if self.random.u8(..5) == 0 {
            drop(permit);
            Connected::Failed(ConnectError::TimedOut)
        } else if self.may_h2 && !is_exclusive && (!may_h1 || self.random.u8(..3) > 0) {
            FakeLink::connected(&own.pool, self.random.usize(1..=3), permit)
        } else {
            Connected::Http1(FakeConnection::open(&self.alive[at], permit))
        };
        own.pool.connected(at, is_exclusive, connected, self.now);
        own.collect();
    }

    fn wake(&mut self, worker: usize) {
        let own = &mut self.workers[worker];
        if own.is_due(self.now) {
            own.pool.on_wake(self.now);
            own.collect();
        }
    }

    /// Things that the pool has no influence on.
    fn disturb(&mut self, worker: usize) {
        let at = self.random.usize(..self.permits.len());
        match self.random.u8(..7) {
            0 => {
                // GOAWAY.
                let links = &self.workers[worker].pool.members[at].links;
                if let Some(kept) = links.first() {
                    kept.link.clone().go_away();
                }
            }
            6 => {
                // A reply is overdue, or there is a sign of life.
                let links = &self.workers[worker].pool.members[at].links;
                if let Some(kept) = links.first() {
                    let is_suspected = &kept.link.0.is_suspected;
                    is_suspected.set(!is_suspected.get());
                    kept.link.0.freed.capacity_changed();
                }
            }
            1 => {
                let limit = limit(&mut self.random);
                self.limits[at] = limit;
                self.most[at] = self.permits[at].used().max(limit.unwrap_or(usize::MAX));
                self.permits[at].set_limit(limit);
            }
            2 => {
                let is_well = self.random.bool();
                self.workers[worker].pool.set_well(at, is_well, self.now);
            }
            3 => self.workers[worker].pool.forget_idle(at),
            4 => self.workers[worker].pool.retire(at, |_| true),
            _ => {
                if let Some(one) = self.idle_ones.pop() {
                    one.set(true);
                }
            }
        }
        self.workers[worker].collect();
    }

    fn prune(&mut self, worker: usize) {
        if self.random.u8(..3) == 0 {
            self.now += IDLE_TIME / 2;
        }
        let own = &mut self.workers[worker];
        own.pool.prune(self.now);
        own.collect();
    }

    /// Lets the tasks that look after pools run until none is woken.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 1000, "pools wake each other for ever");
            let mut was_woken = false;
            for own in &mut self.workers {
                // Only then: what nobody was woken for must have been done already.
                if own.is_due(self.now) {
                    was_woken = true;
                    own.pool.on_wake(self.now);
                    own.collect();
                }
            }
            if !was_woken {
                return;
            }
        }
    }

    fn check(&mut self) {
        self.settle();
        for at in 0..self.permits.len() {
            self.check_endpoint(at, true);
        }
        if self.random.u8(..3) == 0 {
            // What is kept for requests of the same worker is kept no longer than that.
            self.now += IDLE_HOLD;
            self.settle();
            for at in 0..self.permits.len() {
                self.check_endpoint(at, false);
            }
        }
        let mut queued = 0;
        let mut slots = 0;
        for own in &self.workers {
            let is_queued = |it: &&Waiter| matches!(it.phase, Phase::Queued { .. });
            let count = own.pool.waiters.values().filter(is_queued).count();
            assert_eq!(own.pool.queued, count);
            queued += count;
            let waiters = own.pool.waiters.values();
            slots += waiters.filter(|it| it.slot.is_some()).count();
            own.check_waiters(&self.permits);
        }
        assert_eq!(self.queue.len(), slots);
        assert!(queued <= slots && slots <= self.queue_max);
    }

    fn check_endpoint(&mut self, at: usize, may_hold: bool) {
        let mut count = self.alive[at].get();
        let mut idle = 0;
        let mut in_line = 0;
        for own in &self.workers {
            let member = &own.pool.members[at];
            let connects = own.connects.iter().filter(|it| it.at == at);
            let orders = own.pool.connects.len();
            assert_eq!(orders, 0);
            let connects = connects.count();
            let made: usize = member.lanes.iter().map(|it| it.connects).sum();
            assert_eq!(connects, made);
            let links = member.links.iter().filter(|it| it.permit.is_some());
            count += links.count() + connects;
            if !(may_hold && own.may_hold(at, self.now)) {
                let links = member.links.iter();
                let links = links.filter(|it| it.is_idle() && !it.link.is_suspected());
                idle += member.idle.len() + links.count();
            }
            let is_late = |it: &KeptLink<FakeLink>| {
                it.draining_since
                    .is_some_and(|since| since + TENURE <= self.now)
            };
            assert!(!member.links.iter().any(is_late), "it drains for too long");
            // However long its last streams go on.
            let is_finished = |it: &KeptLink<FakeLink>| it.link.is_finished();
            assert!(
                !member.links.iter().any(is_finished),
                "a link that takes no more streams holds a permit"
            );
            let waiters = own.pool.waiters.values();
            let queued = |it: &&Waiter| matches!(it.phase, Phase::Queued { .. }) && it.is_at(at);
            in_line += waiters.filter(queued).count();
        }
        let limit = self.limits[at].unwrap_or(usize::MAX);
        assert_eq!(
            self.permits[at].used(),
            count,
            "permits are counted exactly"
        );
        assert!(count <= self.most[at], "{count} connections, limit {limit}");
        self.most[at] = limit.max(count);
        if in_line > 0 {
            assert!(count >= limit, "a permit is free, and a waiter needs one");
            assert_eq!(idle, 0, "something idle holds a permit that a waiter needs");
        }
        if count > limit {
            assert_eq!(idle, 0, "a lowered limit closes what is idle");
        }
    }

    /// Everybody leaves: nothing may be left behind.
    fn end(&mut self) {
        for own in &mut self.workers {
            for id in std::mem::take(&mut own.waiting) {
                own.pool.cancel(id, self.now);
            }
            own.collect();
            for lent in own.lent.drain(..) {
                if let Lent::Stream(link) = lent {
                    link.end_stream();
                }
            }
            for connect in std::mem::take(&mut own.connects) {
                let Connect {
                    at, is_exclusive, ..
                } = connect;
                let failed = Connected::Failed(ConnectError::TimedOut);
                own.pool.connected(at, is_exclusive, failed, self.now);
            }
        }
        self.check();
        self.now += IDLE_TIME;
        for own in &mut self.workers {
            own.pool.prune(self.now);
            self.now += IDLE_TIME;
            own.pool.prune(self.now);
            assert!(own.pool.is_unused());
        }
        assert!(self.queue.is_empty());
        assert!(self.permits.iter().all(|permits| permits.used() == 0));
    }
}

impl Worker {
    /// Whether the pool has been woken, or wants to be looked after by now.
    fn is_due(&self, now: Instant) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let is_woken = self.pool.waker.poll(&mut context).is_ready();
        is_woken || self.pool.look_at().is_some_and(|at| at <= now)
    }

    /// Whether what is idle may wait for a request of this worker although a waiter of the other
    /// one needs its permit.
    fn may_hold(&self, at: usize, now: Instant) -> bool {
        let member = &self.pool.members[at];
        let next = member.permits.next_in_line(&self.pool.waker);
        let is_young = |since: Instant| now < since + IDLE_HOLD;
        let mut links = member.links.iter().filter(|it| it.is_idle());
        matches!(next, Some(NextInLine::Another { .. }))
            && member.held_since.is_some_and(|since| now < since + TENURE)
            && member.idle.iter().all(|kept| is_young(kept.since))
            && links.all(|kept| kept.idle_since.is_none_or(is_young))
    }

    fn collect(&mut self) {
        self.connects.extend(self.pool.take_connects());
        for (id, grant) in &self.pool.granted {
            let (Grant::Connection { at, .. } | Grant::Stream { at, .. }) = grant else {
                continue;
            };
            if self.checked.insert(*id) {
                let passed_over = |(earlier, waiter): (&u64, &Waiter)| {
                    earlier < id && waiter.is_at(*at) && waiter.demand == self.demands[id]
                };
                let is_unfair = self.pool.waiters.iter().any(passed_over);
                assert!(!is_unfair, "an earlier waiter that it fits was passed over");
            }
        }
    }

    fn open(&mut self, link: FakeLink) {
        assert!(link.room() > 0, "a stream was promised");
        link.0.open.set(link.0.open.get() + 1);
        self.lent.push(Lent::Stream(link));
    }

    fn receive(&mut self, index: usize) {
        let context = Context::from_waker(Waker::noop());
        let Poll::Ready(grant) = self.pool.poll(self.waiting[index], &context) else {
            return;
        };
        self.waiting.swap_remove(index);
        match grant {
            Grant::Connection { at, connection, .. } => {
                self.lent.push(Lent::Connection(at, connection));
            }
            // One that goes away between the grant and now is refused: it is tried again.
            Grant::Stream { link, .. } if link.room() == 0 => {}
            Grant::Stream { link, .. } => self.open(link),
            Grant::Failed { .. } | Grant::QueueFull => {}
        }
    }

    /// Never something free and a waiter that it fits.
    fn check_waiters(&self, permits: &[Arc<Permits>]) {
        for waiter in self.pool.waiters.values() {
            for (at, member) in self.pool.members.iter().enumerate() {
                if !waiter.is_at(at) {
                    continue;
                }
                if waiter.demand.takes_used() {
                    assert!(member.idle.is_empty(), "an idle connection fits");
                }
                if waiter.demand == Demand::Any {
                    let has_room = member.links.iter().any(KeptLink::has_room);
                    assert!(!has_room, "a stream is free");
                }
                if let Phase::Bound(_) = waiter.phase {
                    let lane = member.lane_of(waiter.demand);
                    let connects = member.lanes[lane].connects;
                    assert!(
                        connects >= member.needed(lane),
                        "nothing is being made for it"
                    );
                } else {
                    assert!(!permits[at].has_free());
                }
            }
        }
        for (at, member) in self.pool.members.iter().enumerate() {
            for lane in [SHARED, EXCLUSIVE] {
                let bound = |it: &&Waiter| {
                    matches!(it.phase, Phase::Bound(bound) if bound == at)
                        && member.lane_of(it.demand) == lane
                };
                let count = self.pool.waiters.values().filter(bound).count();
                assert_eq!(member.lanes[lane].waiters, count);
            }
        }
    }
}

fn limit(random: &mut Rng) -> Option<usize> {
    (random.u8(..4) > 0).then(|| random.usize(1..=3))
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    for step in 0..STEPS {
        world.step();
        if step % 6 == 5 {
            world.check();
        }
    }
    world.end();
}

#[test]
fn no_capacity_is_free_beside_a_waiter_it_fits() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|it| it.parse::<u64>().unwrap())
    };
    if let Some(seed) = number("POOL_SEED") {
        return run(seed);
    }
    for seed in 1..=number("POOL_SCHEDULES").unwrap_or(SCHEDULES) {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "POOL_SEED={seed}");
    }
}

/// Requests of one kind are served in the order in which they came.
#[test]
fn waiters_are_served_in_turn() {
    let mut world = World::new(1);
    let permits = Permits::new(Some(1));
    let setup = EndpointSetup {
        permits,
        may_h2: false,
        may_h1: true,
    };
    let now = world.now;
    let own = &mut world.workers[0];
    own.pool = Pool::new(vec![setup], limits(), Arc::default());
    let join = |own: &mut Worker, demand| {
        let join = Join { demand, ..any() };
        own.pool.join(join, now).unwrap()
    };
    let context = Context::from_waker(Waker::noop());
    let ids: Vec<u64> = (0..5).map(|_| join(own, Demand::Any)).collect();
    let connect = own.pool.take_connects().pop().unwrap();
    let connection = FakeConnection::open(&Rc::default(), connect.permit);
    own.pool
        .connected(0, false, Connected::Http1(connection), now);
    for id in &ids {
        let Poll::Ready(Grant::Connection { connection, .. }) = own.pool.poll(*id, &context) else {
            panic!("{id} is next");
        };
        assert!(own.pool.poll(id + 1, &context).is_pending());
        own.pool.keep(0, released(connection), now);
    }
    assert_eq!(own.pool.idle_count(0), 1);
    // What an idle connection does not fit has it closed, for its permit.
    join(own, Demand::Fresh);
    own.pool.on_wake(now);
    own.pool.on_wake(now);
    assert_eq!(own.pool.idle_count(0), 0);
    assert_eq!(own.pool.take_connects().len(), 1);
}

/// A link whose last streams go on gives its permit to the next waiter as soon as it takes no more
/// of them.
#[test]
fn a_link_that_goes_away_under_a_long_stream_frees_its_permit() {
    let permits = Permits::new(Some(1));
    let setup = EndpointSetup {
        permits: Arc::clone(&permits),
        may_h2: true,
        may_h1: false,
    };
    let now = Instant::now();
    let mut pool = FakePool::new(vec![setup], limits(), Arc::default());
    let context = Context::from_waker(Waker::noop());
    let id = pool.join(any(), now).unwrap();
    let permit = pool.take_connects().pop().unwrap().permit;
    pool.connected(0, false, FakeLink::connected(&pool, 1, permit), now);
    let Poll::Ready(Grant::Stream { link, .. }) = pool.poll(id, &context) else {
        panic!("there is a stream");
    };
    link.0.open.set(1);
    let second = pool.join(any(), now).unwrap();
    pool.on_wake(now);
    assert!(pool.poll(second, &context).is_pending());
    assert!(pool.take_connects().is_empty(), "the limit is reached");
    link.go_away();
    assert!(
        pool.waker()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    );
    pool.on_wake(now);
    // The permit is granted while the pool looks, and used at its next look.
    pool.on_wake(now);
    assert_eq!(pool.take_connects().len(), 1);
    assert!(!link.is_idle(), "the stream goes on");
}

/// Those who wait for connections that are being made are bounded by a number of its own.
#[test]
fn a_waiter_beyond_the_bound_is_refused() {
    let setup = EndpointSetup {
        permits: Permits::new(None),
        may_h2: true,
        may_h1: false,
    };
    let now = Instant::now();
    let mut pool = FakePool::new(vec![setup], limits(), Arc::default());
    let ids: Vec<u64> = (0..BOUND_MAX)
        .map(|_| pool.join(any(), now).unwrap())
        .collect();
    assert_eq!(pool.join(any(), now), None);
    pool.cancel(ids[0], now);
    let last = pool.join(any(), now).unwrap();
    assert_eq!(pool.join(any(), now), None);
    for id in ids.into_iter().skip(1).chain([last]) {
        pool.cancel(id, now);
    }
    assert!(pool.join(any(), now).is_some());
}

/// The other side says how long it keeps an idle connection: what comes later would meet its end.
#[test]
fn a_kept_connection_is_lent_for_as_long_as_its_server_promises_less_a_margin() {
    let setup = EndpointSetup {
        permits: Permits::new(None),
        may_h2: false,
        may_h1: true,
    };
    let now = Instant::now();
    let mut pool = FakePool::new(vec![setup], limits(), Arc::default());
    let keep = |seconds, pool: &mut FakePool| {
        let permit = pool.members[0].permits.try_acquire().unwrap();
        let connection = FakeConnection::open(&Rc::default(), permit);
        let released = Released {
            transport: connection,
            promised: Some(Duration::from_secs(seconds)),
        };
        pool.keep(0, released, now);
    };
    let second = Duration::from_secs(1);
    let instant = Duration::from_millis(1);
    for (promised, kept) in [(3, 2 * second), (3600, IDLE_TIME)] {
        for is_late in [false, true] {
            keep(promised, &mut pool);
            let at = if is_late {
                now + kept
            } else {
                now + kept - instant
            };
            assert_eq!(
                pool.take(0, Demand::Any, at).is_none(),
                is_late,
                "{promised} s"
            );
        }
    }
    for promised in [0, 1] {
        keep(promised, &mut pool);
        assert!(pool.take(0, Demand::Any, now).is_none(), "{promised} s");
    }
    assert_eq!(pool.members[0].permits.used(), 0);
}

/// It is looked at only now and then, and may have been in use between two looks.
#[test]
fn a_link_that_is_used_again_and_again_is_not_closed_for_idleness() {
    let setup = EndpointSetup {
        permits: Permits::new(None),
        may_h2: true,
        may_h1: false,
    };
    let mut now = Instant::now();
    let mut pool = FakePool::new(vec![setup], limits(), Arc::default());
    let id = pool.join(any(), now).unwrap();
    let permit = pool.take_connects().pop().unwrap().permit;
    let connected = FakeLink::connected(&pool, 1, permit);
    pool.connected(0, false, connected, now);
    let context = Context::from_waker(Waker::noop());
    assert!(pool.poll(id, &context).is_ready());
    for _ in 0..5 {
        now += IDLE_TIME / 2;
        pool.prune(now);
        let taken = pool.take(0, Demand::Any, now);
        assert!(matches!(taken, Some(Idle::Stream(_))));
    }
    pool.prune(now);
    now += IDLE_TIME;
    pool.prune(now);
    assert!(pool.is_unused());
}

fn limits() -> PoolLimits {
    PoolLimits {
        idle_count: 8,
        idle_time: IDLE_TIME,
        queue: 100,
        queue_time: QUEUE_TIME,
    }
}

/// A request that anything fits, at the only endpoint.
fn any() -> Join {
    Join {
        demand: Demand::Any,
        at: 0,
        avoid: Vec::new(),
        connect: Duration::ZERO,
    }
}

fn released<C>(transport: C) -> Released<C> {
    Released {
        transport,
        promised: None,
    }
}

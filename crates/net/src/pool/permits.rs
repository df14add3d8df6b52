//! Connection permits of one endpoint, counted exactly over the pools of all workers.
//!
//! Taking and giving back a permit is one atomic operation, and neither happens while an idle
//! connection is reused. Only where a limit is configured and reached do pools register waiters
//! here, in one line for all workers: a permit that is given back goes to the first of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

/// The limit of an endpoint without one.
const NO_LIMIT: usize = usize::MAX;

/// A registration that no endpoint has granted yet.
const WAITING: usize = usize::MAX;
/// A registration that has been withdrawn.
const WITHDRAWN: usize = usize::MAX - 1;

/// The permits of one endpoint.
#[derive(Debug)]
pub struct Permits {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// The length of the line, to be read without the lock.
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    line: VecDeque<Entry>,
    /// The pools that use this endpoint, to be woken when an idle connection is wanted.
    pools: Vec<Weak<PoolWaker>>,
}

/// Who the next free permit goes to, as one pool sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextInLine {
    /// A waiter of its own.
    Own,
    /// A waiter of one of the other pools; so many pools use the endpoint.
    Another { pools: usize },
}

#[derive(Debug)]
struct Entry {
    registration: Arc<Registration>,
    /// Which endpoint of the waiter's pool this is.
    at: usize,
}

/// A waiter of one pool that takes a permit of any of the endpoints it is registered with.
#[derive(Debug)]
pub(super) struct Registration {
    waiter: u64,
    pool: Arc<PoolWaker>,
    /// The endpoint that has granted a permit.
    granted: AtomicUsize,
}

/// The right to one connection, given back when it is dropped.
#[derive(Debug)]
pub struct Permit(Arc<Permits>);

/// Wakes the task that looks after one pool, from any thread.
#[derive(Debug, Default)]
pub struct PoolWaker(Mutex<WakerState>);

#[derive(Debug, Default)]
struct WakerState {
    is_woken: bool,
    /// Waiters that have been granted a permit.
    granted: Vec<u64>,
    waker: Option<Waker>,
}

impl Permits {
    /// The permits of an endpoint that nobody has connected to.
    pub fn new(limit: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicUsize::new(limit.unwrap_or(NO_LIMIT)),
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            state: Mutex::default(),
        })
    }

    /// Changes the limit, also for the connections that are open: those above it are closed as
    /// soon as nothing is under way on them.
    pub fn set_limit(&self, limit: Option<usize>) {
        let limit = limit.unwrap_or(NO_LIMIT);
        if self.limit.swap(limit, Ordering::SeqCst) != limit {
            let mut state = self.lock();
            self.grant(&mut state);
            state.wake_pools();
        }
    }

    /// How many connections there are, those being made included.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// Whether a connection could be made now.
    pub fn has_free(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0 && self.used() < self.limit.load(Ordering::SeqCst)
    }

    /// Whether idle connections shall be closed: a waiter needs the permit, or the limit has been
    /// lowered. One load where there is no limit.
    #[inline]
    pub(super) fn are_wanted(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        limit != NO_LIMIT && (self.waiting.load(Ordering::SeqCst) > 0 || self.used() > limit)
    }

    /// Has the pool woken when its idle connections are wanted.
    pub(super) fn add_pool(&self, pool: &Arc<PoolWaker>) {
        let mut state = self.lock();
        state.pools.retain(|known| known.strong_count() > 0);
        state.pools.push(Arc::downgrade(pool));
    }

    /// Whether there are more connections than the limit, which has been lowered. One load where
    /// there is no limit.
    #[inline]
    pub fn are_too_many(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        limit != NO_LIMIT && self.used() > limit
    }

    /// A permit, unless the limit is reached or others are in line.
    pub fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        let is_free = self.waiting.load(Ordering::SeqCst) == 0 && self.try_count();
        is_free.then(|| Permit(Arc::clone(self)))
    }

    fn try_count(&self) -> bool {
        let limit = self.limit.load(Ordering::SeqCst);
        let count = |used| (used < limit).then_some(used + 1);
        let order = Ordering::SeqCst;
        self.used.fetch_update(order, order, count).is_ok()
    }

    /// Puts a waiter in line and has all pools look for idle connections to close.
    pub(super) fn register(&self, registration: &Arc<Registration>, at: usize) {
        let mut state = self.lock();
        state.line.push_back(Entry {
            registration: Arc::clone(registration),
            at,
        });
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.grant(&mut state);
        if !state.line.is_empty() {
            state.wake_pools();
        }
    }

    fn unregister(&self, registration: &Arc<Registration>) {
        let mut state = self.lock();
        let mut line = state.line.iter();
        if let Some(at) = line.position(|it| Arc::ptr_eq(&it.registration, registration)) {
            state.line.remove(at);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            if at == 0 {
                state.wake_first();
            }
        }
    }

    /// Who the next free permit goes to; none while nobody waits. One load where there is no limit.
    pub(super) fn next_in_line(&self, pool: &Arc<PoolWaker>) -> Option<NextInLine> {
        if !self.are_wanted() {
            return None;
        }
        let state = self.lock();
        let first = state.line.front()?;
        if Arc::ptr_eq(&first.registration.pool, pool) {
            return Some(NextInLine::Own);
        }
        let live = state.pools.iter().filter(|it| it.strong_count() > 0);
        Some(NextInLine::Another {
            pools: live.count(),
        })
    }

    fn release(&self) {
        self.used.fetch_sub(1, Ordering::SeqCst);
        // A waiter that registers now counts itself before it looks at `used`: one of the two
        // sees the other.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let mut state = self.lock();
            self.grant(&mut state);
        }
    }

    /// Hands free permits to the first in line.
    fn grant(&self, state: &mut State) {
        let length = state.line.len();
        while !state.line.is_empty() && self.try_count() {
            let Some(entry) = state.line.pop_front() else {
                break;
            };
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            if entry.registration.grant(entry.at) {
                continue;
            }
            // Another endpoint was faster, or it was withdrawn.
            self.used.fetch_sub(1, Ordering::SeqCst);
        }
        if state.line.len() < length {
            state.wake_first();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Wakes the pool whose turn it is now: it keeps nothing back any more.
    fn wake_first(&self) {
        if let Some(first) = self.line.front() {
            first.registration.pool.wake();
        }
    }

    fn wake_pools(&self) {
        for pool in self.pools.iter().filter_map(Weak::upgrade) {
            pool.wake();
        }
    }
}

impl Registration {
    /// Not in any line yet.
    pub fn new(waiter: u64, pool: &Arc<PoolWaker>) -> Arc<Self> {
        Arc::new(Self {
            waiter,
            pool: Arc::clone(pool),
            granted: AtomicUsize::new(WAITING),
        })
    }

    fn grant(&self, at: usize) -> bool {
        let order = Ordering::SeqCst;
        let is_first = self.granted.compare_exchange(WAITING, at, order, order);
        if is_first.is_ok() {
            self.pool.grant(self.waiter);
        }
        is_first.is_ok()
    }

    /// The endpoint whose permit the waiter owns now.
    pub fn granted(&self) -> Option<usize> {
        let at = self.granted.load(Ordering::SeqCst);
        (at != WAITING && at != WITHDRAWN).then_some(at)
    }

    /// Leaves all lines. Returns the endpoint whose permit was granted in the meantime.
    pub fn withdraw<'a>(
        self: &Arc<Self>,
        lines: impl Iterator<Item = &'a Arc<Permits>>,
    ) -> Option<usize> {
        let order = Ordering::SeqCst;
        let result = self
            .granted
            .compare_exchange(WAITING, WITHDRAWN, order, order);
        for permits in lines {
            permits.unregister(self);
        }
        result.err()
    }
}

impl Permit {
    /// The permit that a registration has been granted.
    pub(super) fn granted(permits: &Arc<Permits>) -> Self {
        Self(Arc::clone(permits))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl PoolWaker {
    /// Has the pool looked after soon.
    pub fn wake(&self) {
        let mut state = self.lock();
        state.is_woken = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn grant(&self, waiter: u64) {
        self.lock().granted.push(waiter);
        self.wake();
    }

    /// Ready when the pool has to be looked after.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if std::mem::take(&mut state.is_woken) {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    pub(super) fn take_granted(&self) -> Vec<u64> {
        std::mem::take(&mut self.lock().granted)
    }

    fn lock(&self) -> MutexGuard<'_, WakerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many requests of all workers wait for a connection of one upstream.
#[derive(Debug, Default)]
pub struct QueueCount(AtomicUsize);

/// One of them.
#[derive(Debug)]
pub(super) struct QueueSlot(Arc<QueueCount>);

impl QueueCount {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Room for one more, unless `max` wait.
    pub(super) fn enter(self: &Arc<Self>, max: usize) -> Option<QueueSlot> {
        let order = Ordering::SeqCst;
        let count = |waiting| (waiting < max).then_some(waiting + 1);
        let entered = self.0.fetch_update(order, order, count).is_ok();
        entered.then(|| QueueSlot(Arc::clone(self)))
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

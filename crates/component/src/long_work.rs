//! Work on one message that may take long: decoding and encoding large bodies, costly expressions,
//! validation, compression. A worker gives each piece of it a time slice of a few milliseconds, so
//! that its other clients are served: what exceeds its slice is preempted and moves to a thread
//! beside the workers, of which as many run at once as the machine has cores, first come, first
//! served. It ends there soon after its future has been dropped, as `limits.time` and a client that
//! disconnects do.
//!
//! What a step does with [`Exchange`] and without waiting is attempted on the worker. When a part
//! of it exceeds its time slice, the attempt fails, that part alone is done beside the workers, and
//! the next attempt finds its result: [`Exchange::preemptible`].
//!
//! [`Exchange`]: crate::exchange::Exchange
//! [`Exchange::preemptible`]: crate::exchange::Exchange::preemptible

mod large;
mod turns;
mod yield_queue;

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use expr::Value;
use expr::jq::{EvalError, Variables};
use message::{Body, Fault, Kind, Origin};

use crate::content::Content;
use crate::handler::Services;

pub(crate) use large::LargeValues;
use large::drop_beside;
pub use turns::{note_long_piece, note_piece, takes_turns};
pub use yield_queue::{poll_yield, serve_yield_queue, yield_now};

/// Bytes of a body that are decoded, encoded, converted or compressed on the worker: about a
/// millisecond.
pub const AT_ONCE: usize = 256 * 1024;

/// Bytes of an envelope that are read on the worker: taking it apart and checking it against a
/// schema costs some times what reading a body does.
pub const ENVELOPE_AT_ONCE: usize = AT_ONCE / 4;

/// How many rounds of steps the expressions of a flow may take in a row before the flow yields to
/// the other tasks of its worker: some milliseconds. See [`expr::jq::rounds`].
pub const ROW_ROUNDS: u64 = 16;

/// For so many bytes that are decoded on the worker a flow counts a round of steps, see
/// [`ROW_ROUNDS`]: after [`AT_ONCE`] bytes it yields before its next step.
pub(crate) const ROUND_BYTES: usize = AT_ONCE / ROW_ROUNDS as usize;

/// How much work may wait for each thread. Each piece of it is bounded, so the wait is.
const WAITING_MAX: usize = 256;

/// The least stack beside the workers: bodies and schemas nest. Only what is used of it is memory.
const STACK_LEAST: usize = 64 << 20;

/// The `nice` value of threads that do long work, above that of the process: a worker that shares a
/// core with one preempts it when it has something to do, and a core on which a worker never rests
/// leaves it a tenth (the kernel's weights are 1024 and 110).
const NICE: i32 = 10;

/// How far expressions may go down on a thread that has no stack of its choice.
const STACK_OF_OTHERS: usize = 1 << 20;

/// How many parts of one piece of work may be deferred.
const DEFERRALS_MAX: usize = 1000;

thread_local! {
    /// Whether what runs on this thread is attempted again when a part of it has been deferred.
    static MAY_DEFER: Cell<bool> = const { Cell::new(false) };
}

/// Whether work that exceeds a time slice may fail because it is done later.
pub(crate) fn may_defer() -> bool {
    MAY_DEFER.get()
}

/// While this exists, work of this thread may be deferred.
pub(crate) struct DeferralGuard(bool);

impl DeferralGuard {
    pub fn enter() -> Self {
        Self(MAY_DEFER.replace(true))
    }
}

impl Drop for DeferralGuard {
    fn drop(&mut self) {
        MAY_DEFER.set(self.0);
    }
}

/// The result of deferred work.
#[derive(Clone, Debug)]
pub(crate) enum DeferredResult {
    /// The value of an expression.
    Evaluated(Result<Value, EvalError>),
    /// The value of a body.
    Decoded(Result<Value, Fault>),
    /// The bytes of a value.
    Encoded(Result<Body, Fault>),
    /// What [`Content::project`] gave.
    Projected(Option<Content>),
}

/// Work that exceeds a time slice.
pub(crate) type LongWork = Box<dyn FnOnce() -> DeferredResult + Send>;

/// An attempt at work on a message, and what attempts before it have deferred. A copy of the
/// message has attempts of its own.
#[derive(Default)]
pub(crate) struct Attempt {
    /// The number of the operation that runs: it is the same in each attempt.
    operation: u32,
    /// Deferred work and its results. Absent for most messages.
    deferrals: Option<Box<Deferrals>>,
}

#[derive(Default)]
struct Deferrals {
    pending: Option<(u32, LongWork)>,
    results: Vec<(u32, DeferredResult)>,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operation = self.operation;
        formatter.debug_tuple("Attempt").field(&operation).finish()
    }
}

impl Clone for Attempt {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Attempt {
    /// Forgets the results of work that was dropped half-way, or that other work follows.
    #[inline]
    pub fn clear(&mut self) {
        // A look first: nearly no message has any, and dropping nothing is a call all the same.
        if self.deferrals.is_some() {
            self.deferrals = None;
        }
    }

    /// Begins an attempt. While the guard lives, work may be deferred; without one no more may be:
    /// work that is deferred this often would never be done, as its operations are not the same in
    /// each attempt.
    #[inline]
    pub fn begin(&mut self) -> Option<DeferralGuard> {
        self.operation = 0;
        let deferrals = self.deferrals.as_ref().map_or(0, |it| it.results.len());
        (deferrals < DEFERRALS_MAX).then(DeferralGuard::enter)
    }

    /// Notes that an operation begins which may take long.
    #[inline]
    pub fn operation(&mut self) {
        self.operation = self.operation.wrapping_add(1);
    }

    /// The result of the current operation, when an earlier attempt deferred it.
    #[inline]
    pub fn result(&mut self, find: impl Fn(&DeferredResult) -> bool) -> Option<DeferredResult> {
        let deferrals = self.deferrals.as_ref().filter(|_| may_defer())?;
        let mut results = deferrals.results.iter();
        let (_, result) = results.find(|(at, it)| *at == self.operation && find(it))?;
        Some(result.clone())
    }

    /// Defers the work of this operation. The failure that it has until then.
    #[cold]
    pub fn defer(&mut self, work: LongWork) -> Fault {
        let deferrals = self.deferrals.get_or_insert_default();
        // What was deferred first has not been done, so what follows from its failure is void.
        deferrals.pending.get_or_insert((self.operation, work));
        let detail = "work that takes long has not been done";
        Fault::new(Kind::Internal, Origin::Engine, detail)
    }

    /// Ends the attempt: the work that it has deferred, to be done before the next one.
    #[inline]
    pub fn end(&mut self) -> Option<(u32, LongWork)> {
        self.deferrals.as_ref()?;
        self.pending()
    }

    #[cold]
    fn pending(&mut self) -> Option<(u32, LongWork)> {
        let pending = self.deferrals.as_mut()?.pending.take();
        if pending.is_none() {
            self.deferrals = None;
        }
        pending
    }

    /// Keeps the result of deferred work.
    pub fn keep(&mut self, operation: u32, result: DeferredResult) {
        let deferrals = self.deferrals.get_or_insert_default();
        deferrals.results.push((operation, result));
    }
}

/// The variables of an expression that is evaluated on another thread.
pub(crate) struct Snapshot {
    slots: Vec<(usize, Value)>,
    now: f64,
}

impl Snapshot {
    pub fn of(slots: &[usize], variables: &dyn Variables) -> Self {
        let slots = slots.iter();
        Self {
            slots: slots.map(|&slot| (slot, variables.get(slot))).collect(),
            now: variables.now(),
        }
    }
}

impl Variables for Snapshot {
    fn get(&self, slot: usize) -> Value {
        let found = self.slots.iter().find(|(it, _)| *it == slot);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    fn now(&self) -> f64 {
        self.now
    }
}

/// Does work beside the workers that would hold others up. It gets a flag that is set when nobody
/// waits for its result any more; evaluations, readers, writers and conversions look at it
/// themselves (`expr/src/stop.rs`).
///
/// # Errors
/// `unavailable` when too much waits for a thread, `internal` when the work panicked or the process
/// is stopping.
pub async fn beside<T: Send + 'static>(
    services: &dyn Services,
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> Result<T, Fault> {
    let permit = Permit::acquire().await?;
    let stop = StopOnDrop::default();
    let flag = Arc::clone(&stop.0);
    let place = Arc::new(Mutex::new(None));
    let result = Unclaimed(Arc::clone(&place));
    let stack = expr::jq::stack();
    let work = move || {
        let _permit = permit;
        if flag.load(Ordering::Relaxed) {
            return;
        }
        let done = on_a_stack(stack, || expr::jq::stoppable(&flag, || work(&flag)));
        *lock(&place) = done;
    };
    services.blocking(Box::new(work)).await;
    let done = lock(&result.0).take();
    done.ok_or_else(|| {
        let detail = "work in the background has not been done";
        Fault::new(Kind::Internal, Origin::Engine, detail)
    })
}

/// The result of work beside the workers. If nobody claims it, it is dropped there, too: it may be
/// large.
struct Unclaimed<T: Send + 'static>(Arc<Mutex<Option<T>>>);

impl<T: Send + 'static> Drop for Unclaimed<T> {
    fn drop(&mut self) {
        if let Some(result) = lock(&self.0).take() {
            drop_beside(result);
        }
    }
}

/// Lets the workers go before this thread, for good.
fn step_back() {
    // `setpriority` with the process 0 is about the calling thread alone on Linux. Elsewhere, or
    // where it is refused, the thread shares the cores evenly.
    if let Ok(own) = rustix::process::getpriority_process(None) {
        let _ = rustix::process::setpriority_process(None, own.saturating_add(NICE));
    }
}

/// Does work on a thread on which expressions may go as deep as on the worker, and values and
/// schemas nest. `None` when it panicked.
fn on_a_stack<T: Send>(expressions: usize, work: impl FnOnce() -> T + Send) -> Option<T> {
    let mut work = Some(work);
    let mut run = || {
        let work = work.take()?;
        step_back();
        expr::jq::set_stack(expressions);
        Some(work())
    };
    let size = (expressions / 3).saturating_mul(4).max(STACK_LEAST);
    let done = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(size);
        let thread = thread.spawn_scoped(scope, &mut run).ok()?;
        Some(thread.join().ok().flatten())
    });
    match done {
        Some(result) => result,
        // There is no room for such a stack. This one is smaller, and what does not fit is refused.
        None => {
            expr::jq::set_stack(STACK_OF_OTHERS);
            work.take().map(|work| work())
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells work beside the workers that nobody waits for it any more.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Who runs beside the workers, and who waits to, of the whole process.
struct Queue {
    running: usize,
    last: u64,
    waiting: VecDeque<(u64, Waker)>,
    /// Those that have got a permit which they have not taken yet. They count as running.
    granted: Vec<u64>,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    running: 0,
    last: 0,
    waiting: VecDeque::new(),
    granted: Vec::new(),
});

/// How many run at once.
pub fn running_max() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// The right to run beside the workers. It goes to the next one when this is dropped.
struct Permit(());

impl Permit {
    /// A permit, once all that have waited longer have theirs.
    async fn acquire() -> Result<Self, Fault> {
        let mut ticket = Ticket(None);
        poll_fn(|context| ticket.poll(context)).await
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let next = lock(&QUEUE).pass_on();
        next.into_iter().for_each(Waker::wake);
    }
}

impl Queue {
    /// Gives a permit that has come back to whoever waits longest: to be woken when the queue is
    /// not locked any more.
    fn pass_on(&mut self) -> Option<Waker> {
        match self.waiting.pop_front() {
            Some((ticket, waker)) => {
                self.granted.push(ticket);
                Some(waker)
            }
            None => {
                self.running = self.running.saturating_sub(1);
                None
            }
        }
    }

    /// The place of one that waits. Tickets are in order.
    fn place(&mut self, ticket: u64) -> Option<&mut (u64, Waker)> {
        let at = self.waiting.binary_search_by_key(&ticket, |(it, _)| *it);
        self.waiting.get_mut(at.ok()?)
    }

    /// Takes one out that does not wait any more, with its waker.
    fn leave(&mut self, ticket: u64) -> Option<Waker> {
        let at = self.waiting.binary_search_by_key(&ticket, |(it, _)| *it);
        self.waiting.remove(at.ok()?).map(|(_, waker)| waker)
    }

    /// Takes the permit that this one has got, if it has.
    fn take(&mut self, ticket: u64) -> bool {
        let found = self.granted.iter().position(|it| *it == ticket);
        found.map(|at| self.granted.swap_remove(at)).is_some()
    }
}

/// Somebody in the queue.
struct Ticket(Option<u64>);

impl Ticket {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Permit, Fault>> {
        let mut queue = lock(&QUEUE);
        let Some(ticket) = self.0 else {
            if queue.running < running_max() && queue.waiting.is_empty() {
                queue.running += 1;
                return Poll::Ready(Ok(Permit(())));
            }
            if queue.waiting.len() >= running_max().saturating_mul(WAITING_MAX) {
                let detail = "too many messages that take long";
                let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail);
                return Poll::Ready(Err(fault));
            }
            queue.last += 1;
            let ticket = queue.last;
            queue.waiting.push_back((ticket, context.waker().clone()));
            self.0 = Some(ticket);
            return Poll::Pending;
        };
        if queue.take(ticket) {
            self.0 = None;
            return Poll::Ready(Ok(Permit(())));
        }
        if let Some((_, waker)) = queue.place(ticket) {
            waker.clone_from(context.waker());
        }
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(ticket) = self.0 else {
            return;
        };
        let mut queue = lock(&QUEUE);
        if !queue.take(ticket) {
            let waker = queue.leave(ticket);
            drop(queue);
            drop(waker);
            return;
        }
        let next = queue.pass_on();
        drop(queue);
        next.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;

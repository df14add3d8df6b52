//! Work on one message that may take long: decoding and encoding large bodies, costly expressions,
//! validation, compression. A worker does it in turns of a few milliseconds, so that its other
//! clients get theirs: what does not fit into a turn moves to a thread beside the workers, of which
//! as many run at once as the machine has cores, first come, first served. It ends there soon after
//! its future has been dropped, as `limits.time` and a client that disconnects do.
//!
//! What a step does with [`Exchange`] and without waiting is tried on the worker. When something in
//! it does not fit into the turn, it fails, that part alone is done beside the workers, and the
//! whole is done again, with the result of that part at hand: [`Exchange::in_turns`].
//!
//! [`Exchange`]: crate::exchange::Exchange
//! [`Exchange::in_turns`]: crate::exchange::Exchange::in_turns

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

/// Bytes of a body that are decoded, encoded, converted or compressed on the worker: about a
/// millisecond.
pub const AT_ONCE: usize = 256 * 1024;

/// How many rounds of steps the expressions of a flow may take in a row before others of the worker
/// have their turn: some milliseconds. See [`expr::jq::rounds`].
pub const ROW_ROUNDS: u64 = 16;

/// How much work may wait for each thread. Each piece of it is bounded, so the wait is.
const WAITING_MAX: usize = 256;

/// The least stack beside the workers: bodies and schemas nest. Only what is used of it is memory.
const STACK_LEAST: usize = 64 << 20;

/// How far expressions may go down on a thread that has no stack of its choice.
const STACK_OF_OTHERS: usize = 1 << 20;

/// How often what a step does is begun again.
const TRIES_MAX: usize = 1000;

thread_local! {
    /// Whether what runs on this thread just now is done again when something in it was deferred.
    static IN_TURN: Cell<bool> = const { Cell::new(false) };
}

/// Whether work of more than a turn may fail because it is done later.
pub(crate) fn may_defer() -> bool {
    IN_TURN.get()
}

/// What may defer work as long as this is there.
pub(crate) struct TurnGuard(bool);

impl TurnGuard {
    pub fn enter() -> Self {
        Self(IN_TURN.replace(true))
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        IN_TURN.set(self.0);
    }
}

/// Lets others of the worker have their turn.
pub async fn give_way() {
    let mut has_waited = false;
    poll_fn(|context| {
        if has_waited {
            return Poll::Ready(());
        }
        has_waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The result of deferred work.
#[derive(Clone, Debug)]
pub(crate) enum Made {
    /// The value of an expression.
    Evaluated(Result<Value, EvalError>),
    /// The value of a body.
    Decoded(Result<Value, Fault>),
    /// The bytes of a value.
    Encoded(Result<Body, Fault>),
    /// What [`Content::project`] gave.
    Projected(Option<Content>),
}

/// Work that does not fit into a turn.
pub(crate) type LongWork = Box<dyn FnOnce() -> Made + Send>;

/// How far the present turn of a message has come. A copy of the message has turns of its own.
#[derive(Default)]
pub(crate) struct Turn {
    /// The number of the operation that runs: it is the same each time the turn is done again.
    operation: u32,
    /// Deferred work and its results. Absent for most messages.
    long: Option<Box<Long>>,
}

#[derive(Default)]
struct Long {
    deferred: Option<(u32, LongWork)>,
    made: Vec<(u32, Made)>,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operation = self.operation;
        formatter.debug_tuple("Turn").field(&operation).finish()
    }
}

impl Clone for Turn {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Turn {
    /// Forgets all of one that was given up half-way, or that another follows.
    pub fn clear(&mut self) {
        self.long = None;
    }

    /// Begins it, or begins it again.
    pub fn begin(&mut self) {
        self.operation = 0;
    }

    /// Notes that an operation begins which may take long.
    pub fn step(&mut self) {
        self.operation = self.operation.wrapping_add(1);
    }

    /// The result of the current operation, when an earlier try deferred it and it was done beside
    /// the worker.
    pub fn made(&mut self, find: impl Fn(&Made) -> bool) -> Option<Made> {
        let long = self.long.as_ref().filter(|_| may_defer())?;
        let mut made = long.made.iter();
        let (_, made) = made.find(|(at, made)| *at == self.operation && find(made))?;
        Some(made.clone())
    }

    /// Puts the work of this operation off. The failure that it has until then.
    #[cold]
    pub fn defer(&mut self, work: LongWork) -> Fault {
        let long = self.long.get_or_insert_default();
        // Nobody has done what was deferred first, so what follows from its failure is void.
        long.deferred.get_or_insert((self.operation, work));
        let detail = "work that takes long has not been done";
        Fault::new(Kind::Internal, Origin::Engine, detail)
    }

    /// Whether another try may defer work. What is deferred this often is never done with: the
    /// operations before it are not the same each time.
    pub fn may_be_tried(&self) -> bool {
        let made = self.long.as_ref().map_or(0, |long| long.made.len());
        made < TRIES_MAX
    }

    /// Ends it: what was deferred, to be done before it begins again.
    pub fn end(&mut self) -> Option<(u32, LongWork)> {
        let deferred = self.long.as_mut()?.deferred.take();
        if deferred.is_none() {
            self.long = None;
        }
        deferred
    }

    /// Keeps the result of what was deferred.
    pub fn keep(&mut self, operation: u32, made: Made) {
        let long = self.long.get_or_insert_default();
        long.made.push((operation, made));
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
/// waits for its result any more; evaluations of expressions look at it themselves.
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
    let result = Arc::clone(&place);
    let stack = expr::jq::stack();
    let work = move || {
        let _permit = permit;
        if flag.load(Ordering::Relaxed) {
            return;
        }
        let made = on_a_stack(stack, || expr::jq::stoppable(&flag, || work(&flag)));
        *lock(&place) = made;
    };
    services.blocking(Box::new(work)).await;
    let made = lock(&result).take();
    made.ok_or_else(|| {
        let detail = "work in the background has not been done";
        Fault::new(Kind::Internal, Origin::Engine, detail)
    })
}

/// Does work on a thread on which expressions may go as deep as on the worker, and values and
/// schemas nest. `None` when it panicked.
fn on_a_stack<T: Send>(expressions: usize, work: impl FnOnce() -> T + Send) -> Option<T> {
    let mut work = Some(work);
    let mut run = || {
        let work = work.take()?;
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
        Some(made) => made,
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
    /// A permit, when it is this one's turn.
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

    /// Takes one out that does not wait any more, with its waker.
    fn leave(&mut self, ticket: u64) -> Option<Waker> {
        let at = self.waiting.iter().position(|(it, _)| *it == ticket)?;
        self.waiting.remove(at).map(|(_, waker)| waker)
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
        if let Some((_, waker)) = queue.waiting.iter_mut().find(|(it, _)| *it == ticket) {
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

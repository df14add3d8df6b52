//! The queue of tasks that yield since they have more to do than others should wait for:
//! connections that always have frames or requests ready, flows of many rounds. One of them has its
//! turn, then everything that is ready and what sockets have is served, then the next one has its
//! turn. If all were woken at once, each request of another client would wait for all of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// More than a turn takes. The time since the queue was served last has the turns of those that
/// were woken then: if it counted for more turns than these, each time more would be woken.
const TURN: Duration = Duration::from_millis(4);
/// How many have their turns between two looks at the sockets at most.
const TURNS_MAX: usize = 16;

thread_local! {
    static QUEUE: YieldQueue = const {
        YieldQueue {
            is_served: Cell::new(false),
            waiting: RefCell::new(VecDeque::new()),
            server: Cell::new(None),
        }
    };
}

/// The tasks of a worker that have yielded and wait for their next turn.
struct YieldQueue {
    /// Whether [`serve_yield_queue`] runs on this thread.
    is_served: Cell<bool>,
    waiting: RefCell<VecDeque<Rc<Ticket>>>,
    /// Wakes the task that serves the queue, while that is empty.
    server: Cell<Option<Waker>>,
}

/// A place in the queue.
struct Ticket {
    waker: RefCell<Waker>,
    has_turn: Cell<bool>,
}

impl Ticket {
    fn new(waker: &Waker) -> Rc<Self> {
        Rc::new(Self {
            waker: RefCell::new(waker.clone()),
            has_turn: Cell::new(false),
        })
    }

    fn call(&self) {
        self.has_turn.set(true);
        let waker = self.waker.borrow().clone();
        waker.wake();
    }
}

impl YieldQueue {
    /// Adds a task that waits at a place of its own.
    fn enter(&self, ticket: Rc<Ticket>) {
        self.waiting.borrow_mut().push_back(ticket);
        if let Some(server) = self.server.take() {
            server.wake();
        }
    }

    /// The same, unless the task has its place already: it was woken by something else meanwhile.
    fn enter_once(&self, waker: &Waker) {
        let is_it = |it: &Rc<Ticket>| it.waker.borrow().will_wake(waker);
        let has_place = self.waiting.borrow().iter().any(is_it);
        if !has_place {
            self.enter(Ticket::new(waker));
        }
    }

    fn next(&self) -> Option<Rc<Ticket>> {
        self.waiting.borrow_mut().pop_front()
    }
}

/// Yields to the other tasks of the worker, once: to those that are ready, to those for whom its
/// sockets have something, and to those that have yielded before.
///
/// Something else that wakes the task does not bring its turn forward: a client could send a byte
/// to each of many connections for that.
pub async fn yield_now() {
    if !QUEUE.with(|queue| queue.is_served.get()) {
        return tokio::task::yield_now().await;
    }
    let mut own: Option<Rc<Ticket>> = None;
    poll_fn(|context| {
        let Some(ticket) = &own else {
            let ticket = Ticket::new(context.waker());
            own = Some(Rc::clone(&ticket));
            QUEUE.with(|queue| queue.enter(ticket));
            return Poll::Pending;
        };
        if ticket.has_turn.get() {
            return Poll::Ready(());
        }
        ticket.waker.borrow_mut().clone_from(context.waker());
        Poll::Pending
    })
    .await;
}

/// The same within a `poll`, which is to return [`Poll::Pending`] then.
pub fn poll_yield(context: &mut Context<'_>) {
    QUEUE.with(|queue| match queue.is_served.get() {
        true => queue.enter_once(context.waker()),
        // Its first poll only has the task woken, behind what sockets have.
        false => drop(pin!(tokio::task::yield_now()).poll(context)),
    });
}

/// Wakes the tasks of this thread that have yielded, one between any two looks of the runtime at
/// its sockets, and a few when the worker is busy. It never ends; without it all that have yielded
/// are woken together.
pub async fn serve_yield_queue() {
    let _guard = ServingGuard::new();
    loop {
        poll_fn(|context| {
            QUEUE.with(|queue| {
                if !queue.waiting.borrow().is_empty() {
                    return Poll::Ready(());
                }
                queue.server.set(Some(context.waker().clone()));
                Poll::Pending
            })
        })
        .await;
        let before = Instant::now();
        tokio::task::yield_now().await;
        for _ in 0..turns_after(before.elapsed()) {
            let Some(next) = QUEUE.with(YieldQueue::next) else {
                break;
            };
            next.call();
        }
    }
}

/// How many have their turns when everything else that was ready has taken so long: one, and more
/// on a worker that is busy, where a single one in each round would leave those that wait next to
/// nothing.
fn turns_after(others: Duration) -> usize {
    let turns = others.as_micros() / TURN.as_micros();
    usize::try_from(turns).map_or(TURNS_MAX, |it| it.clamp(1, TURNS_MAX))
}

/// While this exists the queue of the thread is served.
struct ServingGuard;

impl ServingGuard {
    fn new() -> Self {
        QUEUE.with(|queue| queue.is_served.set(true));
        Self
    }
}

impl Drop for ServingGuard {
    fn drop(&mut self) {
        // The thread may be at its end, with nobody who waits.
        let _ = QUEUE.try_with(|queue| {
            queue.is_served.set(false);
            while let Some(next) = queue.next() {
                next.call();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::task::spawn_local;

    use super::*;

    fn on_a_worker<F: Future>(work: F) -> F::Output {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().build_local(Default::default());
        runtime.unwrap().block_on(work)
    }

    /// How many turns the others take while somebody is answered so many times over a socket.
    async fn turns_meanwhile(others: usize, rounds: usize) -> (usize, Vec<usize>) {
        let turns: Rc<Vec<Cell<usize>>> = Rc::new((0..others).map(|_| Cell::new(0)).collect());
        for other in 0..others {
            let turns = Rc::clone(&turns);
            spawn_local(async move {
                loop {
                    turns[other].set(turns[other].get() + 1);
                    yield_now().await;
                }
            });
        }
        let (mut client, mut server) = UnixStream::pair().unwrap();
        spawn_local(async move {
            let mut byte = [0];
            while server.read_exact(&mut byte).await.is_ok() {
                server.write_all(&byte).await.unwrap();
            }
        });
        for round in 0..rounds {
            client.write_all(&[round as u8]).await.unwrap();
            let mut byte = [0];
            client.read_exact(&mut byte).await.unwrap();
            assert_eq!(byte, [round as u8]);
        }
        let turns: Vec<usize> = turns.iter().map(Cell::get).collect();
        (turns.iter().sum(), turns)
    }

    #[test]
    fn many_that_yield_stand_before_nobody() {
        on_a_worker(async {
            spawn_local(serve_yield_queue());
            let (sum, each) = turns_meanwhile(50, 100).await;
            // The first turn of each, and a few for each time that sockets are looked at.
            assert!(sum <= 50 + 600, "{sum}");
            let least = each.iter().min().unwrap();
            let most = each.iter().max().unwrap();
            assert!(*least > 1 && most - least <= 1, "turns go round: {each:?}");
        });
    }

    #[test]
    fn who_yields_on_a_busy_worker_has_a_share_of_it() {
        assert_eq!(turns_after(Duration::from_micros(10)), 1);
        assert_eq!(turns_after(Duration::from_millis(9)), 2);
        assert_eq!(turns_after(Duration::from_secs(60)), TURNS_MAX);
    }

    #[test]
    fn all_have_their_turns_where_nobody_serves_the_queue() {
        on_a_worker(async {
            let (sum, _) = turns_meanwhile(5, 20).await;
            assert!(sum > 20, "{sum}");
        });
    }

    #[test]
    fn nobody_is_forgotten_when_the_queue_is_served_no_more() {
        on_a_worker(async {
            let server = spawn_local(serve_yield_queue());
            tokio::task::yield_now().await;
            let waiting = spawn_local(async {
                for _ in 0..10 {
                    yield_now().await;
                }
            });
            tokio::task::yield_now().await;
            server.abort();
            waiting.await.unwrap();
        });
    }

    #[test]
    fn what_else_wakes_a_task_does_not_bring_its_turn_forward() {
        on_a_worker(async {
            let _served = ServingGuard::new();
            let mut yielding = pin!(yield_now());
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..3 {
                assert!(yielding.as_mut().poll(&mut context).is_pending());
            }
            QUEUE.with(|queue| queue.next().unwrap().call());
            assert!(yielding.as_mut().poll(&mut context).is_ready());
        });
    }
}

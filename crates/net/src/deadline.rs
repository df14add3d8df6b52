//! Time-outs that cost a store, not a timer.
//!
//! Every connection has a [`Deadline`]: moving it writes one number. One task of the worker sleeps
//! until the earliest of them, looks which have really passed, and wakes their tasks. Resolution is
//! [`RESOLUTION`]: deadlines never fire early and at most about that much late.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

/// How exact deadlines are.
pub const RESOLUTION: Duration = Duration::from_millis(5);

const NEVER: u64 = u64::MAX;

/// The deadlines of one worker.
#[derive(Clone)]
pub struct Deadlines {
    shared: Rc<Shared>,
}

struct Shared {
    origin: Instant,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    /// When the sweeper will look next, in microseconds from the origin.
    next: Cell<u64>,
    sweeper: RefCell<Option<Waker>>,
}

#[derive(Default)]
struct Slot {
    /// In microseconds from the origin.
    at: u64,
    expired: bool,
    waker: Option<Waker>,
}

/// The deadline of one task. Dropping it frees its place.
pub struct Deadline {
    shared: Rc<Shared>,
    index: usize,
    /// The latest that it may be set to, in microseconds from the origin.
    cap: Cell<u64>,
}

impl Deadlines {
    /// No deadlines yet. Somebody must run [`Deadlines::sweep`] on this thread.
    pub fn new() -> Self {
        Self {
            shared: Rc::new(Shared {
                origin: Instant::now(),
                slots: RefCell::new(Vec::new()),
                free: RefCell::new(Vec::new()),
                next: Cell::new(NEVER),
                sweeper: RefCell::new(None),
            }),
        }
    }

    /// A new deadline that is not set.
    pub fn add(&self) -> Deadline {
        let slot = Slot {
            at: NEVER,
            expired: false,
            waker: None,
        };
        let mut slots = self.shared.slots.borrow_mut();
        let index = match self.shared.free.borrow_mut().pop() {
            Some(index) => index,
            None => {
                slots.push(Slot::default());
                slots.len() - 1
            }
        };
        if let Some(place) = slots.get_mut(index) {
            *place = slot;
        }
        Deadline {
            shared: Rc::clone(&self.shared),
            index,
            cap: Cell::new(NEVER),
        }
    }

    /// Wakes every task that waits with a deadline, so that it looks again at what has changed.
    pub fn wake_all(&self) {
        for slot in self.shared.slots.borrow_mut().iter_mut() {
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }

    /// Wakes tasks whose deadline has passed, for ever.
    pub async fn sweep(self) {
        let shared = self.shared;
        let mut sleep = pin!(tokio::time::sleep(Duration::from_secs(3600)));
        loop {
            let earliest = shared.wake_expired();
            let soonest = shared.now() + RESOLUTION.as_micros() as u64;
            let next = earliest.max(soonest);
            shared.next.set(next);
            if earliest != NEVER {
                sleep
                    .as_mut()
                    .reset(shared.origin + Duration::from_micros(next));
            }
            poll_fn(|context| {
                *shared.sweeper.borrow_mut() = Some(context.waker().clone());
                if shared.next.get() < next {
                    return Poll::Ready(());
                }
                if earliest == NEVER {
                    Poll::Pending
                } else {
                    sleep.as_mut().poll(context)
                }
            })
            .await;
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.origin.elapsed().as_micros() as u64
    }

    /// Wakes the tasks of passed deadlines and returns the earliest of the others.
    fn wake_expired(&self) -> u64 {
        let now = self.now();
        let mut earliest = NEVER;
        for slot in self.slots.borrow_mut().iter_mut() {
            if slot.at > now {
                earliest = earliest.min(slot.at);
                continue;
            }
            slot.at = NEVER;
            slot.expired = true;
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
        earliest
    }
}

impl Deadline {
    /// Moves the deadline to `duration` after `now`, or to its cap when that is earlier.
    #[inline]
    pub fn set(&self, now: Instant, duration: Duration) {
        let at = (now - self.shared.origin + duration).as_micros() as u64;
        let at = at.min(self.cap.get());
        if let Some(slot) = self.shared.slots.borrow_mut().get_mut(self.index) {
            slot.at = at;
            slot.expired = false;
        }
        if at < self.shared.next.get() {
            self.shared.next.set(at);
            if let Some(waker) = self.shared.sweeper.borrow_mut().take() {
                waker.wake();
            }
        }
    }

    /// From now on the deadline is never set to a later time than `duration` after `now`.
    pub fn cap(&self, now: Instant, duration: Duration) {
        let at = (now - self.shared.origin + duration).as_micros() as u64;
        self.cap.set(at);
    }

    /// Takes the cap away. The deadline stays where it is until it is set again.
    #[inline]
    pub fn lift(&self) {
        self.cap.set(NEVER);
    }

    /// Whether the time of the cap is over.
    pub fn is_over(&self) -> bool {
        self.cap.get() <= self.shared.now()
    }

    /// Takes the deadline away.
    pub fn clear(&self) {
        if let Some(slot) = self.shared.slots.borrow_mut().get_mut(self.index) {
            slot.at = NEVER;
            slot.expired = false;
        }
    }

    /// Ready when the deadline has passed; the task is woken then.
    #[inline]
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut slots = self.shared.slots.borrow_mut();
        let Some(slot) = slots.get_mut(self.index) else {
            return Poll::Pending;
        };
        if slot.expired {
            return Poll::Ready(());
        }
        match &mut slot.waker {
            Some(waker) if waker.will_wake(context.waker()) => {}
            waker => *waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some(slot) = self.shared.slots.borrow_mut().get_mut(self.index) {
            *slot = Slot {
                at: NEVER,
                expired: false,
                waker: None,
            };
        }
        self.shared.free.borrow_mut().push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true);
        runtime
            .build_local(Default::default())
            .unwrap()
            .block_on(test);
    }

    async fn passed(deadline: &Deadline) {
        poll_fn(|context| deadline.poll(context)).await;
    }

    #[test]
    fn a_cap_bounds_whatever_is_set() {
        run(async {
            let deadlines = Deadlines::new();
            tokio::task::spawn_local(deadlines.clone().sweep());
            let deadline = deadlines.add();
            let start = Instant::now();
            deadline.cap(start, Duration::from_millis(300));
            deadline.set(start, Duration::from_secs(10));
            passed(&deadline).await;
            let elapsed = start.elapsed();
            assert!(elapsed >= Duration::from_millis(300), "{elapsed:?}");
            assert!(
                elapsed < Duration::from_millis(320) && deadline.is_over(),
                "{elapsed:?}"
            );
            deadline.lift();
            assert!(!deadline.is_over());
            deadline.set(Instant::now(), Duration::from_secs(10));
            passed(&deadline).await;
            assert!(start.elapsed() >= Duration::from_secs(10));
        });
    }

    #[test]
    fn it_fires_when_it_is_due_and_not_before() {
        run(async {
            let deadlines = Deadlines::new();
            tokio::task::spawn_local(deadlines.clone().sweep());
            let deadline = deadlines.add();
            let start = Instant::now();
            deadline.set(start, Duration::from_secs(10));
            passed(&deadline).await;
            let elapsed = start.elapsed();
            assert!(elapsed >= Duration::from_secs(10), "{elapsed:?}");
            assert!(
                elapsed <= Duration::from_secs(10) + 2 * RESOLUTION,
                "{elapsed:?}"
            );
        });
    }

    #[test]
    fn moving_it_later_or_earlier_counts() {
        run(async {
            let deadlines = Deadlines::new();
            tokio::task::spawn_local(deadlines.clone().sweep());
            let (late, early) = (deadlines.add(), deadlines.add());
            let start = Instant::now();
            late.set(start, Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(900)).await;
            late.set(Instant::now(), Duration::from_secs(60));
            early.set(Instant::now(), Duration::from_secs(3));
            passed(&early).await;
            assert_eq!(start.elapsed().as_secs(), 3);
            passed(&late).await;
            assert_eq!(start.elapsed().as_secs(), 60);
        });
    }

    #[test]
    fn a_cleared_or_dropped_one_never_fires() {
        run(async {
            let deadlines = Deadlines::new();
            tokio::task::spawn_local(deadlines.clone().sweep());
            let first = deadlines.add();
            first.set(Instant::now(), Duration::from_secs(1));
            drop(first);
            let second = deadlines.add();
            second.set(Instant::now(), Duration::from_secs(1));
            second.clear();
            let wait = tokio::time::timeout(Duration::from_secs(100), passed(&second));
            assert!(wait.await.is_err());
        });
    }
}

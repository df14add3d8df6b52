//! Time-outs that cost a store, not a timer.
//!
//! Every connection has a [`Deadline`]: moving it writes one number. One task of the worker sleeps
//! until the next bucket of a timer wheel comes up, looks which of its deadlines have really
//! passed, and wakes their tasks. Resolution is [`RESOLUTION`]: deadlines never fire early and at
//! most about that much late.

mod slots;
mod wheel;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use wheel::Wheel;

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
    wheel: RefCell<Wheel>,
    sweeper: RefCell<Option<Waker>>,
}

/// The deadline of one task. Dropping it frees its slot.
pub struct Deadline {
    shared: Rc<Shared>,
    id: u32,
    /// The latest that it may be set to, in microseconds from the origin.
    cap: Cell<u64>,
}

impl Deadlines {
    /// No deadlines yet. [`Deadlines::sweep`] must run on this thread.
    pub fn new() -> Self {
        Self {
            shared: Rc::new(Shared {
                origin: Instant::now(),
                wheel: RefCell::new(Wheel::new()),
                sweeper: RefCell::new(None),
            }),
        }
    }

    /// A new deadline that is not set.
    pub fn add(&self) -> Deadline {
        Deadline {
            shared: Rc::clone(&self.shared),
            id: self.shared.wheel.borrow_mut().slots.add(),
            cap: Cell::new(NEVER),
        }
    }

    /// Ready after this time.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = ()> + use<> {
        self.sleep_until(Instant::now() + time)
    }

    /// Ready at this time.
    pub fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + use<> {
        let deadline = self.add();
        deadline.set(at, Duration::ZERO);
        poll_fn(move |context| deadline.poll(context))
    }

    /// Wakes every task that waits with a deadline, so that it looks again at what has changed.
    pub fn wake_all(&self) {
        let wakers = self.shared.wheel.borrow_mut().slots.take_wakers();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes tasks whose deadline has passed, for ever.
    pub async fn sweep(self) {
        let shared = self.shared;
        let mut sleep = pin!(tokio::time::sleep(Duration::from_secs(3600)));
        loop {
            let next = shared.wake_expired();
            if next != NEVER {
                sleep
                    .as_mut()
                    .reset(shared.origin + Duration::from_micros(next));
            }
            poll_fn(|context| {
                *shared.sweeper.borrow_mut() = Some(context.waker().clone());
                if shared.wheel.borrow().next() < next {
                    return Poll::Ready(());
                }
                if next == NEVER {
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

    /// The time in microseconds from the origin, rounded up: what has not come yet is not over.
    #[inline]
    fn at(&self, now: Instant, duration: Duration) -> u64 {
        let after = now.saturating_duration_since(self.origin);
        let after = after.saturating_add(duration);
        let micros = u64::from(after.subsec_nanos().div_ceil(1000));
        let seconds = after.as_secs().saturating_mul(1_000_000);
        seconds.saturating_add(micros).min(NEVER - 1)
    }

    /// Wakes the tasks of passed deadlines, and gives the time of the next look.
    fn wake_expired(&self) -> u64 {
        let now = self.now();
        // Not borrowed while a task is woken: that may drop the task, with its deadlines.
        while let Some(waker) = { self.wheel.borrow_mut().expire(now) } {
            waker.wake();
        }
        self.wheel.borrow().next()
    }

    #[cold]
    /// Goes by its own clock: a caller's `now` may be old, or a time to come.
    fn file(&self, id: u32) {
        let now = self.now();
        if self.wheel.borrow_mut().file(id, now)
            && let Some(waker) = self.sweeper.borrow_mut().take()
        {
            waker.wake();
        }
    }
}

impl Deadline {
    /// Moves the deadline to `duration` after `now`, or to its cap when that is earlier.
    #[inline]
    pub fn set(&self, now: Instant, duration: Duration) {
        let at = self.shared.at(now, duration).min(self.cap.get());
        self.move_to(at);
    }

    #[inline]
    fn move_to(&self, at: u64) {
        let must_file = self.shared.wheel.borrow_mut().set(self.id, at);
        if must_file {
            self.shared.file(self.id);
        }
    }

    /// From now on, until [`Deadline::lift`], the deadline is never set to a later time than
    /// `duration` after `now`, nor to a later time than caps before this one allow. One that is set
    /// already is moved to the cap when that is earlier.
    pub fn cap(&self, now: Instant, duration: Duration) {
        let cap = self.shared.at(now, duration).min(self.cap.get());
        self.cap.set(cap);
        let is_later = |at: u64| at != NEVER && at > cap;
        let slot = |wheel: &mut Wheel| wheel.slots.get_mut(self.id).map(|it| it.at);
        let at = slot(&mut self.shared.wheel.borrow_mut());
        if at.is_some_and(is_later) {
            self.move_to(cap);
        }
    }

    /// Takes all caps away. The deadline stays where it is until it is set again.
    #[inline]
    pub fn lift(&self) {
        self.cap.set(NEVER);
    }

    /// Whether the time of the earliest cap is over: what timed out then has been given up by the
    /// one who set the cap, and says nothing about the peer.
    pub fn is_over(&self) -> bool {
        self.cap.get() <= self.shared.now()
    }

    /// Takes the deadline away.
    pub fn clear(&self) {
        self.shared.wheel.borrow_mut().set(self.id, NEVER);
    }

    /// Ready when the deadline has passed; the task is woken then.
    #[inline]
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut wheel = self.shared.wheel.borrow_mut();
        let Some(slot) = wheel.slots.get_mut(self.id) else {
            return Poll::Pending;
        };
        if slot.expired {
            return Poll::Ready(());
        }
        if let Some(waker) = &slot.waker
            && waker.will_wake(context.waker())
        {
            return Poll::Pending;
        }
        let replaced = slot.waker.replace(context.waker().clone());
        // Not dropped while the wheel is borrowed: it may be the last of its task.
        drop(wheel);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let removed = self.shared.wheel.borrow_mut().remove(self.id);
        drop(removed);
    }
}

#[cfg(test)]
mod tests;

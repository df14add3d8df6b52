//! Runs one test: a single thread, wakers of its own and a clock that jumps to the next timer when
//! nothing is left to do.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use component::handler::LocalFuture;

/// The most time that may pass in a test.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// How often work may go on in one test: more is a loop without end.
const POLLS_MAX: u64 = 1_000_000;

/// The time of a test and who waits for when.
#[derive(Clone, Default)]
pub(super) struct Clock(Rc<State>);

#[derive(Default)]
struct State {
    passed: Cell<Duration>,
    timers: RefCell<BTreeMap<(Duration, u64), Waker>>,
    next: Cell<u64>,
}

impl Clock {
    /// How much time has passed.
    pub fn passed(&self) -> Duration {
        self.0.passed.get()
    }

    /// Waits.
    pub fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        let number = self.0.next.get();
        self.0.next.set(number + 1);
        Box::pin(Sleep {
            key: (self.passed().saturating_add(time), number),
            clock: self.clone(),
        })
    }

    /// Jumps to the next timer; false when there is none.
    fn advance(&self) -> bool {
        let next = self.0.timers.borrow_mut().pop_first();
        let Some(((at, _), waker)) = next else {
            return false;
        };
        self.0.passed.set(at.max(self.passed()));
        waker.wake();
        true
    }
}

struct Sleep {
    key: (Duration, u64),
    clock: Clock,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.clock.passed() >= self.key.0 {
            return Poll::Ready(());
        }
        let mut timers = self.clock.0.timers.borrow_mut();
        timers.insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // What nobody waits for any more must not move the clock.
        self.clock.0.timers.borrow_mut().remove(&self.key);
    }
}

/// Whether a piece of work can go on.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A piece of work and whether it can go on.
struct Task<'a, T> {
    work: LocalFuture<'a, T>,
    flag: Arc<Flag>,
}

impl<'a, T> Task<'a, T> {
    fn new(work: LocalFuture<'a, T>) -> Self {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        Self { work, flag }
    }

    /// Lets it go on if it can; whether it could, and what it has come to.
    fn go_on(&mut self) -> (bool, Option<T>) {
        if !self.flag.0.swap(false, Ordering::Relaxed) {
            return (false, None);
        }
        let waker = Waker::from(Arc::clone(&self.flag));
        match self.work.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => (true, Some(result)),
            Poll::Pending => (true, None),
        }
    }
}

/// Where work comes from while a test runs.
pub(super) trait Supply<'a> {
    /// Work that has been spawned since it was asked last.
    fn spawned(&self) -> Vec<LocalFuture<'a, ()>>;

    /// Whether the test is over for good.
    fn is_aborted(&self) -> bool;
}

/// Why a test did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// It was aborted.
    Aborted,
    /// Nothing will ever wake the flow.
    Waits,
    /// Nothing will ever wake what goes on behind the flow.
    BackgroundWaits,
    /// Too much time has passed.
    TooLong,
    /// It goes on and on.
    Endless,
}

impl Stuck {
    /// In words.
    pub fn message(self) -> &'static str {
        match self {
            Self::Aborted => "the test was aborted",
            Self::Waits => "the flow waits for something that never comes",
            Self::BackgroundWaits => {
                "work that goes on behind the flow waits for something that never comes"
            }
            Self::TooLong => "the flow has not ended within 24 hours of the test's time",
            Self::Endless => "the flow goes on without end",
        }
    }
}

/// Runs work to its end, and all work that is spawned. The result of the first, and the time when
/// it was there.
pub(super) fn run<'a, T>(
    clock: &Clock,
    supply: &impl Supply<'a>,
    main: LocalFuture<'a, T>,
) -> Result<(T, Duration), Stuck> {
    let mut main = Task::new(main);
    let mut result = None;
    let mut tasks: Vec<Task<'a, ()>> = Vec::new();
    for _ in 0..POLLS_MAX {
        let mut goes_on = false;
        if result.is_none() {
            let (went_on, ended) = main.go_on();
            goes_on |= went_on;
            result = ended.map(|ended| (ended, clock.passed()));
        }
        tasks.extend(supply.spawned().into_iter().map(Task::new));
        tasks.retain_mut(|task| {
            let (went_on, ended) = task.go_on();
            goes_on |= went_on;
            ended.is_none()
        });
        if supply.is_aborted() {
            return Err(Stuck::Aborted);
        }
        if goes_on {
            continue;
        }
        if tasks.is_empty()
            && let Some(result) = result
        {
            return Ok(result);
        }
        if !clock.advance() {
            return Err(match result {
                Some(_) => Stuck::BackgroundWaits,
                None => Stuck::Waits,
            });
        }
        if clock.passed() > TIME_MAX {
            return Err(Stuck::TooLong);
        }
    }
    Err(Stuck::Endless)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Works(RefCell<Vec<LocalFuture<'static, ()>>>);

    impl Supply<'static> for Works {
        fn spawned(&self) -> Vec<LocalFuture<'static, ()>> {
            self.0.take()
        }

        fn is_aborted(&self) -> bool {
            false
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_clock_jumps_to_the_next_timer() {
        let clock = Clock::default();
        let inner = clock.clone();
        let work = Box::pin(async move {
            inner.sleep(seconds(30)).await;
            inner.sleep(seconds(3)).await;
            inner.passed()
        });
        let ended = run(&clock, &Works::default(), work);
        assert_eq!(ended, Ok((seconds(33), seconds(33))));
    }

    #[test]
    fn a_timer_that_nobody_waits_for_moves_nothing() {
        let clock = Clock::default();
        let inner = clock.clone();
        let work = Box::pin(async move {
            let mut long = inner.sleep(seconds(100));
            let mut short = inner.sleep(seconds(1));
            std::future::poll_fn(|context| {
                let _ = long.as_mut().poll(context);
                short.as_mut().poll(context)
            })
            .await;
        });
        assert_eq!(run(&clock, &Works::default(), work), Ok(((), seconds(1))));
        assert_eq!(clock.passed(), seconds(1));
    }

    #[test]
    fn spawned_work_is_done_before_the_test_ends() {
        let (clock, works) = (Clock::default(), Works::default());
        let done = Rc::new(Cell::new(false));
        let (inner, told) = (clock.clone(), Rc::clone(&done));
        works.0.borrow_mut().push(Box::pin(async move {
            inner.sleep(seconds(5)).await;
            told.set(true);
        }));
        let ended = run(&clock, &works, Box::pin(async { 7 }));
        assert_eq!(ended, Ok((7, Duration::ZERO)));
        assert!(done.get());
    }

    #[test]
    fn what_never_ends_is_told() {
        let clock = Clock::default();
        let for_ever = || -> LocalFuture<'static, ()> { Box::pin(std::future::pending()) };
        assert_eq!(
            run(&clock, &Works::default(), for_ever()),
            Err(Stuck::Waits)
        );
        let works = Works::default();
        works.0.borrow_mut().push(for_ever());
        let ended = run(&clock, &works, Box::pin(async {}));
        assert_eq!(ended, Err(Stuck::BackgroundWaits));
        let inner = clock.clone();
        let poller = Box::pin(async move {
            loop {
                inner.sleep(seconds(3600)).await;
            }
        });
        let ended: Result<((), _), _> = run(&clock, &Works::default(), poller);
        assert_eq!(ended, Err(Stuck::TooLong));
    }
}

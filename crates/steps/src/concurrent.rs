//! Futures that run at the same time within one task. Each has a waker of its own, so that a wake
//! costs the one future that it is for, whatever their number. Dropping the crowd cancels all.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use component::handler::LocalFuture;
use component::long_work::{ROW_ROUNDS, poll_yield};
use expr::jq::rounds;

/// How many futures may end in a row before others of the worker have their turn.
const ROW_MAX: u32 = 64;

/// Futures that run at the same time, each under a number of the caller's.
pub(crate) struct Crowd<'a, T> {
    places: Vec<Place<'a, T>>,
    free: Vec<usize>,
    woken: Arc<Mutex<Woken>>,
    in_a_row: u32,
    /// The rounds that the thread had done when the row began.
    rounds_before: u64,
}

struct Place<'a, T> {
    work: Option<(usize, LocalFuture<'a, T>)>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// The places that have been woken, in this order, and who is to be told.
#[derive(Default)]
struct Woken {
    places: VecDeque<usize>,
    task: Option<Waker>,
}

/// Wakes one place.
struct Bell {
    place: usize,
    is_woken: AtomicBool,
    woken: Arc<Mutex<Woken>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let task = {
            let mut woken = lock(&self.woken);
            woken.places.push_back(self.place);
            woken.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}

fn lock(woken: &Mutex<Woken>) -> MutexGuard<'_, Woken> {
    woken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a, T> Crowd<'a, T> {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            woken: Arc::default(),
            in_a_row: 0,
            rounds_before: rounds(),
        }
    }

    /// How many have not ended.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Adds a future. It begins with the next wait for one that ends.
    pub fn push(&mut self, number: usize, future: LocalFuture<'a, T>) {
        let place = self.free.pop().unwrap_or_else(|| self.add_place());
        if let Some(place) = self.places.get_mut(place) {
            place.work = Some((number, future));
            place.bell.wake_by_ref();
        }
    }

    fn add_place(&mut self) -> usize {
        let place = self.places.len();
        let bell = Arc::new(Bell {
            place,
            is_woken: AtomicBool::new(false),
            woken: Arc::clone(&self.woken),
        });
        let waker = Waker::from(Arc::clone(&bell));
        let work = None;
        self.places.push(Place { work, bell, waker });
        place
    }

    /// The next one that ends, with its number; `None` when there is none left.
    pub async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, T)>> {
        if self.len() == 0 {
            return Poll::Ready(None);
        }
        if self.in_a_row == 0 {
            // Others of the worker have had their turn.
            self.begin_row();
        } else if self.in_a_row == ROW_MAX || self.is_dear() {
            return self.yield_now(context);
        }
        // What wakes itself meanwhile has its turn after the others of the worker.
        let turns = {
            let mut woken = lock(&self.woken);
            woken.task = Some(context.waker().clone());
            woken.places.len()
        };
        for _ in 0..turns {
            let Some(place) = lock(&self.woken).places.pop_front() else {
                break;
            };
            if let Some(ended) = self.poll_place(place) {
                self.in_a_row += 1;
                return Poll::Ready(Some(ended));
            }
            // Those that wait for something else now may have done a lot before.
            if self.is_dear() {
                return self.yield_now(context);
            }
        }
        self.in_a_row = 0;
        Poll::Pending
    }

    /// Whether the expressions of this row have taken long.
    fn is_dear(&self) -> bool {
        rounds().wrapping_sub(self.rounds_before) >= ROW_ROUNDS
    }

    fn yield_now<O>(&mut self, context: &mut Context<'_>) -> Poll<O> {
        self.in_a_row = 0;
        poll_yield(context);
        Poll::Pending
    }

    fn begin_row(&mut self) {
        self.in_a_row = 0;
        self.rounds_before = rounds();
    }

    fn poll_place(&mut self, number: usize) -> Option<(usize, T)> {
        let place = self.places.get_mut(number)?;
        place.bell.is_woken.store(false, Ordering::Release);
        let (key, future) = place.work.as_mut()?;
        let key = *key;
        match future.as_mut().poll(&mut Context::from_waker(&place.waker)) {
            Poll::Pending => None,
            Poll::Ready(output) => {
                place.work = None;
                self.free.push(number);
                Some((key, output))
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Time slices for evaluating expressions of subscribers: on a worker one at a time, short, and
//! with a pause behind each in which nobody evaluates anything.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// After so many steps a time slice ends. An evaluation that has begun is not interrupted: one has
/// at most [`super::STEPS_MAX`] more, which together are some 4 ms.
const SLICE_STEPS: u64 = 10_000;
/// After this time a time slice ends in any case.
const SLICE_TIME: Duration = Duration::from_millis(2);
/// The shortest pause that is worth a timer. What is owed below that is kept for the next one.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(100);

thread_local! {
    /// A worker is a thread. Whoever has the lock may evaluate; the lock is fair.
    static WORKER: Arc<Mutex<Owed>> = Arc::default();
}

/// The pause that is owed for what has been evaluated.
#[derive(Debug, Default)]
struct Owed {
    pause: Duration,
    since: Option<Instant>,
}

/// How long the pauses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// As long as the evaluations: they take at most half of a worker's time.
    Half,
    /// Seven times as long: at most an eighth.
    Eighth,
}

impl Share {
    fn pauses(self) -> u32 {
        match self {
            Self::Half => 1,
            Self::Eighth => 7,
        }
    }
}

/// The right to evaluate on this worker until it is dropped or used up.
#[derive(Debug)]
pub(crate) struct TimeSlice {
    /// None only while the next time slice is waited for.
    owed: Option<OwnedMutexGuard<Owed>>,
    steps: u64,
    began: Instant,
    /// Until when its time has been charged.
    charged: Instant,
}

impl TimeSlice {
    /// Waits for a time slice, and for what is left of the pause before it.
    pub async fn begin() -> Self {
        let owed = take().await;
        let now = Instant::now();
        Self {
            owed: Some(owed),
            steps: 0,
            began: now,
            charged: now,
        }
    }

    /// Charges what has just been evaluated. When that uses the time slice up, others have theirs,
    /// and this comes back after the pause with a new one.
    pub async fn spend(&mut self, steps: u64, share: Share) {
        self.steps = self.steps.saturating_add(steps);
        self.charge(share);
        if self.steps < SLICE_STEPS && self.charged - self.began < SLICE_TIME {
            return;
        }
        self.owed = None;
        tokio::task::yield_now().await;
        *self = Self::begin().await;
    }

    fn charge(&mut self, share: Share) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.charged);
        self.charged = now;
        if let Some(owed) = &mut self.owed {
            let pause = owed.pause.saturating_add(took * share.pauses());
            owed.pause = pause.min(PAUSE_MAX);
            owed.since = Some(now);
        }
    }
}

/// The lock, once the pause that is owed is over.
fn take() -> impl Future<Output = OwnedMutexGuard<Owed>> {
    let worker = WORKER.with(Arc::clone);
    async move {
        let mut owed = worker.lock_owned().await;
        let passed = owed.since.map_or(Duration::MAX, |it| it.elapsed());
        let pause = owed.pause.saturating_sub(passed);
        if pause >= PAUSE_MIN {
            tokio::time::sleep(pause).await;
            owed.pause = Duration::ZERO;
        } else {
            owed.pause = pause;
        }
        owed.since = Some(Instant::now());
        owed
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    fn local(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build_local(Default::default());
        runtime.unwrap().block_on(test);
    }

    /// Another task of the worker: how often it has run.
    fn other() -> Rc<Cell<u64>> {
        let count = Rc::new(Cell::new(0));
        let counted = Rc::clone(&count);
        tokio::task::spawn_local(async move {
            loop {
                counted.set(counted.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        count
    }

    #[test]
    fn others_have_their_turn_whenever_one_is_used_up() {
        local(async {
            let count = other();
            let mut slice = TimeSlice::begin().await;
            for _ in 0..20 {
                let before = count.get();
                slice.spend(SLICE_STEPS, Share::Half).await;
                assert!(count.get() > before);
            }
        });
    }

    #[test]
    fn pauses_are_as_long_as_evaluations_or_seven_times_as_long() {
        local(async {
            let took = Duration::from_millis(5);
            for (share, times) in [(Share::Half, 1), (Share::Eighth, 7)] {
                let mut slice = TimeSlice::begin().await;
                slice.charged -= took;
                slice.charge(share);
                let owed = slice.owed.as_ref().unwrap();
                let (pause, since) = (owed.pause, owed.since.unwrap());
                assert!(pause >= took * times, "{pause:?}");
                // Nobody evaluates anything before it is over.
                drop(slice);
                drop(TimeSlice::begin().await);
                assert!(since.elapsed() >= pause);
            }
            let mut slice = TimeSlice::begin().await;
            slice.charged -= PAUSE_MAX * 2;
            slice.charge(Share::Eighth);
            assert_eq!(slice.owed.as_ref().unwrap().pause, PAUSE_MAX);
        });
    }

    #[test]
    fn one_at_a_time_and_in_the_order_of_asking() {
        local(async {
            let (inside, order) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let tasks: Vec<_> = (0..10)
                .map(|number| {
                    let (inside, order) = (Rc::clone(&inside), Rc::clone(&order));
                    tokio::task::spawn_local(async move {
                        let mut slice = TimeSlice::begin().await;
                        assert_eq!(inside.replace(1), 0);
                        assert_eq!(order.replace(number + 1), number);
                        inside.set(0);
                        slice.spend(SLICE_STEPS, Share::Half).await;
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    }

    #[test]
    fn one_who_leaves_while_waiting_blocks_nobody() {
        local(async {
            let slice = TimeSlice::begin().await;
            let waiting = tokio::task::spawn_local(async { drop(TimeSlice::begin().await) });
            tokio::task::yield_now().await;
            waiting.abort();
            drop(slice);
            drop(TimeSlice::begin().await);
        });
    }
}

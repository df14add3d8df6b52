//! Crowds of futures, driven by hand.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;

use component::long_work::yield_now;

use super::*;

/// Counts how often a task is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A place that a test opens, and how often whoever waits there has been polled.
#[derive(Clone, Default)]
struct Gate {
    is_open: Rc<Cell<bool>>,
    polls: Rc<Cell<usize>>,
    waker: Rc<Cell<Option<Waker>>>,
}

impl Gate {
    fn wait(&self) -> LocalFuture<'static, ()> {
        let gate = self.clone();
        Box::pin(poll_fn(move |context| {
            gate.polls.set(gate.polls.get() + 1);
            gate.waker.set(Some(context.waker().clone()));
            match gate.is_open.get() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }))
    }

    fn open(&self) {
        self.is_open.set(true);
        self.waker.take().unwrap().wake();
    }
}

fn poll<T>(crowd: &mut Crowd<'_, T>, count: &Arc<Count>) -> Poll<Option<(usize, T)>> {
    let waker = Waker::from(Arc::clone(count));
    crowd.poll_next(&mut Context::from_waker(&waker))
}

#[test]
fn a_wake_polls_only_the_future_that_it_is_for() {
    let count = Arc::<Count>::default();
    let gates: Vec<Gate> = (0..100).map(|_| Gate::default()).collect();
    let mut crowd = Crowd::new();
    for (number, gate) in gates.iter().enumerate() {
        crowd.push(number, gate.wait());
    }
    assert_eq!(poll(&mut crowd, &count), Poll::Pending);
    gates[70].open();
    gates[30].open();
    assert_eq!(count.0.load(Ordering::Relaxed), 1, "one wake is enough");
    assert_eq!(poll(&mut crowd, &count), Poll::Ready(Some((70, ()))));
    assert_eq!(poll(&mut crowd, &count), Poll::Ready(Some((30, ()))));
    assert_eq!(poll(&mut crowd, &count), Poll::Pending);
    let polls: usize = gates.iter().map(|gate| gate.polls.get()).sum();
    assert_eq!((polls, crowd.len()), (102, 98));
}

#[test]
fn places_are_used_again_and_old_wakers_do_no_harm() {
    let count = Arc::<Count>::default();
    let (old, new) = (Gate::default(), Gate::default());
    let mut crowd = Crowd::new();
    crowd.push(1, old.wait());
    assert_eq!(poll(&mut crowd, &count), Poll::Pending);
    let stale = old.waker.take().unwrap();
    old.waker.set(Some(stale.clone()));
    old.open();
    assert_eq!(poll(&mut crowd, &count), Poll::Ready(Some((1, ()))));
    assert_eq!(poll(&mut crowd, &count), Poll::Ready(None));
    crowd.push(2, new.wait());
    stale.wake_by_ref();
    assert_eq!(poll(&mut crowd, &count), Poll::Pending);
    stale.wake();
    assert_eq!(poll(&mut crowd, &count), Poll::Pending);
    new.open();
    assert_eq!(poll(&mut crowd, &count), Poll::Ready(Some((2, ()))));
    assert_eq!(crowd.places.len(), 1);
}

#[test]
fn many_that_end_at_once_let_others_of_the_worker_have_their_turn() {
    let count = Arc::<Count>::default();
    let mut crowd = Crowd::new();
    (0..1000).for_each(|number| crowd.push(number, Box::pin(async {})));
    let (mut ended, mut pauses) = (0, 0);
    loop {
        match poll(&mut crowd, &count) {
            Poll::Ready(Some(_)) => ended += 1,
            Poll::Ready(None) => break,
            Poll::Pending => pauses += 1,
        }
    }
    assert_eq!((ended, pauses), (1000, 1000 / ROW_MAX));
    assert_eq!(count.0.load(Ordering::Relaxed), pauses as usize);
}

#[test]
fn what_wakes_itself_is_not_polled_twice_in_a_turn() {
    let count = Arc::<Count>::default();
    let mut crowd = Crowd::new();
    crowd.push(0, Box::pin(yield_now()));
    assert_eq!(poll(&mut crowd, &count), Poll::Pending);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert_eq!(poll(&mut crowd, &count), Poll::Ready(Some((0, ()))));
}

//! Futures that are dropped half-way: by a client that leaves, a branch that is too slow, a
//! time-out. None may leave anything behind.

use std::future::Future;
use std::task::{Context, Waker};

/// Makes a future, polls it once and drops it; then makes another one, polls it twice, and so on
/// until one ends: so a future is dropped at each of its awaits. `advance` lets what is waited for
/// come, between two polls; each await is tried before and after that. `check` looks at what is
/// left after each drop, and is told how often the future was polled.
///
/// # Panics
/// When the future does not end within 10,000 polls.
pub fn drop_at_every_await<F: Future>(
    mut make: impl FnMut() -> F,
    mut advance: impl FnMut(),
    mut check: impl FnMut(usize),
) -> usize {
    let mut context = Context::from_waker(Waker::noop());
    for polls in 1..10_000 {
        for advances_last in [false, true] {
            let mut future = Box::pin(make());
            for poll in 1..=polls {
                if future.as_mut().poll(&mut context).is_ready() {
                    return polls;
                }
                if poll < polls || advances_last {
                    advance();
                }
            }
            drop(future);
            check(polls);
        }
    }
    panic!("the future does not end");
}

/// Polls a future so many times and drops it. Between two polls `advance` lets others run, such as
/// tasks on real sockets. Says whether the future has ended.
pub async fn poll_and_drop<F: Future>(
    future: impl Future,
    times: usize,
    mut advance: impl FnMut() -> F,
) -> bool {
    let mut future = Box::pin(future);
    for _ in 0..times {
        let mut context = Context::from_waker(Waker::noop());
        if future.as_mut().poll(&mut context).is_ready() {
            return true;
        }
        advance().await;
    }
    false
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    /// Ends when it has been polled this often.
    async fn ends_at(polls: u32, begun: &Cell<u32>) {
        let mut left = polls;
        begun.set(begun.get() + 1);
        poll_fn(|_| {
            left -= 1;
            match left {
                0 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
    }

    #[test]
    fn it_is_dropped_at_each_await_before_and_after_what_it_waits_for() {
        let (begun, mut drops) = (Cell::new(0), Vec::new());
        let polls = drop_at_every_await(|| ends_at(4, &begun), || {}, |at| drops.push(at));
        assert_eq!((polls, begun.get()), (4, 7));
        assert_eq!(drops, [1, 1, 2, 2, 3, 3]);
    }
}

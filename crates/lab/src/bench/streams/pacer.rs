//! A thread that wakes the load at instants that are fixed in advance. The kernel's poll takes
//! whole milliseconds; a thread's sleep is far more exact.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::stamp;

/// It does not wake more often than this: what is due meanwhile is done together.
const STEP_MIN: u64 = 200;
/// How long it sleeps at most, so that it ends soon when told to.
const SLEEP_MAX: u64 = 50_000;

/// Wakes until it is dropped.
pub(super) struct Pacer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Wakes at `start` and at every `step` after it; both in microseconds, `start` since 1970.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(start: u64, step: u64, wake: mio::Waker) -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let thread = thread::Builder::new()
            .name("pacer".to_owned())
            .spawn(move || {
                let step = step.max(STEP_MIN);
                let mut next = start;
                while !flag.load(Ordering::Relaxed) {
                    let now = stamp::now();
                    if now < next {
                        let wait = (next - now).min(SLEEP_MAX);
                        thread::sleep(Duration::from_micros(wait));
                        continue;
                    }
                    // A load that is gone needs no waking.
                    let _ = wake.wake();
                    next = after(next, step, now);
                }
            })?;
        Ok(Self {
            is_over,
            thread: Some(thread),
        })
    }
}

/// The first instant of the schedule that is later than now.
fn after(last: u64, step: u64, now: u64) -> u64 {
    last + ((now - last) / step + 1) * step
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does nothing that panics.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_that_have_passed_are_left_out() {
        assert_eq!(after(100, 10, 100), 110);
        assert_eq!(after(100, 10, 109), 110);
        assert_eq!(after(100, 10, 135), 140);
    }

    #[test]
    fn a_poll_is_woken_in_time() {
        let mut poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(7)).unwrap();
        let mut events = mio::Events::with_capacity(8);
        let start = stamp::now() + 20_000;
        let pacer = Pacer::start(start, 1000, waker).unwrap();
        poll.poll(&mut events, Some(Duration::from_secs(10)))
            .unwrap();
        assert!(stamp::now() >= start);
        assert_eq!(events.iter().next().unwrap().token(), mio::Token(7));
        drop(pacer);
    }
}

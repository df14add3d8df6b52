//! A thread that wakes the load at instants that are fixed in advance. The kernel's poll takes
//! whole milliseconds; a thread's sleep is far more exact. And the instants of several topics.

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
    pub fn start(start: u64, step: u64, wake: Arc<mio::Waker>) -> io::Result<Self> {
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

/// When the events of all topics are due: topics are spread evenly over a period. Instants are
/// microseconds since 1970.
pub(super) struct Schedule {
    /// In microseconds; 0 for nothing that is ever due.
    period: u64,
    next: Vec<u64>,
}

impl Schedule {
    /// One with this period, in microseconds, that begins at `start`.
    pub fn new(period: u64, topics: usize, start: u64) -> Self {
        let count = topics as u64;
        let next = (0..count).map(|topic| start + period * topic / count);
        Self {
            period,
            next: next.collect(),
        }
    }

    /// The distance between the instants of all topics together.
    pub fn step(&self) -> Option<u64> {
        let step = self.period / (self.next.len() as u64).max(1);
        (self.period > 0).then_some(step.max(1))
    }

    /// The instants of a topic that have come, each once.
    pub fn due(&mut self, topic: usize, now: u64) -> impl Iterator<Item = u64> + use<> {
        let mut due = Vec::new();
        if let Some(next) = self.next.get_mut(topic).filter(|_| self.period > 0) {
            while *next <= now {
                due.push(*next);
                *next += self.period;
            }
        }
        due.into_iter()
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
        let waker = Arc::new(waker);
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

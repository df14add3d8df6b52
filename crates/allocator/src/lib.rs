//! The allocator of the process is mimalloc, and memory that is free goes back to the system when
//! load is over.
//!
//! The allocator gives memory back only while it is used: a thread that has become idle keeps what
//! it had freed. So a thread that has worked and rests now has it collect.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How often a thread looks whether it is time.
const TICK: Duration = Duration::from_secs(1);
/// With more processor time than this since the last tick, of a second, a thread is busy:
/// collecting would cost those who wait, and the memory is needed again.
const BUSY: Duration = Duration::from_millis(100);
/// With less work than this since the last time there is nothing to collect.
const WORTH: Duration = Duration::from_millis(20);
/// The least number of ticks between two times.
const TICKS_MIN: u32 = 10;
/// More than any machine has: 4 EiB.
const TOO_MUCH: usize = 1 << 62;

/// Has mimalloc linked. Its feature `override` makes it the `malloc` of the process, which Rust's
/// own allocator (`std::alloc::System`) calls.
///
/// It is not a `#[global_allocator]`: as one it is asked for each block by `mi_malloc_aligned`,
/// even if all that is wanted is what every block has. Above 1 KiB mimalloc 3 goes a long way then,
/// and takes more memory than it was asked for, unless the size is a power of two.
pub fn link_mimalloc() {
    let alloc: unsafe fn(&mimalloc::MiMalloc, Layout) -> *mut u8 = GlobalAlloc::alloc;
    black_box(alloc);
}

/// Where a thread takes its work from.
pub trait Queue<T> {
    /// The next piece of work; waits for it no longer than this where a time is given.
    ///
    /// # Errors
    /// When none has come, and when none can come any more.
    fn next(&self, wait: Option<Duration>) -> Result<T, RecvTimeoutError>;
}

impl<T> Queue<T> for Receiver<T> {
    fn next(&self, wait: Option<Duration>) -> Result<T, RecvTimeoutError> {
        match wait {
            Some(wait) => self.recv_timeout(wait),
            None => Ok(self.recv()?),
        }
    }
}

/// When a thread has its memory collected.
#[derive(Debug, Default)]
pub struct Release {
    /// The thread's processor time at the last tick.
    seen: Cell<Duration>,
    /// That at the last time.
    released: Cell<Duration>,
    ticks: Cell<u32>,
    /// When the last tick was, for [`Release::look`].
    ticked: Cell<Option<Instant>>,
}

impl Release {
    /// To be called on the thread each second.
    pub fn tick(&self) {
        if self.is_due(processor_time()) {
            collect();
            self.released.set(processor_time());
            self.seen.set(self.released.get());
        }
    }

    /// To be called on the thread as often as one likes. The rarer it is called while the thread
    /// rests, the later memory goes back.
    pub fn look(&self) {
        let now = Instant::now();
        let since = self.ticked.get().map(|last| now.duration_since(last));
        if since.is_none_or(|it| it >= TICK) {
            self.ticked.set(Some(now));
            self.tick();
        }
    }

    /// The next one of the queue that the thread works for.
    ///
    /// # Errors
    /// When nobody can put anything into the queue any more.
    pub fn receive<T>(&self, queue: &impl Queue<T>) -> Result<T, RecvError> {
        // As long as it takes from the end of work until it is collected, and no longer: a thread
        // that has nothing to do sleeps.
        for _ in 0..=TICKS_MIN {
            self.look();
            match queue.next(Some(TICK)) {
                Ok(next) => return Ok(next),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(RecvError),
            }
        }
        queue.next(None).map_err(|_| RecvError)
    }

    fn is_due(&self, now: Duration) -> bool {
        let recent = now.saturating_sub(self.seen.replace(now));
        let work = now.saturating_sub(self.released.get());
        self.ticks.set(self.ticks.get().saturating_add(1));
        let is_due = self.ticks.get() >= TICKS_MIN && recent < BUSY && work >= WORTH;
        if is_due {
            self.ticks.set(0);
        }
        is_due
    }
}

/// The time that this thread has been on a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Has the allocator give back what this thread has freed. There is no call for that without
/// `unsafe`; but before it refuses memory mimalloc collects all that it can (`_mi_malloc_generic`),
/// so it is asked for more than there is.
fn collect() {
    let mut asked: Vec<u8> = Vec::new();
    let is_refused = black_box(asked.try_reserve_exact(TOO_MUCH)).is_err();
    debug_assert!(is_refused);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At which ticks memory is collected by a thread that works for so many milliseconds before
    /// each.
    fn due(work: impl IntoIterator<Item = u64>) -> Vec<usize> {
        let (release, mut time) = (Release::default(), Duration::ZERO);
        let mut found = Vec::new();
        for (at, work) in work.into_iter().enumerate() {
            time += Duration::from_millis(work);
            if release.is_due(time) {
                release.released.set(time);
                found.push(at + 1);
            }
        }
        found
    }

    #[test]
    fn a_worker_that_rests_after_work_collects_once() {
        let work = [400; 30].into_iter().chain([0; 200]);
        assert_eq!(due(work), [31]);
        assert_eq!(due([0; 500]), [0_usize; 0]);
    }

    #[test]
    fn one_that_is_busy_does_not_and_one_that_works_a_little_does_now_and_then() {
        assert_eq!(due([110; 500]), [0_usize; 0]);
        assert_eq!(due([5; 35]), [10, 20, 30]);
    }

    #[test]
    fn what_is_in_the_queue_comes_and_its_end_is_told() {
        let (sender, queue) = std::sync::mpsc::channel();
        let release = Release::default();
        sender.send(7).unwrap();
        assert_eq!(release.receive(&queue), Ok(7));
        drop(sender);
        assert_eq!(release.receive(&queue), Err(RecvError));
        assert!(release.ticked.get().is_some());
    }

    #[test]
    fn asking_for_too_much_is_refused() {
        collect();
        assert!(processor_time() > Duration::ZERO);
    }
}

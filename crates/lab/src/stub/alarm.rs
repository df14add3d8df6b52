//! Waits that end when they are due. The runtime counts in milliseconds and rounds up twice, which
//! is more than one percent of a short delay.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// How long one may be late so that others are woken with it.
const GRAIN: Duration = Duration::from_micros(100);

/// Wakes tasks of any thread when they are due.
#[derive(Default)]
pub(super) struct Alarm {
    waiting: Mutex<Waiting>,
    is_running: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    /// By when they are due, and in the order in which they came.
    tasks: BTreeMap<(Instant, u64), Waker>,
    last: u64,
    /// Whoever sets the clock.
    clock: Option<Waker>,
    /// When the clock rings, when it has been set.
    rings_at: Option<Instant>,
}

impl Alarm {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ready when this time has passed. Somebody must run [`Alarm::run`].
    pub fn wait(&self, time: Duration) -> impl Future<Output = ()> {
        Wait {
            alarm: self,
            due: Instant::now() + time,
            number: None,
        }
    }

    /// Runs the clock, for ever, unless somebody does already.
    ///
    /// # Errors
    /// When the kernel gives no timer.
    pub async fn run(&self) -> io::Result<()> {
        if self.is_running.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
        Err(poll_fn(|context| self.poll(&timer, context)).await)
    }

    /// Wakes those who are due and sets the clock to the next. Ready when that is not possible.
    fn poll(&self, timer: &AsyncFd<OwnedFd>, context: &mut Context<'_>) -> Poll<io::Error> {
        let mut waiting = self.lock();
        while let Poll::Ready(ready) = timer.poll_read_ready(context) {
            match ready {
                Ok(mut ready) => ready.clear_ready(),
                Err(error) => return Poll::Ready(error),
            }
            waiting.rings_at = None;
        }
        waiting.wake(Instant::now());
        waiting.clock = Some(context.waker().clone());
        let first = waiting.tasks.first_key_value();
        let Some(due) = first.map(|((due, _), _)| *due) else {
            return Poll::Pending;
        };
        if waiting.rings_at.is_none_or(|at| at > due) {
            waiting.rings_at = Some(due);
            // Setting it takes back that it has rung.
            if let Err(error) = set(timer.get_ref(), due) {
                return Poll::Ready(error);
            }
        }
        Poll::Pending
    }
}

impl Waiting {
    /// Wakes those who are due.
    fn wake(&mut self, now: Instant) {
        while let Some(first) = self.tasks.first_entry().filter(|it| it.key().0 <= now) {
            first.remove().wake();
        }
    }
}

/// Has the timer ring then.
fn set(timer: &OwnedFd, due: Instant) -> io::Result<()> {
    let left = due.saturating_duration_since(Instant::now()).max(GRAIN);
    let zero = Timespec::default();
    let time = Itimerspec {
        it_interval: zero,
        it_value: Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        },
    };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &time)?;
    Ok(())
}

/// One who waits.
struct Wait<'a> {
    alarm: &'a Alarm,
    due: Instant,
    /// Its number, once it waits.
    number: Option<u64>,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.due {
            return Poll::Ready(());
        }
        let mut waiting = self.alarm.lock();
        let number = self.number.unwrap_or_else(|| {
            waiting.last += 1;
            waiting.last
        });
        let key = (self.due, number);
        waiting.tasks.insert(key, context.waker().clone());
        if waiting.rings_at.is_none_or(|at| at > self.due)
            && let Some(clock) = waiting.clock.take()
        {
            clock.wake();
        }
        drop(waiting);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.alarm.lock().tasks.remove(&(self.due, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn whoever_is_due_is_woken_in_order() {
        let alarm = std::sync::Arc::new(Alarm::default());
        let clock = std::sync::Arc::clone(&alarm);
        tokio::spawn(async move { clock.run().await });
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        for time in [30, 10, 20, 10] {
            let (alarm, tell) = (std::sync::Arc::clone(&alarm), tell.clone());
            tokio::spawn(async move {
                let (start, time) = (Instant::now(), Duration::from_millis(time));
                alarm.wait(time).await;
                assert!(start.elapsed() >= time);
                tell.send(time.as_millis()).unwrap();
            });
        }
        drop(tell);
        // One who waits no more is forgotten.
        let gone = tokio::time::timeout(Duration::from_millis(5), alarm.wait(Duration::from_secs(3600)));
        assert!(gone.await.is_err());
        let mut order = Vec::new();
        while let Some(time) = told.recv().await {
            order.push(time);
        }
        assert_eq!(order, [10, 10, 20, 30]);
        assert!(alarm.lock().tasks.is_empty());
    }
}

//! Waits that end when they are due. The runtime counts in milliseconds and rounds up twice, which
//! is more than one percent of a short delay.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// How long one may be late so that others are woken with it.
const GRAIN: Duration = Duration::from_micros(100);

/// Wakes tasks of any thread when they are due.
#[derive(Default)]
pub(super) struct Alarm {
    waiting: Mutex<Waiting>,
    /// Tells the clock that somebody is due before all others.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// By when they are due, and in the order in which they came.
    tasks: BTreeMap<(Instant, u64), Waker>,
    /// The number of the last who came.
    last: u64,
    has_clock: bool,
}

impl Alarm {
    /// Starts the clock, unless it runs: a thread that lives as long as the process, on the cores
    /// of the calling one.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        if std::mem::replace(&mut self.lock().has_clock, true) {
            return Ok(());
        }
        let alarm = Arc::clone(self);
        let clock = thread::Builder::new().name("alarm".to_owned());
        clock.spawn(move || alarm.run()).map(drop)
    }

    /// Ready when this time has passed, if the clock runs.
    pub fn wait(&self, time: Duration) -> impl Future<Output = ()> {
        Wait {
            alarm: self,
            due: Instant::now() + time,
            number: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) -> ! {
        let mut waiting = self.lock();
        loop {
            let now = Instant::now();
            while let Some(first) = waiting.tasks.first_entry()
                && first.key().0 <= now
            {
                first.remove().wake();
            }
            let next = waiting.tasks.first_key_value();
            // Without anybody it is told of the first who comes.
            let left = next.map_or(Duration::from_secs(60), |((due, _), _)| *due - now);
            let slept = self.changed.wait_timeout(waiting, left.max(GRAIN));
            waiting = slept.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
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
        if waiting
            .tasks
            .first_key_value()
            .is_some_and(|(first, _)| *first == key)
        {
            self.alarm.changed.notify_one();
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
        let alarm = Arc::new(Alarm::default());
        alarm.start().unwrap();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        // Waits no more before it is due.
        let gone = alarm.wait(Duration::from_secs(3600));
        let gone = tokio::time::timeout(Duration::from_millis(5), gone).await;
        assert!(gone.is_err());
        for time in [600, 200, 400, 200] {
            let (alarm, tell) = (Arc::clone(&alarm), tell.clone());
            tokio::spawn(async move {
                let (start, time) = (Instant::now(), Duration::from_millis(time));
                alarm.wait(time).await;
                assert!(start.elapsed() >= time);
                tell.send(time.as_millis()).unwrap();
            });
        }
        drop(tell);
        let mut order = Vec::new();
        while let Some(time) = told.recv().await {
            order.push(time);
        }
        assert_eq!(order, [200, 200, 400, 600]);
        assert!(alarm.lock().tasks.is_empty());
    }
}

//! Heartbeats of workers: each says again and again that it moves, and the admin port asks whether
//! all of them do. A worker that a loop without end holds up answers nobody and says nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The heartbeats of all workers.
pub(crate) struct Heartbeats {
    origin: Instant,
    workers: Mutex<Vec<(usize, Weak<AtomicU64>)>>,
}

/// A worker that has not moved for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuckWorker {
    /// Its number.
    pub number: usize,
    /// For how long.
    pub time: Duration,
}

/// Says that a worker moves. A worker that has ended is not missed.
pub(crate) struct Heartbeat {
    origin: Instant,
    /// When it was said last, in milliseconds from the origin.
    last: Arc<AtomicU64>,
}

impl Heartbeats {
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
            workers: Mutex::default(),
        }
    }

    /// The heartbeat of one more worker, which has moved just now.
    pub fn add(&self, number: usize) -> Heartbeat {
        let heartbeat = Heartbeat {
            origin: self.origin,
            last: Arc::default(),
        };
        heartbeat.beat();
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|(_, last)| last.strong_count() > 0);
        workers.push((number, Arc::downgrade(&heartbeat.last)));
        heartbeat
    }

    /// The workers that have not moved for this time.
    pub fn stuck(&self, limit: Duration) -> Vec<StuckWorker> {
        let now = self.origin.elapsed();
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let times = workers.iter().filter_map(|(number, last)| {
            let last = Duration::from_millis(last.upgrade()?.load(Ordering::Relaxed));
            let (number, time) = (*number, now.saturating_sub(last));
            Some(StuckWorker { number, time })
        });
        times.filter(|worker| worker.time >= limit).collect()
    }
}

impl Heartbeat {
    /// The worker moves.
    pub fn beat(&self) {
        let now = self.origin.elapsed().as_millis() as u64;
        self.last.store(now, Ordering::Relaxed);
    }
}

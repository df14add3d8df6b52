//! How an HTTP/2 connection wakes the pool that lends its streams.

use std::cell::Cell;
use std::sync::Arc;

use crate::pool::PoolWaker;

/// Wakes the pool when streams of an HTTP/2 connection become free. The observer of a client's
/// connection to us has no pool and wakes nobody.
#[derive(Debug, Default)]
pub struct StreamObserver {
    pool: Option<Arc<PoolWaker>>,
    /// Whether somebody waits for what a stream's end may free.
    is_wanted: Cell<bool>,
}

impl StreamObserver {
    /// One that wakes this pool.
    pub fn waking(pool: &Arc<PoolWaker>) -> Self {
        Self {
            pool: Some(Arc::clone(pool)),
            is_wanted: Cell::new(false),
        }
    }

    pub(crate) fn set_wanted(&self, is_wanted: bool) {
        self.is_wanted.set(is_wanted);
    }

    /// A stream has ended.
    #[inline]
    pub fn stream_ended(&self) {
        if self.is_wanted.get() {
            self.capacity_changed();
        }
    }

    /// The connection takes more streams than before, or none any more: its permit is free then.
    pub fn capacity_changed(&self) {
        if let Some(pool) = &self.pool {
            pool.wake();
        }
    }
}

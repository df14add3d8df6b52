//! How an HTTP/2 connection tells the pool it belongs to that streams have become free.

use std::cell::Cell;
use std::sync::Arc;

use crate::pool::PoolWaker;

/// Tells a pool about streams that have become free. That of a server's connection tells nobody.
#[derive(Debug, Default)]
pub struct Queue {
    pool: Option<Arc<PoolWaker>>,
    /// Whether somebody waits for what a stream's end may free.
    is_wanted: Cell<bool>,
}

impl Queue {
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
    pub fn wake_one(&self) {
        if self.is_wanted.get() {
            self.wake_all();
        }
    }

    /// The connection takes more streams than before, or none any more: its permit is free then.
    pub fn wake_all(&self) {
        if let Some(pool) = &self.pool {
            pool.wake();
        }
    }
}

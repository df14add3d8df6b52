//! A bound on what waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Refusal;

/// What waits, in bytes, and how much may.
pub(crate) struct Backlog {
    taken: AtomicU64,
    max: u64,
}

/// A place among what waits, which is free again when this is gone.
pub(crate) struct Queued(Arc<Backlog>, u64);

impl Backlog {
    pub fn new(max: u64) -> Self {
        Self {
            taken: AtomicU64::new(0),
            max,
        }
    }

    /// Takes so many bytes of it. However many, it has room for them when nobody waits.
    ///
    /// # Errors
    /// When there is not as much.
    pub fn take(self: &Arc<Self>, size: u64) -> Result<Queued, Refusal> {
        let before = self.taken.fetch_add(size, Ordering::Relaxed);
        let place = Queued(Arc::clone(self), size);
        match before > 0 && before.saturating_add(size) > self.max {
            true => Err(Refusal::Busy),
            false => Ok(place),
        }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(self.1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_waits_as_may() {
        let backlog = Arc::new(Backlog::new(100));
        let large = backlog.take(1000);
        assert!(large.is_ok(), "it has room for anything when nobody waits");
        assert!(matches!(backlog.take(1), Err(Refusal::Busy)));
        drop(large);
        let places: Vec<_> = (0..10).map(|_| backlog.take(10)).collect();
        assert!(places.iter().all(Result::is_ok));
        assert!(matches!(backlog.take(1), Err(Refusal::Busy)));
        drop(places);
        assert!(backlog.take(100).is_ok());
    }
}

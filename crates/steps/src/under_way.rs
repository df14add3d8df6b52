//! What sources have under way: runs of a flow beside each other, and work that may block.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use component::handler::{LocalFuture, Services};

/// Futures that run beside each other. Nothing is spawned: they end with whoever holds them.
pub(crate) struct UnderWay<'a, T> {
    futures: Vec<LocalFuture<'a, T>>,
}

impl<'a, T> UnderWay<'a, T> {
    /// Nothing.
    pub fn new() -> Self {
        Self {
            futures: Vec::new(),
        }
    }

    /// Adds one. It begins when it is polled.
    pub fn push(&mut self, future: LocalFuture<'a, T>) {
        self.futures.push(future);
    }

    /// How many have not ended.
    pub fn len(&self) -> usize {
        self.futures.len()
    }

    /// Whether all have ended.
    pub fn is_empty(&self) -> bool {
        self.futures.is_empty()
    }

    /// Lets all go on. What one gives that has ended; pending also when there is none.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<T> {
        for at in 0..self.futures.len() {
            let Some(future) = self.futures.get_mut(at) else {
                break;
            };
            if let Poll::Ready(result) = future.as_mut().poll(context) {
                drop(self.futures.swap_remove(at));
                return Poll::Ready(result);
            }
        }
        Poll::Pending
    }
}

/// Does work that may block where it holds nobody up. `None` when it has panicked.
pub(crate) async fn blocking<T: Send + 'static>(
    services: &dyn Services,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let place = Arc::new(Mutex::new(None));
    let result = Arc::clone(&place);
    let work = move || {
        let made = work();
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
    };
    services.blocking(Box::new(work)).await;
    let mut result = result.lock().unwrap_or_else(PoisonError::into_inner);
    result.take()
}

#[cfg(test)]
pub(crate) mod testing;
